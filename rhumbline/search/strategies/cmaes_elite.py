"""CMA-ES whose policy learns from the best plans of every generation.

Active search scores every sample to learn from it, which takes many times what sampling took.
Here only the elite of a generation is scored, a few of hundreds of sequences. Learning thus costs
little more than the search alone (research/notebooks/experiments.md).
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.search.plan_sets.elite import EliteSet
from rhumbline.search.strategies.cmaes import CMAES, CMAESState, Proposal
from rhumbline.search.strategies.eas import Adaptation, EASEmb, ImitationTarget
from rhumbline.search.strategy import (
    Distributions,
    Needs,
    Step,
    Strategy,
    is_large,
    temperature_or_default,
)
from rhumbline.search.task import Task


@dataclass(frozen=True)
class EliteTuning:
    """Constants of learning from an elite, measured in research/notebooks/experiments.md."""

    rate_numerator: float = 0.025  # of Adam's rate, over the square root of the number of updates
    # Temperatures up to a number of nodes. They are higher than those of a search that does not
    # learn, because what is learnt narrows the choices too.
    temperatures: tuple[tuple[float, float], ...] = ((200.0, 1.0), (250.0, 0.7), (math.inf, 0.5))


TUNING = EliteTuning()


@dataclass(frozen=True)
class CMAESEliteState:
    """The state of CMA-ES, what was learnt, and the number of updates that took."""

    search: CMAESState
    adaptation: Adaptation
    updates: int = 0


@dataclass(frozen=True)
class CMAESElite(Strategy[CMAESEliteState]):
    """CMA-ES in the latent space, while the embeddings of the instance learn from its best plans.

    Large instances (`is_large`) learn nothing unless a rate is given: they get plain CMA-ES.
    """

    needs: ClassVar[Needs] = Needs(latent_space=True, tables=True)

    elite: int = 8  # sequences of a generation to learn from
    rate: float | None = None  # of Adam; None: slower for larger budgets (`default_learning_rate`)
    components: int = 3
    population: int = 16
    sigma: float = 1.0
    temperature: float | None = None  # None: `EliteTuning.temperatures`
    starts: float | None = None

    def __post_init__(self) -> None:
        if self.elite < 1 or not (self.rate is None or self.rate >= 0):
            least = "an elite of at least 1 and a rate of at least 0"
            raise InputError(f"cmaes-elite needs {least}")
        _ = self.search  # refuses wrong settings

    @property
    def search(self) -> CMAES:
        """Return the search that proposes latents."""
        return CMAES(
            self.components, self.population, self.sigma, self.temperature, starts=self.starts
        )

    def learns(self, task: Task) -> bool:
        """Return whether learning pays for instances of this size."""
        return self.rate is not None or not is_large(task)

    def search_for_task(self, task: Task) -> CMAES:
        """Return the search at the temperature for the task."""
        if not self.learns(task):
            return self.search
        temperature = temperature_or_default(task, self.temperature, TUNING.temperatures)
        return replace(self.search, temperature=temperature)

    @property
    def learning(self) -> EASEmb:
        """Return what learns; every step sets the rate."""
        return EASEmb(rate=0.0)

    def distributions(self, state: CMAESEliteState) -> Distributions:
        """Return the components of the search."""
        return self.search.distributions(state.search)

    def init(self, task: Task) -> CMAESEliteState:
        """Return the state in which nothing is learnt yet."""
        return CMAESEliteState(self.search.init(task), self.learning.init_at_centre(task))

    def step(self, task: Task, state: CMAESEliteState) -> Step:
        """Try one generation with what was learnt so far, and learn from its elite."""
        proposal = self.propose(task, state)
        rolled = task.rollout(*proposal.arguments)
        following = self.learn(task, state, proposal, rolled)
        return Step(following, proposal.latents, rolled)

    def propose(self, task: Task, state: CMAESEliteState) -> Proposal:
        """Return the latents of the next generation, and the tables with what was learnt."""
        search = self.search_for_task(task)
        memory = None
        if self.learns(task):
            memory = self.memory(task, state)
        return search.propose(task, state.search, memory)

    def learn(
        self, task: Task, state: CMAESEliteState, proposal: Proposal, rolled: Rollouts
    ) -> CMAESEliteState:
        """Return the state after a generation was tried; its elite changes the tables."""
        search = self.search_for_task(task).learn(state.search, proposal, rolled)
        if not self.learns(task):
            return replace(state, search=search)
        updates = state.updates + 1
        adaptation = state.adaptation
        adaptation.optimiser.rate = self.learning_rate(task, updates)
        target = generation_target(task, proposal.latents, rolled, self.elite)
        self.learning.update(task, adaptation, [target])
        return replace(state, search=search, updates=updates)

    def learning_rate(self, task: Task, updates: int) -> float:
        """Return Adam's rate at an update."""
        if self.rate is None:
            return default_learning_rate(task, updates)
        return self.rate

    def memory(self, task: Task, state: CMAESEliteState) -> Any:
        """Return the tables of the task with what was learnt."""
        if not self.learns(task):
            return task.memory
        with torch.no_grad():
            return self.learning.tables(task, task.memory, state.adaptation.parameters)


def default_learning_rate(task: Task, updates: int) -> float:
    """Return Adam's rate: the more updates the budget has room for, the lower.

    The share of the budget spent so far tells how many updates there will be. A high rate narrows
    the search early.
    """
    expected_updates = updates / (task.spent_share or 1.0)
    slowdown = max(expected_updates, 1.0) ** 0.5
    return min(task.domain.search.max_learning_rate, TUNING.rate_numerator / slowdown)


def generation_target(
    task: Task, latents: Float[Tensor, "B K Z"], rolled: Rollouts, count: int
) -> ImitationTarget:
    """Return the cheapest sequences of a generation with equal weights, for every copy."""
    starts = rolled.cost.shape[2]
    dimensions = latents.shape[2]
    cost = rolled.cost.flatten(1)
    best = cost.argsort(dim=1, stable=True)[:, :count]
    latent = (best // starts)[..., None]
    index = latent.expand(-1, -1, dimensions)
    source = latents.gather(1, index)
    actions = rolled.actions.flatten(1, 2)
    sequences = gather_sequences(actions, best)
    sequences = replace_last_with_given(task, sequences, cost.amin(1))
    sequences = trim_padding(sequences)
    weight = torch.full(
        best.shape,
        -1.0 / best.shape[1],
        device=task.device,
    )
    return (
        task.repeat_for_copies(source),
        task.repeat_for_copies(sequences)[:, :, None],
        task.repeat_for_copies(weight)[..., None],
    )


def gather_sequences(
    sequences: Int[Tensor, "B C T"], index: Int[Tensor, "B M"]
) -> Int[Tensor, "B M T"]:
    """Return some sequences of each instance."""
    steps = sequences.shape[2]
    index = index[..., None]
    index = index.expand(-1, -1, steps)
    return sequences.gather(1, index)


def elite_target(
    task: Task, latent: Float[Tensor, "B 1 Z"], elite_set: EliteSet
) -> ImitationTarget:
    """Return all plans of a set with equal weights under one latent, for every copy.

    Gaps of the set have weight 0.
    """
    is_plan = elite_set.cost.isfinite()
    weight = -is_plan.float() / is_plan.sum(1, keepdim=True)
    actions = trim_padding(elite_set.actions)
    return (
        task.repeat_for_copies(latent),
        task.repeat_for_copies(actions)[:, None],
        task.repeat_for_copies(weight)[:, None],
    )


def replace_last_with_given(
    task: Task, sequences: Int[Tensor, "B M T"], least: Float[Tensor, "B"]
) -> Int[Tensor, "B M T"]:
    """Replace the last sequence by a plan that was given, if nothing as good was found since.

    Other instances of the batch keep theirs, so that an instance learns the same in any batch.
    """
    if not has_learnable_plan(task):
        return sequences
    account = task.account
    assert account.best is not None
    given = torch.tensor(account.given, device=task.device)
    leads = given & (account.best < least)
    last = torch.where(
        leads[:, None],
        task.incumbents,
        sequences[:, -1],
    )
    return torch.cat([sequences[:, :-1], last[:, None]], 1)


def has_learnable_plan(task: Task) -> bool:
    """Return whether a plan came from outside the search, and the policy learns from such plans."""
    return any(task.account.given) and task.domain.search.learns_from_given_plans


def trim_padding(sequences: Int[Tensor, "B M T"]) -> Int[Tensor, "B M t"]:
    """Drop the steps at the depot after all sequences have ended: they are forced.

    In job shops these are the steps for which only the first job is left. On a GPU nothing is
    dropped, because the host would wait for the length.
    """
    if sequences.device.type != "cpu":
        return sequences
    moves = (sequences != 0).flatten(0, 1)
    moving = moves.any(0).nonzero()
    if not len(moving):
        return sequences
    last_move = int(moving[-1])
    length = last_move + 2
    return sequences[..., :length]
