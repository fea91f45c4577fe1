"""The account of a search: what has been spent, what may be spent, and the best plans found."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.problems import Plan
from rhumbline.search.plan_sets.diverse import DiverseSet


class Spent(Exception):
    """The budget is used up. Raised through a strategy's step, caught by `stream`."""


@dataclass
class Account:
    """Attempts, limits and incumbents of a search.

    Only `Task`, the driver and code that makes plans without an attempt write here.
    """

    attempts: int = 0
    limit: int | None = None  # of attempts
    deadline: float | None = None
    best: Tensor | None = None  # [B] costs of the incumbents
    actions: Tensor | None = None  # [B, T]
    diverse_set: DiverseSet | None = None  # of the best different plans, if they are wanted
    warm: Sequence[Plan | None] = ()  # a plan to start from for each instance, or None

    @property
    def is_late(self) -> bool:
        """Whether the time is up."""
        if self.deadline is None:
            return False
        return time.monotonic() >= self.deadline

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, 0 after it; infinite without one."""
        if self.deadline is None:
            return math.inf
        return max(0.0, self.deadline - time.monotonic())

    def allowed(self, wanted: int) -> int:
        """Return how many of the wanted attempts the budget still allows; raise `Spent` if none.

        The first attempt is always made, however late it is.
        """
        left = wanted
        if self.limit is not None:
            left = min(wanted, self.limit - self.attempts)
        if (self.is_late and self.attempts > 0) or left <= 0:
            raise Spent
        return left

    def enter(self, rolled: Rollouts, attempts: int) -> None:
        """Count attempts and keep the cheapest solution of each instance."""
        cost, best = rolled.cost.flatten(1).min(1)
        rows = torch.arange(len(cost), device=cost.device)
        actions = rolled.actions.flatten(1, 2)[rows, best]
        if self.best is None or self.actions is None:
            self.best = cost
            self.actions = actions
        is_better = cost < self.best
        self.best = torch.where(is_better, cost, self.best)
        self.actions = torch.where(is_better[:, None], actions, self.actions)
        if self.diverse_set:
            self.diverse_set.enter(rolled)
        self.attempts += attempts
