"""Compare strategies and policies at equal attempts or equal seconds, instance by instance.

A comparison needs no suite file: sets, methods and budgets are named on the command line. Its
results are lines like those of every suite, so that `rhumb report` reads them. Methods of one
budget are compared in pairs, over the instances that both have solved (`tables.py`).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import torch

from rhumbline.bench import provenance
from rhumbline.bench.instance_sets import InstanceSet
from rhumbline.bench.methods import BenchOptions, SearchRunner, make_search_runner
from rhumbline.bench.results import (
    Origin,
    Warn,
    lock_results,
    refuse_packed,
    resume,
)
from rhumbline.bench.runner import (
    MethodOnSet,
    ProgressListener,
    RunProgress,
    count_results,
    pending_jobs,
    run_jobs,
)
from rhumbline.bench.suite import Method
from rhumbline.errors import InputError
from rhumbline.pipeline import find_device, load_policy, make_tasks
from rhumbline.search.strategies import default_strategy_for_task, parse_settings


@dataclass(frozen=True)
class Comparison:
    """What is compared: every strategy with every policy, at every budget."""

    default_strategy: ClassVar[str] = "default"  # stands for what `rhumb solve` takes
    strategies: tuple[str, ...] = (default_strategy,)  # settings follow: cmaes+components=2
    policies: tuple[str, ...] = ("",)  # shipped names or paths; "" is the default of the problem
    attempts: tuple[int, ...] = ()  # for each instance
    seconds: tuple[float, ...] = ()  # for each instance; instances solved together share the sum
    solvers: tuple[str, ...] = ("",)  # that continue after the search; "" is none
    polish: bool = False
    augment: int = 1
    together: int = 0  # instances solved at once; 0 is what memory allows, on a CPU 8
    seeds: tuple[int, ...] = (0,)
    default_attempts: ClassVar[int] = 160  # where no budget is given

    def __post_init__(self) -> None:
        refuse_repeated("--search", self.strategies)
        refuse_repeated("--policy", self.policies)
        refuse_repeated("--then", self.solvers)
        refuse_repeated("--attempts", self.attempts)
        refuse_repeated("--seconds", self.seconds)
        refuse_repeated("--seeds", self.seeds)

    def methods(self) -> list[Method]:
        """Return the methods budget by budget, those that are compared with one another together.

        The name of a method holds everything in which rows differ, because results in a file are
        identified by name, set, instance and seed.
        """
        budgets: list[dict[str, Any]] = [{"attempts": count} for count in self.attempts]
        budgets += [{"seconds": seconds} for seconds in self.seconds]
        budgets = budgets or [{"attempts": self.default_attempts}]
        return [
            self.make_method(strategy, policy, {**budget, "then": solver})
            for budget in budgets
            for strategy in self.strategies
            for policy in self.policies
            for solver in self.solvers
        ]

    def make_method(self, text: str, policy: str, options: dict[str, Any]) -> Method:
        """Return the method of a strategy with settings, a policy, a budget and a solver."""
        strategy, *settings = text.split("+")
        method = Method(
            name=text,
            strategy=strategy,
            policy=policy,
            settings=parse_settings(settings),
            polish=self.polish,
            augment=self.augment,
            together=self.together,
            **options,
        )
        parts = [text]
        if policy:
            parts.append(policy)
        parts.append(method.budget_text)
        if self.augment > 1:
            parts.append(f"{self.augment} copies")
        if self.polish:
            parts.append("polish")
        if method.then:
            parts.append(f"then {method.then}")
        return replace(method, name=", ".join(parts))


def refuse_repeated(option: str, values: Sequence[Any]) -> None:
    """Raise if a value is given twice: its rows would be the same."""
    different = set(values)
    if len(different) == len(values):
        return
    texts = [str(value) for value in values]
    given = ",".join(texts)
    raise InputError(f"{option} {given}: expected different values with commas between them")


def measure_comparison(
    pairs: Sequence[MethodOnSet],
    seeds: Sequence[int],
    out: Path,
    options: BenchOptions,
    warn: Warn,
    watch: ProgressListener | None = None,
) -> Iterator[RunProgress]:
    """Measure what the file lacks, yielding after every piece of work."""
    refuse_packed(out)
    digests: dict[str, str] = {}
    for pair in pairs:
        digests[pair.instance_set.spec.name] = pair.instance_set.digest
    origin = comparison_origin(digests, options)
    total = count_results(pairs, seeds, None)
    out.parent.mkdir(parents=True, exist_ok=True)
    with lock_results(out):
        done = resume(out, origin, digests, warn)
        jobs = list(pending_jobs(pairs, seeds, None, done))
        yield from run_jobs(jobs, total, origin, out, watch)


def prepare_comparison(
    comparison: Comparison, sets: Sequence[InstanceSet], options: BenchOptions
) -> list[MethodOnSet]:
    """Return every method on every set, with its runner; raise if one cannot solve the other."""
    if options.threads:
        torch.set_num_threads(options.threads)
    pairs = list[MethodOnSet]()
    for named in comparison.methods():
        for instances in sets:
            method = resolve_default(named, instances, options)
            problem = instances.spec.problem
            runner = make_search_runner(method, problem, options)
            runner.check(smallest_instance(instances))
            pairs.append(MethodOnSet(method, instances, runner))
    return pairs


def smallest_instance(instances: InstanceSet) -> Any:
    """Return the instance of a set that takes the least work."""
    return min(instances.instances, key=lambda instance: instance.size)


def resolve_default(method: Method, instances: InstanceSet, options: BenchOptions) -> Method:
    """Return the method with the strategy that `rhumb solve` takes, where none is named."""
    if method.strategy != Comparison.default_strategy:
        return method
    smallest = smallest_instance(instances)
    name = method.policy.replace("{problem}", smallest.problem)
    tasks = make_tasks(
        [smallest],
        {smallest.problem: load_policy(name or None, smallest.problem)},
        seed=0,
        device=find_device(options.device),
        engine=options.engine,
    )
    _, task = next(tasks)
    return replace(method, strategy=default_strategy_for_task(task))


def comparison_origin(digests: dict[str, str], options: BenchOptions) -> Origin:
    """Return what all lines of a file share: sets, commit and machine; methods may be added."""
    device = find_device(options.device)
    threads = torch.get_num_threads()
    hardware = provenance.hardware_name(device, threads)
    if device.type != "cpu":
        hardware += f"; {provenance.processor_name()}"
    sets = json.dumps(list(digests.values()))
    digest = sha256(sets.encode()).hexdigest()
    commit = provenance.current_commit()
    return Origin("compare", digest[:16], commit, hardware)


def compile_kernels(pairs: Sequence[MethodOnSet]) -> None:
    """Make the attempts that do not count, so that the kernels of a comparison are compiled."""
    for pair in pairs:
        runner = pair.runner
        assert isinstance(runner, SearchRunner)
        first = pair.instance_set.instances[: runner.together]
        runner.warm_up(first, 0)
