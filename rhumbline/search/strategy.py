"""What a strategy is, and the checks and defaults that strategies share."""

import math
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline import kernels
from rhumbline.decoding import EngineName, Rollouts
from rhumbline.errors import InputError
from rhumbline.policies import Members
from rhumbline.search.task import Task

X = TypeVar("X")


@runtime_checkable
class Strategy(Protocol[X]):
    """A way to search: a frozen dataclass of settings. `init` makes its state, `step` tries some
    latents.

    A strategy that puts a layer on the glimpse, which not all kernels know, has a class variable
    `layered`; one that does not use all kernels in its first step has a property `rehearsal` (see
    `warm_up_run_of`); one that can make a plan of others, without an attempt, has a method
    `conclude`, which gets the task and the state of its last whole step when the budget is spent;
    one that needs a kernel of its own has a method `prepare`, called before the clock runs; one
    that ends by itself, whatever the budget, has a class variable `ends`.
    """

    def init(self, task: Task) -> X:
        """The state before the first step."""
        ...

    def step(self, task: Task, state: X) -> tuple[X | None, Float[Tensor, "B K Z"], Rollouts]:
        """Try something by `task.rollout`, `each_copy` or `complete`, the only ways to spend.
        None ends the search.
        """
        ...


def default_step_size(task: Task) -> int:
    """Latents of a step on each copy, where a strategy has no number of its own: more if a latent
    is one rollout.

    On a CPU, where job shops are solved by plain torch, large steps make more of them in a second
    (docs/jobshop.md).
    """
    if task.starts.shape[1] > 1:
        return 16
    return 64 if task.device.type == "cuda" else 256


def warm_up_run_of(strategy: Any, task: Task) -> tuple[Any, int]:
    """A search that uses every kernel of the strategy, and its attempts: what a GPU has to compile
    first.

    All of them are used in two usual steps, unless the strategy's `rehearsal` names another one and
    its attempts.
    """
    other, attempts = getattr(strategy, "rehearsal", (strategy, 2 * default_step_size(task)))
    return other, 1 if task.device.type == "cpu" else attempts * task.copies


def engine_for(strategy: Any, engine: EngineName, device: torch.device, nodes: int) -> EngineName:
    """The engine a strategy can run on: plain torch for a `layered` one where no kernel knows
    layers of so many nodes.

    An error if fused is a must.
    """
    reason = kernels.why_not_layer(device, nodes) if getattr(strategy, "layered", False) else None
    return kernels.fused_unless(engine, reason) if reason else engine


def latent_dimensions(task: Task) -> int:
    """Dimensions of the latent space; raises where there is none to search."""
    space = task.policy.space
    if isinstance(space, Members):
        raise InputError(
            "this policy is a population, without a latent space; use --search population"
        )
    if not space.size:
        raise InputError(
            "this policy has no latent space to search; use --search sampling or greedy"
        )
    return space.size


def require_single_decoder(task: Task) -> None:
    """Refuse populations, for strategies that follow or change a single decoder."""
    if isinstance(task.policy.space, Members):
        raise InputError(
            "this policy is a population, and this search is for one decoder; use --search population"
        )


def check_settings(population: int, temperature: float | None) -> None:
    """Refuse settings that no strategy can work with."""
    if population < 1:
        raise InputError(f"population must be at least 1, not {population}")
    if temperature is not None and not 0.0 <= temperature < float("inf"):
        raise InputError(f"temperature must be 0 (greedy) or more, not {temperature}")


TEMPERATURES = ((100.0, 1.0), (150.0, 0.5), (250.0, 0.3), (math.inf, 0.2))  # up to so many nodes


def default_temperature(task: Task, table: Sequence[tuple[float, float]] = TEMPERATURES) -> float:
    """1 up to 100 nodes, 0.5 up to 150, 0.3 up to 250, 0.2 beyond: the best of 0.1 to 1 on
    validation instances.

    The longer a tour, the more decisions noise can spoil (the paper: 1 at 100 cities, 0.1 beyond;
    docs/training.md).
    """
    nodes = task.problem.action_count(task.batch)
    return next(t for most, t in table if nodes <= most + 1)  # a depot does not count


STARTS_ON_A_CPU = 25  # by validation instances of 100 and 200 nodes (docs/experiments.md)


def default_start_share(task: Task) -> float:
    """The share of an instance's starts that is worth trying once all were tried
    (docs/experiments.md).

    On a CPU every rollout costs its time, and more latents from fewer starts find more. A GPU has
    all rollouts of one instance at work at once, and a quarter of them takes as long.
    """
    return 1.0 if task.device.type == "cuda" else min(1.0, STARTS_ON_A_CPU / task.starts.shape[1])


LARGE = (
    300  # nodes: of larger instances the usual seconds make few generations, too few to learn from
)


def is_large(task: Task) -> bool:
    """Whether instances have more nodes than that."""
    return task.problem.action_count(task.batch) > LARGE + 1  # a depot does not count


def is_time_critical(task: Task) -> bool:
    """Whether a generation from all starts would take many seconds: large instances on a CPU."""
    return task.device.type == "cpu" and is_large(task)


def temperature_or_default(
    task: Task, wanted: float | None, table: Sequence[tuple[float, float]] = TEMPERATURES
) -> float:
    """The temperature a user wants, or the usual one."""
    return default_temperature(task, table) if wanted is None else wanted
