"""CMA-ES that learns, and works on its best plans: parts of them are built anew, and now and then a
beam is sent.

Generations find good plans, and the tables of the instance learn what these have in common. What
keeps them from being better still are single decisions, which the next generation hardly ever gets
right all at once. Rebuilding plans some neighbourhood of a good one again, and a beam tries other
decisions one by one. The best different plans are kept, each is improved by itself, and the tables
learn from all of them besides: one alone soon has no neighbourhood that could be better
(docs/experiments.md). Routes of vehicles that were built for different plans are put together
(`merge`).
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from rhumbline import noise
from rhumbline.decoding import Prefixes, Rollouts
from rhumbline.decoding.neighbourhoods import neighbourhood_prefixes
from rhumbline.errors import InputError
from rhumbline.policies.attention.encoder import TRAINING_NODES
from rhumbline.search.plan_sets.elite import (
    EliteSet,
    cheapest_distinct,
    cheapest_rollouts,
    concatenate_sets,
    incumbent_set,
)
from rhumbline.search.recombine.routes import (
    PARTITION_BUDGETS,
    RoutePool,
    extract_routes,
    partition_engine_for,
    promising_plans,
    recombine_routes,
)
from rhumbline.search.strategies.cmaes_elite import CMAESElite, CMAESEliteState, elite_target
from rhumbline.search.strategies.sgbs import Beam, deepen_beam, start_beam
from rhumbline.search.strategy import is_time_critical, temperature_or_default
from rhumbline.search.task import Task

ABREAST, BEAM = 5, 8  # on a CPU
REBUILT, HURRIED = 2.0, 0.1  # parts for each whole rollout, and for each of it and each node
WARMTH = (
    (500.0, 0.5),
    (math.inf, 0.1),
)  # temperature of parts of large plans on a CPU, up to so many nodes
USUAL = 200  # nodes
# attempts of a whole search for each plan that is worked on: with fewer, the best alone gets
# further
DESCENT = 150
APIECE = 25  # attempts for each merge, on average at least
BRIEFLY = 0.05  # seconds
SEEN = 2  # routes in stock for each plan of a generation, and each of its parts, that is looked at
FEWEST, NARROWEST = 512, 16  # routes in stock, and places of the beam that merges them
ROUND = 64  # routes: a GPU's kernels are compiled anew for odd numbers
SAMPLES = 16  # of each neighbourhood; on a CPU they are a tile, which lists the same few nodes
APART, TURNS = 0x9E3779B9, 0x85EBCA6B  # from the noise of decisions, and from one another


@dataclass(frozen=True)
class CMAESRefineState:
    """State: what has been learnt, the best plans, the beam under way, generations since the
    last, and the routes.
    """

    guided: CMAESEliteState
    elite_set: EliteSet | None = None
    beam: Beam | None = None
    since: int = 0
    stock: RoutePool | None = None
    merges: int = 0  # that were due so far


@dataclass(frozen=True)
class CMAESRefine:
    """`CMAESElite`, and after each generation some neighbourhoods of the best plans are planned
    again.
    """

    rebuilt: float | None = (
        None  # plans of which a part is new, for each whole one, about. None: `usual_rebuilt`
    )
    plans: int | None = (
        None  # that are worked on, of the elite. None: as many as the budget has room for
    )
    abreast: int | None = (
        None  # neighbourhoods at a time, one of each plan at least. None: 5, all on a GPU
    )
    beam: int | None = None  # generations between two beams; 0 is never. None: `usual_beam`
    stock: int | None = (
        # vehicles: routes of good plans kept, to be put together; 0: never. None: `usual_stock`
        None
    )
    width: int = 4  # nodes in the beam
    branch: int = 4  # actions of each node, the one already known included
    elite: int = (
        8  # the best of all so far, which are learnt from too; from here on as in `CMAESElite`
    )
    rate: float | None = None
    components: int = 3
    population: int = 16
    sigma: float = 1.0
    temperature: float | None = None
    starts: float | None = None

    def __post_init__(self) -> None:
        rebuilt, plans, abreast, beam, stock = (
            1 if x is None else x
            for x in (self.rebuilt, self.plans, self.abreast, self.beam, self.stock)
        )
        if (
            not rebuilt >= 0.0
            or min(plans, abreast, self.width) < 1
            or min(beam, stock) < 0
            or self.branch < 2
        ):
            least = "rebuilt, beam and stock of at least 0, plans, width and abreast of at least 1"
            raise InputError(f"cmaes-refine needs {least} and a branch of at least 2")
        if self.elite and plans > self.elite:
            raise InputError(
                f"cmaes-refine works on plans of its elite: plans={plans} needs elite={plans} or more"
            )
        _ = self.learner  # which refuses other wrong settings

    @property
    def learner(self) -> CMAESElite:
        """What makes the generations."""
        return CMAESElite(
            self.elite,
            self.rate,
            self.components,
            self.population,
            self.sigma,
            self.temperature,
            self.starts,
        )

    @property
    def rehearsal(self) -> "tuple[CMAESRefine, int]":
        """With the first beam, if any, after one generation; attempts for that, its parts and
        some of the beam.
        """
        rebuilt = REBUILT if self.rebuilt is None else self.rebuilt
        return replace(self, beam=self.beam and 1), math.ceil(self.population * (2 + rebuilt))

    def default_beam(self, task: Task) -> int:
        """Generations between two beams.

        A beam is a long row of small steps: what a GPU does in the meantime finds as much
        (docs/experiments.md), and in a large instance it would never come to its end.
        """
        if self.beam is not None:
            return self.beam
        return 0 if task.device.type == "cuda" or is_time_critical(task) else BEAM

    def init(self, task: Task) -> CMAESRefineState:
        """Nothing learnt yet, and no beam."""
        if task.domain.neighbourhoods is None:
            why = f"there are no neighbourhoods in plans of {task.problem.name} that could be built anew"
            raise InputError(f"{why}; use --search sampling-elite, cmaes-elite, sgbs or sampling")
        return CMAESRefineState(self.learner.init(task))

    def step(
        self, task: Task, state: CMAESRefineState
    ) -> tuple[CMAESRefineState, Float[Tensor, "B K Z"], Rollouts]:
        """One depth of the beam, or one generation and what it leads to."""
        deeper = deepen_beam(task, state.beam, self.branch) if state.beam else None
        if deeper:
            return replace(state, beam=deeper[0]), deeper[1], deeper[2]
        guided, latents, rolled = self.learner.step(task, state.guided)
        memory = self.learner.memory(task, guided)
        latent = best_latent(latents, rolled)
        update_elite = self.update_elite(task, state.elite_set, rolled)
        elite_set, parts = self.rebuild(task, latent, rolled.cost[0].numel(), memory, update_elite)
        stock, elite_set, merges = self.update_route_pool(task, state, elite_set, rolled, parts)
        if self.learner.learns(
            task
        ):  # at the rate of the generation's own lesson, which alone is counted
            self.learner.learning.update(
                task, guided.adaptation, [elite_target(task, latent, random_views(task, elite_set))]
            )
        every = self.default_beam(task)
        since = 0 if state.beam else state.since
        if not every or since + 1 < every:
            return (
                CMAESRefineState(guided, elite_set, None, since + 1, stock, merges),
                latents,
                rolled,
            )
        beam = start_beam(
            task,
            rolled.map(task.repeat_for_copies),
            task.repeat_for_copies(latent),
            self.learner.memory(task, guided),
            self.width,
        )
        return CMAESRefineState(guided, elite_set, beam, 0, stock, merges), latents, rolled

    def prepare(self, task: Task) -> None:
        """Before the clock runs: what merges routes is compiled, once on a machine."""
        if self.pools_routes(task) and partition_engine_for(task) == "compiled":
            from rhumbline.kernels.numba.local_search import launch as local_moves

            for name in ("prices", "partition"):
                local_moves.load_kernel(name)

    def conclude(self, task: Task, state: CMAESRefineState) -> None:
        """When the budget is spent: what the routes of all good plans make together, but for
        those of a broken step.
        """
        late = (
            task.account.deadline is not None
            and time.monotonic() > task.account.deadline + finish_allowance(task)
        )
        if state.stock is not None and not late:
            most = self.default_route_pool(task)
            stock = state.stock.joined(
                extract_routes(task.original_batch, incumbent_set(task), most), most
            )
            self.merge_routes(task, stock, finish_allowance(task))

    def pools_routes(self, task: Task) -> bool:
        """Whether plans consist of routes that could serve in others."""
        return self.stock != 0 and task.domain.recombines_routes

    def default_route_pool(self, task: Task) -> int:
        """How many routes are kept: as many as a beam makes use of, as far as budget and memory
        have room for them.
        """
        if self.stock is not None:
            return self.stock
        means = PARTITION_BUDGETS[partition_engine_for(task)]
        max_elements = means.max_elements // (task.count * task.problem.action_count(task.batch))
        return max(
            FEWEST,
            min(
                means.stock, max_elements, round(means.routes_per_attempt * expected_attempts(task))
            )
            // ROUND
            * ROUND,
        )

    def seen(self, task: Task) -> int:
        """Plans of a generation, and as many of its parts, whose routes are looked at."""
        return -(-self.default_route_pool(task) // SEEN)

    def update_route_pool(
        self,
        task: Task,
        state: CMAESRefineState,
        elite_set: EliteSet,
        rolled: Rollouts,
        parts: Sequence[EliteSet],
    ) -> tuple[RoutePool | None, EliteSet, int]:
        """The routes of new plans come to the others, and now and then they are put together; how
        often that was due.

        The stock, and the best plans, among which may be one that was put together. What is due at
        the very end is left to `conclude`.
        """
        if not self.pools_routes(task):
            return None, elite_set, 0
        most = self.default_route_pool(task)
        merges = PARTITION_BUDGETS[partition_engine_for(task)].merges
        plans = concatenate_sets([elite_set, cheapest_rollouts(rolled, self.seen(task)), *parts])
        plans = (
            plans
            if state.stock is None or task.device.type == "cuda"
            else promising_plans(plans, state.stock)
        )
        stock = extract_routes(task.original_batch, plans, most)
        stock = stock if state.stock is None else state.stock.joined(stock, most)
        due = min(int(task.spent_share * merges), merges - 1, task.account.attempts // APIECE)
        if due > state.merges:
            elite_set = elite_set.joined(self.merge_routes(task, stock, 0.0), self.elite)
        return stock, elite_set, due

    def merge_routes(self, task: Task, stock: RoutePool, beyond: float) -> EliteSet:
        """A plan of the routes in stock, which costs no attempt; for as many instances as there is
        time for.

        It may go on so many seconds beyond the time limit.
        """
        engine = partition_engine_for(task)
        deadline = task.account.deadline
        limit = math.inf if deadline is None else deadline + beyond
        most = self.default_route_pool(task) // PARTITION_BUDGETS[engine].routes_per_place
        breadth = max(
            NARROWEST,
            min(most, most * TRAINING_NODES // (task.problem.action_count(task.batch) - 1)),
        )
        child = recombine_routes(
            task.original_batch, stock, breadth, lambda: time.monotonic() > limit, engine
        )
        known = incumbent_set(task)
        child = EliteSet(child.cost.to(known.cost.dtype), child.actions.to(known.actions.dtype))
        task.account.enter(Rollouts(child.cost[:, None], child.actions[:, None]), 0)
        return child

    def update_elite(self, task: Task, elite_set: EliteSet | None, rolled: Rollouts) -> EliteSet:
        """The best different plans so far: a generation's, what a beam has found and what was
        given among them.
        """
        found = cheapest_rollouts(rolled, self.elite).joined(incumbent_set(task), self.elite)
        return found if elite_set is None else elite_set.joined(found, self.elite)

    def rebuild(
        self,
        task: Task,
        latent: Float[Tensor, "B 1 Z"],
        made: int,
        memory: Any,
        elite_set: EliteSet,
    ) -> tuple[EliteSet, list[EliteSet]]:
        """Neighbourhoods of the plans, several times each; what some have improved the next ones
        build upon.

        The plans and, where routes are merged, the best of all that were built on the way.
        """
        temperature = self.part_temperature(task)
        samples = SAMPLES if temperature else 1  # without chance they would all be the same
        ways = round(made * self.default_parts_per_rollout(task) / samples)
        parts = list[EliteSet]()
        if not ways:
            return elite_set, parts
        plans = min(ways, elite_set.cost.shape[1], self.default_plans(task))
        rest = elite_set[:, plans:]  # the rest waits
        elite_set = elite_set[:, :plans]
        each = round(ways / plans)
        luck = noise.decoding_uniforms(
            task.seed ^ APART, task.batch.key, latents_tried(task), each * plans, 2
        )[:, 0]
        turns = luck.unflatten(1, (each, plans)).split(
            -(-self.neighbourhoods_at_once(task, ways) // plans), dim=1
        )
        for some in turns:
            cost, actions = task.complete(
                task.repeat_for_copies(latent),
                cut_neighbourhoods(task, elite_set, some),
                memory,
                temperature,
                samples,
            )
            cost, actions = (group_by_plan(task, x, *some.shape[1:3]) for x in (cost, actions))
            elite_set = elite_set.improved_by(cost, actions)
            if self.pools_routes(task):
                parts.append(
                    cheapest_distinct(
                        cost.flatten(1),
                        actions.flatten(1, 2),
                        max(1, self.seen(task) // len(turns)),
                    )
                )
        return elite_set.joined(rest, self.elite), parts  # some may have become the same

    def part_temperature(self, task: Task) -> float:
        """The temperature of parts: that of wholes or, where nothing is learnt on a CPU, higher, as
        for less to decide.

        A part is a few dozen decisions, however large the instance; but far beyond the sizes of
        training a policy is less sure of each.
        """
        wanted = self.learner.search_for_task(task).temperature
        return (
            temperature_or_default(task, wanted, WARMTH)
            if is_time_critical(task)
            else temperature_or_default(task, wanted)
        )

    def default_parts_per_rollout(self, task: Task) -> float:
        """Parts for each whole rollout: many where it is wholes that take the time."""
        if self.rebuilt is not None:
            return self.rebuilt
        return (
            HURRIED * task.problem.action_count(task.batch) if is_time_critical(task) else REBUILT
        )

    def default_plans(self, task: Task) -> int:
        """How many plans are worked on, as far as the budget spent so far tells what there will be.

        Each plan needs its share until no neighbourhood of it can be bettered any more; only then
        others pay. A large one has more of them, and where many parts are built, these are most of
        the attempts.
        """
        descent = (
            DESCENT * task.problem.action_count(task.batch) / USUAL
            if is_time_critical(task)
            else DESCENT
        )
        return self.plans or max(1, round(expected_attempts(task) / descent))

    def neighbourhoods_at_once(self, task: Task, ways: int) -> int:
        """Neighbourhoods at a time: few find what others have made of a plan, many fill a GPU."""
        return self.abreast or (ways if task.device.type == "cuda" else ABREAST)


def expected_attempts(task: Task) -> float:
    """Attempts of the whole search, as far as the budget spent so far tells."""
    return task.account.attempts / (task.spent_share or 1.0)


def finish_allowance(task: Task) -> float:
    """Seconds that concluding may take beyond the time limit: a hundredth of it, or enough for
    one instance.
    """
    return max(BRIEFLY, 0.01 * ((task.account.deadline or task.start_time) - task.start_time))


def latents_tried(task: Task) -> Int[Tensor, "1"]:
    """Of latents tried so far, for noise; filled on the device: to copy it there would make the
    host wait.
    """
    return torch.full((1,), task.tried_count, device=task.device)


def best_latent(latents: Float[Tensor, "B K Z"], rolled: Rollouts) -> Float[Tensor, "B 1 Z"]:
    """The latent of the cheapest rollout."""
    best = rolled.cost.amin(2).argmin(1)
    return latents.gather(1, best[:, None, None].expand(-1, -1, latents.shape[2]))


def random_views(task: Task, elite_set: EliteSet) -> EliteSet:
    """Tours from other cities and in either direction: learnt from anew each time, they teach what
    holds anywhere.

    Routes stay in the order in which they were built: that order is something a policy for vehicles
    knows.
    """
    if task.problem.name != "tsp":
        return elite_set
    luck = noise.decoding_uniforms(
        task.seed ^ TURNS,
        task.batch.key[:: task.copies],
        latents_tried(task),
        elite_set.cost.shape[1],
        2,
    )[:, 0]
    views = task.problem.views(elite_set.actions.flatten(0, 1), luck.flatten(0, 1)[:, None])
    return EliteSet(elite_set.cost, views.view_as(elite_set.actions))


def cut_neighbourhoods(task: Task, elite_set: EliteSet, luck: Float[Tensor, "R A M 2"]) -> Prefixes:
    """Each plan cut in A ways, the first way of all plans first; those of about one size share a
    GPU's tile.
    """
    rows = luck.shape[0]
    plans = luck.shape[2]
    order = luck[..., 1:].argsort(stable=True, dim=1)
    luck = luck.gather(1, order.expand_as(luck)).transpose(1, 2).flatten(0, 1)
    xy = task.batch.xy.repeat_interleave(plans, 0)
    actions = task.repeat_for_copies(elite_set.actions).flatten(0, 1).long()
    make_prefixes = task.domain.require("neighbourhoods", "LNS")
    given = neighbourhood_prefixes(make_prefixes, xy, actions, luck)
    return given.map(lambda x: x.unflatten(0, (rows, plans)).transpose(1, 2).flatten(1, 2))


def group_by_plan(
    task: Task, x: Shaped[Tensor, "R C *rest"], ways: int, plans: int
) -> Shaped[Tensor, "B M c *rest"]:
    """What was made of each plan, by all copies and in all ways, several times each."""
    apart = x.unflatten(1, (ways, plans, -1)).unflatten(
        0, (task.count, task.copies)
    )  # [B, copies, A, M, samples]
    return apart.movedim(3, 1).flatten(2, 4)
