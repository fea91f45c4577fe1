"""CMA-ES whose policy learns from the best plans of every generation.

Active search scores every sample to learn from it, which takes many times what sampling took. Here
only the elite of a generation is scored, a few of hundreds of sequences, so learning costs little
more than the search alone (docs/experiments.md).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.policies.attention.memory import Memory
from rhumbline.search.plan_sets.elite import EliteSet
from rhumbline.search.strategies.cmaes import CMAES, CMAESState
from rhumbline.search.strategies.eas import Adaptation, EASEmb, ImitationTarget
from rhumbline.search.strategy import is_large, temperature_or_default
from rhumbline.search.task import Task

PACE = 0.025  # of the usual rate, for which it is divided by the root of the number of updates
FASTEST = {"routing": 0.005, "jssp": 0.02}
# Up to so many nodes. Higher than those of a search that does not learn: what has been learnt
# narrows the choices too.
ELITE_TEMPERATURES = ((200.0, 1.0), (250.0, 0.7), (math.inf, 0.5))


@dataclass(frozen=True)
class CMAESEliteState:
    """State: the search, what has been learnt, and how many updates that took."""

    search: CMAESState
    adaptation: Adaptation
    updates: int = 0


@dataclass(frozen=True)
class CMAESElite:
    """CMA-ES in the latent space, while the embeddings of the instance learn from its best plans.

    Of `large` instances nothing is learnt unless a rate is given: there it is CMA-ES as it is.
    """

    elite: int = 8  # sequences of a generation to learn from
    rate: float | None = (
        # of Adam; None: the more updates the budget has room for, the slower
        # (`default_learning_rate`)
        None
    )
    components: int = 3
    population: int = 16
    sigma: float = 1.0
    temperature: float | None = None  # None: `ELITE_TEMPERATURES`
    starts: float | None = None

    def __post_init__(self) -> None:
        if self.elite < 1 or not (self.rate is None or self.rate >= 0):
            raise InputError("cmaes-elite needs an elite of at least 1 and a rate of at least 0")
        _ = self.search  # which refuses wrong settings

    @property
    def search(self) -> CMAES:
        """Where latents come from."""
        return CMAES(
            self.components, self.population, self.sigma, self.temperature, starts=self.starts
        )

    def learns(self, task: Task) -> bool:
        """Whether instances of this size are worth it."""
        return self.rate is not None or not is_large(task)

    def search_for_task(self, task: Task) -> CMAES:
        """The same at the temperature for the task."""
        if not self.learns(task):
            return self.search
        return replace(
            self.search,
            temperature=temperature_or_default(task, self.temperature, ELITE_TEMPERATURES),
        )

    @property
    def learning(self) -> EASEmb:
        """What learns, and how."""
        return EASEmb(rate=0.0)  # every step sets its own

    def init(self, task: Task) -> CMAESEliteState:
        """Nothing learnt yet."""
        return CMAESEliteState(self.search.init(task), self.learning.init_at_centre(task))

    def step(
        self, task: Task, state: CMAESEliteState
    ) -> tuple[CMAESEliteState, Float[Tensor, "B K Z"], Rollouts]:
        """One generation with what has been learnt so far, and one update from its elite."""
        if not self.learns(task):
            search, latents, rolled = self.search_for_task(task).step(task, state.search)
            return replace(state, search=search), latents, rolled
        learning = self.learning
        adaptation = state.adaptation
        updates = state.updates + 1
        search, latents, rolled = self.search_for_task(task).step(
            task, state.search, self.memory(task, state)
        )
        adaptation.optimiser.rate = (
            default_learning_rate(task, updates) if self.rate is None else self.rate
        )
        learning.update(task, adaptation, [generation_target(task, latents, rolled, self.elite)])
        return replace(state, search=search, updates=updates), latents, rolled

    def memory(self, task: Task, state: CMAESEliteState) -> Any:
        """The tables with what has been learnt."""
        if not self.learns(task):
            return task.memory
        with torch.no_grad():
            return self.learning.tables(task, task.memory, state.adaptation.parameters)


def default_learning_rate(task: Task, updates: int) -> float:
    """Slower, the more updates there will be, as far as the budget spent so far tells: haste
    narrows the search.
    """
    foreseen = updates / (task.spent_share or 1.0)
    return min(FASTEST.get(task.problem.name, FASTEST["routing"]), PACE / max(foreseen, 1.0) ** 0.5)


def generation_target(
    task: Task, latents: Float[Tensor, "B K Z"], rolled: Rollouts, count: int
) -> ImitationTarget:
    """The cheapest sequences with equal weights: a lesson for every copy of an instance."""
    starts = rolled.cost.shape[2]
    best = rolled.cost.flatten(1).argsort(dim=1, stable=True)[:, :count]
    source = latents.gather(1, (best // starts)[..., None].expand(-1, -1, latents.shape[2]))
    sequences = rolled.actions.flatten(1, 2)
    sequences = sequences.gather(1, best[..., None].expand(-1, -1, sequences.shape[2]))
    sequences = trim_padding(
        replace_last_with_given(task, sequences, rolled.cost.flatten(1).amin(1))
    )
    weight = torch.full(best.shape, -1.0 / best.shape[1], device=task.device)
    return (
        task.repeat_for_copies(source),
        task.repeat_for_copies(sequences)[:, :, None],
        task.repeat_for_copies(weight)[..., None],
    )


def elite_target(
    task: Task, latent: Float[Tensor, "B 1 Z"], elite_set: EliteSet
) -> ImitationTarget:
    """All plans with equal weights, but for gaps, under one latent: a lesson for every copy of
    an instance.
    """
    real = elite_set.cost.isfinite()
    weight = -real.float() / real.sum(1, keepdim=True)
    return (
        task.repeat_for_copies(latent),
        task.repeat_for_copies(trim_padding(elite_set.actions))[:, None],
        task.repeat_for_copies(weight)[:, None],
    )


def replace_last_with_given(
    task: Task, sequences: Int[Tensor, "B M T"], least: Float[Tensor, "B"]
) -> Int[Tensor, "B M T"]:
    """Sequences of which the last makes room for a plan that was given, where nothing as good was
    found since.

    Other instances of the batch keep theirs: what one learns does not depend on its company.
    """
    if not has_learnable_warm_start(task):
        return sequences
    given = torch.tensor([plan is not None for plan in task.account.warm], device=task.device)
    assert task.account.best is not None
    leads = given & (task.account.best < least)
    return torch.cat(
        [
            sequences[:, :-1],
            torch.where(leads[:, None], task.incumbents, sequences[:, -1])[:, None],
        ],
        1,
    )


def has_learnable_warm_start(task: Task) -> bool:
    """Whether plans were given that could be learnt from.

    A schedule need not be active, and others the policy for job shops cannot spell.
    """
    return any(task.account.warm) and isinstance(task.memory, Memory)


def trim_padding(sequences: Int[Tensor, "B M T"]) -> Int[Tensor, "B M t"]:
    """Sequences without the steps at the depot after all of them have ended, which are certain and
    teach nothing.

    In shops these are steps for which only the first job is left. Only on a CPU: to know where that
    is would make a GPU wait.
    """
    if sequences.device.type != "cpu":
        return sequences
    moving = (sequences != 0).flatten(0, 1).any(0).nonzero()
    return sequences[..., : int(moving[-1]) + 2] if len(moving) else sequences
