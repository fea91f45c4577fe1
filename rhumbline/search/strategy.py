"""What a strategy is, and the checks and defaults that strategies share."""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from rhumbline import kernels
from rhumbline.decoding import EngineName, Rollouts
from rhumbline.decoding.engines import require_engine
from rhumbline.domain import Domain
from rhumbline.errors import InputError
from rhumbline.policies import AdjustablePolicy, LayeredPolicy, Members, Policy
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
    "Distributions",
    "Needs",
    "PlainStrategy",
    "Step",
    "Strategy",
    "WarmUp",
    "as_strategy",
    "check_needs",
    "check_settings",
    "check_strategy_needs",
    "default_start_share",
    "default_temperature",
    "engine_for",
    "is_large",
    "is_time_critical",
    "latent_dimensions",
    "require_single_decoder",
    "temperature_or_default",
    "unmet_need",
    "warm_up_run_of",
]

StateT = TypeVar("StateT")


@dataclass(frozen=True)
class Needs:
    """Parts of a policy and a problem that a strategy cannot do without."""

    latent_space: bool = False  # latents in a box of at least one dimension
    population: bool = False  # a population of decoders (`Members`)
    single_decoder: bool = False  # no population
    neighbourhoods: bool = False  # regions of plans that can be re-sampled (`Domain`)
    tables: bool = False  # tables that a search can adjust (`AdjustablePolicy`)
    # A residual layer (`LayeredPolicy`). Not every fused engine supports that.
    layer: bool = False


class Step(NamedTuple):
    """What a step returns. A plain tuple of these three works too."""

    state: Any  # before the next step; None ends the search
    latents: Tensor  # [B, K, Z], what was tried
    rollouts: Rollouts


class Distributions(NamedTuple):
    """Normal distributions over latents, such as the components of CMA-ES."""

    means: Tensor  # [B, C, Z]
    sigmas: Tensor  # [B, C]
    shapes: Tensor  # [B, C, Z, Z]; the covariances are sigma^2 times these


class WarmUp(NamedTuple):
    """A short search that uses every kernel of a strategy."""

    strategy: "Strategy[Any]"
    attempts: int


class Strategy(Generic[StateT]):
    """A way to search: usually a frozen dataclass of settings.

    `init` makes its state, `step` tries some latents, and the driver repeats steps until the budget
    is spent. All else has defaults.
    """

    # What the policy and the problem must have. It is checked before any work, so that `init`
    # need not refuse anything.
    needs: ClassVar[Needs] = Needs()
    # Whether the search ends by itself, whatever the budget.
    finite: ClassVar[bool] = False

    def init(self, task: Task) -> StateT:
        """Return the state before the first step."""
        raise NotImplementedError

    def step(self, task: Task, state: StateT) -> Step | tuple[StateT | None, Tensor, Rollouts]:
        """Try some latents; return the next state, the latents and their rollouts.

        `task.rollout`, `rollout_each_copy` and `complete` are the only ways to spend the budget.
        A state of None ends the search.
        """
        raise NotImplementedError

    def compile(self, task: Task) -> None:
        """Compile kernels that only this strategy uses. Called before the clock runs."""

    def warm_up(self, task: Task) -> WarmUp:
        """Return a short search that uses every kernel.

        A GPU runs it before the clock starts, because it compiles kernels at their first use. By
        default these are two steps of the strategy itself, of default size.
        """
        attempts = 2 * default_step_size(task)
        return WarmUp(self, attempts)

    def distributions(self, state: StateT) -> Distributions | None:
        """Return what the latents of the next step are drawn from, for those who watch a search."""
        return None

    def finish(self, task: Task, state: StateT) -> None:
        """Make plans without an attempt (`task.account.enter`), once the budget is spent.

        The state is that of the last whole step.
        """


@runtime_checkable
class PlainStrategy(Protocol):
    """Anything with `init` and `step`, a `Strategy` or not."""

    def init(self, task: Task) -> Any:
        """Do as `Strategy.init` does."""
        ...

    def step(self, task: Task, state: Any) -> Any:
        """Do as `Strategy.step` does."""
        ...


class AdaptedStrategy(Strategy[Any]):
    """A plain object as a strategy: without needs, and with the default hooks."""

    def __init__(self, plain: PlainStrategy):
        self.plain = plain

    def init(self, task: Task) -> Any:
        """Return the object's own first state."""
        return self.plain.init(task)

    def step(self, task: Task, state: Any) -> Any:
        """Make the object's own step."""
        return self.plain.step(task, state)


def as_strategy(strategy: Any) -> Strategy[Any]:
    """Return a strategy as it is, and any other object with `init` and `step` as a strategy."""
    if isinstance(strategy, Strategy):
        return strategy
    if isinstance(strategy, type) or not isinstance(strategy, PlainStrategy):
        expected = "expected a name such as 'cmaes' or an object such as CMAES()"
        raise InputError(f"strategy is {strategy!r}; {expected}")
    return AdaptedStrategy(strategy)


# --- engines and kernels


def warm_up_run_of(strategy: PlainStrategy, task: Task) -> WarmUp:
    """Return a search that uses every kernel of the strategy, and its attempts.

    A CPU compiles its kernels ahead, so that one attempt is enough to load them.
    """
    adapted = as_strategy(strategy)
    short, attempts = adapted.warm_up(task)
    if task.device.type == "cpu":
        return WarmUp(short, 1)
    attempts_of_copies = attempts * task.copies
    return WarmUp(short, attempts_of_copies)


def engine_for(
    strategy: PlainStrategy | None, engine: EngineName, device: torch.device, nodes: int
) -> EngineName:
    """Return the engine a strategy can run on; None is any strategy without a layer.

    It is plain torch for a strategy that needs a layer if no kernel supports layers for instances
    of this size. That is an error if the fused engine is required.
    """
    if strategy is None or not as_strategy(strategy).needs.layer:
        return engine
    reason = kernels.why_not_layer(device, nodes)
    if reason is None:
        return engine
    if engine == "fused":
        require_engine(reason)
    return "torch"


# --- checks


def check_needs(needs: Needs, policy: Policy[Any, Any, Any], domain: Domain) -> None:
    """Raise `InputError`, with other strategies to take, if a need is not met."""
    reason = unmet_need(needs, policy, domain)
    if reason:
        raise InputError(reason)


def unmet_need(needs: Needs, policy: Policy[Any, Any, Any], domain: Domain) -> str | None:
    """Return what is missing and what to use instead, or None if all needs are met."""
    is_population = isinstance(policy.space, Members)
    others = "sampling-elite, cmaes-elite, sgbs or sampling"
    if needs.neighbourhoods and domain.neighbourhoods is None:
        why = f"there are no neighbourhoods in plans of {policy.problem} to re-sample"
        return f"{why}; use --search {others}"
    if needs.population and not is_population:
        why = "this policy is not a population of decoders"
        shipped = "tsp100-poppy is one for tours (--policy)"
        return f"{why}; {shipped}, and docs/results/strategies.md says how one is trained"
    if needs.latent_space and is_population:
        return "this policy is a population, without a latent space; use --search population"
    if needs.latent_space and not policy.space.size:
        return "this policy has no latent space to search; use --search sampling or greedy"
    if (needs.single_decoder or needs.tables or needs.layer) and is_population:
        why = "this policy is a population, and this search is for one decoder"
        return f"{why}; use --search population"
    if needs.tables and not isinstance(policy, AdjustablePolicy):
        why = f"this search adjusts tables that the policy for {policy.problem} has not"
        return f"{why}; use --search cmaes, sgbs or sampling"
    if needs.layer and not isinstance(policy, LayeredPolicy):
        why = f"this search adds a layer that the policy for {policy.problem} has no place for"
        return f"{why}; use --search eas-emb, cmaes or sampling"
    return None


def check_strategy_needs(strategy: PlainStrategy, task: Task) -> None:
    """Refuse a task that lacks what the strategy needs. It costs no time."""
    check_needs(as_strategy(strategy).needs, task.policy, task.domain)


def latent_dimensions(task: Task) -> int:
    """Return the dimension of the latent space; raise if the policy has none."""
    needs = Needs(latent_space=True)
    check_needs(needs, task.policy, task.domain)
    return task.policy.space.size


def require_single_decoder(task: Task) -> None:
    """Refuse populations, for strategies that follow or change a single decoder."""
    check_needs(Needs(single_decoder=True), task.policy, task.domain)


def check_settings(population: int, temperature: float | None) -> None:
    """Refuse settings that no strategy can work with."""
    if population < 1:
        raise InputError(f"population must be at least 1, not {population}")
    if temperature is None:
        return
    if not 0.0 <= temperature < float("inf"):
        raise InputError(f"temperature must be 0 (greedy) or more, not {temperature}")
