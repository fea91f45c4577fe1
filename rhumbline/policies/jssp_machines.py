"""The published job-shop network (spec 2.5): it reads the whole shop anew at each decision, one for each machine.

Here it is the actor alone; training uses the objectives of the other policies and needs no critic. An operation attends
to its own machine only, so that this attention is the machine's value. Times enter as raw numbers, as published.
"""

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rhumbline.errors import InputError
from rhumbline.policies.jssp import NOT, choices, mixed, spread, trusted
from rhumbline.policies.space import Box
from rhumbline.problems.jssp import JSSPBatch
from rhumbline.problems.jssp_machines import MachinesState
from rhumbline.record import Record

JOINT_LAYERS = 2


@dataclass(frozen=True)
class MachinesArchitecture:
    """Sizes of the network; stored in the checkpoint."""

    width: int = 128
    heads: int = 8
    hidden: int = 512  # of the products that match machines with jobs
    latent: int = 16
    amplify: float = 100.0

    def __post_init__(self) -> None:
        if min(self.width, self.heads, self.hidden) < 1 or self.latent < 0 or self.width % self.heads or self.width % 2:
            raise InputError(f"{self}: sizes must be positive (latent may be 0), heads must divide the even width")


@dataclass(frozen=True)
class ShopMemory(Record):
    """The instance itself: there is nothing to encode before the first decision."""

    duration: Float[Tensor, "B J O"]
    machine: Int[Tensor, "B J O"]


@dataclass(frozen=True)
class MachinesShift(Record):
    """What a latent adds to what machines and jobs are matched by."""

    machine: Float[Tensor, "B K H"]
    job: Float[Tensor, "B K H"]


class Block(nn.Module):
    """Attention and a layer with two ReLUs, each with a residual and a norm behind it."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm_attention, self.norm_hidden = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "*X L D"], bias: Tensor | float = 0.0) -> Float[Tensor, "*X L D"]:
        """Self-attention; the bias broadcasts to [*X, heads, L, L]."""
        query, key, value = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        return self.closed(x, mixed(query, key, value, bias))

    def split(self, x: Float[Tensor, "*X L D"]) -> Float[Tensor, "*X N L C"]:
        """Channels cut into heads."""
        return trusted(x).unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def to_one(self, x: Float[Tensor, "*X D"], seen: Float[Tensor, "*X D"]) -> Float[Tensor, "*X D"]:
        """Attention of each token to a single one: all weight is on its value."""
        return self.closed(x, self.value(seen))

    def closed(self, x: Float[Tensor, "*X D"], mixed: Float[Tensor, "*X D"]) -> Float[Tensor, "*X D"]:
        """What follows attention."""
        x = self.norm_attention(x + self.out(mixed))
        return self.norm_hidden(x + F.relu(self.down(F.relu(self.up(x)))))


class ShopEncoder(nn.Module):
    """Machines, jobs and waiting as tokens that have seen one another."""

    def __init__(self, a: MachinesArchitecture):
        super().__init__()
        self.busy, self.duration, self.waiting = (nn.Linear(1, a.width) for _ in range(3))
        self.machines, self.operations, self.places = (Block(a.width, a.heads) for _ in range(3))
        self.joint = nn.ModuleList(Block(a.width, a.heads) for _ in range(JOINT_LAYERS))

    def forward(
        self,
        duration: Float[Tensor, "X J O"],
        machine: Int[Tensor, "X J O"],
        busy: Float[Tensor, "X M"],
        left: Bool[Tensor, "X J O"],
    ) -> Float[Tensor, "X L D"]:
        """Tokens of M machines, of waiting, and of J jobs, L in all."""
        machines = self.machines(self.busy(busy[..., None]))
        jobs = self.jobs(duration, machine, left, machines)
        waiting = self.waiting(torch.ones_like(busy[:, :1]))[:, None]
        x = torch.cat([machines, waiting.to(machines.dtype), jobs.to(machines.dtype)], dim=1)
        for block in self.joint:
            x = block(x)
        return x

    def jobs(
        self,
        duration: Float[Tensor, "X J O"],
        machine: Int[Tensor, "X J O"],
        left: Bool[Tensor, "X J O"],
        machines: Float[Tensor, "X M D"],
    ) -> Float[Tensor, "X J D"]:
        """A job is the sum of the operations that it has left; a completed one is zero."""
        width = machines.shape[2]
        x = self.duration(duration[..., None]) + places(duration.shape[2], width, duration.device)
        x = self.operations(x, NOT * (~left).to(duration.dtype)[:, :, None, None])
        index = machine.flatten(1).clamp(max=machines.shape[1] - 1)[..., None].expand(-1, -1, width)
        own = machines.gather(1, index).view(*machine.shape, width)
        return (self.places.to_one(x, own) * left[..., None]).sum(2)


def places(count: int, width: int, device: torch.device) -> Float[Tensor, "O D"]:
    """Sines on even and cosines on odd channels, base 10,000."""
    pace = 10000.0 ** (-torch.arange(0, width, 2, device=device) / width)
    angle = torch.arange(count, device=device)[:, None] * pace
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class Matcher(nn.Module):
    """Scores of jobs for a machine; the latent's rows start at zero."""

    def __init__(self, a: MachinesArchitecture):
        super().__init__()
        self.machine, self.job = nn.Linear(a.width, a.hidden), nn.Linear(a.width, a.hidden)
        self.machine_latent, self.job_latent = (nn.Parameter(torch.zeros(a.latent, a.hidden)) for _ in range(2))
        self.amplify: Tensor
        self.register_buffer("amplify", torch.tensor(float(a.amplify)))

    def condition(self, latents: Float[Tensor, "B K Z"]) -> MachinesShift:
        """What each latent adds."""
        z = latents * self.amplify
        return MachinesShift(z @ self.machine_latent, z @ self.job_latent)

    def forward(
        self, machine: Float[Tensor, "X 1 D"], jobs: Float[Tensor, "X A D"], shift: MachinesShift
    ) -> Float[Tensor, "X A"]:
        """Products of one machine with waiting and the jobs."""
        query, key = self.machine(machine) + shift.machine, self.job(jobs) + shift.job
        return (key @ query.transpose(1, 2))[..., 0].float() / math.sqrt(query.shape[-1])


class JSSPMachinesPolicy(nn.Module):
    """Runs its whole network at each decision that is one."""

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
        """About how many numbers one rollout keeps at once: as if there were as many machines as jobs."""
        return width * width * self.architecture.width + steps

    def encode(self, batch: JSSPBatch) -> ShopMemory:
        """Nothing yet."""
        return ShopMemory(batch.duration[..., :-1].float(), batch.machine[..., :-1])

    def condition(self, memory: ShopMemory, latents: Float[Tensor, "B K Z"]) -> MachinesShift:
        """What each latent changes."""
        return self.decoder.condition(latents)

    def logits(
        self, memory: ShopMemory, shift: MachinesShift, state: MachinesState, allowed: Bool[Tensor, "B R A"]
    ) -> Float[Tensor, "B R A"]:
        """Scores of waiting and of the jobs for the machine whose turn it is, not masked; zeros without a choice."""
        rows = choices(allowed)
        instance = torch.arange(allowed[..., 0].numel(), device=allowed.device)[rows] // allowed.shape[1]
        step = state.next.flatten(0, 1)[rows]
        machine = memory.machine[instance]
        left = torch.arange(machine.shape[2], device=machine.device) >= step[..., None]
        left = left & (machine < state.machine.shape[2] - 1)
        busy = state.machine[..., :-1].flatten(0, 1)[rows].to(memory.duration.dtype)
        x = self.encoder(memory.duration[instance], machine, busy, left)
        turn = x[torch.arange(len(x), device=x.device), state.turn.flatten()[rows]][:, None]
        scores = self.decoder(turn, x[:, busy.shape[1] :], shift.map(lambda z: z.flatten(0, 1)[rows][:, None]))
        return spread(scores, rows, allowed)

    def widened(self, latent: int, amplify: float = 100.0) -> "JSSPMachinesPolicy":
        """The same policy with a latent space whose every point behaves exactly alike."""
        wide = JSSPMachinesPolicy(replace(self.architecture, latent=latent, amplify=amplify))
        own = {n: x for n, x in self.state_dict().items() if not n.endswith(("_latent", "amplify"))}
        wide.load_state_dict(own, strict=False)
        return wide.to(next(self.parameters()).device)
