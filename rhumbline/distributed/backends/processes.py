"""Worker processes of this machine: one per GPU, or several that divide the cores."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any

from rhumbline.distributed.backends import ChunkOutcome, Lost, SolveChunk, describe_error
from rhumbline.distributed.chunk_work import ChunkResult
from rhumbline.distributed.chunks import Chunk
from rhumbline.errors import RhumbError

# A fresh interpreter: torch, numba and servers have threads, which a forked process would inherit.
PROCESSES = multiprocessing.get_context("spawn")


@dataclass
class LocalWorker:
    """A process and the chunks that it was given, oldest first."""

    process: Any
    connection: Any  # ours; a pipe
    chunks: list[Chunk]
    is_ready: bool = False


@dataclass(frozen=True)
class WorkerPlan:
    """How many processes there are, and what each of them may use."""

    workers: int
    threads: int
    gpus: Sequence[str] = ()

    def gpu(self, number: int) -> str | None:
        """Return the GPU of a process, if there are any."""
        if not self.gpus:
            return None
        return self.gpus[number % len(self.gpus)]


@dataclass(frozen=True)
class WorkerSetting:
    """The threads and the GPU that one process may use."""

    threads: int
    gpu: str | None


def plan_workers(count: int | None, device: str, threads: int | None = None) -> WorkerPlan:
    """Return a plan for processes that share this machine.

    Without a count there is one for each GPU or, on a CPU, one for each core.
    """
    may_use_gpus = device != "cpu"
    gpus = visible_gpus() if may_use_gpus else ()
    usable_cores = os.sched_getaffinity(0)
    cores = len(usable_cores)
    gpu_count = len(gpus)
    workers = count or gpu_count or cores
    cores_per_worker = max(1, cores // workers)
    threads_per_worker = threads or cores_per_worker
    return WorkerPlan(workers, threads_per_worker, gpus)


class ProcessBackend:
    """Processes of this machine. One that dies is replaced; the chunk that it worked on is lost."""

    max_failed_starts = 3  # in a row

    def __init__(self, solve: SolveChunk, plan: WorkerPlan):
        self.solve = solve
        self.plan = plan
        self.failed_starts = 0  # in a row
        self.workers: list[LocalWorker] = []
        try:
            for number in range(plan.workers):
                self.workers.append(self.start(number))
        except BaseException:
            self.close()
            raise

    @property
    def capacity(self) -> int:
        """Two chunks for each worker: it solves one while the other is sent."""
        return 2 * len(self.workers)

    def start(self, number: int) -> LocalWorker:
        """Start a process; it sees one GPU if there are any."""
        ours, theirs = PROCESSES.Pipe()
        setting = WorkerSetting(self.plan.threads, self.plan.gpu(number))
        process = PROCESSES.Process(
            target=solve_until_closed, args=(theirs, self.solve, setting), daemon=True
        )
        # Python starts its resource tracker with the first process, and unblocks SIGINT after that.
        resource_tracker.ensure_running()
        with block_interrupts():
            process.start()
        theirs.close()
        return LocalWorker(process, ours, [])

    def submit(self, chunk: Chunk) -> None:
        """Give a chunk to the worker that has the least to do."""
        worker = min(self.workers, key=lambda one: len(one.chunks))
        if not worker.chunks and not worker.process.is_alive():
            worker = self.replace(worker)  # it died between two chunks
        worker.chunks.append(chunk)
        with contextlib.suppress(OSError):  # a dead worker is found by `wait`
            worker.connection.send(chunk)

    def wait(self) -> list[ChunkOutcome]:
        """Wait for results, and replace workers that have died."""
        outcomes: list[ChunkOutcome] = []
        while not outcomes:
            busy = {worker.connection: worker for worker in self.workers if worker.chunks}
            ready = wait(list(busy))
            for connection in ready:
                outcomes += self.receive(busy[connection])  # type: ignore[index]
        return outcomes

    def receive(self, worker: LocalWorker) -> list[ChunkOutcome]:
        """Return the outcome that a worker has sent, or that of its death; none if ready."""
        try:
            message: ChunkResult | Lost | None = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            message = Lost(f"its {describe_end(worker)}")
            self.check_start(worker, message.reason)
        if message is None:
            worker.is_ready = True
            self.failed_starts = 0
            return []
        chunk = worker.chunks.pop(0)  # only the first one may have killed it
        if isinstance(message, Lost):
            self.replace(worker)
        return [ChunkOutcome(chunk, message)]

    def check_start(self, worker: LocalWorker, reason: str) -> None:
        """Raise if several processes in a row die before they are ready for work."""
        self.failed_starts += not worker.is_ready
        if self.failed_starts >= self.max_failed_starts:
            advice = "a Python script with workers needs `if __name__ == '__main__':`"
            raise RhumbError(f"worker processes die as they start ({reason}); {advice}")

    def replace(self, worker: LocalWorker) -> LocalWorker:
        """Replace a worker process by a new one, which gets its chunks."""
        number = self.workers.index(worker)
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        fresh = self.start(number)
        self.workers[number] = fresh
        for chunk in worker.chunks:
            fresh.chunks.append(chunk)
            with contextlib.suppress(OSError):
                fresh.connection.send(chunk)
        return fresh

    def close(self) -> None:
        """Kill all processes."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
            worker.connection.close()


def describe_end(worker: LocalWorker) -> str:
    """Return how a process ended, for messages."""
    return f"worker process ended with code {worker.process.exitcode}"


@contextlib.contextmanager
def block_interrupts() -> Generator[None]:
    """Block SIGINT; processes that start in the block never receive it.

    Ctrl-C in a terminal reaches all processes. The driver handles it and ends the workers.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def visible_gpus() -> Sequence[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    if not torch.cuda.is_available():
        return ()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named:
        return tuple(named.split(","))
    return tuple(map(str, range(torch.cuda.device_count())))


def solve_until_closed(connection: Connection, solve: SolveChunk, setting: WorkerSetting) -> None:
    """Solve chunks until the pipe is closed; this is what a worker process runs.

    After an unexpected error the process ends, because its state (that of a GPU, say) is unknown.
    """
    threading.Thread(target=exit_with_parent, daemon=True).start()
    if setting.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = setting.gpu
    import torch

    torch.set_num_threads(setting.threads)
    chunks: SimpleQueue[Chunk | None] = SimpleQueue()
    connection.send(None)  # ready
    threading.Thread(target=receive_chunks, args=(connection, chunks), daemon=True).start()
    while chunk := chunks.get():
        result = solve_or_describe(chunk, solve)
        try:
            connection.send(result)
        except OSError:
            return
        if isinstance(result, Lost):
            return


def receive_chunks(connection: Connection, chunks: "SimpleQueue[Chunk | None]") -> None:
    """Take chunks out of the pipe at once, so that the driver never waits for room in it.

    Otherwise a driver that sends a large chunk and a worker that sends a large result would
    deadlock.
    """
    while True:
        try:
            chunks.put(connection.recv())
        except (EOFError, OSError):
            chunks.put(None)
            return


def solve_or_describe(chunk: Chunk, solve: SolveChunk) -> ChunkResult | Lost:
    """Return the result of a chunk, or a description of an unexpected error."""
    try:
        return solve(chunk)
    except Exception as error:
        return Lost(describe_error(error))


def exit_with_parent() -> None:
    """End this process as soon as its parent has ended, for whatever reason."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
