"""Methods of a suite, ready to solve: searches with their policies, and classical solvers.

Each method owns its clock.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from rhumbline.bench import provenance
from rhumbline.bench.baselines import BASELINES, SolverTask
from rhumbline.bench.problems import find_bench_problem
from rhumbline.bench.suite import Method
from rhumbline.checkpoint import find_checkpoint, read_tensor_file
from rhumbline.decoding import EngineName
from rhumbline.errors import Infeasible, InputError
from rhumbline.files.plans import match_plan_files
from rhumbline.formats.safe_io import read_bytes
from rhumbline.improvers import resolve_solver
from rhumbline.pipeline import (
    Group,
    Listener,
    SolveRequest,
    find_device,
    group_instances,
    load_policy_with_facts,
    make_tasks,
    rules_of,
    solve_groups,
)
from rhumbline.policies import Policy
from rhumbline.problems import Plan
from rhumbline.registry import suggest_known
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.driver import Budget, Progress, search
from rhumbline.search.solution import Solution
from rhumbline.search.strategies import STRATEGIES
from rhumbline.search.strategy import (
    Strategy,
    as_strategy,
    check_strategy_needs,
    warm_up_run_of,
)
from rhumbline.search.task import Task
from rhumbline.toml_config import build_dataclass

# Called with the share of a job that is done and with what is spent in words
ReportShare = Callable[[float, str], None]
InstanceTrace = tuple[tuple[float, ...], ...]  # see `Result.trace`


@dataclass(frozen=True)
class MethodTuning:
    """Numbers that decide how methods are run."""

    # Instances that are solved at once on a CPU; results come after each such group.
    instances_together_cpu: int = 8
    # Instances that are solved at once on a GPU: no limit, memory decides.
    instances_together_gpu: int = 1 << 30
    # Time of a classical solver on a tiny instance, before its clock counts.
    warm_up_seconds: float = 0.05
    # Steps that are kept of each search, evenly on a logarithmic scale.
    trace_steps: int = 24


TUNING = MethodTuning()


@dataclass(frozen=True)
class BenchOptions:
    """What the user chooses in addition to the suite."""

    only: tuple[str, ...] = ()
    limit: int | None = None
    device: str = "auto"
    engine: EngineName = "auto"
    threads: int | None = None
    workers: int | None = None  # processes that measure jobs at the same time; None: this one
    folders: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Outcome:
    """What a method has achieved on an instance: a cost, or the reason why there is none."""

    cost: float | None
    attempts: int | None
    # Wall time of all instances that were solved together, and their number
    seconds: float
    together: int
    trace: InstanceTrace = ()
    missing: str = ""


# Positions of instances in the given list, with their outcomes
Outcomes = list[tuple[int, Outcome]]


class MethodRunner(Protocol):
    """A method made ready for a problem."""

    solver: str
    hardware: str
    together: int

    def check(self, instance: Any) -> None:
        """Raise unless the method can start on an instance like this one."""
        ...

    def solve(self, instances: Sequence[Any], seed: int, report: ReportShare) -> Iterator[Outcomes]:
        """Solve instances and yield outcomes, in as many groups as memory demands."""
        ...


def can_solve(method: Method, problem: str) -> bool:
    """Return whether a method solves a problem. Unknown solvers are refused."""
    if method.solver == "policy":
        return True
    if method.solver not in BASELINES:
        known = suggest_known(method.solver, ["policy", *BASELINES])
        raise InputError(f"method '{method.name}': no solver '{method.solver}'{known}")
    return problem in BASELINES[method.solver].solvers


def make_runner(method: Method, problem: str, options: BenchOptions) -> MethodRunner:
    """Make a method ready: load weights, check settings and find libraries."""
    solver = method.solver
    if solver == "policy":
        return make_search_runner(method, problem, options)
    baseline = BASELINES[solver]
    settings = method.settings
    baseline.check(method.name, settings, method.seconds, method.attempts)
    baseline.require()
    title = baseline.versioned_title + settings_text(settings)
    processor = provenance.processor_name()
    return BaselineRunner(method, title, f"{processor}, 1 thread")


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings in words, to be put behind a name."""
    text = ""
    for name, value in settings.items():
        text += f", {name} {value}"
    return text


@dataclass
class BaselineRunner:
    """A classical solver, which solves one instance at a time."""

    method: Method
    solver: str
    hardware: str
    together: int = 1

    def check(self, instance: Any) -> None:
        """Do nothing: `make_runner` has checked settings and libraries."""

    def solve(self, instances: Sequence[Any], seed: int, report: ReportShare) -> Iterator[Outcomes]:
        """Solve each instance by itself. The clock starts when the library is loaded."""
        baseline = BASELINES[self.method.solver]
        for position, instance in enumerate(instances):
            share = position / len(instances)
            report(share, "")
            warm_up_baseline(self.method.solver, instance.problem)
            cost = None
            missing = ""
            began = time.monotonic()
            try:
                task = SolverTask(instance, self.method.seconds, seed, self.method.settings)
                cost = baseline.solve(task).cost(instance)
            except Infeasible as error:
                missing = str(error)
            seconds = time.monotonic() - began
            outcome = Outcome(cost, None, seconds, 1, missing=missing)
            yield [(position, outcome)]


@cache
def warm_up_baseline(solver: str, problem: str) -> None:
    """Solve a tiny instance once in a process.

    Importing a library takes up to a second, which must not be measured.
    """
    baseline = BASELINES[solver]
    make_tiny = find_bench_problem(problem).tiny
    if not baseline.package or make_tiny is None:
        return
    seconds = TUNING.warm_up_seconds if baseline.needs_seconds else None
    task = SolverTask(make_tiny(), seconds, 0, {})
    with suppress(Infeasible):
        baseline.solve(task)


def make_search_runner(method: Method, problem: str, options: BenchOptions) -> "SearchRunner":
    """Make a search ready, with its policy."""
    if method.strategy not in STRATEGIES:
        known = suggest_known(method.strategy, STRATEGIES)
        raise InputError(f"method '{method.name}': no strategy '{method.strategy}'{known}")
    device = find_device(options.device)
    strategy_type = STRATEGIES[method.strategy]
    weights = method.policy.replace("{problem}", problem)
    default_together = TUNING.instances_together_gpu
    if device.type == "cpu":
        default_together = TUNING.instances_together_cpu
    loaded = load_policy_with_facts(weights or None, problem)
    # Not "auto", which would leave the solver out where it cannot help.
    solver = resolve_solver(method.then, problem) or None
    request = SolveRequest(
        strategy=build_dataclass(strategy_type, method.settings, f"method '{method.name}'"),
        policy=loaded.policy,
        device=device.type,
        engine=options.engine,
        augment=method.augment,
        after=AfterSearch(polish=method.polish, then=solver),
        warm_up=False,  # the runner does that itself, once for each size
    )
    return SearchRunner(
        method=method,
        request=request,
        policy=loaded.policy,
        device=device,
        solver=describe_search(method, problem),
        hardware=provenance.hardware_name(device, torch.get_num_threads()),
        together=method.together or default_together,
    )


def describe_search(method: Method, problem: str) -> str:
    """Return what result lines say about a search: its settings, its policy, and the weights."""
    name = method.policy.replace("{problem}", problem) or None
    path = find_checkpoint(name, problem)
    title = search_title(method)
    policy = name or path.stem
    digest = weights_digest(name, problem)
    return f"{title}, policy {policy} (weights {digest})"


def weights_digest(name: str | None, problem: str) -> str:
    """Return a digest of the weights of a checkpoint, whatever its header says.

    It is the same for weights that are stored in 16 bits and the float32 that is read from them.
    """
    path = find_checkpoint(name, problem)
    tensors, _ = read_tensor_file(path)
    digest = sha256()
    for key in sorted(tensors):
        digest.update(key.encode())
        tensor = tensors[key]
        values = tensor.float() if tensor.is_floating_point() else tensor
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()[:8]


def search_title(method: Method) -> str:
    """Return the strategy of a method, its settings, and what is done besides the search."""
    settings = settings_text(method.settings)
    parts = [method.strategy + settings]
    if method.augment > 1:
        parts.append(f"{method.augment} copies")
    if method.polish:
        parts.append("polish")
    if method.then:
        parts.append(f"then {method.then}")
    return ", ".join(parts)


@dataclass
class SearchRunner:
    """A policy and a strategy, which solve many instances at once."""

    method: Method
    request: SolveRequest  # without seed and budget
    policy: Policy[Any, Any, Any]
    device: torch.device
    solver: str
    hardware: str
    together: int
    # Plans to start from, by the name of their instance
    warm_starts: Mapping[str, Plan] = field(default_factory=dict[str, Plan])
    # Sizes of instances whose kernels have been compiled
    warm_sizes: set[int] = field(default_factory=set[int])

    @property
    def strategy(self) -> Strategy[Any]:
        """The search of the method."""
        return as_strategy(self.request.strategy)

    def check(self, instance: Any) -> None:
        """Raise if the policy lacks what the strategy searches, such as a latent space.

        Also raise if a phase after the search cannot run; its kernels are compiled.
        """
        rules = rules_of(self.policy)
        try:
            self.request.after.check(rules.name, self.method.budget(1))
            for _, task in self.make_tasks([instance], 0):
                check_strategy_needs(self.strategy, task)
        except InputError as error:
            where = f"method '{self.method.name}' on {instance.problem}"
            raise InputError(f"{where}: {error}") from error

    def start_from(self, instances: Sequence[Any], paths: Sequence[Path]) -> None:
        """Start every search from the plans in these files, where an instance has one."""
        plans = match_plan_files(instances, paths)
        for instance, plan in zip(instances, plans, strict=True):
            if plan is not None:
                self.warm_starts = {**self.warm_starts, instance.name: plan}
        digests = [sha256(read_bytes(path)).digest() for path in paths]
        digest = sha256(b"".join(digests)).hexdigest()[:8]
        self.solver += f", from plans {digest}"

    def solve(self, instances: Sequence[Any], seed: int, report: ReportShare) -> Iterator[Outcomes]:
        """Solve instances in groups of one shape, as large as memory allows.

        The clock of a group starts before its instances are encoded.
        """
        report(0.0, "warming up")
        self.warm_up(instances, seed)
        report(0.0, "")
        finished = 0
        for group in group_instances(instances, self.method.augment):
            together = len(group.places)
            request = replace(
                self.request,
                seed=seed,
                budget=self.method.budget(together),
                warm_start=[self.warm_starts.get(instance.name) for instance in group.instances],
            )
            recorder = StepRecorder(
                request.budget, report, finished / len(instances), together / len(instances)
            )
            began = time.monotonic()
            solutions = self.solve_group(group, request, recorder)
            seconds = time.monotonic() - began
            finished += together
            traces = instance_traces(recorder.steps)
            yield [
                (place, search_outcome(solution, seconds, together, trace))
                for place, solution, trace in zip(group.places, solutions, traces, strict=True)
            ]

    def solve_group(
        self, group: Group, request: SolveRequest, listener: Listener
    ) -> list[Solution]:
        """Solve instances of one shape, to the end of their budget."""
        try:
            (result,) = solve_groups(group.instances, request, listener)
        except Infeasible as error:
            raise Infeasible(f"method '{self.method.name}': {error}") from error
        if result.interrupted:  # The budget was not spent, so these are not results.
            raise KeyboardInterrupt
        return result.solutions

    def warm_up(self, instances: Sequence[Any], seed: int) -> None:
        """Make a few attempts at each new size, so that compiling kernels is not measured.

        GPU kernels differ by the number of instances, so a GPU tries all instances of a size. A
        CPU tries one of them.
        """
        fresh = [instance for instance in instances if instance.size not in self.warm_sizes]
        tried = fresh
        if self.device.type == "cpu":
            tried = list({instance.size: instance for instance in fresh}.values())
        for _, task in self.make_tasks(tried, seed):
            strategy, attempts = warm_up_run_of(self.strategy, task)
            _, interrupted = search(strategy, task, Budget(attempts=attempts))
            if interrupted:
                raise KeyboardInterrupt
        self.warm_sizes |= {instance.size for instance in fresh}

    def make_tasks(self, instances: Sequence[Any], seed: int) -> Iterator[tuple[Group, Task]]:
        """Yield groups of one shape, each encoded when its turn comes."""
        return make_tasks(
            instances,
            {rules_of(self.policy).solves: self.policy},
            seed=seed,
            device=self.device,
            engine=self.request.engine,
            augment=self.method.augment,
        )


@dataclass
class StepRecorder(Listener):
    """Keeps the steps of a search and reports how much of the job is done.

    It reads nothing from the device, which would have to wait.
    """

    budget: Budget
    report: ReportShare
    # Shares of the job: what was done before this search, and what this search is
    share_before: float
    share: float
    steps: list[Progress] = field(default_factory=list[Progress])

    def progress(self, progress: Progress) -> None:
        """Keep a step and report it."""
        self.steps.append(progress)
        done, text = spent_share(progress, self.budget)
        share = self.share_before + self.share * done
        self.report(share, text)


def spent_share(progress: Progress, budget: Budget) -> tuple[float, str]:
    """Return the share of a budget that is spent, from 0 to 1, and the same in words.

    A budget of attempts and seconds is spent as far as the one that is further.
    """
    shares = [(0.0, "")]
    if budget.attempts:
        share = progress.attempts / budget.attempts
        text = f"{progress.attempts:,} of {budget.attempts:,} attempts"
        shares.append((share, text))
    if budget.seconds:
        share = progress.seconds / budget.seconds
        text = f"{progress.seconds:.0f} of {budget.seconds:.0f} s"
        shares.append((share, text))
    share, text = max(shares)
    return min(1.0, share), text


def search_outcome(
    solution: Solution, seconds: float, together: int, trace: InstanceTrace
) -> Outcome:
    """Return the outcome of a search. A plan that exceeds a limit has no cost to compare."""
    attempts = solution.attempts
    unmet = solution.unmet
    if unmet:
        return Outcome(None, attempts, seconds, together, missing=unmet)
    return Outcome(solution.cost, attempts, seconds, together, trace)


def instance_traces(steps: Sequence[Progress]) -> list[InstanceTrace]:
    """Return a trace for each instance: attempts, seconds, best cost so far, best of the step."""
    kept = [steps[number] for number in thin_steps(len(steps))]
    points: list[list[tuple[float, ...]]] = []
    for step in kept:
        seconds = round(step.seconds, 4)
        costs = zip(step.best.tolist(), step.latest.tolist(), strict=True)
        points.append(
            [(step.attempts, seconds, round(best, 6), round(latest, 6)) for best, latest in costs]
        )
    return list(zip(*points, strict=True))


def thin_steps(count: int) -> list[int]:
    """Return up to `TUNING.trace_steps` step numbers, evenly on a logarithmic scale.

    The first and the last step are among them.
    """
    numbers = np.geomspace(1, count, TUNING.trace_steps)
    whole = np.rint(numbers)
    steps = whole.astype(int) - 1
    distinct = np.unique(steps)
    return distinct.tolist()
