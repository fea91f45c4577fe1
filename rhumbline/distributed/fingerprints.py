"""What makes two results comparable: the content of an instance, and how it was solved."""

import hashlib
import json
from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from rhumbline.pipeline import SolveRequest

LENGTH = 16  # hexadecimal digits: a million instances collide with a chance of 1e-7


class InstanceKeys:
    """Gives each instance of an input a key: the hash of its content and which one of equals it is.

    The name does not count: a file that was renamed is solved once.
    """

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def key(self, instance: Any) -> str:
        """Return the key of the next instance."""
        digest = content_hash(instance)
        self.seen[digest] += 1
        number = self.seen[digest]
        return digest if number == 1 else f"{digest}-{number}"


def content_hash(instance: Any) -> str:
    """Return a hash of everything that matters to the plans of an instance."""
    digest = hashlib.sha256(instance.problem.encode())
    for field in fields(instance):
        if field.name not in ("name", "best_known"):
            value = getattr(instance, field.name)
            digest.update(field.name.encode())
            digest.update(content_bytes(value))
    return digest.hexdigest()[:LENGTH]


def content_bytes(value: Any) -> bytes:
    """Return a field of an instance as bytes, with the type and shape of arrays."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    return repr(value).encode()


def options_hash(request: SolveRequest, length: int) -> str:
    """Return a hash of all options that results depend on, and the length of a chunk."""
    after = request.after
    facts = {
        "attempts": request.budget.attempts,
        "seconds": request.budget.seconds,
        "strategy": describe_strategy(request.strategy),
        "settings": sorted(request.settings),
        "policy": None if request.policy is None else str(request.policy),
        "seed": request.seed,
        "engine": request.engine,
        "augment": request.augment,
        "after": [after.top, after.polish, after.then],
        "chunk": length,
    }
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def describe_strategy(strategy: Any) -> str | None:
    """Return a strategy as text: its name, or its type and settings."""
    if strategy is None or isinstance(strategy, str):
        return strategy
    return repr(strategy) if is_dataclass(strategy) else type(strategy).__name__
