"""Strategies that learn nothing: greedy, sampling, uniform and fixed latents (spec 4.2)."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.search.strategy import (
    check_settings,
    default_step_size,
    latent_dimensions,
    temperature_or_default,
)
from rhumbline.search.task import Task


@dataclass(frozen=True)
class NoState:
    """The state of a strategy that remembers nothing."""


@dataclass(frozen=True)
class Greedy:
    """One attempt: the most likely solution from each start, at the centre of the latent space."""

    ends: ClassVar[bool] = True

    def init(self, task: Task) -> NoState:
        """No state."""
        return NoState()

    def step(self, task: Task, state: NoState) -> tuple[None, Float[Tensor, "B K Z"], Rollouts]:
        """The only step."""
        latents = task.policy.space.centre((task.count, 1), task.device)
        return None, latents, task.rollout(latents, 0.0)


@dataclass(frozen=True)
class Sampling:
    """Random solutions of one policy, at the centre of the latent space."""

    population: int | None = None  # per step; None: `default_step_size`
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_settings(1 if self.population is None else self.population, self.temperature)

    def init(self, task: Task) -> NoState:
        """No state."""
        return NoState()

    def step(self, task: Task, state: NoState) -> tuple[NoState, Float[Tensor, "B K Z"], Rollouts]:
        """More samples."""
        count = self.population or default_step_size(task)
        latents = task.policy.space.centre((task.count, count), task.device)
        return state, latents, task.rollout(latents, self.temperature)


@dataclass(frozen=True)
class Uniform:
    """New uniform latents at every step: what searching the space blindly gives."""

    population: int = 16
    temperature: float | None = None  # of the sampling; None: `default_temperature`

    def __post_init__(self) -> None:
        check_settings(self.population, self.temperature)

    def init(self, task: Task) -> NoState:
        """No state, but a space."""
        latent_dimensions(task)
        return NoState()

    def step(self, task: Task, state: NoState) -> tuple[NoState, Float[Tensor, "B K Z"], Rollouts]:
        """The next latents."""
        latents = uniform_latents(task, self.population)
        return state, latents, task.rollout(latents, temperature_or_default(task, self.temperature))


@dataclass(frozen=True)
class Fixed:
    """Uniform latents drawn once for each instance, then sampled again and again: a population
    without training.
    """

    latents: int = 16
    temperature: float | None = None  # of the sampling; None: `default_temperature`

    def __post_init__(self) -> None:
        check_settings(self.latents, self.temperature)

    def init(self, task: Task) -> Float[Tensor, "B K Z"]:
        """The latents."""
        latent_dimensions(task)
        return uniform_latents(task, self.latents)

    def step(
        self, task: Task, state: Float[Tensor, "B K Z"]
    ) -> tuple[Float[Tensor, "B K Z"], Float[Tensor, "B K Z"], Rollouts]:
        """The same latents once more."""
        return state, state, task.rollout(state, temperature_or_default(task, self.temperature))


def uniform_latents(task: Task, count: int) -> Float[Tensor, "B K Z"]:
    """The next uniform latents."""
    return 2.0 * task.uniforms(count)[..., 0] - 1.0
