"""Optimisers: AdamW, or Muon for the matrices of attention and hidden layers and AdamW for all
other weights.

Muon (Jordan et al. 2024) replaces the momentum of a matrix, U S V', by U V': all its directions
move equally far, also those whose gradient is small. The scale of Liu et al. (arXiv 2502.16982)
gives its updates the root mean square of AdamW's, so that one learning rate serves both. Nothing
here reads back from the device: a graph can record a step.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rhumbline.training.config import TrainConfig

# The weights that Muon moves, by name, and of how many matrices, one above the other, they consist.
MATRICES = {"qkv": 3} | dict.fromkeys(
    ("out", "up", "down", "query_mean", "query_last", "query_first", "key", "value", "output"), 1
)
ROUNDS = 5
QUINTIC = (
    3.4445,
    -4.7750,
    2.0315,
)  # as published: steep at 0, so that small singular values grow in few rounds
USUAL = 0.2  # root mean square of AdamW's updates at a rate of 1
TINY = 1e-30  # divides a gradient of zero


def make_optimiser(
    policy: Any, config: TrainConfig, device: torch.device, recorded: bool
) -> torch.optim.Optimizer:
    """The recipe's optimiser, with groups of their own for the encoder and the decoder."""
    o = config.optimiser
    rate = torch.tensor(o.lr, device=device) if recorded else o.lr
    parts = ((policy.encoder, o.encoder_decay), (policy.decoder, 0.0))
    matrices = (
        [g for part, decay in parts for g in matrix_groups(part, decay)] if o.kind == "muon" else []
    )
    taken = {id(p) for group in matrices for p in group["params"]}
    others = [
        {"params": [p for p in part.parameters() if id(p) not in taken], "weight_decay": decay}
        for part, decay in parts
    ]
    adam = torch.optim.AdamW(
        others, lr=rate, betas=o.betas, fused=device.type == "cuda", capturable=recorded
    )
    return Muon(matrices, adam, rate, o.momentum) if matrices else adam


def matrix_groups(part: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Muon's groups of the encoder or the decoder, by how many matrices a weight consists of."""
    found: dict[int, list[nn.Parameter]] = {}
    for name, weight in part.named_parameters():
        pieces = MATRICES.get(name.removesuffix(".weight").rpartition(".")[2])
        if pieces:
            found.setdefault(pieces, []).append(weight)
    return [
        {"params": weights, "weight_decay": decay, "pieces": pieces}
        for pieces, weights in found.items()
    ]


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
        # The same groups and the same state: who sets a rate or saves moments need not know of two
        # optimisers.
        self.param_groups += rest.param_groups
        rest.state = self.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] (no closures)
        """One update of all weights that have a gradient."""
        self.rest.step()
        moving = [(g, [p for p in g["params"] if p.grad is not None]) for g in self.matrices]
        moving = [(group, weights) for group, weights in moving if weights]
        changes = iter(
            changes_of([x for group, weights in moving for x in self.ahead(group, weights)])
        )
        for group, weights in moving:
            own = [next(changes).flatten(0, 1) for _ in weights]
            torch._foreach_mul_(own, group["lr"])  # pyright: ignore[reportPrivateUsage] (as below: one launch for all)
            torch._foreach_mul_(weights, 1.0 - group["lr"] * group["weight_decay"])  # pyright: ignore[reportPrivateUsage]
            torch._foreach_sub_(weights, own)  # pyright: ignore[reportPrivateUsage]

    def ahead(
        self, group: dict[str, Any], weights: list[nn.Parameter]
    ) -> list[Float[Tensor, "P R C"]]:
        """Where momentum and gradient point, each weight cut into its matrices."""
        gradients = [p.grad for p in weights if p.grad is not None]
        for p in weights:
            if not self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        momenta: list[Tensor] = [self.state[p]["momentum"] for p in weights]
        torch._foreach_lerp_(momenta, gradients, 1.0 - group["momentum"])  # pyright: ignore[reportPrivateUsage]
        ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])  # pyright: ignore[reportPrivateUsage]
        return [x.unflatten(0, (group["pieces"], -1)) for x in ahead]


def changes_of(directions: list[Float[Tensor, "_ _ _"]]) -> list[Float[Tensor, "_ _ _"]]:
    """All directions orthogonalised and scaled; matrices of one shape are worked on together."""
    shapes: dict[torch.Size, list[int]] = {}
    for i, x in enumerate(directions):
        shapes.setdefault(x.shape[1:], []).append(i)
    changes = list(directions)
    for shape, places in shapes.items():
        together = orthogonalise(torch.cat([directions[i] for i in places])) * (
            USUAL * max(shape) ** 0.5
        )
        for i, x in zip(places, together.split([len(directions[i]) for i in places]), strict=True):
            changes[i] = x
    return changes


def orthogonalise(matrices: Float[Tensor, "P R C"]) -> Float[Tensor, "P R C"]:
    """Nearly U V' of each matrix U S V', by a Newton-Schulz iteration (an odd polynomial of the
    matrix).

    Singular values of at least 0.2 % of the norm end at 0.68 to 1.21. In bfloat16 on a GPU: that
    band is far wider.
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonalise(matrices.mT).mT.contiguous()
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=TINY)
    x = x.bfloat16() if x.is_cuda else x
    linear, cubic, quintic = QUINTIC
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(
            x, torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic), x, beta=linear
        )
    return x.to(matrices.dtype)


def learning_rate(config: TrainConfig, update: int, done: float) -> float:
    """Warm-up by updates; then constant; then a linear fall over the last part of the run."""
    o = config.optimiser
    rate = o.lr * min(1.0, (update + 1) / max(1, o.warmup))
    fall = max(0.0, (done - (1.0 - o.decay)) / o.decay) if o.decay else 0.0
    return rate * (1.0 - (1.0 - o.floor) * min(1.0, fall))
