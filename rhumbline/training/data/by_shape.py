"""User instances on a device, batched by shape and never changed: the store of a new problem."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rhumbline.domains import DOMAINS
from rhumbline.problems import Problem
from rhumbline.training.data.random import Size


class ShapeStore:
    """Instances by shape, exactly as the files have them. It serves any problem."""

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
        groups: dict[Size, list[Any]] = defaultdict(list)
        for instance in instances:
            groups[self.size_of(instance, problem)].append(instance)
        for size, group in sorted(groups.items(), key=str):
            batch = problem.collate(group).to(device)
            self.batches[size] = batch
            self.counts[size] = len(group)
            actions = problem.action_count(batch)
            self.max_action_count = max(self.max_action_count, actions)

    @staticmethod
    def size_of(instance: Any, problem: Problem[Any, Any]) -> Size:
        """Return the number of items, as users write sizes."""
        return problem.item_count(instance)

    @staticmethod
    def contents(instance: Any) -> bytes:
        """Return the checksum of the instance, which does not depend on its name."""
        batch = DOMAINS[instance.problem].problem.collate([instance])
        return repr((instance.shape, batch.key.tolist())).encode()

    @staticmethod
    def needs_matrix(instance: Any) -> bool:
        """Return False: the batches hold whatever the rules need."""
        return False

    def draw(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Draw instances unchanged, with replacement."""
        batch = self.batches[size]
        rows = torch.randint(len(batch.key), (count,), generator=rng, device=rng.device)
        return batch[rows]

    def all_batches(self) -> list[tuple[Any, Tensor]]:
        """Return the instances by size; their costs on the device need no other unit."""
        return [(batch, torch.ones_like(batch.scale)) for batch in self.batches.values()]
