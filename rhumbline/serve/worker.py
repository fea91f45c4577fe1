"""A process that solves batches: it receives requests through a pipe and sends back what it finds.

The server never solves anything itself. A batch that crashes or exhausts memory ends its own
process only, and stopping a search is a signal to that process.
"""

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from rhumbline.api import prepare
from rhumbline.distributed.backends.processes import exit_with_parent
from rhumbline.domains import DOMAINS
from rhumbline.errors import RhumbError
from rhumbline.pipeline import Listener, load_policy, solve_groups
from rhumbline.search.after_search import Improvement
from rhumbline.search.driver import Progress
from rhumbline.search.solution import Solution
from rhumbline.search.strategy import Distributions
from rhumbline.serve.latents.plans import LATENT_QUESTIONS
from rhumbline.serve.plan_facts import verified_plan
from rhumbline.serve.requests import make_instance, parse_request
from rhumbline.serve.settings import ServiceSettings

STOP = signal.SIGUSR1  # ends the search of the current batch


@dataclass(frozen=True)
class Message:
    """What a worker tells the server about a batch, or about one of its jobs."""

    kind: str  # started, progress, improved, latents, finished, refused, failed, idle
    index: int | None = None  # of the job in the batch, or the number of the request to decode
    facts: Any = None


class BatchListener(Listener):
    """Sends what happens during a batch to the server."""

    def __init__(self, connection: Connection, instances: Sequence[Any], with_latents: bool):
        self.connection = connection
        self.index_of = {id(instance): index for index, instance in enumerate(instances)}
        self.with_latents = with_latents

    @property
    def hears_improvements(self) -> bool:
        """True: clients follow the best plan."""
        return True

    def progress(self, progress: Progress) -> None:
        """Send the progress of the batch."""
        facts = {
            "attempts": progress.attempts,
            "elapsed": round(progress.seconds, 3),
            "phase": progress.phase,
        }
        self.connection.send(Message("progress", facts=facts))
        if self.with_latents and progress.latents is not None:
            self.send_latents(progress)

    def send_latents(self, progress: Progress) -> None:
        """Send the latents of a step and their costs, for each instance."""
        assert progress.latents is not None
        latents = progress.latents.float().cpu()
        costs = progress.latent_costs
        if costs is None:
            return
        for index in range(len(latents)):
            facts: dict[str, Any] = {
                "latents": latents[index].tolist(),
                "costs": costs[index].tolist(),
            }
            if progress.distributions is not None:
                facts |= distributions_of(progress.distributions, index)
            self.connection.send(Message("latents", index, facts))

    def improved(self, found: Improvement) -> None:
        """Send a better plan."""
        instance = found.instance
        index = self.index_of[id(instance)]
        facts = verified_plan(instance, found.plan, found.cost)
        facts["attempts"] = found.attempts
        facts["seconds"] = round(found.seconds, 3)
        facts["phase"] = found.phase
        self.connection.send(Message("improved", index, facts))


class Worker:
    """The state of a worker process: its pipe, its policies, and whether it may be stopped."""

    def __init__(self, connection: Connection, settings: ServiceSettings):
        self.connection = connection
        self.settings = settings
        self.policies: dict[str, Any] = {}
        self.is_solving = False

    def stop(self, number: int, frame: FrameType | None) -> None:
        """End a running search as Ctrl-C does; a signal after its end does nothing."""
        if self.is_solving:
            raise KeyboardInterrupt

    def serve(self) -> None:
        """Solve one batch after the other until the server closes the pipe."""
        self.connection.send(Message("idle"))
        while True:
            try:
                kind, payload = self.connection.recv()
            except (EOFError, OSError):
                return
            try:
                if kind == "solve":
                    self.solve(payload)
                elif kind in LATENT_QUESTIONS:
                    self.answer(LATENT_QUESTIONS[kind], payload)
                self.connection.send(Message("idle"))
            except BrokenPipeError:
                return

    def solve(self, batch: Sequence[dict[str, Any]]) -> None:
        """Solve the jobs of a batch together and report each of them."""
        try:
            self.is_solving = True
            self.solve_together(batch)
        except KeyboardInterrupt:
            pass  # it came between two results; the server keeps the best plans it knows
        except RhumbError as error:
            self.connection.send(Message("refused", facts=str(error)))
        except BrokenPipeError:
            raise
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self.connection.send(Message("failed", facts=f"{type(error).__name__}: {error}"))
        finally:
            self.is_solving = False

    def solve_together(self, batch: Sequence[dict[str, Any]]) -> None:
        """Run the pipeline on the instances of a batch."""
        requests = [parse_request(job["body"], self.settings) for job in batch]
        instances = [make_instance(request, self.settings) for request in requests]
        starts = list(map(self.start_plan, batch, instances))
        first = requests[0]
        policy = self.policy_for(instances[0].problem)
        request = replace(first.solve_request(), policy=policy)
        if any(starts):
            request = replace(request, warm_start=starts)
        listener = BatchListener(self.connection, instances, first.latents)
        self.connection.send(Message("started"))
        for result in solve_groups(instances, request, listener):
            for place, solution in result.by_place().items():
                facts = solution_facts(solution)
                facts["interrupted"] = result.interrupted
                self.connection.send(Message("finished", place, facts))

    def start_plan(self, job: dict[str, Any], instance: Any) -> Any:
        """Return the plan that an interrupted server had found, if there is one."""
        numbers = job.get("start")
        parse_plan = DOMAINS[instance.problem].files.parse_plan
        if numbers is None or parse_plan is None:
            return None
        return parse_plan(numbers, instance)

    def policy_for(self, problem: str) -> Any:
        """Return the policy of a problem, which is loaded once."""
        if problem not in self.policies:
            names = dict(self.settings.policies)
            name = names.get(problem)
            policy = load_policy(name, problem)
            self.policies[problem] = policy
        return self.policies[problem]

    def answer(self, question: Callable[..., Any], payload: dict[str, Any]) -> None:
        """Answer a question about latents of one job."""
        number = payload["number"]
        try:
            request = parse_request(payload["body"], self.settings)
            instance = make_instance(request, self.settings)
            policy = self.policy_for(instance.problem)
            task = prepare([instance], policy=policy, seed=request.seed)
            facts = question(task, *payload["words"])
            self.connection.send(Message("answered", number, facts))
        except RhumbError as error:
            self.connection.send(Message("refused", number, str(error)))


def distributions_of(distributions: Distributions, index: int) -> dict[str, Any]:
    """Return means and covariances of the components of one instance as lists."""
    means = distributions.means[index]
    variances = distributions.sigmas[index] ** 2
    shapes = distributions.shapes[index]
    covariances = variances[:, None, None] * shapes
    return {"means": means.tolist(), "covariances": covariances.tolist()}


def solution_facts(solution: Solution) -> dict[str, Any]:
    """Return the end of a job: its best plan, and the next best different ones."""
    facts = verified_plan(solution.instance, solution.plan, solution.cost)
    facts |= {
        "attempts": solution.attempts,
        "seconds": round(solution.seconds, 3),
        "phase": solution.phase,
    }
    if solution.unmet:
        facts["over_limit"] = solution.unmet
    if solution.others:
        instance = solution.instance
        facts["others"] = [
            verified_plan(instance, other.plan, other.cost) for other in solution.others
        ]
    return facts


def run_worker(connection: Connection, settings: ServiceSettings, threads: int) -> None:
    """Run a worker process until the server closes the pipe."""
    threading.Thread(target=exit_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches the server only
    import torch

    torch.set_num_threads(threads)
    worker = Worker(connection, settings)
    signal.signal(STOP, worker.stop)
    worker.serve()
