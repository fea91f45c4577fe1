"""Worker processes as the server sees them: a thread listens to each; dead ones are replaced."""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rhumbline.distributed.backends.processes import PROCESSES
from rhumbline.serve.settings import ServiceSettings
from rhumbline.serve.worker import STOP, Message, run_worker


class WorkerProcess:
    """One worker process and the thread that listens to it."""

    def __init__(
        self,
        settings: ServiceSettings,
        threads: int,
        on_message: Callable[["WorkerProcess", Message], None],
        on_death: Callable[["WorkerProcess", int | None], None],
    ):
        self.settings = settings
        self.threads = threads
        self.on_message = on_message
        self.on_death = on_death
        self.batch: Any = None  # what it works on; the service sets it
        self.begun = 0.0  # when it was given its batch
        self.cpu_begun = 0.0  # the processor time that it had used by then
        self.is_ready = False  # to be given work: batches form while a process starts
        self.is_closing = False
        self.start()

    def start(self) -> None:
        """Start the process and the thread that reads its messages."""
        self.is_ready = False
        self.connection, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(
            target=run_worker, args=(theirs, self.settings, self.threads), daemon=True
        )
        self.process.start()
        theirs.close()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Pass on messages until the process ends."""
        connection = self.connection
        while True:
            try:
                message = connection.recv()
            except (EOFError, OSError):
                break
            self.on_message(self, message)
        self.process.join()
        if not self.is_closing:
            self.on_death(self, self.process.exitcode)

    def send(self, kind: str, payload: Any) -> None:
        """Send a message to the worker. If it is dead, the listening thread reports that."""
        message = (kind, payload)
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def stop_batch(self) -> None:
        """End the search of the current batch; the worker reports its best plans."""
        pid = self.process.pid
        if pid and self.process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, STOP)

    def cpu_seconds(self) -> float:
        """Return the processor time that the process has used so far; 0 if it is dead."""
        try:
            text = Path(f"/proc/{self.process.pid}/stat").read_text()
        except OSError:
            return 0.0
        _, _, after_name = text.rpartition(")")  # the name may hold anything
        fields = after_name.split()
        user_ticks = int(fields[11])
        system_ticks = int(fields[12])
        return (user_ticks + system_ticks) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """Kill a process that no longer answers; its death is reported like any other."""
        self.process.kill()

    def close(self) -> None:
        """End the process."""
        self.is_closing = True
        self.process.kill()
        self.process.join()
        self.connection.close()


def threads_per_worker(workers: int) -> int:
    """Return how many threads each worker may use: the cores are shared."""
    cores = len(os.sched_getaffinity(0))
    cores_per_worker = cores // workers
    return max(1, cores_per_worker)
