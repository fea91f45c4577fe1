"""The job-shop policy: operations are encoded once, and a small network scores the jobs at each
decision.

The encoder mixes operations along each job and among those of each machine. A decision then takes,
for each job, the row of its next operation from a table and the times of the moment relative to the
frontier, lets the jobs attend to one another, and scores them. The latent enters both hidden layers
of that network as a bias that is zero at first.
"""

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rhumbline.policies.attention.encoder import check_sizes
from rhumbline.policies.latent_space import Box
from rhumbline.problems.jssp import JSSPBatch, JSSPState
from rhumbline.problems.jssp.rules import BEYOND_HORIZON, NextOperations
from rhumbline.record import Record

CLIP = 10.0  # scores are CLIP * tanh(. / CLIP)
MASK_BIAS = (
    -1e9
)  # added to what attention must not see; finite, so that rows with nothing to see stay finite too
LEAST, MOST = (
    1e-20,
    1e20,
)  # sums of powers of e that are far from rounding to nothing or to infinity
REACH = 3  # operations along a job that are told apart by their distance


@dataclass(frozen=True)
class JSSPArchitecture:
    """Sizes of the network; stored in the checkpoint."""

    width: int = 128
    heads: int = 4
    layers: int = 3
    hidden: int = 256
    latent: int = 16
    amplify: float = 100.0

    def __post_init__(self) -> None:
        check_sizes(self)


@dataclass(frozen=True)
class JSSPMemory(Record):
    """Everything that decoding reads of an instance."""

    table: Float[
        Tensor, "B JC H"
    ]  # what each operation, as its job's next, contributes to the first hidden layer
    unit: Float[Tensor, "B 1 1 1"]  # mean duration
    bound: Float[Tensor, "B 1 1 1"]  # longest job or busiest machine


@dataclass(frozen=True)
class JSSPLatentBias(Record):
    """All that a latent changes: a bias of each hidden layer."""

    token: Float[Tensor, "B K H"]
    hidden: Float[Tensor, "B K H"]


@dataclass(frozen=True)
class MachineGroups(Record):
    """Operations by machine: G places on each of M machines, and where each of the N operations
    is among them.
    """

    member: Int[Tensor, "B MG"]  # the operation in each place
    place: Int[Tensor, "B N"]  # the place of each operation; MG for those that do not exist
    on_machine: Float[Tensor, "B M 1 1 G"]  # added to attention: nobody attends to an empty place
    in_job: Float[Tensor, "B J 1 1 O"]  # the same for the ends of shorter jobs


def machine_groups(batch: JSSPBatch) -> MachineGroups:
    """How the operations of each instance share machines."""
    (count, machines), crowd = (batch.load.shape[0], batch.load.shape[1] - 1), batch.max_per_machine
    machine = batch.machine[..., :-1].flatten(1)
    ones = torch.ones_like(machine)
    sizes = ones.new_zeros(count, machines + 1).scatter_add(1, machine, ones)
    order = machine.argsort(dim=1, stable=True)
    owner = machine.gather(1, order)
    rank = ones.cumsum(1) - 1 - (sizes.cumsum(1) - sizes).gather(1, owner)
    slot = torch.where(owner < machines, owner * crowd + rank, machines * crowd)
    place = torch.empty_like(machine).scatter_(1, order, slot)
    spread = ones.new_zeros(count, machines * crowd + 1)
    member = spread.scatter(1, slot, order)[:, :-1]
    empty = spread.scatter(1, slot, 1)[:, :-1] == 0
    missing = batch.machine[:, :, None, None, :-1] == machines
    return MachineGroups(
        member,
        place,
        MASK_BIAS * empty.view(count, machines, 1, 1, crowd).float(),
        MASK_BIAS * missing.float(),
    )


def operation_features(batch: JSSPBatch) -> Float[Tensor, "B J O 8"]:
    """Durations and work before, after and around each operation, free of units and nearly of
    the instance's size.
    """
    work = batch.duration[..., :-1]
    tail = batch.tail[..., :-1]
    total = tail[:, :, :1]
    length = (batch.machine < batch.load.shape[1] - 1).sum(2, keepdim=True)
    load = batch.load[:, None].expand(-1, work.shape[1], -1).gather(2, batch.machine[..., :-1])
    unit, bound = (x[..., 0] for x in time_scales(batch))
    crowd = batch.duration.shape[1]
    place = torch.arange(work.shape[2], device=work.device) / length
    parts = (
        work / unit,
        (total - tail) / bound,
        (tail - work) / bound,
        (total / bound).expand_as(work),
        load / bound,
        work / total.clamp(min=1) * length,
        work / load.clamp(min=1) * crowd,
        place,
    )
    return torch.stack(parts, -1)


def time_scales(batch: JSSPBatch) -> tuple[Float[Tensor, "B 1 1 1"], Float[Tensor, "B 1 1 1"]]:
    """Mean duration, and the longest job or busiest machine; at least 1, for instances in which
    nothing takes time.
    """
    operations = (batch.machine < batch.load.shape[1] - 1).sum((1, 2))
    unit = (batch.load.sum(1) / operations).clamp(min=1.0)
    bound = (
        torch.maximum(batch.tail[:, :, 0].amax(1), batch.load.amax(1)).clamp(min=1).to(unit.dtype)
    )
    return unit[:, None, None, None], bound[:, None, None, None]


class Attention(nn.Module):
    """Self-attention over the second last axis with an additive bias; written out, because the
    sequences are short.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "*X L D"], bias: Tensor) -> Float[Tensor, "*X L D"]:
        """Each of L tokens sees the others; the bias broadcasts to [*X, heads, L, L]."""
        return self.out(self.glimpses(x, bias))

    def glimpses(self, x: Float[Tensor, "*X L D"], bias: Tensor) -> Float[Tensor, "*X L D"]:
        """The same before the last product."""
        q, k, v = (
            at_least_float32(self.qkv(x))
            .unflatten(-1, (3, self.heads, -1))
            .transpose(-4, -2)
            .unbind(-3)
        )
        return biased_attention(q, k, v, bias)


def at_least_float32(x: Float[Tensor, "*X"]) -> Float[Tensor, "*X"]:
    """At least float32 where a gradient is wanted: attention's in bfloat16 drives weights apart
    (docs/training.md).
    """
    return x.to(torch.promote_types(x.dtype, torch.float32)) if torch.is_grad_enabled() else x


def biased_attention(
    q: Float[Tensor, "*X N L C"],
    k: Float[Tensor, "*X N L C"],
    v: Float[Tensor, "*X N L C"],
    bias: Tensor | float,
) -> Float[Tensor, "*X L D"]:
    """Attention in the precision of its arguments, also under autocast; heads side by side."""
    with torch.autocast(q.device.type, enabled=False):
        score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias
        weighted = (fast_softmax(score) if is_cpu_inference(score) else score.softmax(-1)).to(
            v.dtype
        ) @ v
        return weighted.transpose(-2, -3).flatten(-2)


def is_cpu_inference(x: Tensor) -> bool:
    """Whether a CPU only looks for numbers, not for gradients: there torch's ways with short
    rows are slow ones.
    """
    return x.device.type == "cpu" and not torch.is_grad_enabled()


def fast_softmax(score: Float[Tensor, "*X L"]) -> Float[Tensor, "*X L"]:
    """A softmax without the maximum of each row, if scores allow: a fraction of torch's time
    with short rows.
    """
    weight = score.exp()
    total = weight.sum(-1, keepdim=True)
    safe = bool(((total > LEAST) & (total < MOST)).all())
    return weight.div_(total) if safe else score.softmax(-1)


def fast_asinh(x: Float[Tensor, "*X"]) -> Float[Tensor, "*X"]:
    """The inverse hyperbolic sine, which torch computes number by number on a CPU."""
    if not is_cpu_inference(x):
        return torch.asinh(x)
    size = x.abs()
    return torch.log(size + torch.sqrt(size * size + 1.0)).copysign_(x)


class OperationLayer(nn.Module):
    """Mixes along each job, among the operations of each machine, and within each operation;
    pre-norm.
    """

    def __init__(self, a: JSSPArchitecture):
        super().__init__()
        self.chain, self.crowd = Attention(a.width, a.heads), Attention(a.width, a.heads)
        self.offset = nn.Parameter(torch.zeros(a.heads, 2 * REACH + 1))
        self.norm_chain, self.norm_crowd, self.norm_hidden = (
            nn.LayerNorm(a.width) for _ in range(3)
        )
        self.up, self.down = nn.Linear(a.width, a.hidden), nn.Linear(a.hidden, a.width)

    def forward(
        self, x: Float[Tensor, "B J O D"], groups: MachineGroups
    ) -> Float[Tensor, "B J O D"]:
        """Three residual steps."""
        x = x + self.chain(self.norm_chain(x), self.distance(x) + groups.in_job)
        x = x + self.on_machines(self.norm_crowd(x), groups)
        return x + self.down(F.relu(self.up(self.norm_hidden(x))))

    def distance(self, x: Float[Tensor, "B J O D"]) -> Float[Tensor, "heads O O"]:
        """Attention's bias by how far apart two operations of a job are, and in which direction."""
        place = torch.arange(x.shape[2], device=x.device)
        return self.offset[:, (place[None] - place[:, None]).clamp(-REACH, REACH) + REACH]

    def on_machines(
        self, x: Float[Tensor, "B J O D"], groups: MachineGroups
    ) -> Float[Tensor, "B J O D"]:
        """Attention among the operations of each machine, whether or not every job comes there
        just once.
        """
        count = len(x)
        machines = groups.on_machine.shape[1]
        crowd = groups.on_machine.shape[4]
        width = x.shape[3]
        together = x.flatten(1, 2).gather(1, groups.member[..., None].expand(-1, -1, width))
        mixed = self.crowd(together.view(count, machines, crowd, width), groups.on_machine).flatten(
            1, 2
        )
        mixed = F.pad(mixed, (0, 0, 0, 1))  # the place of operations that do not exist
        return mixed.gather(1, groups.place[..., None].expand(-1, -1, width)).view(x.shape)


class OperationEncoder(nn.Module):
    """Instances to embeddings of their operations."""

    def __init__(self, a: JSSPArchitecture):
        super().__init__()
        self.embed = nn.Linear(8, a.width)
        self.layers = nn.ModuleList(OperationLayer(a) for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.width)

    def forward(
        self, features: Float[Tensor, "B J O 8"], groups: MachineGroups
    ) -> Float[Tensor, "B J O D"]:
        """Embeddings of all operations."""
        x = self.embed(features)
        for layer in self.layers:
            x = layer(x, groups)
        return self.norm(x)


TIMES = 13  # features of a job at a decision
Rows = Int[Tensor, "X"] | slice  # of decisions, all instances and rollouts in one row


class Dispatcher(nn.Module):
    """Scores the jobs of a decision. `H` is twice the width."""

    def __init__(self, a: JSSPArchitecture):
        super().__init__()
        wide = 2 * a.width
        self.table, self.times = nn.Linear(a.width, wide), nn.Linear(TIMES, wide, bias=False)
        self.token = nn.Linear(wide, a.width)
        self.norm, self.among = nn.LayerNorm(a.width), Attention(a.width, a.heads)
        self.rival = nn.Parameter(
            torch.zeros(a.heads, 1, 1)
        )  # attention between jobs that wait for one machine
        self.hidden, self.context = nn.Linear(a.width, wide), nn.Linear(wide, wide, bias=False)
        self.score = nn.Linear(wide, 1, bias=False)
        self.token_latent, self.hidden_latent = (
            nn.Parameter(torch.zeros(a.latent, wide)) for _ in range(2)
        )
        self.amplify: Tensor
        self.register_buffer("amplify", torch.tensor(float(a.amplify)))

    def tables(self, embedding: Float[Tensor, "B J O D"]) -> Float[Tensor, "B JC H"]:
        """The first hidden layer's share of each operation; zeros for jobs that have none left,
        which nobody sees.
        """
        return F.pad(self.table(embedding), (0, 0, 0, 1)).flatten(1, 2)

    def condition(self, latents: Float[Tensor, "B K Z"]) -> JSSPLatentBias:
        """What each latent adds to the hidden layers."""
        z = latents * self.amplify
        return JSSPLatentBias(z @ self.token_latent, z @ self.hidden_latent)

    def forward(
        self,
        tokens: Float[Tensor, "X J H"],
        shift: JSSPLatentBias,
        rivals: Bool[Tensor, "X J J"],
        seen: Float[Tensor, "X 2 J"],
        rows: Rows,
    ) -> Float[Tensor, "X J"]:
        """Scores from the first hidden layer on. `seen` weighs the jobs that are unfinished, and
        those allowed.

        Where decisions were chosen (`rows`), others than the allowed jobs, which are few, get no
        score but zero.
        """
        x = self.token(F.relu(tokens + shift.token))
        bias = rivals[:, None] * self.rival + MASK_BIAS * (seen[:, None, :1] == 0)
        glimpses = self.among.glimpses(self.norm(x), bias)
        # Weights add up to one, so that means may go through the product of attention instead of
        # every job.
        context = seen.to(x.dtype) @ x + self.among.out(
            seen.to(glimpses.dtype) @ glimpses
        )  # [X, 2, D]
        common = self.context(context.flatten(1))[:, None] + shift.hidden
        if isinstance(rows, slice):
            return self.squashed(x + self.among.out(glimpses), common)
        row, job = (seen[:, 1] > 0).nonzero(as_tuple=True)
        scores = self.squashed(x[row, job] + self.among.out(glimpses[row, job]), common[row, 0])
        return scores.new_zeros(len(seen), seen.shape[2]).index_put((row, job), scores)

    def squashed(
        self, x: Float[Tensor, "*X D"], common: Float[Tensor, "... H"]
    ) -> Float[Tensor, "*X"]:
        """Scores of jobs, given what all jobs of their decision have in common."""
        return CLIP * torch.tanh(self.score(F.relu(self.hidden(x) + common))[..., 0].float() / CLIP)


def decision_features(
    memory: JSSPMemory, state: JSSPState, view: NextOperations, allowed: Bool[Tensor, "B R J"]
) -> Float[Tensor, "B R J 13"]:
    """What the moment looks like for each job: times from the frontier, work left, and whether it
    may go.

    The frontier is the earliest start, the earliest finish, and the makespan that the work left
    implies at least. Near times count in mean durations, bent beyond a few of them so that large
    instances look familiar.
    """
    start = view.start.masked_fill(view.done, BEYOND_HORIZON).amin(2, keepdim=True)
    finish = view.finish.masked_fill(view.done, BEYOND_HORIZON).amin(2, keepdim=True)
    through = view.start + view.tail
    busy = view.free + view.load
    jobs = through.amax(2, keepdim=True)
    machines = (state.machine + state.left).amax(2, keepdim=True)
    bound = torch.maximum(jobs, machines)
    near = torch.stack(
        [
            state.job - start,
            view.free - start,
            view.start - start,
            view.finish - finish,
            view.start - finish,
            through - bound,
            busy - bound,
            view.duration,
        ],
        dim=-1,
    )
    far = torch.stack([view.tail, view.load, (bound - start).expand_as(view.tail)], dim=-1)
    done = state.next / state.durations.shape[3]
    share = torch.stack([done, allowed.to(done.dtype)], dim=-1)
    return torch.cat([fast_asinh(near / memory.unit), far / memory.bound, share], dim=-1)


def rows_with_choice(allowed: Bool[Tensor, "B R A"]) -> Rows:
    """Decisions that have a choice; others need no scores, where telling them apart is cheap.

    Not on a GPU step by step, because their number would have to travel to the host; there it is
    all of them.
    """
    if allowed.device.type == "cuda" and not torch.is_grad_enabled():
        return slice(None)
    return (allowed.sum(2) > 1).flatten().nonzero()[:, 0]


def scatter_scores(
    scores: Float[Tensor, "X A"], rows: Rows, allowed: Bool[Tensor, "B R A"]
) -> Float[Tensor, "B R A"]:
    """Scores back in their rows, zeros elsewhere."""
    if isinstance(rows, slice):
        return scores.view(allowed.shape)
    return (
        scores.new_zeros(allowed.shape).flatten(0, 1).index_put((rows,), scores).view(allowed.shape)
    )


class JSSPPolicy(nn.Module):
    """Encodes once; then each step scores the jobs."""

    problem = "jssp"
    half_steps = True  # decisions, too, may be computed in bfloat16 while training

    def __init__(self, architecture: JSSPArchitecture = JSSPArchitecture()):  # noqa: B008 (frozen, so safe to share)
        super().__init__()
        self.architecture = architecture
        self.encoder, self.decoder = OperationEncoder(architecture), Dispatcher(architecture)

    @property
    def space(self) -> Box:
        """The latents this policy understands; of size 0 for a single policy."""
        return Box(self.architecture.latent)

    def footprint(self, width: int, steps: int) -> int:
        """Numbers that one rollout keeps at once."""
        return width * self.architecture.width + steps

    def encode(self, batch: JSSPBatch) -> JSSPMemory:
        """Tables for all later decoding."""
        embedding = self.encoder(operation_features(batch), machine_groups(batch))
        return JSSPMemory(self.decoder.tables(embedding), *time_scales(batch))

    def condition(self, memory: JSSPMemory, latents: Float[Tensor, "B K Z"]) -> JSSPLatentBias:
        """What each latent changes."""
        return self.decoder.condition(latents)

    def adjustable(self, memory: JSSPMemory) -> Float[Tensor, "B JC H"]:
        """What a search may adjust to an instance: what each operation contributes to the first
        hidden layer.
        """
        return memory.table

    def adjusted(self, memory: JSSPMemory, table: Float[Tensor, "B JC H"]) -> JSSPMemory:
        """The same with another table."""
        return replace(memory, table=table)

    def logits(
        self,
        memory: JSSPMemory,
        shift: JSSPLatentBias,
        state: JSSPState,
        allowed: Bool[Tensor, "B R J"],
    ) -> Float[Tensor, "B R J"]:
        """Scores of the jobs, before masking; zeros without a choice (`choices`), and then where
        a job may not go.
        """
        rows = rows_with_choice(allowed)
        return scatter_scores(self.score_rows(memory, shift, state, allowed, rows), rows, allowed)

    def score_rows(
        self,
        memory: JSSPMemory,
        shift: JSSPLatentBias,
        state: JSSPState,
        allowed: Bool[Tensor, "B R J"],
        rows: Rows,
    ) -> Float[Tensor, "X J"]:
        """Scores of chosen decisions, all instances and rollouts in one row."""
        view, (count, _, jobs) = state.next_operations, allowed.shape
        times = decision_features(memory, state, view, allowed)
        cells = (
            torch.arange(count * jobs, device=allowed.device).view(count, 1, jobs)
            * state.durations.shape[3]
        )
        cell = (cells + state.next).flatten(0, 1)[rows]
        tokens = F.embedding(cell, memory.table.flatten(0, 1)) + self.decoder.times(
            times.flatten(0, 1)[rows]
        )
        machine = view.machine.flatten(0, 1)[rows]
        seen = torch.stack([~view.done, allowed], dim=2).float()
        seen = (seen / seen.sum(3, keepdim=True).clamp(min=1.0)).flatten(0, 1)[rows]
        own = shift.map(lambda x: x.flatten(0, 1)[rows][:, None])
        return self.decoder(tokens, own, machine[:, None] == machine[..., None], seen, rows)

    def widened(self, latent: int, amplify: float = 100.0) -> "JSSPPolicy":
        """The same policy with a latent space whose every point behaves exactly alike."""
        wide = JSSPPolicy(replace(self.architecture, latent=latent, amplify=amplify))
        own = {n: x for n, x in self.state_dict().items() if not n.endswith(("_latent", "amplify"))}
        wide.load_state_dict(own, strict=False)
        return wide.to(next(self.parameters()).device)
