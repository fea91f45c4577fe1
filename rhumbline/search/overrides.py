"""What some rollouts of a task read instead of the usual, and rollouts put together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from rhumbline.decoding import Rollouts


@dataclass(frozen=True)
class Overrides:
    """What rollouts read instead of the task's own."""

    memory: Any = None
    starts: Int[Tensor, "R *K C"] | None = None
    rows: Int[Tensor, "r"] | None = None  # only these; memory and starts are those of all rows

    def part(
        self, some: slice, rows: Int[Tensor, "r"] | None = None
    ) -> "tuple[Overrides] | tuple[()]":
        """The changes for some latents and rows; nothing if nothing is changed."""
        if self.memory is None and self.starts is None and rows is None:
            return ()
        return (Overrides(self.memory, starts_of_latents(self.starts, some), rows),)


def concatenate_rollouts(parts: Sequence[Rollouts], axis: int) -> Rollouts:
    """Several batches of the same instances as one: latents (1) or starts (2) side by side."""
    return Rollouts(
        torch.cat([p.cost for p in parts], axis), torch.cat([p.actions for p in parts], axis)
    )


def starts_of_latents(
    starts: Int[Tensor, "R *K C"] | None, some: slice
) -> Int[Tensor, "R *k C"] | None:
    """The starts of some latents, if each latent has its own."""
    return starts[:, some] if starts is not None and starts.ndim == 3 else starts
