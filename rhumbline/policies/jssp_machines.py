"""The published job-shop network (spec 2.5): it reads the whole shop anew at each decision, one for
each machine.

Here it is the actor alone; training uses the objectives of the other policies and needs no critic.
Times enter as raw numbers, as published. What need not be done at each decision is not done there:

- A job's operations attend to those of them that are left, which is one of O + 1 endings of the job: `encode` has them
  all in a table. They are sorted by machine there, because
- an operation attends to its own machine only, so that this attention is the machine's value, and broadcasts.
- The last layer is for the machine whose turn it is, waiting and the jobs; other machines are only seen.
- What the latent and a bias add to all of a machine's scores alike is left out: probabilities have none of it.
- Products that follow one another are one product (`FoldedWeights`).
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rhumbline.errors import InputError
from rhumbline.policies.jssp import MASK_BIAS, at_least_float32, rows_with_choice, scatter_scores
from rhumbline.policies.latent_space import Box
from rhumbline.problems.jssp import JSSPBatch
from rhumbline.problems.jssp.machine_rules import MachinesState
from rhumbline.record import Record

JOINT_LAYERS = 2

# Numbers in the table of endings (10x10: 140,800 for an instance). Beyond, endings are computed at
# each decision.
MOST_ENDINGS = {"cpu": 1 << 27, "cuda": 1 << 30}

# Rows of attention on a GPU; with more, torch before 2.8 fails in the launch (its issue 146704).
MOST_ROWS = 65535

# Numbers of the table that are computed at once.
AT_ONCE = 1 << 22


@dataclass(frozen=True)
class MachinesArchitecture:
    """Sizes of the network; stored in the checkpoint."""

    width: int = 128
    heads: int = 8
    hidden: int = 512  # of the products that match machines with jobs
    latent: int = 16
    amplify: float = 100.0

    def __post_init__(self) -> None:
        if (
            min(self.width, self.heads, self.hidden) < 1
            or self.latent < 0
            or self.width % self.heads
            or self.width % 2
        ):
            raise InputError(
                f"{self}: sizes must be positive (latent may be 0), heads must divide the even width"
            )


class Affine(NamedTuple):
    """A product and what is added to it."""

    weight: Float[Tensor, "I D"]
    bias: Float[Tensor, "I"]

    def __call__(self, x: Float[Tensor, "*X D"]) -> Float[Tensor, "*X I"]:
        """The product."""
        return F.linear(x, self.weight, self.bias)

    def after(self, first: "Affine") -> "Affine":
        """This layer behind another, as one."""
        return Affine(self.weight @ first.weight, self.weight @ first.bias + self.bias)


class FoldedWeights(NamedTuple):
    """Weights multiplied out. They belong to no instance; a memory's tensors do, so these are
    apart from them.
    """

    machine: Affine  # from how long a machine is busy to its token, query, key and value
    operation: Affine  # from a machine's token to what its operations get to see
    match: Float[Tensor, "D D"]  # from a machine's token to what it looks for in jobs
    waiting: Float[Tensor, "D"]


@dataclass(frozen=True)
class MachinesMemory(Record):
    """Instances, their operations in S places: G for each machine, as many as some job has
    operations there.
    """

    duration: Float[Tensor, "B J O"]
    real: Bool[Tensor, "B J O"]  # shorter jobs end with operations that do not exist
    place: Int[Tensor, "B J S"]  # the operation in each place, -1 for none
    left: Float[
        Tensor, "B JC S"
    ]  # for each ending of each job, C = O + 1 of them: 1 where there is an operation
    endings: (
        Float[Tensor, "B JC SD"] | None
    )  # what those operations look like; None where it would be too much
    folded: FoldedWeights


@dataclass(frozen=True)
class MachinesLatentBias(Record):
    """What a latent changes: what a machine looks for, whatever its token."""

    match: Float[Tensor, "B K D"]


class Block(nn.Module):
    """Attention and a layer with two ReLUs, each with a residual and a norm behind it."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm_attention, self.norm_hidden = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(
        self,
        x: Float[Tensor, "X L D"],
        seen: Float[Tensor, "X T D"] | None = None,
        bias: Float[Tensor, "X 1 #L T"] | None = None,
    ) -> Float[Tensor, "X L D"]:
        """Attention to the tokens `seen`, or among `x` itself."""
        if seen is None:
            return self.mixed(x, self.split(self.qkv(x)))
        return self.mixed(
            x, self.split(self.part(0, 1)(x)) + self.split(self.part(1, 3)(seen)), bias
        )

    def mixed(
        self,
        x: Float[Tensor, "X L D"],
        parts: tuple[Float[Tensor, "X N _ C"], ...],
        bias: Float[Tensor, "X 1 #L T"] | None = None,
    ) -> Float[Tensor, "X L D"]:
        """From queries, keys and values on."""
        query, key, value = parts
        with torch.autocast(x.device.type, enabled=False):  # see `trusted`
            seen = chunked_attention(query, key, value, bias)
        return self.closed(x + self.out(seen.transpose(1, 2).flatten(2)))

    def part(self, first: int, end: int) -> Affine:
        """Some of queries (0), keys (1) and values (2)."""
        rows = slice(first * self.out.in_features, end * self.out.in_features)
        return Affine(self.qkv.weight[rows], self.qkv.bias[rows])

    def split(self, x: Float[Tensor, "X L E"]) -> tuple[Float[Tensor, "X N L C"], ...]:
        """Queries, keys or values side by side, cut into heads."""
        width = self.out.in_features // self.heads
        return at_least_float32(x).unflatten(2, (-1, self.heads, width)).transpose(1, 3).unbind(2)

    def closed(self, x: Float[Tensor, "*X D"]) -> Float[Tensor, "*X D"]:
        """What follows attention and its residual."""
        x = self.norm_attention(x)
        hidden = F.relu(self.up(x), inplace=True)
        return self.norm_hidden(x + F.relu(self.down(hidden), inplace=True))


def chunked_attention(
    query: Float[Tensor, "X N L C"],
    key: Float[Tensor, "X N T C"],
    value: Float[Tensor, "X N T C"],
    bias: Float[Tensor, "X 1 #L T"] | None,
) -> Float[Tensor, "X N L C"]:
    """Fused attention, in pieces where there are more rows than its kernels take."""
    pieces = (slice(at, at + MOST_ROWS) for at in range(0, max(1, len(query)), MOST_ROWS))
    found = [
        F.scaled_dot_product_attention(
            query[p], key[p], value[p], None if bias is None else bias[p]
        )
        for p in pieces
    ]
    return found[0] if len(found) == 1 else torch.cat(found)


class ShopEncoder(nn.Module):
    """Machines, jobs and waiting as tokens that have seen one another."""

    def __init__(self, a: MachinesArchitecture):
        super().__init__()
        self.busy, self.duration, self.waiting = (nn.Linear(1, a.width) for _ in range(3))
        self.machines, self.operations, self.places = (Block(a.width, a.heads) for _ in range(3))
        self.joint = nn.ModuleList(Block(a.width, a.heads) for _ in range(JOINT_LAYERS))

    def folded(self, match: Float[Tensor, "D D"]) -> FoldedWeights:
        """Products of weights, with the decoder's."""
        token = as_affine(self.busy)
        out = as_affine(self.places.out)
        seen = as_affine(self.machines.qkv).after(token)
        return FoldedWeights(
            machine=Affine(
                torch.cat([token.weight, seen.weight]), torch.cat([token.bias, seen.bias])
            ),
            operation=out.after(self.places.part(2, 3)),  # attention to one token is its value
            match=match,
            waiting=self.waiting.weight[:, 0] + self.waiting.bias,
        )

    def endings(
        self, duration: Float[Tensor, "Y O"], real: Bool[Tensor, "Y O"], first: Int[Tensor, "Y E"]
    ) -> Float[Tensor, "Y E O D"]:
        """Operations of jobs that have seen those from the first one left on; for several such
        endings of each job.
        """
        (_, count), (_, cases) = duration.shape, first.shape
        x = self.duration(duration[..., None]) + sinusoidal_positions(
            count, self.duration.out_features, duration.device
        )
        left = (torch.arange(count, device=first.device) >= first[..., None]) & real[:, None]
        bias = (MASK_BIAS * (~left).to(duration.dtype)).repeat_interleave(count, dim=1)[:, None]
        return self.operations(x.repeat(1, cases, 1), x, bias).unflatten(1, (cases, count))

    def forward(
        self,
        folded: FoldedWeights,
        busy: Float[Tensor, "X M"],
        turn: Int[Tensor, "X"],
        operations: Float[Tensor, "X J S D"],
        left: Float[Tensor, "X J S"],
    ) -> Float[Tensor, "X L D"]:
        """Tokens of the machine whose turn it is (counted from 1), of waiting, and of the jobs."""
        width = folded.waiting.shape[0]
        token, seen = folded.machine(busy[..., None]).split((width, 3 * width), dim=2)
        machines = self.machines.mixed(token, self.machines.split(seen))
        jobs = self.jobs(operations, left, folded.operation(machines))
        waiting = folded.waiting.expand(len(busy), 1, -1)
        x = torch.cat([waiting.to(machines.dtype), machines, jobs.to(machines.dtype)], dim=1)
        for block in self.joint[:-1]:
            x = block(x)
        own = x.gather(1, turn[:, None, None].expand(-1, 1, width))
        return self.joint[-1](torch.cat([own, x[:, :1], x[:, busy.shape[1] + 1 :]], dim=1), x)

    def jobs(
        self,
        operations: Float[Tensor, "X J S D"],
        left: Float[Tensor, "X J S"],
        seen: Float[Tensor, "X M D"],
    ) -> Float[Tensor, "X J D"]:
        """A job is the sum of the operations it has left, each having seen its machine; a
        completed one is zero.
        """
        x = operations.unflatten(2, (seen.shape[1], -1)) + seen[:, None, :, None]
        x = self.places.closed(x.flatten(2, 3))
        with torch.autocast(x.device.type, enabled=False):  # a sum of many in full precision
            return (left[:, :, None] @ x)[:, :, 0]


def as_affine(layer: nn.Linear) -> Affine:
    """A module's weights."""
    return Affine(layer.weight, layer.bias)


def sinusoidal_positions(count: int, width: int, device: torch.device) -> Float[Tensor, "O D"]:
    """Sines on even and cosines on odd channels, base 10,000."""
    pace = 10000.0 ** (-torch.arange(0, width, 2, device=device) / width)
    angle = torch.arange(count, device=device)[:, None] * pace
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


def operations_by_machine(machine: Int[Tensor, "B J O"], count: int) -> Int[Tensor, "B J S"]:
    """The operations of each job in the order of their machines, G places for each, -1 where
    there is none.
    """
    before = (
        (machine[..., None] == machine[..., None, :]).tril(-1).sum(3)
    )  # how often the job was there already
    real = machine < count
    group = int((before * real).max()) + 1
    slot = torch.where(real, machine * group + before, count * group)
    empty = torch.full_like(machine[..., :1], -1).repeat(1, 1, count * group + 1)
    return empty.scatter(
        2, slot, torch.arange(machine.shape[2], device=machine.device).expand_as(slot)
    )[..., :-1]


def gather_operations(
    x: Float[Tensor, "Y E O D"], place: Int[Tensor, "Y S"]
) -> Float[Tensor, "Y E S D"]:
    """Operations in their places; in empty ones the first, which nobody sees there."""
    index = place.clamp(min=0)[:, None, :, None]
    return x.gather(2, index.expand(-1, x.shape[1], -1, x.shape[3]))


class Matcher(nn.Module):
    """Scores of jobs for a machine; the latent's rows start at zero."""

    def __init__(self, a: MachinesArchitecture):
        super().__init__()
        self.machine, self.job = nn.Linear(a.width, a.hidden), nn.Linear(a.width, a.hidden)
        self.machine_latent, self.job_latent = (
            nn.Parameter(torch.zeros(a.latent, a.hidden)) for _ in range(2)
        )
        self.amplify: Tensor
        self.register_buffer("amplify", torch.tensor(float(a.amplify)))

    @property
    def match(self) -> Float[Tensor, "D D"]:
        """From a machine's token to what it looks for: the products of machines with jobs, as
        one with their tokens.
        """
        return self.job.weight.T @ self.machine.weight / math.sqrt(self.job.out_features)

    def condition(self, latents: Float[Tensor, "B K Z"]) -> MachinesLatentBias:
        """What each latent adds to that. What it adds to jobs, it adds to all of them: no choice
        shows it.
        """
        shift = latents * self.amplify @ self.machine_latent + self.machine.bias
        return MachinesLatentBias(shift @ self.job.weight / math.sqrt(self.job.out_features))

    def forward(
        self,
        match: Float[Tensor, "D D"],
        tokens: Float[Tensor, "X L D"],
        shift: Float[Tensor, "X D"],
    ) -> Float[Tensor, "X A"]:
        """Products of a machine, the first token, with the others: up to what is the same in all
        of them.
        """
        query = F.linear(tokens[:, 0], match) + shift
        return (tokens[:, 1:] @ query[..., None])[..., 0].float()


class JSSPMachinesPolicy(nn.Module):
    """Runs its network at each decision that is one."""

    problem = "jssp-machines"
    half_steps = True

    def __init__(self, architecture: MachinesArchitecture = MachinesArchitecture()):  # noqa: B008 (frozen)
        super().__init__()
        self.architecture = architecture
        self.encoder, self.decoder = ShopEncoder(architecture), Matcher(architecture)

    @property
    def space(self) -> Box:
        """The latents this policy understands; of size 0 for a single policy."""
        return Box(self.architecture.latent)

    def footprint(self, width: int, steps: int) -> int:
        """About how many numbers one rollout keeps at once: as if there were as many machines as
        jobs.
        """
        return (width - 1) ** 2 * self.architecture.width + steps

    def encode(self, batch: JSSPBatch) -> MachinesMemory:
        """All endings of all jobs, unless there are too many."""
        machine, machines, columns = (
            batch.machine[..., :-1],
            batch.load.shape[1] - 1,
            batch.machine.shape[2],
        )
        place = operations_by_machine(machine, machines)
        left = place[:, :, None] >= torch.arange(columns, device=place.device)[:, None]
        memory = MachinesMemory(
            duration=batch.duration[..., :-1].float(),
            real=machine < machines,
            place=place,
            left=left.flatten(1, 2).float(),
            endings=None,
            folded=self.encoder.folded(self.decoder.match),
        )
        if left.numel() * self.architecture.width > MOST_ENDINGS[place.device.type]:
            return memory
        return replace(memory, endings=self.endings(memory, columns))

    def endings(self, memory: MachinesMemory, columns: int) -> Float[Tensor, "B JC SD"]:
        """The table, made of some jobs at a time."""
        jobs = [x.flatten(0, 1) for x in (memory.duration, memory.real, memory.place)]
        some = max(1, AT_ONCE // (columns * columns * self.architecture.width))
        first = torch.arange(columns, device=memory.place.device)
        parts = [
            gather_operations(
                self.encoder.endings(duration, real, first.expand(len(real), -1)), place
            )
            for duration, real, place in zip(*(x.split(some) for x in jobs), strict=True)
        ]
        return torch.cat(parts).view(
            len(memory.duration), -1, memory.place.shape[2] * self.architecture.width
        )

    def operations(
        self, memory: MachinesMemory, cell: Int[Tensor, "X J"]
    ) -> Float[Tensor, "X J S D"]:
        """What the operations left look like, in their places: from the table, or computed now."""
        sizes = (memory.place.shape[2], self.architecture.width)
        if memory.endings is not None:
            found = F.embedding(cell, memory.endings.flatten(0, 1))
            return found.view(*cell.shape, *sizes)
        columns = memory.duration.shape[2] + 1
        cells = cell.flatten()
        job = cells // columns
        duration, real, place = (
            x.flatten(0, 1)[job] for x in (memory.duration, memory.real, memory.place)
        )
        found = gather_operations(
            self.encoder.endings(duration, real, (cells % columns)[:, None]), place
        )
        return found.view(*cell.shape, *sizes)

    def condition(
        self, memory: MachinesMemory, latents: Float[Tensor, "B K Z"]
    ) -> MachinesLatentBias:
        """What each latent changes."""
        return self.decoder.condition(latents)

    def logits(
        self,
        memory: MachinesMemory,
        shift: MachinesLatentBias,
        state: MachinesState,
        allowed: Bool[Tensor, "B R A"],
    ) -> Float[Tensor, "B R A"]:
        """Scores of waiting and of the jobs for the machine whose turn it is, not masked; zeros
        without a choice.
        """
        rows = rows_with_choice(allowed)
        cell = state.cell[..., 1:].flatten(0, 1)[rows].contiguous()
        turn = state.turn.flatten()[rows]
        busy = state.busy.flatten(0, 1)[rows].to(memory.duration.dtype)
        left = F.embedding(cell, memory.left.flatten(0, 1))
        tokens = self.encoder(memory.folded, busy, turn, self.operations(memory, cell), left)
        scores = self.decoder(memory.folded.match, tokens, shift.match.flatten(0, 1)[rows])
        return scatter_scores(scores, rows, allowed)

    def widened(self, latent: int, amplify: float = 100.0) -> "JSSPMachinesPolicy":
        """The same policy with a latent space whose every point behaves exactly alike."""
        wide = JSSPMachinesPolicy(replace(self.architecture, latent=latent, amplify=amplify))
        own = {n: x for n, x in self.state_dict().items() if not n.endswith(("_latent", "amplify"))}
        wide.load_state_dict(own, strict=False)
        return wide.to(next(self.parameters()).device)
