"""The rules of the job shop on the device: by hand, by brute force, and what must not matter."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from rhumbline.errors import Infeasible, InputError
from rhumbline.problems.jssp import (
    JSSP,
    JSSPBatch,
    JSSPInstance,
    JSSPState,
    Schedule,
    jssp_from_arrays,
)
from rhumbline.problems.jssp.rules import batch_from_tables, gather_next_operations, parse_size

# Job 1 needs machine 0 for 3, then machine 1 for 2; job 2 needs machine 1 for 4, then machine 0 for
# 1.
SMALL = JSSPInstance("small", ((3, 2), (4, 1)), ((0, 1), (1, 0)), 2)
UNEVEN = JSSPInstance("uneven", ((2, 5, 1), (3,), (4, 2)), ((0, 1, 0), (1,), (0, 1)), 2)
LAZY = JSSPInstance("lazy", ((0, 3, 0), (2, 0, 0), (0, 0, 4)), ((1, 0, 1), (1, 1, 0), (0, 1, 1)), 2)


def random_instances(count: int, seed: int = 0, longest: int = 9) -> Iterator[JSSPInstance]:
    """Return jobs of one to three operations with zero durations, revisits and idle machines."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        lengths, machines = rng.integers(1, 4, size=3), int(rng.integers(2, 4))
        durations = tuple(tuple(int(d) for d in rng.integers(0, longest, size=n)) for n in lengths)
        where = tuple(tuple(int(m) for m in rng.integers(machines, size=n)) for n in lengths)
        yield JSSPInstance(f"random-{i}", durations, where, machines)


def orders(left: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Return all orders in which jobs with these numbers of operations can be dispatched."""
    if not any(left):
        yield ()
    for job, count in enumerate(left):
        if count:
            for rest in orders((*left[:job], count - 1, *left[job + 1 :])):
                yield (job, *rest)


def makespan(instance: JSSPInstance, order: tuple[int, ...]) -> int:
    """Return the makespan by appending each operation, independently of the code under test."""
    jobs, machines, steps = (
        [0] * instance.job_count,
        [0] * instance.machine_count,
        [0] * instance.job_count,
    )
    for job in order:
        machine = instance.machines[job][steps[job]]
        jobs[job] = machines[machine] = (
            max(jobs[job], machines[machine]) + instance.durations[job][steps[job]]
        )
        steps[job] += 1
    return max(jobs)


def optimum(instance: JSSPInstance) -> int:
    """Return the shortest makespan of all semi-active schedules, which is optimal."""
    return min(makespan(instance, order) for order in orders(tuple(map(len, instance.durations))))


def rows(state: JSSPState, index: torch.Tensor) -> JSSPState:
    """Return some of the rollouts of one instance."""
    return replace(
        state,
        **{name: getattr(state, name)[:, index] for name in ("next", "job", "machine", "left")},
    )


def all_sequences(problem: JSSP, instance: JSSPInstance) -> tuple[torch.Tensor, torch.Tensor]:
    """Return every action sequence that the rules allow, with its makespan."""
    batch = problem.collate([instance])
    state, actions = (
        problem.reset(batch, torch.zeros(1, 1, dtype=torch.int64)),
        torch.zeros(1, 1, dtype=torch.int64),
    )
    while not problem.finished(state):
        row, action = problem.mask(state)[0].nonzero(as_tuple=True)
        state = problem.step(rows(state, row), action[None])
        actions = torch.cat([actions[row], action[:, None]], dim=1)
    return actions, problem.outcome(batch, state, actions[None])[0]


def played(instance: JSSPInstance, *jobs: int) -> JSSPState:
    problem, batch = JSSP(), JSSP().collate([instance])
    state = problem.reset(batch, problem.starts(batch))
    for job in jobs:
        state = problem.step(state, torch.tensor([[job]]))
    return state


# --- by hand


def test_a_schedule_by_hand() -> None:
    """Both first operations begin at 0; job 1 waits until 4 and ends at 6, job 2 at 5."""
    state = played(SMALL, 0, 1)
    view = gather_next_operations(state)
    assert view.start.tolist() == [[[4, 4]]]
    assert view.finish.tolist() == [[[6, 5]]]
    assert state.left.tolist() == [[[1, 2, 0]]]
    batch, actions = JSSP().collate([SMALL]), torch.tensor([[[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]])
    assert JSSP().cost(batch, actions).tolist() == [[6.0, 10.0]]
    assert JSSP().decode(SMALL, actions[0, 0].tolist()) == Schedule(((0, 4), (0, 4)))
    assert JSSP().decode(SMALL, actions[0, 1].tolist()) == Schedule(((0, 3), (5, 9)))


def test_candidates_by_hand() -> None:
    """Job 1 can end first, at 3 on machine 0, without a rival; machine 1 is next, until 4."""
    assert JSSP().mask(played(SMALL)).tolist() == [[[True, False]]]
    assert JSSP("any").mask(played(SMALL)).tolist() == [[[True, True]]]
    assert JSSP().mask(played(SMALL, 0)).tolist() == [
        [[True, True]]
    ]  # ends 5 and 4; job 1 could begin at 3
    assert JSSP().mask(played(SMALL, 0, 1)).tolist() == [[[False, True]]]


def test_machines_that_tie_are_taken_by_the_work_left() -> None:
    """Two operations could end at 3: machine 1 has 3 + 9 to do, machine 0 has 3, so 1 decides."""
    tie = JSSPInstance("tie", ((3, 9), (3,)), ((0, 1), (1,)), 2)
    assert JSSP().mask(played(tie)).tolist() == [[[False, True]]]


def test_finished_rollouts_have_one_thing_to_do() -> None:
    """A rollout that ends early dispatches job 0, without effect and with probability 1."""
    short = replace(
        UNEVEN, name="short", durations=((2,), (3,), (4, 2, 1)), machines=((0,), (1,), (0, 1, 0))
    )
    problem, batch = JSSP(), JSSP().collate([UNEVEN, short])
    state = problem.reset(batch, problem.starts(batch))
    for _ in range(5):
        state = problem.step(state, problem.mask(state).to(torch.uint8).argmax(-1))
    assert problem.mask(state)[1].tolist() == [[True, False, False]]
    assert not problem.finished(state)
    after = problem.step(state, torch.zeros(2, 1, dtype=torch.int64))
    for name in ("next", "job", "machine", "left"):
        assert torch.equal(getattr(after, name)[1], getattr(state, name)[1]), name
    assert problem.finished(after)


def test_a_sequence_that_is_no_schedule_is_refused() -> None:
    """Whatever an engine delivers, decoding ends and the plan's own check has the last word."""
    with pytest.raises(Infeasible, match="small: job 2 has 1 starts for 2 operations"):
        JSSP().decode(SMALL, [0, 0, 0, 0, 1]).check(SMALL)


# --- by brute force


@pytest.mark.parametrize(
    "instance", [SMALL, UNEVEN, LAZY, *random_instances(12)], ids=lambda i: i.name
)
def test_active_schedules_lose_no_optimum(instance: JSSPInstance) -> None:
    """The best sequence has the optimal makespan, and each one decodes to its own."""
    actions, cost = all_sequences(JSSP(), instance)
    for row, priced in zip(actions.tolist(), cost.tolist(), strict=True):
        plan = JSSP().decode(instance, row)
        plan.check(instance)
        assert plan.cost(instance) == priced == makespan(instance, tuple(row[1:]))
    assert cost.min() == optimum(instance)


@pytest.mark.parametrize("seed", range(3))
def test_active_schedules_of_three_jobs_on_three_machines(seed: int) -> None:
    """Of 1680 semi-active sequences a few dozen remain, all different, the best among them."""
    rng = np.random.default_rng(seed)
    instance = jssp_from_arrays(rng.integers(1, 99, (3, 3)), rng.random((3, 3)).argsort(1))
    actions, cost = all_sequences(JSSP(), instance)
    plans = {JSSP().decode(instance, row) for row in actions.tolist()}
    assert len(plans) == len(actions) < 200
    assert cost.min() == optimum(instance)


def test_any_job_gives_all_semi_active_sequences() -> None:
    """The other candidate rule allows all 1680 orders of three jobs on three machines."""
    rng = np.random.default_rng(0)
    instance = jssp_from_arrays(rng.integers(1, 99, (3, 3)), rng.random((3, 3)).argsort(1))
    actions, cost = all_sequences(JSSP("any"), instance)
    assert len(actions) == 1680
    assert cost.min() == optimum(instance)


def test_nothing_can_begin_earlier() -> None:
    """In active schedules no operation fits into an earlier gap of its machine."""
    for instance in random_instances(10, seed=5):
        actions, _ = all_sequences(JSSP(), instance)
        for row in actions[:: max(1, len(actions) // 10)].tolist():
            assert_active(instance, JSSP().decode(instance, row))


def assert_active(instance: JSSPInstance, plan: Schedule) -> None:
    work = [(o, plan.starts[o.job][o.step]) for o in instance.operations]
    for operation, start in work:
        ready = plan.end(instance, operation.job, operation.step - 1) if operation.step else 0
        busy = sorted(
            (s, s + o.duration)
            for o, s in work
            if o.machine == operation.machine and o != operation
        )
        gaps = zip(
            [0, *(end for _, end in busy)], [*(begin for begin, _ in busy), 10**9], strict=True
        )
        earliest = min(max(a, ready) for a, b in gaps if max(a, ready) + operation.duration <= b)
        assert start <= earliest or operation.duration == 0


# --- what may not matter


def shuffled(batch: JSSPBatch, order: torch.Tensor) -> JSSPBatch:
    """Return the same instances with their jobs in another order."""
    tables = {name: getattr(batch, name)[:, order] for name in ("duration", "machine", "tail")}
    return replace(batch, **tables)


def test_permuting_jobs_permutes_candidates(rng: torch.Generator) -> None:
    """Jobs in another order have the same candidates at every step, and the same makespans."""
    problem, order = JSSP(), torch.tensor([3, 0, 4, 1, 2])
    duration = torch.randint(1, 10**6, (20, 5, 4), generator=rng)  # so long that machines never tie
    machine = problem.sample(20, "5x4", rng).machine[..., :-1]
    batch = batch_from_tables(duration, machine, 4, torch.arange(20), steps=20, max_per_machine=5)
    one, other = (
        problem.reset(b, torch.zeros(20, 3, dtype=torch.int64))
        for b in (batch, shuffled(batch, order))
    )
    while not problem.finished(one):
        allowed = problem.mask(one)
        assert torch.equal(problem.mask(other), allowed[..., order])
        action = torch.rand(allowed.shape, generator=rng).masked_fill(~allowed, -1.0).argmax(-1)
        one, other = problem.step(one, action), problem.step(other, order.argsort()[action])
    assert torch.equal(one.job[..., order], other.job)


def test_keys_name_the_instance() -> None:
    """The key depends on durations and machines, not on the name or the rest of the batch."""
    other = replace(SMALL, durations=((3, 2), (4, 2)))
    turned = replace(SMALL, machines=((1, 0), (0, 1)))
    key = JSSP().collate([SMALL, other, turned, replace(SMALL, name="again")]).key.tolist()
    assert key[0] == key[3] == JSSP().collate([SMALL]).key.item()
    assert len(set(key)) == 3


def test_long_times_stay_exact() -> None:
    """Times that single precision cannot count decide correctly: 2^29 + 1 is after 2^29."""
    big = 2**29
    instance = JSSPInstance("long", ((big + 1, 1), (big, 5)), ((0, 1), (1, 0)), 2)
    assert JSSP().mask(played(instance)).tolist() == [[[False, True]]]
    assert all_sequences(JSSP(), instance)[0].tolist() == [[0, 1, 0, 0, 1], [0, 1, 1, 0, 0]]


# --- random instances


def test_random_instances_are_those_of_the_field() -> None:
    """Durations are uniform in 1..98, and each job visits each machine once."""
    batch = JSSP().sample(300, "6x4", torch.Generator().manual_seed(0))
    duration, machine = batch.duration[..., :-1], batch.machine[..., :-1]
    assert tuple(duration.shape) == (300, 6, 4)
    assert (duration.min().item(), duration.max().item()) == (1, 98)
    assert duration.double().mean().item() == pytest.approx(
        49.5, abs=1.0
    )  # 3 standard errors of 28.3 / sqrt(7200)
    assert torch.equal(machine.sort(2).values, torch.arange(4).expand_as(machine))
    assert (machine[..., 0].flatten().bincount() / 1800 - 0.25).abs().max() < 0.04
    assert torch.equal(batch.load[:, :4].sum(1), duration.sum((1, 2)))
    assert (batch.steps, batch.max_per_machine) == (24, 6)


@pytest.mark.parametrize(
    ("size", "shape"),
    [("20x15", (20, 15)), ("100x25", (100, 25)), (6, (6, 6)), ("1x1", (1, 1)), ("7", (7, 7))],
)
def test_sizes(size: int | str, shape: tuple[int, int]) -> None:
    """Sizes are jobs x machines; one number means a square."""
    assert parse_size(size) == shape


@pytest.mark.parametrize(
    "size", ["", "x5", "5x", "0x3", "3x0", "5 x 5", "-1x2", "1000x1000", "axb", "101x2", "2x101"]
)
def test_sizes_that_are_none(size: str) -> None:
    """Anything else is refused with an example, and what no file may have."""
    with pytest.raises(InputError, match="expected jobs x machines such as 20x15"):
        parse_size(size)
