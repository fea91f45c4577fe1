"""The interface over HTTP, without processes: routes, limits, tokens and headers."""

import json
import re

import pytest
from fake_workers import FakeWorker, plan, square
from starlette.testclient import TestClient

from rhumbline.errors import InputError
from rhumbline.serve import service as service_module
from rhumbline.serve.http.app import make_app
from rhumbline.serve.http.security import Tokens, read_tokens
from rhumbline.serve.http.server import Address
from rhumbline.serve.settings import ServiceSettings

TOKEN = "0123456789abcdef"


@pytest.fixture
def settings(tmp_path, monkeypatch) -> ServiceSettings:
    monkeypatch.setattr(service_module, "WorkerProcess", FakeWorker)
    return ServiceSettings(data=tmp_path, workers=1, max_body_bytes=20_000)


@pytest.fixture
def client(settings):
    with TestClient(make_app(settings), base_url="http://127.0.0.1:8400") as client:
        client.service = client.app.app.state.api.service
        yield client


def send(client, body=None, **headers):
    return client.post("/v1/jobs", json=body or square(), headers=headers)


def finish(client, cost: int = 10) -> None:
    worker = client.service.workers[0]
    worker.get_ready()
    worker.solve_all(cost)


def test_a_job_from_request_to_plan(client) -> None:
    answer = send(client)
    assert answer.status_code == 202
    place = answer.headers["location"]
    assert client.get(place).json()["state"] == "queued"
    assert client.get(f"{place}/plan").status_code == 409
    finish(client)
    job = client.get(place).json()
    assert (job["state"], job["best"]["cost"], job["best"]["verified"]) == ("done", 10, True)
    tour = client.get(f"{place}/plan")
    assert "TOUR_SECTION\n1\n2\n3\n4\n-1" in tour.text
    assert tour.headers["content-disposition"].endswith('.tour"')
    svg = client.get(f"{place}/picture?format=svg")
    assert svg.headers["content-type"] == "image/svg+xml"
    assert "<svg" in svg.text
    assert client.get(f"{place}/picture?format=exe").status_code == 422
    assert client.get(f"{place}/layout").json()["xy"] == [[0, 0], [0, 1], [1, 1], [1, 0]]
    listed = client.get("/v1/jobs").json()["jobs"]
    assert [one["id"] for one in listed] == [job["id"]]
    assert "plan" not in listed[0]["best"]


def test_events_send_each_change_and_end_with_the_job(client) -> None:
    place = send(client).headers["location"]
    finish(client)
    text = client.get(f"{place}/events").text
    kinds = [line for line in text.splitlines() if line.startswith("event")]
    last = json.loads(text.strip().splitlines()[-1].removeprefix("data: "))
    assert kinds == ["event: job"]
    assert last["best"]["plan"] == plan(10)["plan"]


def test_stopping_returns_the_best_plan(client) -> None:
    place = send(client).headers["location"]
    worker = client.service.workers[0]
    worker.get_ready()
    worker.say("improved", 0, plan(9))
    job = client.delete(place).json()
    assert (job["state"], job["best"]["cost"]) == ("interrupted", 9)


def test_latents_are_shown_and_kept(client) -> None:
    place = send(client, square(latents=True)).headers["location"]
    worker = client.service.workers[0]
    worker.get_ready()
    covariance = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    facts = {"means": [[0.0, 0.0, 0.0]], "covariances": [covariance], "costs": [3, 4, 5]}
    facts["latents"] = [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.5, 0.0]]
    worker.say("latents", 0, facts)
    running = client.get(f"{place}/latents").json()
    worker.solve_all()
    found = client.get(f"{place}/latents").json()
    assert found == running
    assert found["tried"] == 3
    # The first axis is the one along which latents differ most.
    assert sorted(abs(round(x, 3)) for x, _, _, _ in found["points"])[1:] == [1.0, 1.0]
    assert [number for _, _, _, number in found["points"]] == [0, 1, 2]
    [step] = found["steps"]
    assert step["tried"] == 3
    assert step["centres"][0]["radii"] == pytest.approx([1.0, 1.0])


def test_jobs_without_a_record_of_latents_say_so(client) -> None:
    place = send(client, square(seed=5)).headers["location"]
    assert client.get(f"{place}/latents").status_code == 404
    stopped = send(client, square(latents=True)).headers["location"]
    client.delete(stopped)  # before it had tried any
    assert client.get(f"{stopped}/latents").json()["points"] == []


@pytest.mark.parametrize(
    "body",
    [
        *([], {}, {"number": 7}, {"number": "x"}, {"number": True}, {"latent": []}),
        *({"latent": [10**400]}, {"latent": [1e300]}, {"latent": ["0"]}, {"latent": "0"}),
    ],
)
def test_latents_that_cannot_be_decoded_are_refused(client, body) -> None:
    place = send(client, square(latents=True)).headers["location"]
    answer = client.post(f"{place}/decode", json=body)
    assert answer.status_code == 422
    assert "latent" in answer.json()["detail"]


def test_the_curve_of_a_job_survives_it(client) -> None:
    place = send(client).headers["location"]
    worker = client.service.workers[0]
    worker.get_ready()
    for cost, seconds in ((9, 0.1), (12, 0.2), (7, 0.4)):
        worker.say("improved", 0, plan(cost) | {"seconds": seconds})
    worker.solve_all(cost=7)
    job = client.get(place).json()
    assert job["curve"] == [[0.1, 9], [0.4, 7]]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"{", "application/json", 400),
        (b'{"seconds": NaN}', "application/json", 400),
        (b"[" * 10_000, "application/json", 400),
        (b'"' + b"x" * 30_000 + b'"', "application/json", 413),
        (b"[]", "application/json; charset=utf-8", 422),
        (b"\xff\xfe", "application/json", 400),
    ],
)
def test_bad_bodies_are_problem_documents(client, body, kind, status) -> None:
    answer = client.post("/v1/jobs", content=body, headers={"content-type": kind})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


def test_unknown_places_and_methods_are_problem_documents(client) -> None:
    for answer in (client.get("/v1/nothing"), client.get("/v1/jobs/none"), client.put("/v1/jobs")):
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.status_code in (404, 405)
    assert client.get("/page/../store.py").status_code == 404
    assert client.get("/page/%2e%2e/store.py").status_code == 404


def test_a_full_queue_says_when_to_come_back(settings, tmp_path) -> None:
    from dataclasses import replace

    small = replace(settings, max_queued_per_client=1)
    with TestClient(make_app(small)) as client:
        send(client)
        answer = send(client)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0


def test_a_name_with_markup_stays_text(client) -> None:
    text = (
        "NAME: <script>alert(1)</script>\nTYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EUC_2D\n"
        "NODE_COORD_SECTION\n1 0 0\n2 0 1\n3 1 1\n4 1 0\nEOF\n"
    )
    job = {"name": 'x"><img src=x>\r\nX-Evil: 1.tsp', "text": text, "seconds": 1}
    place = send(client, job).headers["location"]
    finish(client)
    picture = client.get(f"{place}/picture?format=svg")
    assert "<script" not in picture.text
    name = picture.headers["content-disposition"]
    assert re.fullmatch(r'attachment; filename="[A-Za-z0-9-]+\.svg"', name)
    assert "x-evil" not in picture.headers


def test_every_answer_has_the_headers_of_safety(client) -> None:
    for path in ("/", "/health", "/v1/jobs", "/v1/jobs/none", "/page/main.js"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_tokens_are_asked_for_and_separate_clients(settings) -> None:
    tokens = Tokens(((TOKEN, "anna"), (TOKEN[::-1], "ben")))
    with TestClient(make_app(settings, tokens)) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/").status_code == 200
        for wrong in (None, "Bearer nonsense", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"):
            given = {"authorization": wrong.encode()} if wrong else {}
            answer = client.get("/v1/jobs", headers=given)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        anna = {"authorization": f"Bearer {TOKEN}"}
        ben = {"authorization": f"Bearer {TOKEN[::-1]}"}
        place = client.post("/v1/jobs", json=square(), headers=anna).headers["location"]
        assert client.get(place, headers=anna).status_code == 200
        assert client.get(place, headers=ben).status_code == 404


def test_a_page_of_another_site_cannot_use_its_name_for_ours(settings) -> None:
    with TestClient(make_app(settings, hosts=("127.0.0.1:8400",))) as client:
        assert client.get("/health", headers={"host": "127.0.0.1:8400"}).status_code == 200
        assert client.get("/health", headers={"host": "evil.example"}).status_code == 421


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "holds no token"), ("short\n", ":1: the token is too short"), ("a b c\n", "a name and")],
)
def test_token_files_that_cannot_be_used(tmp_path, text, message) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_tokens(path)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        *(("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True)),
        *(("0.0.0.0", False), ("::", False), ("127.0.0.1.example.org", False), ("10.0.0.1", False)),
    ],
)
def test_only_addresses_of_this_machine_need_no_token(host, is_loopback) -> None:
    assert Address(host, 8400).is_loopback == is_loopback


def test_metrics_and_the_description_of_the_interface(client) -> None:
    send(client)
    finish(client)
    lines = client.get("/metrics").text.splitlines()
    assert 'rhumb_jobs_ended_total{state="done"} 1' in lines
    assert "rhumb_attempts_total 5" in lines
    document = client.get("/openapi.json").json()
    routes = {route.path for route in client.app.app.routes if hasattr(route, "methods")}
    assert routes - {"/", "/openapi.json"} == set(document["paths"])
