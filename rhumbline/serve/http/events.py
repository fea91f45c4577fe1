"""Server-sent events of one job: its state at each change, no faster than the client reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from rhumbline.serve.jobs import Job, JobChanges

HEARTBEAT_SECONDS = 15.0  # proxies close connections that are silent for long
MIN_INTERVAL = 0.05  # seconds between two events


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
            yield event("job", job.view(with_plan=has_new_plan or is_final))
            if is_final:
                return
            await asyncio.sleep(MIN_INTERVAL)
            while not await changes.wait(HEARTBEAT_SECONDS):
                yield ": waiting\n\n"


def event(kind: str, data: Any) -> str:
    """Format one event."""
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"
