"""A Ray cluster: chunks as stateless tasks, which Ray retries on other nodes when one dies.

Actors would keep a policy loaded, but hang when their node dies and no core is free. Plain tasks
find the policy in their worker process, which Ray uses again.
"""

import os
from importlib.util import find_spec
from typing import Any

import rhumbline
from rhumbline.distributed.backend import Lost, Outcome
from rhumbline.distributed.chunk_work import solve_chunk
from rhumbline.distributed.chunks import Chunk
from rhumbline.errors import InputError, MissingExtra
from rhumbline.pipeline import SolveRequest

RETRIES = 3  # of a task whose node or process has died
CHECK_SECONDS = 60.0  # in which a cluster must run its first task


class RayBackend:
    """The cluster of RAY_ADDRESS, or a local one."""

    def __init__(self, request: SolveRequest):
        require_ray()
        import ray

        self.ray: Any = ray
        self.was_running = ray.is_initialized()
        if not self.was_running:
            connect(ray)
        self.on_gpu = request.device == "cuda"
        self.check_cluster()
        self.request = ray.put(request)
        resources: dict[str, Any] = {"num_gpus": 1} if self.on_gpu else {"num_cpus": 1}
        self.task = ray.remote(max_retries=RETRIES, **resources)(solve_in_task)
        self.running: dict[Any, Chunk] = {}

    @property
    def capacity(self) -> int:
        """Half as many chunks again as there are workers; it follows the cluster as it grows."""
        kind = "GPU" if self.on_gpu else "CPU"
        workers = int(self.ray.cluster_resources().get(kind, 1))
        return max(2, workers + workers // 2 + 1)

    def check_cluster(self) -> None:
        """Refuse a cluster without the resources, or whose workers have another rhumbline."""
        ray = self.ray
        if self.on_gpu and not ray.cluster_resources().get("GPU"):
            raise InputError("device 'cuda' was asked for, but the Ray cluster has no GPU")
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(worker_version)
        try:
            version = ray.get(task.remote(), timeout=CHECK_SECONDS)
        except ray.exceptions.GetTimeoutError:
            reason = f"no task has run within {CHECK_SECONDS:.0f} s; are its cores busy?"
            raise InputError(f"the Ray cluster cannot be used: {reason}") from None
        except ray.exceptions.RayError as error:
            reason = last_line(error)
            advice = "install the same version of rhumbline on every node"
            raise InputError(f"the workers of the Ray cluster fail ({reason}); {advice}") from None
        if version != rhumbline.__version__:
            found = f"have rhumbline {version}, this is {rhumbline.__version__}"
            raise InputError(f"the workers of the Ray cluster {found}; install the same version")

    def submit(self, chunk: Chunk) -> None:
        """Queue a chunk as a task."""
        self.running[self.task.remote(chunk, self.request)] = chunk

    def wait(self) -> list[Outcome]:
        """Wait for tasks that are done."""
        ready, _ = self.ray.wait(list(self.running), num_returns=1)
        return [self.outcome(reference) for reference in ready]

    def outcome(self, reference: Any) -> Outcome:
        """Return what became of a task."""
        chunk = self.running.pop(reference)
        try:
            return Outcome(chunk, self.ray.get(reference))
        except self.ray.exceptions.RayError as error:
            return Outcome(chunk, Lost(last_line(error)))

    def close(self) -> None:
        """Cancel what is under way, and leave the cluster as it was found."""
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
    try:
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        place = f"the Ray cluster at {address}" if address else "a local Ray cluster"
        raise InputError(f"{place} cannot be reached: {last_line(error)}") from error


def solve_in_task(chunk: Chunk, request: SolveRequest) -> Any:
    """Solve a chunk in a task."""
    return solve_chunk(chunk, request)


def worker_version() -> str:
    """Return the version of rhumbline in a worker."""
    return rhumbline.__version__


def last_line(error: BaseException) -> str:
    """Return the last line of an error, which names its cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200]
