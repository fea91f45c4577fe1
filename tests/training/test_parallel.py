"""Two processes compute what one would, and different clocks cannot make them diverge."""

import os
import socket
import time
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from small import small_config

from rhumbline.errors import InputError, RhumbError
from rhumbline.problems.tsp import TSP
from rhumbline.training import loop, parallel
from rhumbline.training.loop import train
from rhumbline.training.trainer import Trainer

CPU = torch.device("cpu")
JOBS = ("pomo", "winner", "parts")


def gradients(objective: str) -> dict[str, torch.Tensor]:
    """Return the gradient of one update with two mini-steps, added up over the processes."""
    trainer = Trainer(small_config(objective, accumulate=2), CPU)
    for mini in range(2):
        trainer.gradient(mini)
    parallel.add_gradients(trainer.parameters.values())
    return {n: p.grad for n, p in trainer.parameters.items()}


def weights_by_skewed_clock(rank: int, out: Path) -> dict[str, torch.Tensor]:
    """Return the weights after six seconds, by a clock that is faster in the second process.

    The rate falls in the last three of these seconds.
    """
    now, seen = [0.0], list[Trainer]()

    class Seen(Trainer):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            seen.append(self)

    def clock() -> float:
        now[0] += 0.05 * (1 + 0.3 * rank)
        return now[0]

    loop.Trainer = Seen
    list(
        train(
            small_config("pomo", updates=0, report=1.5),
            device=CPU,
            out=out,
            minutes=0.1,
            clock=clock,
        )
    )
    return {n: p.detach() for n, p in seen[0].parameters.items()}


def worker(rank: int, port: int, folder: str, job: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    parallel.join_group(CPU)
    out = Path(folder)
    if job == "gradients":
        torch.save({o: gradients(o) for o in JOBS}, out / f"{rank}.pt")
    else:
        torch.save(weights_by_skewed_clock(rank, out), out / f"{rank}.pt")
    parallel.leave_group()
    os._exit(0)  # as `rhumb train` does: while Python unloads, threads of gloo may crash


def run_two(folder: Path, job: str, seconds: float) -> bool:
    """Return whether two processes did the job in time; they are stopped if not."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.start_processes(
        worker, (port, str(folder), job), nprocs=2, join=False, start_method="spawn"
    )
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if context.join(timeout=0.5):
            return True
    for process in context.processes:
        process.kill()
        process.join()
    return False


def test_two_processes_give_the_gradient_of_one(tmp_path: Path) -> None:
    """The sum over processes, each with half of the joint batch, is the whole batch's gradient."""
    assert run_two(tmp_path, "gradients", 60)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for objective in JOBS:
        alone = gradients(objective)
        largest = max(g.abs().max() for g in alone.values())
        assert largest > 1e-3
        for name, expected in alone.items():
            assert torch.equal(first[objective][name], second[objective][name])
            assert (first[objective][name] - expected).abs().max() <= 1e-6 * largest, (
                objective,
                name,
            )


def test_different_clocks_do_not_make_processes_diverge(tmp_path: Path) -> None:
    """A run that ends by minutes has the same weights in both processes."""
    assert run_two(tmp_path, "clock", 90), "the processes wait for each other"
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(x, second[name]) for name, x in first.items())


def test_shares_split_the_joint_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares follow each other, for tensors and records; an uneven batch is refused."""
    monkeypatch.setattr(parallel, "world_size", lambda: 2)
    batch = TSP().sample(4, 3, torch.Generator().manual_seed(0))
    for rank, rows in enumerate((slice(0, 2), slice(2, 4))):
        monkeypatch.setattr(parallel, "rank", lambda rank=rank: rank)
        assert torch.equal(parallel.share(batch).xy, batch.xy[rows])
        assert torch.equal(parallel.share(batch).key, batch.key[rows])
        assert torch.equal(parallel.share(batch.xy), batch.xy[rows])
    with pytest.raises(
        InputError, match="a batch of 3 cannot be shared by 2 processes; make it a multiple"
    ):
        parallel.share(torch.zeros(3, 2))


def test_one_process_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchrun nothing is joined, shared or added."""
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert parallel.join_group(CPU) == CPU
    assert (parallel.rank(), parallel.world_size()) == (0, 1)
    whole = torch.arange(3)
    assert parallel.share(whole) is whole
    assert parallel.broadcast_from_first(0.75) == 0.75
    assert parallel.run_on_first(lambda: 3) == 3
    assert parallel.gather_from_all(7) == [7]


def test_a_folder_that_hosts_do_not_share_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart the first process may be on a host that has never seen the state."""
    monkeypatch.setattr(parallel, "gather_from_all", lambda newest: [newest, 500])
    with pytest.raises(InputError, match=f"{tmp_path}: another host has the state of update 500"):
        loop.check_shared(tmp_path)
    monkeypatch.setattr(parallel, "gather_from_all", lambda newest: [500, newest])
    loop.check_shared(tmp_path)  # only the first process needs the folder


@pytest.mark.parametrize(
    ("processes", "words", "kind"),
    [
        ("2", "[third_party/gloo/transport] Connection closed by peer", RhumbError),
        ("2", "shape mismatch", RuntimeError),
        ("1", "gloo", RuntimeError),
    ],
)
def test_a_lost_process_is_one_line(
    monkeypatch: pytest.MonkeyPatch, processes: str, words: str, kind: type[Exception]
) -> None:
    """Only errors of the connection are; faults of ours keep their traceback."""
    monkeypatch.setenv("WORLD_SIZE", processes)
    with pytest.raises(kind), parallel.report_lost_contact():
        raise RuntimeError(words)
