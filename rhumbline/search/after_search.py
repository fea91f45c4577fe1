"""What follows a search: local search on its best different plans, then a solver on the result.

The phases share the seconds of the budget. A search before a solver ends after half of them. A
polish gets the last half second of the search's part, or a tenth of all seconds if that is less;
the best plan of each instance is polished even if they have passed. A phase that ends early leaves
its time to the next one. On a GPU our own solver works at the same time as the search of few
instances (`concurrent_solver`); both have all the seconds.

The solver "auto" is our own for the problem, where it can help: it is installed, there are seconds,
and enough of them for each instance. Elsewhere the search has all the time.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from rhumbline import improvers, kernels
from rhumbline.domain import Domain
from rhumbline.domains import plan_tools
from rhumbline.errors import Infeasible, InputError
from rhumbline.problems import Plan
from rhumbline.search import first_plans
from rhumbline.search.concurrent_solver import ConcurrentSolver, HostPlans
from rhumbline.search.driver import (
    Budget,
    Progress,
    collect_solutions,
    prepare_strategy,
    run_steps,
    stream,
)
from rhumbline.search.first_plans import construct_within, first_candidate
from rhumbline.search.plan_sets import diverse
from rhumbline.search.plan_sets.diverse import DiverseSet
from rhumbline.search.solution import (
    Candidate,
    CostChange,
    Solution,
    costs_less,
    is_feasible,
)
from rhumbline.search.strategy import PlainStrategy, Strategy, warm_up_run_of
from rhumbline.search.task import Task, set_warm_start
from rhumbline.search.without_policy.host_task import HostTask


@dataclass(frozen=True)
class AfterSearchTuning:
    """How the phases share time and plans."""

    # Of the time until the search has to end, if everything before it has taken longer.
    min_search_share: float = 0.2
    search_share: float = 0.5  # of the seconds, where a solver follows
    # "auto" leaves the time of a solver to the search if it is less for each instance. With 0.03 s
    # routes of 100 customers are 0.4 % shorter than those of the search alone, with 0.1 s 0.7 %.
    min_solver_seconds: float = 0.05
    # The same where positions in the plane reproduce the distances badly.
    far_search_share: float = 0.05
    # Above this stress the policy cannot help. Up to 0.11 (TSPLIB's matrices, roads, 20 % of noise)
    # 64 attempts end at gaps of 0 to 3 %, from 0.2 to 0.6 at 8 to 70 %, from 0.8 at 1,000 % and up.
    max_plane_stress: float = 0.2
    late_share: float = 0.02  # of the seconds, for constructions after they have passed
    polish_share: float = 0.1  # of the seconds ...
    max_polish_seconds: float = 0.5  # ... or this, whichever is less
    # Of each instance. Polishing only the best gives worse results (research/notebooks/polish.md).
    polished_plans: int = 16
    handed_plans: int = 5  # that a solver gets
    max_plans: int = 100  # that can be asked for


TUNING = AfterSearchTuning()


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

    top: int = 1  # different plans to return
    polish: bool = False
    # Solver that continues. "auto": our own where it can help; "none" is None.
    then: str | None = None
    improved: Callable[[Improvement], None] | None = None  # called at each improvement
    search_share: float = TUNING.search_share  # of the seconds, where a solver follows
    max_solver_seconds: float = math.inf  # of all instances together
    # Whether a constructed plan may be the result of a search without a solver.
    with_construction: bool = False
    # Whether the solver, one of our own, works at the same time as the search.
    concurrent: bool = False

    def __post_init__(self) -> None:
        if self.then == "none":
            object.__setattr__(self, "then", None)
        most = TUNING.max_plans
        if not 1 <= self.top <= most:
            raise InputError(f"top must be 1 to {most}, not {self.top}")

    @property
    def plans_to_keep(self) -> int:
        """Different plans that the search has to keep; 0 if only the best one is used."""
        if self.top == 1 and not self.polish and self.then is None:
            return 0
        count = 0
        if self.top > 1:
            count = 2 * self.top
        if self.polish:
            count = max(count, TUNING.polished_plans)
        if self.then:
            count = max(count, TUNING.handed_plans)
        return count

    def with_shares(
        self, domain: Domain, instances: Sequence[Any], on_gpu: bool = False
    ) -> "AfterSearch":
        """Return the same with the time for the search that suits the domain and the device.

        It is little where the policy cannot help. Constructed plans are better there, so they count
        too, unless only the search is wanted.
        """
        if is_far_from_planes(domain, instances):
            share = TUNING.far_search_share
            has_solver = self.then is not None
            return replace(self, search_share=share, with_construction=has_solver)
        if on_gpu or self.then not in ("auto", domain.improver):
            return self
        return replace(self, search_share=domain.search.cpu_share)

    def resolve_solver(self, problem: str, budget: Budget, count: int = 1) -> "AfterSearch":
        """Return the same with what "auto" stands for: a solver for `count` instances, or None."""
        if self.then != "auto":
            return self
        total_seconds = budget.seconds or 0.0
        seconds = (1.0 - self.search_share) * total_seconds
        if seconds < count * TUNING.min_solver_seconds:
            return replace(self, then=None)
        return replace(self, then=improvers.available_improver(problem))

    def check(self, problem: str, budget: Budget) -> None:
        """Raise, before any work, if a phase cannot run. Compile its kernels now, off the clock.

        What "auto" stands for has to be resolved.
        """
        if self.plans_to_keep:
            plan_tools(problem, "more than the best plan of a search")
        then = self.then
        if then is not None:
            improvers.require_solver(then, problem)
            if budget.seconds is None:
                advice = "so say how many there are: seconds"
                raise InputError(f"{then} works for the rest of the seconds, {advice}")
            improvers.prepare_solver(then)
        if self.polish:
            prepare_polish(problem)

    def phase_ends(self, seconds: float) -> tuple[float, float]:
        """Return after how many seconds the search and the polish end."""
        share = 1.0
        if self.then and not self.concurrent:
            share = self.search_share
        polish_end = seconds * share
        if not self.polish:
            return polish_end, polish_end
        wanted_seconds = TUNING.polish_share * seconds
        polish_seconds = min(wanted_seconds, TUNING.max_polish_seconds)
        return polish_end - polish_seconds, polish_end


def is_far_from_planes(domain: Domain, instances: Sequence[Any]) -> bool:
    """Return whether the policy sees most of some instances at places that mislead it."""
    if domain.plane_stress is None:
        return False
    stresses = [domain.plane_stress(instance) for instance in instances]
    far = sum(stress > TUNING.max_plane_stress for stress in stresses)
    return 2 * far > len(stresses)


def prepare_polish(problem: str) -> None:
    """Compile what a polish needs; raise if the problem has none, or numba is missing."""
    tools = plan_tools(problem, "a polish")
    if tools.polisher is None:
        raise InputError(f"a polish is not supported for {problem}")
    if tools.polish_kernel:
        kernels.require_numba("a polish")
        from rhumbline.kernels.numba.local_search import launch as local_moves

        local_moves.load_kernel(tools.polish_kernel)


@dataclass
class Candidates:
    """The plans of one instance, in the order in which they were found."""

    solution: Solution
    plans: list[Candidate]
    polish: CostChange | None = None
    then: CostChange | None = None

    @property
    def best(self) -> Candidate:
        """The cheapest plan, the earliest of equals."""
        costs = [c.cost for c in self.plans]
        least = min(costs)
        equals = (c for c in self.plans if not costs_less(least, c.cost))
        return next(equals)

    def add(self, plan: Plan, phase: str) -> None:
        """Check, price and keep a plan."""
        instance = self.solution.instance
        plan.check(instance)
        cost = plan.cost(instance)
        candidate = Candidate(plan, cost, phase)
        self.plans.append(candidate)

    def add_construction(self) -> None:
        """Add the constructed plan if all others cost more, or exceed a limit that it meets."""
        if self.solution.phase == "construction":
            return
        instance = self.solution.instance
        first = first_candidate(instance, None)
        if first is None or not is_feasible(first.plan, instance):
            return
        if self.solution.unmet:
            self.solution = replace(self.solution, unmet=None)
            self.plans = [first]
        elif first.cost < self.best.cost:
            self.plans.append(first)

    def add_concurrent(self, known: HostPlans, solver: str) -> None:
        """Add what a solver has found at the same time as the search.

        Plans of the search that came from the solver are counted as the solver's.
        """
        self.plans = [
            replace(c, phase=solver) if c.plan in known.entered else c for c in self.plans
        ]
        others = [plan for plan in (known.construction, known.best) if plan is not None]
        if self.solution.unmet and others:
            self.solution = replace(self.solution, unmet=None)
            self.plans = others
        else:
            best = self.best.cost
            self.plans += [plan for plan in others if costs_less(plan.cost, best)]
        if known.cost_before is not None:
            self.then = CostChange(known.cost_before, self.best.cost, known.trouble)

    def improve(self, plan: Plan, phase: str) -> None:
        """Add a plan and keep only the best one of its phase."""
        self.add(plan, phase)
        others = list[Candidate]()
        same_phase = list[Candidate]()
        for candidate in self.plans:
            is_same_phase = candidate.phase == phase
            group = same_phase if is_same_phase else others
            group.append(candidate)
        best = min(same_phase, key=lambda c: c.cost)
        self.plans = [*others, best]


def solve_task(
    strategy: PlainStrategy,
    task: Task,
    budget: Budget,
    watch: Callable[[Progress], None] | None = None,
    finish: AfterSearch | None = None,
    warm_start: Sequence[Plan | None] = (),
) -> tuple[list[Solution], bool]:
    """Run a search and all phases after it within one budget.

    Returns the solutions, and whether Ctrl-C ended the run early. It may come at any time.
    """
    after = finish or AfterSearch()
    after = after.resolve_solver(task.problem.name, budget, task.count)
    run = AfterSearchRun(task, budget, after, time.monotonic(), watch)
    interrupted = False
    steps = list[Progress]()
    try:
        if any(warm_start):
            task.account.warm = warm_start  # also if an interruption comes before the next line
            set_warm_start(task, warm_start)
        ready = run.prepare(strategy)
        run.announce_first_plans(warm_start)
        for progress in run_steps(ready, task, run.search_budget):
            steps.append(progress)
            run.watch_search(progress)
            run.exchange_plans()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        interrupted = run.end_concurrent() or interrupted
    found = collect_solutions(task, run.seconds, steps, interrupted=interrupted)
    plans = candidate_plans(task, found)
    instances = [Candidates(s, list(p)) for s, p in zip(found, plans, strict=True)]
    run.add_concurrent(instances)
    if not interrupted and instances:
        try:
            run.run_phases(instances)
        except KeyboardInterrupt:
            interrupted = True
    try:
        return [run.result(c) for c in instances], interrupted
    except KeyboardInterrupt:  # what all phases have found is worth another moment
        return [run.result(c) for c in instances], True


def run_warm_up(strategy: PlainStrategy, task: Task, budget: Budget) -> None:
    """Make some attempts that do not count, before the clock runs, but no more than the budget has.

    A GPU compiles kernels for each new size, which takes ten seconds to half a minute.
    """
    short, attempts = warm_up_run_of(strategy, task)
    attempts = min(attempts, budget.attempts or attempts)
    short_budget = Budget(attempts=attempts)
    for _ in stream(short, task, short_budget):
        pass
    task.forget()


def candidate_plans(task: Task, found: Sequence[Solution]) -> Iterator[list[Candidate]]:
    """Yield the plans of each instance, cheapest first.

    They are the incumbent, the warm start and the feasible plans of the diverse set.
    """
    if not found:  # interrupted before the first attempt
        return
    diverse_set = task.account.diverse_set
    kept = diverse_set.plans() if diverse_set else []
    kept = kept or [[] for _ in found]  # it is empty until the first step has ended
    warm_start = task.account.warm or [None] * len(found)
    # After an interruption there may be fewer solutions than instances.
    for solution, sequences, given in zip(found, kept, warm_start, strict=False):
        instance = solution.instance
        plans = [Candidate(solution.plan, solution.cost, solution.phase)]
        if given is not None and solution.phase != "warm start":
            plans.append(Candidate(given, given.cost(instance), "warm start"))
        for actions in sequences:
            plan = task.problem.decode(instance, actions)
            if is_feasible(plan, instance) and plan != solution.plan:
                plans.append(Candidate(plan, plan.cost(instance), "search"))
        yield sorted(plans, key=lambda c: c.cost)


@dataclass
class AfterSearchRun:
    """One run through all phases: the clock, and the callbacks."""

    task: Task | HostTask
    budget: Budget
    after: AfterSearch
    start_time: float
    watch: Callable[[Progress], None] | None
    announced: list[float] | None = None  # cheapest cost of each instance that was announced
    concurrent: ConcurrentSolver | None = None  # that works at the same time as the search

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start_time

    @property
    def search_budget(self) -> Budget:
        """What the search may spend."""
        seconds = self.budget.seconds
        if seconds is None:
            return self.budget
        search_end, _ = self.after.phase_ends(seconds)
        # Encoding has taken time, and so have plans that were announced.
        least = TUNING.min_search_share * search_end
        left = max(least, search_end - self.seconds)
        return replace(self.budget, seconds=left)

    def prepare(self, strategy: PlainStrategy) -> Strategy[Any]:
        """Refuse what cannot work and compile all kernels; then start the clock.

        Encoding has come before, and counts.
        """
        assert isinstance(self.task, Task), "without a policy there is no search"
        self.after.check(self.task.problem.name, self.budget)
        ready = prepare_strategy(strategy, self.task)
        if self.after.plans_to_keep:
            tools = self.task.plan_tools("a pool of plans")
            batch = self.task.original_batch
            self.task.account.diverse_set = DiverseSet(tools, self.after.plans_to_keep, batch)
        if self.after.then and self.after.concurrent:
            self.concurrent = ConcurrentSolver(self.task, self.after.then, TUNING.handed_plans)
        self.start_time = time.monotonic() - self.task.preparation_seconds
        return ready

    def exchange_plans(self) -> None:
        """Between two steps, exchange plans with the solver that works at the same time."""
        if self.concurrent is None:
            return
        self.announce_reported(self.concurrent)
        self.concurrent.exchange()

    def end_concurrent(self) -> bool:
        """End the concurrent solver, if any; return whether Ctrl-C came meanwhile."""
        return self.concurrent is not None and self.concurrent.end()

    def add_concurrent(self, instances: Sequence[Candidates]) -> None:
        """Add what the concurrent solver has found, after it and the search have ended."""
        solver = self.concurrent
        if solver is None:
            return
        self.announce_reported(solver)
        # After an interruption there may be fewer instances.
        for candidates, known in zip(instances, solver.host_plans, strict=False):
            candidates.add_concurrent(known, solver.name)

    def run_phases(self, instances: Sequence[Candidates]) -> None:
        """Run all phases after the search."""
        if self.after.with_construction and self.after.then is None:
            for candidates in instances:
                candidates.add_construction()
        if self.after.polish:
            self.polish(instances)
        if self.after.then:
            self.hand_over(instances, self.after.then)

    def polish(self, instances: Sequence[Candidates]) -> None:
        """Improve the best plan of every instance, then the second best, while there is time."""
        before = [c.best.cost for c in instances]
        given = [c.plans[: TUNING.polished_plans] for c in instances]
        self.report(instances, "polish")  # that it begins
        try:
            self.polish_ranks(instances, given)
        finally:
            for candidates, cost in zip(instances, before, strict=True):
                polished_cost = candidates.best.cost
                candidates.polish = CostChange(cost, polished_cost)
            self.report(instances, "polish")

    def polish_ranks(
        self, instances: Sequence[Candidates], given: Sequence[Sequence[Candidate]]
    ) -> None:
        """Polish the given plans rank by rank. The first rank is polished even if it is late."""
        end = None
        if self.budget.seconds is not None:
            _, end = self.after.phase_ends(self.budget.seconds)
        make_polisher = self.task.plan_tools("a polish").polisher
        assert make_polisher is not None, "AfterSearch.check has refused"
        polishers = dict[int, Callable[[Any], Any]]()
        for rank in range(TUNING.polished_plans):
            for place, candidates in enumerate(instances):
                if rank and end is not None and self.seconds >= end:
                    return
                # No move would mend a plan that exceeds a limit.
                if rank >= len(given[place]) or candidates.solution.unmet:
                    continue
                if place not in polishers:
                    polishers[place] = make_polisher(candidates.solution.instance)
                plan = given[place][rank].plan
                candidates.add(polishers[place](plan), "polish")

    def hand_over(self, instances: Sequence[Candidates], name: str) -> None:
        """Let a solver improve the best different plans; instances share the time that is left.

        A solver that has worked at the same time as the search continues only if the search ended
        early.
        """
        assert self.budget.seconds is not None
        end = min(self.budget.seconds, self.seconds + self.after.max_solver_seconds)
        # If the search was late, the plans of a bad policy are still replaced while that is quick.
        last_construction = (1.0 + TUNING.late_share) * end
        self.report(instances, name)  # that it begins
        for place, candidates in enumerate(instances):
            left = end - self.seconds
            waiting = len(instances) - place
            share = left / waiting
            has_time = share > 0
            earlier = candidates.then
            if earlier and (earlier.trouble or share < TUNING.min_solver_seconds):
                continue
            if place == 0 or self.seconds < last_construction:
                candidates.add_construction()
            before = earlier.before if earlier else candidates.best.cost
            trouble = "" if has_time else "no time was left for it"
            try:
                if has_time:
                    self.run_solver(instances, place, name, share)
            except Exception as error:  # a solver's failure must not lose the plans that are there
                trouble = str(error) or type(error).__name__
            finally:
                candidates.then = CostChange(before, candidates.best.cost, trouble)
                self.report(instances, name)

    def run_solver(
        self, instances: Sequence[Candidates], place: int, name: str, seconds: float
    ) -> None:
        """Run a solver on one instance; keep and report its plans as they come."""
        candidates = instances[place]
        unmet = candidates.solution.unmet
        if unmet:
            raise Infeasible(f"there is no plan that it could start from: {unmet}")

        def found(plan: Plan) -> None:
            candidates.improve(plan, name)
            self.report(instances, name)

        best = self.different_plans(candidates, TUNING.handed_plans)
        plans = [c.plan for c in best]
        instance = candidates.solution.instance
        improvers.improve_plans(name, instance, plans, seconds, self.task.seed, found)

    def different_plans(self, candidates: Candidates, count: int) -> list[Candidate]:
        """Return the cheapest plans of an instance that are not similar to a cheaper one."""
        ranked = sorted(candidates.plans, key=lambda c: c.cost)
        if count == 1:
            return ranked[:1]
        if isinstance(self.task, HostTask):  # there are few plans, each of a phase of its own
            return ranked[:count]
        tools = self.task.plan_tools("different plans")
        instance = candidates.solution.instance
        return diverse.different_plans(self.task.problem, tools, instance, ranked, count)

    def result(self, candidates: Candidates) -> Solution:
        """Return the solution after all phases."""
        solution = candidates.solution
        best = candidates.best
        seconds = solution.seconds
        trace = solution.trace
        if candidates.polish or candidates.then:
            seconds = self.seconds
            trace = (*trace, (solution.attempts, seconds, float(best.cost)))
        others = self.different_plans(candidates, self.after.top)[1:]
        return replace(
            solution,
            plan=best.plan,
            cost=best.cost,
            phase=best.phase,
            seconds=seconds,
            trace=trace,
            polish=candidates.polish,
            then=candidates.then,
            others=tuple(others),
        )

    # --- callbacks

    def report(self, instances: Sequence[Candidates], phase: str) -> None:
        """Report progress after the search, and plans that are better than all before."""
        costs = [float(c.best.cost) for c in instances]
        best = torch.tensor(costs, dtype=torch.float64)
        if self.watch:
            attempts = self.task.account.attempts
            self.watch(Progress(attempts, self.seconds, best, best, None, phase))
        for row, candidates in enumerate(instances):
            self.announce(row, candidates.best.plan, phase)

    def watch_search(self, progress: Progress) -> None:
        """Pass on the progress of the search, and every improvement that it brings."""
        if self.watch:
            if self.concurrent is not None:
                progress = replace(progress, solver=self.concurrent.name)
            self.watch(progress)
        actions = self.task.account.actions
        if self.after.improved is None or actions is None:
            return
        known = self.announced_costs()
        best = progress.best.tolist()
        rows = [row for row, cost in enumerate(best) if cost < known[row]]
        sequences = actions[rows].tolist()
        for row, sequence in zip(rows, sequences, strict=True):
            plan = self.task.problem.decode(self.task.instances[row], sequence)
            self.announce(row, plan, "search")

    def announce_reported(self, solver: ConcurrentSolver) -> None:
        """Announce the newest plans of a solver that works at the same time as the search."""
        for row, plan in solver.take_reported().items():
            self.announce(row, plan, solver.name)

    def announce_first_plans(self, warm_start: Sequence[Plan | None]) -> None:
        """Announce the given plans first, and constructed ones of the other instances."""
        if self.after.improved is None:
            return
        for row, plan in enumerate(warm_start):
            if plan is not None:
                self.announce(row, plan, "warm start")
        if self.after.then is None and not self.after.with_construction:
            return  # what is announced may not cost less than the result
        seconds = math.inf
        if self.budget.seconds is not None:
            share = first_plans.TUNING.announced_share
            seconds = share * self.budget.seconds
        for row, plan in construct_within(self.task.instances, warm_start, seconds):
            self.announce(row, plan, "construction")

    def announce(self, row: int, plan: Plan, phase: str) -> None:
        """Announce a plan if it is the best of its instance so far, in the file's own metric."""
        if self.after.improved is None:
            return
        instance = self.task.instances[row]
        costs = self.announced_costs()
        cost = plan.cost(instance)
        if cost >= costs[row] or not is_feasible(plan, instance):
            return
        costs[row] = cost
        self.announced = costs
        attempts = self.task.account.attempts
        improvement = Improvement(instance, plan, cost, attempts, self.seconds, phase)
        self.after.improved(improvement)

    def announced_costs(self) -> list[float]:
        """Return the cheapest announced cost of each instance, infinite at first."""
        return self.announced or [float("inf")] * self.task.count
