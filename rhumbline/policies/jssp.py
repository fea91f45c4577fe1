"""The job-shop policy: it encodes operations once, and scores jobs at each decision.

The encoder mixes operations along each job and among those of each machine. A decision takes, for
each job, the row of its next operation from a table, and the present times relative to the
frontier. The jobs attend to one another and are scored. The latent enters both hidden layers of
that network as a bias that is zero at first.
"""

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rhumbline.policies.attention.encoder import check_sizes
from rhumbline.policies.latent_space import Box, weights_without_latents
from rhumbline.problems.jssp import JSSP, JSSPBatch, JSSPState
from rhumbline.problems.jssp.rules import BEYOND_HORIZON, NextOperations
from rhumbline.record import Record


@dataclass(frozen=True)
class JSSPTuning:
    """Constants of the network and of its computation on a CPU."""

    clip: float = 10.0  # logits are clip * tanh(score / clip)
    # Added to what attention must not see. It is finite, so that rows that see nothing stay finite.
    mask_bias: float = -1e9
    # Sums of exponentials between these are far from rounding to nothing or to infinity.
    min_softmax_sum: float = 1e-20
    max_softmax_sum: float = 1e20
    distances: int = 3  # along a job, up to which operations are distinguished by their distance
    time_features: int = 13  # of a job at a decision


TUNING = JSSPTuning()


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

    table: Float[Tensor, "B JC H"]  # share of each operation in the first hidden layer
    unit: Float[Tensor, "B 1 1 1"]  # mean duration
    bound: Float[Tensor, "B 1 1 1"]  # longest job or busiest machine


@dataclass(frozen=True)
class JSSPLatentBias(Record):
    """All that a latent changes: a bias of each hidden layer."""

    token: Float[Tensor, "B K H"]
    hidden: Float[Tensor, "B K H"]


@dataclass(frozen=True)
class MachineGroups(Record):
    """Operations by machine: G places on each of M machines, for N operations."""

    member: Int[Tensor, "B MG"]  # the operation in each place
    place: Int[Tensor, "B N"]  # the place of each operation; MG for operations that do not exist
    on_machine: Float[Tensor, "B M 1 1 G"]  # attention bias that masks empty places
    in_job: Float[Tensor, "B J 1 1 O"]  # attention bias that masks the ends of shorter jobs


def machine_groups(batch: JSSPBatch) -> MachineGroups:
    """Group the operations of each instance by machine."""
    count = batch.load.shape[0]
    machines = batch.load.shape[1] - 1
    group = batch.max_per_machine
    machine = batch.machine[..., :-1].flatten(1)
    order = machine.argsort(dim=1, stable=True)
    owner = machine.gather(1, order)
    slot = torch.where(
        owner < machines,
        owner * group + rank_in_group(machine, owner, machines),
        machines * group,
    )
    place = torch.empty_like(machine).scatter_(1, order, slot)
    slots = machine.new_zeros(count, machines * group + 1)
    member = slots.scatter(1, slot, order)[:, :-1]
    is_empty = slots.scatter(1, slot, 1)[:, :-1] == 0
    is_empty = is_empty.view(count, machines, 1, 1, group)
    columns = batch.machine[:, :, None, None, :-1]
    is_missing = columns == machines
    return MachineGroups(
        member=member,
        place=place,
        on_machine=TUNING.mask_bias * is_empty.float(),
        in_job=TUNING.mask_bias * is_missing.float(),
    )


def rank_in_group(
    machine: Int[Tensor, "B N"], owner: Int[Tensor, "B N"], machines: int
) -> Int[Tensor, "B N"]:
    """Return the rank of each operation on its machine; `owner` has the machines sorted."""
    ones = torch.ones_like(machine)
    count = len(machine)
    sizes = ones.new_zeros(count, machines + 1)
    sizes = sizes.scatter_add(1, machine, ones)
    first = sizes.cumsum(1) - sizes
    position = ones.cumsum(1) - 1
    return position - first.gather(1, owner)


def operation_features(batch: JSSPBatch) -> Float[Tensor, "B J O 8"]:
    """Return durations, and the work before, after and around each operation.

    Features have no units and hardly depend on the size of the instance.
    """
    work = batch.duration[..., :-1]
    machine = batch.machine[..., :-1]
    tail = batch.tail[..., :-1]
    total = tail[:, :, :1]
    machines = batch.load.shape[1] - 1
    length = (batch.machine < machines).sum(2, keepdim=True)
    jobs = work.shape[1]
    loads = batch.load[:, None].expand(-1, jobs, -1)
    load = loads.gather(2, machine)
    unit, bound = (x[..., 0] for x in time_scales(batch))
    place = torch.arange(work.shape[2], device=work.device) / length
    features = (
        work / unit,
        (total - tail) / bound,
        (tail - work) / bound,
        (total / bound).expand_as(work),
        load / bound,
        work / total.clamp(min=1) * length,
        work / load.clamp(min=1) * jobs,
        place,
    )
    return torch.stack(features, -1)


def time_scales(batch: JSSPBatch) -> tuple[Float[Tensor, "B 1 1 1"], Float[Tensor, "B 1 1 1"]]:
    """Return the mean duration, and the longest job or busiest machine.

    Both are at least 1, for instances whose operations take no time.
    """
    machines = batch.load.shape[1] - 1
    is_real = batch.machine < machines
    operations = is_real.sum((1, 2))
    unit = batch.load.sum(1) / operations
    unit = unit.clamp(min=1.0)
    longest_job = batch.tail[:, :, 0].amax(1)
    busiest_machine = batch.load.amax(1)
    bound = torch.maximum(longest_job, busiest_machine)
    bound = bound.clamp(min=1).to(unit.dtype)
    return (
        unit[:, None, None, None],
        bound[:, None, None, None],
    )


class Attention(nn.Module):
    """Self-attention over the second last axis with an additive bias.

    It is written out, because the sequences are short.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "*X L D"], bias: Tensor) -> Float[Tensor, "*X L D"]:
        """Let each of L tokens attend to the others; the bias broadcasts to [*X, heads, L, L]."""
        glimpses = self.glimpses(x, bias)
        return self.out(glimpses)

    def glimpses(self, x: Float[Tensor, "*X L D"], bias: Tensor) -> Float[Tensor, "*X L D"]:
        """Return the attention read-outs before the output projection."""
        qkv = self.qkv(x)
        qkv = at_least_float32(qkv)
        shape = (3, self.heads, -1)
        parts = qkv.unflatten(-1, shape)
        parts = parts.transpose(-4, -2)
        q, k, v = parts.unbind(-3)
        return biased_attention(q, k, v, bias)


def at_least_float32(x: Float[Tensor, "*X"]) -> Float[Tensor, "*X"]:
    """Return `x` in float32 or better where a gradient is wanted.

    Attention's gradients in bfloat16 drive weights apart (research/notebooks/training.md).
    """
    if not torch.is_grad_enabled():
        return x
    return x.to(torch.promote_types(x.dtype, torch.float32))


def biased_attention(
    q: Float[Tensor, "*X N L C"],
    k: Float[Tensor, "*X N L C"],
    v: Float[Tensor, "*X N L C"],
    bias: Tensor | float,
) -> Float[Tensor, "*X L D"]:
    """Return attention read-outs, heads side by side, in the precision of the arguments.

    Autocast does not change that precision.
    """
    width = q.shape[-1]
    device = q.device.type
    with torch.autocast(device, enabled=False):
        score = q @ k.transpose(-1, -2)
        score = score / math.sqrt(width) + bias
        weight = fast_softmax(score)
        glimpse = weight.to(v.dtype) @ v
        glimpse = glimpse.transpose(-2, -3)
        return glimpse.flatten(-2)


def is_cpu_inference(x: Tensor) -> bool:
    """Return whether `x` is on a CPU without gradients, where torch is slow on short rows."""
    return x.device.type == "cpu" and not torch.is_grad_enabled()


def fast_softmax(score: Float[Tensor, "*X L"]) -> Float[Tensor, "*X L"]:
    """Return the softmax; on a CPU without the maximum of each row, if the scores allow that.

    On short rows this takes a fraction of the time of torch's softmax.
    """
    if not is_cpu_inference(score):
        return score.softmax(-1)
    weight = score.exp()
    total = weight.sum(-1, keepdim=True)
    is_large = total > TUNING.min_softmax_sum
    is_small = total < TUNING.max_softmax_sum
    is_exact = (is_large & is_small).all()
    return weight.div_(total) if bool(is_exact) else score.softmax(-1)


def fast_asinh(x: Float[Tensor, "*X"]) -> Float[Tensor, "*X"]:
    """Return the inverse hyperbolic sine, which torch does not vectorise on a CPU."""
    if not is_cpu_inference(x):
        return torch.asinh(x)
    size = x.abs()
    square = size * size
    root = torch.sqrt(square + 1.0)
    result = torch.log(size + root)
    return result.copysign_(x)


class OperationLayer(nn.Module):
    """Mixes along each job, among the operations of each machine, and per operation; pre-norm."""

    def __init__(self, a: JSSPArchitecture):
        super().__init__()
        width = a.width
        self.chain = Attention(width, a.heads)
        self.crowd = Attention(width, a.heads)
        distances = 2 * TUNING.distances + 1
        offset = torch.zeros(a.heads, distances)
        self.offset = nn.Parameter(offset)
        self.norm_chain = nn.LayerNorm(width)
        self.norm_crowd = nn.LayerNorm(width)
        self.norm_hidden = nn.LayerNorm(width)
        self.up = nn.Linear(width, a.hidden)
        self.down = nn.Linear(a.hidden, width)

    def forward(
        self, x: Float[Tensor, "B J O D"], groups: MachineGroups
    ) -> Float[Tensor, "B J O D"]:
        """Apply three residual steps."""
        bias = self.distance_bias(x) + groups.in_job
        tokens = self.norm_chain(x)
        x = x + self.chain(tokens, bias)
        tokens = self.norm_crowd(x)
        x = x + self.attend_on_machines(tokens, groups)
        tokens = self.norm_hidden(x)
        hidden = F.relu(self.up(tokens))
        return x + self.down(hidden)

    def distance_bias(self, x: Float[Tensor, "B J O D"]) -> Float[Tensor, "heads O O"]:
        """Return the attention bias by the signed distance of two operations of a job."""
        most = TUNING.distances
        steps = x.shape[2]
        place = torch.arange(steps, device=x.device)
        distance = place[None] - place[:, None]
        distance = distance.clamp(-most, most)
        index = distance + most
        return self.offset[:, index]

    def attend_on_machines(
        self, x: Float[Tensor, "B J O D"], groups: MachineGroups
    ) -> Float[Tensor, "B J O D"]:
        """Apply attention among the operations of each machine.

        A job may visit a machine any number of times.
        """
        machines = groups.on_machine.shape[1]
        size = groups.on_machine.shape[4]
        count, _, _, width = x.shape
        members = groups.member[..., None]
        members = members.expand(-1, -1, width)
        grouped = x.flatten(1, 2)
        grouped = grouped.gather(1, members)
        grouped = grouped.view(count, machines, size, width)
        mixed = self.crowd(grouped, groups.on_machine)
        mixed = mixed.flatten(1, 2)
        mixed = F.pad(mixed, (0, 0, 0, 1))  # the place of operations that do not exist
        places = groups.place[..., None]
        places = places.expand(-1, -1, width)
        mixed = mixed.gather(1, places)
        return mixed.view(x.shape)


class OperationEncoder(nn.Module):
    """Instances to embeddings of their operations."""

    def __init__(self, a: JSSPArchitecture):
        super().__init__()
        self.embed = nn.Linear(8, a.width)
        self.layers = nn.ModuleList()
        for _ in range(a.layers):
            self.layers.append(OperationLayer(a))
        self.norm = nn.LayerNorm(a.width)

    def forward(
        self, features: Float[Tensor, "B J O 8"], groups: MachineGroups
    ) -> Float[Tensor, "B J O D"]:
        """Return the embeddings of all operations."""
        x = self.embed(features)
        for layer in self.layers:
            x = layer(x, groups)
        return self.norm(x)


Rows = Int[Tensor, "X"] | slice  # of decisions, all instances and rollouts in one row


class Dispatcher(nn.Module):
    """Scores the jobs of a decision. `H` is twice the width."""

    def __init__(self, a: JSSPArchitecture):
        super().__init__()
        width = a.width
        wide = 2 * width
        self.table = nn.Linear(width, wide)
        self.times = nn.Linear(TUNING.time_features, wide, bias=False)
        self.token = nn.Linear(wide, width)
        self.norm = nn.LayerNorm(width)
        self.among = Attention(width, a.heads)
        # Attention bias between jobs that wait for the same machine.
        self.rival = nn.Parameter(torch.zeros(a.heads, 1, 1))
        self.hidden = nn.Linear(width, wide)
        self.context = nn.Linear(wide, wide, bias=False)
        self.score = nn.Linear(wide, 1, bias=False)
        token_latent = torch.zeros(a.latent, wide)
        self.token_latent = nn.Parameter(token_latent)
        hidden_latent = torch.zeros(a.latent, wide)
        self.hidden_latent = nn.Parameter(hidden_latent)
        amplify = torch.tensor(float(a.amplify))
        self.amplify: Tensor
        self.register_buffer("amplify", amplify)

    def tables(self, embedding: Float[Tensor, "B J O D"]) -> Float[Tensor, "B JC H"]:
        """Return the first hidden layer's share of each operation.

        Jobs that have no operation left get zeros, which are masked later.
        """
        table = self.table(embedding)
        table = F.pad(table, (0, 0, 0, 1))
        return table.flatten(1, 2)

    def condition(self, latents: Float[Tensor, "B K Z"]) -> JSSPLatentBias:
        """Return what each latent adds to the hidden layers."""
        z = latents * self.amplify
        return JSSPLatentBias(
            token=z @ self.token_latent,
            hidden=z @ self.hidden_latent,
        )

    def forward(
        self,
        tokens: Float[Tensor, "X J H"],
        shift: JSSPLatentBias,
        rivals: Bool[Tensor, "X J J"],
        seen: Float[Tensor, "X 2 J"],
        rows: Rows,
    ) -> Float[Tensor, "X J"]:
        """Return scores from the first hidden layer on.

        `seen` has the weights of the unfinished jobs, and those of the allowed jobs. Where
        decisions were selected (`rows`), only allowed jobs, which are few, get a score; others get
        zero.
        """
        hidden = F.relu(tokens + shift.token)
        x = self.token(hidden)
        bias = self.attention_bias(rivals, seen)
        glimpses = self.among.glimpses(self.norm(x), bias)
        context = self.mean_context(x, glimpses, seen)
        common = self.context(context.flatten(1))
        common = common[:, None] + shift.hidden
        if isinstance(rows, slice):
            x = x + self.among.out(glimpses)
            return self.clipped_scores(x, common)
        is_allowed = seen[:, 1] > 0
        row, job = is_allowed.nonzero(as_tuple=True)
        change = self.among.out(glimpses[row, job])
        x = x[row, job] + change
        common = common[row, 0]
        scores = self.clipped_scores(x, common)
        zeros = scores.new_zeros(is_allowed.shape)
        return zeros.index_put((row, job), scores)

    def attention_bias(
        self, rivals: Bool[Tensor, "X J J"], seen: Float[Tensor, "X 2 J"]
    ) -> Float[Tensor, "X heads J J"]:
        """Return the bias of attention among jobs, which masks finished jobs."""
        unfinished = seen[:, None, :1]
        is_finished = unfinished == 0
        bias = rivals[:, None] * self.rival
        return bias + TUNING.mask_bias * is_finished

    def mean_context(
        self,
        x: Float[Tensor, "X J D"],
        glimpses: Float[Tensor, "X J D"],
        seen: Float[Tensor, "X 2 J"],
    ) -> Float[Tensor, "X 2 D"]:
        """Return the mean embedding of the unfinished jobs, and that of the allowed jobs.

        Weights add up to one, so that means may be taken before the output projection of attention.
        """
        weight = seen.to(x.dtype)
        mean = weight @ x
        weight = seen.to(glimpses.dtype)
        mean_glimpse = weight @ glimpses
        attended = self.among.out(mean_glimpse)
        return mean + attended

    def clipped_scores(
        self, x: Float[Tensor, "*X D"], common: Float[Tensor, "... H"]
    ) -> Float[Tensor, "*X"]:
        """Return the scores of jobs, given what all jobs of their decision have in common."""
        hidden = self.hidden(x) + common
        hidden = F.relu(hidden)
        score = self.score(hidden)
        score = score[..., 0].float()
        return TUNING.clip * torch.tanh(score / TUNING.clip)


def decision_features(
    memory: JSSPMemory, state: JSSPState, view: NextOperations, allowed: Bool[Tensor, "B R J"]
) -> Float[Tensor, "B R J 13"]:
    """Return the features of each job: times from the frontier, work left, and whether it may go.

    The frontier is the earliest start, the earliest finish, and a lower bound of the makespan by
    the work left. Near times count in mean durations. They are compressed beyond a few of these, so
    that large instances look familiar.
    """
    starts = view.start.masked_fill(view.done, BEYOND_HORIZON)
    finishes = view.finish.masked_fill(view.done, BEYOND_HORIZON)
    start = starts.amin(2, keepdim=True)
    finish = finishes.amin(2, keepdim=True)
    through = view.start + view.tail
    busy = view.free + view.load
    by_job = through.amax(2, keepdim=True)
    by_machine = (state.machine + state.left).amax(2, keepdim=True)
    bound = torch.maximum(by_job, by_machine)
    near = (
        state.job - start,
        view.free - start,
        view.start - start,
        view.finish - finish,
        view.start - finish,
        through - bound,
        busy - bound,
        view.duration,
    )
    far = (view.tail, view.load, (bound - start).expand_as(view.tail))
    done = state.next / state.durations.shape[3]
    shares = torch.stack([done, allowed.to(done.dtype)], dim=-1)
    near_features = fast_asinh(torch.stack(near, dim=-1) / memory.unit)
    far_features = torch.stack(far, dim=-1) / memory.bound
    return torch.cat([near_features, far_features, shares], dim=-1)


def rows_with_choice(allowed: Bool[Tensor, "B R A"]) -> Rows:
    """Return the decisions that have a choice, where finding them is cheap; others need no scores.

    On a GPU without gradients these are all decisions: the host would have to wait for their
    number at every step.
    """
    is_cuda = allowed.device.type == "cuda"
    if is_cuda and not torch.is_grad_enabled():
        return slice(None)
    choices = allowed.sum(2)
    has_choice = choices > 1
    rows = has_choice.flatten().nonzero()
    return rows[:, 0]


def scatter_scores(
    scores: Float[Tensor, "X A"], rows: Rows, allowed: Bool[Tensor, "B R A"]
) -> Float[Tensor, "B R A"]:
    """Put scores back in their rows, with zeros elsewhere."""
    shape = allowed.shape
    if isinstance(rows, slice):
        return scores.view(shape)
    zeros = scores.new_zeros(shape)
    zeros = zeros.flatten(0, 1)
    found = zeros.index_put((rows,), scores)
    return found.view(shape)


class JSSPPolicy(nn.Module):
    """Encodes once; then each step scores the jobs."""

    problem = JSSP.name
    half_steps = True  # training may compute decisions in bfloat16, too

    def __init__(self, architecture: JSSPArchitecture = JSSPArchitecture()):  # noqa: B008 (frozen)
        super().__init__()
        self.architecture = architecture
        self.encoder = OperationEncoder(architecture)
        self.decoder = Dispatcher(architecture)

    @property
    def space(self) -> Box:
        """Return the latents this policy understands; of size 0 for a single policy."""
        return Box(self.architecture.latent)

    def footprint(self, action_count: int, steps: int) -> int:
        """Return about how many tensor elements one rollout keeps at once."""
        embeddings = action_count * self.architecture.width
        return embeddings + steps

    def encode(self, batch: JSSPBatch) -> JSSPMemory:
        """Return the tables for all later decoding."""
        features = operation_features(batch)
        groups = machine_groups(batch)
        embedding = self.encoder(features, groups)
        unit, bound = time_scales(batch)
        return JSSPMemory(
            table=self.decoder.tables(embedding),
            unit=unit,
            bound=bound,
        )

    def condition(self, memory: JSSPMemory, latents: Float[Tensor, "B K Z"]) -> JSSPLatentBias:
        """Return what each latent changes."""
        return self.decoder.condition(latents)

    def adjustable(self, memory: JSSPMemory) -> Float[Tensor, "B JC H"]:
        """Return what a search may adjust to an instance: operations' share of the hidden layer."""
        return memory.table

    def adjusted(self, memory: JSSPMemory, table: Float[Tensor, "B JC H"]) -> JSSPMemory:
        """Return the memory with another table."""
        return replace(memory, table=table)

    def logits(
        self,
        memory: JSSPMemory,
        shift: JSSPLatentBias,
        state: JSSPState,
        allowed: Bool[Tensor, "B R J"],
    ) -> Float[Tensor, "B R J"]:
        """Return the scores of the jobs, before masking.

        Decisions without a choice (`rows_with_choice`) get zeros; where these are left out, so do
        jobs that are not allowed.
        """
        rows = rows_with_choice(allowed)
        scores = self.score_rows(memory, shift, state, allowed, rows)
        return scatter_scores(scores, rows, allowed)

    def score_rows(
        self,
        memory: JSSPMemory,
        shift: JSSPLatentBias,
        state: JSSPState,
        allowed: Bool[Tensor, "B R J"],
        rows: Rows,
    ) -> Float[Tensor, "X J"]:
        """Return the scores of selected decisions, all instances and rollouts in one row."""
        view = state.next_operations
        count, _, jobs = allowed.shape
        columns = state.durations.shape[3]
        times = decision_features(memory, state, view, allowed)
        times = times.flatten(0, 1)[rows]
        first = torch.arange(count * jobs, device=allowed.device)
        first = first.view(count, 1, jobs) * columns
        cell = (first + state.next).flatten(0, 1)[rows]
        table = memory.table.flatten(0, 1)
        tokens = F.embedding(cell, table)
        tokens = tokens + self.decoder.times(times)
        machine = view.machine.flatten(0, 1)[rows]
        is_rival = machine[:, None] == machine[..., None]
        seen = torch.stack([~view.done, allowed], dim=2).float()
        total = seen.sum(3, keepdim=True)
        seen = seen / total.clamp(min=1.0)
        seen = seen.flatten(0, 1)[rows]
        biases = shift.map(lambda x: x.flatten(0, 1)[rows][:, None])
        return self.decoder(
            tokens,
            biases,
            is_rival,
            seen,
            rows,
        )

    def widened(self, latent: int, amplify: float = 100.0) -> "JSSPPolicy":
        """Return the policy with a latent space whose every point behaves exactly alike."""
        architecture = replace(
            self.architecture,
            latent=latent,
            amplify=amplify,
        )
        wide = JSSPPolicy(architecture)
        weights = weights_without_latents(self)
        wide.load_state_dict(weights, strict=False)
        device = next(self.parameters()).device
        return wide.to(device)
