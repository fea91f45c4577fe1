"""Dispatching rules: by hand, against all schedules of tiny shops, and against published means."""

from collections.abc import Iterator
from itertools import permutations

import numpy as np
import pytest

from rhumbline.errors import Infeasible, InputError
from rhumbline.problems.jssp import JSSPInstance, Schedule, jssp_from_arrays
from rhumbline.problems.jssp.dispatch_rules import RULES, SCHEDULE_KINDS, dispatch
from rhumbline.problems.standard_sets import jssp_set

# All three want machine 0 at once. Durations 4, 2, 3; work 4, 3, 9; operations 1, 2, 2.
QUEUE = jssp_from_arrays([[4], [2, 1], [3, 6]], [[0], [0, 1], [0, 1]], "queue")
# Machine 0 should wait one unit for job 2, which has a long way to go: 22 then, 31 without waiting.
WAIT = jssp_from_arrays([[10], [1, 1, 20]], [[0], [1, 0, 1]], "wait")


@pytest.mark.parametrize(
    ("rule", "starts"),
    [
        ("spt", ((5,), (0, 2), (2, 5))),  # jobs 2, 3, 1
        ("mwkr", ((3,), (7, 9), (0, 3))),  # jobs 3, 1, 2
        ("fifo", ((0,), (4, 6), (6, 9))),  # all came at 0: jobs 1, 2, 3
        ("mopnr", ((5,), (0, 2), (2, 5))),  # jobs 2 and 3 have two each: 2, 3, 1
    ],
)
@pytest.mark.parametrize("kind", ["non-delay", "active"])
def test_rules_by_hand(rule: str, starts: tuple[tuple[int, ...], ...], kind: str) -> None:
    """The order on machine 0 is the rule's; no job waits for another, so both kinds agree."""
    assert dispatch(QUEUE, rule, kind) == Schedule(starts)


def test_first_in_first_out_goes_by_arrival() -> None:
    """Job 2 comes to machine 1 at 1 and job 1 at 2, while job 3 holds it until 5: job 2 is next."""
    shop = jssp_from_arrays([[2, 1], [1, 1], [5]], [[0, 1], [2, 1], [1]])
    assert dispatch(shop, "fifo").starts == ((0, 6), (0, 5), (0,))
    assert dispatch(shop, "mopnr").starts == (
        (0, 5),
        (0, 6),
        (0,),
    )  # one operation left each: the first in the file


def test_only_active_schedules_wait() -> None:
    """By most work remaining, machine 0 may wait for job 2: 22, the optimum, instead of 31."""
    assert dispatch(WAIT, "mwkr", "active") == Schedule(((2,), (0, 1, 2)))
    assert (
        dispatch(WAIT, "mwkr", "active").cost(WAIT),
        dispatch(WAIT, "mwkr", "non-delay").cost(WAIT),
    ) == (22, 31)


def test_random_schedules_are_named_by_their_seed() -> None:
    """The same seed gives the same schedule; eight seeds do not all give one."""
    shop = random_shop(np.random.default_rng(0), 5, 5)
    schedules = [dispatch(shop, "random", seed=seed) for seed in range(8)]
    assert dispatch(shop, "random", seed=3) == schedules[3]
    assert len(set(schedules)) > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("edd", "non-delay"), "no rule 'edd'; known: spt, mwkr, fifo, mopnr, random"),
        (("spt", "lazy"), "no kind of schedules 'lazy'; known: non-delay, active"),
    ],
)
def test_unknown_rules_are_refused(arguments: tuple[str, str], message: str) -> None:
    """The message lists what there is."""
    with pytest.raises(InputError, match=message):
        dispatch(QUEUE, *arguments)


# --- tiny shops, exhaustively


def random_shop(rng: np.random.Generator, jobs: int, machines: int, least: int = 0) -> JSSPInstance:
    """Return jobs of different lengths that skip and revisit machines; some durations are 0."""
    lengths = rng.integers(1, machines + 1, size=jobs)
    durations = [rng.integers(least, 6, size=n).tolist() for n in lengths]
    places = [rng.integers(0, machines, size=n).tolist() for n in lengths]
    return JSSPInstance("tiny", tuple(map(tuple, durations)), tuple(map(tuple, places)), machines)


def semi_active(instance: JSSPInstance) -> Iterator[Schedule]:
    """Yield every order of all operations, each placed as early as possible behind the others.

    An optimum is among them.
    """
    jobs = [job for job, row in enumerate(instance.durations) for _ in row]
    for order in set(permutations(jobs)):
        starts: list[list[int]] = [[] for _ in instance.durations]
        ready, free = [0] * instance.job_count, [0] * instance.machine_count
        for job in order:
            step = len(starts[job])
            machine = instance.machines[job][step]
            start = max(ready[job], free[machine])
            starts[job].append(start)
            ready[job] = free[machine] = start + instance.durations[job][step]
        yield Schedule(tuple(map(tuple, starts)))


@pytest.mark.parametrize("seed", range(6))
def test_no_rule_beats_the_best_of_all_schedules(seed: int) -> None:
    """The best of all orders of a tiny job shop is feasible and not below the bound.

    Random active schedules reach it, also with operations of duration 0; 300 are enough for up
    to 9 operations.
    """
    shop = random_shop(np.random.default_rng(seed), 3, 3)
    best = min(semi_active(shop), key=lambda schedule: schedule.cost(shop))
    best.check(shop)
    optimum = best.cost(shop)
    assert shop.lower_bound <= optimum
    costs = [
        dispatch(shop, rule, kind).cost(shop) for rule in RULES for kind in ("non-delay", "active")
    ]
    assert min(costs) >= optimum
    assert min(dispatch(shop, "random", "active", s).cost(shop) for s in range(300)) == optimum


@pytest.mark.parametrize("seed", range(4))
def test_schedules_are_of_their_kind(seed: int) -> None:
    """In active schedules no operation fits earlier; non-delay schedules are active too."""
    shop = random_shop(np.random.default_rng(seed), 5, 3, least=1)
    for kind in SCHEDULE_KINDS:
        schedule = dispatch(shop, "random", kind, seed)
        assert not any(can_move(shop, schedule, job, step) for job, step, _, _ in shop.operations)


def can_move(shop: JSSPInstance, schedule: Schedule, job: int, step: int) -> bool:
    """Return whether some earlier start of one operation alone is feasible."""
    for start in range(schedule.starts[job][step]):
        rows = [list(row) for row in schedule.starts]
        rows[job][step] = start
        try:
            Schedule(tuple(map(tuple, rows))).check(shop)
        except Infeasible:
            continue
        return True
    return False


def test_a_hundred_jobs() -> None:
    """The largest job shop, 100 x 20, stays within the factor of list scheduling."""
    rng = np.random.default_rng(2)
    shop = jssp_from_arrays(rng.integers(1, 99, (100, 20)), rng.random((100, 20)).argsort(axis=1))
    assert shop.lower_bound <= dispatch(shop).cost(shop) < 2 * shop.lower_bound


@pytest.mark.parametrize(
    ("rule", "mean"), [("mwkr", 945.4), ("spt", 965.1), ("fifo", 991.6), ("mopnr", 936.9)]
)
def test_means_on_the_standard_set_are_those_of_another_implementation(
    rule: str, mean: float
) -> None:
    """Mean makespans that job-shop-lib's rules had on the first 20 of the standard 10 x 10 set."""
    shops = [
        jssp_from_arrays(durations, machines) for durations, machines in jssp_set("jssp10x10")[:20]
    ]
    assert round(
        float(np.mean([dispatch(shop, rule).cost(shop) for shop in shops])), 1
    ) == pytest.approx(mean)
