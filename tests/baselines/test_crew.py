"""Several walkers at one search: they work at once, disturb nobody's arrays, and only the best of all is told."""

from collections.abc import Callable
from functools import partial
from itertools import count
from threading import Barrier, BrokenBarrierError, Event, get_ident
from typing import Any

import numpy as np
import pytest
import torch

from rhumbline import baselines
from rhumbline.baselines import crew, ils, ruin, tabu
from rhumbline.kernels import local
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.cvrp import from_arrays as cvrp
from rhumbline.problems.schedule import Schedule
from rhumbline.problems.schedule import from_arrays as shop
from rhumbline.problems.tsp import Tour, from_array

PATIENCE = 60.0  # seconds that one waits for another who never comes
RNG = np.random.default_rng(5)
CITIES = from_array(RNG.random((40, 2)))
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
    assert crew.size() == 7


def test_all_walk_at_once() -> None:
    """Each waits for the others."""
    crew.side_by_side([meeting(3)] * 3, Event())
    with pytest.raises(BrokenBarrierError):
        crew.side_by_side([partial(Barrier(2).wait, 0.01)], Event())


def test_an_error_stops_the_others() -> None:
    """They hear of it, and whoever called does."""
    stopped, heard = Event(), list[bool]()

    def fail() -> None:
        raise ValueError("a leg is broken")

    with pytest.raises(ValueError, match="a leg is broken"):
        crew.side_by_side([lambda: heard.append(stopped.wait(PATIENCE)), fail], stopped)
    assert heard == [True]


def test_only_what_is_cheaper_is_told() -> None:
    """Whoever finds it, in the metric of the instance."""
    line, told = from_array(np.array([[0.0, 0], [1, 0], [2, 0], [3, 0]])), list[Tour]()
    cheapest = crew.Cheapest[Tour](line, told.append)
    zigzag, better, best = (Tour(order) for order in ((0, 2, 1, 3), (0, 1, 2, 3), (3, 2, 1, 0)))
    for plan in (zigzag, zigzag, better, zigzag, best):
        cheapest(plan)
    assert told == [zigzag, better]


def test_everybody_has_noise_of_his_own() -> None:
    """The same under the same seed; none is 0, of which nothing but 0 would come."""
    states = [int(crew.noise(seed, number)[0]) for seed in range(20) for number in range(20)]
    assert len(set(states)) == 400
    assert min(states) > 0
    assert crew.noise(3, 4) == crew.noise(3, 4)
    assert crew.noise(2**63 - 1, 63)[0] > 0


def arrays_of(search: ruin.Annealing) -> list[np.ndarray]:
    """All that a search writes to."""
    return [*search.plan, *search.saved, *search.best, *search.scratch, search.costs, search.random]


def test_a_twin_goes_its_own_way() -> None:
    """It begins with the same plan, does the same under the same noise, and never touches the other's arrays."""
    told = list[Routes]()
    one = ruin.Annealing(DELIVERY, ALONE, 3, Event(), told.append)
    before = [array.copy() for array in arrays_of(one)]
    same, other = one.twin(3, 0), one.twin(3, 1)
    for search in (same, other):
        search.go(0.1, 500)
    assert all(np.array_equal(was, now) for was, now in zip(before, arrays_of(one), strict=True))
    one.go(0.1, 500)
    assert all(np.array_equal(mine, its) for mine, its in zip(arrays_of(one), arrays_of(same), strict=True))
    assert not np.array_equal(one.plan[0], other.plan[0])
    assert (one.near is other.near, one.stopped is other.stopped) == (True, True)
    assert told[0].cost(DELIVERY) < ALONE.cost(DELIVERY)


@pytest.mark.parametrize("walkers", [1, 3])
def test_ruin_on_each_thread(walkers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All begin with the cheapest plan, each with its noise, and are there at the same time."""
    meet, begun, cooled = meeting(walkers), list[tuple[Any, int, Any]](), ruin.Annealing.cooled

    def watched(search: ruin.Annealing, end: float) -> bool:
        if all(ident != get_ident() for ident, _, _ in begun):
            begun.append((get_ident(), int(search.random[0]), tuple(map(tuple, search.plan[0].tolist()))))
            meet()
        return cooled(search, end)

    monkeypatch.setattr(ruin, "PLENTY", 20)
    monkeypatch.setattr(crew, "size", lambda: walkers)
    monkeypatch.setattr(ruin.Annealing, "cooled", watched)
    told = list[Routes]()
    baselines.improve("ruin", DELIVERY, [ALONE, Routes(())], 600.0, 9, told.append)
    assert {state for _, state, _ in begun} == {int(crew.noise(9, k)[0]) for k in range(walkers)}
    assert len({rows for _, _, rows in begun}) == 1
    costs = [plan.cost(DELIVERY) for plan in told]
    assert costs == sorted(set(costs), reverse=True)
    told[-1].check(DELIVERY)


@pytest.mark.parametrize(("walkers", "plans"), [(1, 2), (3, 1), (2, 3)])
def test_tabu_on_each_thread(walkers: int, plans: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan is begun with, some again if walkers are left; what they find is kept together."""
    stopped, begun = Event(), list[tuple[int, np.ndarray]]()
    rounds, meet = tabu.Rounds(SHOP, 4, stopped, lambda _: None), meeting(walkers)
    given = [Schedule(tuple(tuple(t + k for t in row) for row in in_turn(SHOP).starts)) for k in range(plans)]
    first, numbers = max(walkers, plans), count(1)

    def round(start: np.ndarray, random: np.ndarray) -> tabu.Kept:
        number = next(numbers)
        begun.append((int(random[0]), start))
        if number <= walkers:
            meet()
        elif number > first:
            stopped.set()
        return tabu.Kept(100 - number, start, np.full(24, number))

    monkeypatch.setattr(rounds, "round", round)
    rounds.run(given, 600.0, walkers)
    wanted = [np.concatenate(given[k % plans].starts).tolist() for k in range(first)]
    plain = [start.tolist() for _, start in begun if start.dtype == np.int64]  # what is between two is not whole
    assert sorted(plain) == sorted(wanted)
    assert {state for state, _ in begun} == {int(crew.noise(4, k)[0]) for k in range(walkers)}
    assert len(rounds.kept) == len(begun) >= first + 1


def test_schedules_of_several_walkers() -> None:
    """Each that is told is shorter than the one before; the last is the shortest that was kept."""
    told = list[Schedule]()
    rounds = tabu.Rounds(SHOP, 0, Event(), told.append)
    rounds.run([in_turn(SHOP)], 0.3, 3)
    lengths = [plan.cost(SHOP) for plan in told]
    assert lengths == sorted(set(lengths), reverse=True)
    assert lengths[-1] == rounds.shortest == rounds.kept[0].makespan
    told[-1].check(SHOP)


def random_tours(count: int) -> list[Tour]:
    """All cities in any order."""
    return [Tour(tuple(np.random.default_rng(k).permutation(40).tolist())) for k in range(count)]


@pytest.mark.parametrize(("walkers", "groups"), [(1, [1, 1, 1, 1]), (2, [2, 1, 2]), (5, [3, 5])])
def test_kicks_on_each_thread(walkers: int, groups: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are tried as many at a time as there are walkers, for a tenth of the time; then all kick the best."""
    search = ils.Kicks(CITIES, 2, Event(), lambda _: None, walkers)
    kicked, seen = search.kicked, list[tuple[list[list[int]], float]]()
    monkeypatch.setattr(ils.time, "monotonic", lambda: 100.0)

    def kick(tours: list[list[int]], end: float) -> None:
        seen.append((list(tours), end))
        for tour, noise in zip(tours, search.noise, strict=False):
            kicked(tour, noise, 0.0)  # noted, not kicked

    monkeypatch.setattr(search, "kick", kick)
    plans = random_tours(3)
    search.run(plans, 50.0)
    assert [len(tours) for tours, _ in seen] == groups
    assert [end for _, end in seen] == pytest.approx([*(100 + 5 * (k + 1) for k in range(len(groups) - 1)), 150])
    optima = [local.shorter_tour(search.distance, search.near, plan.order)[0] for plan in plans]
    assert [tour for tours, _ in seen[:-1] for tour in tours] == optima
    assert seen[-1][0] == [min(optima, key=search.cost)] * walkers


def test_kicks_at_once() -> None:
    """Each walker has noise of its own, and all are there at the same time; the best tour of all is the last told."""
    told = list[Tour]()
    search, meet, states = ils.Kicks(CITIES, 0, Event(), told.append, 3), meeting(3), set[int]()
    kicked = search.kicked

    def watched(order: list[int], random: np.ndarray, end: float) -> None:
        states.add(int(random[0]))
        meet()
        kicked(order, random, end)

    search.kicked = watched
    search.run(random_tours(3), 0.3)
    assert states >= {int(crew.noise(0, k)[0]) for k in range(3)}
    costs = [tour.cost(CITIES) for tour in told]
    assert costs == sorted(set(costs), reverse=True)
    assert told[-1] == Tour(tuple(search.best))
    assert search.shortest == costs[-1]


def test_instances_that_are_too_small() -> None:
    """Nobody walks where there is nothing to decide."""
    one = cvrp((0.0, 0.0), [(1.0, 0.0)], (1,), 2)
    assert isinstance(one, CVRPInstance)
    baselines.improve("ruin", one, [Routes(((1,),))], 600.0, 0, lambda _: pytest.fail("nothing to find"))
