"""Local search at the same time as a search: when, what is exchanged, and how both end.

A CPU stands in for the GPU: the concurrent solver does not read where the search runs.
"""

import itertools
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rhumbline import improvers, pipeline
from rhumbline.cli.output import progress as bars
from rhumbline.cli.solve_run import group_header
from rhumbline.domains import DOMAINS
from rhumbline.errors import RhumbError
from rhumbline.kernels.numba.local_search import launch as local_moves
from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPInstance, Routes
from rhumbline.problems.jssp import JSSP
from rhumbline.problems.jssp import jssp_from_arrays as shop
from rhumbline.problems.tsp import TSP, Tour, TSPInstance
from rhumbline.search import concurrent_solver as concurrent
from rhumbline.search.after_search import AfterSearch, solve_task
from rhumbline.search.concurrent_solver import can_work_concurrently
from rhumbline.search.driver import Budget, Progress, stream
from rhumbline.search.plan_sets.diverse import DiverseSet
from rhumbline.search.solution import CostChange, Solution
from rhumbline.search.strategies.cmaes_refine import CMAESRefine
from rhumbline.search.strategies.greedy_sampling import Greedy, Sampling
from rhumbline.search.task import Spent, Task, enter_plans, make_task
from rhumbline.search.task import task as tasks

CITIES = TSPInstance("cities", "EUC_2D", xy=np.random.default_rng(4).random((30, 2)) * 1000)
CONCURRENT = AfterSearch(then="ils", concurrent=True)


def local_optimum(instance: TSPInstance) -> Tour:
    """Return the best local optimum of many orders; an untrained policy does not beat it."""
    distance = instance.distances
    rng = np.random.default_rng(0)
    near = local_moves.nearest_nodes(distance)
    found = [
        local_moves.shorten_tour(distance, near, rng.permutation(instance.size))[0]
        for _ in range(20)
    ]
    return min((Tour(tuple(order)) for order in found), key=lambda tour: tour.cost(instance))


OPTIMUM = local_optimum(CITIES)
OPTIMAL_COST = OPTIMUM.cost(CITIES)


@dataclass
class SlowSampling:
    """Samples one tour from each start in each step, until something has happened."""

    until: Callable[[], bool] = lambda: False
    before_step: Callable[[Task, int], None] = lambda task, number: None
    seconds: float = 0.01  # of a step
    costs: list[list[float]] = field(default_factory=list)  # of the incumbents, before each step

    def init(self, task: Task) -> int:
        return 0

    def step(self, task: Task, number: int) -> Any:
        if task.account.best is not None:
            self.costs.append(task.account.best.tolist())
        self.before_step(task, number)
        time.sleep(self.seconds)
        latents = task.policy.space.centre((task.count, 1), task.device)
        rolled = task.rollout(latents, 1.0)
        return None if self.until() else number + 1, latents, rolled


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A solver that does what its `work` says and records what its slices start from.

    It finds nothing after the search.
    """
    fake = SimpleNamespace(starts=[], seeds=[], seconds=[], work=lambda call: None)
    fake.uses_its_time = True
    short = replace(
        concurrent.TUNING,
        first_slice_share=0.0,
        later_slice_share=0.0,
        min_slice_seconds=0.05,
    )
    monkeypatch.setattr(concurrent, "TUNING", short)

    def improve(instance, plans, seconds, seed, on_plan, stopped) -> None:
        fake.starts.append([plan.cost(instance) for plan in plans])
        fake.seeds.append(seed)
        fake.seconds.append(seconds)
        end = time.monotonic() + seconds
        fake.work(SimpleNamespace(instance=instance, found=on_plan, stopped=stopped))
        if fake.uses_its_time:
            stopped.wait(max(0.0, end - time.monotonic()))

    monkeypatch.setattr(improvers, "load_stoppable", lambda name: SimpleNamespace(improve=improve))
    monkeypatch.setattr(improvers, "improve_plans", lambda *given: None)
    monkeypatch.setattr(improvers, "prepare_solver", lambda name: None)
    return fake


@pytest.fixture
def enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the local search at the same time on."""
    monkeypatch.setattr(concurrent, "TUNING", replace(concurrent.TUNING, enabled=True))


def test_it_is_off_by_default() -> None:
    """A GPU has not measured it, so even the best case keeps the order."""
    assert not can_work_concurrently("cuda", Budget(seconds=10.0), "ils", 1, 8)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    """Fail if a test leaves a thread running."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def run(
    policy: Any, strategy: Any, seconds: float = 60.0, after: AfterSearch = CONCURRENT
) -> tuple[Solution, bool]:
    """Solve the cities; return the verified solution, and whether Ctrl-C ended the run."""
    task = make_task(TSP(), policy, [CITIES])
    (solution,), interrupted = solve_task(strategy, task, Budget(seconds=seconds), None, after)
    solution.plan.check(CITIES)
    assert solution.cost == solution.plan.cost(CITIES)
    return solution, interrupted


# --- when


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"device_type": "cpu"}, False),
        ({"budget": Budget(100)}, False),
        ({"budget": Budget(100, 10.0)}, False),
        ({"budget": Budget(seconds=0.4)}, False),
        ({"solver": None}, False),
        ({"solver": "auto"}, False),
        ({"solver": "lkh"}, False),
        ({"solver": "pyvrp"}, False),
        ({"solver": "cpsat"}, False),
        ({"solver": "ruin"}, True),
        ({"solver": "tabu"}, True),
        ({"cores": 1}, False),
        ({"instances": 8}, True),
        ({"instances": 9}, False),
    ],
)
def test_when_a_solver_works_at_the_same_time(
    enabled, changed: dict[str, Any], expected: bool
) -> None:
    """It is our own, on the host of a GPU, under a time limit, with few instances."""
    default: dict[str, Any] = {
        "device_type": "cuda",
        "budget": Budget(seconds=10.0),
        "solver": "ils",
        "instances": 1,
        "cores": 8,
    }
    assert can_work_concurrently(**default | changed) == expected


@pytest.mark.parametrize(
    ("device", "budget", "expected", "words"),
    [
        ("cuda", Budget(seconds=10.0), True, ", with ils"),
        ("cuda", Budget(10**9, 10.0), False, ", then ils"),
        ("cuda", pipeline.DEFAULT_BUDGET, False, ", then ils"),
        ("cpu", Budget(seconds=10.0), False, ", then ils"),
    ],
)
def test_the_pipeline_decides_and_says_so(
    policy, enabled, monkeypatch, device: str, budget: Budget, expected: bool, words: str
) -> None:
    """The line before a group names the solver that works with the search, or after it."""
    instances = [CITIES]
    request = pipeline.SolveRequest(
        budget, Sampling(), policy=policy, device="cpu", after=AfterSearch(then="auto")
    )
    monkeypatch.setattr(pipeline, "worker_threads", lambda: 8)
    groups = pipeline.group_instances(instances)
    runs = pipeline.make_runs(instances, groups, request)
    monkeypatch.setattr(tasks.Task, "device", torch.device(device))
    chosen = next(runs)
    assert chosen.after.concurrent == expected
    assert words in group_header(chosen)


@pytest.mark.parametrize(
    ("after", "ends"),
    [
        (CONCURRENT, (10.0, 10.0)),
        (replace(CONCURRENT, polish=True), (9.5, 10.0)),
        (AfterSearch(then="ils"), (5.0, 5.0)),
        (AfterSearch(concurrent=True), (10.0, 10.0)),
    ],
)
def test_both_have_all_seconds(after: AfterSearch, ends: tuple[float, float]) -> None:
    """A polish still comes at the end."""
    assert after.phase_ends(10.0) == ends


# --- plans enter a search


def test_a_plan_enters_the_account_and_the_diverse_set(policy) -> None:
    """It costs no attempt, and other instances keep theirs."""
    other = TSPInstance("other", "EUC_2D", xy=np.random.default_rng(5).random((30, 2)) * 1000)
    task = make_task(TSP(), policy, [CITIES, other])
    plain = make_task(TSP(), policy, [CITIES, other])
    for one in (task, plain):
        tools = one.plan_tools("a test")
        one.account.diverse_set = DiverseSet(tools, 3, one.original_batch)
        next(stream(Sampling(), one, Budget(64)))
    (decoded, missing) = enter_plans(task, [OPTIMUM, None])
    assert decoded is not None
    assert (decoded.cost(CITIES), missing) == (OPTIMAL_COST, None)
    assert task.account.attempts == plain.account.attempts
    assert task.account.best[0] == OPTIMAL_COST < plain.account.best[0]
    assert task.account.best[1] == plain.account.best[1]
    assert TSP().decode(CITIES, task.incumbents[0].tolist()) == decoded
    kept, known = task.account.diverse_set.plans(), plain.account.diverse_set.plans()
    assert TSP().decode(CITIES, kept[0][0]) == decoded
    assert kept[1] == known[1]
    assert task.account.given == [True, False]


def test_a_worse_plan_does_not_become_the_incumbent(policy) -> None:
    """A plan that costs more than the incumbent changes nothing that a strategy reads."""
    task = make_task(TSP(), policy, [CITIES])
    next(stream(Sampling(), task, Budget(64)))
    best, actions = task.account.best, task.incumbents
    worst = max(
        (Tour(tuple(np.random.default_rng(k).permutation(30).tolist())) for k in range(9)),
        key=lambda tour: tour.cost(CITIES),
    )
    assert worst.cost(CITIES) > best.item()
    enter_plans(task, [worst])
    assert torch.equal(task.account.best, best)
    assert torch.equal(task.incumbents, actions)


def test_schedules_and_routes_enter_as_well(driver) -> None:
    """Plans of every problem are priced as rollouts are."""
    rng = np.random.default_rng(0)
    jobs = shop(rng.integers(1, 9, (4, 3)), np.stack([rng.permutation(3) for _ in range(4)]))
    towns = CVRPInstance("towns", "EXACT_2D", (0, *[1] * 9), 3, xy=rng.random((10, 2)))
    sizes = JSSPArchitecture(width=32, heads=2, layers=1, hidden=16)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        dispatcher = JSSPPolicy(sizes).requires_grad_(False)
    for rules, policy, instance in ((JSSP(), dispatcher, jobs), (CVRP(), driver, towns)):
        task = make_task(rules, policy, [instance])
        next(stream(Greedy(), task, Budget(1)))
        found = task.account.best.item()
        plan = DOMAINS[rules.name].construct(instance)
        (decoded,) = enter_plans(task, [plan])
        decoded.check(instance)
        scale = task.original_batch.scale.item()
        least = min(found * scale, decoded.cost(instance))
        assert task.account.best.item() * scale == pytest.approx(least, rel=1e-5)


# --- exchange


def test_a_plan_of_the_solver_becomes_the_incumbent_of_the_search(policy, solver) -> None:
    """It is found in the second slice. Later steps see it, and the result is the solver's."""

    def work(call: Any) -> None:
        if len(solver.starts) == 2:
            call.found(OPTIMUM)

    solver.work = work
    strategy = SlowSampling()
    strategy.until = lambda: len(solver.starts) > 2 and [OPTIMAL_COST] in strategy.costs
    solution, interrupted = run(policy, strategy)
    assert not interrupted
    assert strategy.costs[0] > [OPTIMAL_COST]
    assert strategy.costs[-1] == [OPTIMAL_COST]
    assert (solution.cost, solution.phase) == (OPTIMAL_COST, "ils")
    assert solution.then == CostChange(min(solver.starts[0]), OPTIMAL_COST)
    assert solver.starts[2][0] == OPTIMAL_COST  # the next slice starts from it


def test_a_plan_of_the_search_is_what_the_next_slice_starts_from(policy, solver) -> None:
    """The search finds it while the first slice is under way."""

    def plant(task: Task, number: int) -> None:
        while number and not solver.starts:
            time.sleep(0.001)
        if number == 1:
            enter_plans(task, [OPTIMUM])

    strategy = SlowSampling(lambda: any(OPTIMAL_COST in costs for costs in solver.starts), plant)
    solution, _ = run(policy, strategy)
    assert solver.starts[0][0] > OPTIMAL_COST
    assert solver.starts[-1][0] == OPTIMAL_COST
    assert (solution.cost, solution.phase) == (OPTIMAL_COST, "search")


def test_cmaes_refine_takes_the_plan_into_its_elite(policy, solver, monkeypatch) -> None:
    """So its LNS refines it: the elite has a plan of that cost in later steps."""
    solver.work = lambda call: call.found(OPTIMUM)
    elites: list[float] = []
    real = CMAESRefine.resample

    def watched(self, task, latent, rollouts, memory, elite_set):
        elites.append(elite_set.cost.min().item())
        if elites[-1] <= OPTIMAL_COST:
            raise Spent
        return real(self, task, latent, rollouts, memory, elite_set)

    monkeypatch.setattr(CMAESRefine, "resample", watched)
    solution, _ = run(policy, CMAESRefine(population=2, starts=0.1))
    assert elites[0] > OPTIMAL_COST
    assert elites[-1] <= OPTIMAL_COST
    assert solution.cost <= OPTIMAL_COST


def test_a_slice_starts_from_different_plans(policy, solver) -> None:
    """They come cheapest first, and every slice has a seed of its own."""
    run(policy, SlowSampling(lambda: len(solver.starts) > 2))
    for costs in solver.starts:
        assert 1 < len(costs) <= 5
        assert costs == sorted(costs)
    assert solver.seeds == list(range(len(solver.seeds)))
    assert all(seconds > 0 for seconds in solver.seconds)


def test_a_solver_that_ends_early_waits_for_a_cheaper_plan(policy, solver) -> None:
    """It has found all that it can from the plans that it was given."""
    solver.uses_its_time = False
    strategy = SlowSampling(seconds=0.05)

    def plant(task: Task, number: int) -> None:
        if number == 10:
            assert len(solver.starts) == 1
            enter_plans(task, [OPTIMUM])

    strategy.before_step = plant
    strategy.until = lambda: len(solver.starts) > 1
    worse = two_opt_neighbours(OPTIMUM)[0]
    solver.work = lambda call: call.found(worse)
    run(policy, strategy)
    assert [costs[0] for costs in solver.starts][1:] == [OPTIMAL_COST]


def test_each_instance_gets_its_own_plans(policy, solver, make_instances) -> None:
    """Instances take turns: each has a slice in every round."""
    instances = make_instances(2, 12)
    best = {one.name: local_optimum(one) for one in instances}
    solver.work = lambda call: call.found(best[call.instance.name])
    task = make_task(TSP(), policy, instances)
    strategy = SlowSampling(lambda: len(solver.starts) > 4)
    found, _ = solve_task(strategy, task, Budget(seconds=60.0), None, CONCURRENT)
    for solution in found:
        assert solution.cost <= best[solution.instance.name].cost(solution.instance) + 1e-9
        assert solution.then is not None
    assert task.account.given == [True, True]


# --- how both end


def test_our_own_solver_and_the_search_use_all_seconds(policy) -> None:
    """The result comes in time, and both have worked."""
    improvers.prepare_solver("ils")
    strategy = SlowSampling()
    began = time.monotonic()
    solution, interrupted = run(policy, strategy, seconds=1.0)
    passed = time.monotonic() - began
    assert not interrupted
    assert 0.9 < passed < 3.0
    assert solution.attempts > 1
    assert solution.cost <= OPTIMAL_COST
    assert solution.then is not None
    assert solution.then.trouble == ""
    assert solution.then.after == solution.cost <= solution.then.before


def test_a_search_that_ends_early_leaves_its_seconds(policy, solver, monkeypatch) -> None:
    """The solver continues alone, as after any search."""
    alone = []

    def improve(name, instance, plans, seconds, seed, found) -> None:
        alone.append(seconds)
        found(OPTIMUM)

    monkeypatch.setattr(improvers, "improve_plans", improve)
    solution, _ = run(policy, Greedy(), seconds=30.0)
    (seconds,) = alone
    assert 25.0 < seconds < 30.0
    assert (solution.cost, solution.phase) == (OPTIMAL_COST, "ils")


@pytest.mark.parametrize("step", [0, 1, 7])
def test_ctrl_c_during_a_step(policy, solver, step: int) -> None:
    """A verified plan is the result, and no thread is left, however long the slice would be."""

    has_found = Event()

    def interrupt(task: Task, number: int) -> None:
        if number == step:
            assert step == 0 or has_found.wait(30.0)
            signal.raise_signal(signal.SIGINT)

    def work(call: Any) -> None:
        call.found(OPTIMUM)
        has_found.set()
        assert call.stopped.wait(600.0)

    solver.work = work
    began = time.monotonic()
    solution, interrupted = run(policy, SlowSampling(before_step=interrupt), seconds=6000.0)
    assert interrupted
    assert time.monotonic() - began < 60.0
    assert (solution.cost == OPTIMAL_COST) == (step > 0)
    assert (solution.then is None) == (step == 0)


@pytest.mark.parametrize("name", ["exchange", "take_reported", "end", "start"])
def test_ctrl_c_during_an_exchange(policy, solver, monkeypatch, name: str) -> None:
    """Ctrl-C may come at any moment of an exchange, also while the thread is being ended."""
    real = getattr(concurrent.ConcurrentSolver, name)
    calls = []

    def interrupted_once(self):
        calls.append(name)
        done = real(self)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(concurrent.ConcurrentSolver, name, interrupted_once)
    task = make_task(TSP(), policy, [CITIES])
    try:
        strategy = SlowSampling(lambda: len(solver.starts) > 1)
        (solution,), interrupted = solve_task(
            strategy, task, Budget(seconds=60.0), None, CONCURRENT
        )
    except KeyboardInterrupt:  # the pipeline answers it with the incumbents
        assert name == "end"
        assert task.account.actions is not None
        return
    assert interrupted
    solution.plan.check(CITIES)


def test_ctrl_c_while_the_thread_ends(policy, solver) -> None:
    """The solver is slow to stop; the plans that it reports at its end are kept."""

    def work(call: Any) -> None:
        call.stopped.wait(60.0)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.2)
        call.found(OPTIMUM)

    solver.work = work
    solution, interrupted = run(policy, SlowSampling(lambda: len(solver.starts) > 0))
    assert interrupted
    assert solution.cost == OPTIMAL_COST


def test_ctrl_c_in_the_pipeline(policy, solver) -> None:
    """The whole pipeline answers Ctrl-C with a verified plan."""

    def interrupt(task: Task, number: int) -> None:
        if number == 3:
            signal.raise_signal(signal.SIGINT)

    request = pipeline.SolveRequest(
        Budget(seconds=60.0),
        SlowSampling(before_step=interrupt),
        policy=policy,
        device="cpu",
        after=replace(CONCURRENT, top=2),
    )
    (result,) = pipeline.solve_groups([CITIES], request)
    assert result.interrupted
    (solution,) = result.solutions
    solution.plan.check(CITIES)
    assert solution.others[0].cost >= solution.cost


def test_an_error_of_the_search_ends_the_thread(policy, solver) -> None:
    """The error is raised as it is without a solver."""

    def fail(task: Task, number: int) -> None:
        if number == 3:
            raise RhumbError("the search has failed")

    with pytest.raises(RhumbError, match="the search has failed"):
        run(policy, SlowSampling(before_step=fail))


def test_an_error_of_the_solver_is_reported(policy, solver) -> None:
    """The search continues without the solver, also after a plan that breaks the rules."""

    def crash(call: Any) -> None:
        raise RhumbError("no memory for kicks")

    works = ((crash, "no memory"), (lambda call: call.found(Tour((0, 0, 1))), "visits city"))
    for work, words in works:
        solver.starts.clear()
        solver.work = work
        strategy = SlowSampling(seconds=0.05)
        strategy.until = lambda costs=strategy.costs: len(costs) > 9
        solution, interrupted = run(policy, strategy)
        assert not interrupted
        assert len(solver.starts) == 1
        assert solution.then is not None
        assert words in solution.then.trouble
        assert solution.phase in ("search", "construction")


def test_a_failure_of_the_thread_itself_is_raised(policy, solver, monkeypatch) -> None:
    """Only errors of the solver are reported beside a result."""

    def broken(*_: Any) -> None:
        raise AssertionError("plans cannot be decoded")

    monkeypatch.setattr(concurrent.ConcurrentSolver, "read_offer", broken)
    strategy = SlowSampling(seconds=0.05)
    strategy.until = lambda costs=strategy.costs: len(costs) > 3
    with pytest.raises(AssertionError, match="plans cannot be decoded"):
        run(policy, strategy)


def test_without_time_the_result_says_so(policy, solver) -> None:
    """The first step has taken all seconds."""
    solution, _ = run(policy, SlowSampling(seconds=0.3), seconds=0.1)
    assert solver.starts == []
    assert solution.then is not None
    assert solution.then.trouble == "no time was left for it"


# --- what is reported


def test_improvements_are_announced_in_order(policy, solver) -> None:
    """Each costs less than those before it, and those of the solver bear its name."""
    optimum, (worse, *_) = OPTIMUM, two_opt_neighbours(OPTIMUM)

    def work(call: Any) -> None:
        call.found(worse if len(solver.starts) < 3 else optimum)

    solver.work = work
    announced: list[Any] = []
    after = replace(CONCURRENT, improved=announced.append)
    strategy = SlowSampling(lambda: len(solver.starts) > 4)
    solution, _ = run(policy, strategy, after=after)
    costs = [found.cost for found in announced]
    assert all(later < earlier for earlier, later in itertools.pairwise(costs))
    assert costs[-1] == solution.cost == OPTIMAL_COST
    assert [found.cost for found in announced if found.phase == "ils"] == [
        worse.cost(CITIES),
        OPTIMAL_COST,
    ]
    for found in announced:
        found.plan.check(CITIES)
        assert found.cost == found.plan.cost(CITIES)


def two_opt_neighbours(tour: Tour) -> list[Tour]:
    """Return tours that cost a little more: two cities side by side have changed places."""
    swapped: list[Tour] = []
    for place in range(len(tour.order) - 1):
        order = list(tour.order)
        order[place], order[place + 1] = order[place + 1], order[place]
        swapped.append(Tour(tuple(order)))
    costlier = [one for one in swapped if one.cost(CITIES) > OPTIMAL_COST]
    return sorted(costlier, key=lambda one: one.cost(CITIES))


def test_the_progress_says_what_works(policy, solver) -> None:
    """Steps of the search name the solver, and the line of the display shows it."""
    seen: list[Progress] = []
    task = make_task(TSP(), policy, [CITIES])
    strategy = SlowSampling(lambda: len(seen) > 3)
    solve_task(strategy, task, Budget(seconds=60.0), seen.append, CONCURRENT)
    steps = [one for one in seen if one.phase == "search"]
    assert {one.solver for one in steps} == {"ils"}
    describe = bars.make_describer([CITIES])
    assert describe(steps[0]).endswith("   with ils")
    assert "with" not in describe(replace(steps[0], solver=None))


def test_a_result_beyond_the_fleet_is_mended_by_the_solver(driver, solver) -> None:
    """A construction or a plan of the solver within the limit replaces it."""
    xy = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    instance = CVRPInstance("fleet", "EXACT_2D", (0, 1, 1, 1), 3, xy=xy, vehicles=1)
    solver.work = lambda call: call.found(Routes(((1, 3, 2),)))
    task = make_task(CVRP(), driver, [instance])
    after = replace(CONCURRENT, then="ruin")
    strategy = SlowSampling(lambda: len(solver.starts) > 1)
    (solution,), _ = solve_task(strategy, task, Budget(seconds=60.0), None, after)
    solution.plan.check(instance)
    assert solution.unmet is None
    assert solution.cost == pytest.approx(4.0)


def test_attempts_alone_never_have_a_thread(policy, monkeypatch) -> None:
    """A search that is repeatable stays so."""
    monkeypatch.setattr(concurrent.ConcurrentSolver, "start", lambda self: pytest.fail("started"))
    task = make_task(TSP(), policy, [CITIES])
    solve_task(Sampling(), task, Budget(32), None, AfterSearch(top=2, concurrent=True))


def test_the_event_of_a_slice_does_not_end_the_next(policy, monkeypatch) -> None:
    """Our own solvers set their event when they end."""
    events: list[Event] = []

    def improve(instance, plans, seconds, seed, on_plan, stopped) -> None:
        assert not stopped.is_set()
        events.append(stopped)
        time.sleep(seconds)
        stopped.set()

    monkeypatch.setattr(improvers, "load_stoppable", lambda name: SimpleNamespace(improve=improve))
    monkeypatch.setattr(improvers, "improve_plans", lambda *given: None)
    short = replace(
        concurrent.TUNING,
        first_slice_share=0.0,
        later_slice_share=0.0,
        min_slice_seconds=0.05,
    )
    monkeypatch.setattr(concurrent, "TUNING", short)
    solution, _ = run(policy, SlowSampling(lambda: len(events) > 2))
    assert len({id(event) for event in events}) == len(events) > 1
    assert solution.then is not None
    assert solution.then.trouble == ""


def test_slices_grow_after_the_first_one(policy) -> None:
    """A tenth of the time, then half of what is left, and all of it when that is little."""
    task = make_task(TSP(), policy, [CITIES])
    solver = concurrent.ConcurrentSolver(task, "ils", 5)
    solver.first_slice_seconds = 1.0
    now = time.monotonic()
    lengths = list[float]()
    for left in (9.0, 4.5, 2.25):
        solver.deadline = now + left
        lengths.append(solver.next_slice_seconds())
    assert lengths == pytest.approx([4.5, 2.25, 2.25], abs=0.1)
