"""A real server in a process of its own: batches, kills, signals, and the client."""

import json
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from rhumbline import checkpoint
from rhumbline.checkpoint import TrainingFacts
from rhumbline.client import Client, ServiceError
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy
from tools.service_process import ROOT, ServiceProcess, running_service

pytestmark = pytest.mark.slow

SQUARE = {"coordinates": [[0, 0], [0, 5], [5, 5], [5, 0]]}  # its tour has length 20


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    service = ServiceProcess(tmp_path_factory.mktemp("jobs"))
    service.start()
    yield service
    if service.process.poll() is None:
        service.kill()


def test_the_client_solves_files_and_arrays(service) -> None:
    client = Client(service.url)
    states = []
    job = client.solve(ROOT / "examples/bakery80.vrp", follow=states.append, seconds=2)
    assert job["state"] == "done"
    assert job["best"]["verified"]
    assert {state["state"] for state in states} <= {"queued", "running", "done"}
    assert client.plan(job["id"]).startswith("Route #1:")
    assert client.solve(SQUARE, seconds=1)["best"]["cost"] == 20
    shop = {"durations": [[3, 2], [2, 4]], "machines": [[0, 1], [1, 0]]}
    assert client.solve(shop, seconds=1)["best"]["cost"] == 7  # job 1 and job 2 change places


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_lines_of_the_guide_work(service, tmp_path) -> None:
    """The shell and Python code of the guide, with the address of this server."""
    guide = (ROOT / "docs/guide/service.md").read_text()
    blocks = re.findall(r"```(bash|python)\n(.*?)```", guide, re.DOTALL)
    [shell] = [text for kind, text in blocks if kind == "bash" and "curl" in text]
    [code] = [text for kind, text in blocks if kind == "python"]
    shell = shell.replace("http://127.0.0.1:8400", service.url)
    first, *others = re.sub(r"\\\n *", "", shell).splitlines()
    example_id = re.search(r'"id":"(\w+)"', shell)[1]
    job_id = json.loads(run_shell(first))["id"]
    commands = [line for line in others if line.startswith("curl")]
    wait, show, plan, stop = [line.replace(example_id, job_id) for line in commands]
    assert run_shell(wait).rstrip().splitlines()[-1].startswith("data:")
    assert json.loads(run_shell(show))["best"]["cost"] == 20
    assert "TOUR_SECTION" in run_shell(plan)
    assert json.loads(run_shell(stop))["state"] == "done"
    code = code.replace("http://127.0.0.1:8400", service.url).replace("seconds=10", "seconds=1")
    python = [sys.executable, "-c", code]
    printed = subprocess.run(python, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert float(printed.split()[0]) > 0


def run_shell(command: str) -> str:
    """Return what a command prints."""
    words = ["bash", "-c", command]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def test_refusals_reach_the_client_as_sentences(service) -> None:
    client = Client(service.url)
    with pytest.raises(ServiceError, match="seconds is -1, expected a number above 0") as refused:
        client.submit(SQUARE, seconds=-1)
    assert refused.value.status == 422
    with pytest.raises(ServiceError, match="no such job"):
        client.job("none")
    with pytest.raises(ServiceError, match="cannot be read"):
        client.submit("nowhere.tsp")


def test_a_job_is_stopped_with_its_best_plan(service) -> None:
    client = Client(service.url)
    job_id = client.submit(ROOT / "examples/bakery80.vrp", seconds=60)
    client_waits = threading.Event()

    def follow(job) -> None:
        if job["best"]:
            client_waits.set()
            client.stop(job_id)

    job = client.wait(job_id, follow)
    assert client_waits.is_set()
    assert job["state"] == "interrupted"
    assert job["best"]["verified"]


def test_killed_twice_nothing_that_was_finished_is_lost(service) -> None:
    client = Client(service.url)
    ids = [client.submit(SQUARE, seconds=1, seed=seed, then="none") for seed in range(8)]
    finished = client.wait(ids[0])
    service.kill()
    service.start()
    assert client.job(ids[0]) == finished
    service.kill()
    service.start()
    for job_id in ids:
        job = client.wait(job_id)
        assert job["state"] == "done"
        assert job["best"]["cost"] == 20


def test_a_policy_of_two_dimensions_has_a_heat_map(tmp_path, service) -> None:
    torch.manual_seed(0)
    policy = TSPPolicy(Architecture(width=32, heads=2, layers=1, hidden=32, latent=2))
    path = tmp_path / "flat.safetensors"
    checkpoint.save(path, policy, TrainingFacts("tsp", 20, 0))
    points = [[(7 * i) % 10, (3 * i) % 11] for i in range(8)]
    options = {"seconds": 0.5, "search": "cmaes", "latents": True}
    with running_service(tmp_path / "jobs", "--policy", str(path)) as flat_service:
        client = Client(flat_service.url)
        job = client.solve({"coordinates": points}, **options)
        found = client.ask("GET", f"/v1/jobs/{job['id']}/landscape")
        decoded = client.ask("POST", f"/v1/jobs/{job['id']}/decode", {"latent": [1.5, -1.5]})
        with pytest.raises(ServiceError, match=r"extent is '2', expected one of 1\.5, 3, 6, 12"):
            client.ask("GET", f"/v1/jobs/{job['id']}/landscape?extent=2")
    costs = found["costs"]
    assert [len(row) for row in costs] == [24] * 24
    # The grid takes every start of so small an instance, so its corner is the plan at that latent.
    assert costs[0][-1] == pytest.approx(decoded["cost"], abs=0.001)
    assert min(map(min, costs)) >= job["best"]["cost"] - 0.001
    client = Client(service.url)  # with the policy of 16 dimensions
    job = client.solve(SQUARE, **options)
    with pytest.raises(ServiceError, match="16 dimensions; only policies with two"):
        client.ask("GET", f"/v1/jobs/{job['id']}/landscape")


def test_two_servers_on_one_folder_are_refused(service) -> None:
    words = ["serve", "--port", "0", "--data", str(service.data)]
    second = subprocess.run(
        [sys.executable, "-m", "rhumbline", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 3
    assert "another server" in second.stderr


def test_a_signal_ends_the_server_in_order(tmp_path) -> None:
    service = ServiceProcess(tmp_path)
    service.start()
    job_id = Client(service.url).submit(ROOT / "examples/bakery80.vrp", seconds=30)
    assert service.stop() in (0, 130)
    service.start()
    job = Client(service.url).stop(job_id)
    assert job["state"] == "interrupted"
    service.stop()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--host", "0.0.0.0"], 3, "give --token-file, or listen on 127.0.0.1"),
        (["--policy", "nowhere"], 3, "nowhere"),
        (["--policy", "tsp", "--policy", "tsp100"], 3, "give one --policy for each problem"),
        (["--keep", "soon"], 3, "expected a number with s, m, h or d"),
        (["--token-file", "nowhere"], 3, "nowhere: cannot be read"),
        (["--host", "203.0.113.1", "--token-file", "tokens"], 3, "cannot listen on 203.0.113.1"),
    ],
)
def test_what_cannot_work_is_refused_before_workers_start(tmp_path, options, code, message) -> None:
    (tmp_path / "tokens").write_text("0123456789abcdef\n")
    answer = subprocess.run(
        [sys.executable, "-m", "rhumbline", "serve", *options],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == code
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert json.dumps(sorted(path.name for path in Path(tmp_path).iterdir())) == '["tokens"]'
