"""Inference-time search. A strategy is a small file; `task` keeps it honest, and `run` drives it."""

from typing import Any

from rhumbline.policies import Policy
from rhumbline.policies.space import Members
from rhumbline.search.cmaes import CMAES
from rhumbline.search.eas import EASEmb, EASLay
from rhumbline.search.elite import CMAESElite
from rhumbline.search.hybrid import CMAESEAS
from rhumbline.search.population import Population
from rhumbline.search.refine import CMAESRefine
from rhumbline.search.sampling_elite import SamplingElite
from rhumbline.search.sgbs import SGBS, SGBSEAS
from rhumbline.search.simple import Fixed, Greedy, Sampling, Uniform
from rhumbline.search.task import Task

STRATEGIES: dict[str, type[Any]] = {
    "cmaes": CMAES,
    "sampling": Sampling,
    "greedy": Greedy,
    "uniform": Uniform,
    "fixed": Fixed,
    "population": Population,
    "eas-emb": EASEmb,
    "eas-lay": EASLay,
    "sgbs": SGBS,
    "sgbs-eas": SGBSEAS,
    "cmaes-eas": CMAESEAS,
    "cmaes-elite": CMAESElite,
    "sampling-elite": SamplingElite,
    "cmaes-refine": CMAESRefine,
}

# Where something else than CMA-ES was measured to be better (docs/experiments.md).
BETTER = {"cvrp": "cmaes-elite", "jssp": "sampling-elite"}
ROUTING = ("cmaes-refine", "cmaes", "cmaes-elite")  # that may take one another's place; most often it is the first
UNNAMED = (*ROUTING, "sampling-elite", "population", "sampling")  # all that are taken where none is named


def usual(policy: Policy[Any, Any, Any]) -> str:
    """The strategy to take where none is named: whatever searches what the policy has to offer."""
    if isinstance(policy.space, Members):
        return "population"
    if not policy.space.size:
        return "sampling"
    return BETTER.get(policy.problem, "cmaes")


def possible(policy: Policy[Any, Any, Any]) -> tuple[str, ...]:
    """All that may be taken where none is named: settings choose one that has them."""
    name = usual(policy)
    return ROUTING if name in ROUTING else (name,)


def usual_for(task: Task) -> str:
    """The same for a task: plans are refined where kernels carry on what has begun (docs/experiments.md)."""
    name = usual(task.policy)
    return "cmaes-refine" if name in ROUTING and task.taken_engine == "fused" else name
