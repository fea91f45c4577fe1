"""Record: a frozen dataclass of tensors that moves, indexes and maps as one thing."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Record:
    """Parent of batches, states and tables. Fields that are not tensors are left alone by every
    operation.
    """

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """A copy in which every tensor field, also of records inside, went through `change`."""
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                changed[field.name] = change(value)
            elif isinstance(value, Record):
                changed[field.name] = value.map(change)
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> Self:
        """A copy with every tensor on `device`."""
        return self.map(lambda x: x.to(device))

    def copy_(self, other: Self) -> None:
        """Overwrite every tensor, in place, with that of another record; for loops that must
        keep their memory.
        """
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        changed = [(own, new) for own, new in pairs if isinstance(own, Tensor) and own is not new]
        if changed:  # on a GPU one launch for all of them
            own, new = ([pair[side] for pair in changed] for side in (0, 1))
            torch._foreach_copy_(own, new)  # pyright: ignore[reportPrivateUsage]

    def __getitem__(self, index: Any) -> Self:
        """A copy in which every tensor is indexed alike."""
        return self.map(lambda x: x[index])
