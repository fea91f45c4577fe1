"""Server-sent events of one job: its state at each change, no faster than the client reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from rhumbline.serve.jobs import Job, JobChanges


@dataclass(frozen=True)
class EventTuning:
    """How often something is sent."""

    heartbeat_seconds: float = 15.0  # proxies close connections that are silent for long
    min_seconds_between_events: float = 0.05


TUNING = EventTuning()


async def job_events(job: Job) -> AsyncIterator[str]:
    """Yield the job now and after each change, until it is final.

    The plan is only sent when it has changed. Changes that come while an event is being sent are
    sent together.
    """
    sent_best = -1
    with JobChanges(job) as changes:
        while True:
            is_final = job.state.is_final
            has_new_plan = job.best_number != sent_best
            sent_best = job.best_number
            view = job.view(with_plan=has_new_plan or is_final)
            yield format_event("job", view)
            if is_final:
                return
            await asyncio.sleep(TUNING.min_seconds_between_events)
            while not await changes.wait(TUNING.heartbeat_seconds):
                yield ": waiting\n\n"


def format_event(kind: str, data: Any) -> str:
    """Format one event."""
    text = json.dumps(data)
    return f"event: {kind}\ndata: {text}\n\n"
