"""COMPASS's search: several CMA-ES components in the latent space, one independent set per
instance (spec 4.5).
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.noise import box_muller
from rhumbline.search import cma_es
from rhumbline.search.start_bandit import StartBandit
from rhumbline.search.strategy import (
    check_settings,
    default_start_share,
    is_time_critical,
    latent_dimensions,
    temperature_or_default,
)
from rhumbline.search.task import Task

HASTE = 1 / 8  # of the time left, for the rollouts of a generation of large instances on a CPU
SPARES = 16  # centroids at which converged components start anew


@dataclass(frozen=True)
class CMAESState:
    """States of all components, [B, C] on the device, and how many steps have passed in all."""

    components: cma_es.State
    arms: StartBandit
    generation: int = 0


@dataclass(frozen=True)
class CMAES:
    """Components take turns; each generation tries `population` latents of one of them.

    The last four settings are not part of the published search, which has `starts=1` everywhere;
    docs/experiments.md has what each of them is worth.
    """

    components: int = 3
    population: int = 16
    sigma: float = 1.0  # half the width of the latent box, so the first generations look beyond it
    temperature: float | None = None  # of the sampling; None: `default_temperature`
    parallel: bool = False  # a generation of all components at every step: larger batches
    restart: float = (
        0.0  # a component narrower than this starts anew at another centroid; 0 is never
    )
    top: int = 1  # latents are ranked by the mean over so many of their best starts
    starts: float | None = (
        None  # share of the best tried once all were (`tried`, `arms`); None: `usual_kept`
    )

    def __post_init__(self) -> None:
        check_settings(self.population, self.temperature)
        if self.components < 1 or self.population < 2 or not self.sigma > 0:
            raise InputError(
                "cmaes needs components of at least 1, a population of at least 2 and a sigma above 0"
            )
        if (
            not (self.starts is None or 0.0 < self.starts <= 1.0)
            or self.top < 1
            or not self.restart >= 0.0
        ):
            raise InputError(
                "cmaes needs starts above 0 up to 1, a top of at least 1 and a restart of at least 0"
            )

    def init(self, task: Task) -> CMAESState:
        """Components at the centroids of the latent box."""
        means = cma_es.centroids(self.components, latent_dimensions(task)).to(
            task.device, torch.float32
        )
        state = cma_es.initial_state(means.expand(task.count, -1, -1).contiguous(), self.sigma)
        return CMAESState(state, StartBandit.fresh(task.count, task.starts.shape[1], task.device))

    def step(
        self, task: Task, state: CMAESState, memory: Any = None
    ) -> tuple[CMAESState, Float[Tensor, "B K Z"], Rollouts]:
        """One generation of the component whose turn it is, or of all of them; with other
        tables, if given.
        """
        turn = (
            slice(None)
            if self.parallel
            else slice(at := state.generation % self.components, at + 1)
        )
        some = state.components[:, turn]
        past = state.generation // (1 if self.parallel else self.components)
        width = some.mean.shape[1]
        noise = box_muller(task.uniforms(width * self.population)).unflatten(1, (width, -1))
        latents = cma_es.ask(some, noise)  # [B, c, P, Z]
        arms, rolled = self.tried(task, state.arms, latents.flatten(1, 2), memory)
        c = cma_es.constants(latents.shape[3], max(1, self.population // 2))
        told = cma_es.tell(some, latents, self.fitness(rolled).unflatten(1, (width, -1)), c, past)
        told = self.restart_narrow(told, state.generation) if self.restart else told
        return (
            CMAESState(
                replace_components(state.components, turn, told), arms, state.generation + 1
            ),
            latents.flatten(1, 2),
            rolled,
        )

    def tried(
        self, task: Task, arms: StartBandit, latents: Float[Tensor, "B K Z"], memory: Any
    ) -> tuple[StartBandit, Rollouts]:
        """The latents from those starts with the best prospects, once all were tried: in a
        hurry, share by share.
        """
        temperature = temperature_or_default(task, self.temperature)
        count = arms.times.shape[1]
        kept = (
            self.default_start_count(task, len(latents[0]))
            if self.starts is None
            else max(1, round(self.starts * count))
        )
        if kept == count or not (is_time_critical(task) or arms.times.any()):
            rolled = task.rollout(latents, temperature, memory=memory)
            return (arms.seen(None, rolled.cost.amin(1)) if kept < count else arms), rolled
        index = arms.best(kept)
        rolled = task.rollout(
            latents, temperature, task.starts[:: task.copies].gather(1, index), memory
        )
        return arms.seen(index, rolled.cost.amin(1)), rolled

    def default_start_count(self, task: Task, latents: int) -> int:
        """How many starts are worth trying; in a hurry what a part of the time left is enough
        for, but one at least.
        """
        kept = max(1, round(default_start_share(task) * task.starts.shape[1]))
        if not is_time_critical(task):
            return kept
        return max(1, int(min(kept * latents, task.rollouts_within(HASTE)) // latents))

    def fitness(self, rolled: Rollouts) -> Float[Tensor, "B K"]:
        """The cost a latent is ranked by."""
        if self.top == 1:
            return rolled.cost.amin(2)
        return rolled.cost.topk(
            min(self.top, rolled.cost.shape[2]), dim=2, largest=False
        ).values.mean(2)

    def restart_narrow(self, told: cma_es.State, generation: int) -> cma_es.State:
        """Components that are still wide, and new ones in the place of those that are not."""
        done = told.sigma * told.scale.amax(-1) < self.restart
        spares = cma_es.centroids(SPARES, told.mean.shape[-1]).to(told.mean)
        fresh = cma_es.initial_state(
            spares[generation % SPARES].expand_as(told.mean).contiguous(), self.sigma
        )
        return select_components(done, fresh, told)


def select_components(
    which: Bool[Tensor, "B C"], yes: cma_es.State, no: cma_es.State
) -> cma_es.State:
    """Component by component, one state or the other."""
    pairs = {name: (value, getattr(no, name)) for name, value in vars(yes).items()}
    return cma_es.State(
        **{
            n: torch.where(which.view(*which.shape, *[1] * (a.ndim - 2)), a, b)
            for n, (a, b) in pairs.items()
        }
    )


def replace_components(components: cma_es.State, turn: slice, some: cma_es.State) -> cma_es.State:
    """All components with some of them replaced."""
    changed: dict[str, Tensor] = {}
    for name, value in vars(components).items():
        changed[name] = value.clone()
        changed[name][:, turn] = getattr(some, name)
    return replace(components, **changed)
