"""rhumbline: a neural solver that searches a continuous space of policies for each instance.

    import rhumbline
    best = rhumbline.solve("a280.tsp", seconds=10)[0]
    best.cost, best.plan, best.gap

Names are loaded on first use, so that `import rhumbline` and `rhumb --help` need not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rhumbline.kernels.threads import limit_spinning

if TYPE_CHECKING:
    from rhumbline.api import prepare as prepare
    from rhumbline.api import solve as solve
    from rhumbline.checkpoint import load as load
    from rhumbline.checkpoint import save as save
    from rhumbline.decoding import log_prob as log_prob
    from rhumbline.decoding import rollout as rollout
    from rhumbline.distributed.run import solve_many as solve_many
    from rhumbline.errors import CheckpointError as CheckpointError
    from rhumbline.errors import Infeasible as Infeasible
    from rhumbline.errors import InputError as InputError
    from rhumbline.errors import MissingExtra as MissingExtra
    from rhumbline.errors import RhumbError as RhumbError
    from rhumbline.files import read as read
    from rhumbline.files import write_plan as write_plan
    from rhumbline.problems.cvrp import CVRP as CVRP
    from rhumbline.problems.cvrp import CVRPInstance as CVRPInstance
    from rhumbline.problems.jssp import JSSP as JSSP
    from rhumbline.problems.jssp import JSSPInstance as JSSPInstance
    from rhumbline.problems.tsp import TSP as TSP
    from rhumbline.problems.tsp import TSPInstance as TSPInstance
    from rhumbline.search.after_search import Improvement as Improvement
    from rhumbline.search.driver import Budget as Budget
    from rhumbline.search.driver import Progress as Progress
    from rhumbline.search.driver import stream as stream
    from rhumbline.search.solution import Solution as Solution
    from rhumbline.search.strategies.cmaes import CMAES as CMAES
    from rhumbline.search.strategies.cmaes_eas import CMAESEAS as CMAESEAS
    from rhumbline.search.strategies.cmaes_elite import CMAESElite as CMAESElite
    from rhumbline.search.strategies.cmaes_refine import CMAESRefine as CMAESRefine
    from rhumbline.search.strategies.eas import EASEmb as EASEmb
    from rhumbline.search.strategies.eas import EASLay as EASLay
    from rhumbline.search.strategies.greedy_sampling import Fixed as Fixed
    from rhumbline.search.strategies.greedy_sampling import Greedy as Greedy
    from rhumbline.search.strategies.greedy_sampling import Sampling as Sampling
    from rhumbline.search.strategies.greedy_sampling import Uniform as Uniform
    from rhumbline.search.strategies.population import Population as Population
    from rhumbline.search.strategies.published import CMAESPublished as CMAESPublished
    from rhumbline.search.strategies.sampling_elite import SamplingElite as SamplingElite
    from rhumbline.search.strategies.sgbs import SGBS as SGBS
    from rhumbline.search.strategies.sgbs import SGBSEAS as SGBSEAS
    from rhumbline.training.config import TrainConfig as TrainConfig
    from rhumbline.training.loop import train as train

__version__ = "0.2.0"

limit_spinning()  # before anything imports torch

# The module of each public name; the block for type checkers above has the same names.
_HOMES = {
    "rhumbline.api": ("prepare", "solve"),
    "rhumbline.checkpoint": ("load", "save"),
    "rhumbline.distributed.run": ("solve_many",),
    "rhumbline.errors": (
        "CheckpointError",
        "Infeasible",
        "InputError",
        "MissingExtra",
        "RhumbError",
    ),
    "rhumbline.files": ("read", "write_plan"),
    "rhumbline.problems.cvrp": ("CVRP", "CVRPInstance"),
    "rhumbline.problems.jssp": ("JSSP", "JSSPInstance"),
    "rhumbline.problems.tsp": ("TSP", "TSPInstance"),
    "rhumbline.decoding": ("log_prob", "rollout"),
    "rhumbline.search.strategies.cmaes": ("CMAES",),
    "rhumbline.search.strategies.cmaes_elite": ("CMAESElite",),
    "rhumbline.search.after_search": ("Improvement",),
    "rhumbline.search.driver": ("Budget", "Progress", "stream"),
    "rhumbline.search.solution": ("Solution",),
    "rhumbline.search.strategies.eas": ("EASEmb", "EASLay"),
    "rhumbline.search.strategies.cmaes_eas": ("CMAESEAS",),
    "rhumbline.search.strategies.population": ("Population",),
    "rhumbline.search.strategies.cmaes_refine": ("CMAESRefine",),
    "rhumbline.search.strategies.published": ("CMAESPublished",),
    "rhumbline.search.strategies.sampling_elite": ("SamplingElite",),
    "rhumbline.search.strategies.sgbs": ("SGBS", "SGBSEAS"),
    "rhumbline.search.strategies.greedy_sampling": ("Fixed", "Greedy", "Sampling", "Uniform"),
    "rhumbline.training.config": ("TrainConfig",),
    "rhumbline.training.loop": ("train",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rhumbline' has no attribute '{name}'")
    module = import_module(_HOME[name])
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
