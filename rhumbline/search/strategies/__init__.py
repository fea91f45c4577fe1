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

# Strategies that were measured to be better than CMA-ES (research/notebooks/experiments.md).
BEST_BY_PROBLEM = {"cvrp": "cmaes-elite", "jssp": "sampling-elite"}
# Strategies that may replace one another as the default; most often it is the first.
ROUTING_STRATEGIES = ("cmaes-refine", "cmaes", "cmaes-elite")
# All strategies that are taken where the user names none.
DEFAULT_STRATEGIES = (*ROUTING_STRATEGIES, "sampling-elite", "population", "sampling")


def default_strategy(policy: Policy[Any, Any, Any]) -> str:
    """Return the strategy to take where none is named, by what the policy has to search."""
    if isinstance(policy.space, Members):
        return "population"
    if not policy.space.size:
        return "sampling"
    return BEST_BY_PROBLEM.get(policy.problem, "cmaes")


def possible_defaults(policy: Policy[Any, Any, Any]) -> tuple[str, ...]:
    """Return all strategies that may be the default; settings select the first that has them."""
    name = default_strategy(policy)
    return ROUTING_STRATEGIES if name in ROUTING_STRATEGIES else (name,)


def default_strategy_for_task(task: Task) -> str:
    """Return the default strategy for a task.

    Plans are refined where fused kernels complete prefixes (research/notebooks/experiments.md).
    """
    name = default_strategy(task.policy)
    refines = name in ROUTING_STRATEGIES and task.resolved_engine == "fused"
    return "cmaes-refine" if refines else name


def strategy_class(name: str) -> type[Any]:
    """Return the strategy of a name; raise `InputError` if there is none."""
    if name not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        suggestion = did_you_mean(name, STRATEGIES)
        raise InputError(f"strategy '{name}' is not known{suggestion}; known: {known}")
    return STRATEGIES[name]


def build_strategy(name: str, settings: Sequence[str] = ()) -> Any:
    """Return the strategy of a name with these settings, each "field=value"."""
    return build_dataclass(strategy_class(name), parse_settings(settings), name)


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Return fields and their values; refuse a field that is given twice."""
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
