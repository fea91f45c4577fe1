"""Tensor helpers for problems over nodes."""

from jaxtyping import Float, Int
from torch import Tensor


def take_nodes(
    table: Float[Tensor, "B N F"], index: Int[Tensor, "B *R"]
) -> Float[Tensor, "B *R F"]:
    """Return the rows of each instance's table at the given nodes."""
    width = table.shape[2]
    rows = table.gather(1, index.reshape(len(index), -1, 1).expand(-1, -1, width))
    return rows.view(*index.shape, width)
