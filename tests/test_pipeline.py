"""The solve loop: what is refused, what a listener hears, and how a run ends."""

import sys
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from rhumbline import pipeline
from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.inputs import instances_from
from rhumbline.pipeline import Listener, SolveRequest, WrongSettings, solve_groups
from rhumbline.problems.tsp import Tour
from rhumbline.problems.tsp.construct import construct_tour
from rhumbline.search import after_search as finishing
from rhumbline.search import driver, first_plans
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.driver import Budget
from rhumbline.search.strategies.greedy_sampling import Sampling
from rhumbline.search.task import task as tasks
from rhumbline.search.task.account import Spent

RNG = np.random.default_rng(5)
SMALL = RNG.random((2, 5, 2))
LARGE = RNG.random((1, 8, 2))


@dataclass
class Recorder(Listener):
    """Writes down what it hears."""

    heard: list[str] = field(default_factory=list)
    wants_improvements: bool = False

    @property
    def hears_improvements(self) -> bool:
        return self.wants_improvements

    def group_started(self, run) -> None:
        self.heard.append(f"started {run.places} {run.strategy_name}")

    def progress(self, progress) -> None:
        self.heard.append(f"progress {progress.attempts}")

    def improved(self, found) -> None:
        self.heard.append(f"improved {found.phase}")

    def note(self, line: str) -> None:
        self.heard.append(line)

    def group_ended(self, run) -> None:
        self.heard.append(f"ended {run.places}")


def request_for(policy, **options) -> SolveRequest:
    options = {"budget": Budget(6), "strategy": Sampling(population=4)} | options
    return SolveRequest(policy=policy, device="cpu", **options)


def test_groups_are_solved_one_after_the_other(policy) -> None:
    """A listener hears of each group before its result arrives."""
    instances = instances_from([*SMALL, *LARGE])
    recorder = Recorder()
    results = solve_groups(instances, request_for(policy), recorder)
    assert recorder.heard == []  # it has only been checked
    first = next(results)
    assert recorder.heard == ["started (0, 1) Sampling", "progress 4", "progress 6", "ended (0, 1)"]
    assert list(first.by_place()) == [0, 1]
    (second,) = results
    assert list(second.by_place()) == [2]
    for place, solution in (first.by_place() | second.by_place()).items():
        assert solution.instance is instances[place]
        solution.plan.check(solution.instance)


def test_improvements_are_heard_by_those_who_want_them(policy) -> None:
    """They are decoded for a listener that says so, and for no other."""
    instances = instances_from(LARGE)
    for wants in (False, True):
        recorder = Recorder(wants_improvements=wants)
        list(solve_groups(instances, request_for(policy), recorder))
        assert ("improved search" in recorder.heard) is wants


def test_a_strategy_that_ends_by_itself_is_noted(policy) -> None:
    """Its name and the attempts it made are in the note."""
    recorder = Recorder()
    list(solve_groups(instances_from(LARGE), request_for(policy, strategy="greedy"), recorder))
    note = "greedy ended by itself after 1 attempt of 6: it repeats nothing"
    assert note in recorder.heard


def test_the_default_strategy_is_the_first_that_accepts_the_settings(policy) -> None:
    """Settings that none of them accepts are refused before anything is searched."""
    instances = instances_from(LARGE)
    wanted = request_for(policy, strategy=None, settings=("top=4",))
    (result,) = solve_groups(instances, wanted)
    assert (result.run.strategy_name, result.run.strategy.top) == ("cmaes", 4)
    with pytest.raises(WrongSettings, match="unknown key 'tops'"):
        solve_groups(instances, request_for(policy, strategy=None, settings=("tops=4",)))


def test_phases_that_cannot_run_are_refused_first(policy) -> None:
    """Nothing has to be solved to hear of it."""
    with pytest.raises(InputError, match="tabu"):
        solve_groups(
            instances_from(LARGE),
            request_for(policy, budget=Budget(seconds=1.0), after=AfterSearch(then="tabu")),
        )


def test_an_interrupted_group_is_the_last(policy, monkeypatch) -> None:
    """Its result has what was found until then, and the listener hears that the group has ended."""
    real = tasks.Task._try
    calls = []

    def interrupted(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(tasks.Task, "_try", interrupted)
    recorder = Recorder()
    (result,) = solve_groups(instances_from([*SMALL, *LARGE]), request_for(policy), recorder)
    assert result.interrupted
    assert [solution.attempts for solution in result.solutions] == [4, 4]
    assert recorder.heard[-1] == "ended (0, 1)"


PLACES = {  # where a signal may come, before the first plan of the network
    "loading": (pipeline, "load_policies"),
    "collating and encoding": (pipeline, "make_task"),
    "choosing the engine": (finishing, "prepare_strategy"),
    "the first steps": (finishing, "run_steps"),
    "the first generation": (tasks.Task, "_try"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("given", [False, True])
def test_an_interruption_before_the_first_plan_gives_a_construction(
    policy, monkeypatch, place: str, given: bool
) -> None:
    """Each instance of the group has a verified plan without an attempt, or its warm start."""

    monkeypatch.setattr(*PLACES[place], interrupt)
    instances = instances_from([*SMALL, *LARGE])
    warm = Tour((4, 3, 2, 1, 0)) if given else None
    request = request_for(policy, warm_start=[None, warm, None])
    (result,) = solve_groups(instances, request)
    assert result.interrupted
    assert list(result.by_place()) == [0, 1]
    first, second = result.solutions
    assert (first.phase, first.attempts) == ("construction", 0)
    assert first.plan == construct_tour(instances[0])
    assert first.cost == first.plan.cost(instances[0])
    assert second.phase == ("warm start" if given else "construction")
    assert second.plan == (warm or construct_tour(instances[1]))


def test_a_signal_that_was_kept_is_answered_with_plans(policy) -> None:
    """It came before the group, where nothing could be lost but everything would have been."""

    class Interrupted(Listener):
        asked = 0

        def check_interruption(self) -> None:
            self.asked += 1
            if self.asked == 3:  # after the checks, and the first group
                raise KeyboardInterrupt

    first, second = solve_groups(
        instances_from([*SMALL, *LARGE]), request_for(policy), Interrupted()
    )
    assert not first.interrupted
    assert second.interrupted
    assert [solution.phase for solution in second.solutions] == ["construction"]


def test_constructions_after_an_interruption_have_a_time_limit(policy, monkeypatch) -> None:
    """The instances without a plan are the last ones of the group, and have no solution."""
    tuning = replace(first_plans.TUNING, max_seconds_after_interrupt=-1.0)
    monkeypatch.setattr(first_plans, "TUNING", tuning)
    monkeypatch.setattr(finishing, "prepare_strategy", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(solve_groups(instances_from(SMALL), request_for(policy)))
    monkeypatch.setattr(finishing, "prepare_strategy", interrupt)
    (result,) = solve_groups(instances_from(SMALL), request_for(policy))
    assert (result.interrupted, result.solutions) == (True, [])


def test_a_search_without_time_for_a_plan_returns_a_construction(policy, monkeypatch) -> None:
    """The first generation found no end: the budget is spent, and nothing is in the account."""

    def spent(*_: object) -> None:
        raise Spent

    monkeypatch.setattr(tasks.Task, "_try", spent)
    (result,) = solve_groups(instances_from(LARGE), request_for(policy))
    (solution,) = result.solutions
    assert not result.interrupted
    assert (solution.phase, solution.attempts) == ("construction", 0)


def test_an_interruption_while_a_group_ends_keeps_its_result(policy) -> None:
    """The listener takes its time to end the group; the solutions are those of the search."""

    class Slow(Listener):
        def group_ended(self, run: object) -> None:
            raise KeyboardInterrupt

    (result,) = solve_groups(instances_from(LARGE), request_for(policy), Slow())
    assert result.interrupted
    assert [(s.attempts, s.phase) for s in result.solutions] == [(6, "search")]


def interrupt(*_: object, **__: object) -> None:
    """Stand in for what Ctrl-C ends."""
    raise KeyboardInterrupt


# --- what "auto" stands for


@pytest.mark.parametrize(
    ("then", "budget", "count", "solver"),
    [
        ("auto", Budget(seconds=1.0), 1, "ils"),
        ("auto", Budget(attempts=5, seconds=1.0), 10, "ils"),
        ("auto", Budget(seconds=1.0), 11, None),  # 0.045 s for each
        ("auto", Budget(attempts=5), 1, None),
        ("none", Budget(seconds=1.0), 1, None),
        (None, Budget(seconds=1.0), 1, None),
        ("lkh", Budget(seconds=1.0), 11, "lkh"),
    ],
)
def test_auto_takes_our_local_search_where_it_can_help(
    then: str | None, budget: Budget, count: int, solver: str | None
) -> None:
    """There have to be seconds, and enough for each instance; names are taken as they are."""
    assert AfterSearch(then=then).resolve_solver("tsp", budget, count).then == solver


def test_auto_needs_an_improver_that_is_installed(monkeypatch) -> None:
    """A problem without one, other rules, and a broken package: all the time to the search."""
    budget = Budget(seconds=9.0)
    assert AfterSearch(then="auto").resolve_solver("knapsack", budget).then is None
    assert AfterSearch(then="auto").resolve_solver("jssp-machines", budget).then is None
    assert AfterSearch(then="auto").resolve_solver("jssp", budget).then == "tabu"
    monkeypatch.setitem(sys.modules, "numba", None)  # importing it fails
    assert AfterSearch(then="auto").resolve_solver("jssp", budget).then is None


def test_the_default_budget_leaves_half_of_its_time_to_local_search(policy, monkeypatch) -> None:
    """A user who names no time waits no longer for it, however early the search ends."""
    seen: list[object] = []
    monkeypatch.setattr(pipeline, "solve_task", lambda *given: seen.append(given) or ([], True))
    for budget in (pipeline.DEFAULT_BUDGET, Budget(1600, 30.0)):
        request = request_for(policy, budget=budget, after=AfterSearch(then="auto"))
        list(solve_groups(instances_from(LARGE), request))
    assert [given[4].max_solver_seconds for given in seen] == [15.0, float("inf")]


def test_a_matrix_unlike_any_plane_is_left_to_local_search(policy) -> None:
    """The note says so; the search has a twentieth of the time. Without local search it warns."""
    upper = np.triu(np.random.default_rng(0).random((20, 20)), 1)
    instances = instances_from(upper + upper.T)
    recorder = Recorder()
    after = AfterSearch(then="auto")
    request = request_for(policy, budget=Budget(6, 0.2), after=after)
    (result,) = solve_groups(instances, request, recorder)
    assert (result.run.after.search_share, result.run.after.then) == (0.05, "ils")
    words = "distances are far from any plane: the network cannot help; local search does the work"
    assert words in recorder.heard
    constructed = construct_tour(instances[0])
    assert result.solutions[0].cost <= constructed.cost(instances[0])  # however late it is
    list(solve_groups(instances, request_for(policy), recorder))
    assert recorder.heard[-4].endswith("or let local search work (--seconds, --then auto)")


@pytest.mark.parametrize(
    ("budget", "warm_up", "times"),
    [
        (Budget(seconds=0.01), True, 1),
        (Budget(seconds=0.01), False, 0),
        (Budget(attempts=3), True, 0),
    ],
)
def test_a_gpu_warms_up_if_there_is_a_time_limit(
    monkeypatch, policy, make_instances, budget: Budget, warm_up: bool, times: int
) -> None:
    """Compilation is not part of the seconds. Without a time limit it would only cost attempts."""
    called: list[object] = []
    instances = make_instances(1, 9)
    request = request_for(policy, budget=budget, warm_up=warm_up)
    results = solve_groups(instances, request)
    monkeypatch.setattr(pipeline, "run_warm_up", lambda *given: called.append(given))
    monkeypatch.setattr(pipeline, "solve_task", found_nothing)
    monkeypatch.setattr(tasks.Task, "device", torch.device("cuda"))
    (result,) = results
    assert result.interrupted
    assert len(called) == times


def found_nothing(*_: object):
    """Stand in for `solve_task`, interrupted at once."""
    return [], True


def test_the_name_of_a_strategy_is_kept(policy) -> None:
    """Results say what the user asked for."""
    (result,) = solve_groups(instances_from(LARGE), request_for(policy, strategy="uniform"))
    assert result.run.strategy_name == "uniform"
    assert isinstance(result.solutions[0], driver.Solution)


@pytest.mark.parametrize(
    ("then", "on_gpu", "share"),
    [("auto", False, 0.15), ("ruin", False, 0.15), ("auto", True, 0.5), ("pyvrp", False, 0.5)],
)
def test_our_own_local_search_has_most_of_the_time_of_a_cpu(
    then: str, on_gpu: bool, share: float
) -> None:
    """Routes gain more from it; solvers of others and GPUs keep half and half."""
    instances = instances_from("examples/bakery80.vrp")
    after = AfterSearch(then=then).with_shares(DOMAINS["cvrp"], instances, on_gpu)
    assert after.search_share == share
