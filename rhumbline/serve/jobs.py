"""A job and its states, from the request to the last plan."""

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

from rhumbline.serve.latents.log import LatentLog


class JobState(StrEnum):
    """Where a job stands; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether the state no longer changes."""
        return self in (JobState.DONE, JobState.INTERRUPTED, JobState.FAILED)


@dataclass
class Job:
    """One instance to solve, and everything known about it so far."""

    # Improvements that are kept; of more, early ones are thinned out.
    max_improvements: ClassVar[int] = 400

    id: str
    client: str
    body_text: str  # the JSON request, so that a restarted server can continue
    name: str
    problem: str
    size: int
    batch_key: tuple[Any, ...]  # jobs with equal keys are solved together
    seconds: float
    state: JobState = JobState.QUEUED
    created: float = field(default_factory=time.time)
    started: float | None = None
    ended: float | None = None
    idempotency_key: str | None = None
    progress: dict[str, Any] = field(default_factory=dict[str, Any])
    best: dict[str, Any] | None = None
    error: str | None = None
    tries: int = 0  # how often a worker has begun it
    must_be_alone: bool = False  # since a batch with it has failed
    batch_limit: int = 1  # jobs of this size that are solved together at most
    batch_size: int = 1
    latents: LatentLog | None = None
    best_number: int = 0  # counts the improvements
    curve: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    listeners: set[Callable[[], None]] = field(default_factory=set[Callable[[], None]])

    @property
    def body(self) -> dict[str, Any]:
        """The request as an object.

        It is kept as text, which takes a fraction of the memory of an object.
        """
        return json.loads(self.body_text)

    def take_best(self, facts: dict[str, Any]) -> None:
        """Take a better plan, and note when its cost was reached."""
        cost = facts["cost"]
        if self.best is None or cost < self.best["cost"]:
            self.curve.append((facts["seconds"], cost))
            if len(self.curve) > self.max_improvements:
                del self.curve[1 : self.max_improvements // 2 : 2]
        self.best = facts
        self.best_number += 1

    @property
    def wait_seconds(self) -> float:
        """Seconds from the request to the first moment of work, or until now."""
        until = self.started or self.ended or time.time()
        return max(0.0, until - self.created)

    def view(self, with_plan: bool = True) -> dict[str, Any]:
        """Return the job as clients see it."""
        best = self.best
        if best is not None and not with_plan:
            best = {key: value for key, value in best.items() if key != "plan"}
        facts: dict[str, Any] = {
            "id": self.id,
            "state": str(self.state),
            "name": self.name,
            "problem": self.problem,
            "size": self.size,
            "seconds": self.seconds,
            "created": timestamp(self.created),
            "started": timestamp(self.started),
            "ended": timestamp(self.ended),
            "waited": round(self.wait_seconds, 3),
            "batch": self.batch_size,
            "progress": self.progress,
            "best": best,
            "error": self.error,
        }
        if with_plan:
            facts["curve"] = self.curve
        return facts

    def notify(self) -> None:
        """Wake all coroutines that follow the job."""
        for listener in tuple(self.listeners):
            listener()


def new_id() -> str:
    """Return an identifier that cannot be guessed."""
    return secrets.token_urlsafe(12)


def timestamp(seconds: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


class JobChanges:
    """Waits for changes of one job from a coroutine; changes come from other threads."""

    def __init__(self, job: Job):
        self.job = job
        self.loop = asyncio.get_running_loop()
        self.changed = asyncio.Event()

    def __enter__(self) -> "JobChanges":
        self.job.listeners.add(self.wake)
        return self

    def __exit__(self, *details: object) -> None:
        self.job.listeners.discard(self.wake)

    def wake(self) -> None:
        """Wake the coroutine; called from any thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.changed.set)

    async def wait(self, seconds: float) -> bool:
        """Return whether something has changed within the seconds."""
        try:
            await asyncio.wait_for(self.changed.wait(), seconds)
        except TimeoutError:
            return False
        self.changed.clear()
        return True
