"""Record: a frozen dataclass of tensors that moves, indexes and maps as one value."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

# For fields that all rollouts of an instance share, as in
# `demand: Int[Tensor, "B 1 N"] = field(metadata=PER_INSTANCE)`.
PER_INSTANCE = {"per_instance": True}


@dataclass(frozen=True)
class Record:
    """Parent of batches, states and tables. Fields that are not tensors stay as they are."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return a copy with `change` applied to every tensor, also to those of nested records."""
        changed: dict[str, Any] = {}
        for field in fields(self):
            name = field.name
            value = getattr(self, name)
            if isinstance(value, Tensor):
                changed[name] = change(value)
            elif isinstance(value, Record):
                changed[name] = value.map(change)
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> Self:
        """Return a copy with every tensor on `device`."""
        return self.map(lambda x: x.to(device))

    def copy_(self, other: Self) -> None:
        """Overwrite every tensor in place with the one of `other`, as `Tensor.copy_` does.

        Loops under a CUDA graph need it: their tensors must keep their addresses.
        """
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for field in fields(self):
            target = getattr(self, field.name)
            source = getattr(other, field.name)
            if isinstance(target, Tensor) and target is not source:
                targets.append(target)
                sources.append(source)
        if targets:  # one launch for all of them on a GPU
            torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateUsage]

    def select(self, rollouts: Tensor) -> Self:
        """Return a copy with some rollouts of each instance, by their positions [B, r].

        All tensors are [B, R, ...], except those of fields marked with `PER_INSTANCE`, which stay.
        """
        changed: dict[str, Any] = {}
        counts: dict[str, int] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if PER_INSTANCE.items() <= field.metadata.items():
                continue
            if isinstance(value, Record):
                changed[field.name] = value.select(rollouts)
            elif isinstance(value, Tensor):
                counts[field.name] = value.shape[1] if value.ndim > 1 else 0
        self._check_counts(counts)
        for name in counts:
            changed[name] = gather_rollouts(getattr(self, name), rollouts)
        return replace(self, **changed)

    def _check_counts(self, counts: dict[str, int]) -> None:
        """Refuse fields with different numbers of rollouts: a mark is missing."""
        if 0 not in counts.values() and len(set(counts.values())) <= 1:
            return
        odd = min(counts, key=counts.__getitem__)
        advice = "mark what all rollouts of an instance share with field(metadata=PER_INSTANCE)"
        raise TypeError(f"{type(self).__name__}.{odd} has a different number of rollouts; {advice}")

    def __getitem__(self, index: Any) -> Self:
        """Return a copy in which `index` is applied to every tensor."""
        return self.map(lambda x: x[index])


def gather_rollouts(x: Tensor, rollouts: Tensor) -> Tensor:
    """Return some rollouts [B, r] of each row of a tensor [B, R, ...]."""
    rest = x.shape[2:]
    ones = [1] * len(rest)
    shape = (*rollouts.shape, *ones)
    index = rollouts.view(shape)
    index = index.expand(-1, -1, *rest)
    return x.gather(1, index)
