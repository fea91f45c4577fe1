"""Search the latent space by CMA-ES, with several components per instance (Chalumeau et al. 2023).

Instances do not influence one another: each has components of its own.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.noise import box_muller
from rhumbline.search import cma_es
from rhumbline.search.strategies.start_bandit import StartBandit
from rhumbline.search.strategy import (
    Distributions,
    Needs,
    Step,
    Strategy,
    check_settings,
    default_start_share,
    is_time_critical,
    temperature_or_default,
)
from rhumbline.search.task import Task


@dataclass(frozen=True)
class CMAESState:
    """The components of every instance, [B, C] on the device, and the number of steps made."""

    components: cma_es.State
    bandit: StartBandit
    generation: int = 0


@dataclass(frozen=True)
class StartChoice:
    """The starts from which the latents of a generation are tried."""

    starts: Int[Tensor, "B S"] | None = None  # None: all of them
    index: Int[Tensor, "B S"] | None = None  # where they stand among all starts
    is_recorded: bool = True  # False: every generation tries all starts, so the bandit is idle


@dataclass(frozen=True)
class Proposal:
    """The latents of one generation, and how they are tried."""

    samples: Float[Tensor, "B c P Z"]  # by component
    temperature: float
    choice: StartChoice
    memory: Any = None  # the tables to decode from; None: those of the task

    @property
    def latents(self) -> Float[Tensor, "B K Z"]:
        """The latents of all components."""
        return self.samples.flatten(1, 2)

    @property
    def arguments(self) -> tuple[Tensor, float, Tensor | None, Any]:
        """The arguments of `Task.rollout`."""
        return self.latents, self.temperature, self.choice.starts, self.memory


@dataclass(frozen=True)
class CMAES(Strategy[CMAESState]):
    """Components take turns; each generation tries `population` latents of one of them.

    The published search is `cmaes-published`: it has no `parallel`, `restart` and `top`, and tries
    all starts. research/notebooks/experiments.md measures what each of them gains.
    """

    needs: ClassVar[Needs] = Needs(latent_space=True)

    components: int = 3  # independent distributions, which begin at different centroids
    population: int = 16  # latents of a generation
    sigma: float = 1.0  # half the width of the latent box: the first generations look beyond it
    temperature: float | None = None  # of the sampling; None: `default_temperature`
    parallel: bool = False  # a generation of all components at every step: larger batches
    restart: float = 0.0  # a component narrower than this restarts at another centroid; 0: never
    top: int = 1  # a latent is ranked by the mean over this many of its best starts
    # The share of starts that later generations try. None: `default_start_count`.
    starts: float | None = None
    parents: int | None = None  # the best latents of a generation, which move it; None: half of it

    def __post_init__(self) -> None:
        check_settings(self.population, self.temperature)
        is_too_small = self.components < 1 or self.population < 2
        if is_too_small or not self.sigma > 0:
            least = "components of at least 1, a population of at least 2 and a sigma above 0"
            raise InputError(f"cmaes needs {least}")
        if self.parents is not None and not 1 <= self.parents <= self.population:
            raise InputError(f"parents is {self.parents}; expected 1 to {self.population}")
        is_share = self.starts is None or 0.0 < self.starts <= 1.0
        is_restart = self.restart >= 0.0
        if not is_share or self.top < 1 or not is_restart:
            least = "starts above 0 up to 1, a top of at least 1 and a restart of at least 0"
            raise InputError(f"cmaes needs {least}")

    def init(self, task: Task) -> CMAESState:
        """Place the components at the centroids of the latent box."""
        starts = task.starts.shape[1]
        means = cma_es.centroids(self.components, task.policy.space.size)
        means = means.to(task.device, torch.float32)
        means = means.expand(task.count, -1, -1)
        return CMAESState(
            components=cma_es.initial_state(means.contiguous(), self.sigma),
            bandit=StartBandit.make(task.count, starts, task.device),
        )

    def step(self, task: Task, state: CMAESState) -> Step:
        """Try one generation of the component whose turn it is, or of all with `parallel`."""
        proposal = self.propose(task, state)
        rolled = task.rollout(*proposal.arguments)
        following = self.learn(state, proposal, rolled)
        return Step(following, proposal.latents, rolled)

    def propose(self, task: Task, state: CMAESState, memory: Any = None) -> Proposal:
        """Return the latents of the next generation.

        `memory` replaces the tables of the task if it is given.
        """
        components = state.components[:, self.select_turn(state)]
        width = components.mean.shape[1]
        count = width * self.population
        noise = box_muller(task.uniforms(count))
        samples = cma_es.ask(components, noise.unflatten(1, (width, -1)))
        return Proposal(
            samples=samples,
            temperature=temperature_or_default(task, self.temperature),
            choice=self.choose_starts(task, state.bandit, count),
            memory=memory,
        )

    def learn(self, state: CMAESState, proposal: Proposal, rolled: Rollouts) -> CMAESState:
        """Return the state after a generation was tried."""
        turn = self.select_turn(state)
        samples = proposal.samples
        fitness = self.fitness(rolled).unflatten(1, samples.shape[1:3])
        updated = self.update(state, state.components[:, turn], samples, fitness)
        choice = proposal.choice
        bandit = state.bandit
        if choice.is_recorded:
            bandit = bandit.record(choice.index, rolled.cost.amin(1))
        return CMAESState(
            replace_components(state.components, turn, updated),
            bandit,
            state.generation + 1,
        )

    def distributions(self, state: CMAESState) -> Distributions:
        """Return the components."""
        components = state.components
        return Distributions(components.mean, components.sigma, components.covariance)

    def select_turn(self, state: CMAESState) -> slice:
        """Return the components of the next generation."""
        if self.parallel:
            return slice(None)
        first = state.generation % self.components
        return slice(first, first + 1)

    def update(
        self,
        state: CMAESState,
        components: cma_es.State,
        samples: Float[Tensor, "B c P Z"],
        fitness: Float[Tensor, "B c P"],
    ) -> cma_es.State:
        """Return some components after a generation; converged ones restart if that is set."""
        dimensions = samples.shape[3]
        parents = self.parents or max(1, self.population // 2)
        constants = cma_es.constants(dimensions, parents)
        turns = 1 if self.parallel else self.components
        updated = cma_es.tell(
            components,
            samples,
            fitness,
            constants,
            generation=state.generation // turns,
        )
        if self.restart:
            return self.restart_narrow(updated, state.generation)
        return updated

    def choose_starts(self, task: Task, bandit: StartBandit, latents: int) -> StartChoice:
        """Return the most promising starts, once all starts were tried.

        Where time is critical, even the first generation tries only a share of the starts.
        """
        available = bandit.times.shape[1]
        count = self.start_count(task, available, latents)
        if count == available:
            return StartChoice(is_recorded=False)
        was_tried = bandit.times.any()
        if not (is_time_critical(task) or was_tried):
            return StartChoice()
        index = bandit.best(count)
        original_starts = task.starts[:: task.copies]
        starts = original_starts.gather(1, index)
        return StartChoice(starts, index)

    def start_count(self, task: Task, available: int, latents: int) -> int:
        """Return how many starts each latent is tried from."""
        if self.starts is None:
            return self.default_start_count(task, latents)
        wanted = round(self.starts * available)
        return max(1, wanted)

    def default_start_count(self, task: Task, latents: int) -> int:
        """Return how many starts are worth trying; where time is critical, what the time allows.

        It is at least one.
        """
        available = task.starts.shape[1]
        worthwhile = round(default_start_share(task) * available)
        count = max(1, worthwhile)
        if not is_time_critical(task):
            return count
        max_share = 1 / 8  # of the time left, for one generation of a large instance on a CPU
        affordable = task.rollouts_within(max_share)
        rollouts = min(count * latents, affordable)
        per_latent = int(rollouts // latents)
        return max(1, per_latent)

    def fitness(self, rolled: Rollouts) -> Float[Tensor, "B K"]:
        """Return the cost by which a latent is ranked."""
        cost = rolled.cost
        if self.top == 1:
            return cost.amin(2)
        available = cost.shape[2]
        count = min(self.top, available)
        best = cost.topk(count, dim=2, largest=False)
        return best.values.mean(2)

    def restart_narrow(self, components: cma_es.State, generation: int) -> cma_es.State:
        """Replace components that have converged by new ones."""
        mean = components.mean
        width = components.scale.amax(-1)
        is_narrow = components.sigma * width < self.restart
        count = 16  # points of the latent box at which components restart
        centroids = cma_es.centroids(count, mean.shape[-1])
        centroid = centroids.to(mean)[generation % count]
        means = centroid.expand_as(mean).contiguous()
        fresh = cma_es.initial_state(means, self.sigma)
        return select_components(is_narrow, fresh, components)


def select_components(
    which: Bool[Tensor, "B C"], yes: cma_es.State, no: cma_es.State
) -> cma_es.State:
    """Take each component from one state or the other."""
    shape = which.shape
    selected = dict[str, Tensor]()
    for name, value in vars(yes).items():
        other = getattr(no, name)
        trailing = [1] * (value.ndim - 2)
        mask = which.view(*shape, *trailing)
        selected[name] = torch.where(mask, value, other)
    return cma_es.State(**selected)


def replace_components(components: cma_es.State, turn: slice, some: cma_es.State) -> cma_es.State:
    """Return all components with those of `turn` replaced."""
    changed = dict[str, Tensor]()
    for name, value in vars(components).items():
        copy = value.clone()
        copy[:, turn] = getattr(some, name)
        changed[name] = copy
    return replace(components, **changed)
