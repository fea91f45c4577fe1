"""The latent space of a policy."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True)
class Box:
    """Latents in [-1, 1]^size. Size 0 is a single policy: one point, the empty vector."""

    size: int

    def sample(self, count: tuple[int, ...], rng: torch.Generator) -> Float[Tensor, "*count Z"]:
        """Draw uniform latents on the generator's device."""
        uniforms = torch.rand(
            *count,
            self.size,
            generator=rng,
            device=rng.device,
        )
        return 2.0 * uniforms - 1.0

    def centre(self, count: tuple[int, ...], device: torch.device) -> Float[Tensor, "*count Z"]:
        """Return the centre of the box, where a widened policy behaves like the original."""
        return torch.zeros(*count, self.size, device=device)


@dataclass(frozen=True)
class Members:
    """Numbers 0..count-1 of the members of a population, as latents of size 1."""

    count: int
    size: int = 1

    def sample(self, count: tuple[int, ...], rng: torch.Generator) -> Float[Tensor, "*count 1"]:
        """Return the members in order, from the first again after the last; nothing is random."""
        wanted = count[-1]
        numbers = torch.arange(wanted, device=rng.device)
        member = (numbers % self.count).float()
        latents = member[:, None]
        return latents.expand(*count, 1).contiguous()

    def centre(self, count: tuple[int, ...], device: torch.device) -> Float[Tensor, "*count 1"]:
        """Return the first member."""
        return torch.zeros(*count, 1, device=device)


def weights_without_latents(module: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a network that do not depend on its latent space."""
    latent_endings = ("_latent", "amplify")  # of the names of the weights that do
    return {
        name: weight
        for name, weight in module.state_dict().items()
        if not name.endswith(latent_endings)
    }
