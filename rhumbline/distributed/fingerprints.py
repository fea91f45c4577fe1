"""What makes two results comparable: the content of an instance, and how it was solved."""

import hashlib
import json
from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rhumbline.formats.safe_io import read_bytes
from rhumbline.pipeline import SolveRequest


class InstanceKeys:
    """Gives each instance of an input a key: the hash of its content, numbered if it is repeated.

    The name does not count: a renamed file is not solved again.
    """

    def __init__(self) -> None:
        self.seen: set[int] = set()  # as integers, which take a third of the memory of strings
        self.repeats: Counter[str] = Counter()

    def key(self, instance: Any) -> str:
        """Return the key of the next instance."""
        digest = content_hash(instance)
        number = int(digest, 16)
        if number not in self.seen:
            self.seen.add(number)
            return digest
        self.repeats[digest] += 1
        return f"{digest}-{self.repeats[digest] + 1}"


def content_hash(instance: Any) -> str:
    """Return a hash of everything in an instance that its plans depend on."""
    digest = hashlib.sha256(instance.problem.encode())
    for field in fields(instance):
        name = field.name
        if name not in ("name", "best_known"):
            value = getattr(instance, name)
            content = content_bytes(value)
            digest.update(name.encode())
            digest.update(content)
    return shorten_digest(digest)


def shorten_digest(digest: Any) -> str:
    """Return the first 16 hexadecimal digits of a digest.

    Among a million instances any two collide with a probability of 3e-8.
    """
    return digest.hexdigest()[:16]


def content_bytes(value: Any) -> bytes:
    """Return a field of an instance as bytes, with the type and shape of arrays."""
    if isinstance(value, np.ndarray):
        kind = f"{value.dtype.str}{value.shape}"
        header = kind.encode()
        contiguous = np.ascontiguousarray(value)
        content = contiguous.tobytes()
        return header + content
    return repr(value).encode()


def options_hash(request: SolveRequest, length: int) -> str:
    """Return a hash of all options that results depend on, and the length of a chunk."""
    after = request.after
    facts = {
        "attempts": request.budget.attempts,
        "seconds": request.budget.seconds,
        "strategy": describe_strategy(request.strategy),
        "settings": sorted(request.settings),
        "policy": describe_policy(request.policy),
        "seed": request.seed,
        "engine": request.engine,
        "augment": request.augment,
        "after": [after.top, after.polish, after.then],
        "chunk": length,
    }
    text = json.dumps(facts, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    return shorten_digest(digest)


def describe_policy(policy: Any) -> str | None:
    """Return a policy as text: the name of a shipped one, or the content of a file."""
    if policy is None:
        return None
    path = Path(str(policy))
    if path.is_file():
        return hashlib.sha256(read_bytes(path)).hexdigest()
    return str(policy)


def describe_strategy(strategy: Any) -> str | None:
    """Return a strategy as text: its name, or its type and settings."""
    if strategy is None or isinstance(strategy, str):
        return strategy
    if is_dataclass(strategy):  # with its settings
        return repr(strategy)
    return type(strategy).__name__
