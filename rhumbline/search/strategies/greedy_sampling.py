"""Strategies that learn nothing: greedy, sampling, uniform and fixed latents (spec 4.2)."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.search.strategy import box_size, check_settings, chosen_temperature, usual_step
from rhumbline.search.task import Task


@dataclass(frozen=True)
class Nothing:
    """The state of a strategy that remembers nothing."""


@dataclass(frozen=True)
class Greedy:
    """One attempt: the most likely solution from each start, at the centre of the latent space."""

    ends: ClassVar[bool] = True

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

    population: int | None = None  # per step; None: `usual_step`
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_settings(1 if self.population is None else self.population, self.temperature)

    def init(self, task: Task) -> Nothing:
        """No state."""
        return Nothing()

    def step(self, task: Task, state: Nothing) -> tuple[Nothing, Float[Tensor, "B K Z"], Rollouts]:
        """More samples."""
        count = self.population or usual_step(task)
        latents = task.policy.space.centre((task.count, count), task.device)
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
        box_size(task)
        return Nothing()

    def step(self, task: Task, state: Nothing) -> tuple[Nothing, Float[Tensor, "B K Z"], Rollouts]:
        """The next latents."""
        latents = box_points(task, self.population)
        return state, latents, task.rollout(latents, chosen_temperature(task, self.temperature))


@dataclass(frozen=True)
class Fixed:
    """Uniform latents drawn once for each instance, then sampled again and again: a population without training."""

    latents: int = 16
    temperature: float | None = None  # of the sampling; None: `usual_temperature`

    def __post_init__(self) -> None:
        check_settings(self.latents, self.temperature)

    def init(self, task: Task) -> Float[Tensor, "B K Z"]:
        """The latents."""
        box_size(task)
        return box_points(task, self.latents)

    def step(
        self, task: Task, state: Float[Tensor, "B K Z"]
    ) -> tuple[Float[Tensor, "B K Z"], Float[Tensor, "B K Z"], Rollouts]:
        """The same latents once more."""
        return state, state, task.rollout(state, chosen_temperature(task, self.temperature))


def box_points(task: Task, count: int) -> Float[Tensor, "B K Z"]:
    """The next uniform latents."""
    return 2.0 * task.uniforms(count)[..., 0] - 1.0
