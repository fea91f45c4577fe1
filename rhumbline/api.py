"""One call from files or arrays to verified solutions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rhumbline.checkpoint import About, find, load_with_facts
from rhumbline.decoding import Engine
from rhumbline.errors import CheckpointError, InputError
from rhumbline.formats import read_many
from rhumbline.policies import Policy
from rhumbline.problems import PROBLEMS
from rhumbline.problems.cvrp import CVRPInstance
from rhumbline.problems.tsp import TSPInstance, from_array
from rhumbline.search import STRATEGIES
from rhumbline.search.cmaes import CMAES
from rhumbline.search.run import Budget, Progress, Solution, Strategy, Task, engine_for, make_task, search

DEFAULT_BUDGET = Budget(attempts=1600, seconds=30.0)

# Numbers in the largest tables of a group (distances, actions of a generation): keeps a group within about a gigabyte.
GROUP_ELEMENTS = 1 << 26

Source = str | Path | np.ndarray | TSPInstance | CVRPInstance


@dataclass(frozen=True)
class Group:
    """Instances of one shape that are solved together, with their places in the caller's list."""

    places: tuple[int, ...]
    instances: tuple[Any, ...]


def instances_of(source: Source | Sequence[Source]) -> list[Any]:
    """Instances behind a path, an array ([N, 2], [N, N] or a batch [B, N, 2]), an instance, or a list of these."""
    if isinstance(source, (str, Path)):
        return list(read_many(source))
    if isinstance(source, TSPInstance | CVRPInstance):
        return [source]
    if isinstance(source, np.ndarray):
        if source.ndim == 3:
            return [from_array(x, f"array-{i + 1}") for i, x in enumerate(source)]
        return [from_array(source)]
    if source and isinstance(source[0], list | tuple):
        return instances_of(numbers_of(source))
    return [x for one in source for x in instances_of(one)]


def numbers_of(nested: Sequence[Any]) -> np.ndarray:
    """Nested lists of numbers as an array."""
    try:
        return np.asarray(nested, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"nested lists must hold numbers in rows of equal length ({error})") from error


def grouped(instances: Sequence[Any], copies: int = 1) -> list[Group]:
    """Groups of one problem and shape, in order of first appearance, none larger than memory allows for its copies."""
    shapes: dict[tuple[str, int, bool], list[int]] = {}
    for place, instance in enumerate(instances):
        shapes.setdefault((instance.problem, instance.size, instance.metric == "EXACT_2D"), []).append(place)
    groups: list[Group] = []
    for (_, size, _), places in shapes.items():
        most = max(1, GROUP_ELEMENTS // (16 * min(size, 200) * size * max(1, copies)))
        for at in range(0, len(places), most):
            some = tuple(places[at : at + most])
            groups.append(Group(some, tuple(instances[p] for p in some)))
    return groups


def find_device(name: str) -> torch.device:
    """The device a user means; `auto` is a GPU if there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"device '{name}' is not known; use auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device 'cuda' was asked for, but torch sees no NVIDIA GPU; use --device cpu (or auto)")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def policy_for(name: str | None, problem: str) -> Policy[Any, Any, Any]:
    """The policy a user means, refused if it was trained for another problem."""
    return policy_with_facts(name, problem)[0]


def policy_with_facts(name: str | None, problem: str) -> tuple[Policy[Any, Any, Any], About]:
    """The same with its training facts."""
    path = find(name, problem)
    policy, about = load_with_facts(path)
    if about.problem != problem:
        raise CheckpointError(
            f"checkpoint {path.name} was trained for '{about.problem}'; these are '{problem}' instances"
        )
    return policy, about


def problems_of(instances: Sequence[Any]) -> list[str]:
    """Names of the problems among instances, in order of first appearance."""
    return list(dict.fromkeys(i.problem for i in instances))


def policies_of(
    instances: Sequence[Any], policy: str | Path | Policy[Any, Any, Any] | None
) -> dict[str, Policy[Any, Any, Any]]:
    """The policy for each problem among the instances: by name, path or default, or the one given."""
    wanted = problems_of(instances)
    if isinstance(policy, str | Path | None):
        return {problem: policy_for(str(policy) if policy else None, problem) for problem in wanted}
    strangers = [problem for problem in wanted if problem != policy.problem]
    if strangers:
        raise CheckpointError(f"the policy was trained for '{policy.problem}'; there are '{strangers[0]}' instances")
    return {policy.problem: policy}


def strategy_of(strategy: Strategy[Any] | str | None) -> Strategy[Any]:
    """A strategy by name with its usual settings, or the one given; CMA-ES if there is none."""
    if not isinstance(strategy, str):
        return strategy or CMAES()
    if strategy not in STRATEGIES:
        raise InputError(f"strategy '{strategy}' is not known; known: {', '.join(STRATEGIES)}")
    return STRATEGIES[strategy]()


def tasks(
    instances: Sequence[Any],
    policies: Mapping[str, Policy[Any, Any, Any]],
    *,
    seed: int,
    device: torch.device,
    engine: Engine,
    augment: int = 1,
) -> Iterator[tuple[Group, Task]]:
    """Each group with its task, encoded only when its turn comes."""
    for group in grouped(instances, augment):
        problem = group.instances[0].problem
        options: dict[str, Any] = {"seed": seed, "device": device, "engine": engine, "augment": augment}
        yield group, make_task(PROBLEMS[problem], policies[problem], group.instances, **options)


def prepare(
    source: Source | Sequence[Source],
    *,
    policy: str | Path | Policy[Any, Any, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    engine: Engine = "auto",
    augment: int = 1,
) -> Task:
    """A task to `stream` over: instances of one problem and size, encoded on the device."""
    instances = instances_of(source)
    shapes = sorted({(i.problem, i.size) for i in instances})
    if len(shapes) != 1:
        found = ", ".join(f"{problem} of {size}" for problem, size in shapes) or "none"
        raise InputError(f"a task needs instances of one problem and size, not {found}; `solve` groups them by itself")
    policies = policies_of(instances, policy)
    return next(tasks(instances, policies, seed=seed, device=find_device(device), engine=engine, augment=augment))[1]


def solve(
    source: Source | Sequence[Source],
    *,
    policy: str | Path | Policy[Any, Any, Any] | None = None,
    strategy: Strategy[Any] | str | None = None,
    attempts: int | None = None,
    seconds: int | float | None = None,
    seed: int = 0,
    device: str = "auto",
    engine: Engine = "auto",
    augment: int = 1,
    watch: Callable[[Progress], None] | None = None,
) -> list[Solution]:
    """Verified solutions, in the order given. Instances of one size are solved together and share the seconds.

    Without a budget: 1600 attempts or 30 seconds, whichever comes first. `augment` 8 shares the attempts among the
    symmetries of the square (routing only). Ctrl-C ends the search early and returns what
    was found; instances not reached by then are left out.
    """
    instances = instances_of(source)
    budget = DEFAULT_BUDGET if attempts is None and seconds is None else Budget(attempts, seconds)
    policies = policies_of(instances, policy)
    solutions: dict[int, Solution] = {}
    strategy = strategy_of(strategy)
    where: dict[str, Any] = {"device": find_device(device), "engine": engine_for(strategy, engine), "augment": augment}
    for group, task in tasks(instances, policies, seed=seed, **where):
        found, interrupted = search(strategy, task, budget, watch)
        solutions |= dict(zip(group.places, found, strict=False))
        if interrupted:
            break
    return [solutions[place] for place in sorted(solutions)]
