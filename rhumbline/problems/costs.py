"""Costs of either sign: relative tolerances that hold for them.

A search minimises cost. A problem that maximises a profit has the negative profit as its cost, so
costs may be negative, and `cost * (1 + tolerance)` would be lower than the cost.
"""

from jaxtyping import Float
from torch import Tensor


def shift_cost(cost: Float[Tensor, "*c"], share: float) -> Float[Tensor, "*c"]:
    """Return costs that are higher by a share of their size; a negative share makes them lower."""
    shifted_up = cost * (1.0 + share)
    shifted_down = cost * (1.0 - share)  # towards 0, which is up for a negative cost
    return shifted_up.where(cost >= 0.0, shifted_down)
