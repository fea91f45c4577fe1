"""Sampling whose policy learns from the best plans so far: `CMAESElite` without a search among
latents.

For policies whose latents differ little, such as those for job shops, and for policies that have
none. A generation is larger than one of CMA-ES where an attempt is a single rollout, so that an
elite is worth its name.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.search.plan_sets.elite import EliteSet, cheapest_rollouts, incumbent_set
from rhumbline.search.strategies.cmaes_elite import (
    ELITE_TEMPERATURES,
    default_learning_rate,
    elite_target,
    has_learnable_warm_start,
)
from rhumbline.search.strategies.eas import Adaptation, EASEmb
from rhumbline.search.strategy import check_settings, temperature_or_default
from rhumbline.search.task import Task

GENERATION = 64  # schedules: more in a batch are faster on a CPU, fewer leave more to learn
# the same on a GPU with attempts for many of them: lessons take longer there (docs/experiments.md)
LARGE = 256
MANY = 16
ELITE = {
    "cpu": 4,
    "cuda": 8,
}  # a lesson of 8 is no better, and on a CPU its scores take the time of more samples


@dataclass(frozen=True)
class SamplingEliteState:
    """State: what has been learnt, the plans that taught it, and how many updates that took."""

    adaptation: Adaptation
    elite_set: EliteSet | None = None
    updates: int = 0


@dataclass(frozen=True)
class SamplingElite:
    """Samples of one policy, whose tables learn from the best different plans of all generations
    so far.
    """

    elite: int | None = None  # plans to learn from; None: 8, on a CPU 4
    rate: float | None = (
        # of Adam; None: the more updates the budget has room for, the slower
        # (`default_learning_rate`)
        None
    )
    population: int | None = (
        None  # of a generation; None: 16, where an attempt is one rollout 64 or 256
    )
    temperature: float | None = None  # None: that of `CMAESElite`

    def __post_init__(self) -> None:
        check_settings(1 if self.population is None else self.population, self.temperature)
        if (self.elite is not None and self.elite < 1) or not (self.rate is None or self.rate >= 0):
            raise InputError("sampling-elite needs an elite of at least 1 and a rate of at least 0")

    def init(self, task: Task) -> SamplingEliteState:
        """Nothing learnt yet."""
        return SamplingEliteState(EASEmb(rate=0.0).init_at_centre(task))

    def step(
        self, task: Task, state: SamplingEliteState
    ) -> tuple[SamplingEliteState, Float[Tensor, "B K Z"], Rollouts]:
        """One generation with what has been learnt so far, and one update from the best plans."""
        learning = EASEmb(rate=0.0)
        adaptation = state.adaptation
        updates = state.updates + 1
        latents = task.policy.space.centre((task.count, self.generation(task)), task.device)
        with torch.no_grad():
            memory = learning.tables(task, task.memory, adaptation.parameters)
        rolled = task.rollout(
            latents,
            temperature_or_default(task, self.temperature, ELITE_TEMPERATURES),
            memory=memory,
        )
        elite_set = self.update_elite(task, state.elite_set, rolled)
        adaptation.optimiser.rate = (
            default_learning_rate(task, updates) if self.rate is None else self.rate
        )
        learning.update(task, adaptation, [elite_target(task, latents[:, :1], elite_set)])
        return replace(state, elite_set=elite_set, updates=updates), latents, rolled

    def update_elite(self, task: Task, elite_set: EliteSet | None, rolled: Rollouts) -> EliteSet:
        """The best different plans so far, among them one that was given, if the policy could
        spell it (`led`).
        """
        most = self.elite or ELITE[task.device.type]
        found = cheapest_rollouts(rolled, most)
        found = found if elite_set is None else elite_set.joined(found, most)
        return found.joined(incumbent_set(task), most) if has_learnable_warm_start(task) else found

    def generation(self, task: Task) -> int:
        """Latents of a generation, all of them the same one."""
        if self.population or task.starts.shape[1] > 1:
            return self.population or 16
        limit = task.account.limit
        many = task.device.type == "cuda" and (limit is None or limit >= MANY * LARGE)
        return LARGE if many else GENERATION

    @property
    def rehearsal(self) -> "tuple[AlternatingSizes, int]":
        """A generation of either size, since kernels differ by it, and attempts for that."""
        return AlternatingSizes(self), GENERATION + LARGE


@dataclass(frozen=True)
class AlternatingSizes:
    """A rehearsal: the search with small and large generations in turns, where an attempt is one
    rollout.
    """

    search: SamplingElite

    def init(self, task: Task) -> SamplingEliteState:
        """As the search itself."""
        return self.search.init(task)

    def step(
        self, task: Task, state: SamplingEliteState
    ) -> tuple[SamplingEliteState, Float[Tensor, "B K Z"], Rollouts]:
        """The next size."""
        size = self.search.population or (GENERATION, LARGE)[state.updates % 2]
        one = self.search if task.starts.shape[1] > 1 else replace(self.search, population=size)
        return one.step(task, state)
