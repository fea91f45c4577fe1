"""Instances from user files on a device, unchanged, in one batch for each of their sizes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rhumbline.domains import DOMAINS
from rhumbline.problems import Problem
from rhumbline.training.data.random import Size


class BatchStore:
    """Instances by size, exactly as the files have them: the store of any problem."""

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
        sizes = [self.size_of(instance, problem) for instance in instances]
        for size in sorted(set(sizes), key=self.extent):
            group = [one for one, own in zip(instances, sizes, strict=True) if own == size]
            batch = problem.collate(group).to(device)
            self.batches[size] = batch
            self.counts[size] = len(batch.key)
            actions = problem.action_count(batch)
            self.max_action_count = max(self.max_action_count, actions)

    @staticmethod
    def size_of(instance: Any, problem: Problem[Any, Any]) -> Size:
        """Return the number of items, and what instances of one batch share."""
        return (problem.item_count(instance), *instance.shape)

    @staticmethod
    def item_count(size: Any) -> int:
        """Return the number of items to order."""
        return size[0]

    @staticmethod
    def extent(size: Any) -> int:
        """Return a number by which sizes are ordered."""
        return size[0]

    @staticmethod
    def label(size: Any) -> int | str:
        """Return a size as users write it."""
        return size[0]

    @staticmethod
    def contents(instance: Any) -> bytes:
        """Return the numbers that a policy sees of an instance, and its unit of cost."""
        batch = DOMAINS[instance.problem].problem.collate([instance])
        parts: list[bytes] = []

        def collect(tensor: Tensor) -> Tensor:
            table = tensor.contiguous().numpy()
            parts.append(table.tobytes())
            return tensor

        batch.map(collect)
        return b"".join(parts)

    @staticmethod
    def needs_matrix(instance: Any) -> bool:
        """Return False: distances, if there are any, are as the problem collates them."""
        return False

    def draw(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Draw unchanged instances of a size, with replacement."""
        batch = self.batches[size]
        rows = torch.randint(len(batch.key), (count,), generator=rng, device=rng.device)
        return batch[rows]

    def all_batches(self) -> list[tuple[Any, Tensor]]:
        """Return the instances by size; costs stay in the units that the policy sees."""
        batches: list[tuple[Any, Tensor]] = []
        for batch in self.batches.values():
            units = torch.ones_like(batch.scale)
            batches.append((batch, units))
        return batches
