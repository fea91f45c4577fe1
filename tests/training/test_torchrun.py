"""`torchrun` on two hosts: 2 x 2 processes on this machine, over gloo, and one of them killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rhumbline.checkpoint import load, read_tensor_file
from rhumbline.training.run_folder import RUN_FILES

pytestmark = pytest.mark.slow  # each run starts six processes

PATIENCE = 180.0
UPDATES = 60
RECIPE = f"""problem = "tsp"
size = 8
batch = 8
updates = {UPDATES}
report = 0.0
[policy]
width = 16
heads = 2
layers = 1
hidden = 16
latent = 4
[objective]
latents = 4
starts = 4
[validation]
count = 4
latents = 2
"""
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(Path(__file__).parents[2]),
    "OMP_NUM_THREADS": "1",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


def start_agents(folder: Path, out: str) -> list[subprocess.Popen[str]]:
    """Start two agents of torchrun with two processes each."""
    (folder / "tiny.toml").write_text(RECIPE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = f"--nnodes 2 --nproc-per-node 2 --max-restarts 2 --rdzv-id {out} --rdzv-backend c10d"
    words += f" --rdzv-endpoint 127.0.0.1:{port} -m rhumbline train tiny.toml --device cpu"
    command = [sys.executable, "-m", "torch.distributed.run", *words.split()]
    command += ["--out", out, "--resume", "auto"]
    return [
        subprocess.Popen(
            command,
            cwd=folder,
            env=ENVIRONMENT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]


def finish(agents: list[subprocess.Popen[str]]) -> str:
    """Wait for both agents, which have to succeed, and return what their processes printed."""
    said = ""
    try:
        for agent in agents:
            stdout, stderr = agent.communicate(timeout=PATIENCE)
            said += stdout + stderr
    finally:
        for agent in agents:
            agent.terminate()  # which ends its processes too
    assert [agent.returncode for agent in agents] == [0, 0], said
    return said


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on two hosts without a fault."""
    folder = tmp_path_factory.mktemp("whole")
    finish(start_agents(folder, "run"))
    return folder / "run"


def test_two_hosts_train_what_one_process_does(whole: Path, tmp_path: Path) -> None:
    """The weights agree but for the order in which gradients are added."""
    (tmp_path / "tiny.toml").write_text(RECIPE)
    words = [sys.executable, "-m", "rhumbline", "train", "tiny.toml", "--device", "cpu", "--quiet"]
    subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, timeout=PATIENCE, check=True)
    alone = load(tmp_path / "runs" / "tiny" / "policy.safetensors").state_dict()
    for name, weight in load(whole / "policy.safetensors").state_dict().items():
        assert torch.allclose(weight, alone[name], rtol=0, atol=1e-4), name
    assert len((whole / "metrics.jsonl").read_text().splitlines()) == UPDATES


def test_a_killed_process_is_started_again(whole: Path, tmp_path: Path) -> None:
    """The run continues by itself, and ends with the same weights bit for bit."""
    agents = start_agents(tmp_path, "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and count_lines(metrics) < UPDATES // 10:
        time.sleep(0.05)
    first, _ = (tmp_path / "run" / "run.lock").read_text().split()
    os.kill(int(first), signal.SIGKILL)
    said = finish(agents)
    assert "RuntimeError" not in said
    assert "the connection to the other processes broke" in said
    restarted, _ = (tmp_path / "run" / "run.lock").read_text().split()
    assert restarted != first
    for path in whole.glob(RUN_FILES.state_pattern):
        expected, _ = read_tensor_file(path)
        found, _ = read_tensor_file(tmp_path / "run" / path.name)
        assert expected.keys() == found.keys()
        assert all(torch.equal(x, found[name]) for name, x in expected.items())


def count_lines(path: Path) -> int:
    """Return the number of lines of a file, 0 if there is none."""
    return len(path.read_text().splitlines()) if path.exists() else 0
