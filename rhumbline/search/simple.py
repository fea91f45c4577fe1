"""Strategies that need no memory: greedy, sampling, uniform latents (spec 4.2)."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.search.run import Task, check_settings, usual_temperature


@dataclass(frozen=True)
class Nothing:
    """The state of a strategy that remembers nothing."""


@dataclass(frozen=True)
class Greedy:
    """One attempt: the most likely solution from each start, at the centre of the latent space."""

    def init(self, task: Task) -> Nothing:
        """No state."""
        return Nothing()

    def step(self, task: Task, state: Nothing) -> tuple[None, Float[Tensor, "B K Z"], Rollouts]:
        """The only step."""
        latents = task.policy.space.centre((task.count, 1), task.device)
        return None, latents, task.rollout(latents, 0.0)


@dataclass(frozen=True)
class Sampling:
    """Random solutions of one policy, at the centre of the latent space."""

    population: int = 16
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self.population, self.temperature)

    def init(self, task: Task) -> Nothing:
        """No state."""
        return Nothing()

    def step(self, task: Task, state: Nothing) -> tuple[Nothing, Float[Tensor, "B K Z"], Rollouts]:
        """More samples."""
        latents = task.policy.space.centre((task.count, self.population), task.device)
        return state, latents, task.rollout(latents, self.temperature)


@dataclass(frozen=True)
class Uniform:
    """New uniform latents at every step: what searching the space blindly gives."""

    population: int = 16
    temperature: float | None = None  # of the sampling; None: `usual_temperature`

    def __post_init__(self) -> None:
        check_settings(self.population, self.temperature)

    def init(self, task: Task) -> Nothing:
        """No state, but a space."""
        if not task.policy.space.size:
            raise InputError("this policy has no latent space; use --search sampling or greedy")
        return Nothing()

    def step(self, task: Task, state: Nothing) -> tuple[Nothing, Float[Tensor, "B K Z"], Rollouts]:
        """The next latents."""
        latents = 2.0 * task.uniforms(self.population)[..., 0] - 1.0
        return (
            state,
            latents,
            task.rollout(latents, usual_temperature(task) if self.temperature is None else self.temperature),
        )
