"""Job shops of one's own on a device: by shape, and as they are."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.problems import Problem
from rhumbline.training.data.random import Size


class JobShopStore:
    """Job shops, by shape."""

    max_node_loss = 0.0

    def __init__(
        self,
        instances: Sequence[Any],
        problem: Problem[Any, Any],
        device: torch.device,
        curved: bool,
    ) -> None:
        shapes = sorted({i.shape for i in instances}, key=lambda shape: shape[0] * shape[2])
        groups = [[i for i in instances if i.shape == shape] for shape in shapes]
        self.batches = {
            s: problem.collate(some).to(device) for s, some in zip(shapes, groups, strict=True)
        }
        self.counts: dict[Size, int] = {s: len(batch.key) for s, batch in self.batches.items()}
        self.width = max(problem.action_count(batch) for batch in self.batches.values())

    @staticmethod
    def size_of(instance: Any, problem: Problem[Any, Any]) -> Size:
        """Jobs, operations and machines."""
        return instance.shape

    @staticmethod
    def contents(instance: Any) -> bytes:
        """Durations and machines."""
        return repr((instance.durations, instance.machines)).encode()

    def draw(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """As they are: neither numbers nor order of jobs and machines mean anything to a policy."""
        batch = self.batches[size]
        return batch[torch.randint(len(batch.key), (count,), generator=rng, device=rng.device)]

    def whole(self) -> list[tuple[Any, Tensor]]:
        """By shape; costs count in the longest job or busiest machine, lest large shops outweigh
        small ones.
        """
        return [(batch, bound_of(batch)) for batch in self.batches.values()]


def bound_of(batch: Any) -> Float[Tensor, "B"]:
    """The longest job or busiest machine of each shop, which no schedule is shorter than; at
    least 1.
    """
    return torch.maximum(batch.tail[:, :, 0].amax(1), batch.load.amax(1)).clamp(min=1).float()
