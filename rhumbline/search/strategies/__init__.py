"""Search strategies, each a small module, and the table of their names."""

from collections.abc import Sequence
from typing import Any

from rhumbline.errors import InputError
from rhumbline.policies import Policy
from rhumbline.policies.latent_space import Members
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.strategies.cmaes_eas import CMAESEAS
from rhumbline.search.strategies.cmaes_elite import CMAESElite
from rhumbline.search.strategies.cmaes_refine import CMAESRefine
from rhumbline.search.strategies.eas import EASEmb, EASLay
from rhumbline.search.strategies.greedy_sampling import Fixed, Greedy, Sampling, Uniform
from rhumbline.search.strategies.population import Population
from rhumbline.search.strategies.sampling_elite import SamplingElite
from rhumbline.search.strategies.sgbs import SGBS, SGBSEAS
from rhumbline.search.task import Task
from rhumbline.toml_config import build_dataclass, did_you_mean, parse_value

STRATEGIES: dict[str, type[Any]] = {
    "cmaes": CMAES,
    "sampling": Sampling,
    "greedy": Greedy,
    "uniform": Uniform,
    "fixed": Fixed,
    "population": Population,
    "eas-emb": EASEmb,
    "eas-lay": EASLay,
    "sgbs": SGBS,
    "sgbs-eas": SGBSEAS,
    "cmaes-eas": CMAESEAS,
    "cmaes-elite": CMAESElite,
    "sampling-elite": SamplingElite,
    "cmaes-refine": CMAESRefine,
}

# Where something else than CMA-ES was measured to be better (docs/experiments.md).
BETTER = {"cvrp": "cmaes-elite", "jssp": "sampling-elite"}
ROUTING = (
    "cmaes-refine",
    "cmaes",
    "cmaes-elite",
)  # that may take one another's place; most often it is the first
DEFAULT_STRATEGIES = (
    *ROUTING,
    "sampling-elite",
    "population",
    "sampling",
)  # all that are taken where none is named


def default_strategy(policy: Policy[Any, Any, Any]) -> str:
    """The strategy to take where none is named: whatever searches what the policy has to offer."""
    if isinstance(policy.space, Members):
        return "population"
    if not policy.space.size:
        return "sampling"
    return BETTER.get(policy.problem, "cmaes")


def possible_defaults(policy: Policy[Any, Any, Any]) -> tuple[str, ...]:
    """All that may be taken where none is named: settings choose one that has them."""
    name = default_strategy(policy)
    return ROUTING if name in ROUTING else (name,)


def default_strategy_for_task(task: Task) -> str:
    """The same for a task: plans are refined where kernels carry on what has begun
    (docs/experiments.md).
    """
    name = default_strategy(task.policy)
    return "cmaes-refine" if name in ROUTING and task.resolved_engine == "fused" else name


def strategy_class(name: str) -> type[Any]:
    """What a name stands for."""
    if name not in STRATEGIES:
        raise InputError(
            f"strategy '{name}' is not known{did_you_mean(name, STRATEGIES)}; known: {', '.join(STRATEGIES)}"
        )
    return STRATEGIES[name]


def build_strategy(name: str, settings: Sequence[str] = ()) -> Any:
    """The strategy of a name with these settings."""
    return build_dataclass(strategy_class(name), parse_settings(settings), name)


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Fields and their values; one that is given twice would leave open which of the two was
    meant.
    """
    table = dict[str, Any]()
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise InputError(f"'{text}' is not FIELD=VALUE, for example components=3")
        if name in table:
            raise InputError(f"'{name}' is given twice: {table[name]} and {value}")
        table[name] = parse_value(value)
    return table
