"""The reference of search strategies and of domains, from their dataclasses."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from tools.docs.fields import read_settings, settings_table
from tools.docs.markdown import mark_options

# Requirements of `Needs` in words.
NEEDS = {
    "latent_space": "a policy with a latent space",
    "population": "a policy with several decoders",
    "single_decoder": "a policy with one decoder",
    "neighbourhoods": "a problem whose plans have regions to re-sample (routing)",
    "comparable_starts": "a problem with several starts (routing)",
    "tables": "a policy with tables that a search can adjust",
    "layer": "a policy that takes a residual layer after the attention read-out",
}


def describe_strategies() -> str:
    """Return a section for each strategy of this package."""
    from rhumbline.search.strategies import STRATEGIES

    strategies = {name: STRATEGIES[name] for name in STRATEGIES.table}
    comments = shared_comments(strategies.values())
    return "\n\n".join(describe_strategy(*item, comments) for item in strategies.items())


def shared_comments(strategies: Iterable[type[Any]]) -> dict[str, str]:
    """Return the first comment that a strategy has for each setting."""
    comments: dict[str, str] = {}
    for strategy in strategies:
        for setting in read_settings(strategy):
            if setting.comment:
                comments.setdefault(setting.name, setting.comment)
    return comments


def describe_strategy(name: str, strategy: type[Any], comments: Mapping[str, str]) -> str:
    """Return the section of a strategy: its docstring, needs and settings."""
    parts = [
        f"## {name}",
        f"`rhumbline.{strategy.__name__}`",
        mark_options(inspect.cleandoc(strategy.__doc__ or "")),
    ]
    needs = [text for need, text in NEEDS.items() if getattr(strategy.needs, need, False)]
    if needs:
        parts.append(f"Needs {', and '.join(needs)}.")
    parts.append(settings_table(strategy, comments))
    return "\n\n".join(parts)


def describe_domain_fields() -> str:
    """Return the tables of a domain and of the records in it."""
    from rhumbline import domain

    records = (
        domain.Domain,
        domain.FileFormats,
        domain.DatasetFormat,
        domain.PlanTools,
        domain.SearchDefaults,
        domain.TrainingTraits,
    )
    parts: list[str] = []
    for record in records:
        parts.append(f"## {record.__name__}")
        parts.append(inspect.cleandoc(record.__doc__ or ""))
        parts.append(settings_table(record))
    return "\n\n".join(parts)
