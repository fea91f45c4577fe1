"""The paper's open question: search the latent space first, then adapt from the best latents
found.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.search.strategies.cmaes import CMAES, CMAESState
from rhumbline.search.strategies.eas import Adaptation, EASEmb, require_comparable_starts
from rhumbline.search.task import Task


@dataclass(frozen=True)
class CMAESEASState:
    """State: the search until `adaptation` begins, and the best latents it has seen."""

    search: CMAESState
    cost: Float[Tensor, "B L"]
    latents: Float[Tensor, "B L Z"]
    adaptation: Adaptation | None = None


@dataclass(frozen=True)
class CMAESEAS:
    """CMA-ES with the first part of the budget; then active search of the embeddings under the
    best latents.
    """

    share: float = 0.5  # of the budget, for the search
    kept: int = 8  # latents that take turns in the adaptation
    components: int = 3
    population: int = 16
    sigma: float = 1.0
    temperature: float | None = None  # of the search; the adaptation samples at 1
    passes: int = 8
    rate: float | None = None
    imitation: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0 or self.kept < 1:
            raise InputError("cmaes-eas needs a share from 0 to 1 and at least 1 kept latent")
        _ = self.search, self.learning  # which refuse wrong settings

    @property
    def search(self) -> CMAES:
        """The first phase, from all starts: `kept` compares what latents cost, which fewer
        starts would colour.
        """
        return CMAES(self.components, self.population, self.sigma, self.temperature, starts=1.0)

    @property
    def learning(self) -> EASEmb:
        """The second phase."""
        return EASEmb(self.passes, self.rate, self.imitation)

    def init(self, task: Task) -> CMAESEASState:
        """Nothing seen yet; without any search the adaptation would begin at the centre."""
        search = self.search.init(task)
        require_comparable_starts(
            task
        )  # else half of the budget would pass before anybody was told
        centre = task.policy.space.centre((task.count, 1), task.device)
        return CMAESEASState(
            search, torch.full(centre.shape[:2], torch.inf, device=task.device), centre
        )

    def step(
        self, task: Task, state: CMAESEASState
    ) -> tuple[CMAESEASState, Float[Tensor, "B K Z"], Rollouts]:
        """A generation, or an update."""
        if state.adaptation is None and task.spent_share < self.share:
            search, latents, rolled = self.search.step(task, state.search)
            return (
                CMAESEASState(search, *update_best_latents(state, latents, rolled, self.kept)),
                latents,
                rolled,
            )
        adaptation = state.adaptation or self.learning.init_from_latents(task, state.latents)
        adaptation, latents, rolled = self.learning.step(task, adaptation)
        return CMAESEASState(state.search, state.cost, state.latents, adaptation), latents, rolled


def update_best_latents(
    state: CMAESEASState, latents: Float[Tensor, "B K Z"], rolled: Rollouts, count: int
) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B L Z"]]:
    """The cheapest latents so far, best first."""
    cost, order = torch.cat([state.cost, rolled.cost.amin(2)], dim=1).sort(dim=1, stable=True)
    order = order[:, :count]
    everything = torch.cat([state.latents, latents.to(state.latents)], dim=1)
    return cost[:, :count], everything.gather(1, order[..., None].expand(-1, -1, latents.shape[2]))
