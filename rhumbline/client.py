"""A client of `rhumb serve`, in the standard library alone.

from rhumbline.client import Client

plan = Client("http://127.0.0.1:8400").solve("examples/harbour100.tsp", seconds=10)
print(plan["best"]["cost"])
"""

import http.client
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from rhumbline.errors import RhumbError


@dataclass(frozen=True)
class ClientTuning:
    """How often a client asks, and how long it waits in between."""

    max_retries: int = 5  # of a request that the server could not take or answer
    first_retry_seconds: float = (
        0.2  # before the first repetition; each further one waits twice as long
    )
    first_pause_seconds: float = 0.05  # between two questions about a job
    max_pause_seconds: float = 2.0
    pause_growth: float = 1.3  # of each pause over the one before
    max_wait_seconds: float = 60.0  # that a service may ask a client to wait


TUNING = ClientTuning()


class ServiceError(RhumbError):
    """The service cannot be reached, or has refused a request; `status` is 0 or that of HTTP."""

    exit_code = 7

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Client:
    """One service, and the token that it wants."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0):
        self.url = url.rstrip("/")
        self.token = token
        self.timeout = timeout

    def solve(
        self,
        instance: str | Path | Mapping[str, Any],
        follow: Callable[[dict[str, Any]], None] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Send an instance and return its job when it has ended; `follow` hears of each state.

        An instance is the path of a file, or the fields of an instance. `options` are those of the
        service, such as `seconds=10`. Ctrl-C stops the job and returns its best plan so far.
        """
        job_id = self.submit(instance, **options)
        try:
            return self.wait(job_id, follow)
        except KeyboardInterrupt:
            return self.stop(job_id)

    def submit(
        self,
        instance: str | Path | Mapping[str, Any],
        idempotency_key: str | None = None,
        **options: Any,
    ) -> str:
        """Send an instance and return the id of its job."""
        if isinstance(instance, Mapping):
            fields = dict(instance)
        else:
            path = Path(instance)
            try:
                fields = {"name": path.name, "text": path.read_text(encoding="utf-8")}
            except (OSError, UnicodeDecodeError) as error:
                raise ServiceError(0, f"{path}: cannot be read ({error})") from error
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        answer = self.ask("POST", "/v1/jobs", fields | options, headers)
        return answer["id"]

    def wait(
        self, job_id: str, follow: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        """Return a job when it has ended."""
        pause = TUNING.first_pause_seconds
        while True:
            job = self.job(job_id)
            if follow:
                follow(job)
            if job["state"] in ("done", "interrupted", "failed"):
                return job
            time.sleep(pause)
            pause = min(TUNING.max_pause_seconds, TUNING.pause_growth * pause)

    def job(self, job_id: str) -> dict[str, Any]:
        """Return a job with its best plan so far."""
        path = path_of_job(job_id)
        return self.ask("GET", path)

    def stop(self, job_id: str) -> dict[str, Any]:
        """Stop a job and return it with its best plan."""
        path = path_of_job(job_id)
        return self.ask("DELETE", path)

    def jobs(self, limit: int = 50) -> list[dict[str, Any]]:
        """Return the latest jobs, newest first, without their plans."""
        path = f"/v1/jobs?limit={limit}"
        answer = self.ask("GET", path)
        return answer["jobs"]

    def plan(self, job_id: str) -> str:
        """Return the best plan of a job as a file: .tour, .sol or .sched."""
        path = f"{path_of_job(job_id)}/plan"
        content = self.fetch("GET", path, None, {})
        return content.decode()

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Return the JSON that the service answers."""
        answer = self.fetch(method, path, body, headers or {})
        return json.loads(answer)

    def fetch(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> bytes:
        """Return what the service answers; a full queue and a lost connection are tried again.

        A job is sent again only if it has an idempotency key, or if it was not accepted.
        """
        may_repeat = method != "POST" or "Idempotency-Key" in headers
        for trial in range(TUNING.max_retries + 1):
            request = self.request(method, path, body, headers)
            pause = TUNING.first_retry_seconds * 2**trial
            try:
                with urlopen(request, timeout=self.timeout) as answer:
                    return answer.read()
            except HTTPError as error:
                if error.code != 429 or trial == TUNING.max_retries:
                    raise ServiceError(error.code, refusal(error)) from None
                pause = retry_seconds(error, pause)
            except (URLError, OSError, http.client.HTTPException) as error:
                if trial == TUNING.max_retries or not may_repeat:
                    reason = error.reason if isinstance(error, URLError) else error
                    raise ServiceError(0, f"{self.url}: cannot be reached ({reason})") from None
            time.sleep(pause)
        raise AssertionError("the last trial returns or raises")

    def request(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Request:
        """Return a request with its token."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, method=method, headers=dict(headers))
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        return request


def path_of_job(job_id: str) -> str:
    """Return the path of a job; an id with a slash in it still is one part of the path."""
    quoted = quote(job_id, safe="")
    return f"/v1/jobs/{quoted}"


def retry_seconds(error: HTTPError, default: float) -> float:
    """Return how long the service asks to wait; anything but whole seconds is ignored."""
    text = error.headers.get("Retry-After", "")
    is_whole_number = text.isascii() and text.isdigit()
    if not is_whole_number:
        return default
    return min(float(text), TUNING.max_wait_seconds)


def refusal(error: HTTPError) -> str:
    """Return the sentence of a problem document."""
    try:
        answer = json.loads(error.read())
        return str(answer["detail"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"the service answers {error.code} {error.reason}"
