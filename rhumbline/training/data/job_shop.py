"""Job shops from user files on a device, batched by shape."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.problems import Problem
from rhumbline.training.data.random import Size


class JobShopStore:
    """Job shops by shape, exactly as the files have them."""

    max_node_loss = 0.0

    def __init__(
        self,
        instances: Sequence[Any],
        problem: Problem[Any, Any],
        device: torch.device,
        with_matrices: bool,
    ) -> None:
        self.batches: dict[Size, Any] = {}
        self.counts: dict[Size, int] = {}
        self.max_action_count = 0
        shapes = {instance.shape for instance in instances}
        for shape in sorted(shapes, key=shop_extent):
            group = [instance for instance in instances if instance.shape == shape]
            batch = problem.collate(group).to(device)
            self.batches[shape] = batch
            self.counts[shape] = len(batch.key)
            actions = problem.action_count(batch)
            self.max_action_count = max(self.max_action_count, actions)

    @staticmethod
    def size_of(instance: Any, problem: Problem[Any, Any]) -> Size:
        """Return jobs, operations and machines."""
        return instance.shape

    @staticmethod
    def contents(instance: Any) -> bytes:
        """Return durations and machines."""
        return repr((instance.durations, instance.machines)).encode()

    @staticmethod
    def needs_matrix(instance: Any) -> bool:
        """Return False: job shops have no distances."""
        return False

    def draw(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Draw instances unchanged: policies do not see the order of jobs and machines."""
        batch = self.batches[size]
        rows = torch.randint(len(batch.key), (count,), generator=rng, device=rng.device)
        return batch[rows]

    def all_batches(self) -> list[tuple[Any, Tensor]]:
        """Return the instances by shape, and their lower bounds as units of cost.

        Without units, large shops would outweigh small ones.
        """
        return [(batch, makespan_bound(batch)) for batch in self.batches.values()]


def shop_extent(shape: Sequence[int]) -> int:
    """Return jobs times machines."""
    return shape[0] * shape[2]


def makespan_bound(batch: Any) -> Float[Tensor, "B"]:
    """Return the longest job or busiest machine, a lower bound of the makespan; at least 1."""
    first_tails = batch.tail[:, :, 0]
    longest_job = first_tails.amax(1)
    busiest_machine = batch.load.amax(1)
    bound = torch.maximum(longest_job, busiest_machine)
    return bound.clamp(min=1).float()
