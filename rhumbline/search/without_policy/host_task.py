"""The task of instances that are too large for a policy to encode."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from rhumbline.decoding import EngineName
from rhumbline.domain import Domain, PlanTools
from rhumbline.domains import domain_of, plan_tools
from rhumbline.errors import InputError, shorten
from rhumbline.policies import Policy
from rhumbline.problems import Problem
from rhumbline.search.task.account import Account


@dataclass
class HostTask:
    """Large instances of one shape; the counterpart of `search.task.Task`.

    The policy, if there is one, solves regions of their plans.
    """

    problem: Problem[Any, Any]
    instances: Sequence[Any]
    seed: int
    policy: Policy[Any, Any, Any] | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    engine: EngineName = "auto"
    account: Account = field(default_factory=Account)  # warm starts, and the regions as attempts
    preparation_seconds: float = 0.0  # that reading took
    resolved_engine: str | None = None  # of the regions

    @property
    def count(self) -> int:
        """Number of instances."""
        return len(self.instances)

    @property
    def domain(self) -> Domain:
        """Everything that is special about the problem."""
        return domain_of(self.problem)

    def plan_tools(self, what: str) -> PlanTools:
        """Return the functions on plans; refuse `what` if the problem has none."""
        return plan_tools(self.problem.name, what)


def is_beyond_policies(instance: Any, domain: Domain | None) -> bool:
    """Return whether an instance is too large for policies and its problem constructs plans."""
    if domain is None or domain.construct is None:
        return False
    return instance.size > domain.problem.max_size


def describe_size(instance: Any, domain: Domain) -> str:
    """Return the reason why no policy takes an instance, for messages."""
    rules = domain.problem
    count = rules.item_count(instance)
    _, noun = rules.nouns
    beside = instance.size - count  # nodes that are not counted, such as the depot
    limit = rules.max_size - beside
    return f"{count:,} {noun} are more than the policy takes ({limit:,})"


def refuse_large(instance: Any, domain: Domain | None, what: str) -> None:
    """Raise if an instance is too large for the policies that `what` needs."""
    if domain is not None and is_beyond_policies(instance, domain):
        advice = "`solve` finds plans by local search"
        size = describe_size(instance, domain)
        raise InputError(f"{shorten(instance.name)}: {size}, which {what} needs; {advice}")
