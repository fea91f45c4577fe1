"""Worker processes of this machine: one per GPU, or sharing out the cores."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from rhumbline.distributed.backend import Lost, Outcome
from rhumbline.distributed.chunk_work import ChunkResult, solve_chunk
from rhumbline.distributed.chunks import Chunk
from rhumbline.pipeline import SolveRequest

# A fresh interpreter: torch and numba have threads, which a forked process would inherit.
PROCESSES = multiprocessing.get_context("spawn")


@dataclass
class LocalWorker:
    """A process and the chunks that it was given, oldest first."""

    process: Any
    connection: Any  # ours; a pipe
    chunks: list[Chunk]


class ProcessBackend:
    """Some processes of this machine. One that dies is replaced, and its chunks are lost."""

    def __init__(self, request: SolveRequest, workers: int):
        self.request = request
        self.gpus = visible_gpus() if request.device != "cpu" else ()
        self.threads = max(1, len(os.sched_getaffinity(0)) // workers)
        self.workers = [self.start(number) for number in range(workers)]

    @property
    def capacity(self) -> int:
        """Two chunks for each worker: it solves one while the other travels."""
        return 2 * len(self.workers)

    def start(self, number: int) -> LocalWorker:
        """Start a process; it sees one GPU if there are any."""
        ours, theirs = PROCESSES.Pipe()
        gpu = self.gpus[number % len(self.gpus)] if self.gpus else None
        words = theirs, self.request, self.threads, gpu
        process = PROCESSES.Process(target=run_worker, args=words, daemon=True)
        process.start()
        theirs.close()
        return LocalWorker(process, ours, [])

    def submit(self, chunk: Chunk) -> None:
        """Give a chunk to the worker with the fewest."""
        worker = min(self.workers, key=lambda one: len(one.chunks))
        worker.chunks.append(chunk)
        with contextlib.suppress(OSError):  # a dead worker is found by `wait`
            worker.connection.send(chunk)

    def wait(self) -> list[Outcome]:
        """Wait for results, and replace workers that have died."""
        busy = {worker.connection: worker for worker in self.workers if worker.chunks}
        outcomes: list[Outcome] = []
        for connection in wait(list(busy)):
            worker = busy[connection]  # type: ignore[index]  # wait returns what it was given
            try:
                result: ChunkResult = worker.connection.recv()
            except (EOFError, OSError):
                outcomes += self.replace(worker)
                continue
            outcomes.append(Outcome(worker.chunks.pop(0), result))
        return outcomes

    def replace(self, worker: LocalWorker) -> list[Outcome]:
        """Start another process for a dead one; only its first chunk may have killed it."""
        worker.process.join()
        reason = f"its worker process ended with code {worker.process.exitcode}"
        number = self.workers.index(worker)
        first, *others = worker.chunks
        self.workers[number] = self.start(number)
        for chunk in others:
            self.submit(chunk)
        return [Outcome(first, Lost(reason))]

    def close(self) -> None:
        """Kill all processes."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
            worker.connection.close()


def visible_gpus() -> Sequence[str]:
    """Return the GPUs that this process may use, in the words of CUDA_VISIBLE_DEVICES."""
    import torch

    if not torch.cuda.is_available():
        return ()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named:
        return tuple(named.split(","))
    return tuple(map(str, range(torch.cuda.device_count())))


def default_workers(device: str) -> int:
    """Return one worker for each GPU, or one for each core."""
    gpus = visible_gpus() if device != "cpu" else ()
    return len(gpus) or len(os.sched_getaffinity(0))


def run_worker(
    connection: Connection, request: SolveRequest, threads: int, gpu: str | None
) -> None:
    """Be a worker: solve chunks until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the driver, which ends us
    threading.Thread(target=exit_with_parent, daemon=True).start()
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    import torch

    torch.set_num_threads(threads)
    while True:
        try:
            chunk = connection.recv()
            connection.send(solve_chunk(chunk, request))
        except (EOFError, OSError):
            return


def exit_with_parent() -> None:
    """End this process as soon as its parent has ended, however it ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
