"""CMA-ES that learns, and works on its best plans: parts of them are built anew, and now and then a beam is sent.

Generations find good plans, and the tables of the instance learn what these have in common. What keeps them from being
better still are single decisions, which the next generation hardly ever gets right all at once. Rebuilding plans some
neighbourhood of a good one again, and a beam tries other decisions one by one. The best different plans are kept, each
is improved by itself, and the tables learn from all of them besides: one alone soon has no neighbourhood that could be
better (docs/experiments.md). Routes of vehicles that were built for different plans are put together (`merge`).
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
from rhumbline.decoding import Beginnings, Rollouts
from rhumbline.decoding.neighbourhoods import CUTS, beginnings
from rhumbline.errors import InputError
from rhumbline.policies.attention.encoder import USUAL_NODES
from rhumbline.search.plan_sets.elite import Herd, cheapest, cheapest_of, incumbents, together
from rhumbline.search.recombine.routes import MEANS, Stock, engine_of, merged, promising, routes_of
from rhumbline.search.strategies.cmaes_elite import CMAESElite, Guided, lesson_of
from rhumbline.search.strategies.sgbs import Beam, begun, deepened
from rhumbline.search.strategy import chosen_temperature, hurried
from rhumbline.search.task import Task

ABREAST, BEAM = 5, 8  # on a CPU
REBUILT, HURRIED = 2.0, 0.1  # parts for each whole rollout, and for each of it and each node
WARMTH = ((500.0, 0.5), (math.inf, 0.1))  # temperature of parts of large plans on a CPU, up to so many nodes
USUAL = 200  # nodes
DESCENT = 150  # attempts of a whole search for each plan that is worked on: with fewer, the best alone gets further
APIECE = 25  # attempts for each merge, on average at least
BRIEFLY = 0.05  # seconds
SEEN = 2  # routes in stock for each plan of a generation, and each of its parts, that is looked at
FEWEST, NARROWEST = 512, 16  # routes in stock, and places of the beam that merges them
ROUND = 64  # routes: a GPU's kernels are compiled anew for odd numbers
SAMPLES = 16  # of each neighbourhood; on a CPU they are a tile, which lists the same few nodes
APART, TURNS = 0x9E3779B9, 0x85EBCA6B  # from the noise of decisions, and from one another


@dataclass(frozen=True)
class Refined:
    """State: what has been learnt, the best plans, the beam under way, generations since the last, and the routes."""

    guided: Guided
    herd: Herd | None = None
    beam: Beam | None = None
    since: int = 0
    stock: Stock | None = None
    merges: int = 0  # that were due so far


@dataclass(frozen=True)
class CMAESRefine:
    """`CMAESElite`, and after each generation some neighbourhoods of the best plans are planned again."""

    rebuilt: float | None = None  # plans of which a part is new, for each whole one, about. None: `usual_rebuilt`
    plans: int | None = None  # that are worked on, of the elite. None: as many as the budget has room for
    abreast: int | None = None  # neighbourhoods at a time, one of each plan at least. None: 5, all on a GPU
    beam: int | None = None  # generations between two beams; 0 is never. None: `usual_beam`
    stock: int | None = None  # vehicles: routes of good plans kept, to be put together; 0: never. None: `usual_stock`
    width: int = 4  # nodes in the beam
    branch: int = 4  # actions of each node, the one already known included
    elite: int = 8  # the best of all so far, which are learnt from too; from here on as in `CMAESElite`
    rate: float | None = None
    components: int = 3
    population: int = 16
    sigma: float = 1.0
    temperature: float | None = None
    starts: float | None = None

    def __post_init__(self) -> None:
        rebuilt, plans, abreast, beam, stock = (
            1 if x is None else x for x in (self.rebuilt, self.plans, self.abreast, self.beam, self.stock)
        )
        if not rebuilt >= 0.0 or min(plans, abreast, self.width) < 1 or min(beam, stock) < 0 or self.branch < 2:
            least = "rebuilt, beam and stock of at least 0, plans, width and abreast of at least 1"
            raise InputError(f"cmaes-refine needs {least} and a branch of at least 2")
        if self.elite and plans > self.elite:
            raise InputError(f"cmaes-refine works on plans of its elite: plans={plans} needs elite={plans} or more")
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
        rebuilt = REBUILT if self.rebuilt is None else self.rebuilt
        return replace(self, beam=self.beam and 1), math.ceil(self.population * (2 + rebuilt))

    def usual_beam(self, task: Task) -> int:
        """Generations between two beams.

        A beam is a long row of small steps: what a GPU does in the meantime finds as much (docs/experiments.md), and in
        a large instance it would never come to its end.
        """
        if self.beam is not None:
            return self.beam
        return 0 if task.device.type == "cuda" or hurried(task) else BEAM

    def init(self, task: Task) -> Refined:
        """Nothing learnt yet, and no beam."""
        if task.problem.name not in CUTS:
            why = f"there are no neighbourhoods in plans of {task.problem.name} that could be built anew"
            raise InputError(f"{why}; use --search sampling-elite, cmaes-elite, sgbs or sampling")
        return Refined(self.learner.init(task))

    def step(self, task: Task, state: Refined) -> tuple[Refined, Float[Tensor, "B K Z"], Rollouts]:
        """One depth of the beam, or one generation and what it leads to."""
        deeper = deepened(task, state.beam, self.branch) if state.beam else None
        if deeper:
            return replace(state, beam=deeper[0]), deeper[1], deeper[2]
        guided, latents, rolled = self.learner.step(task, state.guided)
        memory, latent = self.learner.memory(task, guided), best_latent(latents, rolled)
        gathered = self.gathered(task, state.herd, rolled)
        herd, parts = self.rebuild(task, latent, rolled.cost[0].numel(), memory, gathered)
        stock, herd, merges = self.restock(task, state, herd, rolled, parts)
        if self.learner.learns(task):  # at the rate of the generation's own lesson, which alone is counted
            self.learner.learning.update(task, guided.adaptation, [lesson_of(task, latent, turned(task, herd))])
        every, since = self.usual_beam(task), 0 if state.beam else state.since
        if not every or since + 1 < every:
            return Refined(guided, herd, None, since + 1, stock, merges), latents, rolled
        beam = begun(task, rolled.map(task.spread), task.spread(latent), self.learner.memory(task, guided), self.width)
        return Refined(guided, herd, beam, 0, stock, merges), latents, rolled

    def prepare(self, task: Task) -> None:
        """Before the clock runs: what merges routes is compiled, once on a machine."""
        if self.keeps_routes(task) and engine_of(task) == "compiled":
            from rhumbline.kernels.numba.local_search import launch as local_moves

            for name in ("prices", "partition"):
                local_moves.kernel(name)

    def conclude(self, task: Task, state: Refined) -> None:
        """When the budget is spent: what the routes of all good plans make together, but for those of a broken step."""
        late = task.ledger.deadline is not None and time.monotonic() > task.ledger.deadline + allowance(task)
        if state.stock is not None and not late:
            most = self.usual_stock(task)
            stock = state.stock.joined(routes_of(task.originals, incumbents(task), most), most)
            self.put_together(task, stock, allowance(task))

    def keeps_routes(self, task: Task) -> bool:
        """Whether plans consist of routes that could serve in others."""
        return self.stock != 0 and task.problem.name == "cvrp"

    def usual_stock(self, task: Task) -> int:
        """How many routes are kept: as many as a beam makes use of, as far as budget and memory have room for them."""
        if self.stock is not None:
            return self.stock
        means = MEANS[engine_of(task)]
        room = means.room // (task.count * task.problem.width(task.batch))
        return max(FEWEST, min(means.stock, room, round(means.an_attempt * foreseen(task))) // ROUND * ROUND)

    def seen(self, task: Task) -> int:
        """Plans of a generation, and as many of its parts, whose routes are looked at."""
        return -(-self.usual_stock(task) // SEEN)

    def restock(
        self, task: Task, state: Refined, herd: Herd, rolled: Rollouts, parts: Sequence[Herd]
    ) -> tuple[Stock | None, Herd, int]:
        """The routes of new plans come to the others, and now and then they are put together; how often that was due.

        The stock, and the best plans, among which may be one that was put together. What is due at the very end is left
        to `conclude`.
        """
        if not self.keeps_routes(task):
            return None, herd, 0
        most, merges = self.usual_stock(task), MEANS[engine_of(task)].merges
        plans = together([herd, cheapest_of(rolled, self.seen(task)), *parts])
        plans = plans if state.stock is None or task.device.type == "cuda" else promising(plans, state.stock)
        stock = routes_of(task.originals, plans, most)
        stock = stock if state.stock is None else state.stock.joined(stock, most)
        due = min(int(task.spent * merges), merges - 1, task.ledger.attempts // APIECE)
        if due > state.merges:
            herd = herd.joined(self.put_together(task, stock, 0.0), self.elite)
        return stock, herd, due

    def put_together(self, task: Task, stock: Stock, beyond: float) -> Herd:
        """A plan of the routes in stock, which costs no attempt; for as many instances as there is time for.

        It may go on so many seconds beyond the time limit.
        """
        engine, deadline = engine_of(task), task.ledger.deadline
        limit = math.inf if deadline is None else deadline + beyond
        most = self.usual_stock(task) // MEANS[engine].aplace
        breadth = max(NARROWEST, min(most, most * USUAL_NODES // (task.problem.width(task.batch) - 1)))
        child = merged(task.originals, stock, breadth, lambda: time.monotonic() > limit, engine)
        known = incumbents(task)
        child = Herd(child.cost.to(known.cost.dtype), child.actions.to(known.actions.dtype))
        task.ledger.enter(Rollouts(child.cost[:, None], child.actions[:, None]), 0)
        return child

    def gathered(self, task: Task, herd: Herd | None, rolled: Rollouts) -> Herd:
        """The best different plans so far: a generation's, what a beam has found and what was given among them."""
        found = cheapest_of(rolled, self.elite).joined(incumbents(task), self.elite)
        return found if herd is None else herd.joined(found, self.elite)

    def rebuild(
        self, task: Task, latent: Float[Tensor, "B 1 Z"], made: int, memory: Any, herd: Herd
    ) -> tuple[Herd, list[Herd]]:
        """Neighbourhoods of the plans, several times each; what some have improved the next ones build upon.

        The plans and, where routes are merged, the best of all that were built on the way.
        """
        temperature = self.warmth(task)
        samples = SAMPLES if temperature else 1  # without chance they would all be the same
        ways = round(made * self.usual_rebuilt(task) / samples)
        parts = list[Herd]()
        if not ways:
            return herd, parts
        plans = min(ways, herd.cost.shape[1], self.usual_plans(task))
        rest, herd, each = herd[:, plans:], herd[:, :plans], round(ways / plans)  # the rest waits
        luck = noise.decoding(task.seed ^ APART, task.batch.key, number(task), each * plans, 2)[:, 0]
        turns = luck.unflatten(1, (each, plans)).split(-(-self.usual_abreast(task, ways) // plans), dim=1)
        for some in turns:
            cost, actions = task.complete(task.spread(latent), cut(task, herd, some), memory, temperature, samples)
            cost, actions = (of_plans(task, x, *some.shape[1:3]) for x in (cost, actions))
            herd = herd.followed(cost, actions)
            if self.keeps_routes(task):
                parts.append(cheapest(cost.flatten(1), actions.flatten(1, 2), max(1, self.seen(task) // len(turns))))
        return herd.joined(rest, self.elite), parts  # some may have become the same

    def warmth(self, task: Task) -> float:
        """The temperature of parts: that of wholes or, where nothing is learnt on a CPU, higher, as for less to decide.

        A part is a few dozen decisions, however large the instance; but far beyond the sizes of training a policy is
        less sure of each.
        """
        wanted = self.learner.search_of(task).temperature
        return chosen_temperature(task, wanted, WARMTH) if hurried(task) else chosen_temperature(task, wanted)

    def usual_rebuilt(self, task: Task) -> float:
        """Parts for each whole rollout: many where it is wholes that take the time."""
        if self.rebuilt is not None:
            return self.rebuilt
        return HURRIED * task.problem.width(task.batch) if hurried(task) else REBUILT

    def usual_plans(self, task: Task) -> int:
        """How many plans are worked on, as far as the budget spent so far tells what there will be.

        Each plan needs its share until no neighbourhood of it can be bettered any more; only then others pay. A large
        one has more of them, and where many parts are built, these are most of the attempts.
        """
        descent = DESCENT * task.problem.width(task.batch) / USUAL if hurried(task) else DESCENT
        return self.plans or max(1, round(foreseen(task) / descent))

    def usual_abreast(self, task: Task, ways: int) -> int:
        """Neighbourhoods at a time: few find what others have made of a plan, many fill a GPU."""
        return self.abreast or (ways if task.device.type == "cuda" else ABREAST)


def foreseen(task: Task) -> float:
    """Attempts of the whole search, as far as the budget spent so far tells."""
    return task.ledger.attempts / (task.spent or 1.0)


def allowance(task: Task) -> float:
    """Seconds that concluding may take beyond the time limit: a hundredth of it, or enough for one instance."""
    return max(BRIEFLY, 0.01 * ((task.ledger.deadline or task.began) - task.began))


def number(task: Task) -> Int[Tensor, "1"]:
    """Of latents tried so far, for noise; filled on the device: to copy it there would make the host wait."""
    return torch.full((1,), task.tried, device=task.device)


def best_latent(latents: Float[Tensor, "B K Z"], rolled: Rollouts) -> Float[Tensor, "B 1 Z"]:
    """The latent of the cheapest rollout."""
    best = rolled.cost.amin(2).argmin(1)
    return latents.gather(1, best[:, None, None].expand(-1, -1, latents.shape[2]))


def turned(task: Task, herd: Herd) -> Herd:
    """Tours from other cities and in either direction: learnt from anew each time, they teach what holds anywhere.

    Routes stay in the order in which they were built: that order is something a policy for vehicles knows.
    """
    if task.problem.name != "tsp":
        return herd
    luck = noise.decoding(task.seed ^ TURNS, task.batch.key[:: task.copies], number(task), herd.cost.shape[1], 2)[:, 0]
    views = task.problem.views(herd.actions.flatten(0, 1), luck.flatten(0, 1)[:, None])
    return Herd(herd.cost, views.view_as(herd.actions))


def cut(task: Task, herd: Herd, luck: Float[Tensor, "R A M 2"]) -> Beginnings:
    """Each plan cut in A ways, the first way of all plans first; those of about one size share a GPU's tile."""
    rows, plans = luck.shape[0], luck.shape[2]
    order = luck[..., 1:].argsort(stable=True, dim=1)
    luck = luck.gather(1, order.expand_as(luck)).transpose(1, 2).flatten(0, 1)
    xy, actions = task.batch.xy.repeat_interleave(plans, 0), task.spread(herd.actions).flatten(0, 1).long()
    given = beginnings(task.problem.name, xy, actions, luck)
    return given.map(lambda x: x.unflatten(0, (rows, plans)).transpose(1, 2).flatten(1, 2))


def of_plans(task: Task, x: Shaped[Tensor, "R C *rest"], ways: int, plans: int) -> Shaped[Tensor, "B M c *rest"]:
    """What was made of each plan, by all copies and in all ways, several times each."""
    apart = x.unflatten(1, (ways, plans, -1)).unflatten(0, (task.count, task.copies))  # [B, copies, A, M, samples]
    return apart.movedim(3, 1).flatten(2, 4)
