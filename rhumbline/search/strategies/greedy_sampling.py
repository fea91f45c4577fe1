"""Strategies that learn nothing: greedy, sampling, uniform and fixed latents."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from rhumbline.search.defaults import default_step_size
from rhumbline.search.strategy import (
    Needs,
    Step,
    Strategy,
    check_settings,
    temperature_or_default,
)
from rhumbline.search.task import Task


@dataclass(frozen=True)
class NoState:
    """The state of a strategy that remembers nothing."""


@dataclass(frozen=True)
class Greedy(Strategy[NoState]):
    """One attempt: the most likely solution from each start, at the centre of the latent space."""

    finite: ClassVar[bool] = True

    def init(self, task: Task) -> NoState:
        """Return the empty state."""
        return NoState()

    def step(self, task: Task, state: NoState) -> Step:
        """Decode greedily and end the search."""
        space = task.policy.space
        latents = space.centre((task.count, 1), task.device)
        rolled = task.rollout(latents, 0.0)
        return Step(None, latents, rolled)


@dataclass(frozen=True)
class Sampling(Strategy[NoState]):
    """Random solutions of one policy, at the centre of the latent space."""

    population: int | None = None  # latents of a step; None: `default_step_size`
    temperature: float = 1.0  # of the sampling

    def __post_init__(self) -> None:
        population = 1 if self.population is None else self.population
        check_settings(population, self.temperature)

    def init(self, task: Task) -> NoState:
        """Return the empty state."""
        return NoState()

    def step(self, task: Task, state: NoState) -> Step:
        """Sample more solutions."""
        space = task.policy.space
        count = self.population or default_step_size(task)
        latents = space.centre((task.count, count), task.device)
        rolled = task.rollout(latents, self.temperature)
        return Step(state, latents, rolled)


@dataclass(frozen=True)
class Uniform(Strategy[NoState]):
    """New uniform latents at every step: a blind search of the latent space, as a baseline."""

    needs: ClassVar[Needs] = Needs(latent_space=True)

    population: int = 16
    temperature: float | None = None  # of the sampling; None: `default_temperature`

    def __post_init__(self) -> None:
        check_settings(self.population, self.temperature)

    def init(self, task: Task) -> NoState:
        """Return the empty state."""
        return NoState()

    def step(self, task: Task, state: NoState) -> Step:
        """Try the next latents."""
        latents = uniform_latents(task, self.population)
        temperature = temperature_or_default(task, self.temperature)
        return Step(state, latents, task.rollout(latents, temperature))


@dataclass(frozen=True)
class Fixed(Strategy[Float[Tensor, "B K Z"]]):
    """Uniform latents drawn once for each instance and sampled again and again.

    It is what a population gives without training.
    """

    needs: ClassVar[Needs] = Needs(latent_space=True)

    latents: int = 16  # drawn once for each instance
    temperature: float | None = None  # of the sampling; None: `default_temperature`

    def __post_init__(self) -> None:
        check_settings(self.latents, self.temperature)

    def init(self, task: Task) -> Float[Tensor, "B K Z"]:
        """Draw the latents."""
        return uniform_latents(task, self.latents)

    def step(self, task: Task, state: Float[Tensor, "B K Z"]) -> Step:
        """Sample under the same latents once more."""
        temperature = temperature_or_default(task, self.temperature)
        return Step(state, state, task.rollout(state, temperature))


def uniform_latents(task: Task, count: int) -> Float[Tensor, "B K Z"]:
    """Draw the next latents, uniform in the latent box."""
    uniforms = task.uniforms(count)[..., 0]
    return 2.0 * uniforms - 1.0
