"""The population: short schedules survive if they differ enough, the shortest always does."""

import numpy as np
import pytest

from rhumbline.local_search.schedule_population import EliteSchedule, SchedulePopulation


def schedule(makespan: int, following: list[int]) -> EliteSchedule:
    """Return a schedule with these successors on machines."""
    order = np.array(following)
    return EliteSchedule(makespan, order, order)


def makespans(population: SchedulePopulation) -> list[int]:
    """Return the makespans of the members."""
    return [member.makespan for member in population.members]


def test_members_are_sorted() -> None:
    """While there is room all different schedules stay."""
    population = SchedulePopulation(3)
    for makespan, digit in ((9, 0), (7, 1), (8, 2)):
        assert not population.is_full
        population.add(schedule(makespan, [digit] * 10), 0.5)
    assert population.is_full
    assert makespans(population) == [7, 8, 9]


def test_equal_schedules_count_once() -> None:
    """The newer one takes the place of the older."""
    population = SchedulePopulation(3)
    first, again = (schedule(8, [1] * 10) for _ in range(2))
    population.add(first, 0.0)
    population.add(again, 0.0)
    assert population.members == [again]


@pytest.mark.parametrize(
    ("min_distance", "expected"), [(0.0, [6, 7]), (0.2, [6, 8]), (0.6, [6, 9]), (1.0, [6, 9])]
)
def test_survivors_differ(min_distance: float, expected: list[int]) -> None:
    """By hand: 7 differs from 6 in one place of ten, 8 in three, and 9 in all but one.

    If none differs enough, the one that differs most survives.
    """
    population = SchedulePopulation(2)
    candidates = [
        schedule(6, [0] * 10),
        schedule(7, [1] + [0] * 9),
        schedule(8, [1] * 3 + [0] * 7),
        schedule(9, [1] * 9 + [0]),
    ]
    survivors = population.select_survivors(candidates, min_distance)
    assert [survivor.makespan for survivor in survivors] == expected


def test_one_leaves() -> None:
    """A full population loses a schedule that resembles a shorter one."""
    population = SchedulePopulation(2)
    population.add(schedule(9, [2] * 10), 0.5)
    population.add(schedule(7, [0] * 10), 0.5)
    population.add(schedule(8, [0] * 8 + [1] * 2), 0.5)
    assert makespans(population) == [7, 9]
    population.add(schedule(8, [1] * 8 + [0] * 2), 0.5)
    assert makespans(population) == [7, 8]
