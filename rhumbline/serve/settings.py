"""What a service allows, and where it keeps its jobs."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a server. A request beyond a limit is refused; the message states the limit."""

    data: Path
    workers: int = 2
    policies: tuple[tuple[str, str], ...] = ()  # problem and checkpoint; default: the shipped ones
    keep_seconds: float = 7 * 86_400.0  # for which ended jobs are kept
    max_queued: int = 10_000  # jobs that wait or run
    max_queued_per_client: int = 2_000
    max_queued_bytes: int = 256 << 20  # of the bodies of jobs that wait or run, kept in memory
    max_body_bytes: int = 8 << 20
    max_nodes: int = 1_000
    max_seconds: float = 600.0
    default_seconds: float = 10.0
    max_batch: int = 64  # jobs that one worker solves together
    # A job that takes longer never occupies the last free worker, so short ones can overtake it.
    short_seconds: float = 15.0


def default_workers() -> int:
    """Return one worker per core, and at least two, so that short jobs can overtake long ones."""
    usable = os.sched_getaffinity(0)
    cores = len(usable)
    return max(2, cores)
