"""Methods made ready to solve: searches with their policies, and classical solvers. Each knows
its own clock.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
import torch

from rhumbline.bench import provenance
from rhumbline.bench.baselines import BASELINES, SolverTask
from rhumbline.bench.suite import Method
from rhumbline.decoding import EngineName
from rhumbline.errors import Infeasible, InputError
from rhumbline.pipeline import (
    Group,
    GroupResult,
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
from rhumbline.problems.cvrp import cvrp_from_arrays
from rhumbline.problems.jssp import jssp_from_arrays as shop_from_arrays
from rhumbline.problems.tsp import tsp_from_array
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.driver import Budget, Progress, search
from rhumbline.search.solution import Solution
from rhumbline.search.strategies import STRATEGIES
from rhumbline.search.strategy import warm_up_run_of
from rhumbline.search.task import Task
from rhumbline.toml_config import build_dataclass

CPU_TOGETHER = 8  # instances between two results on a CPU
WARM_UP_SECONDS = 0.05  # of a classical solver on something tiny
TRACE_POINTS = 24  # kept of each search, evenly on a logarithmic scale

ReportShare = Callable[
    [float, str], None
]  # the share of a piece that is done, and what is spent in words


@dataclass(frozen=True)
class BenchOptions:
    """What the user chose beside the suite."""

    only: tuple[str, ...] = ()
    limit: int | None = None
    device: str = "auto"
    engine: EngineName = "auto"
    threads: int | None = None
    folders: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Outcome:
    """One instance before it becomes a line: solved, or missing for a reason."""

    cost: float | None
    attempts: int | None
    seconds: float
    together: int
    trace: tuple[tuple[float, ...], ...] = ()
    missing: str = ""


class MethodRunner(Protocol):
    """A method made ready for a problem."""

    solver: str
    hardware: str
    together: int

    def start(self, instance: Any) -> None:
        """Raise unless instances like this one can be begun."""
        ...

    def solve(
        self, instances: Sequence[Any], seed: int, note: ReportShare
    ) -> Iterator[list[tuple[int, Outcome]]]:
        """Places of instances with what was found, in as many pieces as memory demands."""
        ...


def can_solve(method: Method, problem: str) -> bool:
    """Whether a method is for a problem; unknown solvers are refused."""
    if method.solver == "policy":
        return True
    if method.solver not in BASELINES:
        known = ", ".join(["policy", *BASELINES])
        raise InputError(f"method '{method.name}': no solver '{method.solver}'; known: {known}")
    return problem in BASELINES[method.solver].solvers


def make_runner(method: Method, problem: str, options: BenchOptions) -> MethodRunner:
    """A method made ready: weights loaded, settings checked, libraries found."""
    if method.solver == "policy":
        return make_search_runner(method, problem, options)
    baseline = BASELINES[method.solver]
    baseline.check(method.name, method.settings, method.seconds, method.attempts)
    baseline.require()
    return BaselineRunner(
        method,
        baseline.versioned_title + settings_text(method.settings),
        f"{provenance.processor_name()}, 1 thread",
    )


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings behind a name."""
    return "".join(f", {name} {value}" for name, value in settings.items())


@dataclass
class BaselineRunner:
    """A classical solver, one instance at a time."""

    method: Method
    solver: str
    hardware: str
    together: int = 1

    def start(self, instance: Any) -> None:
        """Settings and libraries have been looked at already."""

    def solve(
        self, instances: Sequence[Any], seed: int, note: ReportShare
    ) -> Iterator[list[tuple[int, Outcome]]]:
        """Each instance by itself; the clock starts when the library is there."""
        for place, instance in enumerate(instances):
            note(place / len(instances), "")
            warm_up_baseline(self.method.solver, instance.problem)
            cost = None
            missing = ""
            began = time.monotonic()
            try:
                work = SolverTask(instance, self.method.seconds, seed, self.method.settings)
                cost = BASELINES[self.method.solver].solve(work).cost(instance)
            except Infeasible as error:
                missing = str(error)
            yield [(place, Outcome(cost, None, time.monotonic() - began, 1, missing=missing))]


@cache
def warm_up_baseline(solver: str, problem: str) -> None:
    """Solve something tiny once in a process, so that importing a library, up to a second, is
    not measured.
    """
    baseline = BASELINES[solver]
    if baseline.package:
        with suppress(Infeasible):
            baseline.solve(
                SolverTask(
                    TINY_INSTANCES[problem](),
                    WARM_UP_SECONDS if baseline.needs_seconds else None,
                    0,
                    {},
                )
            )


TINY_POSITIONS = np.array([[0.1, 0.2], [0.9, 0.1], [0.8, 0.7], [0.3, 0.9], [0.5, 0.4], [0.2, 0.6]])
TINY_INSTANCES: dict[
    str, Callable[[], Any]
] = {  # six cities, a depot and five customers, two jobs on two machines
    "tsp": lambda: tsp_from_array(TINY_POSITIONS),
    "cvrp": lambda: cvrp_from_arrays(TINY_POSITIONS[0], TINY_POSITIONS[1:], np.arange(1, 6), 10),
    "jssp": lambda: shop_from_arrays(
        np.array([[3, 2], [2, 4]]), np.array([[0, 1], [0, 1]]), "tiny"
    ),
}


def make_search_runner(method: Method, problem: str, options: BenchOptions) -> "SearchRunner":
    """A search with its policy."""
    if method.strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise InputError(f"method '{method.name}': no strategy '{method.strategy}'; known: {known}")
    device = find_device(options.device)
    weights = method.policy.replace("{problem}", problem)
    strategy = build_dataclass(
        STRATEGIES[method.strategy], method.settings, f"method '{method.name}'"
    )
    loaded = load_policy_with_facts(weights or None, problem)
    phases = [f"{method.augment} copies"] if method.augment > 1 else []
    phases += ["polish"] if method.polish else []
    phases += [f"then {method.then}"] if method.then else []
    search = ", ".join([method.strategy + settings_text(method.settings), *phases])
    name = f"{search}, policy {loaded.name}"
    where = provenance.hardware_name(device, torch.get_num_threads())
    together = method.together or (CPU_TOGETHER if device.type == "cpu" else 1 << 30)
    request = SolveRequest(
        strategy=strategy,
        policy=loaded.policy,
        device=device.type,
        engine=options.engine,
        augment=method.augment,
        after=AfterSearch(polish=method.polish, then=method.then or None),
        warm_up=False,  # the runner does that itself, once for each size
    )
    return SearchRunner(method, strategy, loaded.policy, request, device, name, where, together)


@dataclass
class SearchRunner:
    """A policy and a strategy on many instances at once."""

    method: Method
    strategy: Any
    policy: Policy[Any, Any, Any]
    request: SolveRequest  # without seed and budget
    device: torch.device
    solver: str
    hardware: str
    together: int
    warm: set[int] = field(default_factory=set[int])  # sizes that have been tried

    def start(self, instance: Any) -> None:
        """Refuse a policy that has not what the strategy searches, such as a latent space.

        Phases after the search are refused too, if they cannot run, and their kernels compiled.
        """
        try:
            self.request.after.check(rules_of(self.policy).name, self.method.budget(1))
            for _, task in self.tasks([instance], 0):
                self.strategy.init(task)
        except InputError as error:
            raise InputError(
                f"method '{self.method.name}' on {instance.problem}: {error}"
            ) from error

    def solve(
        self, instances: Sequence[Any], seed: int, note: ReportShare
    ) -> Iterator[list[tuple[int, Outcome]]]:
        """Yield groups of one shape, as large as memory allows.

        The clock starts before instances are encoded.
        """
        note(0.0, "warming up")
        self.warm_up(instances, seed)
        note(0.0, "")
        finished = 0
        for group in group_instances(instances, self.method.augment):
            together = len(group.places)
            before = finished / len(instances)
            share = together / len(instances)
            request = replace(self.request, seed=seed, budget=self.method.budget(together))
            recorder = StepRecorder(
                request.budget, partial(report_group_share, note, before, share)
            )
            began = time.monotonic()
            result = self.solve_group(group, request, recorder)
            seconds = time.monotonic() - began
            finished += together
            traces = instance_traces(recorder.steps)
            found = zip(group.places, result.solutions, traces, strict=True)
            yield [
                (place, search_outcome(solution, seconds, together, trace))
                for place, solution, trace in found
            ]

    def solve_group(self, group: Group, request: SolveRequest, listener: Listener) -> GroupResult:
        """Solve instances of one shape; an interrupted search is no result."""
        try:
            (result,) = solve_groups(group.instances, request, listener)
        except Infeasible as error:
            raise Infeasible(f"method '{self.method.name}': {error}") from error
        if result.interrupted:  # the budget was not spent
            raise KeyboardInterrupt
        return result

    def warm_up(self, instances: Sequence[Any], seed: int) -> None:
        """A few attempts at each new size that do not count, so that compiling kernels is not
        measured.

        A GPU tries all instances of the size, because its kernels differ by how many there are; a
        CPU one of them.
        """
        fresh = [i for i in instances if i.size not in self.warm]
        one = list({i.size: i for i in fresh}.values())
        for _, task in self.tasks(one if self.device.type == "cpu" else fresh, seed):
            strategy, attempts = warm_up_run_of(self.strategy, task)
            if search(strategy, task, Budget(attempts=attempts))[1]:
                raise KeyboardInterrupt
        self.warm |= {i.size for i in fresh}

    def tasks(self, instances: Sequence[Any], seed: int) -> Iterator[tuple[Group, Task]]:
        """Groups of one shape, each encoded when its turn comes."""
        return make_tasks(
            instances,
            {rules_of(self.policy).solves: self.policy},
            seed=seed,
            device=self.device,
            engine=self.request.engine,
            augment=self.method.augment,
        )


def report_group_share(
    note: ReportShare, before: float, share: float, done: float, spent: str
) -> None:
    """Note where a part of a piece stands, given the share of the piece that came before it and
    its own.
    """
    note(before + share * done, spent)


@dataclass
class StepRecorder(Listener):
    """Keeps the steps of a search and notes how much of its budget is spent.

    Nothing is read from the device in the meantime.
    """

    budget: Budget
    note_share: Callable[[float, str], None]
    steps: list[Progress] = field(default_factory=list[Progress])

    def progress(self, progress: Progress) -> None:
        """Keep a step."""
        self.steps.append(progress)
        self.note_share(*spent_share(progress, self.budget))


def spent_share(progress: Progress, budget: Budget) -> tuple[float, str]:
    """The share of a budget that is spent, by attempts or by the clock, whichever is more, and
    that one in words.
    """
    shares = [(0.0, "")]
    if budget.attempts:
        shares.append(
            (
                progress.attempts / budget.attempts,
                f"{progress.attempts:,} of {budget.attempts:,} attempts",
            )
        )
    if budget.seconds:
        shares.append(
            (progress.seconds / budget.seconds, f"{progress.seconds:.0f} of {budget.seconds:.0f} s")
        )
    share, words = max(shares)
    return min(1.0, share), words


def search_outcome(
    found: Solution, seconds: float, together: int, trace: tuple[tuple[float, ...], ...]
) -> Outcome:
    """What a search has found; a plan that does not keep a limit has no cost to compare."""
    if found.unmet:
        return Outcome(None, found.attempts, seconds, together, missing=found.unmet)
    return Outcome(found.cost, found.attempts, seconds, together, trace)


def instance_traces(steps: Sequence[Progress]) -> list[tuple[tuple[float, ...], ...]]:
    """The way of each instance: attempts, seconds, best so far and best of the step, at a few of
    the steps.
    """
    kept = [steps[i] for i in thin_steps(len(steps))]
    best, latest = (
        np.array([getattr(p, name).tolist() for p in kept]).T for name in ("best", "latest")
    )
    when = [(p.attempts, round(p.seconds, 4)) for p in kept]
    return [
        tuple((*at, round(b, 6), round(n, 6)) for at, b, n in zip(when, bests, news, strict=True))
        for bests, news in zip(best.tolist(), latest.tolist(), strict=True)
    ]


def thin_steps(count: int) -> list[int]:
    """Up to `TRACE_POINTS` of so many steps, evenly on a logarithmic scale, the first and the
    last among them.
    """
    return np.unique(np.rint(np.geomspace(1, count, TRACE_POINTS)).astype(int) - 1).tolist()
