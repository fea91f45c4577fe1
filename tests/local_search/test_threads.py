"""Workers of one search: they work in parallel, share no arrays, and report only better plans."""

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
from rhumbline.kernels.numba.tour_search.launch import TourSearch
from rhumbline.local_search import route_ruin_recreate, schedule_tabu, threads, tour_ils
from rhumbline.local_search.schedule_population import EliteSchedule
from rhumbline.problems.cvrp import Routes
from rhumbline.problems.cvrp import cvrp_from_arrays as cvrp
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.jssp import jssp_from_arrays as shop
from rhumbline.problems.tsp import Tour, tsp_from_array

PATIENCE = 20.0  # seconds to wait for a worker that never comes
RNG = np.random.default_rng(5)
CITIES = tsp_from_array(RNG.random((40, 2)))
DELIVERY = cvrp(RNG.random(2), RNG.random((30, 2)), RNG.integers(1, 10, 30), 20)
SINGLE_ROUTES = Routes(tuple((c,) for c in range(1, 31)))
SHOP = shop(RNG.integers(1, 30, (6, 4)), [RNG.permutation(4).tolist() for _ in range(6)])


def in_turn(instance: Any) -> Schedule:
    """Return a schedule with job after job, nothing at the same time."""
    times = np.concatenate([[0], np.concatenate(instance.durations).cumsum()[:-1]]).tolist()
    rows = np.array_split(np.array(times), instance.job_count)
    return Schedule(tuple(tuple(row.tolist()) for row in rows))


def meeting(workers: int) -> Callable[[], None]:
    """Return a function that waits until all workers call it."""
    barrier = Barrier(workers)

    def wait() -> None:
        barrier.wait(PATIENCE)

    return wait


def test_as_many_as_torch_has_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--threads` sets them."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert threads.thread_count() == 7


def test_all_walk_at_once() -> None:
    """Each walk waits for the others."""
    threads.run_workers([meeting(3)] * 3, Event())
    with pytest.raises(BrokenBarrierError):
        threads.run_workers([partial(Barrier(2).wait, 0.01)], Event())


def test_an_error_stops_the_others() -> None:
    """The event is set, and the caller gets the error."""
    stopped, heard = Event(), list[bool]()

    def fail() -> None:
        raise ValueError("a leg is broken")

    with pytest.raises(ValueError, match="a leg is broken"):
        threads.run_workers([lambda: heard.append(stopped.wait(PATIENCE)), fail], stopped)
    assert heard == [True]


def test_cancelled_walks_never_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system starts no third thread, running walks are stopped and no other begins."""
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
        threads.run_workers([partial(walk, number) for number in range(4)], stopped)
    assert sorted(begun) == [0, 1]


def test_only_cheaper_plans_are_reported() -> None:
    """Costs are in the metric of the instance, whichever worker finds a plan."""
    line, reported = tsp_from_array(np.array([[0.0, 0], [1, 0], [2, 0], [3, 0]])), list[Tour]()
    cheapest = threads.CheapestPlan[Tour](line, reported.append)
    zigzag, better, best = (Tour(order) for order in ((0, 2, 1, 3), (0, 1, 2, 3), (3, 2, 1, 0)))
    for plan in (zigzag, zigzag, better, zigzag, best):
        cheapest(plan)
    assert reported == [zigzag, better]
    assert (cheapest.plan, cheapest.cost) == (better, better.cost(line))


def test_generator_states_differ() -> None:
    """Equal seeds give equal states; none is 0, from which only zeros would follow."""
    states = [
        int(threads.generator_state(seed, number)[0]) for seed in range(20) for number in range(20)
    ]
    assert len(set(states)) == 400
    assert min(states) > 0
    assert threads.generator_state(3, 4) == threads.generator_state(3, 4)
    assert threads.generator_state(2**63 - 1, 63)[0] > 0


def arrays_of(search: route_ruin_recreate.Annealing) -> list[np.ndarray]:
    """Return all arrays that a search writes to."""
    records = (search.plan, search.log, search.best, search.queue)
    arrays = [array for record in records for array in record]
    return [*arrays, search.scratch.removed, search.costs, search.random]


def test_a_clone_is_independent() -> None:
    """It begins with the same plan, behaves alike with equal random numbers, shares no array."""
    reported = list[Routes]()
    one = route_ruin_recreate.Annealing(DELIVERY, SINGLE_ROUTES, 3, Event(), reported.append)
    before = [array.copy() for array in arrays_of(one)]
    same, other = one.clone(3, 0), one.clone(3, 1)
    for search in (same, other):
        search.run_steps(0.1, 500)
    assert all(np.array_equal(was, now) for was, now in zip(before, arrays_of(one), strict=True))
    one.run_steps(0.1, 500)
    assert all(
        np.array_equal(mine, its) for mine, its in zip(arrays_of(one), arrays_of(same), strict=True)
    )
    assert not np.array_equal(one.plan.link, other.plan.link)
    assert one.customers is other.customers
    assert one.stopped is other.stopped
    assert one.best_plan().cost(DELIVERY) < SINGLE_ROUTES.cost(DELIVERY)


def run_at_once(work: Callable[[Any], None], stop: Any, found: Any) -> None:
    """Pass on all plans, where `run_interruptible` passes on the newest at intervals."""
    work(found)


def test_ruin_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker has the same end; making the first one took three of the ten seconds."""
    now, ends, make = [100.0], list[float](), route_ruin_recreate.Annealing.__init__

    def slow(search: route_ruin_recreate.Annealing, *arguments: Any) -> None:
        now[0] += 3.0
        make(search, *arguments)

    monkeypatch.setattr(route_ruin_recreate, "run_interruptible", run_at_once)
    monkeypatch.setattr(route_ruin_recreate.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    monkeypatch.setattr(route_ruin_recreate.Annealing, "__init__", slow)
    monkeypatch.setattr(route_ruin_recreate.Annealing, "run", lambda search, end: ends.append(end))
    improvers.improve_plans("ruin", DELIVERY, [SINGLE_ROUTES], 10.0, 0, print)
    assert ends == [110.0] * 3


@pytest.mark.parametrize("name", ["ils", "tabu"])
def test_searches_get_the_number_of_walkers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many workers as threads, and they have the given time."""
    seen: list[Any] = []

    class Kicks(tour_ils.IteratedLocalSearch):
        def run(self, plans: Any, seconds: float) -> None:
            seen.append((len(self.random_states), len(plans), seconds))

    class Rounds(schedule_tabu.TabuSearch):
        def run(self, plans: Any, seconds: float, workers: int = 1) -> None:
            seen.append((workers, len(plans), seconds))

    monkeypatch.setattr(threads, "thread_count", lambda: 5)
    monkeypatch.setattr(tour_ils, "IteratedLocalSearch", Kicks)
    monkeypatch.setattr(schedule_tabu, "TabuSearch", Rounds)
    instance, plans = {"ils": (CITIES, random_tours(2)), "tabu": (SHOP, [in_turn(SHOP)] * 2)}[name]
    improvers.improve_plans(name, instance, plans, 7.0, 0, print)
    ((walkers, given, seconds),) = seen
    assert (walkers, given) == (5, 2)
    assert 5.0 < seconds <= 7.0  # what has passed since the call is over


@pytest.mark.parametrize("workers", [1, 3])
def test_ruin_on_each_thread(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers begin with the cheapest plan, in parallel, with different random numbers."""
    meet, begun, run_round = (
        meeting(workers),
        list[tuple[Any, int, Any]](),
        route_ruin_recreate.Annealing.run_round,
    )

    def watched(search: route_ruin_recreate.Annealing, end: float, number: int) -> bool:
        if all(ident != get_ident() for ident, _, _ in begun):
            begun.append(
                (get_ident(), int(search.random[0]), tuple(map(tuple, search.plan.link.tolist())))
            )
            meet()
        return run_round(search, end, number)

    tuning = replace(route_ruin_recreate.TUNING, steps_per_customer=20)
    monkeypatch.setattr(route_ruin_recreate, "TUNING", tuning)
    monkeypatch.setattr(route_ruin_recreate, "run_interruptible", run_at_once)
    monkeypatch.setattr(threads, "thread_count", lambda: workers)
    monkeypatch.setattr(route_ruin_recreate.Annealing, "run_round", watched)
    reported = list[Routes]()
    improvers.improve_plans(
        "ruin", DELIVERY, [SINGLE_ROUTES, Routes(())], 600.0, 9, reported.append
    )
    assert {state for _, state, _ in begun} == {
        int(threads.generator_state(9, k)[0]) for k in range(workers)
    }
    assert len({rows for _, _, rows in begun}) == 1
    costs = [plan.cost(DELIVERY) for plan in reported]
    assert costs == sorted(set(costs), reverse=True)
    reported[-1].check(DELIVERY)


@pytest.mark.parametrize(("workers", "plans"), [(1, 2), (3, 1), (2, 3)])
def test_tabu_on_each_thread(workers: int, plans: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan begins a round, some twice if workers are left; results are kept together."""
    stopped, begun = Event(), list[tuple[int, np.ndarray]]()
    rounds, meet = schedule_tabu.TabuSearch(SHOP, 4, stopped, lambda _: None), meeting(workers)
    given = [
        Schedule(tuple(tuple(t + k for t in row) for row in in_turn(SHOP).starts))
        for k in range(plans)
    ]
    first, numbers = max(workers, plans), count(1)

    def run_round(starts: list[np.ndarray], random: np.ndarray) -> EliteSchedule:
        number = next(numbers)
        begun.append((int(random[0]), starts[0]))
        if number <= workers:
            meet()
        elif number > first:
            stopped.set()
        return EliteSchedule(100 - number, starts[0], np.full(24, number))

    add = rounds.population.add
    monkeypatch.setattr(rounds, "run_round", run_round)
    monkeypatch.setattr(
        rounds.population,
        "add",
        lambda *found: add(*found) if rounds.lock.locked() else pytest.fail("at once"),
    )
    rounds.run(given, 600.0, workers)
    wanted = [np.concatenate(given[k % plans].starts).tolist() for k in range(first)]
    plain = [
        start.tolist() for _, start in begun if start.dtype == np.int64
    ]  # random times and those between two schedules are no integers
    assert sorted(plain) == sorted(wanted)
    assert {state for state, _ in begun} == {
        int(threads.generator_state(4, k)[0]) for k in range(workers)
    }
    assert len(rounds.population.members) == len(begun) >= first + 1


def test_schedules_of_several_walkers() -> None:
    """Each reported schedule is shorter than the one before; the last is the shortest kept."""
    reported = list[Schedule]()
    rounds = schedule_tabu.TabuSearch(SHOP, 0, Event(), reported.append)
    rounds.run([in_turn(SHOP)], 0.3, 3)
    lengths = [plan.cost(SHOP) for plan in reported]
    assert lengths == sorted(set(lengths), reverse=True)
    assert lengths[-1] == rounds.shortest == rounds.population.members[0].makespan
    reported[-1].check(SHOP)


def random_tours(count: int) -> list[Tour]:
    """Return random tours."""
    return [Tour(tuple(np.random.default_rng(k).permutation(40).tolist())) for k in range(count)]


@pytest.mark.parametrize(("workers", "groups"), [(1, [1, 1, 1, 1]), (2, [2, 2, 2]), (5, [5, 5])])
def test_kicks_on_each_thread(
    workers: int, groups: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker tries a plan, each group for a tenth of the time; then all kick the best."""
    search = tour_ils.IteratedLocalSearch(CITIES, 2, Event(), lambda _: None, workers)
    kicked, seen = search.kick_tour, list[tuple[list[Tour], float, float]]()
    monkeypatch.setattr(tour_ils.time, "monotonic", lambda: 100.0)

    def kick_tours(tours: list[Tour], end: float, temperature_share: float) -> None:
        seen.append((list(tours), end, temperature_share))
        for tour, noise in zip(tours, search.random_states, strict=True):
            kicked(tour, noise, 0.0, temperature_share)  # reported, not kicked

    monkeypatch.setattr(search, "kick_tours", kick_tours)
    plans = random_tours(3)
    search.run(plans, 50.0)
    assert [len(tours) for tours, _, _ in seen] == groups
    assert [end for _, end, _ in seen] == pytest.approx(
        [*(100 + 5 * (k + 1) for k in range(len(groups) - 1)), 150]
    )
    assert [share > 0 for _, _, share in seen] == [False] * (len(groups) - 1) + [True]
    tried = [tour for tours, _, _ in seen[:-1] for tour in tours]
    assert tried == [plans[k % 3] for k in range(len(tried))]  # some again: no worker is idle
    assert seen[-1][0] == [min(plans, key=lambda plan: plan.cost(CITIES))] * workers


def test_kicks_at_once() -> None:
    """Workers run in parallel with different random numbers; the best tour is reported last."""
    reported = list[Tour]()

    def tell(tour: Tour) -> None:
        assert search.best.lock.locked()
        reported.append(tour)

    search, meet, states = (
        tour_ils.IteratedLocalSearch(CITIES, 0, Event(), tell, 3),
        meeting(3),
        set[int](),
    )
    kicked = search.kick_tour

    def watched(tour: Tour, random_state: np.ndarray, end: float, temperature_share: float) -> None:
        states.add(int(random_state[0]))
        meet()
        kicked(tour, random_state, end, temperature_share)

    search.kick_tour = watched
    search.run(random_tours(3), 0.3)
    assert states >= {int(threads.generator_state(0, k)[0]) for k in range(3)}
    costs = [tour.cost(CITIES) for tour in reported]
    assert costs == sorted(set(costs), reverse=True)
    assert reported[-1] == search.best.plan
    assert search.best.cost == costs[-1]


def test_kicks_end_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the event is set, the kernel call that runs is the last, and its tour is reported."""
    stopped, calls, reported = Event(), list[int](), list[Tour]()
    search = tour_ils.IteratedLocalSearch(CITIES, 0, stopped, reported.append)
    run = TourSearch.run

    def counted(one: TourSearch, most: int, temperature: float = 0.0) -> float:
        calls.append(1)
        if len(calls) == 3:
            stopped.set()
        return run(one, most, temperature)

    monkeypatch.setattr(TourSearch, "run", counted)
    plans = random_tours(1)
    search.run(plans, 600.0)
    assert len(calls) == 3
    assert reported[-1].cost(CITIES) < plans[0].cost(CITIES)
