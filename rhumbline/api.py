"""One call from files or arrays to verified solutions."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import torch

from rhumbline.decoding import EngineName
from rhumbline.errors import Infeasible, InputError
from rhumbline.files.plans import GivenPlan, plans_for
from rhumbline.inputs import SolveInput, instances_from
from rhumbline.pipeline import (
    Listener,
    SolveRequest,
    budget_or_default,
    find_device,
    load_policies,
    make_tasks,
    solve_groups,
)
from rhumbline.policies import Policy
from rhumbline.search.after_search import AfterSearch, Improvement
from rhumbline.search.driver import Progress, is_of_kind
from rhumbline.search.solution import Solution
from rhumbline.search.strategy import PlainStrategy
from rhumbline.search.task import Task


@dataclass
class CallbackListener(Listener):
    """Passes on what `solve` was asked to pass on."""

    watch: Callable[[Progress], None] | None
    on_improvement: Callable[[Improvement], None] | None

    @property
    def hears_improvements(self) -> bool:
        """Whether there is a function to call."""
        return self.on_improvement is not None

    def progress(self, progress: Progress) -> None:
        """Pass on a step."""
        if self.watch:
            self.watch(progress)

    def improved(self, found: Improvement) -> None:
        """Pass on a better plan."""
        if self.on_improvement:
            self.on_improvement(found)


def check_whole_numbers(**values: object) -> None:
    """Raise at the first value that is not a whole number, with its name."""
    for name, value in values.items():
        if not is_of_kind(value, Integral):
            raise InputError(f"{name} is {value!r}, expected a whole number")


@contextmanager
def limit_threads(count: int | None) -> Generator[None, None, None]:
    """Use this many threads of the CPU in a block; None leaves the number as it is."""
    if count is None:
        yield
        return
    check_whole_numbers(threads=count)
    if count < 1:
        raise InputError(f"threads is {count}, expected 1 or more")
    before = torch.get_num_threads()
    torch.set_num_threads(count)  # the fused engine uses this number too
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepare(
    source: SolveInput | Sequence[Any],
    *,
    policy: str | Path | Policy[Any, Any, Any] | None = None,
    vehicles: int | None = None,
    capacity: int | float | None = None,
    seed: int = 0,
    device: str = "auto",
    engine: EngineName = "auto",
    augment: int = 1,
) -> Task:
    """Return a task to `stream` over: instances of one problem and size, encoded on the device."""
    check_whole_numbers(seed=seed, augment=augment)
    instances = instances_from(source, vehicles, capacity)
    shapes = {(instance.problem, instance.shape): instance.size for instance in instances}
    if len(shapes) != 1:
        sizes = {f"{problem} of {size}" for (problem, _), size in shapes.items()}
        found = ", ".join(sorted(sizes)) or "none"
        expected = "a task needs instances of one problem and size"
        raise InputError(f"{expected}, not {found}; `solve` groups them by itself")
    tasks = make_tasks(
        instances,
        {problem: loaded.policy for problem, loaded in load_policies(instances, policy).items()},
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
    strategy: PlainStrategy | str | None = None,
    attempts: int | None = None,
    seconds: int | float | None = None,
    vehicles: int | None = None,
    capacity: int | float | None = None,
    seed: int = 0,
    device: str = "auto",
    engine: EngineName = "auto",
    threads: int | None = None,
    augment: int = 1,
    watch: Callable[[Progress], None] | None = None,
    warm_start: GivenPlan | Sequence[GivenPlan | None] | None = None,
    top: int = 1,
    polish: bool = False,
    then: str | None = "auto",
    improved: Callable[[Improvement], None] | None = None,
    total_seconds: int | float | None = None,
) -> list[Solution]:
    """Return verified solutions in the order given.

    Instances of one size are solved together and share the seconds. Without `attempts` and
    `seconds` the budget is 1600 attempts or 30 seconds, whichever comes first. Ctrl-C ends the
    search early and returns what was found, or constructed if nothing was; instances not reached by
    then are left out. `total_seconds` bounds the whole call: each size gets an equal part of the
    time that is left.

    `strategy` is a name or an object. The default depends on the policy: CMA-ES that learns and
    refines plans if there is a latent space and kernels for it, sampling that learns for job
    shops, and plain sampling for policies without a latent space. `augment=8` shares the attempts
    among the symmetries of the square (routing only). `vehicles` limits the fleet of CVRP,
    whatever the files say; `Infeasible` is raised at the end if no plan within the limit was
    found for some instance. Its `solutions` are all that were found.
    `capacity` replaces that of the vehicles, which tables of customers need not have. `threads`
    limits the threads on a CPU for the time of this call.

    `then` names what continues for the rest of the seconds, half of them at least. "auto" is our
    own local search for each problem, where there are seconds and enough of them for each instance;
    `then=None` gives all the time to the search of the policy. With `attempts` alone, or with
    `then=None` and `attempts`, equal seeds give equal results.

    `warm_start` is a plan, or the path of one, that no result will be worse than; a list for
    several instances. `top` is the number of different plans to return, and `polish` takes the best
    ones to a local optimum. `improved` is called at each improvement, and `watch` after each step
    of the search.
    """
    began = time.monotonic()
    check_whole_numbers(seed=seed, augment=augment)
    instances = instances_from(source, vehicles, capacity)
    given_plans = plans_for(instances, warm_start)
    request = SolveRequest(
        budget=budget_or_default(attempts, seconds, total_seconds),
        total_seconds=total_seconds,
        strategy=strategy,
        policy=policy,
        seed=seed,
        device=device,
        engine=engine,
        augment=augment,
        after=AfterSearch(top, polish, then),
        warm_start=given_plans,
        reading_seconds=time.monotonic() - began,
    )
    solutions: dict[int, Solution] = {}
    with limit_threads(threads):
        for result in solve_groups(instances, request, CallbackListener(watch, improved)):
            solutions |= result.by_place()
    found = [solutions[place] for place in sorted(solutions)]
    unmet = [solution.unmet for solution in found if solution.unmet]
    if unmet:
        raise Infeasible("; ".join(unmet), found)
    return found
