"""Rollouts to build and rollouts built, and how an action is drawn."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline import noise
from rhumbline.policies import Policy
from rhumbline.problems import Problem
from rhumbline.record import Record

EngineName = Literal["auto", "torch", "fused"]

# A sampled position is compared with u * total; this keeps the product below the total whatever the
# rounding.
BELOW_ONE = 1.0 - 2.0**-22


@dataclass(frozen=True)
class Rollouts(Record):
    """Complete solutions and what they cost."""

    cost: Float[Tensor, "B K S"]
    actions: Int[Tensor, "B K S T"]


@dataclass(frozen=True)
class Prefixes(Record):
    """How rollouts begin: of each sequence so many actions are imposed, at least the first."""

    actions: Int[Tensor, "B R T"]
    length: Int[Tensor, "B R"]


@dataclass(frozen=True)
class RolloutRequest:
    """Rollouts to build: one per (instance, latent, start)."""

    problem: Problem[Any, Any]
    policy: Policy[Any, Any, Any]
    batch: Any
    memory: Any
    latents: Float[Tensor, "B K Z"]
    starts: Int[Tensor, "B S"]
    seed: int | Tensor  # a tensor only for fused engines on a GPU, for replays of a graph
    attempt: int  # number of the first latent
    temperature: float
    given: Prefixes | None = None  # of all rollouts, where more than the first action is imposed
    mark: float = 0.0  # probability from which on drawn actions are complemented; 0: never

    @property
    def host_seed(self) -> int:
        """The seed where only a number will do."""
        assert isinstance(self.seed, int), (
            "only the fused engine of a GPU reads its seed from the device"
        )
        return self.seed

    @property
    def shift(self) -> Any:
        """What the latents change."""
        return self.policy.condition(self.memory, self.latents)

    @property
    def shift_of_rollouts(self) -> Any:
        """The same for each rollout, latents and starts in one row."""
        return self.shift.map(lambda x: x.repeat_interleave(self.starts.shape[1], dim=1))

    @property
    def first(self) -> Int[Tensor, "B R"]:
        """The imposed first action of each rollout."""
        if self.given is not None:
            return self.given.actions[..., 0]
        return self.starts[:, None].expand(-1, self.latents.shape[1], -1).flatten(1)

    def decide(
        self, shift: Any, state: Any, uniform: Float[Tensor, "B R"] | None
    ) -> Int[Tensor, "B R"]:
        """The next action of each rollout."""
        allowed = self.problem.mask(state)
        logits = self.policy.logits(self.memory, shift, state, allowed)
        return choose(logits, allowed, uniform, self.temperature)

    def part(self, rows: slice, tried: slice) -> "RolloutRequest":
        """The same for some instances and some latents; the latents keep their numbers."""
        assert self.given is None, "beginnings are carried on in one part"
        return replace(
            self,
            batch=self.batch[rows],
            memory=self.memory
            if rows == slice(0, len(self.starts))
            else self.memory[rows],  # kernels know it again
            latents=self.latents[rows, tried],
            starts=self.starts[rows],
            attempt=self.attempt + tried.start,
        )

    def uniform(self, horizon: int) -> Float[Tensor, "B R T"]:
        """The noise behind every decision."""
        attempts = self.attempt + torch.arange(self.latents.shape[1], device=self.starts.device)
        return noise.decoding_uniforms(
            self.host_seed, self.batch.key, attempts, self.starts.shape[1], horizon
        ).flatten(1, 2)


def choose(
    logits: Float[Tensor, "*R A"],
    allowed: Bool[Tensor, "*R A"],
    uniform: Float[Tensor, "*R"] | None,
    temperature: float,
) -> Int[Tensor, "*R"]:
    """The action that `uniform` selects: inverse of the cumulative weights. Temperature 0 takes
    the best.
    """
    logits = logits.masked_fill(~allowed, -torch.inf)
    if uniform is None or temperature == 0.0:
        return logits.argmax(-1)
    weight = torch.exp((logits - logits.amax(-1, keepdim=True)) / temperature)
    # A parallel scan may round a forbidden action above its neighbours: it must neither be hit nor
    # count in the total.
    reach = weight.cumsum(-1).masked_fill_(~allowed, 0.0)
    limit = uniform[..., None] * (reach.amax(-1, keepdim=True) * BELOW_ONE)
    return (reach > limit).to(torch.uint8).argmax(-1)
