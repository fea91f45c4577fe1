"""Plans of single latents, built in a process of its own."""

import queue
import threading
from collections.abc import Sequence
from typing import Any

from rhumbline.errors import InputError
from rhumbline.serve.pool import WorkerProcess
from rhumbline.serve.requests import Refused
from rhumbline.serve.settings import ServiceSettings
from rhumbline.serve.worker import Message

DECODE_SECONDS = 30.0  # that the plan of one latent may take, with the start of the process


class LatentDecoder:
    """A worker for single latents, so that a click on the page need not wait for a search."""

    def __init__(self, settings: ServiceSettings):
        self.answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.number = 0  # of the latest request; answers to earlier ones are ignored
        self.worker = WorkerProcess(settings, 1, self.hear, self.report_death)

    def hear(self, worker: WorkerProcess, message: Message) -> None:
        """Pass an answer to the request that waits for it."""
        if message.kind != "idle":
            self.answers.put(message)

    def report_death(self, worker: WorkerProcess, exit_code: int | None) -> None:
        """Answer the request that waits, and start again."""
        reason = f"the process ended with code {exit_code}"
        self.answers.put(Message("refused", self.number, reason))
        worker.start()

    def decode(self, body: dict[str, Any], latent: Sequence[float]) -> dict[str, Any]:
        """Return the plan of a latent."""
        with self.lock:
            self.number += 1
            payload = {"body": body, "latent": list(latent), "number": self.number}
            self.worker.send("decode", payload)
            answer = self.wait_for_answer()
        if answer.kind != "decoded":
            raise InputError(str(answer.facts))
        return answer.facts

    def wait_for_answer(self) -> Message:
        """Return the answer to the latest request; a process that takes too long is replaced."""
        while True:
            try:
                answer = self.answers.get(timeout=DECODE_SECONDS)
            except queue.Empty:
                self.worker.kill()
                raise Refused(503, "the plan of this latent takes too long") from None
            if answer.index == self.number:
                return answer

    def close(self) -> None:
        """End the process."""
        self.worker.close()
