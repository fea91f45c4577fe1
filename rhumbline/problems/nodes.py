"""Tensor helpers for problems over nodes."""

from jaxtyping import Float, Int
from torch import Tensor


def take_nodes(
    table: Float[Tensor, "B N F"], index: Int[Tensor, "B *R"]
) -> Float[Tensor, "B *R F"]:
    """Return the rows of each instance's table at the given nodes."""
    count, _, width = table.shape
    rows_of_table = index.reshape(count, -1, 1)
    positions = rows_of_table.expand(-1, -1, width)
    rows = table.gather(1, positions)
    shape = (*index.shape, width)
    return rows.view(shape)
