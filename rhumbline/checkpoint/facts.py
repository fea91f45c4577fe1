"""How the weights of a checkpoint were trained: the part of its header that people read."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import torch

from rhumbline.errors import CheckpointError, shorten, shorten_repr
from rhumbline.toml_config import build_dataclass


@dataclass(frozen=True)
class TrainingFacts:
    """How the weights of a checkpoint were trained."""

    problem: str
    size: int | str  # of the validation instances, and of training unless its recipe has `sizes`
    updates: int = 0
    recipe: str = ""
    validation: Mapping[str, float] = field(default_factory=dict[str, float])
    versions: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def trained_at(self) -> str:
        """Return the size of the training instances in words, as in "100" or "50 to 200"."""
        sizes = self._sizes
        smallest = sizes[0]
        if len(sizes) == 1:
            return f"{smallest}"
        return f"{smallest} to {sizes[-1]}"

    @property
    def largest(self) -> int:
        """Return the number of nodes or operations of the largest training instance."""
        largest_size = self._sizes[-1]
        return _node_count(largest_size)

    @property
    def _sizes(self) -> list[int | str]:
        """Return the sizes of the training instances, the smallest first."""
        try:  # recipes of other programs need not be JSON
            sizes = json.loads(self.recipe)["sizes"]
            if not all(is_size(size) for size in sizes):
                return [self.size]
            return sorted(sizes, key=_node_count) or [self.size]
        except (ValueError, KeyError, TypeError, RecursionError):
            return [self.size]


def is_size(size: object) -> bool:
    """Return whether something is a number of nodes, or a size such as 15x10."""
    if isinstance(size, bool) or not isinstance(size, int | str):
        return False
    text = str(size)[:100]
    # A number of nodes, or jobs x machines; the largest has nine digits.
    match = re.fullmatch(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8}){0,3}", text)
    return match is not None


def _node_count(size: int | str) -> int:
    """Return the number of nodes, or of operations of a size such as 15x10."""
    words = str(size).split("x")
    numbers = [int(word) for word in words]
    return math.prod(numbers)


def recorded_versions() -> dict[str, str]:
    """Return the versions that weights or results were made with."""
    from rhumbline import __version__

    return {
        "rhumbline": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def parse_facts(table: Any) -> TrainingFacts:
    """Return the training facts of a header; refuse those that cannot be true."""
    if not isinstance(table, dict):
        raise CheckpointError(f"its 'about' is {shorten_repr(table)}, expected a table")
    facts = build_dataclass(TrainingFacts, table, "about")
    if not is_size(facts.size):
        refuse_fact("size", facts.size, "a number of nodes or jobs x machines")
    if facts.updates < 0:
        refuse_fact("updates", facts.updates, "at least 0")
    for name, cost in facts.validation.items():
        if not is_json_number(cost):
            refuse_fact(f"validation.{shorten(name)}", cost, "a number")
    for name, version in facts.versions.items():
        if not isinstance(version, str):  # pyright: ignore[reportUnnecessaryIsInstance] (JSON)
            refuse_fact(f"versions.{shorten(name)}", version, "text")
    return facts


def refuse_fact(name: str, found: object, expected: str) -> NoReturn:
    """Raise: a training fact cannot be what its header says."""
    value = shorten_repr(found)
    raise CheckpointError(f"about: {name} is {value}, expected {expected}")


def is_json_number(number: object) -> bool:
    """Return whether a value of JSON is a number, neither NaN nor beyond the range of a float."""
    if not isinstance(number, int | float) or isinstance(number, bool):
        return False
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number of more than 308 digits
        return False
