"""The published job-shop network (Chalumeau et al. 2023, appendix D.2).

It reads the whole shop at each step, and makes one decision for each machine. The critic is a
network of its own, which only training needs (`objective.baseline = "critic"`). Times enter as raw
numbers, as published. Work that need not be done at each decision is done elsewhere:

- A job's operations attend to those that are left, which is one of O + 1 endings of the job.
  `encode` puts all of them in a table, sorted by machine, because
- an operation attends to its own machine only. This attention is the machine's value, broadcast.
- The last layer computes the machine whose turn it is, waiting, and the jobs; other machines are
  only attended to.
- What the latent and a bias add to all scores of a machine alike is left out. It does not change
  the probabilities.
- Products of weights that follow one another are one product (`FoldedWeights`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rhumbline.errors import InputError
from rhumbline.policies.jssp import TUNING as JSSP_TUNING
from rhumbline.policies.jssp import at_least_float32, rows_with_choice, scatter_scores
from rhumbline.policies.latent_space import Box, weights_without_latents
from rhumbline.problems.jssp import JSSPBatch, JSSPMachines
from rhumbline.problems.jssp.machine_rules import MachinesState
from rhumbline.record import Record


@dataclass(frozen=True)
class MachinesTuning:
    """The depth of the network, and limits of memory and of torch."""

    joint_layers: int = 2  # as published
    # Elements of the table of endings, by device (10x10: 140,800 for an instance). If there were
    # more, endings are computed at each decision.
    max_ending_elements: Mapping[str, int] = field(
        default_factory=lambda: {"cpu": 1 << 27, "cuda": 1 << 30}
    )
    # Rows of attention on a GPU; with more, torch before 2.8 fails in the launch (issue 146704).
    max_attention_rows: int = 65535
    elements_at_once: int = 1 << 22  # of the table of endings, that are computed together
    cost_unit: float = 100.0  # of the critic's output, as published


TUNING = MachinesTuning()


@dataclass(frozen=True)
class MachinesArchitecture:
    """Sizes of the network; stored in the checkpoint."""

    width: int = 128
    heads: int = 8
    hidden: int = 512  # of the products that match machines with jobs
    latent: int = 16
    amplify: float = 100.0

    def __post_init__(self) -> None:
        sizes = (self.width, self.heads, self.hidden)
        is_possible = min(sizes) >= 1 and self.latent >= 0
        if is_possible:
            is_odd = self.width % 2 == 1
            is_possible = not is_odd and self.width % self.heads == 0
        if not is_possible:
            rule = "sizes must be positive (latent may be 0), heads must divide the even width"
            raise InputError(f"{self}: {rule}")


class Affine(NamedTuple):
    """An affine map: a product and a bias."""

    weight: Float[Tensor, "I D"]
    bias: Float[Tensor, "I"]

    def __call__(self, x: Float[Tensor, "*X D"]) -> Float[Tensor, "*X I"]:
        """Apply the map."""
        return F.linear(x, self.weight, self.bias)

    def compose(self, first: "Affine") -> "Affine":
        """Return the composition of `first` and this map."""
        weight = self.weight @ first.weight
        bias = self.weight @ first.bias
        return Affine(weight, bias + self.bias)


class FoldedWeights(NamedTuple):
    """Products of weights.

    They are apart from the memory's tensors, because they belong to no instance.
    """

    machine: Affine  # from how long a machine is busy to its token, query, key and value
    operation: Affine  # from a machine's token to what its operations attend to
    match: Float[Tensor, "D D"]  # from a machine's token to the job token it prefers
    waiting: Float[Tensor, "D"]


@dataclass(frozen=True)
class MachinesMemory(Record):
    """Instances, with operations in S places: G for each machine.

    G is the largest number of operations that a job has on one machine. A job has C = O + 1
    endings: the operations that are left, from each of O operations on, and none.
    """

    duration: Float[Tensor, "B J O"]
    real: Bool[Tensor, "B J O"]  # shorter jobs end with operations that do not exist
    place: Int[Tensor, "B J S"]  # the operation in each place, -1 for none
    left: Float[Tensor, "B JC S"]  # for each ending: 1 where there is an operation
    endings: Float[Tensor, "B JC SD"] | None  # embeddings of operations; None if it were too large
    folded: FoldedWeights


@dataclass(frozen=True)
class MachinesLatentBias(Record):
    """What a latent changes: the job token that a machine prefers, whatever its own token."""

    match: Float[Tensor, "B K D"]


class Block(nn.Module):
    """Attention, then a layer with two ReLUs; each with a residual, followed by a norm."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_attention = nn.LayerNorm(width)
        self.norm_hidden = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(
        self,
        x: Float[Tensor, "X L D"],
        seen: Float[Tensor, "X T D"] | None = None,
        bias: Float[Tensor, "X 1 #L T"] | None = None,
    ) -> Float[Tensor, "X L D"]:
        """Let `x` attend to the tokens `seen`, or to itself."""
        if seen is None:
            parts = self.split_heads(self.qkv(x))
            return self.attend(x, parts)
        to_query = self.part(0, 1)
        to_key_and_value = self.part(1, 3)
        query = self.split_heads(to_query(x))
        others = self.split_heads(to_key_and_value(seen))
        return self.attend(x, query + others, bias)

    def attend(
        self,
        x: Float[Tensor, "X L D"],
        parts: tuple[Float[Tensor, "X N _ C"], ...],
        bias: Float[Tensor, "X 1 #L T"] | None = None,
    ) -> Float[Tensor, "X L D"]:
        """Apply the block, given queries, keys and values."""
        query, key, value = parts
        with torch.autocast(x.device.type, enabled=False):  # see `at_least_float32`
            glimpse = chunked_attention(
                query,
                key,
                value,
                bias,
            )
        glimpse = glimpse.transpose(1, 2).flatten(2)
        return self.feed_forward(x + self.out(glimpse))

    def part(self, first: int, end: int) -> Affine:
        """Return the projection to some of queries (0), keys (1) and values (2)."""
        width = self.out.in_features
        rows = slice(first * width, end * width)
        weight = self.qkv.weight[rows]
        bias = self.qkv.bias[rows]
        return Affine(weight, bias)

    def split_heads(self, x: Float[Tensor, "X L E"]) -> tuple[Float[Tensor, "X N L C"], ...]:
        """Separate queries, keys or values that are side by side, and cut them into heads."""
        heads = self.heads
        width = self.out.in_features // heads
        x = at_least_float32(x)
        parts = x.unflatten(2, (-1, heads, width))
        return parts.transpose(1, 3).unbind(2)

    def feed_forward(self, x: Float[Tensor, "*X D"]) -> Float[Tensor, "*X D"]:
        """Apply what follows attention and its residual."""
        x = self.norm_attention(x)
        hidden = F.relu(self.up(x), inplace=True)
        change = self.down(hidden)
        change = F.relu(change, inplace=True)
        return self.norm_hidden(x + change)


def chunked_attention(
    query: Float[Tensor, "X N L C"],
    key: Float[Tensor, "X N T C"],
    value: Float[Tensor, "X N T C"],
    bias: Float[Tensor, "X 1 #L T"] | None,
) -> Float[Tensor, "X N L C"]:
    """Apply fused attention, in chunks if there are more rows than its kernels take."""
    size = TUNING.max_attention_rows
    count = max(1, len(query))
    glimpses = list[Tensor]()
    for start in range(0, count, size):
        rows = slice(start, start + size)
        glimpse = F.scaled_dot_product_attention(
            query[rows],
            key[rows],
            value[rows],
            None if bias is None else bias[rows],
        )
        glimpses.append(glimpse)
    if len(glimpses) == 1:
        return glimpses[0]
    return torch.cat(glimpses)


class ShopEncoder(nn.Module):
    """Tokens of machines, jobs and waiting, which attend to one another."""

    def __init__(self, a: MachinesArchitecture):
        super().__init__()
        width = a.width
        self.busy = nn.Linear(1, width)
        self.duration = nn.Linear(1, width)
        self.waiting = nn.Linear(1, width)
        self.machines = Block(width, a.heads)
        self.operations = Block(width, a.heads)
        self.places = Block(width, a.heads)
        self.joint = nn.ModuleList()
        for _ in range(TUNING.joint_layers):
            self.joint.append(Block(width, a.heads))

    def fold_weights(self, match: Float[Tensor, "D D"]) -> FoldedWeights:
        """Return the products of weights, with `match` of the decoder."""
        token = as_affine(self.busy)
        out = as_affine(self.places.out)
        qkv = as_affine(self.machines.qkv).compose(token)
        weight = torch.cat([token.weight, qkv.weight])
        bias = torch.cat([token.bias, qkv.bias])
        value = self.places.part(2, 3)  # attention to one token is its value
        waiting = self.waiting.weight[:, 0] + self.waiting.bias
        return FoldedWeights(
            machine=Affine(weight, bias),
            operation=out.compose(value),
            match=match,
            waiting=waiting,
        )

    def endings(
        self, duration: Float[Tensor, "Y O"], real: Bool[Tensor, "Y O"], first: Int[Tensor, "Y E"]
    ) -> Float[Tensor, "Y E O D"]:
        """Return the embeddings of each job's operations, for E endings of the job.

        In ending e, operations attend to those from `first[:, e]` on.
        """
        count = duration.shape[1]
        endings = first.shape[1]
        device = duration.device
        width = self.duration.out_features
        x = self.duration(duration[..., None])
        x = x + sinusoidal_positions(count, width, device)
        steps = torch.arange(count, device=first.device)
        is_ahead = steps >= first[..., None]
        left = is_ahead & real[:, None]
        mask = JSSP_TUNING.mask_bias * (~left).to(duration.dtype)
        bias = mask.repeat_interleave(count, dim=1)
        embedding = self.operations(
            x.repeat(1, endings, 1),
            x,
            bias[:, None],
        )
        return embedding.unflatten(1, (endings, count))

    def forward(
        self,
        folded: FoldedWeights,
        busy: Float[Tensor, "X M"],
        turn: Int[Tensor, "X"],
        operations: Float[Tensor, "X J S D"],
        left: Float[Tensor, "X J S"],
    ) -> Float[Tensor, "X L D"]:
        """Return the tokens of the machine at `turn` (counted from 1), of waiting, and of jobs."""
        width = folded.waiting.shape[0]
        machine_count = busy.shape[1]
        x = self.tokens(
            folded,
            busy,
            operations,
            left,
        )
        for block in self.joint[:-1]:
            x = block(x)
        index = turn[:, None, None].expand(-1, 1, width)
        scored = [
            x.gather(1, index),
            x[:, :1],
            x[:, machine_count + 1 :],
        ]
        last = self.joint[-1]
        return last(torch.cat(scored, dim=1), x)

    def all_tokens(
        self,
        folded: FoldedWeights,
        busy: Float[Tensor, "X M"],
        operations: Float[Tensor, "X J S D"],
        left: Float[Tensor, "X J S"],
    ) -> Float[Tensor, "X L D"]:
        """Return the tokens of waiting, of all machines and of jobs."""
        x = self.tokens(
            folded,
            busy,
            operations,
            left,
        )
        for block in self.joint:
            x = block(x)
        return x

    def tokens(
        self,
        folded: FoldedWeights,
        busy: Float[Tensor, "X M"],
        operations: Float[Tensor, "X J S D"],
        left: Float[Tensor, "X J S"],
    ) -> Float[Tensor, "X L D"]:
        """Return the same tokens before they attend to one another."""
        width = folded.waiting.shape[0]
        count = len(busy)
        projected = folded.machine(busy[..., None])
        token, qkv = projected.split((width, 3 * width), dim=2)
        parts = self.machines.split_heads(qkv)
        machines = self.machines.attend(token, parts)
        seen = folded.operation(machines)
        jobs = self.jobs(operations, left, seen)
        waiting = folded.waiting.expand(count, 1, -1)
        tokens = [
            waiting.to(machines.dtype),
            machines,
            jobs.to(machines.dtype),
        ]
        return torch.cat(tokens, dim=1)

    def jobs(
        self,
        operations: Float[Tensor, "X J S D"],
        left: Float[Tensor, "X J S"],
        seen: Float[Tensor, "X M D"],
    ) -> Float[Tensor, "X J D"]:
        """Return each job as the sum of the operations it has left; a completed job is zero.

        Each operation has attended to its machine.
        """
        machines = seen.shape[1]
        x = operations.unflatten(2, (machines, -1))
        x = x + seen[:, None, :, None]
        x = x.flatten(2, 3)
        x = self.places.feed_forward(x)
        weight = left[:, :, None]
        with torch.autocast(x.device.type, enabled=False):  # a sum of many in full precision
            total = weight @ x
            return total[:, :, 0]


def as_affine(layer: nn.Linear) -> Affine:
    """Return the weights of a module."""
    return Affine(layer.weight, layer.bias)


def sinusoidal_positions(count: int, width: int, device: torch.device) -> Float[Tensor, "O D"]:
    """Return sines on even and cosines on odd channels, base 10,000."""
    channel = torch.arange(0, width, 2, device=device)
    exponent = -channel / width
    frequency = 10000.0**exponent
    position = torch.arange(count, device=device)
    angle = position[:, None] * frequency
    pairs = [angle.sin(), angle.cos()]
    table = torch.stack(pairs, dim=-1)
    return table.flatten(1)


def operations_by_machine(machine: Int[Tensor, "B J O"], count: int) -> Int[Tensor, "B J S"]:
    """Sort the operations of each job by machine, G places for each; -1 is an empty place."""
    steps = machine.shape[2]
    is_same = machine[..., None] == machine[..., None, :]
    earlier_visits = is_same.tril(-1).sum(3)
    is_real = machine < count
    visits = earlier_visits * is_real
    group = int(visits.max()) + 1
    slots = count * group
    slot = torch.where(
        is_real,
        machine * group + earlier_visits,
        slots,
    )
    empty = torch.full_like(machine[..., :1], -1)
    empty = empty.repeat(1, 1, slots + 1)
    operation = torch.arange(steps, device=machine.device)
    filled = empty.scatter(2, slot, operation.expand_as(slot))
    return filled[..., :-1]


def gather_operations(
    x: Float[Tensor, "Y E O D"], place: Int[Tensor, "Y S"]
) -> Float[Tensor, "Y E S D"]:
    """Put operations in their places; empty places get the first operation, which is masked."""
    endings = x.shape[1]
    width = x.shape[3]
    index = place.clamp(min=0)
    index = index[:, None, :, None]
    index = index.expand(-1, endings, -1, width)
    return x.gather(2, index)


class Matcher(nn.Module):
    """Scores jobs for a machine; the latent's rows start at zero."""

    def __init__(self, a: MachinesArchitecture):
        super().__init__()
        self.machine = nn.Linear(a.width, a.hidden)
        self.job = nn.Linear(a.width, a.hidden)
        machine_latent = torch.zeros(a.latent, a.hidden)
        self.machine_latent = nn.Parameter(machine_latent)
        job_latent = torch.zeros(a.latent, a.hidden)
        self.job_latent = nn.Parameter(job_latent)
        amplify = torch.tensor(float(a.amplify))
        self.amplify: Tensor
        self.register_buffer("amplify", amplify)

    @property
    def match(self) -> Float[Tensor, "D D"]:
        """Return the product of both projections, from a machine's token to a job's."""
        scale = math.sqrt(self.job.out_features)
        product = self.job.weight.T @ self.machine.weight
        return product / scale

    def condition(self, latents: Float[Tensor, "B K Z"]) -> MachinesLatentBias:
        """Return what each latent adds to that.

        What a latent adds to jobs, it adds to all of them; it does not change the probabilities.
        """
        z = latents * self.amplify
        scale = math.sqrt(self.job.out_features)
        shift = z @ self.machine_latent + self.machine.bias
        match = shift @ self.job.weight
        return MachinesLatentBias(match / scale)

    def forward(
        self,
        match: Float[Tensor, "D D"],
        tokens: Float[Tensor, "X L D"],
        shift: Float[Tensor, "X D"],
    ) -> Float[Tensor, "X A"]:
        """Return the products of a machine, the first token, with the others.

        They are scores up to what is the same in all of them.
        """
        machine = tokens[:, 0]
        others = tokens[:, 1:]
        query = F.linear(machine, match)
        query = query + shift
        products = others @ query[..., None]
        return products[..., 0].float()


class ShopReader(nn.Module):
    """What policy and critic share: an encoder, and the tables that it reads of an instance."""

    def __init__(self, architecture: MachinesArchitecture):
        super().__init__()
        self.architecture = architecture
        self.encoder = ShopEncoder(architecture)

    def read_instances(self, batch: JSSPBatch, match: Float[Tensor, "D D"]) -> MachinesMemory:
        """Return the tables of instances, with the endings unless they are too many."""
        machine = batch.machine[..., :-1]
        machines = batch.load.shape[1] - 1
        columns = batch.machine.shape[2]
        place = operations_by_machine(machine, machines)
        left = place[:, :, None] >= torch.arange(columns, device=place.device)[:, None]
        memory = MachinesMemory(
            duration=batch.duration[..., :-1].float(),
            real=machine < machines,
            place=place,
            left=left.flatten(1, 2).float(),
            endings=None,
            folded=self.encoder.fold_weights(match),
        )
        most = TUNING.max_ending_elements[place.device.type]
        if left.numel() * self.architecture.width > most:
            return memory
        return replace(memory, endings=self.endings(memory, columns))

    def endings(self, memory: MachinesMemory, columns: int) -> Float[Tensor, "B JC SD"]:
        """Return the table of endings, computed for some jobs at a time."""
        count, _, places_each = memory.place.shape
        width = self.architecture.width
        size = columns * columns * width
        some = max(1, TUNING.elements_at_once // size)
        first = torch.arange(
            columns,
            device=memory.place.device,
        )
        durations = memory.duration.flatten(0, 1).split(some)
        reals = memory.real.flatten(0, 1).split(some)
        places = memory.place.flatten(0, 1).split(some)
        parts = list[Tensor]()
        for duration, real, place in zip(durations, reals, places, strict=True):
            first_of_each = first.expand(len(real), -1)
            embedding = self.encoder.endings(duration, real, first_of_each)
            parts.append(gather_operations(embedding, place))
        table = torch.cat(parts)
        return table.view(count, -1, places_each * width)

    def operations(
        self, memory: MachinesMemory, cell: Int[Tensor, "X J"]
    ) -> Float[Tensor, "X J S D"]:
        """Return the embeddings of the operations left, in their places.

        They are in the table, or are computed now.
        """
        shape = (
            *cell.shape,
            memory.place.shape[2],
            self.architecture.width,
        )
        if memory.endings is not None:
            table = memory.endings.flatten(0, 1)
            return F.embedding(cell, table).view(shape)
        columns = memory.duration.shape[2] + 1
        cells = cell.flatten()
        job = cells // columns
        first = cells % columns
        duration = memory.duration.flatten(0, 1)[job]
        real = memory.real.flatten(0, 1)[job]
        place = memory.place.flatten(0, 1)[job]
        embedding = self.encoder.endings(
            duration,
            real,
            first[:, None],
        )
        return gather_operations(embedding, place).view(shape)


class JSSPMachinesPolicy(ShopReader):
    """Runs its network at each decision that has a choice."""

    problem = JSSPMachines.name
    half_steps = True

    def __init__(self, architecture: MachinesArchitecture = MachinesArchitecture()):  # noqa: B008 (frozen)
        super().__init__(architecture)
        self.decoder = Matcher(architecture)

    @property
    def space(self) -> Box:
        """Return the latents this policy understands; of size 0 for a single policy."""
        return Box(self.architecture.latent)

    def footprint(self, action_count: int, steps: int) -> int:
        """Return the approximate tensor elements of one rollout, with as many machines as jobs."""
        return (action_count - 1) ** 2 * self.architecture.width + steps

    def encode(self, batch: JSSPBatch) -> MachinesMemory:
        """Return the tables for all later decoding, with the endings unless they are too many."""
        return self.read_instances(batch, self.decoder.match)

    def condition(
        self, memory: MachinesMemory, latents: Float[Tensor, "B K Z"]
    ) -> MachinesLatentBias:
        """Return what each latent changes."""
        return self.decoder.condition(latents)

    def logits(
        self,
        memory: MachinesMemory,
        shift: MachinesLatentBias,
        state: MachinesState,
        allowed: Bool[Tensor, "B R A"],
    ) -> Float[Tensor, "B R A"]:
        """Return the scores of waiting and of the jobs, for the machine whose turn it is.

        They are not masked. Decisions without a choice get zeros.
        """
        rows = rows_with_choice(allowed)
        cell = state.cell[..., 1:].flatten(0, 1)
        cell = cell[rows].contiguous()
        turn = state.turn.flatten()[rows]
        busy = state.busy.flatten(0, 1)[rows]
        tokens = self.encoder(
            memory.folded,
            busy.to(memory.duration.dtype),
            turn,
            self.operations(memory, cell),
            F.embedding(cell, memory.left.flatten(0, 1)),
        )
        scores = self.decoder(
            memory.folded.match,
            tokens,
            shift.match.flatten(0, 1)[rows],
        )
        return scatter_scores(scores, rows, allowed)

    def widened(self, latent: int, amplify: float = 100.0) -> "JSSPMachinesPolicy":
        """Return the policy with a latent space whose every point behaves exactly alike."""
        architecture = replace(
            self.architecture,
            latent=latent,
            amplify=amplify,
        )
        wide = JSSPMachinesPolicy(architecture)
        weights = weights_without_latents(self)
        wide.load_state_dict(weights, strict=False)
        device = next(self.parameters()).device
        return wide.to(device)


class MachinesCritic(ShopReader):
    """The published critic: an encoder of its own, and a network of the sum of its tokens."""

    def __init__(self, architecture: MachinesArchitecture):
        super().__init__(architecture)
        width = architecture.width
        self.hidden = nn.Linear(width + architecture.latent, architecture.hidden)
        self.value = nn.Linear(architecture.hidden, 1)

    def encode(self, batch: JSSPBatch) -> MachinesMemory:
        """Return the tables of instances; machines are matched with no jobs."""
        width = self.architecture.width
        no_match = torch.zeros(width, width, device=batch.key.device)
        return self.read_instances(batch, no_match)

    def values(
        self,
        memory: MachinesMemory,
        latents: Float[Tensor, "B R Z"],
        state: MachinesState,
        allowed: Bool[Tensor, "B R A"],
    ) -> Float[Tensor, "B R"]:
        """Return the makespan that is expected in each state: its clock, and more."""
        rows = rows_with_choice(allowed)
        cell = state.cell[..., 1:].flatten(0, 1)
        cell = cell[rows].contiguous()
        busy = state.busy.flatten(0, 1)[rows]
        tokens = self.encoder.all_tokens(
            memory.folded,
            busy.to(memory.duration.dtype),
            self.operations(memory, cell),
            F.embedding(cell, memory.left.flatten(0, 1)),
        )
        z = latents.flatten(0, 1)[rows]
        with torch.autocast(tokens.device.type, enabled=False):  # makespans have four digits
            total = tokens.float().sum(1)
            hidden = F.relu(self.hidden(torch.cat([total, z], dim=1)))
            rest = TUNING.cost_unit * self.value(hidden)
        clock = state.clock.flatten()[rows]
        values = scatter_scores(
            rest + clock[:, None],
            rows,
            allowed[..., :1],
        )
        return values[..., 0]
