"""One call from files or arrays to verified solutions."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from rhumbline.checkpoint import TrainingFacts, find_checkpoint, load_with_facts
from rhumbline.decoding import EngineName
from rhumbline.errors import CheckpointError, Infeasible, InputError, MissingExtra
from rhumbline.formats.plans import GivenPlan, plans_for
from rhumbline.inputs import SolveInput, instances_from
from rhumbline.policies import Policy
from rhumbline.problems import PROBLEMS
from rhumbline.problems.symmetry import symmetric_copies
from rhumbline.search.after_search import AfterSearch, Improvement, solve_task
from rhumbline.search.driver import Budget, Progress
from rhumbline.search.solution import Solution
from rhumbline.search.strategies import STRATEGIES, build_strategy, default_strategy_for_task
from rhumbline.search.strategy import Strategy, check_strategy, engine_for
from rhumbline.search.task import Task, make_task

DEFAULT_BUDGET = Budget(attempts=1600, seconds=30.0)

# Numbers in the largest tables of a group (distances, actions of a generation). This keeps the
# memory of a group within about a gigabyte.
MAX_GROUP_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class Group:
    """Instances of one shape that are solved together, with their places in the caller's list."""

    places: tuple[int, ...]
    instances: tuple[Any, ...]


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
        for piece in split_evenly(places, max_group_length(size, copies)):
            members = tuple(instances[place] for place in piece)
            groups.append(Group(tuple(piece), members))
    return groups


def max_group_length(size: int, copies: int) -> int:
    """Return how many instances of a size, each in several symmetric copies, memory allows."""
    elements = 16 * min(size, 200) * size
    return max(1, MAX_GROUP_ELEMENTS // (elements * max(1, copies)))


def split_evenly(places: Sequence[int], max_length: int) -> Iterator[Sequence[int]]:
    """Yield pieces of about one length, none longer than `max_length`."""
    total = len(places)
    count = math.ceil(total / max_length)
    bounds = [total * piece // count for piece in range(count + 1)]
    for start, end in pairwise(bounds):
        yield places[start:end]


def find_device(name: str) -> torch.device:
    """Return the device a user means; `auto` is a GPU if there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"device '{name}' is not known; use auto, cpu or cuda")
    if name == "cpu":
        return torch.device("cpu")
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        missing = "device 'cuda' was asked for, but torch sees no NVIDIA GPU"
        raise MissingExtra(f"{missing}; use --device cpu (or auto)")
    return torch.device("cuda" if has_gpu else "cpu")


def load_policy(name: str | None, problem: str) -> Policy[Any, Any, Any]:
    """Load the policy a user means; refuse one that was trained for another problem."""
    policy, _ = load_policy_with_facts(name, problem)
    return policy


def load_policy_with_facts(
    name: str | None, problem: str
) -> tuple[Policy[Any, Any, Any], TrainingFacts]:
    """Load the same policy together with its training facts."""
    path = find_checkpoint(name, problem)
    policy, facts = load_with_facts(path)
    if PROBLEMS[facts.problem].solves != problem:
        trained = f"checkpoint {path.name} was trained for '{facts.problem}'"
        raise CheckpointError(f"{trained}; these are '{problem}' instances")
    return policy, facts


def problem_names(instances: Sequence[Any]) -> list[str]:
    """Return the names of the problems among instances, in order of first appearance."""
    names = dict.fromkeys(instance.problem for instance in instances)
    return list(names)


def load_policies(
    instances: Sequence[Any], policy: str | Path | Policy[Any, Any, Any] | None
) -> dict[str, Policy[Any, Any, Any]]:
    """Return the policy for each problem among the instances.

    `policy` is a name, a path, None for the defaults, or a policy, which is returned as it is.
    """
    problems = problem_names(instances)
    if isinstance(policy, str | Path | None):
        name = str(policy) if policy else None
        return {problem: load_policy(name, problem) for problem in problems}
    solves = PROBLEMS[policy.problem].solves
    for problem in problems:
        if problem != solves:
            trained = f"the policy was trained for '{policy.problem}'"
            raise CheckpointError(f"{trained}; there are '{problem}' instances")
    return {solves: policy}


def resolve_strategy(strategy: Strategy[Any] | str | None) -> Strategy[Any] | None:
    """Return the strategy of a name with its default settings, or the one given, if any."""
    if isinstance(strategy, str):
        return build_strategy(strategy)
    if strategy is not None and (isinstance(strategy, type) or not hasattr(strategy, "step")):
        expected = "expected a name such as 'cmaes' or an object such as CMAES()"
        raise InputError(f"strategy is {strategy!r}; {expected}")
    return strategy


def make_tasks(
    instances: Sequence[Any],
    policies: Mapping[str, Policy[Any, Any, Any]],
    *,
    seed: int,
    device: torch.device,
    engine: EngineName,
    augment: int = 1,
    strategy: Any = None,
) -> Iterator[tuple[Group, Task]]:
    """Yield each group with its task, on an engine that the strategy supports.

    Instances are encoded when their group is due. What one of several groups does not support is
    refused before the first one: the largest instance of each problem is tried.
    """
    for instance in {instance.problem: instance for instance in instances}.values():
        batch = PROBLEMS[instance.problem].collate([instance])
        symmetric_copies(batch, augment)  # refuse before any work

    def make_group_task(members: Sequence[Any]) -> Task:
        first = members[0]
        policy = policies[first.problem]
        return make_task(
            PROBLEMS[policy.problem],
            policy,
            members,
            seed=seed,
            device=device,
            engine=engine_for(strategy, engine, device, first.size),
            augment=augment,
        )

    groups = group_instances(instances, augment)
    if len(groups) > 1 and (strategy is not None or engine != "auto"):
        by_size = sorted(instances, key=lambda instance: instance.size)
        largest = {instance.problem: instance for instance in by_size}
        for instance in largest.values():
            task = make_group_task([instance])
            if strategy is not None:
                check_strategy(strategy, task)
    for group in groups:
        yield group, make_group_task(group.instances)


def prepare(
    source: SolveInput | Sequence[Any],
    *,
    policy: str | Path | Policy[Any, Any, Any] | None = None,
    vehicles: int | None = None,
    seed: int = 0,
    device: str = "auto",
    engine: EngineName = "auto",
    augment: int = 1,
) -> Task:
    """Return a task to `stream` over: instances of one problem and size, encoded on the device."""
    instances = instances_from(source, vehicles)
    shapes = {(instance.problem, instance.shape): instance.size for instance in instances}
    if len(shapes) != 1:
        sizes = {f"{problem} of {size}" for (problem, _), size in shapes.items()}
        found = ", ".join(sorted(sizes)) or "none"
        expected = "a task needs instances of one problem and size"
        raise InputError(f"{expected}, not {found}; `solve` groups them by itself")
    tasks = make_tasks(
        instances,
        load_policies(instances, policy),
        seed=seed,
        device=find_device(device),
        engine=engine,
        augment=augment,
    )
    _, task = next(tasks)
    return task


def solve(
    source: SolveInput | Sequence[Any],
    *,
    policy: str | Path | Policy[Any, Any, Any] | None = None,
    strategy: Strategy[Any] | str | None = None,
    attempts: int | None = None,
    seconds: int | float | None = None,
    vehicles: int | None = None,
    seed: int = 0,
    device: str = "auto",
    engine: EngineName = "auto",
    augment: int = 1,
    watch: Callable[[Progress], None] | None = None,
    warm_start: GivenPlan | Sequence[GivenPlan | None] | None = None,
    top: int = 1,
    polish: bool = False,
    then: str | None = None,
    improved: Callable[[Improvement], None] | None = None,
) -> list[Solution]:
    """Return verified solutions in the order given.

    Instances of one size are solved together and share the seconds. Without `attempts` and
    `seconds` the budget is 1600 attempts or 30 seconds, whichever comes first. Ctrl-C ends the
    search early and returns what was found; instances not reached by then are left out.

    `strategy` is a name or an object. The default depends on the policy: CMA-ES that learns and
    refines plans if there is a latent space and kernels for it, sampling that learns for job
    shops, and plain sampling for policies without a latent space. `augment=8` shares the attempts
    among the symmetries of the square (routing only). `vehicles` limits the fleet of CVRP,
    whatever the files say; `Infeasible` is raised at the end if no plan within the limit was found.

    `warm_start` is a plan, or the path of one, that no result will be worse than; a list for
    several instances. `top` is the number of different plans to return, `polish` takes the best
    ones to a local optimum, and `then` names a classical solver that improves them for the rest of
    the seconds; "auto" is our own solver for each problem. `improved` is called at each
    improvement, and `watch` after each step of the search.
    """
    instances = instances_from(source, vehicles)
    has_budget = attempts is not None or seconds is not None
    budget = Budget(attempts, seconds) if has_budget else DEFAULT_BUDGET
    after_search = AfterSearch(top, polish, then, improved)
    warm_starts = plans_for(instances, warm_start)
    strategy = resolve_strategy(strategy)  # refuses a wrong name before weights are loaded
    policies = load_policies(instances, policy)
    for one in policies.values():
        after_search.check(one.problem, budget)
    tasks = make_tasks(
        instances,
        policies,
        seed=seed,
        device=find_device(device),
        engine=engine,
        augment=augment,
        strategy=strategy,
    )
    solutions: dict[int, Solution] = {}
    for group, task in tasks:
        given = [warm_starts[place] for place in group.places]
        chosen = strategy or STRATEGIES[default_strategy_for_task(task)]()
        found, interrupted = solve_task(chosen, task, budget, watch, after_search, given)
        solutions |= dict(zip(group.places, found, strict=False))
        if interrupted:
            break
    unmet = [solution.unmet for solution in solutions.values() if solution.unmet]
    if unmet:
        raise Infeasible("; ".join(unmet))
    return [solutions[place] for place in sorted(solutions)]
