"""Search strategies, each a small module, and the registry of their names.

An outside package adds a strategy by an entry point:

    [project.entry-points."rhumbline.strategies"]
    nearby = "my_package:Nearby"
"""

from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any

from rhumbline.domains import DOMAINS, find_policy_family
from rhumbline.errors import InputError
from rhumbline.policies import Members, Policy
from rhumbline.registry import Registry
from rhumbline.search.strategy import Strategy, as_strategy, unmet_need
from rhumbline.search.task import Task
from rhumbline.toml_config import build_dataclass, parse_value

STRATEGIES: Registry[type[Any]] = Registry(
    "strategies",
    {
        "cmaes": "rhumbline.search.strategies.cmaes:CMAES",
        "cmaes-published": "rhumbline.search.strategies.published:CMAESPublished",
        "sampling": "rhumbline.search.strategies.greedy_sampling:Sampling",
        "greedy": "rhumbline.search.strategies.greedy_sampling:Greedy",
        "uniform": "rhumbline.search.strategies.greedy_sampling:Uniform",
        "fixed": "rhumbline.search.strategies.greedy_sampling:Fixed",
        "population": "rhumbline.search.strategies.population:Population",
        "eas-emb": "rhumbline.search.strategies.eas:EASEmb",
        "eas-lay": "rhumbline.search.strategies.eas:EASLay",
        "sgbs": "rhumbline.search.strategies.sgbs:SGBS",
        "sgbs-eas": "rhumbline.search.strategies.sgbs:SGBSEAS",
        "cmaes-eas": "rhumbline.search.strategies.cmaes_eas:CMAESEAS",
        "cmaes-elite": "rhumbline.search.strategies.cmaes_elite:CMAESElite",
        "sampling-elite": "rhumbline.search.strategies.sampling_elite:SamplingElite",
        "cmaes-refine": "rhumbline.search.strategies.cmaes_refine:CMAESRefine",
    },
)

# Strategies that may replace one another as the default where plans can be refined; most often it
# is the first.
REFINING_STRATEGIES = ("cmaes-refine", "cmaes", "cmaes-elite")


def default_strategy(policy: Policy[Any, Any, Any]) -> str:
    """Return the strategy to take where none is named, by what the policy has to search.

    It is the one of the domain, or plain CMA-ES if the policy lacks what that one needs.
    """
    if isinstance(policy.space, Members):
        return "population"
    if not policy.space.size:
        return "sampling"
    domain, _ = find_policy_family(policy.problem)
    name = domain.search.strategy
    needs = build_strategy(name).needs
    return "cmaes" if unmet_need(needs, policy, domain) else name


def possible_defaults(policy: Policy[Any, Any, Any]) -> tuple[str, ...]:
    """Return all strategies that may be the default; settings select the first that has them."""
    name = default_strategy(policy)
    domain, _ = find_policy_family(policy.problem)
    is_refining = domain.search.prefers_refine and name in REFINING_STRATEGIES
    return REFINING_STRATEGIES if is_refining else (name,)


def all_defaults() -> tuple[str, ...]:
    """Return all strategies that are taken where the user names none, for any policy."""
    by_domain = [domain.search.strategy for _, domain in DOMAINS.working()]
    names = [*REFINING_STRATEGIES, *by_domain, "population", "sampling"]
    return tuple(dict.fromkeys(names))


def default_strategy_for_task(task: Task) -> str:
    """Return the default strategy for a task.

    Plans are refined where fused kernels complete prefixes (research/notebooks/experiments.md).
    """
    first, *_ = possible_defaults(task.policy)
    if first == REFINING_STRATEGIES[0] and task.resolved_engine == "fused":
        return first
    return default_strategy(task.policy)


def strategy_class(name: str) -> type[Any]:
    """Return the strategy of a name; raise `InputError` if there is none.

    Settings are the fields of a dataclass, so a strategy with a name has to be one.
    """
    kind = STRATEGIES.find(name, "strategy")
    if not is_dataclass(kind):
        raise InputError(f"strategy '{name}' has to be a dataclass with its settings as fields")
    return kind


def build_strategy(name: str, settings: Sequence[str] = ()) -> Strategy[Any]:
    """Return the strategy of a name with these settings, each "field=value"."""
    fields = parse_settings(settings)
    strategy = build_dataclass(strategy_class(name), fields, name)
    return as_strategy(strategy)


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
