"""CMA-ES whose policy learns from the best plans of every generation.

Active search scores every sample to learn from it, which takes many times what sampling took. Here only the elite of a
generation is scored, a few of hundreds of sequences, so learning costs little more than the search alone
(docs/experiments.md).
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
from rhumbline.search.plan_sets.elite import Herd
from rhumbline.search.strategies.cmaes import CMAES, Search
from rhumbline.search.strategies.eas import Adaptation, EASEmb, Lesson
from rhumbline.search.strategy import chosen_temperature, large
from rhumbline.search.task import Task

PACE = 0.025  # of the usual rate, for which it is divided by the root of the number of updates
FASTEST = {"routing": 0.005, "jssp": 0.02}
# Up to so many nodes. Higher than those of a search that does not learn: what has been learnt narrows the choices too.
TEMPERATURES = ((200.0, 1.0), (250.0, 0.7), (math.inf, 0.5))


@dataclass(frozen=True)
class Guided:
    """State: the search, what has been learnt, and how many updates that took."""

    search: Search
    adaptation: Adaptation
    updates: int = 0


@dataclass(frozen=True)
class CMAESElite:
    """CMA-ES in the latent space, while the embeddings of the instance learn from its best plans.

    Of `large` instances nothing is learnt unless a rate is given: there it is CMA-ES as it is.
    """

    elite: int = 8  # sequences of a generation to learn from
    rate: float | None = None  # of Adam; None: the more updates the budget has room for, the slower (`usual_rate`)
    components: int = 3
    population: int = 16
    sigma: float = 1.0
    temperature: float | None = None  # None: `TEMPERATURES`
    starts: float | None = None

    def __post_init__(self) -> None:
        if self.elite < 1 or not (self.rate is None or self.rate >= 0):
            raise InputError("cmaes-elite needs an elite of at least 1 and a rate of at least 0")
        _ = self.search  # which refuses wrong settings

    @property
    def search(self) -> CMAES:
        """Where latents come from."""
        return CMAES(self.components, self.population, self.sigma, self.temperature, starts=self.starts)

    def learns(self, task: Task) -> bool:
        """Whether instances of this size are worth it."""
        return self.rate is not None or not large(task)

    def search_of(self, task: Task) -> CMAES:
        """The same at the temperature for the task."""
        if not self.learns(task):
            return self.search
        return replace(self.search, temperature=chosen_temperature(task, self.temperature, TEMPERATURES))

    @property
    def learning(self) -> EASEmb:
        """What learns, and how."""
        return EASEmb(rate=0.0)  # every step sets its own

    def init(self, task: Task) -> Guided:
        """Nothing learnt yet."""
        return Guided(self.search.init(task), self.learning.at_centre(task))

    def step(self, task: Task, state: Guided) -> tuple[Guided, Float[Tensor, "B K Z"], Rollouts]:
        """One generation with what has been learnt so far, and one update from its elite."""
        if not self.learns(task):
            search, latents, rolled = self.search_of(task).step(task, state.search)
            return replace(state, search=search), latents, rolled
        learning, adaptation, updates = self.learning, state.adaptation, state.updates + 1
        search, latents, rolled = self.search_of(task).step(task, state.search, self.memory(task, state))
        adaptation.optimiser.rate = usual_rate(task, updates) if self.rate is None else self.rate
        learning.update(task, adaptation, [elite_of(task, latents, rolled, self.elite)])
        return replace(state, search=search, updates=updates), latents, rolled

    def memory(self, task: Task, state: Guided) -> Any:
        """The tables with what has been learnt."""
        if not self.learns(task):
            return task.memory
        with torch.no_grad():
            return self.learning.tables(task, task.memory, state.adaptation.parameters)


def usual_rate(task: Task, updates: int) -> float:
    """Slower, the more updates there will be, as far as the budget spent so far tells: haste narrows the search."""
    foreseen = updates / (task.spent or 1.0)
    return min(FASTEST.get(task.problem.name, FASTEST["routing"]), PACE / max(foreseen, 1.0) ** 0.5)


def elite_of(task: Task, latents: Float[Tensor, "B K Z"], rolled: Rollouts, count: int) -> Lesson:
    """The cheapest sequences with equal weights: a lesson for every copy of an instance."""
    starts = rolled.cost.shape[2]
    best = rolled.cost.flatten(1).argsort(dim=1, stable=True)[:, :count]
    source = latents.gather(1, (best // starts)[..., None].expand(-1, -1, latents.shape[2]))
    sequences = rolled.actions.flatten(1, 2)
    sequences = sequences.gather(1, best[..., None].expand(-1, -1, sequences.shape[2]))
    sequences = without_waiting(led(task, sequences, rolled.cost.flatten(1).amin(1)))
    weight = torch.full(best.shape, -1.0 / best.shape[1], device=task.device)
    return task.spread(source), task.spread(sequences)[:, :, None], task.spread(weight)[..., None]


def lesson_of(task: Task, latent: Float[Tensor, "B 1 Z"], herd: Herd) -> Lesson:
    """All plans with equal weights, but for gaps, under one latent: a lesson for every copy of an instance."""
    real = herd.cost.isfinite()
    weight = -real.float() / real.sum(1, keepdim=True)
    return task.spread(latent), task.spread(without_waiting(herd.actions))[:, None], task.spread(weight)[:, None]


def led(task: Task, sequences: Int[Tensor, "B M T"], least: Float[Tensor, "B"]) -> Int[Tensor, "B M T"]:
    """Sequences of which the last makes room for a plan that was given, where nothing as good was found since.

    Other instances of the batch keep theirs: what one learns does not depend on its company.
    """
    if not learnable(task):
        return sequences
    given = torch.tensor([plan is not None for plan in task.ledger.warm], device=task.device)
    assert task.ledger.best is not None
    leads = given & (task.ledger.best < least)
    return torch.cat([sequences[:, :-1], torch.where(leads[:, None], task.incumbents, sequences[:, -1])[:, None]], 1)


def learnable(task: Task) -> bool:
    """Whether plans were given that could be learnt from.

    A schedule need not be active, and others the policy for job shops cannot spell.
    """
    return any(task.ledger.warm) and isinstance(task.memory, Memory)


def without_waiting(sequences: Int[Tensor, "B M T"]) -> Int[Tensor, "B M t"]:
    """Sequences without the steps at the depot after all of them have ended, which are certain and teach nothing.

    In shops these are steps for which only the first job is left. Only on a CPU: to know where that is would make a
    GPU wait.
    """
    if sequences.device.type != "cpu":
        return sequences
    moving = (sequences != 0).flatten(0, 1).any(0).nonzero()
    return sequences[..., : int(moving[-1]) + 2] if len(moving) else sequences
