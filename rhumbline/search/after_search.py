"""What follows a search: local improvement of its best different plans, a classical solver, the
best of them all.

The seconds of the budget are shared out. A search before a classical solver ends after half of them
(`SEARCH_SHARE`). A polish is given the last half second of the search's part, or a tenth of all
seconds if that is less; the best plan of each instance is polished even if they have passed. A
phase that ends early leaves its time to the next.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from rhumbline import improvers, kernels
from rhumbline.errors import Infeasible, InputError
from rhumbline.problems import Plan
from rhumbline.search.driver import Budget, Progress, prepare_strategy, search, stream
from rhumbline.search.plan_sets.diverse import APART, DiverseSet
from rhumbline.search.plan_sets.similarity import (
    Polisher,
    edge_similarity,
    pad_actions,
    plan_edges,
    plan_tools_for,
)
from rhumbline.search.solution import Candidate, CostChange, Solution
from rhumbline.search.strategy import Strategy, warm_up_run_of
from rhumbline.search.task import Task, set_warm_start

SEARCH_SHARE = 0.5  # of the seconds, where a classical solver follows
POLISH_SHARE, POLISH_SECONDS = 0.1, 0.5  # whichever is less
POLISHED = (
    16  # plans of each instance; from the best one alone the result is worse (docs/polish.md)
)
HANDED = 5  # plans that a classical solver gets
MOST = 100  # plans that can be asked for
ROUNDING = 1e-12  # of a sum of distances


@dataclass(frozen=True)
class Improvement:
    """A plan of an instance that is better than all before it."""

    instance: Any
    plan: Plan
    cost: int | float
    attempts: int
    seconds: float
    phase: str


@dataclass(frozen=True)
class AfterSearch:
    """What is wanted besides the plan that the search finds."""

    top: int = 1  # so many different plans
    polish: bool = False
    then: str | None = (
        None  # a classical solver that carries on; "auto": the one of our own for the problem
    )
    improved: Callable[[Improvement], None] | None = (
        None  # called at each improvement of each instance
    )

    def __post_init__(self) -> None:
        if not 1 <= self.top <= MOST:
            raise InputError(f"top must be 1 to {MOST}, not {self.top}")

    @property
    def pooled(self) -> int:
        """How many different plans the search has to keep; 0 where only the best is of use."""
        if self.top == 1 and not self.polish and self.then is None:
            return 0
        return max(
            2 * self.top if self.top > 1 else 0,
            POLISHED if self.polish else 0,
            HANDED if self.then else 0,
        )

    def settled(self, problem: str) -> "AfterSearch":
        """The same with the solver that is meant for a problem."""
        return (
            self
            if self.then is None
            else replace(self, then=improvers.resolve_solver(self.then, problem))
        )

    def check(self, problem: str, budget: Budget) -> None:
        """Raise, before any work, if what is wanted cannot be had; kernels are made now, before
        the clock runs.
        """
        if self.pooled:
            plan_tools_for(problem, "more than the best plan of a search")
        if (then := self.settled(problem).then) is not None:
            improvers.require_solver(then, problem)
            if budget.seconds is None:
                raise InputError(
                    f"{then} works for the rest of the seconds, so say how many there are: seconds"
                )
            improvers.prepare_solver(then)
        if self.polish:
            kernels.require_numba("a polish")
            from rhumbline.kernels.numba.local_search import launch as local_moves

            local_moves.load_kernel(problem)

    def ends(self, seconds: float) -> tuple[float, float]:
        """After how many seconds the search and the polish end."""
        polished = seconds * (SEARCH_SHARE if self.then else 1.0)
        return polished - (
            min(POLISH_SHARE * seconds, POLISH_SECONDS) if self.polish else 0.0
        ), polished


@dataclass
class Candidates:
    """The plans of one instance, as they are found."""

    solution: Solution
    plans: list[Candidate]
    polish: CostChange | None = None
    then: CostChange | None = None

    @property
    def best(self) -> Candidate:
        """The cheapest plan; the earlier of equals: lengths that are added in another order are
        no improvement.
        """
        least = min(c.cost for c in self.plans)
        return next(c for c in self.plans if c.cost <= least * (1.0 + ROUNDING))

    def add(self, plan: Plan, phase: str) -> None:
        """Check, price and keep a plan."""
        plan.check(self.solution.instance)
        self.plans.append(Candidate(plan, plan.cost(self.solution.instance), phase))

    def improve(self, plan: Plan, phase: str) -> None:
        """Keep the better of a plan and those of the same phase before it."""
        self.add(plan, phase)
        best = min((c for c in self.plans if c.phase == phase), key=lambda c: c.cost)
        self.plans = [*(c for c in self.plans if c.phase != phase), best]


def solve_task(
    strategy: Strategy[Any],
    task: Task,
    budget: Budget,
    watch: Callable[[Progress], None] | None = None,
    finish: AfterSearch | None = None,
    warm: Sequence[Plan | None] = (),
) -> tuple[list[Solution], bool]:
    """A search and all that is wanted after it, within one budget; and whether Ctrl-C ended it
    early.
    """
    finish = (finish or AfterSearch()).settled(task.problem.name)
    finish.check(task.problem.name, budget)
    prepare_strategy(strategy, task)
    if budget.seconds and task.device.type == "cuda":
        run_warm_up(strategy, task, budget)
    if finish.pooled:
        task.account.pool = DiverseSet(
            plan_tools_for(task.problem.name, "a pool of plans"), finish.pooled, task.original_batch
        )
    work = AfterSearchRun(task, budget, finish, time.monotonic(), watch)
    if any(warm):
        set_warm_start(task, warm)
    work.announce_warm(warm)
    found, interrupted = search(strategy, task, work.search_budget, work.watch_search)
    standings = [
        Candidates(s, list(plans))
        for s, plans in zip(found, candidate_plans(task, found), strict=True)
    ]
    if not interrupted and standings:
        try:
            work.carry_on(standings)
        except KeyboardInterrupt:
            interrupted = True
    try:
        return [work.result(s) for s in standings], interrupted
    except KeyboardInterrupt:  # what all phases have found is worth another moment
        return [work.result(s) for s in standings], True


def run_warm_up(strategy: Strategy[Any], task: Task, budget: Budget) -> None:
    """Some attempts, which do not count, before the clock runs; not more than the budget allows.

    A GPU that has not seen this size compiles kernels for them, which takes ten seconds to half a
    minute.
    """
    short, attempts = warm_up_run_of(strategy, task)
    for _ in stream(short, task, Budget(attempts=min(attempts, budget.attempts or attempts))):
        pass
    task.forget()


def candidate_plans(task: Task, found: Sequence[Solution]) -> Iterator[list[Candidate]]:
    """Of each instance the incumbent, the plan it was given, and the feasible ones of the pool,
    cheapest first.
    """
    if not found:  # interrupted before the first attempt
        return
    kept = task.account.pool.plans() if task.account.pool else []
    pooled = kept or [[] for _ in found]  # a pool is empty until the first step has ended
    warm = task.account.warm or [None] * len(found)
    for solution, sequences, given in zip(found, pooled, warm, strict=True):
        plans = [Candidate(solution.plan, solution.cost, solution.phase)]
        if given is not None and solution.phase != "warm start":
            plans.append(Candidate(given, given.cost(solution.instance), "warm start"))
        for plan in (task.problem.decode(solution.instance, actions) for actions in sequences):
            if is_feasible(plan, solution.instance) and plan != solution.plan:
                plans.append(Candidate(plan, plan.cost(solution.instance), "search"))
        yield sorted(plans, key=lambda c: c.cost)


def is_feasible(plan: Plan, instance: Any) -> bool:
    """Whether a plan obeys all rules; rollouts do not know the limits of a fleet."""
    try:
        plan.check(instance)
    except Infeasible:
        return False
    return True


@dataclass
class AfterSearchRun:
    """One run through all phases: the clock, and who is told what."""

    task: Task
    budget: Budget
    finish: AfterSearch
    began: float
    watch: Callable[[Progress], None] | None
    announced: list[float] | None = None  # the cheapest cost of each instance that was told

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began

    @property
    def search_budget(self) -> Budget:
        """What the search may spend."""
        seconds = self.budget.seconds
        return (
            self.budget
            if seconds is None
            else replace(self.budget, seconds=self.finish.ends(seconds)[0])
        )

    def carry_on(self, standings: Sequence[Candidates]) -> None:
        """All phases behind the search."""
        if self.finish.polish:
            self.polish(standings)
        if self.finish.then:
            self.hand_over(standings, self.finish.then)

    def polish(self, standings: Sequence[Candidates]) -> None:
        """Improve the plans of all instances: first the best of each, then the second, while
        there is time.
        """
        end = None if self.budget.seconds is None else self.finish.ends(self.budget.seconds)[1]
        craft = plan_tools_for(self.task.problem.name, "a polish")
        polishers: dict[int, Polisher] = {}
        given = [s.plans[:POLISHED] for s in standings]
        before = [s.best.cost for s in standings]
        self.tell(standings, "polish")  # that it begins
        try:
            for rank in range(POLISHED):
                for place, standing in enumerate(standings):
                    if rank and end is not None and self.seconds >= end:
                        return
                    if (
                        rank < len(given[place]) and not standing.solution.unmet
                    ):  # no move would mend that
                        if place not in polishers:
                            polishers[place] = craft.polisher(standing.solution.instance)
                        standing.add(polishers[place](given[place][rank].plan), "polish")
        finally:
            for standing, cost in zip(standings, before, strict=True):
                standing.polish = CostChange(cost, standing.best.cost)
            self.tell(standings, "polish")

    def hand_over(self, standings: Sequence[Candidates], name: str) -> None:
        """Let a classical solver carry on with the best different plans of each instance, for
        its share of the rest.
        """
        assert self.budget.seconds is not None
        self.tell(standings, name)  # that it begins
        for place, standing in enumerate(standings):
            share = (self.budget.seconds - self.seconds) / (len(standings) - place)
            before = standing.best.cost
            trouble = "" if share > 0 else "no time was left for it"
            try:
                if share > 0:
                    self.classical(standings, place, name, share)
            # whatever somebody else's solver does: the plans that are there are worth more
            except Exception as error:
                trouble = str(error) or type(error).__name__
            finally:
                standing.then = CostChange(before, standing.best.cost, trouble)
                self.tell(standings, name)

    def classical(
        self, standings: Sequence[Candidates], place: int, name: str, seconds: float
    ) -> None:
        """One run of a classical solver; its plans are kept and told as they come."""
        standing = standings[place]
        if standing.solution.unmet:
            raise Infeasible(
                f"there is no plan that it could start from: {standing.solution.unmet}"
            )

        def found(plan: Plan) -> None:
            standing.improve(plan, name)
            self.tell(standings, name)

        plans = [c.plan for c in self.different(standing, HANDED)]
        improvers.improve_plans(
            name, standing.solution.instance, plans, seconds, self.task.seed, found
        )

    def different(self, standing: Candidates, count: int) -> list[Candidate]:
        """The cheapest plans of an instance that are not near to a cheaper one."""
        ranked = sorted(standing.plans, key=lambda c: c.cost)
        instance = standing.solution.instance
        if count == 1:
            return ranked[:1]
        craft = plan_tools_for(self.task.problem.name, "different plans")
        batch = self.task.problem.collate([instance])
        horizon = self.task.problem.horizon(batch)
        kept = list[Candidate]()
        links = list[torch.Tensor]()
        for candidate in ranked:
            own = plan_edges(
                craft, batch, pad_actions(craft.encode_plan(instance, candidate.plan), horizon)
            )
            if len(kept) < count and all(
                edge_similarity(own, other) <= 1.0 - APART for other in links
            ):
                kept.append(candidate)
                links.append(own)
        return kept

    def result(self, standing: Candidates) -> Solution:
        """The solution after all phases."""
        solution = standing.solution
        best = standing.best
        attempts = solution.attempts
        seconds = solution.seconds
        trace = solution.trace
        if standing.polish or standing.then:
            seconds = self.seconds
            trace = (*trace, (attempts, seconds, float(best.cost)))
        others = self.different(standing, self.finish.top)[1:]
        return replace(
            solution,
            plan=best.plan,
            cost=best.cost,
            phase=best.phase,
            seconds=seconds,
            trace=trace,
            polish=standing.polish,
            then=standing.then,
            others=tuple(others),
        )

    # --- who is told

    def tell(self, standings: Sequence[Candidates], phase: str) -> None:
        """Progress behind the search."""
        best = torch.tensor([float(s.best.cost) for s in standings], dtype=torch.float64)
        if self.watch:
            self.watch(Progress(self.task.account.attempts, self.seconds, best, best, None, phase))
        for row, standing in enumerate(standings):
            self.announce(row, standing.best.plan, phase)

    def watch_search(self, progress: Progress) -> None:
        """Pass progress on, and every improvement that it brings."""
        if self.watch:
            self.watch(progress)
        actions = self.task.account.actions
        if self.finish.improved is None or actions is None:
            return
        best = progress.best.tolist()
        known = self.announced or [float("inf")] * self.task.count
        rows = [row for row, cost in enumerate(best) if cost < known[row]]
        for row, sequence in zip(rows, actions[rows].tolist(), strict=True):
            plan = self.task.problem.decode(self.task.instances[row], sequence)
            self.announce(row, plan, "search")

    def announce_warm(self, warm: Sequence[Plan | None]) -> None:
        """The plans that were given come first."""
        for row, plan in enumerate(warm):
            if plan is not None:
                self.announce(row, plan, "warm start")

    def announce(self, row: int, plan: Plan, phase: str) -> None:
        """Tell of a plan, if it is the best of its instance so far in the file's own metric."""
        instance = self.task.instances[row]
        costs = self.announced or [float("inf")] * self.task.count
        if (
            self.finish.improved is not None
            and plan.cost(instance) < costs[row]
            and is_feasible(plan, instance)
        ):
            cost = plan.cost(instance)
            attempts = self.task.account.attempts
            costs[row] = cost
            self.announced = costs
            self.finish.improved(Improvement(instance, plan, cost, attempts, self.seconds, phase))
