"""Job-shop instances and the check of schedules: by hand, and against a simulation."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from rhumbline.errors import Infeasible, InputError
from rhumbline.problems.jssp import JSSPInstance, Operation, Schedule, jssp_from_arrays

# Job 1: machine 0 for 3, then machine 1 for 2. Job 2: machine 1 for 4, then machine 0 for 1.
TWO = JSSPInstance("two", ((3, 2), (4, 1)), ((0, 1), (1, 0)), 2)
#   machine 0  111 2      job 1 waits on machine 1 from 3 to 4
#   machine 1  222211
BEST = Schedule(((0, 4), (0, 4)))


def test_a_schedule_costs_what_the_hand_computes() -> None:
    """Machine 1 works without a pause from 0 to 6, and no schedule can be shorter."""
    BEST.check(TWO)
    assert (BEST.cost(TWO), TWO.lower_bound) == (6, 6)
    assert BEST.to_file_numbers(TWO) == [[0, 4], [0, 4]]


def test_sizes_of_an_instance() -> None:
    """Rows of unequal length, an idle machine and one visited twice in a row are counted."""
    odd = JSSPInstance("odd", ((1, 2, 3), (0,)), ((2, 0, 2), (0,)), 4)
    assert (odd.size, odd.job_count, odd.shape, odd.horizon, odd.problem) == (
        4,
        2,
        (2, 3, 4),
        6,
        "jssp",
    )
    assert list(odd.operations)[-2:] == [Operation(0, 2, 2, 3), Operation(1, 0, 0, 0)]


@pytest.mark.parametrize(
    ("starts", "reason"),
    [
        (((0, 2), (3, 7)), "two: operation 2 of job 1 starts at 2, before the one before it ends"),
        (((0, 4), (0, 2)), "two: operation 2 of job 2 starts at 2, before the one before it ends"),
        (
            ((0, 3), (0, 4)),
            r"on machine 2 \(1 in the file\) operation 2 of job 1 starts at 3, "
            "when operation 1 of job 2 is there until 4",
        ),
        (((-1, 4), (0, 4)), "operation 1 of job 1 starts at -1, before time 0"),
        (((0, 4), (0,)), "job 2 has 1 starts for 2 operations"),
        (((0, 4, 9), (0, 4)), "job 1 has 3 starts for 2 operations"),
        (((0, 4),), "the schedule has 1 jobs of 2"),
    ],
)
def test_broken_schedules_are_refused_with_the_reason(starts: Any, reason: str) -> None:
    """Order in a job, overlap on a machine, times before 0 and missing operations are refused."""
    with pytest.raises(Infeasible, match=reason):
        Schedule(starts).check(TWO)


def test_errors_count_machines_from_1_as_jobs() -> None:
    """In a file that counts from 1, its own number needs no mention."""
    with pytest.raises(Infeasible, match="on machine 2 operation"):
        Schedule(((0, 3), (0, 4))).check(replace(TWO, first_machine=1))


@pytest.mark.parametrize(
    ("moment", "allowed"), [(0, True), (1, False), (4, False), (5, True), (6, True)]
)
def test_an_operation_without_duration_may_touch_but_not_cut(moment: int, allowed: bool) -> None:
    """Beside an operation from 0 to 5, one of duration 0 fits at 0, at 5 and later."""
    instance = JSSPInstance("empty", ((5,), (0,), (0,)), ((0,), (0,), (0,)), 1)
    schedule = Schedule(((0,), (moment,), (moment,)))
    if allowed:
        schedule.check(instance)
        return
    with pytest.raises(Infeasible, match="on machine 1"):
        schedule.check(instance)


def test_a_machine_visited_twice_by_a_job_is_still_one_machine() -> None:
    """Another job may come in between the two visits, but not into one of them."""
    instance = JSSPInstance("again", ((2, 2), (1,)), ((0, 0), (0,)), 1)
    Schedule(((0, 3), (2,))).check(instance)
    with pytest.raises(Infeasible, match="operation 1 of job 2 starts at 1"):
        Schedule(((0, 3), (1,))).check(instance)


def simulate(instance: JSSPInstance, starts: tuple[tuple[int, ...], ...]) -> bool:
    """Return whether a schedule is feasible, by walking through time; durations are positive."""
    for now in range(20):
        running = [
            o
            for o in instance.operations
            if starts[o.job][o.step] <= now < starts[o.job][o.step] + o.duration
        ]
        if len({o.machine for o in running}) < len(running) or len({o.job for o in running}) < len(
            running
        ):
            return False
    return all(list(row) == sorted(row) for row in starts)


def test_the_checker_agrees_with_a_simulation_of_every_schedule() -> None:
    """All 8^4 start times of a 2 x 2 job shop: feasible exactly where no tick has a conflict."""
    feasible = [feasible_by(s) for s in all_schedules(8)]
    assert sum(by_checker for by_checker, _ in feasible) >= 100
    assert all(by_checker == by_ticks for by_checker, by_ticks in feasible)


def test_no_schedule_beats_the_lower_bound() -> None:
    """The shortest of all feasible schedules of the 2 x 2 shop takes 6, the bound."""
    assert min(s.cost(TWO) for s in all_schedules(6) if feasible_by(s)[0]) == TWO.lower_bound


def all_schedules(latest: int) -> Iterator[Schedule]:
    for a, b, c, d in product(range(latest), repeat=4):
        yield Schedule(((a, b), (c, d)))


def feasible_by(schedule: Schedule) -> tuple[bool, bool]:
    """Return the verdict of the check, and that of the simulation."""
    try:
        schedule.check(TWO)
    except Infeasible:
        return False, simulate(TWO, schedule.starts)
    return True, simulate(TWO, schedule.starts)


# --- bad input


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"durations": ((3, -2), (4, 1))}, "operation 2 of job 1 takes -2, expected 0 or more"),
        ({"machines": ((0, 2), (1, 0))}, "operation 2 of job 1 is on machine 2, expected 0 to 1"),
        ({"machines": ((0, 2), (1, 0)), "first_machine": 1}, "is on machine 3, expected 1 to 2"),
        ({"machines": ((0, -1), (1, 0))}, "is on machine -1, expected 0 to 1"),
        ({"durations": ((3, 2), ()), "machines": ((0, 1), ())}, "job 2 has no operation"),
        ({"durations": ((3, 2), (4,))}, "durations and machines differ in shape"),
        ({"durations": (), "machines": ()}, "has 0 jobs; 1 to 100 are supported"),
        ({"durations": ((1,),) * 101, "machines": ((0,),) * 101}, "has 101 jobs"),
        ({"machine_count": 101}, "has 101 machines"),
        (
            {"durations": ((1,) * 26,) * 100, "machines": ((0,) * 26,) * 100},
            "100 jobs with up to 26 operations",
        ),
        ({"durations": ((2**31 - 1, 0), (0, 1))}, "all durations together are 2,147,483,648"),
    ],
)
def test_instances_that_cannot_be(changes: dict[str, Any], reason: str) -> None:
    """The constructor refuses what no file should say, in words."""
    with pytest.raises(InputError, match=reason):
        replace(TWO, **changes)


def test_the_longest_horizon_is_accepted() -> None:
    """Durations that add up to 2^31 - 1 exactly."""
    assert replace(TWO, durations=((2**31 - 2, 0), (0, 1))).horizon == 2**31 - 1


# --- arrays


def test_arrays_of_any_whole_type_become_an_instance() -> None:
    """Numpy arrays, lists, and floats without a fraction give the same."""
    durations, machines = np.array([[3, 2], [4, 1]], dtype=np.int16), [[0, 1], [1, 0]]
    expected = replace(TWO, name="arrays")
    assert (
        jssp_from_arrays(durations, machines)
        == jssp_from_arrays(durations.astype(float), np.array(machines))
        == expected
    )
    assert all(
        type(d) is int for row in jssp_from_arrays(durations, machines).durations for d in row
    )


def test_arrays_that_count_machines_from_one() -> None:
    """Machines 1 and 2 are machines 0 and 1, and remembered as 1 and 2."""
    assert jssp_from_arrays([[3, 2], [4, 1]], [[1, 2], [2, 1]], "two") == replace(
        TWO, first_machine=1
    )


def test_arrays_of_jobs_of_different_lengths() -> None:
    """A list of arrays, one for each job."""
    instance = jssp_from_arrays([np.array([1, 2]), np.array([3])], [[1, 0], [1]])
    assert instance.shape == (2, 2, 2)


@pytest.mark.parametrize(
    ("durations", "machines", "reason"),
    [
        ([[1, 2]], [[1, 3]], "machines 1 to 3 occur, so that they may count from 0 or from 1"),
        ([[1, 2.5]], [[0, 1]], "the durations of job 1 must be a row of whole numbers"),
        ([[1, float("nan")]], [[0, 1]], "the durations of job 1"),
        ([[1, 2]], [["a", "b"]], "the machines of job 1"),
        ([1, 2], [0, 1], "the durations of job 1"),
        (3, [[0]], "the durations must be rows of whole numbers"),
        ([[]], [[]], "job 1 has no operation"),
        ([], [], "has 0 jobs"),
        ([[1, 2]], [[0, -1]], "is on machine -1"),
        ([[True, False]], [[0, 1]], "the durations of job 1"),
    ],
)
def test_arrays_that_are_no_instance(durations: Any, machines: Any, reason: str) -> None:
    """Each is refused with the reason, never with a traceback of numpy."""
    with pytest.raises(InputError, match=reason):
        jssp_from_arrays(durations, machines)
