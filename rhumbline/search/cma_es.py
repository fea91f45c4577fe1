"""CMA-ES arithmetic, batched over any leading axes; constants as published with COMPASS (spec 4.5).

Equation numbers are those of Hansen, "The CMA Evolution Strategy: A Tutorial" (2016). Two
deliberate differences reproduce the published search: c_1 has sqrt(2) where the tutorial has 1.3,
and the first update never trusts its evolution path (h_sigma = 0).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.record import Record


@dataclass(frozen=True)
class Constants:
    """Strategy parameters for one population size; they depend on nothing else."""

    weights: tuple[float, ...]  # of the parents, best first; they sum to 1 (49-53)
    mu_eff: float
    c_sigma: float  # (55)
    d_sigma: float  # (55)
    c_c: float  # (56)
    c_1: float  # (57)
    c_mu: float  # (58)
    chi: float  # expected length of a standard normal vector


@lru_cache
def constants(size: int, parents: int) -> Constants:
    """Constants for `size` dimensions and `parents` selected samples."""
    raw = [math.log((parents + 0.5) / i) for i in range(1, parents + 1)]
    weights = tuple(w / sum(raw) for w in raw)
    mu_eff = 1.0 / sum(w * w for w in weights)
    c_sigma = (mu_eff + 2.0) / (size + mu_eff + 5.0)
    c_1 = 2.0 / (mu_eff + (size + math.sqrt(2.0)) ** 2)
    c_mu = min(1.0 - c_1, 2.0 * (mu_eff - 2.0 + 1.0 / mu_eff) / (mu_eff + (size + 2.0) ** 2))
    return Constants(
        weights=weights,
        mu_eff=mu_eff,
        c_sigma=c_sigma,
        d_sigma=1.0 + 2.0 * max(0.0, math.sqrt((mu_eff - 1.0) / (size + 1.0)) - 1.0) + c_sigma,
        c_c=(4.0 + mu_eff / size) / (size + 4.0 + 2.0 * mu_eff / size),
        c_1=c_1,
        c_mu=c_mu,
        chi=math.sqrt(size) * (1.0 - 1.0 / (4.0 * size) + 1.0 / (21.0 * size**2)),
    )


@dataclass(frozen=True)
class State(Record):
    """Search distributions N(mean, sigma^2 C) and their evolution paths, with C = basis
    diag(scale^2) basis^T.
    """

    mean: Float[Tensor, "*b Z"]
    sigma: Float[Tensor, "*b"]
    covariance: Float[Tensor, "*b Z Z"]
    basis: Float[Tensor, "*b Z Z"]
    scale: Float[Tensor, "*b Z"]
    path_sigma: Float[Tensor, "*b Z"]
    path_c: Float[Tensor, "*b Z"]


def initial_state(mean: Float[Tensor, "*b Z"], sigma: float) -> State:
    """Round distributions about the means."""
    size = mean.shape[-1]
    eye = (
        torch.eye(size, dtype=mean.dtype, device=mean.device).expand(*mean.shape, size).contiguous()
    )
    zero = torch.zeros_like(mean)
    step = torch.full(mean.shape[:-1], sigma, dtype=mean.dtype, device=mean.device)
    return State(mean, step, eye, eye, torch.ones_like(mean), zero, zero)


def ask(state: State, normal: Float[Tensor, "*b L Z"]) -> Float[Tensor, "*b L Z"]:
    """Samples of each distribution made from standard normals (38-40)."""
    stretched = normal.to(state.mean.dtype) * (state.sigma[..., None] * state.scale)[..., None, :]
    return state.mean[..., None, :] + stretched @ state.basis.mT


def tell(
    state: State,
    samples: Float[Tensor, "*b L Z"],
    cost: Float[Tensor, "*b L"],
    c: Constants,
    generation: int,
) -> State:
    """Distributions after ranking the samples by cost; `generation` counts previous updates."""
    size = samples.shape[-1]
    parents = len(c.weights)
    order = cost.argsort(dim=-1, stable=True)[..., :parents]
    chosen = samples.gather(-2, order[..., None].expand(*order.shape, size))
    weights = torch.tensor(c.weights, dtype=samples.dtype, device=samples.device)
    steps = (chosen - state.mean[..., None, :]) / state.sigma[
        ..., None, None
    ]  # old mean, old sigma
    mean_step = weights @ steps  # (41), (42)
    whitened = (
        ((mean_step[..., None, :] @ state.basis) / state.scale[..., None, :]) @ state.basis.mT
    )[..., 0, :]
    path_sigma = (1 - c.c_sigma) * state.path_sigma + math.sqrt(
        c.c_sigma * (2 - c.c_sigma) * c.mu_eff
    ) * whitened  # (43)
    length = path_sigma.norm(dim=-1)
    trusted = _trusted(length, size, c, generation)
    path_c = (1 - c.c_c) * state.path_c + trusted[..., None] * math.sqrt(
        c.c_c * (2 - c.c_c) * c.mu_eff
    ) * mean_step  # (45)
    rank_one = path_c[..., :, None] * path_c[..., None, :]
    rank_mu = steps.mT @ (weights[:, None] * steps)
    forgotten = ((1 - trusted) * c.c_1 * c.c_c * (2 - c.c_c))[
        ..., None, None
    ]  # makes up for the path that stalled
    covariance = (
        (1 - c.c_1 - c.c_mu + forgotten) * state.covariance + c.c_1 * rank_one + c.c_mu * rank_mu
    )  # (47)
    sigma = state.sigma * torch.exp((c.c_sigma / c.d_sigma) * (length / c.chi - 1))  # (44)
    basis, scale = _decompose(covariance)
    return State(
        state.mean + state.sigma[..., None] * mean_step,
        sigma,
        covariance,
        basis,
        scale,
        path_sigma,
        path_c,
    )


def _trusted(
    length: Float[Tensor, "*b"], size: int, c: Constants, generation: int
) -> Float[Tensor, "*b"]:
    """h_sigma: 0 where the path is suspiciously long, and always at the first update (as
    published).
    """
    if generation == 0:
        return torch.zeros_like(length)
    expected = (
        c.chi * (1.4 + 2.0 / (size + 1.0)) * math.sqrt(1.0 - (1.0 - c.c_sigma) ** (2 * generation))
    )
    return (length <= expected).to(length.dtype)


def _decompose(
    covariance: Float[Tensor, "*b Z Z"],
) -> tuple[Float[Tensor, "*b Z Z"], Float[Tensor, "*b Z"]]:
    """Eigenvectors and square roots of the eigenvalues."""
    values, basis = torch.linalg.eigh(0.5 * (covariance + covariance.mT))
    return basis, values.clamp(min=1e-20).sqrt()


@lru_cache
def centroids(count: int, size: int) -> Float[Tensor, "C Z"]:
    """Means that divide the box [-1, 1]^Z evenly: k-means of 10,000 uniform points, the same for
    everybody.
    """
    rng = torch.Generator().manual_seed(0)
    points = 2.0 * torch.rand(10_000, size, generator=rng, dtype=torch.float64) - 1.0
    # In NumPy, whose elementwise loops use one thread: torch's spin where other jobs hold the
    # cores, for seconds.
    cloud = points.numpy()
    means = cloud[:1]
    while len(means) < count:  # k-means++: the next mean is likely far from those there
        nearest = torch.from_numpy(squared_distances(cloud, means).min(1))
        means = np.concatenate([means, cloud[torch.multinomial(nearest, 1, generator=rng).numpy()]])
    for _ in range(300):
        owner = ((means**2).sum(1) - 2.0 * cloud @ means.T).argmin(
            1
        )  # less a square that is the same for all means
        moved = np.stack([cloud[owner == k].mean(0) for k in range(count)])
        shift = np.abs(moved - means).max()
        means = moved
        if shift < 1e-4:
            break
    return torch.from_numpy(means)


def squared_distances(
    points: Float[np.ndarray, "P Z"], means: Float[np.ndarray, "C Z"]
) -> Float[np.ndarray, "P C"]:
    """Of every point to every mean."""
    return np.stack([((points - mean) ** 2).sum(1) for mean in means], axis=1)
