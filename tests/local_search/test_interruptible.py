"""Ctrl-C while a solver works in its thread."""

import signal
import time
from importlib.util import find_spec
from threading import Event
from typing import Any

import numpy as np
import pytest

from rhumbline import improvers
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.jssp import jssp_from_arrays as shop
from rhumbline.problems.tsp import Tour, tsp_from_array

MANY_SECONDS = 600.0  # seconds that a solver would take


def test_plans_are_passed_on_in_order_and_the_result_returned() -> None:
    """Of plans that are reported at once the newest is passed on; the last one always is."""
    reported: list[int] = []

    def work(tell: Any) -> str:
        for plan in range(5):
            tell(plan)
        return "done"

    assert run_interruptible(work, lambda: None, reported.append) == "done"
    assert reported == sorted(set(reported))
    assert reported[-1] == 4


def test_errors_are_raised() -> None:
    """An error of the solver is raised; an error of the listener is too, and ends the solver."""
    with pytest.raises(ZeroDivisionError):
        run_interruptible(lambda tell: 1 // 0, lambda: None)
    stopped = Event()

    def work(tell: Any) -> None:
        tell(1)
        assert stopped.wait(MANY_SECONDS)

    with pytest.raises(ZeroDivisionError):
        run_interruptible(work, stopped.set, lambda plan: plan // 0)


def test_the_last_plan_is_passed_on() -> None:
    """A plan found while the solver is being stopped is passed on before KeyboardInterrupt."""
    stopped, reported = Event(), list[str]()

    def work(tell: Any) -> None:
        tell("first")
        assert stopped.wait(MANY_SECONDS)
        tell("last")

    def found(plan: str) -> None:
        reported.append(plan)
        if plan == "first" and reported.count(plan) == 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work, stopped.set, found)
    assert (reported[0], reported[-1]) == ("first", "last")


def test_a_second_ctrl_c_does_not_wait_for_plans() -> None:
    """It is raised at once."""
    stopped = Event()

    def work(tell: Any) -> None:
        tell(1)
        assert stopped.wait(MANY_SECONDS)

    def found(plan: int) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work, stopped.set, found)


RNG = np.random.default_rng(0)
CITIES = tsp_from_array(RNG.random((300, 2)))
ROUND_TRIPS = CVRPInstance("many", "EXACT_2D", (0, *[1] * 299), 20, xy=CITIES.xy)
LARGE = shop(RNG.integers(1, 100, (20, 15)), np.stack([RNG.permutation(15) for _ in range(20)]))


def one_by_one(instance: Any) -> Schedule:
    """Return a schedule with one job after the other."""
    ends = np.cumsum(instance.durations).reshape(np.shape(instance.durations))
    return Schedule(tuple(tuple(row) for row in (ends - instance.durations).tolist()))


@pytest.mark.parametrize("name", improvers.SOLVERS)
def test_every_solver_can_be_interrupted(name: str) -> None:
    """After a signal at the first plan the solver ends long before its time.

    Its last plan is no worse than the first.
    """
    if name == "lkh" and find_spec("elkai") is None:
        pytest.skip("elkai is not installed")
    instance, plan = {
        Tour: (CITIES, Tour(tuple(range(300)))),
        Routes: (ROUND_TRIPS, Routes(tuple((c,) for c in range(1, 300)))),
        Schedule: (LARGE, one_by_one(LARGE)),
    }[improvers.SOLVERS[name].plan_types[0]]
    plan.check(instance)
    costs: list[float] = []

    def found(better: Any) -> None:
        better.check(instance)
        costs.append(better.cost(instance))
        if len(costs) == 1:
            signal.raise_signal(signal.SIGINT)

    improvers.prepare_solver(name)
    with pytest.raises(KeyboardInterrupt):
        improvers.improve_plans(name, instance, [plan], MANY_SECONDS, 0, found)
    assert plan.cost(instance) >= costs[0] >= costs[-1]


@pytest.mark.parametrize("name", [n for n, s in improvers.SOLVERS.items() if s.is_stoppable])
def test_our_own_solvers_can_be_stopped(name: str) -> None:
    """An event ends them long before their time, and their last plan has been reported."""
    stopped = Event()
    instance, plan = {
        Tour: (CITIES, Tour(tuple(range(300)))),
        Routes: (ROUND_TRIPS, Routes(tuple((c,) for c in range(1, 300)))),
        Schedule: (LARGE, one_by_one(LARGE)),
    }[improvers.SOLVERS[name].plan_types[0]]
    costs: list[float] = []

    def found(better: Any) -> None:
        better.check(instance)
        costs.append(better.cost(instance))
        stopped.set()

    improvers.prepare_solver(name)
    solver = improvers.load_stoppable(name)
    began = time.monotonic()
    solver.improve(instance, [plan], MANY_SECONDS, 0, found, stopped)
    assert time.monotonic() - began < MANY_SECONDS / 2
    assert plan.cost(instance) >= costs[-1]
