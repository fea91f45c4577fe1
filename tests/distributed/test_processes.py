"""Worker processes of this machine: equal results, deaths, and messages larger than a pipe."""

import multiprocessing
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from many_cases import POISON, REFUSED, deadly_solver, echo_large, make_cities, quick_request

from rhumbline.distributed.backends import processes
from rhumbline.distributed.backends.processes import ProcessBackend, WorkerPlan, plan_workers
from rhumbline.distributed.chunks import Chunk, cut_into_chunks
from rhumbline.distributed.run import solve_many
from rhumbline.distributed.schedule import solve_chunks
from rhumbline.errors import InputError, MissingExtra, RhumbError

OPTIONS: dict[str, Any] = {
    "attempts": 4,
    "strategy": "sampling",
    "device": "cpu",
    "chunk": 5,
    "threads": 1,
}
slow = pytest.mark.slow


def test_solve_many_takes_a_stream_and_reads_it_as_it_is_solved() -> None:
    """The iterable may be endless: a few chunks are read at a time."""
    taken: list[int] = []

    def stream() -> Any:
        for number, instance in enumerate(make_cities(50)):
            taken.append(number)
            yield instance

    results = solve_many(stream(), **OPTIONS)
    first = next(results)
    assert first.solution is not None
    first.solution.plan.check(first.solution.instance)
    assert len(taken) <= 10
    results.close()


def test_an_instance_that_is_refused_fails_alone() -> None:
    """A job shop among cities has no policy here; the reason is that of `solve`."""
    instances = make_cities(3)
    shop = {"durations": [[1, 2], [2, 1]], "machines": [[0, 1], [1, 0]], "machine_count": 2}
    found = {r.place: r for r in solve_many([*instances, shop], **OPTIONS, policy="tsp")}
    assert sorted(found) == [0, 1, 2, 3]
    assert all(found[place].solution for place in range(3))
    assert "trained for 'tsp'" in str(found[3].error)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"workers": 0}, InputError, "expected a number of processes"),
        ({"workers": "many"}, InputError, "expected a number of processes"),
        ({"workers": True}, InputError, "expected a number of processes"),
        ({"strategy": "smapling"}, InputError, "did you mean"),
        ({"policy": "nowhere"}, RhumbError, "no checkpoint 'nowhere'"),
        ({"device": "cuda"}, MissingExtra, "torch sees no NVIDIA GPU"),
        ({"chunk": 0}, InputError, "at least 1 instance"),
    ],
)
def test_what_cannot_work_is_refused_before_any_process_starts(
    change: dict[str, Any], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(error, match=message):
        list(solve_many(make_cities(2), **{**OPTIONS, "workers": 2} | change))
    assert not multiprocessing.active_children()


def test_several_instances_in_one_item_are_refused() -> None:
    with pytest.raises(InputError, match="item 0 holds 2 instances"):
        list(solve_many([np.zeros((2, 5, 2))], **OPTIONS))


def test_workers_share_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each GPU, in turn; without GPUs one for each core, and threads are shared out."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr("rhumbline.distributed.backends.processes.visible_gpus", lambda: ("4", "7"))
    assert plan_workers(None, "cpu") == WorkerPlan(8, 1)
    assert plan_workers(3, "cpu") == WorkerPlan(3, 2)
    assert plan_workers(2, "cpu", threads=1) == WorkerPlan(2, 1)
    plan = plan_workers(None, "auto")
    assert (plan.workers, plan.threads) == (2, 4)
    assert [plan.gpu(number) for number in range(3)] == ["4", "7", "4"]


@slow
def test_two_processes_find_the_plans_of_one() -> None:
    """Bit for bit: with attempts, nothing depends on where a chunk is solved."""
    instances = [*make_cities(17), *make_cities(9, size=6)]
    runs: list[dict[int, Any]] = []
    for workers in (None, 2):
        found = {r.place: r.solution for r in solve_many(instances, workers=workers, **OPTIONS)}
        assert sorted(found) == list(range(26))
        runs.append({place: (s.cost, s.plan) for place, s in found.items() if s})
    assert runs[0] == runs[1]


@slow
def test_poison_fails_alone_with_its_reason() -> None:
    """One instance kills its process, one raises an unexpected error; all others are solved."""
    instances = make_cities(30)
    instances[7] = replace(instances[7], name=POISON)
    instances[21] = replace(instances[21], name=REFUSED)
    backend = ProcessBackend(deadly_solver(quick_request()), WorkerPlan(2, 1))
    solved: list[int] = []
    failed: dict[int, str] = {}
    for result in solve_chunks(cut_into_chunks(instances, 10), backend):
        solved += result.solutions
        failed |= result.failures
    assert sorted(solved) == [place for place in range(30) if place not in (7, 21)]
    assert failed == {
        7: "its worker process ended with code -9",
        21: "ValueError: an unexpected error",
    }
    assert not multiprocessing.active_children()


@slow
def test_messages_larger_than_a_pipe_do_not_block() -> None:
    """A driver that sends 4 MB while its worker sends 4 MB waits for ever without a reader."""
    heavy = np.zeros(500_000)
    chunks = [Chunk(number, (number,), (heavy,)) for number in range(12)]
    backend = ProcessBackend(partial(echo_large, size=4_000_000), WorkerPlan(1, 1))
    results = list(solve_chunks(chunks, backend))
    assert sorted(result.chunk_number for result in results) == list(range(12))


@slow
def test_a_worker_that_dies_between_two_chunks_is_replaced() -> None:
    """The next chunk is not charged with its death."""
    chunks = list(cut_into_chunks(make_cities(20), 5))
    backend = ProcessBackend(deadly_solver(quick_request()), WorkerPlan(1, 1))
    try:
        backend.submit(chunks[0])
        backend.wait()
        backend.workers[0].process.kill()
        backend.workers[0].process.join()
        backend.submit(chunks[1])
        (outcome,) = backend.wait()
        assert sorted(outcome.result.solutions) == [5, 6, 7, 8, 9]
    finally:
        backend.close()


@slow
def test_no_worker_hears_ctrl_c() -> None:
    """SIGINT is blocked in each of them from its start, also in the first."""
    backend = ProcessBackend(DiesOnArrival(), WorkerPlan(2, 1))
    try:
        for worker in backend.workers:
            status = Path(f"/proc/{worker.process.pid}/status").read_text(encoding="ascii")
            blocked = next(line for line in status.splitlines() if line.startswith("SigBlk:"))
            assert int(blocked.split()[1], 16) & 1 << (signal.SIGINT - 1)
    finally:
        backend.close()


@slow
def test_processes_that_cannot_start_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of a script without a guard: one error, not one for each instance."""
    monkeypatch.setattr(processes.ProcessBackend, "max_failed_starts", 2)
    backend = ProcessBackend(DiesOnArrival(), WorkerPlan(1, 1))
    with pytest.raises(RhumbError, match="worker processes die as they start"):
        list(solve_chunks(cut_into_chunks(make_cities(100), 1), backend))


class DiesOnArrival:
    """A function that ends the process which unpacks it."""

    def __reduce__(self) -> Any:
        return exit_elsewhere, (os.getpid(),)

    def __call__(self, chunk: Chunk) -> Any:
        raise AssertionError("never called")


def exit_elsewhere(home: int) -> None:
    """End this process, unless it is the one of the tests."""
    if os.getpid() != home:
        os._exit(3)
