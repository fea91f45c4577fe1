"""Workers that a test plays, and the jobs that it sends."""

from typing import Any

from rhumbline.serve.worker import Message


class FakeWorker:
    """A worker that does what a test tells it, instead of a process."""

    def __init__(self, settings, threads, on_message, on_death):
        self.on_message = on_message
        self.on_death = on_death
        self.batch: Any = None
        self.is_ready = False
        self.received: list[tuple[str, Any]] = []
        self.stops = 0
        self.kills = 0
        self.begun = 0.0
        self.starts = 0
        self.cpu = 0.0

    def start(self) -> None:
        self.starts += 1
        self.is_ready = False

    def send(self, kind: str, payload: Any) -> None:
        self.received.append((kind, payload))

    def stop_batch(self) -> None:
        self.stops += 1

    def cpu_seconds(self) -> float:
        return self.cpu

    def kill(self) -> None:
        self.kills += 1

    def close(self) -> None:
        pass

    # --- what the test lets the worker say

    def say(self, kind: str, index: int | None = None, facts: Any = None) -> None:
        self.on_message(self, Message(kind, index, facts))

    def get_ready(self) -> None:
        self.say("idle")

    def solve_all(self, cost: int = 10) -> None:
        count = len(self.batch)
        self.say("started")
        for index in range(count):
            self.say("finished", index, plan(cost) | {"interrupted": False})
        self.say("idle")

    def die(self, exit_code: int = -9) -> None:
        self.on_death(self, exit_code)


def plan(cost: int) -> dict[str, Any]:
    facts = {"cost": cost, "gap": None, "plan": [1, 2, 3, 4], "verified": True}
    return facts | {"attempts": 5, "seconds": 0.1, "phase": "search"}


def square(**options: Any) -> dict[str, Any]:
    """A job: four cities."""
    return {"coordinates": [[0, 0], [0, 1], [1, 1], [1, 0]], "seconds": 1} | options
