"""Sampling whose policy learns from the best plans so far: `CMAESElite` without a latent search.

It is for policies whose latents differ little, such as those for job shops, and for policies
without latents. Where an attempt is a single rollout, a generation is larger than one of CMA-ES:
an elite should be a small part of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.search.plan_sets.elite import EliteSet, cheapest_rollouts, incumbent_set
from rhumbline.search.strategies.cmaes_elite import (
    TUNING as ELITE_TUNING,
)
from rhumbline.search.strategies.cmaes_elite import (
    default_learning_rate,
    elite_target,
    has_learnable_plan,
)
from rhumbline.search.strategies.eas import Adaptation, EASEmb
from rhumbline.search.strategy import (
    Needs,
    Step,
    Strategy,
    WarmUp,
    check_settings,
    temperature_or_default,
)
from rhumbline.search.task import Task


@dataclass(frozen=True)
class SamplingEliteTuning:
    """Sizes of a generation and of the elite, measured in research/notebooks/experiments.md."""

    # Rollouts of a generation: a larger batch is faster on a CPU, a smaller one leaves more
    # generations to learn from.
    generation: int = 64
    large_generation: int = 256  # on a GPU, where an update takes longer, if the budget has room
    min_large_generations: int = 16  # that the budget needs room for
    # An elite of 8 is no better on a CPU, where its scores cost the time of more samples.
    elite: Mapping[str, int] = field(default_factory=lambda: {"cpu": 4, "cuda": 8})


TUNING = SamplingEliteTuning()


@dataclass(frozen=True)
class SamplingEliteState:
    """What was learnt, the plans it was learnt from, and the number of updates that took."""

    adaptation: Adaptation
    elite_set: EliteSet | None = None
    updates: int = 0


@dataclass(frozen=True)
class SamplingElite(Strategy[SamplingEliteState]):
    """Samples of one policy, whose tables learn from the best distinct plans of all generations."""

    needs: ClassVar[Needs] = Needs(tables=True)

    elite: int | None = None  # plans to learn from; None: 8, on a CPU 4
    rate: float | None = None  # of Adam; None: slower for larger budgets (`default_learning_rate`)
    population: int | None = None  # of a generation; None: 16, or 64 or 256 of single rollouts
    temperature: float | None = None  # None: that of `CMAESElite`

    def __post_init__(self) -> None:
        population = 1 if self.population is None else self.population
        check_settings(population, self.temperature)
        is_elite = self.elite is None or self.elite >= 1
        is_rate = self.rate is None or self.rate >= 0
        if not is_elite or not is_rate:
            least = "an elite of at least 1 and a rate of at least 0"
            raise InputError(f"sampling-elite needs {least}")

    def init(self, task: Task) -> SamplingEliteState:
        """Return the state in which nothing is learnt yet."""
        learning = EASEmb(rate=0.0)  # every step sets the rate
        adaptation = learning.init_at_centre(task)
        return SamplingEliteState(adaptation)

    def step(self, task: Task, state: SamplingEliteState) -> Step:
        """Try one generation with what was learnt so far, and learn from the best plans."""
        learning = EASEmb(rate=0.0)  # every step sets the rate
        adaptation = state.adaptation
        updates = state.updates + 1
        size = (task.count, self.generation(task))
        latents = task.policy.space.centre(size, task.device)
        with torch.no_grad():
            memory = learning.tables(task, task.memory, adaptation.parameters)
        temperature = temperature_or_default(
            task,
            self.temperature,
            ELITE_TUNING.temperatures,
        )
        rolled = task.rollout(latents, temperature, memory=memory)
        elite_set = self.update_elite(task, state.elite_set, rolled)
        adaptation.optimiser.rate = self.learning_rate(task, updates)
        centre = latents[:, :1]
        target = elite_target(task, centre, elite_set)
        learning.update(task, adaptation, [target])
        following = replace(state, elite_set=elite_set, updates=updates)
        return Step(following, latents, rolled)

    def update_elite(self, task: Task, elite_set: EliteSet | None, rolled: Rollouts) -> EliteSet:
        """Return the best distinct plans so far.

        A plan that was given is among them if the policy can learn from it.
        """
        size = self.elite or TUNING.elite[task.device.type]
        found = cheapest_rollouts(rolled, size)
        if elite_set is not None:
            found = elite_set.merge(found, size)
        if has_learnable_plan(task):
            given = incumbent_set(task)
            found = found.merge(given, size)
        return found

    def learning_rate(self, task: Task, updates: int) -> float:
        """Return Adam's rate at an update."""
        if self.rate is None:
            return default_learning_rate(task, updates)
        return self.rate

    def generation(self, task: Task) -> int:
        """Return the number of latents of a generation, which are all the same one."""
        if self.population or task.starts.shape[1] > 1:
            return self.population or 16
        limit = task.account.limit
        needed = TUNING.min_large_generations * TUNING.large_generation
        is_cuda = task.device.type == "cuda"
        is_long = limit is None or limit >= needed
        if is_cuda and is_long:
            return TUNING.large_generation
        return TUNING.generation

    def warm_up(self, task: Task) -> WarmUp:
        """Return a search with both sizes of a generation, and the attempts it needs.

        A GPU's kernels differ by size.
        """
        attempts = TUNING.generation + TUNING.large_generation
        both_sizes = AlternatingSizes(self)
        return WarmUp(both_sizes, attempts)


@dataclass(frozen=True)
class AlternatingSizes(Strategy[SamplingEliteState]):
    """A warm-up run: the search with small and large generations in turns.

    Sizes alternate only where an attempt is one rollout.
    """

    needs: ClassVar[Needs] = SamplingElite.needs

    search: SamplingElite

    def init(self, task: Task) -> SamplingEliteState:
        """Return the first state of the search itself."""
        return self.search.init(task)

    def step(self, task: Task, state: SamplingEliteState) -> Step:
        """Try a generation of the next size."""
        search = self.search
        starts = task.starts.shape[1]
        if starts > 1:
            return search.step(task, state)
        sizes = (TUNING.generation, TUNING.large_generation)
        turn = state.updates % 2
        size = search.population or sizes[turn]
        one_size = replace(search, population=size)
        return one_size.step(task, state)
