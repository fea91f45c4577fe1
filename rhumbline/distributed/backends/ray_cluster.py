"""A Ray cluster: chunks as stateless tasks, which Ray retries on other nodes when one dies.

Actors would keep a policy loaded, but they hang when their node dies and no core is free. Plain
tasks find the policy in their worker process, which Ray reuses.
"""

import os
import re
import socket
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import rhumbline
from rhumbline.distributed.backends import ChunkOutcome, Lost, SolveChunk
from rhumbline.distributed.chunk_work import ChunkResult
from rhumbline.distributed.chunks import Chunk
from rhumbline.errors import InputError, MissingExtra


@dataclass(frozen=True)
class RayTuning:
    """How long to wait, and how often to try."""

    # Of a task whose process or node has died. After that the schedule splits the chunk.
    retries: int = 1
    check_seconds: float = 60.0  # for the first task of each node
    connect_seconds: float = 10.0  # Ray's own limit is minutes


TUNING = RayTuning()


@dataclass(frozen=True)
class RayResources:
    """What a task needs."""

    on_gpu: bool = False
    threads: int = 1

    @property
    def kind(self) -> str:
        """Ray's name of the resource that limits the number of tasks."""
        return "GPU" if self.on_gpu else "CPU"

    def fit(self, node: dict[str, Any]) -> bool:
        """Return whether a node can run a task."""
        needed = 1 if self.on_gpu else self.threads
        resources = node["Resources"]
        available = resources.get(self.kind, 0)
        return available >= needed

    def text(self) -> str:
        """Return what a task needs, for messages."""
        return "a GPU" if self.on_gpu else f"{self.threads} cores"

    def task_options(self) -> dict[str, Any]:
        """Return the resources as options of a Ray task."""
        if self.on_gpu:
            return {"num_gpus": 1}
        return {"num_cpus": self.threads}


class RayBackend:
    """The cluster of RAY_ADDRESS, or a local one."""

    def __init__(self, solve: SolveChunk, resources: RayResources):
        require_ray()
        import ray

        self.ray: Any = ray
        self.resources = resources
        self.running: dict[Any, Chunk] = {}
        self.was_running = ray.is_initialized()
        if not self.was_running:
            connect(ray)
        try:
            self.check_cluster()
            self.solve = ray.put(solve)
            remote = ray.remote(max_retries=TUNING.retries, **resources.task_options())
            self.task = remote(solve_in_task)
        except BaseException:
            self.close()
            raise

    @property
    def capacity(self) -> int:
        """One and a half chunks for each worker, by the present size of the cluster."""
        available = self.ray.cluster_resources()
        amount = available.get(self.resources.kind, 1)
        workers = int(amount)
        if not self.resources.on_gpu:
            workers //= self.resources.threads
        waiting = workers // 2 + 1
        return max(2, workers + waiting)

    def check_cluster(self) -> None:
        """Refuse a cluster without the resources, or with another rhumbline on one of its nodes."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        able = [node for node in nodes if self.resources.fit(node)]
        if not able:
            needs = self.resources.text()
            found = f"it has {len(nodes)} nodes"
            raise InputError(f"no node of the Ray cluster has {needs}; {found}")
        ours = rhumbline.__version__
        versions = self.find_versions(able)
        for node, version in zip(able, versions, strict=True):
            if version != ours:
                where = f"node {node['NodeManagerAddress']} of the Ray cluster"
                found = f"has rhumbline {version}, this is {ours}"
                raise InputError(f"{where} {found}; install the same version on every node")

    def find_versions(self, nodes: list[dict[str, Any]]) -> list[str]:
        """Return the version of rhumbline on each node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray = self.ray
        references: list[Any] = []
        for node in nodes:
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = ray.remote(num_cpus=0, max_retries=TUNING.retries)(worker_version)
            references.append(task.options(scheduling_strategy=place).remote())
        try:
            return ray.get(references, timeout=TUNING.check_seconds)
        except ray.exceptions.GetTimeoutError:
            reason = f"no answer of each node within {TUNING.check_seconds:.0f} s"
            raise InputError(f"the Ray cluster cannot be used: {reason}") from None
        except ray.exceptions.RayError as error:
            reason = last_line(error)
            advice = "install the same version of rhumbline on every node"
            raise InputError(f"the workers of the Ray cluster fail ({reason}); {advice}") from None

    def submit(self, chunk: Chunk) -> None:
        """Queue a chunk as a task."""
        reference = self.task.remote(chunk, self.solve, self.resources.threads)
        self.running[reference] = chunk

    def wait(self) -> list[ChunkOutcome]:
        """Wait for tasks that are done."""
        ready, _ = self.ray.wait(list(self.running), num_returns=1)
        return [self.outcome(reference) for reference in ready]

    def outcome(self, reference: Any) -> ChunkOutcome:
        """Return the outcome of a task."""
        errors = self.ray.exceptions
        chunk = self.running.pop(reference)
        try:
            return ChunkOutcome(chunk, self.ray.get(reference))
        except (errors.NodeDiedError, errors.ObjectLostError) as error:
            return ChunkOutcome(chunk, Lost(last_line(error), has_node_died=True))
        except errors.WorkerCrashedError:
            return ChunkOutcome(chunk, Lost("its worker process has died"))
        except errors.RayError as error:
            return ChunkOutcome(chunk, Lost(last_line(error)))

    def close(self) -> None:
        """Cancel running tasks; disconnect if this backend has connected."""
        for reference in self.running:
            self.ray.cancel(reference, force=True)
        if not self.was_running:
            self.ray.shutdown()


def require_ray() -> None:
    """Raise unless Ray is installed."""
    if find_spec("ray") is None:
        needs = "--workers ray needs ray"
        raise MissingExtra(f"{needs}; get it with: pip install 'rhumbline[ray]'")


def connect(ray: Any) -> None:
    """Join the cluster of RAY_ADDRESS, or start one on this machine."""
    address = os.environ.get("RAY_ADDRESS")
    if address:
        check_reachable(address)
    try:
        quiet = {"log_to_driver": False, "logging_level": "error"}
        ray.init(address=address, include_dashboard=False, **quiet)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        place = f"the Ray cluster at {address}" if address else "a local Ray cluster"
        raise InputError(f"{place} cannot be reached: {last_line(error)}") from error


def check_reachable(address: str) -> None:
    """Raise unless something listens at HOST:PORT; Ray itself would retry for minutes."""
    found = re.fullmatch(r"(?:ray://)?([^/:]+):(\d{1,5})", address)
    if not found:
        return
    try:
        place = found[1], int(found[2])
        socket.create_connection(place, TUNING.connect_seconds).close()
    except (OSError, OverflowError) as error:
        advice = "start the cluster, or correct RAY_ADDRESS"
        message = f"the Ray cluster at {address} cannot be reached ({error}); {advice}"
        raise InputError(message) from error


def solve_in_task(chunk: Chunk, solve: SolveChunk, threads: int) -> ChunkResult:
    """Solve a chunk in a task."""
    import torch

    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    return solve(chunk)


def worker_version() -> str:
    """Return the version of rhumbline in a worker."""
    return rhumbline.__version__


def last_line(error: BaseException) -> str:
    """Return the last line of an error, which names its cause."""
    lines = str(error).strip().splitlines()
    last = lines[-1].strip() if lines else type(error).__name__
    return last[:200]
