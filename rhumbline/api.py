"""One call from files or arrays to verified solutions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from rhumbline.checkpoint import About, find, load_with_facts
from rhumbline.decoding import Engine
from rhumbline.errors import CheckpointError, Infeasible, InputError, MissingExtra
from rhumbline.formats.plans import Given, plans_for
from rhumbline.inputs import Source, instances_of
from rhumbline.policies import Policy
from rhumbline.problems import PROBLEMS
from rhumbline.problems.symmetry import augmented
from rhumbline.search.after_search import Finish, Improvement, complete
from rhumbline.search.driver import Budget, Progress
from rhumbline.search.solution import Solution
from rhumbline.search.strategies import STRATEGIES, named, usual_for
from rhumbline.search.strategy import Strategy, engine_for
from rhumbline.search.task import Task, make_task

DEFAULT_BUDGET = Budget(attempts=1600, seconds=30.0)

# Numbers in the largest tables of a group (distances, actions of a generation): keeps a group within about a gigabyte.
GROUP_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class Group:
    """Instances of one shape that are solved together, with their places in the caller's list."""

    places: tuple[int, ...]
    instances: tuple[Any, ...]


def grouped(instances: Sequence[Any], copies: int = 1) -> list[Group]:
    """Groups of one problem and shape, in order of first appearance, none larger than memory allows for its copies.

    Where there must be several they are of about one size: a few that are left over would leave a GPU idle.
    """
    shapes: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for place, instance in enumerate(instances):
        shapes.setdefault((instance.problem, instance.shape), []).append(place)
    groups: list[Group] = []
    for places in shapes.values():
        size = max(instances[p].size for p in places)
        most = max(1, GROUP_ELEMENTS // (16 * min(size, 200) * size * max(1, copies)))
        pieces = -(-len(places) // most)
        for ends in pairwise(len(places) * piece // pieces for piece in range(pieces + 1)):
            some = tuple(places[slice(*ends)])
            groups.append(Group(some, tuple(instances[p] for p in some)))
    return groups


def find_device(name: str) -> torch.device:
    """The device a user means; `auto` is a GPU if there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"device '{name}' is not known; use auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise MissingExtra("device 'cuda' was asked for, but torch sees no NVIDIA GPU; use --device cpu (or auto)")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def policy_for(name: str | None, problem: str) -> Policy[Any, Any, Any]:
    """The policy a user means, refused if it was trained for another problem."""
    return policy_with_facts(name, problem)[0]


def policy_with_facts(name: str | None, problem: str) -> tuple[Policy[Any, Any, Any], About]:
    """The same with its training facts."""
    path = find(name, problem)
    policy, about = load_with_facts(path)
    if PROBLEMS[about.problem].solves != problem:
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
    solves = PROBLEMS[policy.problem].solves
    strangers = [problem for problem in wanted if problem != solves]
    if strangers:
        raise CheckpointError(f"the policy was trained for '{policy.problem}'; there are '{strangers[0]}' instances")
    return {solves: policy}


def strategy_of(strategy: Strategy[Any] | str | None) -> Strategy[Any] | None:
    """A strategy by name with its usual settings, or the one given, if one is."""
    if isinstance(strategy, str):
        return named(strategy)
    if strategy is not None and (isinstance(strategy, type) or not hasattr(strategy, "step")):
        raise InputError(f"strategy is {strategy!r}; expected a name such as 'cmaes' or an object such as CMAES()")
    return strategy


def tasks(
    instances: Sequence[Any],
    policies: Mapping[str, Policy[Any, Any, Any]],
    *,
    seed: int,
    device: torch.device,
    engine: Engine,
    augment: int = 1,
    strategy: Any = None,
) -> Iterator[tuple[Group, Task]]:
    """Each group with its task, on the engine that the strategy can run on; encoded when its turn comes.

    What one of several groups cannot have is refused before the first: of each problem the largest instance is tried.
    """
    for instance in {i.problem: i for i in instances}.values():
        augmented(PROBLEMS[instance.problem].collate([instance]), augment)  # refuse before any work
    options: dict[str, Any] = {"seed": seed, "device": device, "augment": augment}

    def task_for(some: Sequence[Any]) -> Task:
        policy, settled = policies[some[0].problem], engine_for(strategy, engine, device, some[0].size)
        return make_task(PROBLEMS[policy.problem], policy, some, engine=settled, **options)

    groups = grouped(instances, augment)
    if len(groups) > 1 and (strategy is not None or engine != "auto"):
        for largest in {i.problem: i for i in sorted(instances, key=lambda i: i.size)}.values():
            refuse_early(strategy, task_for([largest]))
    for group in groups:
        yield group, task_for(group.instances)


def refuse_early(strategy: Any, task: Task) -> None:
    """Let a strategy of ours refuse a task. Others may want a budget when they begin, and here is none."""
    if type(strategy) in STRATEGIES.values():
        strategy.init(task)


def prepare(
    source: Source | Sequence[Any],
    *,
    policy: str | Path | Policy[Any, Any, Any] | None = None,
    vehicles: int | None = None,
    seed: int = 0,
    device: str = "auto",
    engine: Engine = "auto",
    augment: int = 1,
) -> Task:
    """A task to `stream` over: instances of one problem and size, encoded on the device."""
    instances = instances_of(source, vehicles)
    shapes = {(i.problem, i.shape): i.size for i in instances}
    if len(shapes) != 1:
        found = ", ".join(sorted({f"{problem} of {size}" for (problem, _), size in shapes.items()})) or "none"
        raise InputError(f"a task needs instances of one problem and size, not {found}; `solve` groups them by itself")
    policies = policies_of(instances, policy)
    return next(tasks(instances, policies, seed=seed, device=find_device(device), engine=engine, augment=augment))[1]


def solve(
    source: Source | Sequence[Any],
    *,
    policy: str | Path | Policy[Any, Any, Any] | None = None,
    strategy: Strategy[Any] | str | None = None,
    attempts: int | None = None,
    seconds: int | float | None = None,
    vehicles: int | None = None,
    seed: int = 0,
    device: str = "auto",
    engine: Engine = "auto",
    augment: int = 1,
    watch: Callable[[Progress], None] | None = None,
    warm_start: Given | Sequence[Given | None] | None = None,
    top: int = 1,
    polish: bool = False,
    then: str | None = None,
    improved: Callable[[Improvement], None] | None = None,
) -> list[Solution]:
    """Verified solutions, in the order given. Instances of one size are solved together and share the seconds.

    Without a strategy: CMA-ES that learns and refines plans where the policy has a latent space and there are kernels
    for it; for job shops sampling that learns; plain sampling for policies without a latent space.
    Without a budget: 1600 attempts or 30 seconds, whichever comes first. Ctrl-C ends the search early and returns what
    was found; instances not reached by then are left out. `augment` 8 shares the attempts among the symmetries of the
    square (routing only). `vehicles` limits the fleet of vehicle routing, whatever the files say; `Infeasible` is
    raised in the end if no plan within the limit was found.

    `warm_start` is a plan, or the path of one, that no result will be worse than; a list for several.
    `top` plans that differ are returned, `polish` takes the best ones to a local optimum, and `then` names a classical
    solver that carries on with them for the rest of the seconds; "auto" is our own one for each problem. `improved` is
    called at each improvement.
    """
    instances = instances_of(source, vehicles)
    budget = DEFAULT_BUDGET if attempts is None and seconds is None else Budget(attempts, seconds)
    finish, warm = Finish(top, polish, then, improved), plans_for(instances, warm_start)
    strategy = strategy_of(strategy)  # which refuses before weights are loaded
    policies = policies_of(instances, policy)
    for one in policies.values():
        finish.check(one.problem, budget)
    solutions: dict[int, Solution] = {}
    where: dict[str, Any] = {"device": find_device(device), "engine": engine, "augment": augment, "strategy": strategy}
    for group, task in tasks(instances, policies, seed=seed, **where):
        given = [warm[place] for place in group.places]
        chosen = strategy or STRATEGIES[usual_for(task)]()
        found, interrupted = complete(chosen, task, budget, watch, finish, given)
        solutions |= dict(zip(group.places, found, strict=False))
        if interrupted:
            break
    if unmet := [s.unmet for s in solutions.values() if s.unmet]:
        raise Infeasible("; ".join(unmet))
    return [solutions[place] for place in sorted(solutions)]
