"""Imitation targets: the best plan found is scored."""

from jaxtyping import Float, Int
from torch import Tensor


def select_cheapest(
    cost: Float[Tensor, "B K S"], count: int
) -> tuple[Int[Tensor, "B V"], Int[Tensor, "B V"], Float[Tensor, "B V"]]:
    """Rollout index, latent index and cost of the `count` cheapest rollouts of each instance."""
    values, index = cost.flatten(1).topk(count, dim=1, largest=False)
    return index, index // cost.shape[2], values
