"""Short questions to the engines, by names of rules."""

from typing import Any

import torch

from rhumbline.decoding.engines import Ask, choose_engine, why_not_fused
from rhumbline.domains import DOMAINS
from rhumbline.problems.tsp import TSP


class Knapsack(TSP):
    """Rules of another name: what kernels may do with tours says nothing about them."""

    name = "knapsack"


families = [family for domain in DOMAINS.values() for family in domain.policies.values()]
RULES = {rules.name: rules for rules in (*(family.rules for family in families), Knapsack())}


def ask(problem: str, device: torch.device, nodes: int, shape: Any = None, **more: Any) -> Ask:
    """Ask for rollouts unless `more` says otherwise."""
    return Ask(RULES[problem], device, nodes, shape, **more)


def chosen(engine: str, *question: Any, **more: Any) -> str:
    """Return the kind of engine that constructs rollouts: "fused" or "torch"."""
    return "fused" if choose_engine(engine, ask(*question, **more)).fused else "torch"


def chosen_for_scores(engine: str, *question: Any) -> str:
    """Return the kind of engine that scores."""
    return chosen(engine, *question, gradients=True)


def why_not(*question: Any) -> str | None:
    """Return why no fused engine constructs rollouts."""
    return why_not_fused(ask(*question))
