"""Threads where cores are shared: how long OpenMP waits, and how many threads torch gets.

Torch's operations on a CPU end in a barrier, at which GNU OpenMP spins 300,000 times, for
milliseconds, before it lets another process have the core. Where other processes keep the cores
busy, a thread waits that long for another one that it keeps from running, at every operation:
rollouts of a job shop took 4.4 s instead of 0.14 s. Two measures hold the time limits of searches:

- `limit_spinning`: 10,000 times, a thirtieth of that. It has to be set before torch is imported.
- `SharedCores`: under a time limit, torch has no more threads than there are free cores. One
  thread has no barriers at all. Threads of our own kernels never wait for each other, so their
  number stays.

`OMP_WAIT_POLICY=passive` would not spin at all, but waking a thread takes so long that two threads
are slower than one, also on an idle machine (encoding 15.4 ms, one thread 13.7 ms, spinning 10.1).
"""

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ThreadsTuning:
    """How the load of the machine is noticed."""

    spin_count: int = 10_000
    load_file: Path = Path("/proc/loadavg")  # its fourth field: running threads / all threads
    # Between two looks at the load.
    min_seconds_between_looks: float = 0.25
    # Threads of our own that have just worked still spin at the first look.
    looks: int = 3
    seconds_between_looks: float = 0.001


TUNING = ThreadsTuning()
OPENMP_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def limit_spinning() -> None:
    """Let OpenMP spin for a shorter time, unless the user has set that, or torch is there."""
    if "torch" in sys.modules or any(name in os.environ for name in OPENMP_SETTINGS):
        return
    os.environ["GOMP_SPINCOUNT"] = str(TUNING.spin_count)


def running_threads() -> int:
    """Return how many threads of all processes run at this moment; 1 if that is unknown."""
    try:
        fields = TUNING.load_file.read_text().split()
        return int(fields[3].split("/")[0])
    except (OSError, ValueError, IndexError):
        return 1


def free_cores() -> int:
    """Return on how many cores no other process runs, at least 1.

    It is the most of a few looks, because a short moment of work of another process is no load.
    """
    cores = os.cpu_count() or 1
    most = 1
    for look in range(TUNING.looks):
        if look:
            time.sleep(TUNING.seconds_between_looks)
        others = running_threads() - 1
        most = max(most, cores - max(0, others))
        if most == cores:
            break
    return most


class SharedCores:
    """The number of torch's threads while cores may be shared with other processes."""

    def __init__(self) -> None:
        self.wanted: int | None = None  # by the user; None: torch's number is the wanted one
        self.last_look = 0.0

    def adapt(self) -> None:
        """Give torch as many threads as cores are free, if `share` is under way."""
        now = time.monotonic()
        if self.wanted is None or now < self.last_look + TUNING.min_seconds_between_looks:
            return
        self.last_look = now
        self.set_threads(1 if self.wanted == 1 else min(self.wanted, free_cores()))

    @contextmanager
    def share(self, enabled: bool = True) -> Generator[None]:
        """Let `adapt` change the number of torch's threads meanwhile."""
        if not enabled or self.wanted is not None:
            yield
            return
        self.wanted = worker_threads()
        self.last_look = 0.0
        try:
            self.adapt()
            yield
        finally:
            self.set_threads(self.wanted)
            self.wanted = None

    def set_threads(self, count: int) -> None:
        """Set torch's number of threads, if it is another one."""
        import torch

        if torch.get_num_threads() != count:
            torch.set_num_threads(count)


SHARED_CORES = SharedCores()


def worker_threads() -> int:
    """Return the number of threads of our kernels and local searches: what the user wants."""
    import torch

    return SHARED_CORES.wanted or torch.get_num_threads()
