"""Questions about latents, answered in a process of its own."""

import queue
import threading
from typing import Any

from rhumbline.errors import InputError
from rhumbline.serve.pool import WorkerProcess
from rhumbline.serve.requests import Refused
from rhumbline.serve.settings import ServiceSettings
from rhumbline.serve.worker import Message


class LatentDecoder:
    """A worker for questions about latents, so that a click need not wait for a search."""

    max_seconds = 40.0  # that an answer may take, with the start of the process

    def __init__(self, settings: ServiceSettings):
        self.answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.number = 0  # of the latest request; answers to earlier ones are ignored
        self.worker = WorkerProcess(settings, 1, self.handle_message, self.report_death)

    def handle_message(self, worker: WorkerProcess, message: Message) -> None:
        """Pass an answer of the process to the request that waits for it."""
        if message.kind != "idle":
            self.answers.put(message)

    def report_death(self, worker: WorkerProcess, exit_code: int | None) -> None:
        """Answer the waiting request with the reason, and start a new process."""
        reason = f"the process ended with code {exit_code}"
        answer = Message("refused", self.number, reason)
        self.answers.put(answer)
        worker.start()

    def ask(self, question: str, body: dict[str, Any], *words: Any) -> dict[str, Any]:
        """Return the answer to one of `LATENT_QUESTIONS` about a job."""
        with self.lock:
            self.number += 1
            payload = {"body": body, "words": words, "number": self.number}
            self.worker.send(question, payload)
            answer = self.wait_for_answer()
        if answer.kind != "answered":
            raise InputError(str(answer.facts))
        return answer.facts

    def wait_for_answer(self) -> Message:
        """Return the answer to the latest request; a process that takes too long is replaced."""
        while True:
            try:
                answer = self.answers.get(timeout=self.max_seconds)
            except queue.Empty:
                self.worker.kill()
                raise Refused(503, "this takes too long; try again later") from None
            if answer.index == self.number:
                return answer

    def close(self) -> None:
        """End the process."""
        self.worker.close()
