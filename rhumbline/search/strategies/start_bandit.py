"""A bandit over the starts of an instance, which selects those worth trying."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.record import Record


@dataclass(frozen=True)
class StartBandit(Record):
    """How often each start was tried, and the sum of the best costs it gave."""

    times: Float[Tensor, "B S"]
    total: Float[Tensor, "B S"]

    @staticmethod
    def make(count: int, starts: int, device: torch.device) -> "StartBandit":
        """Return the state before the first trial."""
        return StartBandit(
            times=torch.zeros(count, starts, device=device),
            total=torch.zeros(count, starts, device=device),
        )

    def record(self, index: Int[Tensor, "B C"] | None, cost: Float[Tensor, "B C"]) -> "StartBandit":
        """Return the state after one more trial of the starts `index`; None means all starts."""
        if index is None:
            return StartBandit(self.times + 1, self.total + cost)
        once = torch.ones_like(cost, dtype=self.times.dtype)
        total = self.total.to(cost.dtype)  # costs may have double precision
        return StartBandit(
            times=self.times.scatter_add(1, index, once),
            total=total.scatter_add(1, index, cost),
        )

    def best(self, count: int) -> Int[Tensor, "B C"]:
        """Return the starts with the lowest mean less a bonus for few trials, in index order."""
        times = self.times.clamp(min=1.0)
        mean = self.total / times
        deviation = mean.std(1, keepdim=True, correction=0)
        bonus = deviation / times.sqrt()
        order = (mean - bonus).argsort(dim=1, stable=True)
        best = order[:, :count]
        return best.sort(dim=1).values
