"""From instances to verified plans: the one loop behind `solve`, `rhumb solve` and `rhumb bench`.

`solve_groups` first refuses what cannot work, then solves one group of instances of equal size
after the other. Callers read the results and may listen to what happens in between.
"""

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from rhumbline import improvers
from rhumbline.checkpoint import TrainingFacts, find_checkpoint, load_with_facts
from rhumbline.decoding import EngineName
from rhumbline.domains import DOMAINS, find_policy_family, plan_tools
from rhumbline.errors import CheckpointError, Infeasible, InputError, MissingExtra, shorten
from rhumbline.kernels.background import COMPILATION_TIME
from rhumbline.kernels.threads import SHARED_CORES, worker_threads
from rhumbline.policies import Policy
from rhumbline.problems import Plan, Problem
from rhumbline.problems.symmetry import symmetric_copies
from rhumbline.registry import suggest_known
from rhumbline.search.after_search import (
    AfterSearch,
    Improvement,
    is_far_from_planes,
    run_warm_up,
    solve_task,
)
from rhumbline.search.concurrent_solver import can_work_concurrently
from rhumbline.search.driver import Budget, Progress, collect_solutions
from rhumbline.search.first_plans import first_solutions, latest_end
from rhumbline.search.solution import Solution
from rhumbline.search.strategies import (
    build_strategy,
    default_strategy,
    default_strategy_for_task,
    possible_defaults,
    strategy_class,
)
from rhumbline.search.strategies.greedy_sampling import Greedy
from rhumbline.search.strategy import (
    PlainStrategy,
    Strategy,
    as_strategy,
    check_strategy_needs,
    engine_for,
)
from rhumbline.search.task import Task, make_task
from rhumbline.search.without_policy.host_task import (
    HostTask,
    describe_size,
    is_beyond_policies,
    refuse_large,
)
from rhumbline.search.without_policy.improve_constructions import (
    improve_constructions,
    plan_of_work,
)


@dataclass(frozen=True)
class PipelineTuning:
    """The budget of users who name none, and the limits of a group."""

    default_attempts: int = 1_600
    default_seconds: float = 30.0
    # Of the default seconds: a user who names no time need not wait for all of it.
    default_solver_share: float = 0.5
    # In the largest tables of a group (distances, actions of a generation). This keeps the memory
    # of a group within about a gigabyte.
    max_group_numbers: int = 1 << 26
    # Of a group that begins after the total time is over; it still gets a plan.
    min_group_seconds: float = 1e-3


TUNING = PipelineTuning()
DEFAULT_BUDGET = Budget(TUNING.default_attempts, TUNING.default_seconds)

AnyPolicy = Policy[Any, Any, Any]


class WrongSettings(InputError):
    """Settings that the default strategy does not accept."""


@dataclass(frozen=True)
class SolveRequest:
    """How to solve instances, whatever they are.

    Without `strategy` each group gets the default for its policy and its engine, or the first one
    of the defaults that accepts the `settings`. `warm_start` has a plan or None for each instance,
    or is empty. Each group may spend the budget, within its part of the `total_seconds`.
    """

    budget: Budget = DEFAULT_BUDGET
    strategy: PlainStrategy | str | None = None
    settings: tuple[str, ...] = ()  # FIELD=VALUE, of a strategy that is not given as an object
    policy: str | Path | AnyPolicy | None = None
    seed: int = 0
    device: str = "auto"
    engine: EngineName = "auto"
    augment: int = 1
    after: AfterSearch = field(default_factory=AfterSearch)
    total_seconds: int | float | None = None  # of all groups together
    warm_start: Sequence[Plan | None] = ()
    reading_seconds: float = 0.0  # that are over already: of the first group's, and of the total
    warm_up: bool = True  # whether a GPU compiles its kernels before the seconds count


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy with its name and, if it comes from a checkpoint, how it was trained."""

    policy: AnyPolicy
    name: str
    facts: TrainingFacts | None = None


@dataclass(frozen=True)
class Group:
    """Instances of one shape that are solved together, with their places in the caller's list."""

    places: tuple[int, ...]
    instances: tuple[Any, ...]


@dataclass(frozen=True)
class GroupRun:
    """A group that is about to be solved, and with what.

    Instances that are too large for policies have a task of the host, and no strategy.
    """

    places: tuple[int, ...]  # in the caller's list
    task: Task | HostTask
    strategy_name: str
    strategy: Strategy[Any] | None
    policy: LoadedPolicy | None
    budget: Budget
    after: AfterSearch  # with the solver that runs here


@dataclass(frozen=True)
class GroupResult:
    """What the search of a group has found: a solution for each instance, in their order.

    After Ctrl-C there may be fewer solutions, and no other group follows. There is no run if it
    came before the search: then the solutions are warm starts and constructions.
    """

    group: Group
    run: GroupRun | None
    solutions: list[Solution]
    interrupted: bool

    def by_place(self) -> dict[int, Solution]:
        """Return the solutions by the places of their instances in the caller's list."""
        return dict(zip(self.group.places, self.solutions, strict=False))


class Listener:
    """What a caller may hear while groups are solved; nothing is done by default."""

    @property
    def hears_improvements(self) -> bool:
        """Whether to call `improved`: each plan is decoded and priced on the host for it."""
        return False

    def group_started(self, run: GroupRun) -> None:
        """Hear that the search of a group begins."""

    def check_interruption(self) -> None:
        """Raise `KeyboardInterrupt` if one came while it would have lost plans, and was kept."""

    def progress(self, progress: Progress) -> None:
        """Hear of a step of the search, or of a phase after it."""

    def improved(self, found: Improvement) -> None:
        """Hear of a plan that is better than all before; only if `hears_improvements`."""

    def note(self, line: str) -> None:
        """Hear what a user should know."""

    def group_ended(self, run: GroupRun) -> None:
        """Hear that the search of a group is over, also if it failed."""


def solve_groups(
    instances: Sequence[Any], request: SolveRequest, listener: Listener | None = None
) -> Iterator[GroupResult]:
    """Return an iterator that solves one group after the other.

    What cannot work is refused here or, if it needs a task, before the first search. Ctrl-C at any
    time ends the search of a group, whose instances keep what has been found, or get a warm start
    or a construction; that result is the last one.
    """
    listener = listener or Listener()
    start_time = time.monotonic() - request.reading_seconds
    compiled = COMPILATION_TIME.seconds
    try:
        listener.check_interruption()
        groups = group_instances(instances, request.augment)
        runs = make_runs(instances, groups, request)
    except KeyboardInterrupt:
        groups = group_instances(instances, request.augment)
        if not groups:
            raise
        return iter([interrupted_result(groups[0], None, request)])
    shares = TimeShares(request.total_seconds, len(groups), start_time, compiled)
    return solve_runs(groups, runs, request, listener, shares)


def make_runs(
    instances: Sequence[Any], groups: Sequence[Group], request: SolveRequest
) -> Iterator[GroupRun]:
    """Return an iterator over the runs of all groups, each made when its turn comes.

    What cannot work is refused here.
    """
    strategy = resolve_strategy(request.strategy, request.settings)
    device = find_device(request.device)
    began = time.monotonic()
    small = [instance for instance in instances if not exceeds_policies(instance)]
    with SHARED_CORES.share(request.budget.seconds is not None):
        encoded = [instance for instance in instances if needs_policy(instance, request)]
        policies = load_policies(encoded, request.policy)
    seconds = request.reading_seconds + time.monotonic() - began
    started = [instances[place] for place, plan in enumerate(request.warm_start) if plan]
    for problem, loaded in policies.items():
        rules = rules_of(loaded.policy).name
        check_phases(rules, problem, groups, request)
        if any(instance.problem == problem for instance in started):
            plan_tools(rules, "a warm start")
        if strategy is None:
            first_strategy_accepting(request.settings, possible_defaults(loaded.policy))
    for group in groups:
        if exceeds_policies(group.instances[0]):
            check_large(group, request)
    tasks = make_tasks(
        small,
        {problem: loaded.policy for problem, loaded in policies.items()},
        seed=request.seed,
        device=device,
        engine=request.engine,
        augment=request.augment,
        strategy=strategy,
    )
    runs = (make_run(group, task, request, strategy, policies) for group, task in tasks)
    runs = runs_in_order(groups, runs, request, policies)
    return count_preparation(runs, seconds)


def exceeds_policies(instance: Any) -> bool:
    """Return whether an instance is too large for policies."""
    domain = DOMAINS.get(instance.problem)
    return is_beyond_policies(instance, domain)


def has_searched_regions(instance: Any, request: SolveRequest) -> bool:
    """Return whether a policy solves regions of a large instance: if there is no local search.

    Together they are no better than local search alone (docs/polish.md).
    """
    then = request.after.then
    if then == "auto":
        then = improvers.available_improver(instance.problem)
    if then:
        return False
    is_timed = request.budget.seconds is not None or request.total_seconds is not None
    return is_timed and DOMAINS[instance.problem].regions is not None


def needs_policy(instance: Any, request: SolveRequest) -> bool:
    """Return whether a policy solves an instance, or regions of its plans."""
    return not exceeds_policies(instance) or has_searched_regions(instance, request)


def check_phases(rules: str, problem: str, groups: Sequence[Group], request: SolveRequest) -> None:
    """Refuse phases after the search that the instances of a problem cannot have."""
    lengths: list[int] = []
    for group in groups:
        first = group.instances[0]
        if first.problem == problem:
            length = len(group.places)
            lengths.append(length)
    shortest = min(lengths, default=1)
    after = request.after.resolve_solver(rules, request.budget, shortest)
    after.check(rules, request.budget)


def check_large(group: Group, request: SolveRequest) -> None:
    """Refuse what instances that are too large for policies cannot have."""
    first = group.instances[0]
    problem = first.problem
    domain = DOMAINS[problem]
    if request.strategy is not None or request.settings:
        name = shorten(first.name)
        size = describe_size(first, domain)
        advice = "leave out the search and its settings: local search does the work"
        raise InputError(f"{name}: {size}; {advice}")
    after = resolve_without_policy(group, request)
    after.check(problem, request.budget)
    solver = after.then
    if solver:
        improvers.check_size(solver, first)


def runs_in_order(
    groups: Sequence[Group],
    runs: Iterator[GroupRun],
    request: SolveRequest,
    policies: Mapping[str, LoadedPolicy],
) -> Iterator[GroupRun]:
    """Yield the runs of all groups; those of large instances are made here."""
    for group in groups:
        if exceeds_policies(group.instances[0]):
            yield make_large_run(group, request, policies)
        else:  # its places are among the small instances
            yield replace(next(runs), places=group.places)


def make_large_run(
    group: Group, request: SolveRequest, policies: Mapping[str, LoadedPolicy]
) -> GroupRun:
    """Return the run of a group that is not encoded; a policy may solve regions of its plans."""
    first = group.instances[0]
    rules = DOMAINS[first.problem].problem
    task = HostTask(rules, group.instances, request.seed)
    after = resolve_without_policy(group, request)
    if not has_searched_regions(first, request):
        return GroupRun(group.places, task, "construction", None, None, request.budget, after)
    loaded = policies[first.problem]
    task.policy = loaded.policy
    task.device = find_device(request.device)
    task.engine = request.engine
    return GroupRun(group.places, task, "regions", None, loaded, request.budget, after)


def resolve_without_policy(group: Group, request: SolveRequest) -> AfterSearch:
    """Return what follows the constructions of a group.

    Local search has all the time; without it, the search by regions.
    """
    first = group.instances[0]
    after = replace(request.after, search_share=0.0)
    return after.resolve_solver(first.problem, request.budget, len(group.instances))


def count_preparation(runs: Iterator[GroupRun], seconds: float) -> Iterator[GroupRun]:
    """Let what came before the first task count as a part of its time."""
    for run in runs:
        run.task.preparation_seconds += seconds
        seconds = 0.0
        yield run


def make_run(
    group: Group,
    task: Task,
    request: SolveRequest,
    strategy: Strategy[Any] | None,
    policies: Mapping[str, LoadedPolicy],
) -> GroupRun:
    """Return a group with its strategy and its solver, which may depend on its task."""
    if strategy is None:
        name, chosen = choose_default(request.settings, task)
    else:
        given = request.strategy
        name = given if isinstance(given, str) else type(given).__name__
        chosen = strategy
    policy = policies[task.problem.solves]
    after = resolve_after_search(group, task, request)
    run = GroupRun(group.places, task, name, chosen, policy, request.budget, after)
    return limit_to_one_attempt(run) if is_trivial(group) else run


def is_trivial(group: Group) -> bool:
    """Return whether all plans of each instance cost the same, as for a single city."""
    for instance in group.instances:
        domain = DOMAINS.get(instance.problem)
        if domain is None or not domain.is_trivial(instance):
            return False
    return True


def limit_to_one_attempt(run: GroupRun) -> GroupRun:
    """Return the same run with one attempt and no phases after it, whatever the budget is."""
    budget = Budget(attempts=1)
    after = replace(run.after, polish=False, then=None, concurrent=False)
    return replace(run, strategy_name="greedy", strategy=Greedy(), budget=budget, after=after)


def resolve_after_search(group: Group, task: Task | HostTask, request: SolveRequest) -> AfterSearch:
    """Return what follows the search of a group within the budget of the request."""
    if isinstance(task, HostTask):
        return resolve_without_policy(group, request)
    budget = request.budget
    is_on_gpu = task.device.type == "cuda"
    after = request.after.with_shares(task.domain, group.instances, is_on_gpu)
    after = after.resolve_solver(task.problem.name, budget, task.count)
    if budget is DEFAULT_BUDGET:
        seconds = TUNING.default_solver_share * TUNING.default_seconds
        after = replace(after, max_solver_seconds=seconds)
    cores = worker_threads()
    if can_work_concurrently(task.device.type, budget, after.then, task.count, cores):
        return replace(after, concurrent=True)
    return after


@dataclass
class TimeShares:
    """The time of a whole call, if it is limited: each group gets an equal part of what is left.

    The first compilation of kernels does not count, as for `--seconds`.
    """

    seconds: int | float | None
    groups: int  # that have not begun
    start_time: float
    compilation_seconds: float = 0.0  # of this process, before the call

    @property
    def seconds_left(self) -> float:
        """The time that is left; infinite if it is not limited."""
        if self.seconds is None:
            return math.inf
        compiling = COMPILATION_TIME.seconds - self.compilation_seconds
        end = self.start_time + compiling + self.seconds
        return end - time.monotonic()

    @property
    def are_used_up(self) -> bool:
        """Whether no time is left."""
        return self.seconds_left <= 0

    def next_budget(self, budget: Budget) -> Budget:
        """Return the budget of the next group, which is never more than the given one."""
        groups = self.groups
        self.groups -= 1
        if self.seconds is None:
            return budget
        share = max(TUNING.min_group_seconds, self.seconds_left / groups)
        if budget.seconds is not None:
            share = min(share, budget.seconds)
        return replace(budget, seconds=share)


def solve_runs(
    groups: Sequence[Group],
    runs: Iterator[GroupRun],
    request: SolveRequest,
    listener: Listener,
    shares: TimeShares,
) -> Iterator[GroupResult]:
    """Yield the result of each group, until one is interrupted.

    A group that begins after the total time gets warm starts and constructions.
    """
    is_late = False
    for group in groups:
        run = None
        start_time = time.monotonic()
        try:
            listener.check_interruption()
            result = None
            if shares.are_used_up:
                result = constructed_result(group, request)
            if result and not is_late:
                is_late = True
                listener.note("the total time is over: the rest gets cheap plans without a search")
            if result is None:
                timed = request.budget.seconds is not None or request.total_seconds is not None
                with SHARED_CORES.share(timed):
                    # Groups with a construction have been left out.
                    run = next(run for run in runs if run.places == group.places)
                    run = limit_run(run, group, request, shares)
                    result = solve_run(group, run, request, listener)
        except KeyboardInterrupt:  # before the search, or after it while plans were being checked
            seconds = time.monotonic() - start_time
            result = interrupted_result(group, run, request, seconds)
        if not (result.solutions or result.interrupted):
            raise Infeasible("the search ended without a plan")
        yield result
        if result.interrupted:
            return


def limit_run(run: GroupRun, group: Group, request: SolveRequest, shares: TimeShares) -> GroupRun:
    """Return a run within its share of the total time."""
    budget = shares.next_budget(run.budget)
    has_own_budget = run.budget is not request.budget  # of one attempt, which is short
    if request.total_seconds is None or has_own_budget:
        return run
    request = replace(request, budget=budget)
    after = resolve_after_search(group, run.task, request)
    return replace(run, budget=budget, after=after)


def constructed_result(group: Group, request: SolveRequest) -> GroupResult | None:
    """Return a result without a search, or None if the problem has no construction."""
    instances = group.instances
    warm_start = warm_starts_of(group, request)
    solutions = first_solutions(instances, warm_start, 0.0)
    if len(solutions) < len(instances):
        return None
    return GroupResult(group, None, solutions, interrupted=False)


def solve_run(
    group: Group, run: GroupRun, request: SolveRequest, listener: Listener
) -> GroupResult:
    """Solve one group."""
    after = run.after
    if listener.hears_improvements:
        after = replace(after, improved=listener.improved)
    listener.group_started(run)
    try:
        warm_start = warm_starts_of(group, request)
        if isinstance(run.task, HostTask):
            listener.note(plan_of_work(run.task, after))
            solutions, interrupted = improve_constructions(
                run.task, run.budget, listener.progress, after, warm_start
            )
        else:
            assert run.strategy is not None
            note_distortion(run, listener)
            if request.warm_up:
                warm_up_gpu(run.strategy, run.task, run.budget)
            solutions, interrupted = solve_task(
                run.strategy, run.task, run.budget, listener.progress, after, warm_start
            )
    except BaseException:
        listener.group_ended(run)
        raise
    result = GroupResult(group, run, solutions, interrupted)
    try:
        listener.group_ended(run)
        if solutions and not interrupted:
            note_early_end(run, solutions[0].attempts, run.budget, listener)
    except KeyboardInterrupt:
        return replace(result, interrupted=True)
    return result


def interrupted_result(
    group: Group, run: GroupRun | None, request: SolveRequest, seconds: float = 0.0
) -> GroupResult:
    """Return what there is for a group at an interruption: incumbents, given or cheap plans."""
    warm_start = warm_starts_of(group, request)
    if run is None:
        end = latest_end(is_interrupted=True)
        solutions = first_solutions(group.instances, warm_start, seconds, end)
    else:
        account = run.task.account
        account.warm = account.warm or warm_start
        solutions = collect_solutions(run.task, seconds, (), interrupted=True)
    return GroupResult(group, run, solutions, interrupted=True)


def warm_up_gpu(strategy: Strategy[Any], task: Task, budget: Budget) -> None:
    """Let a GPU compile its kernels, if there are seconds that would count in the meantime."""
    is_on_gpu = task.device.type == "cuda"
    if budget.seconds and is_on_gpu:
        run_warm_up(strategy, task, budget)


def warm_starts_of(group: Group, request: SolveRequest) -> list[Plan | None]:
    """Return the plans that the instances of a group start from; none if there are none at all."""
    if not request.warm_start:
        return []
    plans = [request.warm_start[place] for place in group.places]
    return plans if any(plans) else []


def note_distortion(run: GroupRun, listener: Listener) -> None:
    """Say so if the policy sees the instances at places that mislead it."""
    if is_far_from_planes(run.task.domain, run.task.instances):
        advice = "expect a large gap, or let local search work (--seconds, --then auto)"
        if run.after.then:
            advice = "local search does the work"
        listener.note(f"distances are far from any plane: the network cannot help; {advice}")


def note_early_end(run: GroupRun, attempts: int, budget: Budget, listener: Listener) -> None:
    """Say so if a strategy ended by itself, before its attempts were spent."""
    if run.strategy and run.strategy.finite and attempts != budget.attempts:
        noun = "attempt" if attempts == 1 else "attempts"
        limit = f" of {budget.attempts:,}" if budget.attempts else ""
        listener.note(
            f"{run.strategy_name} ended by itself after {attempts:,} {noun}{limit}: "
            "it repeats nothing"
        )


# --- what a request means


def budget_or_default(
    attempts: int | None, seconds: int | float | None, total_seconds: int | float | None = None
) -> Budget:
    """Return the budget of each group, or the default where a user gave none.

    No group may spend more than the total.
    """
    if total_seconds is not None:
        check_total_seconds(total_seconds)
        seconds = total_seconds if seconds is None else min(seconds, total_seconds)
    if attempts is None and seconds is None:
        return DEFAULT_BUDGET
    return Budget(attempts, seconds)


def check_total_seconds(seconds: int | float) -> None:
    """Refuse what the seconds of a budget cannot be either."""
    try:
        Budget(seconds=seconds)
    except InputError as error:
        raise InputError(f"total_{error}") from error


def find_device(name: str) -> torch.device:
    """Return the device a user means; `auto` is a GPU if there is one."""
    known = ("auto", "cpu", "cuda")
    if name not in known:
        hint = suggest_known(name, known)
        raise InputError(f"device '{shorten(name)}' is not known{hint}")
    if name == "cpu":
        return torch.device("cpu")
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        missing = "device 'cuda' was asked for, but torch sees no NVIDIA GPU"
        raise MissingExtra(f"{missing}; use --device cpu (or auto)")
    kind = "cuda" if has_gpu else "cpu"
    return torch.device(kind)


def resolve_strategy(
    strategy: PlainStrategy | str | None, settings: Sequence[str] = ()
) -> Strategy[Any] | None:
    """Return the strategy of a name with its settings, or the one given, if any."""
    if isinstance(strategy, str):
        return build_strategy(strategy, settings)
    return None if strategy is None else as_strategy(strategy)


def choose_default(settings: Sequence[str], task: Task) -> tuple[str, Strategy[Any]]:
    """Return the default strategy of a task that accepts the settings: its name and the object."""
    names = [default_strategy_for_task(task), default_strategy(task.policy)]
    return first_strategy_accepting(settings, names)


def first_strategy_accepting(
    settings: Sequence[str], names: Sequence[str]
) -> tuple[str, Strategy[Any]]:
    """Return the first of some strategies that accepts the settings: its name and the object.

    If none does, raise the error of the first one that has these fields, or else of the very first.
    """
    errors: dict[str, InputError] = {}
    for name in names:
        try:
            return name, build_strategy(name, settings)
        except InputError as error:
            errors[name] = error
    wanted = {text.partition("=")[0].strip() for text in settings}
    for name in names:
        known = {one.name for one in fields(strategy_class(name))}
        if wanted <= known:
            raise WrongSettings(str(errors[name])) from errors[name]
    raise WrongSettings(str(errors[names[0]])) from errors[names[0]]


# --- policies


def load_policy(name: str | None, problem: str) -> AnyPolicy:
    """Load the policy a user means; refuse one that was trained for another problem."""
    return load_policy_with_facts(name, problem).policy


def load_policy_with_facts(name: str | None, problem: str) -> LoadedPolicy:
    """Load the same policy together with its name and its training facts."""
    path = find_checkpoint(name, problem)
    policy, facts = load_with_facts(path)
    rules = rules_of(policy)
    if rules.solves != problem:
        trained = f"checkpoint {path.name} was trained for '{facts.problem}'"
        raise CheckpointError(f"{trained}; these are '{problem}' instances")
    return LoadedPolicy(policy, name or path.stem, facts)


def load_policies(
    instances: Sequence[Any], policy: str | Path | AnyPolicy | None
) -> dict[str, LoadedPolicy]:
    """Return the policy for each problem among the instances, in order of first appearance.

    `policy` is a name, a path, None for the defaults, or a policy, which is returned as it is.
    """
    problems = list(dict.fromkeys(instance.problem for instance in instances))
    if isinstance(policy, str | Path | None):
        name = str(policy) if policy else None
        return {problem: load_policy_with_facts(name, problem) for problem in problems}
    if not hasattr(policy, "problem"):
        expected = "expected a name, a path or a policy that rhumbline.load returns"
        raise InputError(f"the policy is {type(policy).__name__}; {expected}")
    solves = rules_of(policy).solves
    for problem in problems:
        if problem != solves:
            trained = f"the policy was trained for '{policy.problem}'"
            raise CheckpointError(f"{trained}; there are '{problem}' instances")
    return {solves: LoadedPolicy(policy, policy.problem)}


def rules_of(policy: AnyPolicy) -> Problem[Any, Any]:
    """Return the rules that a policy plays by."""
    _, family = find_policy_family(policy.problem)
    return family.rules


# --- groups


def group_instances(instances: Sequence[Any], copies: int = 1) -> list[Group]:
    """Group instances by problem and shape, in order of first appearance.

    No group is larger than memory allows for its `copies` symmetric copies. If a shape needs
    several groups, they have about one size: a small rest would leave a GPU idle.
    """
    places_by_shape: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
    for place, instance in enumerate(instances):
        shape = instance.problem, instance.shape
        places_by_shape[shape].append(place)
    groups: list[Group] = []
    for places in places_by_shape.values():
        size = max(instances[place].size for place in places)
        max_length = max_group_length(size, copies)
        for piece in split_evenly(places, max_length):
            members = tuple(instances[place] for place in piece)
            groups.append(Group(tuple(piece), members))
    return groups


def max_group_length(size: int, copies: int) -> int:
    """Return how many instances of a size, each in several symmetric copies, memory allows."""
    numbers = 16 * min(size, 200) * size
    length = TUNING.max_group_numbers // (numbers * max(1, copies))
    return max(1, length)


def split_evenly(places: Sequence[int], max_length: int) -> Iterator[Sequence[int]]:
    """Yield pieces of about one length, none longer than `max_length`."""
    total = len(places)
    count = math.ceil(total / max_length)
    bounds = [total * piece // count for piece in range(count + 1)]
    for start, end in pairwise(bounds):
        yield places[start:end]


def largest_by_problem(instances: Sequence[Any]) -> list[Any]:
    """Return the largest instance of each problem."""
    by_size = sorted(instances, key=lambda instance: instance.size)
    largest = {instance.problem: instance for instance in by_size}
    return list(largest.values())


def make_tasks(
    instances: Sequence[Any],
    policies: Mapping[str, AnyPolicy],
    *,
    seed: int,
    device: torch.device,
    engine: EngineName,
    augment: int = 1,
    strategy: Any = None,
) -> Iterator[tuple[Group, Task]]:
    """Yield each group with its task, on an engine that the strategy supports.

    Instances are encoded when their group is due. Before the first of several groups, the largest
    instance of each problem is tried with the strategy, engine or symmetries that a user named.
    """

    def make_group_task(members: Sequence[Any]) -> Task:
        first = members[0]
        refuse_large(first, DOMAINS.get(first.problem), "this search")
        policy = policies[first.problem]
        return make_task(
            rules_of(policy),
            policy,
            members,
            seed=seed,
            device=device,
            engine=engine_for(strategy, engine, device, first.size),
            augment=augment,
        )

    groups = group_instances(instances, augment)
    if len(groups) > 1:
        largest = largest_by_problem(instances)
        if augment > 1:
            for instance in largest:
                rules = DOMAINS[instance.problem].problem
                symmetric_copies(rules.collate([instance]), augment)  # raises where there are none
        if strategy is not None or engine != "auto":
            for instance in largest:
                task = make_group_task([instance])
                if strategy is not None:
                    check_strategy_needs(strategy, task)
    for group in groups:
        yield group, make_group_task(group.instances)
