"""What follows a search: polish, solvers, different plans, warm starts and callbacks."""

import itertools
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rhumbline import improvers, kernels
from rhumbline.api import solve
from rhumbline.domains.tsp import TSP_DOMAIN
from rhumbline.errors import InputError, MissingExtra, RhumbError
from rhumbline.kernels.numba.local_search import launch as local_moves
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRPInstance, Routes, cvrp_from_arrays
from rhumbline.problems.tsp import TSP, Tour, TSPInstance
from rhumbline.problems.tsp.construct import construct_tour
from rhumbline.search import after_search as finishing
from rhumbline.search import driver
from rhumbline.search.after_search import AfterSearch, Candidates, solve_task
from rhumbline.search.driver import Budget
from rhumbline.search.solution import Candidate, CostChange, incumbent
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.strategies.greedy_sampling import Greedy, Sampling
from rhumbline.search.task import account, make, make_task, pacing
from rhumbline.search.task import task as tasks

ROUNDED = TSPInstance("rounded", "EUC_2D", xy=np.random.default_rng(4).random((30, 2)) * 1000)


def run_phases(
    policy, instances, finish: AfterSearch, warm=(), budget: Budget | None = None, **more
):
    """Run a search and all phases after it."""
    task = make_task(TSP(), policy, instances)
    return solve_task(Sampling(), task, budget or Budget(24), None, finish, warm, **more)


def shared_edges(one: Tour, other: Tour) -> float:
    """Return the share of edges that two tours have in common."""
    edges = [
        {frozenset(e) for e in zip(t.order, (*t.order[1:], t.order[0]), strict=True)}
        for t in (one, other)
    ]
    return len(edges[0] & edges[1]) / len(edges[0])


# --- before the clock runs


def test_a_warm_up_run_changes_nothing(policy, make_instances) -> None:
    """The search after it makes the same attempts with the same noise as without it."""
    fresh, warmed_up = (make_task(TSP(), policy, make_instances(2, 9)) for _ in range(2))
    finishing.run_warm_up(CMAES(population=5), warmed_up, Budget(seconds=1.0))
    assert warmed_up.account.attempts == 0
    traces = [
        [p.best.tolist() for p in driver.stream(CMAES(population=5), t, Budget(23))]
        for t in (fresh, warmed_up)
    ]
    assert traces[0] == traces[1]
    assert len(traces[0]) == 5


@pytest.mark.parametrize(
    ("budget", "made"), [(Budget(seconds=1.0), 32), (Budget(attempts=10, seconds=1.0), 10)]
)
def test_a_warm_up_run_is_no_longer_than_the_search(
    policy, make_instances, monkeypatch, budget: Budget, made
) -> None:
    """It makes two default steps, or as many attempts as the search if that is less."""
    seen, task = [], make_task(TSP(), policy, make_instances(1, 5))
    monkeypatch.setattr(
        finishing, "stream", lambda strategy, task, budget: seen.append(budget) or []
    )
    monkeypatch.setattr(tasks.Task, "device", torch.device("cuda"))
    finishing.run_warm_up(CMAES(), task, budget)
    assert seen == [Budget(attempts=made)]


# --- polish


def test_a_polish_is_never_worse_and_reported_separately(policy, make_instances) -> None:
    """The cost before it is that of the search alone, the cost after it is the plan's.

    The trace ends with that.
    """
    instances = [*make_instances(3, 25), *make_instances(3, 25, seed=1)]
    plain, _ = run_phases(policy, instances, AfterSearch())
    polished, interrupted = run_phases(policy, instances, AfterSearch(polish=True))
    assert not interrupted
    for before, after in zip(plain, polished, strict=True):
        after.plan.check(after.instance)
        assert after.polish == CostChange(before.cost, after.cost)
        assert after.cost == after.plan.cost(after.instance) <= before.cost
        assert (after.phase, after.attempts) == ("polish", before.attempts)
        assert after.trace[-1][2] == after.cost
        assert before.polish is None
    assert sum(s.cost for s in polished) < 0.8 * sum(
        s.cost for s in plain
    )  # the policy has learnt nothing


def test_rounding_is_no_improvement() -> None:
    """The last bits of a sum depend on its order, so the earlier plan stays.

    A real improvement counts, however small.
    """
    costs = ((7.007936659069464, "search"), (7.007936659069462, "x"))
    plans = [Candidate(Tour((0, 1, 2)), cost, phase) for cost, phase in costs]
    assert Candidates(None, plans).best.phase == "search"
    assert Candidates(None, [*plans, Candidate(Tour((0, 2, 1)), 7.0079366, "y")]).best.phase == "y"


def test_several_plans_are_polished(policy, make_instances) -> None:
    """The result costs at most what polishing the incumbent alone gives, and sometimes less."""
    instances = make_instances(6, 25)
    plain, _ = run_phases(policy, instances, AfterSearch())
    polished, _ = run_phases(policy, instances, AfterSearch(polish=True))
    better = 0
    for before, after in zip(plain, polished, strict=True):
        distance = before.instance.distances
        order, _ = local_moves.shorten_tour(
            distance, local_moves.nearest_nodes(distance), before.plan.order
        )
        alone = Tour(tuple(order)).cost(before.instance)
        assert after.cost <= alone
        better += after.cost < alone - 1e-9
    assert better > 0


def test_polish_minimises_the_file_metric(policy) -> None:
    """With a rounded metric, the costs before and after are whole numbers."""
    (solution,), _ = run_phases(policy, [ROUNDED], AfterSearch(polish=True))
    assert isinstance(solution.cost, int)
    assert (
        solution.cost
        == solution.plan.cost(ROUNDED)
        == solution.polish.after
        < solution.polish.before
    )


def test_polish_is_deterministic(policy, make_instances) -> None:
    """The same search is polished to the same plan."""
    one, two = (
        run_phases(policy, make_instances(2, 20), AfterSearch(polish=True))[0] for _ in range(2)
    )
    assert [s.plan for s in one] == [s.plan for s in two]


class Clock:
    """A clock that moves when something is rolled out or polished."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rollout: float, polish: float):
        self.now = 0.0
        self.polished = []
        real_try = tasks.Task._try
        tools = TSP_DOMAIN.plans

        def slow_try(task, *arguments, **options):
            rolled = real_try(task, *arguments, **options)
            self.now += rollout
            return rolled

        def slow_polisher(instance):
            real = tools.polisher(instance)

            def polish_slowly(plan):
                self.now += polish
                self.polished.append(instance.name)
                return real(plan)

            return polish_slowly

        clock = SimpleNamespace(monotonic=lambda: self.now)
        for module in (account, driver, make, tasks, finishing):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(tasks.Task, "_try", slow_try)
        slow = replace(tools, polisher=slow_polisher)
        monkeypatch.setattr(tasks.Task, "plan_tools", lambda *_: slow)


def one_rollout_per_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the task look at the clock after every rollout."""
    small = replace(
        pacing.TUNING,
        piece_elements_cpu=1,
        first_piece_elements=1,
        max_piece_seconds=0.0,
        max_torch_piece_seconds=0.0,
    )
    monkeypatch.setattr(pacing, "TUNING", small)


def test_polish_stops_at_the_deadline(policy, make_instances, monkeypatch) -> None:
    """The search leaves half a second of ten to the polish.

    No plan is polished after the end, except the best plan of each instance.
    """
    clock = Clock(monkeypatch, rollout=1.0, polish=0.15)
    one_rollout_per_piece(monkeypatch)
    instances = make_instances(2, 8)
    solutions, _ = run_phases(
        policy, instances, AfterSearch(polish=True), budget=Budget(seconds=9.6)
    )
    assert solutions[0].attempts == 10  # the piece that begins at 9.0 is the last before 9.1
    assert clock.polished == [
        "random-0",
        "random-1",
    ]  # at 10.0 time is up: only what is always run_phases
    assert solutions[0].seconds == pytest.approx(10.3)


def test_time_that_is_left_goes_to_more_plans(policy, make_instances, monkeypatch) -> None:
    """A search that ends early leaves its time to the polish of the second plans."""
    clock = Clock(monkeypatch, rollout=0.1, polish=1.0)
    task = make_task(TSP(), policy, make_instances(2, 8))
    solve_task(Greedy(), task, Budget(attempts=1, seconds=4.0), None, AfterSearch(polish=True))
    assert clock.polished == ["random-0", "random-1", "random-0", "random-1"]


def test_polish_needs_numba(policy, monkeypatch) -> None:
    """Without numba the error names the install line, before anything is searched."""
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"a polish needs numba; get it with: pip install 'rhumbline\[cpu\]'"
    ):
        solve(ROUNDED, policy=policy, attempts=1, polish=True)


def test_interrupted_polish_keeps_the_plans(policy, make_instances, monkeypatch) -> None:
    """Ctrl-C during a polish returns the plans found so far, and says so."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(local_moves, "shorten_tour", interrupted)
    solutions, stopped = run_phases(policy, make_instances(2, 8), AfterSearch(polish=True))
    assert stopped
    assert [s.phase for s in solutions] == ["search", "search"]


def test_an_interruption_at_the_very_end_loses_no_phase(
    policy, make_instances, monkeypatch
) -> None:
    """Ctrl-C while results are collected: they are collected again, polish included."""
    real, calls = finishing.AfterSearchRun.result, []

    def result(work, candidates):
        calls.append(candidates)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return real(work, candidates)

    monkeypatch.setattr(finishing.AfterSearchRun, "result", result)
    solutions, stopped = run_phases(policy, make_instances(2, 30), AfterSearch(polish=True))
    assert stopped
    assert [s.phase for s in solutions] == ["polish", "polish"]


# --- different plans


def test_top_plans_differ(policy, make_instances) -> None:
    """The other plans are feasible, cost no less, ascend, and share at most 19 of 20 edges."""
    (solution,), _ = run_phases(policy, make_instances(1, 30), AfterSearch(top=5))
    plans = [solution, *solution.others]
    assert len(plans) == 5
    for k, candidate in enumerate(plans):
        candidate.plan.check(solution.instance)
        assert candidate.cost == candidate.plan.cost(solution.instance)
        assert k == 0 or candidate.cost >= plans[k - 1].cost
        assert all(shared_edges(candidate.plan, other.plan) <= 0.95 for other in plans[:k])


def test_no_more_plans_than_there_are(policy) -> None:
    """Four cities have three tours, and no more are returned."""
    (solution,) = solve(
        np.random.default_rng(0).random((4, 2)),
        policy=policy,
        strategy=Sampling(),
        attempts=64,
        top=9,
    )
    assert len(solution.others) <= 2


def test_the_diverse_set_changes_no_search(policy, make_instances) -> None:
    """The best plan is the same whether others are kept or not. By default nothing is kept."""
    instances = make_instances(2, 12)
    task = make_task(TSP(), policy, instances)
    solve_task(Sampling(), task, Budget(24))
    assert task.account.diverse_set is None
    plain, _ = run_phases(policy, instances, AfterSearch())
    several, _ = run_phases(policy, instances, AfterSearch(top=4))
    assert [s.plan for s in plain] == [s.plan for s in several]
    assert all(not s.others for s in plain)


def test_top_plans_equal_those_of_a_plain_list(monkeypatch) -> None:
    """A trained policy repeats the best tour.

    The next best plans are found behind hundreds of copies.
    """
    made, real = list[torch.Tensor](), tasks.Task._try

    def watched(task, *more):
        rolled = real(task, *more)
        made.append(rolled.actions.flatten(0, 2))
        return rolled

    monkeypatch.setattr(tasks.Task, "_try", watched)
    (solution,) = solve(
        ROUNDED, policy="tsp100", strategy=Sampling(), attempts=16, top=6, device="cpu"
    )
    tours = {Tour(tuple(order)) for order in torch.cat(made).tolist()}
    kept = list[tuple[int | float, set[frozenset[int]]]]()
    for cost, order in sorted((tour.cost(ROUNDED), tour.order) for tour in tours):
        edges = {frozenset((a, b)) for a, b in itertools.pairwise((*order, order[0]))}
        if all(len(edges & other) <= 0.95 * len(edges) for _, other in kept):
            kept.append((cost, edges))
    assert len(kept) >= 6
    assert [solution.cost, *(other.cost for other in solution.others)] == [
        cost for cost, _ in kept[:6]
    ]


@pytest.mark.parametrize("top", [0, -1, 101])
def test_impossible_numbers_of_plans_are_refused(top: int) -> None:
    """A number of plans outside 1 to 100 is refused."""
    with pytest.raises(InputError, match=f"top must be 1 to 100, not {top}"):
        AfterSearch(top=top)


# --- warm starts


def optimal(instance: TSPInstance) -> Tour:
    """Return the best local optimum of many orders; an untrained policy does not beat it."""
    distance = instance.distances
    rng, near = np.random.default_rng(0), local_moves.nearest_nodes(distance)
    found = [
        local_moves.shorten_tour(distance, near, rng.permutation(instance.size))[0]
        for _ in range(20)
    ]
    return min((Tour(tuple(order)) for order in found), key=lambda tour: tour.cost(instance))


def test_no_result_is_worse_than_the_warm_start(policy) -> None:
    """A plan that the search cannot beat is returned as it is, with the phase it came from."""
    plan = optimal(ROUNDED)
    (solution,) = solve(ROUNDED, policy=policy, strategy=Sampling(), attempts=8, warm_start=plan)
    assert (solution.plan, solution.phase, solution.attempts) == (plan, "warm start", 8)
    assert {cost for _, _, cost in solution.trace} == {float(plan.cost(ROUNDED))}


def test_a_bad_warm_start_is_replaced(policy) -> None:
    """A plan that is easily beaten does not change the result."""
    worst = Tour(tuple(range(30)))
    (warm,) = solve(ROUNDED, policy=policy, strategy=Sampling(), attempts=64, warm_start=[worst])
    (cold,) = solve(ROUNDED, policy=policy, strategy=Sampling(), attempts=64)
    assert (warm.plan, warm.phase) == (cold.plan, "search")


def test_equal_up_to_rounding_is_not_better(policy, make_instances, monkeypatch) -> None:
    """Costs on the device are rounded.

    A plan that is worse by less than that does not replace the warm start.
    """
    (instance,) = make_instances(1, 8)
    plan = optimal(instance)
    real = tasks.rollout

    def flattered(*arguments, **options):
        rolled = real(*arguments, **options)
        return tasks.Rollouts(rolled.cost * 0.0, rolled.actions)

    monkeypatch.setattr(tasks, "rollout", flattered)
    (solution,) = solve(
        instance, policy=policy, strategy=Sampling(population=1), attempts=1, warm_start=plan
    )
    assert solution.cost == plan.cost(instance)


def test_warm_starts_of_some_instances(policy, make_instances) -> None:
    """In a batch some instances have a plan and others none.

    Each result is as if the instance were alone.
    """
    instances = make_instances(3, 15)
    given = [None, optimal(instances[1]), None]
    together = solve(instances, policy=policy, strategy=Sampling(), attempts=8, warm_start=given)
    alone = [
        solve(i, policy=policy, strategy=Sampling(), attempts=8, warm_start=g)[0]
        for i, g in zip(instances, given, strict=True)
    ]
    assert [s.plan for s in together] == [s.plan for s in alone]
    assert together[1].plan == given[1]


def test_warm_starts_are_polished(policy) -> None:
    """A polish takes the given plan as well as those of the search."""
    plan = Tour(tuple(range(30)))
    (solution,) = solve(
        ROUNDED, policy=policy, strategy=Greedy(), warm_start=plan, polish=True, attempts=1
    )
    distance = ROUNDED.distances
    order, _ = local_moves.shorten_tour(distance, local_moves.nearest_nodes(distance), plan.order)
    assert solution.cost <= Tour(tuple(order)).cost(ROUNDED)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (
            Tour((0, 1, 2)),
            "the plan to start from is infeasible: rounded: the tour visits city 4 0 times",
        ),
        (Routes(((1, 2),)), "rounded: a Routes is no plan for a tsp"),
        ([Tour((0, 1, 2)), None], "2 plans to start from, but 1 instances"),
    ],
)
def test_wrong_warm_starts_are_refused(policy, plan, words: str) -> None:
    """A plan that breaks the rules or belongs to another problem is an error with the reason."""
    with pytest.raises(InputError, match=words):
        solve(ROUNDED, policy=policy, attempts=1, warm_start=plan)


@pytest.mark.parametrize(
    "wanted", [{}, {"polish": True}, {"top": 2}], ids=["nothing", "a polish", "several"]
)
def test_interruption_before_the_first_attempt_returns_the_warm_start(
    policy, monkeypatch, wanted
) -> None:
    """The given plan is not lost, even if several plans of the search were wanted."""

    def never(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks.Task, "_try", never)
    plan = optimal(ROUNDED)
    (solution,) = solve(ROUNDED, policy=policy, attempts=4, warm_start=plan, **wanted)
    assert (solution.plan, solution.attempts, solution.others) == (plan, 0, ())


# --- solvers


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch):
    """A solver that does what its `work` says and records how it was called."""
    fake = SimpleNamespace(calls=[], work=lambda instance, plans: optimal(instance))

    def improve(name, instance, plans, seconds, seed, found):
        fake.calls.append((name, instance.name, plans, seconds, seed))
        if (plan := fake.work(instance, plans)) is not None:
            found(plan)

    monkeypatch.setattr(improvers, "improve_plans", improve)
    monkeypatch.setattr(improvers, "find_spec", lambda name: True)
    monkeypatch.setattr(improvers, "prepare_solver", lambda name: None)
    return fake


def test_a_solver_continues(policy, solver) -> None:
    """It gets the best different plans, cheapest first, and the second half of the seconds.

    Its plan is the result.
    """
    (solution,) = solve(ROUNDED, policy=policy, strategy=Greedy(), seconds=50.0, then="lkh", seed=3)
    ((name, instance, plans, seconds, seed),) = solver.calls
    costs = [plan.cost(ROUNDED) for plan in plans]
    assert (name, instance, seed) == ("lkh", "rounded", 3)
    assert 1 < len(plans) <= finishing.TUNING.handed_plans
    assert costs == sorted(costs)
    assert 45.0 < seconds < 50.0  # greedy ends at once and leaves its half
    assert (solution.phase, solution.cost) == ("lkh", optimal(ROUNDED).cost(ROUNDED))
    assert solution.then == CostChange(costs[0], solution.cost)


def test_auto_is_our_own_solver_for_each_problem(policy, solver) -> None:
    """Tours, routes and schedules in one call: each result says which solver found it."""
    sources = ["examples/harbour100.tsp", "examples/bakery80.vrp", "examples/workshop12.jsp"]
    solver.work = lambda instance, plans: None
    found = solve(sources, strategy=Greedy(), seconds=50.0, then="auto")
    assert [call[:2] for call in solver.calls] == [
        ("ils", "harbour100"),
        ("ruin", "bakery80"),
        ("tabu", "workshop12"),
    ]
    assert all(solution.then == CostChange(solution.cost, solution.cost) for solution in found)


def test_the_search_gets_half_of_the_time(policy, make_instances, solver, monkeypatch) -> None:
    """Of ten seconds the search gets five, and two instances share the rest."""
    Clock(monkeypatch, rollout=1.0, polish=0.0)
    one_rollout_per_piece(monkeypatch)
    solutions, _ = run_phases(
        policy, make_instances(2, 8), AfterSearch(then="lkh"), budget=Budget(seconds=10.0)
    )
    assert solutions[0].attempts == 5
    assert [call[3] for call in solver.calls] == [
        2.5,
        5.0,
    ]  # the clock stands still in the fake solver


@pytest.mark.parametrize("nothing", [None, Tour(tuple(range(30)))])
def test_a_solver_that_finds_nothing_better(policy, solver, nothing) -> None:
    """The best plan before it stays, and its phase says so: the policy has learnt nothing."""
    solver.work = lambda instance, plans: nothing
    (solution,) = solve(ROUNDED, policy=policy, strategy=Greedy(), seconds=50.0, then="lkh")
    assert (solution.phase, solution.plan) == ("construction", construct_tour(ROUNDED))
    assert solution.then == CostChange(solution.cost, solution.cost)


def test_a_solver_without_time_is_reported(policy, make_instances, solver, monkeypatch) -> None:
    """The solver is not called if the first attempt took all seconds; the result says why."""
    Clock(monkeypatch, rollout=20.0, polish=0.0)
    (solution,), _ = run_phases(
        policy, make_instances(1, 8), AfterSearch(then="lkh"), budget=Budget(seconds=10.0)
    )
    assert solver.calls == []
    assert solution.then == CostChange(solution.cost, solution.cost, "no time was left for it")


def test_a_solver_that_fails_loses_nothing(policy, solver) -> None:
    """The error is reported beside the plan before it; so is a plan that breaks the rules."""

    def crash(instance, plans):
        raise RhumbError("LKH ended by itself with code 134")

    for work, words in ((crash, "code 134"), (lambda *_: Tour((0, 0, 1)), "visits city")):
        solver.work = work
        (solution,) = solve(ROUNDED, policy=policy, strategy=Greedy(), seconds=50.0, then="lkh")
        assert solution.plan == construct_tour(ROUNDED)
        assert words in solution.then.trouble


def test_solvers_need_seconds_a_problem_and_a_package(policy, monkeypatch) -> None:
    """What cannot work is refused before the search, with advice."""
    for options, error, words in (
        ({"then": "ils", "attempts": 5}, InputError, "so say how many there are: seconds"),
        (
            {"then": "gurobi", "seconds": 5.0},
            InputError,
            "'gurobi' is no solver; known: auto, none, ils, lkh, pyvrp, ruin, tabu, cpsat",
        ),
        (
            {"then": "cpsat", "seconds": 5.0},
            InputError,
            "cpsat solves jssp, not tsp; use ils or lkh or pyvrp",
        ),
    ):
        with pytest.raises(error, match=words):
            solve(ROUNDED, policy=policy, **options)
    monkeypatch.setattr(improvers, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"pyvrp needs pyvrp; get it with: pip install 'rhumbline\[solvers\]'"
    ):
        solve(ROUNDED, policy=policy, then="pyvrp", seconds=5.0)


def test_a_broken_solver_is_refused_before_the_search(policy, monkeypatch) -> None:
    """It is installed but broken: the reason comes before any work."""

    def broken(name: str) -> Any:
        if name == "pyvrp":
            raise ImportError("a library of its own is missing")
        return import_module(name)

    monkeypatch.setattr(improvers, "find_spec", lambda name: True)
    monkeypatch.setattr(improvers, "import_module", broken)
    with pytest.raises(
        MissingExtra, match="pyvrp, which is installed but fails: a library of its own is missing"
    ):
        solve(ROUNDED, policy=policy, then="pyvrp", seconds=5.0)


# --- callbacks


def test_improvements_are_announced(policy, make_instances) -> None:
    """Each call brings a verified, strictly cheaper plan of its instance.

    The last one is the solution.
    """
    announced, instances = [], make_instances(2, 20)
    solutions = solve(
        instances,
        policy=policy,
        strategy=Sampling(),
        attempts=48,
        polish=True,
        improved=announced.append,
    )
    for solution in solutions:
        mine = [t for t in announced if t.instance is solution.instance]
        assert [t.cost for t in mine] == [t.plan.cost(t.instance) for t in mine]
        assert all(after.cost < before.cost for before, after in itertools.pairwise(mine))
        assert (mine[-1].plan, mine[-1].phase) == (solution.plan, "polish")
        assert (mine[0].phase, mine[0].attempts) == ("search", 16)
        assert all(after.seconds >= before.seconds for before, after in itertools.pairwise(mine))


def far_from_planes() -> TSPInstance:
    """Return 30 cities at distances of 1 around a circle, and of 100 otherwise."""
    matrix = np.full((30, 30), 100.0)
    np.fill_diagonal(matrix, 0.0)
    cities = np.arange(30)
    matrix[cities, cities - 1] = 1.0
    matrix[cities - 1, cities] = 1.0
    return TSPInstance("far", "EXPLICIT", matrix=matrix)


@pytest.mark.parametrize("budget", [{"attempts": 2}, {"attempts": 2, "seconds": 1.0}])
def test_constructions_count_where_the_policy_cannot_help(policy, budget: dict[str, Any]) -> None:
    """The nearest neighbours are the optimum there; they are announced first."""
    announced = []
    instance = far_from_planes()
    (solution,) = solve(instance, policy=policy, improved=announced.append, **budget)
    assert solution.cost == 30
    assert [(t.phase, t.cost) for t in announced] == [("construction", 30)]


def test_without_local_search_only_the_search_counts(policy) -> None:
    """If that is what was asked for; nothing cheaper than the result is announced."""
    announced = []
    instance = far_from_planes()
    (solution,) = solve(
        instance, policy=policy, improved=announced.append, attempts=2, seconds=9.0, then=None
    )
    assert announced[0].phase == "search"
    assert solution.cost == announced[-1].cost > 100


def test_a_warm_start_is_announced_first(policy) -> None:
    """The curve begins with the given plan, at no attempts."""
    announced = []
    solve(
        ROUNDED,
        policy=policy,
        attempts=4,
        warm_start=Tour(tuple(range(30))),
        improved=announced.append,
    )
    assert (announced[0].phase, announced[0].attempts, announced[0].plan) == (
        "warm start",
        0,
        Tour(tuple(range(30))),
    )
    assert announced[1].phase == "search"


def test_phases_are_watched(policy, make_instances) -> None:
    """Progress is reported when the polish begins and ends, with the costs before and after it."""
    seen = []
    (solution,) = solve(
        make_instances(1, 20), policy=policy, attempts=8, polish=True, watch=seen.append
    )
    assert [p.phase for p in seen] == ["search", "polish", "polish"]
    before, after = solution.polish.before, solution.polish.after
    assert [p.best.item() for p in seen] == pytest.approx([before, before, after])


def test_a_solver_is_reported_when_it_begins(policy, make_instances, solver) -> None:
    """Its name is reported for each instance before it has found anything."""
    seen, announced = [], []
    solver.work = lambda instance, plans: announced.append(seen[-1].phase)
    solve(
        make_instances(2, 20),
        policy=policy,
        attempts=8,
        seconds=60,
        polish=True,
        then="lkh",
        watch=seen.append,
    )
    assert announced == ["lkh", "lkh"]


def test_the_text_of_a_solution_is_short(policy) -> None:
    """It names instance, cost, gap, attempts and seconds, and holds no matrix."""
    known = TSPInstance(
        "square", "EUC_2D", xy=np.array([[0.0, 0], [0, 10], [10, 10], [10, 0]]), best_known=40.0
    )
    (solution,) = solve(known, policy=policy, attempts=16)
    text = repr(solution)
    assert text.startswith("<Solution of square: cost 40, gap 0.00%, 16 attempts, ")
    assert len(text) < 80


# --- CVRP


def test_a_warm_start_within_the_fleet_is_kept(monkeypatch) -> None:
    """It is returned if all plans of the search need more vehicles."""
    xy = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    instance = CVRPInstance("fleet", "EXACT_2D", (0, 1, 1, 1), 3, xy=xy, vehicles=1)
    warm = Routes(((1, 2, 3),))
    found = Routes(((1,), (2, 3)))
    best, unmet = incumbent(instance, found, warm, attempts=7)
    assert (best.plan, best.phase, unmet) == (warm, "warm start", None)
    best, unmet = incumbent(instance, found, None, attempts=7)
    assert best.plan == found
    assert unmet is not None
    assert "2 vehicles" in unmet
    assert "7 attempts" in unmet


def test_routes_go_through_all_phases(solver) -> None:
    """CVRP plans are kept, polished, handed over and used as warm starts, as tours are."""
    rng = np.random.default_rng(0)
    instance = cvrp_from_arrays(rng.random(2), rng.random((20, 2)), rng.integers(1, 10, 20), 30)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        untrained = CVRPPolicy(Architecture(32, 2, 1, 32, 4)).requires_grad_(False)
    solver.work = lambda instance, plans: plans[0]
    options = {"policy": untrained, "strategy": Sampling(population=4), "attempts": 8}
    (solution,) = solve(instance, seconds=60.0, polish=True, top=3, then="pyvrp", **options)
    for candidate in (solution, *solution.others):
        candidate.plan.check(instance)
        assert candidate.cost == candidate.plan.cost(instance)
    assert solution.polish.after < solution.polish.before
    assert (solution.phase, len(solution.others)) == ("polish", 2)
    assert 1 < len(solver.calls[0][2]) <= finishing.TUNING.handed_plans
    (warm,) = solve(instance, warm_start=solution.plan, **options)
    assert (warm.plan, warm.phase) == (solution.plan, "warm start")
