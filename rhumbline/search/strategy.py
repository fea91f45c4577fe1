"""What a strategy is, and the checks and defaults that strategies share."""

from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline import kernels
from rhumbline.decoding import EngineName, Rollouts
from rhumbline.decoding.engines import require_engine
from rhumbline.errors import InputError
from rhumbline.policies import Members
from rhumbline.search.defaults import (
    default_start_share,
    default_step_size,
    default_temperature,
    is_large,
    is_time_critical,
    temperature_or_default,
)
from rhumbline.search.task import Task

__all__ = [
    "Strategy",
    "check_settings",
    "default_start_share",
    "default_temperature",
    "engine_for",
    "is_large",
    "is_time_critical",
    "latent_dimensions",
    "require_single_decoder",
    "temperature_or_default",
    "warm_up_run_of",
]

X = TypeVar("X")


@runtime_checkable
class Strategy(Protocol[X]):
    """A way to search: a frozen dataclass of settings.

    `init` makes its state, `step` tries some latents. A strategy may also have, all optional:

    - `layered`, a class variable: True if it inserts a residual layer after the attention read-out.
      Not every fused engine supports that.
    - `ends`, a class variable: True if it ends by itself, whatever the budget.
    - `prepare(task)`: compiles its own kernels. Called before the clock runs.
    - `rehearsal`, a property: another strategy and a number of attempts that use every kernel, if
      two steps of the strategy itself do not. A GPU runs it before the clock starts.
    - `conclude(task, state)`: makes a plan without an attempt. Called when the budget is spent,
      with the state of the last whole step.
    """

    def init(self, task: Task) -> X:
        """Return the state before the first step."""
        ...

    def step(self, task: Task, state: X) -> tuple[X | None, Float[Tensor, "B K Z"], Rollouts]:
        """Try some latents; return the next state, the latents and their rollouts.

        `task.rollout`, `rollout_each_copy` and `complete` are the only ways to spend the budget.
        A state of None ends the search.
        """
        ...


# --- engines and kernels


def warm_up_run_of(strategy: Any, task: Task) -> tuple[Any, int]:
    """Return a search that uses every kernel of the strategy, and its attempts.

    A GPU compiles these kernels first. Two steps of default size use all of them, unless the
    strategy's `rehearsal` names another search.
    """
    default = (strategy, 2 * default_step_size(task))
    search, attempts = getattr(strategy, "rehearsal", default)
    if task.device.type == "cpu":
        return search, 1
    return search, attempts * task.copies


def engine_for(strategy: Any, engine: EngineName, device: torch.device, nodes: int) -> EngineName:
    """Return the engine a strategy can run on.

    It is plain torch for a `layered` strategy if no kernel supports layers for instances of this
    size. That is an error if the fused engine is required.
    """
    if not getattr(strategy, "layered", False):
        return engine
    reason = kernels.why_not_layer(device, nodes)
    if reason is None:
        return engine
    if engine == "fused":
        require_engine(reason)
    return "torch"


# --- checks


def latent_dimensions(task: Task) -> int:
    """Return the dimension of the latent space; raise if the policy has none."""
    space = task.policy.space
    if isinstance(space, Members):
        trouble = "this policy is a population, without a latent space"
        raise InputError(f"{trouble}; use --search population")
    if not space.size:
        trouble = "this policy has no latent space to search"
        raise InputError(f"{trouble}; use --search sampling or greedy")
    return space.size


def require_single_decoder(task: Task) -> None:
    """Refuse populations, for strategies that follow or change a single decoder."""
    if isinstance(task.policy.space, Members):
        trouble = "this policy is a population, and this search is for one decoder"
        raise InputError(f"{trouble}; use --search population")


def check_settings(population: int, temperature: float | None) -> None:
    """Refuse settings that no strategy can work with."""
    if population < 1:
        raise InputError(f"population must be at least 1, not {population}")
    if temperature is None:
        return
    if not 0.0 <= temperature < float("inf"):
        raise InputError(f"temperature must be 0 (greedy) or more, not {temperature}")
