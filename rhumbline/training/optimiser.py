"""Optimisers: AdamW; or Muon for attention and hidden matrices, and AdamW for all other weights.

Muon (Jordan et al. 2024) replaces the momentum U S V' of a matrix by U V'. All directions then move
equally far, also those whose gradient is small. With the scale of Liu et al. (arXiv 2502.16982) its
updates have the root mean square of AdamW's, so one learning rate serves both. Nothing here reads
back from the device, so a graph can record a step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rhumbline.training.config import TrainConfig


@dataclass(frozen=True)
class MuonTuning:
    """Constants of Muon's update."""

    # The weights that Muon updates, by name: one matrix each, ...
    single_matrices: tuple[str, ...] = (
        "out",
        "up",
        "down",
        "query_mean",
        "query_last",
        "query_first",
        "key",
        "value",
        "output",
    )
    # A weight with fewer columns embeds features of an instance, which is left to AdamW.
    min_inputs: int = 8
    stacked_matrices: Mapping[str, int] = field(default_factory=lambda: {"qkv": 3})  # ... or more
    newton_schulz_rounds: int = 5
    # Coefficients of x, x^3 and x^5, as published by Jordan et al. 2024. The polynomial is steep at
    # 0, so small singular values grow in few rounds.
    newton_schulz_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315)
    # Root mean square of AdamW's updates at a learning rate of 1 (Liu et al. 2025).
    update_rms: float = 0.2
    # The least norm that a gradient is divided by.
    min_norm: float = 1e-30


TUNING = MuonTuning()


def make_optimiser(
    policy: Any, config: TrainConfig, device: torch.device, is_recorded: bool
) -> torch.optim.Optimizer:
    """Return the recipe's optimiser, with separate parameter groups for encoder and decoder.

    A step that `is_recorded` as a graph reads the learning rate from a tensor.
    """
    settings = config.optimiser
    rate = torch.tensor(settings.lr, device=device) if is_recorded else settings.lr
    parts = ((policy.encoder, settings.encoder_decay), (policy.decoder, 0.0))
    matrices: list[dict[str, Any]] = []
    if settings.kind == "muon":
        for part, decay in parts:
            matrices += matrix_groups(part, decay)
    muon_weights = {id(p) for group in matrices for p in group["params"]}
    others: list[dict[str, Any]] = []
    for part, decay in parts:
        weights = [p for p in part.parameters() if id(p) not in muon_weights]
        others.append({"params": weights, "weight_decay": decay})
    adam = torch.optim.AdamW(
        others,
        lr=rate,
        betas=settings.betas,
        fused=device.type == "cuda",
        capturable=is_recorded,
    )
    return Muon(matrices, adam, rate, settings.momentum) if matrices else adam


def count_matrices(layer: str) -> int:
    """Return how many matrices are stacked in the weight of a layer; 0 if Muon leaves it alone."""
    if layer in TUNING.single_matrices:
        return 1
    return TUNING.stacked_matrices.get(layer, 0)


def matrix_groups(part: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Return Muon's parameter groups of a module, one for each number of stacked matrices."""
    by_pieces: dict[int, list[nn.Parameter]] = {}
    for name, weight in part.named_parameters():
        layer = name.removesuffix(".weight").rpartition(".")[2]
        pieces = count_matrices(layer)
        has_inputs = weight.ndim == 2 and weight.shape[1] >= TUNING.min_inputs
        if pieces and has_inputs:
            by_pieces.setdefault(pieces, []).append(weight)
    groups: list[dict[str, Any]] = []
    for pieces, weights in by_pieces.items():
        group = {"params": weights, "weight_decay": decay, "pieces": pieces}
        groups.append(group)
    return groups


class Muon(torch.optim.Optimizer):
    """Orthogonalised Nesterov momentum for matrices, and AdamW for the rest, as one optimiser."""

    def __init__(
        self,
        matrices: list[dict[str, Any]],
        rest: torch.optim.AdamW,
        rate: float | Tensor,
        momentum: float,
    ):
        super().__init__(matrices, {"lr": rate, "momentum": momentum})
        self.matrices = list(self.param_groups)
        self.rest = rest
        # Both have the same groups and the same state: code that sets a learning rate or saves
        # moments need not know that there are two optimisers.
        self.param_groups += rest.param_groups
        rest.state = self.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] (no closures)
        """Update all weights that have a gradient."""
        self.rest.step()
        moving = list(self.groups_with_gradient())
        directions: list[Tensor] = []
        for group, weights in moving:
            directions += self.nesterov_directions(group, weights)
        updates = iter(scale_updates(directions))
        # Each `_foreach` function is one launch for all weights.
        for group, weights in moving:
            own = [next(updates).flatten(0, 1) for _ in weights]
            torch._foreach_mul_(own, group["lr"])  # pyright: ignore[reportPrivateUsage]
            shrink = 1.0 - group["lr"] * group["weight_decay"]
            torch._foreach_mul_(weights, shrink)  # pyright: ignore[reportPrivateUsage]
            torch._foreach_sub_(weights, own)  # pyright: ignore[reportPrivateUsage]

    def groups_with_gradient(self) -> Iterator[tuple[dict[str, Any], list[Tensor]]]:
        """Yield each group of matrices with those of its weights that have a gradient."""
        for group in self.matrices:
            weights = [p for p in group["params"] if p.grad is not None]
            if weights:
                yield group, weights

    def nesterov_directions(
        self, group: dict[str, Any], weights: list[Tensor]
    ) -> list[Float[Tensor, "P R C"]]:
        """Update the momenta; return gradients mixed with them, each split into its matrices."""
        gradients: list[Tensor] = []
        momenta: list[Tensor] = []
        for weight in weights:
            assert weight.grad is not None
            state = self.state[weight]
            if not state:
                state["momentum"] = torch.zeros_like(weight)
            gradients.append(weight.grad)
            momenta.append(state["momentum"])
        momentum = group["momentum"]
        torch._foreach_lerp_(momenta, gradients, 1.0 - momentum)  # pyright: ignore[reportPrivateUsage]
        mixed = torch._foreach_lerp(gradients, momenta, momentum)  # pyright: ignore[reportPrivateUsage]
        shape = (group["pieces"], -1)
        return [x.unflatten(0, shape) for x in mixed]


def moment_names(optimiser: torch.optim.Optimizer, weight: nn.Parameter) -> set[str]:
    """Return the names of what an optimiser keeps for a weight that had a gradient."""
    if isinstance(optimiser, Muon):
        for group in optimiser.matrices:
            if any(weight is matrix for matrix in group["params"]):
                return {"momentum"}
    return {"step", "exp_avg", "exp_avg_sq"}


def scale_updates(directions: list[Float[Tensor, "_ _ _"]]) -> list[Float[Tensor, "_ _ _"]]:
    """Orthogonalise all directions and scale them to `update_rms`.

    Matrices of the same shape are processed together.
    """
    places_of_shape: dict[torch.Size, list[int]] = {}
    for place, x in enumerate(directions):
        places_of_shape.setdefault(x.shape[1:], []).append(place)
    updates = list(directions)
    for shape, places in places_of_shape.items():
        scale = TUNING.update_rms * max(shape) ** 0.5
        group = [directions[place] for place in places]
        together = torch.cat(group)
        scaled = orthogonalise(together) * scale
        parts = scaled.split([len(x) for x in group])
        for place, part in zip(places, parts, strict=True):
            updates[place] = part
    return updates


def orthogonalise(matrices: Float[Tensor, "P R C"]) -> Float[Tensor, "P R C"]:
    """Return nearly U V' of each matrix U S V', by a Newton-Schulz iteration.

    Singular values of at least 0.2 % of the norm end between 0.68 and 1.21. On a GPU the iteration
    runs in bfloat16, whose rounding is far below the width of that range.
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonalise(matrices.mT).mT.contiguous()
    norm = matrices.norm(dim=(1, 2), keepdim=True)
    x = matrices / norm.clamp(min=TUNING.min_norm)
    if x.is_cuda:
        x = x.bfloat16()
    linear, cubic, quintic = TUNING.newton_schulz_coefficients
    for _ in range(TUNING.newton_schulz_rounds):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic)
        x = torch.baddbmm(x, polynomial, x, beta=linear)
    return x.to(matrices.dtype)


def learning_rate(config: TrainConfig, update: int, done: float) -> float:
    """Return the rate of an update: linear warm-up, constant, then a linear fall.

    The warm-up counts updates. The fall depends on `done`, the completed fraction of the run.
    """
    settings = config.optimiser
    warmed_up = (update + 1) / max(1, settings.warmup)
    rate = settings.lr * min(1.0, warmed_up)
    if not settings.decay:
        return rate
    fall_begins = 1.0 - settings.decay
    fallen = (done - fall_begins) / settings.decay
    fallen = min(1.0, max(0.0, fallen))
    return rate * (1.0 - (1.0 - settings.floor) * fallen)
