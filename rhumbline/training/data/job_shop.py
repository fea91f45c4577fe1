"""Job shops from user files on a device, batched by shape."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.problems import Problem
from rhumbline.training.data.batches import BatchStore
from rhumbline.training.data.random import Size


class JobShopStore(BatchStore):
    """Job shops by shape. Policies do not see the order of jobs and machines."""

    @staticmethod
    def size_of(instance: Any, problem: Problem[Any, Any]) -> Size:
        """Return jobs, operations of the longest job, and machines."""
        return instance.shape

    @staticmethod
    def extent(size: Any) -> int:
        """Return jobs times machines."""
        jobs, _, machines = size
        return jobs * machines

    @staticmethod
    def label(size: Any) -> int | str:
        """Return jobs x machines."""
        jobs, _, machines = size
        return f"{jobs}x{machines}"

    @staticmethod
    def contents(instance: Any) -> bytes:
        """Return durations and machines."""
        return repr((instance.durations, instance.machines)).encode()

    def all_batches(self) -> list[tuple[Any, Tensor]]:
        """Return the instances by shape, and their lower bounds as units of cost.

        Without units, large shops would outweigh small ones.
        """
        return [(batch, makespan_bound(batch)) for batch in self.batches.values()]


def makespan_bound(batch: Any) -> Float[Tensor, "B"]:
    """Return the longest job or busiest machine, a lower bound of the makespan; at least 1."""
    first_tails = batch.tail[:, :, 0]
    longest_job = first_tails.amax(1)
    busiest_machine = batch.load.amax(1)
    bound = torch.maximum(longest_job, busiest_machine)
    return bound.clamp(min=1).float()
