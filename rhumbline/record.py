"""Record: a frozen dataclass of tensors that moves, indexes and maps as one value."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Record:
    """Parent of batches, states and tables. Fields that are not tensors stay as they are."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return a copy with `change` applied to every tensor, also to those of nested records."""
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                changed[field.name] = change(value)
            elif isinstance(value, Record):
                changed[field.name] = value.map(change)
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

    def __getitem__(self, index: Any) -> Self:
        """Return a copy in which `index` is applied to every tensor."""
        return self.map(lambda x: x[index])
