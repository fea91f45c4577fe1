"""CMA-ES arithmetic, batched over any leading axes, as published (Chalumeau et al. 2023).

Equation numbers are those of Hansen, "The CMA Evolution Strategy: A Tutorial" (2016). Two
deliberate differences reproduce the published search. The constant c_1 has sqrt(2) where the
tutorial has 1.3, and the first update never trusts its evolution path (h_sigma = 0).
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
    """Return the constants for `size` dimensions and `parents` selected samples."""
    raw = list[float]()
    for rank in range(1, parents + 1):
        raw.append(math.log((parents + 0.5) / rank))
    total = sum(raw)
    weights = tuple(w / total for w in raw)
    mu_eff = 1.0 / sum(w * w for w in weights)
    c_sigma = (mu_eff + 2.0) / (size + mu_eff + 5.0)
    ratio = (mu_eff - 1.0) / (size + 1.0)
    damping = max(0.0, math.sqrt(ratio) - 1.0)
    c_1 = 2.0 / (mu_eff + (size + math.sqrt(2.0)) ** 2)
    gain = mu_eff - 2.0 + 1.0 / mu_eff
    c_mu = 2.0 * gain / (mu_eff + (size + 2.0) ** 2)
    share = mu_eff / size
    correction = 1.0 - 1.0 / (4.0 * size) + 1.0 / (21.0 * size**2)
    return Constants(
        weights=weights,
        mu_eff=mu_eff,
        c_sigma=c_sigma,
        d_sigma=1.0 + 2.0 * damping + c_sigma,
        c_c=(4.0 + share) / (size + 4.0 + 2.0 * mu_eff / size),
        c_1=c_1,
        c_mu=min(1.0 - c_1, c_mu),
        chi=math.sqrt(size) * correction,
    )


@dataclass(frozen=True)
class State(Record):
    """Search distributions N(mean, sigma^2 C) and their evolution paths.

    The covariance matrix is C = basis diag(scale^2) basis^T.
    """

    mean: Float[Tensor, "*b Z"]
    sigma: Float[Tensor, "*b"]
    covariance: Float[Tensor, "*b Z Z"]
    basis: Float[Tensor, "*b Z Z"]
    scale: Float[Tensor, "*b Z"]
    path_sigma: Float[Tensor, "*b Z"]
    path_c: Float[Tensor, "*b Z"]


def initial_state(mean: Float[Tensor, "*b Z"], sigma: float) -> State:
    """Return isotropic distributions about the means."""
    size = mean.shape[-1]
    eye = torch.eye(size, dtype=mean.dtype, device=mean.device)
    eye = eye.expand(*mean.shape, size).contiguous()
    zero = torch.zeros_like(mean)
    return State(
        mean=mean,
        sigma=torch.full(mean.shape[:-1], sigma, dtype=mean.dtype, device=mean.device),
        covariance=eye,
        basis=eye,
        scale=torch.ones_like(mean),
        path_sigma=zero,
        path_c=zero,
    )


def ask(state: State, normal: Float[Tensor, "*b L Z"]) -> Float[Tensor, "*b L Z"]:
    """Return samples of each distribution, made from standard normals (38-40)."""
    dtype = state.mean.dtype
    mean = state.mean[..., None, :]
    deviation = state.sigma[..., None] * state.scale
    deviation = deviation[..., None, :]
    stretched = normal.to(dtype) * deviation
    rotated = stretched @ state.basis.mT
    return mean + rotated


def tell(
    state: State,
    samples: Float[Tensor, "*b L Z"],
    cost: Float[Tensor, "*b L"],
    c: Constants,
    generation: int,
) -> State:
    """Return the distributions after an update with samples that are ranked by cost.

    `generation` counts the updates before this one.
    """
    parents = select_parents(samples, cost, len(c.weights))
    weights = torch.tensor(
        c.weights,
        dtype=samples.dtype,
        device=samples.device,
    )
    # Steps are relative to the old mean, in units of the old sigma.
    steps = parents - state.mean[..., None, :]
    steps = steps / state.sigma[..., None, None]
    mean_step = weights @ steps  # (41), (42)
    path_sigma = step_size_path(state, mean_step, c)
    length = path_sigma.norm(dim=-1)
    h_sigma = path_indicator(
        length,
        samples.shape[-1],
        c,
        generation,
    )
    path_c = covariance_path(state, mean_step, h_sigma, c)
    rank_mu = steps.mT @ (weights[:, None] * steps)
    covariance = update_covariance(
        state.covariance,
        path_c,
        rank_mu,
        h_sigma,
        c,
    )
    basis, scale = decompose(covariance)
    growth = (c.c_sigma / c.d_sigma) * (length / c.chi - 1)
    return State(
        mean=state.mean + state.sigma[..., None] * mean_step,
        sigma=state.sigma * torch.exp(growth),  # (44)
        covariance=covariance,
        basis=basis,
        scale=scale,
        path_sigma=path_sigma,
        path_c=path_c,
    )


def select_parents(
    samples: Float[Tensor, "*b L Z"], cost: Float[Tensor, "*b L"], count: int
) -> Float[Tensor, "*b P Z"]:
    """Return the cheapest samples, best first."""
    dimensions = samples.shape[-1]
    order = cost.argsort(dim=-1, stable=True)
    order = order[..., :count]
    index = order[..., None]
    return samples.gather(
        -2,
        index.expand(*order.shape, dimensions),
    )


def step_size_path(
    state: State, mean_step: Float[Tensor, "*b Z"], c: Constants
) -> Float[Tensor, "*b Z"]:
    """Return the evolution path of sigma after a step of the mean (43)."""
    rate = c.c_sigma
    scale = state.scale[..., None, :]
    row = mean_step[..., None, :]
    rotated = row @ state.basis
    scaled = rotated / scale
    whitened = scaled @ state.basis.mT
    step = whitened[..., 0, :]
    push = math.sqrt(rate * (2 - rate) * c.mu_eff)
    kept = (1 - rate) * state.path_sigma
    return kept + push * step


def covariance_path(
    state: State, mean_step: Float[Tensor, "*b Z"], h_sigma: Float[Tensor, "*b"], c: Constants
) -> Float[Tensor, "*b Z"]:
    """Return the evolution path of the covariance after a step of the mean (45)."""
    rate = c.c_c
    push = math.sqrt(rate * (2 - rate) * c.mu_eff)
    moved = h_sigma[..., None] * push * mean_step
    kept = (1 - rate) * state.path_c
    return kept + moved


def update_covariance(
    covariance: Float[Tensor, "*b Z Z"],
    path_c: Float[Tensor, "*b Z"],
    rank_mu: Float[Tensor, "*b Z Z"],
    h_sigma: Float[Tensor, "*b"],
    c: Constants,
) -> Float[Tensor, "*b Z Z"]:
    """Return the covariance after the rank-one and the rank-mu update (47)."""
    column = path_c[..., :, None]
    row = path_c[..., None, :]
    rank_one = column * row
    # Compensates for the variance that the path loses while it stalls.
    loss = (1 - h_sigma) * c.c_1
    loss = loss * c.c_c * (2 - c.c_c)
    loss = loss[..., None, None]
    share = 1 - c.c_1 - c.c_mu + loss
    kept = share * covariance
    one = c.c_1 * rank_one
    many = c.c_mu * rank_mu
    return kept + one + many


def path_indicator(
    length: Float[Tensor, "*b"], size: int, c: Constants, generation: int
) -> Float[Tensor, "*b"]:
    """Return h_sigma: 0 where the path is suspiciously long, and at the first update."""
    if generation == 0:
        return torch.zeros_like(length)
    decay = (1.0 - c.c_sigma) ** (2 * generation)
    correction = math.sqrt(1.0 - decay)
    factor = 1.4 + 2.0 / (size + 1.0)
    expected = c.chi * factor * correction
    return (length <= expected).to(length.dtype)


def decompose(
    covariance: Float[Tensor, "*b Z Z"],
) -> tuple[Float[Tensor, "*b Z Z"], Float[Tensor, "*b Z"]]:
    """Return the eigenvectors and the square roots of the eigenvalues."""
    doubled = covariance + covariance.mT
    symmetric = 0.5 * doubled
    values, basis = torch.linalg.eigh(symmetric)
    positive = values.clamp(min=1e-20)
    scale = positive.sqrt()
    return basis, scale


@lru_cache
def centroids(count: int, size: int) -> Float[Tensor, "C Z"]:
    """Return means that divide the box [-1, 1]^Z evenly: k-means of 10,000 uniform points.

    They are the same in every run.
    """
    rng = torch.Generator().manual_seed(0)
    uniforms = torch.rand(10_000, size, generator=rng, dtype=torch.float64)
    # NumPy's elementwise loops use one thread. Torch's threads spin for seconds where other jobs
    # hold the cores.
    points = (2.0 * uniforms - 1.0).numpy()
    means = spread_means(points, count, rng)
    for _ in range(300):
        # Distances leave out the square of the point, which is the same for all means.
        distance = (means**2).sum(1) - 2.0 * points @ means.T
        owner = distance.argmin(1)
        moved = np.stack([points[owner == k].mean(0) for k in range(count)])
        shift = np.abs(moved - means).max()
        means = moved
        if shift < 1e-4:
            break
    return torch.from_numpy(means)


def spread_means(
    points: Float[np.ndarray, "P Z"], count: int, rng: torch.Generator
) -> Float[np.ndarray, "C Z"]:
    """Return the first means of k-means++: the next one is likely far from those before it."""
    means = points[:1]
    while len(means) < count:
        nearest = torch.from_numpy(squared_distances(points, means).min(1))
        index = torch.multinomial(nearest, 1, generator=rng).numpy()
        means = np.concatenate([means, points[index]])
    return means


def squared_distances(
    points: Float[np.ndarray, "P Z"], means: Float[np.ndarray, "C Z"]
) -> Float[np.ndarray, "P C"]:
    """Return the squared distance of every point to every mean."""
    distances = list[np.ndarray]()
    for mean in means:
        difference = points - mean
        squares = difference**2
        distances.append(squares.sum(1))
    return np.stack(distances, axis=1)
