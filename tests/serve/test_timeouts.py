"""Clients that send or read too slowly lose their connection; others do not."""

import asyncio
import socket
import threading
import time

import pytest
import uvicorn

from rhumbline.serve.http import timeouts

LARGE = b"x" * 30_000_000  # more than the buffers of two sockets hold
HEAD = b"GET / HTTP/1.1\r\nHost: here\r\n"


async def answer(scope, receive, send) -> None:
    """Read the body and answer it; the path /large gets a large answer."""
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    body = LARGE if scope["path"] == "/large" else body
    for start in range(0, len(body) + 1, 100_000):
        chunk = body[start : start + 100_000]
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body"})


@pytest.fixture
def port(monkeypatch):
    limits = timeouts.TimeLimits(head_seconds=0.3, request_seconds=0.6, reading_seconds=0.6)
    monkeypatch.setattr(timeouts, "LIMITS", limits)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # connections wait until the server accepts them
    config = uvicorn.Config(
        answer, http=timeouts.TimedProtocol, lifespan="off", log_level="critical"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=asyncio.run, args=(server.serve([listener]),))
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def seconds_until_closed(connection: socket.socket) -> float:
    start = time.monotonic()
    try:
        while connection.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - start


@pytest.mark.parametrize(
    ("sent", "least"),
    [
        (b"", 0.25),
        (HEAD, 0.25),
        (HEAD + b"Content-Length: 10\r\n\r\nabc", 0.55),
    ],
)
def test_a_request_that_never_ends_is_cut_off(port, sent, least) -> None:
    with connect(port) as connection:
        connection.sendall(sent)
        assert least < seconds_until_closed(connection) < 5.0


def test_a_second_request_on_a_connection_must_end_as_well(port) -> None:
    with connect(port) as connection:
        connection.sendall(HEAD + b"\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sendall(HEAD)
        assert seconds_until_closed(connection) < 5.0


def test_a_head_that_comes_drop_by_drop_is_cut_off(port) -> None:
    def send_drops(connection: socket.socket) -> None:
        for _ in range(100):
            connection.sendall(b"G")
            time.sleep(0.05)

    with connect(port) as connection, pytest.raises((BrokenPipeError, ConnectionResetError)):
        send_drops(connection)


def test_an_answer_that_is_not_read_is_given_up(port) -> None:
    with connect(port) as connection:
        connection.sendall(HEAD.replace(b" / ", b" /large ") + b"\r\n")
        time.sleep(1.5)
        received = 0
        try:
            while chunk := connection.recv(1 << 20):
                received += len(chunk)
        except ConnectionResetError:
            pass
        assert received < len(LARGE)


def test_a_client_that_keeps_to_the_limits_is_answered_twice(port) -> None:
    with connect(port) as connection:
        for _ in range(2):
            connection.sendall(HEAD)
            time.sleep(0.1)
            connection.sendall(b"Content-Length: 6\r\n\r\nabc")
            time.sleep(0.4)
            connection.sendall(b"def")
            received = b""
            while not received.endswith(b"0\r\n\r\n"):
                received += connection.recv(1000)
            assert b"abcdef" in received
