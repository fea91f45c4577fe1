"""The client against a server that a test plays: repetitions, refusals and tokens."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rhumbline import client as client_module
from rhumbline.client import Client, ServiceError

SQUARE = {"coordinates": [[0, 0], [0, 1], [1, 1], [1, 0]]}
ACCEPTED = (202, {}, {"id": "abc", "state": "queued"})
FULL = (429, {"Retry-After": "0"}, {"detail": "the queue is full"})
LOST = None  # the connection is closed without an answer


class PlayedHandler(BaseHTTPRequestHandler):
    """Answers from a list, and remembers what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        self.server.asked.append((self.command, self.path, body, self.headers))
        answer = self.server.answers.pop(0)
        if answer is LOST:
            self.close_connection = True
            return
        status, headers, content = answer
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET  # noqa: N815
    do_DELETE = do_GET  # noqa: N815

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def played(monkeypatch):
    """A server on this machine; a test sets its answers."""
    tuning = replace(client_module.TUNING, first_retry_seconds=0.0)
    monkeypatch.setattr(client_module, "TUNING", tuning)
    server = ThreadingHTTPServer(("127.0.0.1", 0), PlayedHandler)
    server.asked = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_full_queue_is_tried_again(played) -> None:
    played.answers = [FULL, FULL, ACCEPTED]
    assert Client(played.url).submit(SQUARE, seconds=1) == "abc"
    assert [body for _, _, body, _ in played.asked] == [SQUARE | {"seconds": 1}] * 3


def test_a_queue_that_stays_full_is_reported(played) -> None:
    played.answers = [FULL] * 6
    with pytest.raises(ServiceError, match="the queue is full") as refused:
        Client(played.url).submit(SQUARE)
    assert refused.value.status == 429


def test_a_job_that_may_have_been_accepted_is_not_sent_twice(played) -> None:
    played.answers = [LOST, ACCEPTED]
    with pytest.raises(ServiceError, match="cannot be reached"):
        Client(played.url).submit(SQUARE)
    assert len(played.asked) == 1


def test_a_job_with_a_key_is_sent_again_after_a_lost_connection(played) -> None:
    played.answers = [LOST, ACCEPTED]
    assert Client(played.url).submit(SQUARE, idempotency_key="k") == "abc"
    assert [headers["Idempotency-Key"] for *_, headers in played.asked] == ["k", "k"]


def test_questions_are_repeated_after_a_lost_connection(played) -> None:
    played.answers = [LOST, LOST, (200, {}, {"id": "abc", "state": "done"})]
    assert Client(played.url).job("abc")["state"] == "done"


def test_refusals_are_not_repeated(played) -> None:
    played.answers = [(422, {}, {"detail": "seconds is -1"}), (500, {}, b"<html>")]
    client = Client(played.url)
    with pytest.raises(ServiceError, match="seconds is -1"):
        client.submit(SQUARE, seconds=-1)
    with pytest.raises(ServiceError, match="answers 500"):
        client.job("abc")
    assert len(played.asked) == 2


def test_the_token_is_sent_and_ids_are_quoted(played) -> None:
    played.answers = [(200, {}, {"id": "x", "state": "done"})]
    Client(f"{played.url}/", token="0123456789abcdef").stop("a/b c")
    method, path, _, headers = played.asked[0]
    assert (method, path) == ("DELETE", "/v1/jobs/a%2Fb%20c")
    assert headers["Authorization"] == "Bearer 0123456789abcdef"


def test_the_client_follows_a_job_to_its_end(played) -> None:
    states = [{"id": "abc", "state": state} for state in ("queued", "running", "done")]
    played.answers = [ACCEPTED, *((200, {}, state) for state in states)]
    seen = []
    assert Client(played.url).solve(SQUARE, follow=seen.append) == states[-1]
    assert seen == states


def test_the_client_needs_nothing_but_the_standard_library() -> None:
    code = "import sys, rhumbline.client; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    packages = {name.partition(".")[0] for name in output.split()}
    assert not packages & {"torch", "numpy", "jaxtyping", "safetensors", "starlette", "requests"}
