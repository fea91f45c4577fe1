"""Hostile clients of a real server: damaged bodies, slow and dropped connections, odd paths."""

import http.client
import json
import random
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.campaigns.record import CampaignResult
from tools.service_process import ServiceProcess, running_service

VALID = {"coordinates": [[0, 0], [0, 5], [5, 5], [5, 0], [2, 2]], "seconds": 0.2}
EXTREMES = (None, True, -1, 0, 1e308, 10**40, "", "x" * 5_000, [], {}, [[]], "\x00", "é", "../x")
KEYS = (
    *("coordinates", "distances", "depot", "customers", "demands", "capacity", "durations"),
    *("machines", "name", "text", "seconds", "attempts", "search", "then", "seed", "top"),
    *("latents", "vehicles", "constructor"),
)
PATHS = (
    *("/", "/health", "/metrics", "/v1/jobs", "/v1/jobs/x", "/v1/jobs/x/plan", "/openapi.json"),
    *("/page/../app.py", "/page/%2e%2e/%2e%2e/store.py", "//", "/v1/jobs/%00", "/v1/jobs?limit=x"),
)
ANSWER_SECONDS = 60.0  # the first question about a latent starts a process, which may take a while
SLOW_CLIENTS = 30
SLOW_SECONDS = 25.0  # after which the server must have given them up
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "NONSENSE")


def run(seconds: float, seed: int) -> CampaignResult:
    """Send hostile requests until the time is up; the server must answer all of them sensibly."""
    rng = random.Random(seed)
    faults: list[str] = []
    statuses: dict[str, int] = {}
    tried = 0
    with tempfile.TemporaryDirectory() as folder, running_service(Path(folder)) as service:
        slow_clients = [open_slowly(service) for _ in range(SLOW_CLIENTS)]
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and len(faults) < 20:
            act = rng.choices(ACTS, ACT_WEIGHTS)[0]
            tried += 1
            try:
                status = act(rng, service)
            except (OSError, http.client.HTTPException) as error:
                faults.append(f"{act.__name__}: {type(error).__name__}: {error}")
                continue
            statuses[f"status {status}"] = statuses.get(f"status {status}", 0) + 1
            if status >= 500:
                faults.append(f"{act.__name__} with seed {seed}, request {tried}: {status}")
        if not service.answers():
            faults.append("the server does not answer at the end")
        held = sum(is_open(client) for client in slow_clients)
        if held and seconds > SLOW_SECONDS:
            faults.append(f"{held} connections are open that never sent a request")
        replaced = metric(service, "rhumb_workers_replaced_total")
        if replaced:
            faults.append(f"{replaced} workers have died")
    figures: dict[str, float | int | str] = dict(sorted(statuses.items()))
    return CampaignResult("service", tried, tuple(faults), figures)


def open_slowly(service: ServiceProcess) -> socket.socket:
    """Begin a request that never ends."""
    client = socket.create_connection(("127.0.0.1", service.port), timeout=ANSWER_SECONDS)
    client.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: ")
    return client


def is_open(client: socket.socket) -> bool:
    """Return whether the server still waits for a client; close it then."""
    client.settimeout(0.1)
    try:
        return client.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False
    finally:
        client.close()


def send_body(rng: random.Random, service: ServiceProcess) -> int:
    """Send a job that is damaged in some way."""
    body = json.dumps(damaged_job(rng)).encode()
    if rng.random() < 0.3:
        body = damaged_bytes(rng, body)
    kind = rng.choice(("application/json", "application/json", "text/plain", ""))
    return ask(service, "POST", "/v1/jobs", body, {"Content-Type": kind})


def damaged_job(rng: random.Random) -> Any:
    """Return a job with some fields replaced, added or removed."""
    job: dict[str, Any] = dict(VALID)
    for _ in range(rng.randrange(4)):
        key = rng.choice(KEYS)
        if rng.random() < 0.3:
            job.pop(key, None)
        else:
            job[key] = damaged_value(rng, depth=3)
    return job if rng.random() < 0.95 else damaged_value(rng, depth=3)


def damaged_value(rng: random.Random, depth: int) -> Any:
    """Return a value that a careless program might send."""
    if depth == 0 or rng.random() < 0.5:
        return rng.choice((*EXTREMES, rng.random(), rng.randrange(-5, 50)))
    count = rng.randrange(5)
    if rng.random() < 0.5:
        return [damaged_value(rng, depth - 1) for _ in range(count)]
    return {rng.choice(KEYS): damaged_value(rng, depth - 1) for _ in range(count)}


def damaged_bytes(rng: random.Random, body: bytes) -> bytes:
    """Return a body that is cut off, changed, or nested beyond reason."""
    kind = rng.randrange(4)
    if kind == 0:
        return body[: rng.randrange(len(body) + 1)]
    if kind == 1:
        place = rng.randrange(len(body))
        return body[:place] + rng.randbytes(3) + body[place + 1 :]
    if kind == 2:
        return b"[" * rng.choice((10, 100_000))
    return rng.randbytes(rng.randrange(2_000))


def send_path(rng: random.Random, service: ServiceProcess) -> int:
    """Ask for an odd path by an odd method."""
    headers = {"Idempotency-Key": "x" * rng.choice((1, 300)), "Last-Event-ID": "\x7f"}
    return ask(service, rng.choice(METHODS), rng.choice(PATHS), None, headers)


def ask(
    service: ServiceProcess, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> int:
    """Return the status of an answer, which must come in time."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def use_job(rng: random.Random, service: ServiceProcess) -> int:
    """Send a good job, and ask for something odd about it."""
    path = f"/v1/jobs/{send_good_job(service)}"
    act = rng.randrange(4)
    if act == 0:
        return leave_events(rng, service, path)
    if act == 1:
        body = json.dumps({rng.choice(("number", "latent")): damaged_value(rng, depth=2)})
        kind = {"Content-Type": "application/json"}
        return ask(service, "POST", f"{path}/decode", body.encode(), kind)
    if act == 2:
        return ask(service, "DELETE", path, None, {})
    part = rng.choice(("plan", "layout", "latents", "picture?format=exe", "landscape?extent=9"))
    return ask(service, "GET", f"{path}/{part}", None, {})


def send_good_job(service: ServiceProcess) -> str:
    """Send a job that can be solved; return its id."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=ANSWER_SECONDS)
    try:
        body = json.dumps(VALID | {"latents": True})
        connection.request("POST", "/v1/jobs", body, {"Content-Type": "application/json"})
        return json.load(connection.getresponse()).get("id", "none")  # the queue may be full
    finally:
        connection.close()


def leave_events(rng: random.Random, service: ServiceProcess, path: str) -> int:
    """Follow a job and go away before it ends; return 0."""
    with socket.create_connection(
        ("127.0.0.1", service.port), timeout=ANSWER_SECONDS
    ) as connection:
        head = f"GET {path}/events HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\n\r\n"
        connection.sendall(head.encode())
        connection.recv(rng.choice((1, 200)))
    return 0


def drop_connection(rng: random.Random, service: ServiceProcess) -> int:
    """Send a part of a request and go away; return 0."""
    body = json.dumps(VALID).encode()
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    with socket.create_connection(
        ("127.0.0.1", service.port), timeout=ANSWER_SECONDS
    ) as connection:
        connection.sendall(request[: rng.randrange(len(request))])
        if rng.random() < 0.1:
            time.sleep(0.05)
    return 0


def metric(service: ServiceProcess, name: str) -> float:
    """Return a figure of the server."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=ANSWER_SECONDS)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


ACTS = (send_body, send_path, drop_connection, use_job)
ACT_WEIGHTS = (6, 2, 2, 1)
