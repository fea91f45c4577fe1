"""The latent space of a policy."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Box:
    """Latents in [-1, 1]^size. Size 0 is a single policy: one point, the empty vector."""

    size: int

    def sample(self, count: tuple[int, ...], rng: torch.Generator) -> Float[Tensor, "*count Z"]:
        """Uniform latents on the generator's device."""
        return 2.0 * torch.rand(*count, self.size, generator=rng, device=rng.device) - 1.0

    def centre(self, count: tuple[int, ...], device: torch.device) -> Float[Tensor, "*count Z"]:
        """The middle of the box, where a widened policy behaves like the one it came from."""
        return torch.zeros(*count, self.size, device=device)


@dataclass(frozen=True)
class Members:
    """Numbers 0..count-1 of the members of a population, as latents of size 1."""

    count: int
    size: int = 1

    def sample(self, count: tuple[int, ...], rng: torch.Generator) -> Float[Tensor, "*count 1"]:
        """Not random: members in their order, again from the first where more are wanted than
        there are.
        """
        order = torch.arange(count[-1], device=rng.device) % self.count
        return order.float()[:, None].expand(*count, 1).contiguous()

    def centre(self, count: tuple[int, ...], device: torch.device) -> Float[Tensor, "*count 1"]:
        """The first member."""
        return torch.zeros(*count, 1, device=device)
