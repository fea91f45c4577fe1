"""CMA-ES that learns, and works on the best plan besides: parts of it are built anew, and now and then a beam is sent.

Generations find good plans and teach the tables of the instance what these have in common. What keeps them from being
better still are single decisions, which the next generation hardly ever gets right all at once. A beam tries other
decisions of the best plans one by one, and rebuilding plans some neighbourhood of the best one again (docs/search.md).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline import noise
from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.search.elite import CMAESElite, Guided
from rhumbline.search.rebuild import beginnings
from rhumbline.search.sgbs import Beam, begun, deepened
from rhumbline.search.strategy import chosen_temperature
from rhumbline.search.task import Task

ABREAST, BEAM = 5, 8  # on a CPU
SAMPLES = 16  # of each neighbourhood; on a CPU they are a tile, which lists the same few nodes
APART = 0x9E3779B9  # from the noise of decisions


@dataclass(frozen=True)
class Refined:
    """State: what has been learnt, the beam under way, and generations since the last."""

    guided: Guided
    beam: Beam | None = None
    since: int = 0


@dataclass(frozen=True)
class CMAESRefine:
    """`CMAESElite`, and after each generation some neighbourhoods of the best plan are planned again."""

    rebuilt: float = 2.0  # plans of which a part is new, for each whole one of a generation
    abreast: int | None = None  # neighbourhoods of the same plan, before the best one is taken. None: 5, all on a GPU
    beam: int | None = None  # generations between two beams; 0 is never. None: 8, never on a GPU
    width: int = 4  # nodes in the beam
    branch: int = 4  # actions of each node, the one already known included
    elite: int = 8  # from here on as in `CMAESElite`
    rate: float | None = None
    components: int = 3
    population: int = 16
    sigma: float = 1.0
    temperature: float | None = None
    starts: float | None = None

    def __post_init__(self) -> None:
        abreast, beam = (1 if x is None else x for x in (self.abreast, self.beam))
        if not self.rebuilt >= 0.0 or abreast < 1 or beam < 0 or self.width < 1 or self.branch < 2:
            least = "rebuilt and beam of at least 0, width and abreast of at least 1 and a branch of at least 2"
            raise InputError(f"cmaes-refine needs {least}")
        _ = self.learner  # which refuses other wrong settings

    @property
    def learner(self) -> CMAESElite:
        """What makes the generations."""
        return CMAESElite(
            self.elite, self.rate, self.components, self.population, self.sigma, self.temperature, self.starts
        )

    @property
    def rehearsal(self) -> "tuple[CMAESRefine, int]":
        """With the first beam, if any, after one generation; attempts for that, its parts and some of the beam."""
        return replace(self, beam=self.beam and 1), math.ceil(self.population * (2 + self.rebuilt))

    def usual_beam(self, task: Task) -> int:
        """Generations between two beams.

        A beam is a long row of small steps: what a GPU does in the meantime finds as much (docs/search.md).
        """
        return self.beam if self.beam is not None else 0 if task.device.type == "cuda" else BEAM

    def init(self, task: Task) -> Refined:
        """Nothing learnt yet, and no beam."""
        return Refined(self.learner.init(task))

    def step(self, task: Task, state: Refined) -> tuple[Refined, Float[Tensor, "B K Z"], Rollouts]:
        """One depth of the beam, or one generation and what it leads to."""
        deeper = deepened(task, state.beam, self.branch) if state.beam else None
        if deeper:
            return replace(state, beam=deeper[0]), deeper[1], deeper[2]
        guided, latents, rolled = self.learner.step(task, state.guided)
        memory, latent = self.learner.memory(task, guided), best_latent(latents, rolled)
        self.rebuild(task, latent, rolled.cost[0].numel(), memory)
        every, since = self.usual_beam(task), 0 if state.beam else state.since
        if not every or since + 1 < every:
            return Refined(guided, None, since + 1), latents, rolled
        beam = begun(task, rolled.map(task.spread), task.spread(latent), memory, self.width)
        return Refined(guided, beam), latents, rolled

    def rebuild(self, task: Task, latent: Float[Tensor, "B 1 Z"], made: int, memory: Any) -> None:
        """Neighbourhoods of the best plans, several times each; what some have improved the next ones build upon."""
        temperature = chosen_temperature(task, self.learner.search_of(task).temperature)
        samples = SAMPLES if temperature else 1  # without chance they would all be the same
        ways = round(made * self.rebuilt / samples)
        if not ways:
            return
        tried = torch.tensor([task.tried], device=task.device)
        luck = noise.decoding(task.seed ^ APART, task.batch.key, tried, ways, 2)[:, 0]
        for some in luck.split(self.usual_abreast(task, ways), dim=1):
            order = some[..., 1:].argsort(stable=True, dim=1)  # those of about one size share a GPU's tile
            plans = task.spread(task.incumbents).long()
            given = beginnings(task.problem.name, task.batch, plans, some.gather(1, order.expand_as(some)))
            task.complete(task.spread(latent), given, memory, temperature, samples)

    def usual_abreast(self, task: Task, ways: int) -> int:
        """Neighbourhoods of one plan at a time: few find what others have made of it, many fill a GPU."""
        return self.abreast or (ways if task.device.type == "cuda" else ABREAST)


def best_latent(latents: Float[Tensor, "B K Z"], rolled: Rollouts) -> Float[Tensor, "B 1 Z"]:
    """The latent of the cheapest rollout."""
    best = rolled.cost.amin(2).argmin(1)
    return latents.gather(1, best[:, None, None].expand(-1, -1, latents.shape[2]))
