"""Overrides of a task's tables and starts for some rollouts, and parts of rollouts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from rhumbline.decoding import Rollouts


@dataclass(frozen=True)
class Overrides:
    """What rollouts read instead of the task's own. None leaves the task's own."""

    memory: Any = None
    starts: Int[Tensor, "R *K C"] | None = None
    rows: Int[Tensor, "r"] | None = None  # only these; memory and starts are those of all rows

    def part(
        self, latents: slice, rows: Int[Tensor, "r"] | None = None
    ) -> "tuple[Overrides] | tuple[()]":
        """Return the overrides for some latents and rows, or nothing if nothing is overridden."""
        if self.memory is None and self.starts is None and rows is None:
            return ()
        starts = starts_of_latents(self.starts, latents)
        return (Overrides(self.memory, starts, rows),)


def concatenate_rollouts(parts: Sequence[Rollouts], axis: int) -> Rollouts:
    """Concatenate rollouts of the same instances along latents (1) or starts (2)."""
    costs = [part.cost for part in parts]
    actions = [part.actions for part in parts]
    cost = torch.cat(costs, axis)
    return Rollouts(cost, torch.cat(actions, axis))


def narrow_rollouts(rolled: Rollouts, dim: int, length: int) -> Rollouts:
    """Return the first `length` entries along a dimension."""
    return rolled.map(partial(torch.narrow, dim=dim, start=0, length=length))


def starts_of_latents(
    starts: Int[Tensor, "R *K C"] | None, latents: slice
) -> Int[Tensor, "R *k C"] | None:
    """Return the starts of some latents, if each latent has its own."""
    if starts is None or starts.ndim != 3:
        return starts
    return starts[:, latents]
