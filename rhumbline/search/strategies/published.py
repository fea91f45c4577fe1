"""The published search, with its settings by problem and size, for reproductions.

docs/internals/method.md says where the defaults of `cmaes` differ, and why.
"""

from dataclasses import dataclass
from typing import ClassVar

from rhumbline.search.strategies.cmaes import CMAES, CMAESState
from rhumbline.search.strategy import Distributions, Needs, Step, Strategy
from rhumbline.search.task import Task


@dataclass(frozen=True)
class CMAESPublished(Strategy[CMAESState]):
    """CMA-ES exactly as Chalumeau et al. (2023) use it; it has no settings."""

    needs: ClassVar[Needs] = CMAES.needs

    def search(self, task: Task) -> CMAES:
        """Return CMA-ES with the settings for the task's problem and size."""
        size = task.problem.item_count(task.instances[0])
        table = task.domain.search.published
        row = next(row for row in table if size <= row.max_size)
        return CMAES(
            components=row.components,
            parents=row.parents,
            temperature=row.temperature,
            starts=1.0,
        )

    def init(self, task: Task) -> CMAESState:
        """Place the components at the centroids of the latent box."""
        search = self.search(task)
        return search.init(task)

    def step(self, task: Task, state: CMAESState) -> Step:
        """Try one generation of the component whose turn it is."""
        search = self.search(task)
        return search.step(task, state)

    def distributions(self, state: CMAESState) -> Distributions:
        """Return the components."""
        return CMAES().distributions(state)
