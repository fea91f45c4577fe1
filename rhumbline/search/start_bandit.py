"""Which starts are worth trying: a bandit whose arms are the starts of an instance."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.record import Record


@dataclass(frozen=True)
class StartBandit(Record):
    """How often each start was tried and the sum of the best costs it gave."""

    times: Float[Tensor, "B S"]
    total: Float[Tensor, "B S"]

    @staticmethod
    def fresh(count: int, starts: int, device: torch.device) -> "StartBandit":
        """Nothing tried yet."""
        return StartBandit(
            torch.zeros(count, starts, device=device), torch.zeros(count, starts, device=device)
        )

    def seen(self, index: Int[Tensor, "B C"] | None, cost: Float[Tensor, "B C"]) -> "StartBandit":
        """After one more trial of some starts, or of all."""
        if index is None:
            return StartBandit(self.times + 1, self.total + cost)
        once = torch.ones_like(cost, dtype=self.times.dtype)  # which may be double
        total = self.total.to(cost.dtype)
        return StartBandit(
            self.times.scatter_add(1, index, once), total.scatter_add(1, index, cost)
        )

    def best(self, count: int) -> Int[Tensor, "B C"]:
        """The starts with the lowest mean minus a bonus for those seldom tried, in their usual
        order.
        """
        mean = self.total / self.times.clamp(min=1.0)
        bonus = mean.std(1, keepdim=True, correction=0) / self.times.clamp(min=1.0).sqrt()
        return (mean - bonus).argsort(dim=1, stable=True)[:, :count].sort(dim=1).values
