"""The source of a training's instances, and random instances as one; `files` has the other."""

from collections.abc import Hashable
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.problems import Problem
from rhumbline.training.config import TrainConfig

# Equal for instances that fit into one batch. Routing: the number of cities or customers.
Size = Hashable


class InstanceSource(Protocol):
    """Instances to train on and to validate with."""

    # Sizes of the mini-steps as users write them.
    labels: list[int | str]
    # The size of most validation instances, or of all.
    typical_size: int | str
    # Actions of the largest instance, which kernels have to hold.
    max_action_count: int
    # What the source consists of, in words; empty if the recipe says it all.
    summary: str
    # Identifies the validation instances: costs of different instances cannot be compared.
    validation_data: str

    def size_at(self, step: int) -> Size:
        """Return the size of a mini-step, counted from the beginning of the training.

        It is the same in all processes.
        """
        ...

    def sample(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Sample instances of one size on the generator's device, by operations a graph can record.

        With several processes, all of them draw the same joint batch.
        """
        ...

    def validation(self, rng: torch.Generator) -> list[tuple[Any, Float[Tensor, "B"]]]:
        """Return batches to validate with, each of one size, and the units of their costs.

        The batches depend on nothing but the state of the generator.
        """
        ...


class RandomInstances:
    """Random instances, with the recipe's share of non-uniform ones."""

    summary = ""

    def __init__(self, config: TrainConfig, problem: Problem[Any, Any]) -> None:
        self.config = config
        self.problem = problem
        self.labels = list(config.sizes)
        self.typical_size = config.size
        self.validation_data = f"{config.size}, variety {config.variety:g}"
        rng = torch.Generator().manual_seed(0)
        self.max_action_count = 0
        for size in (config.size, *config.sizes):
            example = problem.sample(1, size, rng)
            actions = problem.action_count(example)
            self.max_action_count = max(self.max_action_count, actions)

    def size_at(self, step: int) -> Size:
        """Return the size of a mini-step; the recipe's sizes take turns."""
        return self.config.size_at(step)

    def sample(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Sample new instances of one size."""
        batch = self.problem.sample(count, size, rng)
        variety = self.config.variety
        vary = self.config.traits.vary
        if not variety or vary is None:
            return batch
        return vary(batch, variety, rng)

    def validation(self, rng: torch.Generator) -> list[tuple[Any, Float[Tensor, "B"]]]:
        """Return one batch, of the recipe's `size`; costs on the device need no other unit."""
        count = self.config.validation.count
        batch = self.sample(count, self.config.size, rng)
        return [(batch, torch.ones_like(batch.scale))]
