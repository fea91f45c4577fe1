"""Inference-time search. A strategy is a small file; the driver in `run` keeps it honest."""

from typing import Any

from rhumbline.search.cmaes import CMAES
from rhumbline.search.simple import Greedy, Sampling, Uniform

STRATEGIES: dict[str, type[Any]] = {"cmaes": CMAES, "sampling": Sampling, "greedy": Greedy, "uniform": Uniform}
