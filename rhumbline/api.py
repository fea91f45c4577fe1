"""One call from files or arrays to verified solutions."""

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
from rhumbline.search.strategy import Strategy, engine_for
from rhumbline.search.task import Task, make_task

DEFAULT_BUDGET = Budget(attempts=1600, seconds=30.0)

# Numbers in the largest tables of a group (distances, actions of a generation): keeps a group
# within about a gigabyte.
GROUP_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class Group:
    """Instances of one shape that are solved together, with their places in the caller's list."""

    places: tuple[int, ...]
    instances: tuple[Any, ...]


def group_instances(instances: Sequence[Any], copies: int = 1) -> list[Group]:
    """Groups of one problem and shape, in order of first appearance, none larger than memory allows
    for its copies.

    Where there must be several they are of about one size: a few that are left over would leave a
    GPU idle.
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
        raise MissingExtra(
            "device 'cuda' was asked for, but torch sees no NVIDIA GPU; use --device cpu (or auto)"
        )
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def load_policy(name: str | None, problem: str) -> Policy[Any, Any, Any]:
    """The policy a user means, refused if it was trained for another problem."""
    return load_policy_with_facts(name, problem)[0]


def load_policy_with_facts(
    name: str | None, problem: str
) -> tuple[Policy[Any, Any, Any], TrainingFacts]:
    """The same with its training facts."""
    path = find_checkpoint(name, problem)
    policy, about = load_with_facts(path)
    if PROBLEMS[about.problem].solves != problem:
        raise CheckpointError(
            f"checkpoint {path.name} was trained for '{about.problem}'; these are '{problem}' instances"
        )
    return policy, about


def problem_names(instances: Sequence[Any]) -> list[str]:
    """Names of the problems among instances, in order of first appearance."""
    return list(dict.fromkeys(i.problem for i in instances))


def load_policies(
    instances: Sequence[Any], policy: str | Path | Policy[Any, Any, Any] | None
) -> dict[str, Policy[Any, Any, Any]]:
    """The policy for each problem among the instances: by name, path or default, or the one
    given.
    """
    wanted = problem_names(instances)
    if isinstance(policy, str | Path | None):
        return {
            problem: load_policy(str(policy) if policy else None, problem) for problem in wanted
        }
    solves = PROBLEMS[policy.problem].solves
    strangers = [problem for problem in wanted if problem != solves]
    if strangers:
        raise CheckpointError(
            f"the policy was trained for '{policy.problem}'; there are '{strangers[0]}' instances"
        )
    return {solves: policy}


def resolve_strategy(strategy: Strategy[Any] | str | None) -> Strategy[Any] | None:
    """A strategy by name with its usual settings, or the one given, if one is."""
    if isinstance(strategy, str):
        return build_strategy(strategy)
    if strategy is not None and (isinstance(strategy, type) or not hasattr(strategy, "step")):
        raise InputError(
            f"strategy is {strategy!r}; expected a name such as 'cmaes' or an object such as CMAES()"
        )
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
    """Each group with its task, on the engine that the strategy can run on; encoded when its turn
    comes.

    What one of several groups cannot have is refused before the first: of each problem the largest
    instance is tried.
    """
    for instance in {i.problem: i for i in instances}.values():
        symmetric_copies(
            PROBLEMS[instance.problem].collate([instance]), augment
        )  # refuse before any work
    options: dict[str, Any] = {"seed": seed, "device": device, "augment": augment}

    def task_for(some: Sequence[Any]) -> Task:
        policy = policies[some[0].problem]
        settled = engine_for(strategy, engine, device, some[0].size)
        return make_task(PROBLEMS[policy.problem], policy, some, engine=settled, **options)

    groups = group_instances(instances, augment)
    if len(groups) > 1 and (strategy is not None or engine != "auto"):
        for largest in {i.problem: i for i in sorted(instances, key=lambda i: i.size)}.values():
            refuse_early(strategy, task_for([largest]))
    for group in groups:
        yield group, task_for(group.instances)


def refuse_early(strategy: Any, task: Task) -> None:
    """Let a strategy of ours refuse a task. Others may want a budget when they begin, and here
    is none.
    """
    if type(strategy) in STRATEGIES.values():
        strategy.init(task)


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
    """A task to `stream` over: instances of one problem and size, encoded on the device."""
    instances = instances_from(source, vehicles)
    shapes = {(i.problem, i.shape): i.size for i in instances}
    if len(shapes) != 1:
        found = (
            ", ".join(sorted({f"{problem} of {size}" for (problem, _), size in shapes.items()}))
            or "none"
        )
        raise InputError(
            f"a task needs instances of one problem and size, not {found}; `solve` groups them by itself"
        )
    policies = load_policies(instances, policy)
    return next(
        make_tasks(
            instances,
            policies,
            seed=seed,
            device=find_device(device),
            engine=engine,
            augment=augment,
        )
    )[1]


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
    """Verified solutions, in the order given. Instances of one size are solved together and share
    the seconds.

    Without a strategy: CMA-ES that learns and refines plans where the policy has a latent space and
    there are kernels for it; for job shops sampling that learns; plain sampling for policies
    without a latent space. Without a budget: 1600 attempts or 30 seconds, whichever comes first.
    Ctrl-C ends the search early and returns what was found; instances not reached by then are left
    out. `augment` 8 shares the attempts among the symmetries of the square (routing only).
    `vehicles` limits the fleet of vehicle routing, whatever the files say; `Infeasible` is raised
    in the end if no plan within the limit was found.

    `warm_start` is a plan, or the path of one, that no result will be worse than; a list for
    several. `top` plans that differ are returned, `polish` takes the best ones to a local optimum,
    and `then` names a classical solver that carries on with them for the rest of the seconds;
    "auto" is our own one for each problem. `improved` is called at each improvement.
    """
    instances = instances_from(source, vehicles)
    budget = DEFAULT_BUDGET if attempts is None and seconds is None else Budget(attempts, seconds)
    finish = AfterSearch(top, polish, then, improved)
    warm = plans_for(instances, warm_start)
    strategy = resolve_strategy(strategy)  # which refuses before weights are loaded
    policies = load_policies(instances, policy)
    for one in policies.values():
        finish.check(one.problem, budget)
    solutions: dict[int, Solution] = {}
    where: dict[str, Any] = {
        "device": find_device(device),
        "engine": engine,
        "augment": augment,
        "strategy": strategy,
    }
    for group, task in make_tasks(instances, policies, seed=seed, **where):
        given = [warm[place] for place in group.places]
        chosen = strategy or STRATEGIES[default_strategy_for_task(task)]()
        found, interrupted = solve_task(chosen, task, budget, watch, finish, given)
        solutions |= dict(zip(group.places, found, strict=False))
        if interrupted:
            break
    if unmet := [s.unmet for s in solutions.values() if s.unmet]:
        raise Infeasible("; ".join(unmet))
    return [solutions[place] for place in sorted(solutions)]
