"""Several walkers at one search: they work at once, disturb nobody's arrays, and only the best
of all is told.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Barrier, BrokenBarrierError, Event, Thread, get_ident
from typing import Any

import numpy as np
import pytest
import torch

from rhumbline import improvers
from rhumbline.kernels.numba.local_search import launch as local_moves
from rhumbline.local_search import route_ruin_recreate, schedule_tabu, tour_ils
from rhumbline.local_search import threads as crew
from rhumbline.problems.cvrp import Routes
from rhumbline.problems.cvrp import cvrp_from_arrays as cvrp
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.jssp import jssp_from_arrays as shop
from rhumbline.problems.tsp import Tour, tsp_from_array

PATIENCE = 20.0  # seconds that one waits for another who never comes
RNG = np.random.default_rng(5)
CITIES = tsp_from_array(RNG.random((40, 2)))
DELIVERY = cvrp(RNG.random(2), RNG.random((30, 2)), RNG.integers(1, 10, 30), 20)
ALONE = Routes(tuple((c,) for c in range(1, 31)))
SHOP = shop(RNG.integers(1, 30, (6, 4)), [RNG.permutation(4).tolist() for _ in range(6)])


def in_turn(instance: Any) -> Schedule:
    """Job after job, nothing at the same time."""
    times = np.concatenate([[0], np.concatenate(instance.durations).cumsum()[:-1]]).tolist()
    rows = np.array_split(np.array(times), instance.job_count)
    return Schedule(tuple(tuple(row.tolist()) for row in rows))


def meeting(walkers: int) -> Callable[[], None]:
    """A place that nobody leaves before all are there."""
    barrier = Barrier(walkers)

    def wait() -> None:
        barrier.wait(PATIENCE)

    return wait


def test_as_many_as_torch_has_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--threads` sets them."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert crew.thread_count() == 7


def test_all_walk_at_once() -> None:
    """Each waits for the others."""
    crew.run_walkers([meeting(3)] * 3, Event())
    with pytest.raises(BrokenBarrierError):
        crew.run_walkers([partial(Barrier(2).wait, 0.01)], Event())


def test_an_error_stops_the_others() -> None:
    """They hear of it, and whoever called does."""
    stopped, heard = Event(), list[bool]()

    def fail() -> None:
        raise ValueError("a leg is broken")

    with pytest.raises(ValueError, match="a leg is broken"):
        crew.run_walkers([lambda: heard.append(stopped.wait(PATIENCE)), fail], stopped)
    assert heard == [True]


def test_nobody_begins_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system starts no third thread, those who walk are stopped, and nobody walks in
    the third's place.
    """
    stopped, begun, started, start = Event(), list[int](), list[Thread](), Thread.start

    def limited(thread: Thread) -> None:
        started.append(thread)
        if len(started) > 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    def walk(number: int) -> None:
        begun.append(number)
        assert stopped.wait(PATIENCE)

    monkeypatch.setattr(Thread, "start", limited)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        crew.run_walkers([partial(walk, number) for number in range(4)], stopped)
    assert sorted(begun) == [0, 1]


def test_only_what_is_cheaper_is_told() -> None:
    """Whoever finds it, in the metric of the instance."""
    line, told = tsp_from_array(np.array([[0.0, 0], [1, 0], [2, 0], [3, 0]])), list[Tour]()
    cheapest = crew.CheapestPlan[Tour](line, told.append)
    zigzag, better, best = (Tour(order) for order in ((0, 2, 1, 3), (0, 1, 2, 3), (3, 2, 1, 0)))
    for plan in (zigzag, zigzag, better, zigzag, best):
        cheapest(plan)
    assert told == [zigzag, better]
    assert (cheapest.plan, cheapest.cost) == (better, better.cost(line))


def test_everybody_has_noise_of_his_own() -> None:
    """The same under the same seed; none is 0, of which nothing but 0 would come."""
    states = [
        int(crew.generator_state(seed, number)[0]) for seed in range(20) for number in range(20)
    ]
    assert len(set(states)) == 400
    assert min(states) > 0
    assert crew.generator_state(3, 4) == crew.generator_state(3, 4)
    assert crew.generator_state(2**63 - 1, 63)[0] > 0


def arrays_of(search: route_ruin_recreate.Annealing) -> list[np.ndarray]:
    """All that a search writes to."""
    return [*search.plan, *search.saved, *search.best, *search.scratch, search.costs, search.random]


def test_a_twin_goes_its_own_way() -> None:
    """It begins with the same plan, does the same under the same noise, and never touches the
    other's arrays.
    """
    told = list[Routes]()
    one = route_ruin_recreate.Annealing(DELIVERY, ALONE, 3, Event(), told.append)
    before = [array.copy() for array in arrays_of(one)]
    same, other = one.clone(3, 0), one.clone(3, 1)
    for search in (same, other):
        search.run_steps(0.1, 500)
    assert all(np.array_equal(was, now) for was, now in zip(before, arrays_of(one), strict=True))
    one.run_steps(0.1, 500)
    assert all(
        np.array_equal(mine, its) for mine, its in zip(arrays_of(one), arrays_of(same), strict=True)
    )
    assert not np.array_equal(one.plan[0], other.plan[0])
    assert (one.near is other.near, one.stopped is other.stopped) == (True, True)
    assert told[0].cost(DELIVERY) < ALONE.cost(DELIVERY)


def heard_at_once(work: Callable[[Any], None], stop: Any, found: Any) -> None:
    """All plans, where `aside` passes on the newest of a tenth of a second."""
    work(found)


def test_ruin_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each walker knows the same end, whenever it begins: making the first took three of the ten
    seconds.
    """
    now, ends, make = [100.0], list[float](), route_ruin_recreate.Annealing.__init__

    def slow(search: route_ruin_recreate.Annealing, *arguments: Any) -> None:
        now[0] += 3.0
        make(search, *arguments)

    monkeypatch.setattr(route_ruin_recreate, "run_interruptible", heard_at_once)
    monkeypatch.setattr(route_ruin_recreate.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(crew, "thread_count", lambda: 3)
    monkeypatch.setattr(route_ruin_recreate.Annealing, "__init__", slow)
    monkeypatch.setattr(route_ruin_recreate.Annealing, "run", lambda search, end: ends.append(end))
    improvers.improve_plans("ruin", DELIVERY, [ALONE], 10.0, 0, print)
    assert ends == [110.0] * 3


@pytest.mark.parametrize("name", ["ils", "tabu"])
def test_the_others_are_told_how_many_walk(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as many as there are threads, and their time is what is given."""
    seen: list[Any] = []

    class Kicks(tour_ils.IteratedLocalSearch):
        def run(self, plans: Any, seconds: float) -> None:
            seen.append((len(self.random_states), len(plans), seconds))

    class Rounds(schedule_tabu.TabuSearch):
        def run(self, plans: Any, seconds: float, walkers: int = 1) -> None:
            seen.append((walkers, len(plans), seconds))

    monkeypatch.setattr(crew, "thread_count", lambda: 5)
    monkeypatch.setattr(tour_ils, "IteratedLocalSearch", Kicks)
    monkeypatch.setattr(schedule_tabu, "TabuSearch", Rounds)
    instance, plans = {"ils": (CITIES, random_tours(2)), "tabu": (SHOP, [in_turn(SHOP)] * 2)}[name]
    improvers.improve_plans(name, instance, plans, 7.0, 0, print)
    assert seen == [(5, 2, 7.0)]


@pytest.mark.parametrize("walkers", [1, 3])
def test_ruin_on_each_thread(walkers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All begin with the cheapest plan, each with its noise, and are there at the same time."""
    meet, begun, run_round = (
        meeting(walkers),
        list[tuple[Any, int, Any]](),
        route_ruin_recreate.Annealing.run_round,
    )

    def watched(search: route_ruin_recreate.Annealing, end: float) -> bool:
        if all(ident != get_ident() for ident, _, _ in begun):
            begun.append(
                (get_ident(), int(search.random[0]), tuple(map(tuple, search.plan[0].tolist())))
            )
            meet()
        return run_round(search, end)

    tuning = replace(route_ruin_recreate.TUNING, steps_per_customer=20)
    monkeypatch.setattr(route_ruin_recreate, "TUNING", tuning)
    monkeypatch.setattr(route_ruin_recreate, "run_interruptible", heard_at_once)
    monkeypatch.setattr(crew, "thread_count", lambda: walkers)
    monkeypatch.setattr(route_ruin_recreate.Annealing, "run_round", watched)
    told = list[Routes]()
    improvers.improve_plans("ruin", DELIVERY, [ALONE, Routes(())], 600.0, 9, told.append)
    assert {state for _, state, _ in begun} == {
        int(crew.generator_state(9, k)[0]) for k in range(walkers)
    }
    assert len({rows for _, _, rows in begun}) == 1
    costs = [plan.cost(DELIVERY) for plan in told]
    assert costs == sorted(set(costs), reverse=True)
    told[-1].check(DELIVERY)


@pytest.mark.parametrize(("walkers", "plans"), [(1, 2), (3, 1), (2, 3)])
def test_tabu_on_each_thread(walkers: int, plans: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan is begun with, some again if walkers are left; what they find is kept together."""
    stopped, begun = Event(), list[tuple[int, np.ndarray]]()
    rounds, meet = schedule_tabu.TabuSearch(SHOP, 4, stopped, lambda _: None), meeting(walkers)
    given = [
        Schedule(tuple(tuple(t + k for t in row) for row in in_turn(SHOP).starts))
        for k in range(plans)
    ]
    first, numbers = max(walkers, plans), count(1)

    def run_round(start: np.ndarray, random: np.ndarray) -> schedule_tabu.EliteSchedule:
        number = next(numbers)
        begun.append((int(random[0]), start))
        if number <= walkers:
            meet()
        elif number > first:
            stopped.set()
        return schedule_tabu.EliteSchedule(100 - number, start, np.full(24, number))

    keep = rounds.add_to_elite
    monkeypatch.setattr(rounds, "run_round", run_round)
    monkeypatch.setattr(
        rounds,
        "add_to_elite",
        lambda found: keep(found) if rounds.lock.locked() else pytest.fail("at once"),
    )
    rounds.run(given, 600.0, walkers)
    wanted = [np.concatenate(given[k % plans].starts).tolist() for k in range(first)]
    plain = [
        start.tolist() for _, start in begun if start.dtype == np.int64
    ]  # what is between two is not whole
    assert sorted(plain) == sorted(wanted)
    assert {state for state, _ in begun} == {
        int(crew.generator_state(4, k)[0]) for k in range(walkers)
    }
    assert len(rounds.elite) == len(begun) >= first + 1


def test_schedules_of_several_walkers() -> None:
    """Each that is told is shorter than the one before; the last is the shortest that was kept."""
    told = list[Schedule]()
    rounds = schedule_tabu.TabuSearch(SHOP, 0, Event(), told.append)
    rounds.run([in_turn(SHOP)], 0.3, 3)
    lengths = [plan.cost(SHOP) for plan in told]
    assert lengths == sorted(set(lengths), reverse=True)
    assert lengths[-1] == rounds.shortest == rounds.elite[0].makespan
    told[-1].check(SHOP)


def random_tours(count: int) -> list[Tour]:
    """All cities in any order."""
    return [Tour(tuple(np.random.default_rng(k).permutation(40).tolist())) for k in range(count)]


@pytest.mark.parametrize(("walkers", "groups"), [(1, [1, 1, 1, 1]), (2, [2, 2, 2]), (5, [5, 5])])
def test_kicks_on_each_thread(
    walkers: int, groups: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many plans are tried at a time as there are walkers, each for a tenth of the time; then
    all kick the best.
    """
    search = tour_ils.IteratedLocalSearch(CITIES, 2, Event(), lambda _: None, walkers)
    kicked, seen = search.kick_tour, list[tuple[list[list[int]], float]]()
    monkeypatch.setattr(tour_ils.time, "monotonic", lambda: 100.0)

    def kick_tours(tours: list[list[int]], end: float) -> None:
        seen.append((list(tours), end))
        for tour, noise in zip(tours, search.random_states, strict=True):
            kicked(tour, noise, 0.0)  # noted, not kicked

    monkeypatch.setattr(search, "kick_tours", kick_tours)
    plans = random_tours(3)
    search.run(plans, 50.0)
    assert [len(tours) for tours, _ in seen] == groups
    assert [end for _, end in seen] == pytest.approx(
        [*(100 + 5 * (k + 1) for k in range(len(groups) - 1)), 150]
    )
    optima = [
        local_moves.shorten_tour(search.distance, search.near, plan.order)[0] for plan in plans
    ]
    tried = [tour for tours, _ in seen[:-1] for tour in tours]
    assert tried == [optima[k % 3] for k in range(len(tried))]  # some again, lest a walker be idle
    assert seen[-1][0] == [min(optima, key=lambda order: Tour(tuple(order)).cost(CITIES))] * walkers


def test_kicks_at_once() -> None:
    """Each walker has noise of its own, and all are there at the same time; the best tour of all
    is the last told.
    """
    told = list[Tour]()

    def tell(tour: Tour) -> None:
        assert search.best.lock.locked()
        told.append(tour)

    search, meet, states = (
        tour_ils.IteratedLocalSearch(CITIES, 0, Event(), tell, 3),
        meeting(3),
        set[int](),
    )
    kicked = search.kick_tour

    def watched(order: list[int], random: np.ndarray, end: float) -> None:
        states.add(int(random[0]))
        meet()
        kicked(order, random, end)

    search.kick_tour = watched
    search.run(random_tours(3), 0.3)
    assert states >= {int(crew.generator_state(0, k)[0]) for k in range(3)}
    costs = [tour.cost(CITIES) for tour in told]
    assert costs == sorted(set(costs), reverse=True)
    assert told[-1] == search.best.plan
    assert search.best.cost == costs[-1]


def test_kicks_end_when_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first better tour there is one more look at the event, and nothing after it."""
    stopped, calls, kicked = Event(), list[int](), local_moves.kick_and_shorten_tour
    search = tour_ils.IteratedLocalSearch(
        CITIES, 0, stopped, lambda _: stopped.set() if calls else None
    )

    def counted(*arguments: Any) -> tuple[list[int], int]:
        calls.append(1)
        assert len(calls) < 5
        order, _ = kicked(*arguments)
        return order[::-1], 1  # as good as better

    monkeypatch.setattr(local_moves, "kick_and_shorten_tour", counted)
    monkeypatch.setattr(Tour, "cost", lambda tour, instance: -len(calls))
    search.run(random_tours(2), 600.0)
    assert len(calls) == 2
