"""Where the instances of a training come from: they are drawn at random, or are one's own
(`own`).
"""

from collections.abc import Hashable
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.problems import Problem
from rhumbline.problems.distributions.varied import VARY_BY_PROBLEM
from rhumbline.training.config import TrainConfig

# whatever tells shapes of instances apart; for routing the number of cities or customers
Size = Hashable


class InstanceSource(Protocol):
    """Instances to train on and to validate with."""

    labels: list[int | str]  # sizes of the mini-steps, for people
    usual: int | str  # the size of most validation instances, or of all
    width: int  # of the largest instance, as kernels count it
    about: str  # what there is, in words; nothing if the recipe says it all
    mark: str  # of the validation instances: costs of others cannot be compared

    def size_at(self, step: int) -> Size:
        """The size of a mini-step, counted from the beginning of the training; the same in all
        processes.
        """
        ...

    def sample(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Instances of one size on the generator's device, by operations that a graph can
        record.
        """
        ...

    def validation(self, rng: torch.Generator) -> list[tuple[Any, Float[Tensor, "B"]]]:
        """Batches to validate with, each of one size, the same whenever the generator is; and
        units of costs.
        """
        ...


class RandomInstances:
    """Random instances, of which the recipe's share is not uniform."""

    about = ""

    def __init__(self, config: TrainConfig, problem: Problem[Any, Any]) -> None:
        self.config = config
        self.problem = problem
        self.labels = list(config.sizes)
        self.usual = config.size
        self.mark = f"{config.size}, variety {config.variety:g}"
        rng = torch.Generator().manual_seed(0)
        self.width = max(
            problem.action_count(problem.sample(1, s, rng)) for s in (config.size, *config.sizes)
        )

    def size_at(self, step: int) -> Size:
        """In turns."""
        return self.config.size_at(step)

    def sample(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """New ones each time."""
        c = self.config
        batch = self.problem.sample(count, size, rng)
        return VARY_BY_PROBLEM[c.problem](batch, c.variety, rng) if c.variety else batch

    def validation(self, rng: torch.Generator) -> list[tuple[Any, Float[Tensor, "B"]]]:
        """One batch, of the recipe's `size`."""
        batch = self.sample(self.config.validation.count, self.config.size, rng)
        return [(batch, batch.scale)]
