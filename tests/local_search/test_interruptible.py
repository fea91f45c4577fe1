"""Ctrl-C while a solver is at work in its thread."""

import signal
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

FOREVER = 600.0  # seconds that a solver would take


def test_what_is_told_is_passed_on_in_order_and_the_result_comes_back() -> None:
    """Of plans that come at once only the newest is worth a look; the last is always passed on."""
    told: list[int] = []

    def work(tell: Any) -> str:
        for plan in range(5):
            tell(plan)
        return "done"

    assert run_interruptible(work, lambda: None, told.append) == "done"
    assert told == sorted(set(told))
    assert told[-1] == 4


def test_errors_come_back() -> None:
    """An error of the solver is raised here; one of the listener too, and it ends the solver."""
    with pytest.raises(ZeroDivisionError):
        run_interruptible(lambda tell: 1 // 0, lambda: None)
    stopped = Event()

    def work(tell: Any) -> None:
        tell(1)
        assert stopped.wait(FOREVER)

    with pytest.raises(ZeroDivisionError):
        run_interruptible(work, stopped.set, lambda plan: plan // 0)


def test_the_last_words_are_heard() -> None:
    """A plan that is found while the solver is being stopped is passed on before
    KeyboardInterrupt.
    """
    stopped, told = Event(), list[str]()

    def work(tell: Any) -> None:
        tell("first")
        assert stopped.wait(FOREVER)
        tell("last")

    def found(plan: str) -> None:
        told.append(plan)
        if plan == "first" and told.count(plan) == 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work, stopped.set, found)
    assert (told[0], told[-1]) == ("first", "last")


def test_a_second_ctrl_c_does_not_wait_for_plans() -> None:
    """It comes through at once."""
    stopped = Event()

    def work(tell: Any) -> None:
        tell(1)
        assert stopped.wait(FOREVER)

    def found(plan: int) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work, stopped.set, found)


RNG = np.random.default_rng(0)
CITIES = tsp_from_array(RNG.random((300, 2)))
ROUND_TRIPS = CVRPInstance("many", "EXACT_2D", (0, *[1] * 299), 20, xy=CITIES.xy)
LARGE = shop(RNG.integers(1, 100, (20, 15)), np.stack([RNG.permutation(15) for _ in range(20)]))


def one_by_one(instance: Any) -> Schedule:
    """Jobs one after the other."""
    ends = np.cumsum(instance.durations).reshape(np.shape(instance.durations))
    return Schedule(tuple(tuple(row) for row in (ends - instance.durations).tolist()))


@pytest.mark.parametrize("name", improvers.SOLVERS)
def test_every_solver_can_be_interrupted(name: str) -> None:
    """A signal at the first plan: the solver ends long before its time, and its last plan is no
    worse.
    """
    if name == "lkh" and find_spec("elkai") is None:
        pytest.skip("elkai is not installed")
    instance, plan = {
        "tsp": (CITIES, Tour(tuple(range(300)))),
        "cvrp": (ROUND_TRIPS, Routes(tuple((c,) for c in range(1, 300)))),
        "jssp": (LARGE, one_by_one(LARGE)),
    }[improvers.SOLVERS[name].problems[0]]
    plan.check(instance)
    costs: list[float] = []

    def found(better: Any) -> None:
        better.check(instance)
        costs.append(better.cost(instance))
        if len(costs) == 1:
            signal.raise_signal(signal.SIGINT)

    improvers.prepare_solver(name)
    with pytest.raises(KeyboardInterrupt):
        improvers.improve_plans(name, instance, [plan], FOREVER, 0, found)
    assert plan.cost(instance) >= costs[0] >= costs[-1]
