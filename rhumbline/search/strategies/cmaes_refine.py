"""CMA-ES that learns and refines its best plans, by large-neighbourhood search and by beam search.

After a few generations the best plans differ from better ones by a handful of decisions, which
sampling rarely gets right simultaneously. Large-neighbourhood search (LNS) frees a neighbourhood of
a good plan, which is a set of nearby nodes, and completes the rest of the plan several times. Each
completion is a sample of the neighbourhood. A beam tries other decisions one by one. The best
distinct plans form an elite: each is refined by itself, and the tables of the instance learn from
all of them. One plan alone soon has no neighbourhood left that improves it
(research/notebooks/experiments.md).

CVRP: routes of different plans are recombined by set partitioning over a route pool.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

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
    cheapest_rollouts,
    concatenate_sets,
    incumbent_set,
    select_distinct,
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
from rhumbline.search.strategy import (
    Distributions,
    Needs,
    Step,
    Strategy,
    WarmUp,
    is_time_critical,
    temperature_or_default,
)
from rhumbline.search.task import Task
from rhumbline.toml_config import former_names


@dataclass(frozen=True)
class RefineTuning:
    """Constants of the refinement, measured in research/notebooks/experiments.md."""

    neighbourhoods_at_once_cpu: int = 5
    generations_between_beams: int = 8  # on a CPU
    # The next two count samples of neighbourhoods for each whole rollout. Where time is critical,
    # the second one times the number of nodes replaces the first.
    parts_per_rollout: float = 2.0
    parts_per_rollout_and_node_when_late: float = 0.1
    # Temperatures of samples in large instances on a CPU, each up to a number of nodes.
    sample_temperatures_large: tuple[tuple[float, float], ...] = ((500.0, 0.5), (math.inf, 0.1))
    # A whole search refines one plan for each `attempts_per_plan` attempts, in instances of
    # `reference_nodes` nodes. With fewer attempts, refining the best plan alone gets further.
    reference_nodes: int = 200
    attempts_per_plan: int = 150
    # Recombinations of routes are at least this many attempts apart, on average.
    attempts_per_merge: int = 25
    min_finish_seconds: float = 0.05
    # The pool has this many routes for each plan, whole or sample, that a generation adds.
    routes_per_plan: int = 2
    min_route_pool: int = 512
    # The least width of the beam that recombines routes.
    min_beam_width: int = 16
    # The pool has a multiple of this many routes: a GPU compiles its kernels again for odd numbers.
    route_pool_multiple: int = 64
    # Samples of each neighbourhood. On a CPU they form a tile, which lists the same few nodes.
    samples_per_neighbourhood: int = 16
    # Streams of random numbers, distinct from those of decisions and from one another.
    neighbourhood_stream: int = 0x9E3779B9
    view_stream: int = 0x85EBCA6B


TUNING = RefineTuning()


@dataclass(frozen=True)
class CMAESRefineState:
    """The state of the learner, the best plans, the beam under way, and the route pool."""

    learner_state: CMAESEliteState
    elite_set: EliteSet | None = None
    beam: Beam | None = None
    # Generations since the last beam.
    since: int = 0
    route_pool: RoutePool | None = None
    # Recombinations of routes that were due so far.
    merges: int = 0


@dataclass(frozen=True)
class Generation:
    """One generation of the learner, and its best latent."""

    rolled: Rollouts
    # The latent of the cheapest rollout.
    latent: Float[Tensor, "B 1 Z"]
    learner_state: CMAESEliteState
    # The tables after the update of this generation.
    memory: Any


@former_names(rebuilt="parts_per_rollout", abreast="neighbourhoods_at_once", stock="route_pool")
@dataclass(frozen=True)
class CMAESRefine(Strategy[CMAESRefineState]):
    """`CMAESElite`, and after each generation LNS on the best plans."""

    needs: ClassVar[Needs] = Needs(latent_space=True, tables=True, neighbourhoods=True)

    # The approximate number of samples of neighbourhoods for each whole rollout. None:
    # `default_parts_per_rollout`.
    parts_per_rollout: float | None = None
    # The number of plans of the elite that are refined. None: `default_plans`.
    plans: int | None = None
    # Neighbourhoods that are sampled at once, at least one of each plan. None: 5; on a GPU, all.
    neighbourhoods_at_once: int | None = None
    # Generations between two beams. 0: no beams. None: `default_beam`.
    beam: int | None = None
    # CVRP: the number of routes in the pool. 0: no pool. None: `default_route_pool`.
    route_pool: int | None = None
    # The number of partial plans in the beam.
    width: int = 4
    # The number of actions that the beam tries for each partial plan, the known one included.
    branch: int = 4
    # The number of best plans that are kept and learnt from. This setting and those that follow are
    # the ones of `CMAESElite`.
    elite: int = 8
    rate: float | None = None  # of Adam; None: slower for larger budgets
    components: int = 3
    population: int = 16
    sigma: float = 1.0
    temperature: float | None = None
    starts: float | None = None

    def __post_init__(self) -> None:
        per_rollout = value_or_one(self.parts_per_rollout)
        plans = value_or_one(self.plans)
        at_once = value_or_one(self.neighbourhoods_at_once)
        beam = value_or_one(self.beam)
        route_pool = value_or_one(self.route_pool)
        is_negative = not per_rollout >= 0.0 or min(beam, route_pool) < 0
        is_zero = min(plans, at_once, self.width) < 1
        if is_negative or is_zero or self.branch < 2:
            none = "parts_per_rollout, beam and route_pool of at least 0"
            one = "plans, width and neighbourhoods_at_once of at least 1"
            raise InputError(f"cmaes-refine needs {none}, {one} and a branch of at least 2")
        if self.elite and plans > self.elite:
            needed = f"plans={plans} needs elite={plans} or more"
            raise InputError(f"cmaes-refine works on plans of its elite: {needed}")
        _ = self.learner  # refuses other wrong settings

    @property
    def learner(self) -> CMAESElite:
        """Return the strategy that makes the generations."""
        return CMAESElite(
            elite=self.elite,
            rate=self.rate,
            components=self.components,
            population=self.population,
            sigma=self.sigma,
            temperature=self.temperature,
            starts=self.starts,
        )

    def warm_up(self, task: Task) -> WarmUp:
        """Return a search with the first beam after one generation, and its attempts.

        They are enough for the generation, its samples and some of the beam.
        """
        per_rollout = self.parts_per_rollout
        if per_rollout is None:
            per_rollout = TUNING.parts_per_rollout
        attempts = math.ceil(self.population * (2 + per_rollout))
        first_beam = self.beam and 1
        short = replace(self, beam=first_beam)
        return WarmUp(short, attempts)

    def default_beam(self, task: Task) -> int:
        """Return the number of generations between two beams; 0 means no beams.

        A beam is a long row of small steps. A GPU finds as much by other means in that time
        (research/notebooks/experiments.md), and in a large instance the beam would never end.
        """
        if self.beam is not None:
            return self.beam
        if task.device.type == "cuda" or is_time_critical(task):
            return 0
        return TUNING.generations_between_beams

    def distributions(self, state: CMAESRefineState) -> Distributions:
        """Return the components of the learner."""
        return self.learner.distributions(state.learner_state)

    def init(self, task: Task) -> CMAESRefineState:
        """Return the state in which nothing is learnt yet."""
        learner_state = self.learner.init(task)
        return CMAESRefineState(learner_state)

    def step(self, task: Task, state: CMAESRefineState) -> Step:
        """Search one depth of the beam, or try one generation and refine its best plans."""
        if state.beam:
            deeper = deepen_beam(task, state.beam, self.branch)
            if deeper:
                beam, latents, rolled = deeper
                return Step(replace(state, beam=beam), latents, rolled)
        learner = self.learner
        proposal = learner.propose(task, state.learner_state)
        rolled = task.rollout(*proposal.arguments)
        learner_state = learner.learn(task, state.learner_state, proposal, rolled)
        latents = proposal.latents
        generation = Generation(
            rolled=rolled,
            latent=best_latent(latents, rolled),
            learner_state=learner_state,
            memory=learner.memory(task, learner_state),
        )
        elite_set = self.update_elite(task, state.elite_set, rolled)
        elite_set, sampled = self.resample(
            task,
            generation.latent,
            rolled.cost[0].numel(),
            generation.memory,
            elite_set,
        )
        pool, elite_set, merges = self.update_route_pool(
            task,
            state,
            elite_set,
            rolled,
            sampled,
        )
        self.learn_from_elite(task, generation, elite_set)
        generations = 1 if state.beam else state.since + 1
        is_due = self.is_beam_due(task, generations)
        following = CMAESRefineState(
            learner_state=learner_state,
            elite_set=elite_set,
            beam=self.start_beam_at_best(task, generation) if is_due else None,
            since=0 if is_due else generations,
            route_pool=pool,
            merges=merges,
        )
        return Step(following, latents, rolled)

    def learn_from_elite(self, task: Task, generation: Generation, elite_set: EliteSet) -> None:
        """Make a second update of the generation, at the rate of the first and not counted."""
        if not self.learner.learns(task):
            return
        views = draw_views(task, elite_set)
        target = elite_target(task, generation.latent, views)
        adaptation = generation.learner_state.adaptation
        learning = self.learner.learning
        learning.update(task, adaptation, [target])

    def is_beam_due(self, task: Task, generations: int) -> bool:
        """Return whether a beam follows this number of generations after the last."""
        every = self.default_beam(task)
        return every > 0 and generations >= every

    def start_beam_at_best(self, task: Task, generation: Generation) -> Beam:
        """Start a beam at the best rollouts, with the tables of now."""
        rolled = generation.rolled
        return start_beam(
            task,
            rolled.map(task.repeat_for_copies),
            task.repeat_for_copies(generation.latent),
            self.learner.memory(task, generation.learner_state),
            self.width,
        )

    def compile(self, task: Task) -> None:
        """Compile what recombines routes before the clock runs; the machine does it once."""
        if self.pools_routes(task) and partition_engine_for(task) == "compiled":
            from rhumbline.kernels.numba.local_search import launch as local_moves

            for name in ("partition prices", "partition"):
                local_moves.load_kernel(name)

    def finish(self, task: Task, state: CMAESRefineState) -> None:
        """Recombine the routes of all good plans, once the budget is spent.

        Those of an unfinished step are not in the pool.
        """
        allowance = finish_allowance(task)
        deadline = task.account.deadline
        is_late = deadline is not None and time.monotonic() > deadline + allowance
        if state.route_pool is None or is_late:
            return
        size = self.default_route_pool(task)
        known = extract_routes(task.original_batch, incumbent_set(task), size)
        self.merge_routes(task, state.route_pool.merge(known, size), allowance)

    def pools_routes(self, task: Task) -> bool:
        """Return whether plans consist of routes that can serve in other plans."""
        return self.route_pool != 0 and task.domain.recombines_routes

    def default_route_pool(self, task: Task) -> int:
        """Return how many routes are kept.

        They are as many as set partitioning makes use of, within the budget and the memory.
        """
        if self.route_pool is not None:
            return self.route_pool
        budget = PARTITION_BUDGETS[partition_engine_for(task)]
        fitting = budget.max_elements // (task.count * task.problem.action_count(task.batch))
        by_attempts = round(budget.routes_per_attempt * expected_attempts(task))
        multiple = TUNING.route_pool_multiple
        size = min(budget.pool_routes, fitting, by_attempts) // multiple * multiple
        return max(TUNING.min_route_pool, size)

    def count_considered_plans(self, task: Task) -> int:
        """Return how many plans of a generation, and how many samples, give routes to the pool."""
        return -(-self.default_route_pool(task) // TUNING.routes_per_plan)

    def update_route_pool(
        self,
        task: Task,
        state: CMAESRefineState,
        elite_set: EliteSet,
        rolled: Rollouts,
        sampled: Sequence[EliteSet],
    ) -> tuple[RoutePool | None, EliteSet, int]:
        """Add the routes of new plans to the pool, and recombine the pool if that is due.

        `sampled` has the best samples of each round. Returns the pool, the elite, and how often
        recombination was due so far. A recombination due at the very end is left to `finish`.
        """
        if not self.pools_routes(task):
            return None, elite_set, 0
        size = self.default_route_pool(task)
        merges = PARTITION_BUDGETS[partition_engine_for(task)].merges
        generation = cheapest_rollouts(rolled, self.count_considered_plans(task))
        plans = concatenate_sets([elite_set, generation, *sampled])
        if state.route_pool is not None and task.device.type != "cuda":
            plans = promising_plans(plans, state.route_pool)
        pool = extract_routes(task.original_batch, plans, size)
        if state.route_pool is not None:
            pool = state.route_pool.merge(pool, size)
        due = min(
            int(task.spent_share * merges),
            merges - 1,
            task.account.attempts // TUNING.attempts_per_merge,
        )
        if due > state.merges:
            recombined = self.merge_routes(task, pool, 0.0)
            elite_set = elite_set.merge(recombined, self.elite)
        return pool, elite_set, due

    def merge_routes(self, task: Task, pool: RoutePool, beyond: float) -> EliteSet:
        """Return the best plan made of routes of the pool, for the instances there is time for.

        It costs no attempt and may run `beyond` seconds over the time limit.
        """
        engine = partition_engine_for(task)
        budget = PARTITION_BUDGETS[engine]
        deadline = task.account.deadline
        limit = math.inf if deadline is None else deadline + beyond
        size = self.default_route_pool(task) // budget.routes_per_place
        customers = task.problem.action_count(task.batch) - 1
        affordable = size * TRAINING_NODES // customers
        width = max(TUNING.min_beam_width, min(size, affordable))
        child = recombine_routes(
            task.original_batch,
            pool,
            width,
            lambda: time.monotonic() > limit,
            engine,
        )
        known = incumbent_set(task)
        cost = child.cost.to(known.cost.dtype)
        actions = child.actions.to(known.actions.dtype)
        rolled = Rollouts(cost[:, None], actions[:, None])
        task.account.enter(rolled, 0)
        return EliteSet(cost, actions)

    def update_elite(self, task: Task, elite_set: EliteSet | None, rolled: Rollouts) -> EliteSet:
        """Return the best distinct plans so far.

        They come from all generations and beams, and from the plans that were given.
        """
        size = self.elite
        incumbents = incumbent_set(task)
        found = cheapest_rollouts(rolled, size)
        found = found.merge(incumbents, size)
        if elite_set is None:
            return found
        return elite_set.merge(found, size)

    def resample(
        self,
        task: Task,
        latent: Float[Tensor, "B 1 Z"],
        rollouts: int,
        memory: Any,
        elite_set: EliteSet,
    ) -> tuple[EliteSet, list[EliteSet]]:
        """Sample neighbourhoods of the best plans, several times each, in some rounds.

        A round starts from the plans that earlier rounds have improved. Returns the elite and,
        where routes are pooled, the best samples of each round.
        """
        temperature = self.sample_temperature(task)
        # Without randomness all samples would be the same.
        samples = TUNING.samples_per_neighbourhood if temperature else 1
        per_rollout = self.default_parts_per_rollout(task)
        neighbourhoods = round(rollouts * per_rollout / samples)
        sampled = list[EliteSet]()
        if not neighbourhoods:
            return elite_set, sampled
        plans = min(
            neighbourhoods,
            elite_set.cost.shape[1],
            self.default_plans(task),
        )
        rest = elite_set[:, plans:]  # these are not refined this time
        elite_set = elite_set[:, :plans]
        rounds = self.draw_rounds(task, neighbourhoods, plans)
        for uniforms in rounds:
            cost, actions = task.complete(
                task.repeat_for_copies(latent),
                cut_neighbourhoods(task, elite_set, uniforms),
                memory,
                temperature,
                samples,
            )
            per_plan = uniforms.shape[1]
            cost = group_by_plan(task, cost, per_plan, plans)
            actions = group_by_plan(task, actions, per_plan, plans)
            elite_set = elite_set.improve_with(cost, actions)
            if self.pools_routes(task):
                considered = self.count_considered_plans(task) // len(rounds)
                best = select_distinct(
                    cost.flatten(1),
                    actions.flatten(1, 2),
                    max(1, considered),
                )
                sampled.append(best)
        # Joining drops plans that have become the same.
        return elite_set.merge(rest, self.elite), sampled

    def draw_rounds(
        self, task: Task, neighbourhoods: int, plans: int
    ) -> tuple[Float[Tensor, "R A M 2"], ...]:
        """Draw the uniforms of all neighbourhoods, in rounds of those that are sampled at once.

        Neighbourhood a of plan m has the two uniforms [row, a, m].
        """
        per_plan = round(neighbourhoods / plans)
        uniforms = noise.decoding_uniforms(
            task.seed ^ TUNING.neighbourhood_stream,
            task.batch.key,
            count_tried_latents(task),
            per_plan * plans,
            2,
        )
        by_plan = uniforms[:, 0].unflatten(1, (per_plan, plans))
        at_once = self.default_neighbourhoods_at_once(task, neighbourhoods)
        per_plan_at_once = -(-at_once // plans)
        return by_plan.split(per_plan_at_once, dim=1)

    def sample_temperature(self, task: Task) -> float:
        """Return the temperature at which neighbourhoods are sampled.

        It is that of whole rollouts, except where time is critical. A sample has a few dozen
        decisions, however large the instance, and tolerates more randomness than a whole plan. Far
        beyond the sizes of training, however, a policy is less sure of each decision.
        """
        wanted = self.learner.search_for_task(task).temperature
        if is_time_critical(task):
            return temperature_or_default(task, wanted, TUNING.sample_temperatures_large)
        return temperature_or_default(task, wanted)

    def default_parts_per_rollout(self, task: Task) -> float:
        """Return the number of samples per whole rollout: many where whole rollouts are slow."""
        if self.parts_per_rollout is not None:
            return self.parts_per_rollout
        if is_time_critical(task):
            nodes = task.problem.action_count(task.batch)
            return TUNING.parts_per_rollout_and_node_when_late * nodes
        return TUNING.parts_per_rollout

    def default_plans(self, task: Task) -> int:
        """Return how many plans are refined, by the number of attempts that is expected.

        Each plan needs its share of attempts until no neighbourhood improves it; only then does it
        pay to refine others. A large plan has more neighbourhoods, and where time is critical,
        their samples are most of the attempts.
        """
        attempts_per_plan = TUNING.attempts_per_plan
        if is_time_critical(task):
            width = task.problem.action_count(task.batch)
            attempts_per_plan = attempts_per_plan * width / TUNING.reference_nodes
        by_attempts = round(expected_attempts(task) / attempts_per_plan)
        return self.plans or max(1, by_attempts)

    def default_neighbourhoods_at_once(self, task: Task, neighbourhoods: int) -> int:
        """Return how many of all `neighbourhoods` are sampled at once.

        Small rounds build upon each other's improvements; large ones fill a GPU.
        """
        if self.neighbourhoods_at_once:
            return self.neighbourhoods_at_once
        return neighbourhoods if task.device.type == "cuda" else TUNING.neighbourhoods_at_once_cpu


def value_or_one(setting: float | None) -> float:
    """Return a setting, or 1 for a default, which every check lets pass."""
    return 1 if setting is None else setting


def expected_attempts(task: Task) -> float:
    """Return the attempts of the whole search, by the share of the budget spent so far."""
    spent_share = task.spent_share or 1.0
    return task.account.attempts / spent_share


def finish_allowance(task: Task) -> float:
    """Return the seconds that finishing may take beyond the time limit.

    It is a hundredth of the limit, or enough for one instance.
    """
    start = task.start_time
    deadline = task.account.deadline or start
    limit = deadline - start
    return max(TUNING.min_finish_seconds, 0.01 * limit)


def count_tried_latents(task: Task) -> Int[Tensor, "1"]:
    """Return the number of latents tried so far, which selects the next random numbers.

    The tensor is filled on the device: a copy would make the host wait.
    """
    return torch.full((1,), task.tried_count, device=task.device)


def best_latent(latents: Float[Tensor, "B K Z"], rolled: Rollouts) -> Float[Tensor, "B 1 Z"]:
    """Return the latent of the cheapest rollout."""
    cost = rolled.cost.amin(2)
    best = cost.argmin(1)[:, None, None]
    dimensions = latents.shape[2]
    index = best.expand(-1, -1, dimensions)
    return latents.gather(1, index)


def draw_views(task: Task, elite_set: EliteSet) -> EliteSet:
    """Return plans in random views, such as tours from random cities in random directions.

    Tables that learn a plan from several views learn what holds in all of them. The domain says
    whether that helps.
    """
    if not task.domain.search.learns_from_views:
        return elite_set
    cost = elite_set.cost
    actions = elite_set.actions
    uniforms = noise.decoding_uniforms(
        task.seed ^ TUNING.view_stream,
        task.batch.key[:: task.copies],
        count_tried_latents(task),
        cost.shape[1],
        2,
    )
    uniforms = uniforms[:, 0].flatten(0, 1)
    views = task.problem.views(
        actions.flatten(0, 1),
        uniforms[:, None],
    )
    return EliteSet(cost, views.view_as(actions))


def cut_neighbourhoods(
    task: Task, elite_set: EliteSet, uniforms: Float[Tensor, "R A M 2"]
) -> Prefixes:
    """Cut A neighbourhoods out of each plan: the first of all plans, then the second, and so on.

    Neighbourhoods of about the same size are side by side, to share a GPU's tile.
    """
    rows = uniforms.shape[0]
    plans = uniforms.shape[2]
    order = uniforms[..., 1:].argsort(stable=True, dim=1)
    by_size = uniforms.gather(1, order.expand_as(uniforms))
    actions = task.repeat_for_copies(elite_set.actions)
    prefixes = neighbourhood_prefixes(
        task.domain.require("neighbourhoods", "large-neighbourhood search"),
        task.batch.xy.repeat_interleave(plans, 0),
        actions.flatten(0, 1).long(),
        by_size.transpose(1, 2).flatten(0, 1),
    )

    def neighbourhoods_first(x: Tensor) -> Tensor:
        by_plan = x.unflatten(0, (rows, plans))
        by_neighbourhood = by_plan.transpose(1, 2)
        return by_neighbourhood.flatten(1, 2)

    return prefixes.map(neighbourhoods_first)


def group_by_plan(
    task: Task, x: Shaped[Tensor, "R C *rest"], neighbourhoods: int, plans: int
) -> Shaped[Tensor, "B M c *rest"]:
    """Group samples by their plan: those of all its copies and `neighbourhoods` together."""
    copies = (task.count, task.copies)
    by_neighbourhood = x.unflatten(1, (neighbourhoods, plans, -1))
    by_copy = by_neighbourhood.unflatten(0, copies)  # [B, copies, A, M, samples]
    by_plan = by_copy.movedim(3, 1)
    return by_plan.flatten(2, 4)
