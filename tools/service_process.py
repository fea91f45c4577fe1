"""A real server in a process of its own, for tests, campaigns and benchmarks."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).parents[1]
START_SECONDS = 90.0  # a loaded machine needs this long to import torch in three processes


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class ServiceProcess:
    """`rhumb serve` on a folder; it can be killed and started again at the same address."""

    def __init__(self, data: Path, *options: str):
        self.data = data
        self.options = options
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        words = ["serve", "--port", str(self.port), "--data", str(self.data), *self.options]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rhumbline", *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with code {self.process.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server did not answer in {START_SECONDS:.0f} s")
            time.sleep(0.1)

    def answers(self) -> bool:
        """Return whether the server is there."""
        try:
            with urlopen(f"{self.url}/health", timeout=5) as answer:
                return json.load(answer)["status"] == "ok"
        except (URLError, OSError, ValueError):
            return False

    def kill(self) -> None:
        """End the server as `kill -9` does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End the server as Ctrl-C does; return its exit code."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def memory_of_processes(self) -> list[float]:
        """Return the resident memory of the server and of each of its workers, in MB."""
        assert self.process is not None
        found: list[float] = []
        for pid in (self.process.pid, *children(self.process.pid)):
            with contextlib.suppress(OSError):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                found.append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)
        return found


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                found.append(int(path.parent.name))
    return found


@contextlib.contextmanager
def running_service(data: Path, *options: str) -> Generator[ServiceProcess]:
    """Run a server while the context lasts."""
    service = ServiceProcess(data, *options)
    service.start()
    try:
        yield service
    finally:
        if service.process and service.process.poll() is None:
            service.kill()
