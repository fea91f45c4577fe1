"""The account of a search: what has been spent, what may be spent, and the best plans found."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.problems import Plan
from rhumbline.search.plan_sets.diverse import DiverseSet
from rhumbline.search.task.pacing import Spent


@dataclass
class Account:
    """Attempts, limits and incumbents of a search.

    Only `Task`, the driver and code that makes plans without an attempt write here.
    """

    attempts: int = 0
    spare_trajectories: int = 0  # of each instance: charged, not yet rolled out
    limit: int | None = None  # of attempts
    start_time: float = 0.0
    deadline: float | None = None
    best: Tensor | None = None  # [B] costs of the incumbents
    actions: Tensor | None = None  # [B, T]
    diverse_set: DiverseSet | None = None  # of the best different plans, if they are wanted
    warm: Sequence[Plan | None] = ()  # a plan to start from for each instance, or None
    # True for each instance that has a plan from outside the search; empty if no instance has one
    given: list[bool] = field(default_factory=list[bool])

    @property
    def spent_share(self) -> float:
        """The share of the budget that is spent, by attempts or time, whichever is larger."""
        by_attempts = self.attempts / self.limit if self.limit else 0.0
        if self.deadline is None:
            return by_attempts
        seconds = time.monotonic() - self.start_time
        return max(by_attempts, seconds / (self.deadline - self.start_time))

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

    def check_deadline(self) -> None:
        """Raise `Spent` if time is up."""
        if self.is_late:
            raise Spent

    def allow_attempts(self, wanted: int) -> int:
        """Return how many of the wanted attempts the budget still allows; raise `Spent` if none."""
        left = wanted
        if self.limit is not None:
            left = min(wanted, self.limit - self.attempts)
        if self.is_late or left <= 0:
            raise Spent
        return left

    def count_affordable(self, wanted: int, trajectories: int, per_attempt: int) -> int:
        """Return how many of `wanted` things the budget still allows.

        Each of them takes some trajectories of every instance, an attempt has `per_attempt`.
        """
        missing = wanted * trajectories - self.spare_trajectories
        attempts = -(-missing // per_attempt)
        if attempts <= 0:
            self.check_deadline()
        allowed = self.allow_attempts(attempts) if attempts > 0 else 0
        paid = self.spare_trajectories + allowed * per_attempt
        return min(wanted, paid // trajectories)

    def pay(self, trajectories: int, per_attempt: int) -> int:
        """Pay in whole attempts, and return how many; what is left over is used next."""
        missing = trajectories - self.spare_trajectories
        attempts = max(0, -(-missing // per_attempt))
        paid = attempts * per_attempt
        self.spare_trajectories += paid - trajectories
        return attempts

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
