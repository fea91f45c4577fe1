"""CMA-ES: constants, convergence, and agreement with an independent implementation."""

import math

import numpy as np
import pytest
import torch
from cmaes import CMA

from rhumbline.search import cma_es

SIZE, POPULATION = 16, 16


def uniform_normals(count: int, seed: int) -> torch.Tensor:
    return torch.randn(
        count, POPULATION, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def minimise(
    f, mean: torch.Tensor, sigma: float, generations: int, seed: int = 0
) -> tuple[cma_es.State, float]:
    """Return the state after some generations, and the lowest value found."""
    c, state, best = cma_es.constants(SIZE, 8), cma_es.initial_state(mean, sigma), math.inf
    for generation, normal in enumerate(uniform_normals(generations, seed)):
        samples = cma_es.ask(state, normal)
        cost = f(samples)
        best = min(best, cost.min().item())
        state = cma_es.tell(state, samples, cost, c, generation)
    return state, best


def ellipsoid(x: torch.Tensor) -> torch.Tensor:
    """Return a rotated ellipsoid whose axes differ by a factor of 1000 in curvature."""
    turn = torch.linalg.qr(
        torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    )[0]
    return ((x @ turn) ** 2 * torch.logspace(0, 3, SIZE, dtype=torch.float64)).sum(-1)


@pytest.mark.parametrize(
    ("parents", "weights", "others"),
    [
        (
            8,
            ".3284 .2221 .1598 .1157 .0814 .0535 .0298 .0093",
            "mu_eff 4.8409 c_sigma .26473 c_c .20881 c_1 .006491 c_mu .018535 "
            "d_sigma 1.26473 chi 3.93824",
        ),
        (
            12,
            ".2447 .1775 .1383 .1104 .0888 .0711 .0562 .0432 .0318 .0216 .0124 .0040",
            "mu_eff 7.0264 c_sigma .32207 c_c .21262 c_1 .006446 c_mu .031228 "
            "d_sigma 1.32207 chi 3.93824",
        ),
    ],
)
def test_constants_are_the_published_ones(parents: int, weights: str, others: str) -> None:
    """All constants agree with the published ones to the last digit."""
    c = cma_es.constants(SIZE, parents)
    assert len(c.weights) == parents
    for value, digits in zip(c.weights, weights.split(), strict=True):
        assert f"{value:.4f}".lstrip("0") == digits
    words = others.split()
    for name, digits in zip(words[::2], words[1::2], strict=True):
        places = len(digits.partition(".")[2])
        assert f"{getattr(c, name):.{places}f}".lstrip("0") == digits, name
    assert sum(c.weights) == pytest.approx(1.0, rel=1e-14)


def test_sphere() -> None:
    """In 16 dimensions the sphere is minimised to 1e-8."""
    _, best = minimise(
        lambda x: x.square().sum(-1), torch.ones(SIZE, dtype=torch.float64), 1.0, 400
    )
    assert best < 1e-8


def test_rotated_ellipsoid() -> None:
    """A rotated ellipsoid is minimised to 1e-8, too.

    That needs the covariance, which has learnt the axes.
    """
    state, best = minimise(ellipsoid, torch.ones(SIZE, dtype=torch.float64), 1.0, 1200)
    assert best < 1e-8
    assert state.scale.max() / state.scale.min() > 10  # sqrt(1000) is the exact ratio


def test_first_samples_are_the_means_plus_sigma_normals() -> None:
    """Samples stretch standard normals by sigma and by the root of the covariance."""
    normal = uniform_normals(1, 0)[0]
    mean = torch.arange(16.0, dtype=torch.float64)
    assert torch.allclose(
        cma_es.ask(cma_es.initial_state(mean, 0.3), normal), mean + 0.3 * normal, atol=1e-14
    )
    state, _ = minimise(ellipsoid, mean, 0.3, 30)
    many = torch.randn(
        100_000, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    spread = torch.cov(cma_es.ask(state, many).T)
    expected = state.sigma**2 * state.covariance
    assert (spread - expected).abs().max() < 0.03 * expected.abs().max()


def oracle(mean: np.ndarray, sigma: float) -> CMA:
    """Return the `cmaes` package with our constants: no negative weights, sqrt(2) in c_1."""
    c = cma_es.constants(SIZE, 8)
    theirs = CMA(mean=mean.copy(), sigma=sigma, population_size=POPULATION)
    theirs._weights = np.array([*c.weights, *[0.0] * 8])
    theirs._mu_eff, theirs._c1, theirs._cmu = c.mu_eff, c.c_1, c.c_mu
    theirs._c_sigma, theirs._d_sigma, theirs._cc = c.c_sigma, c.d_sigma, c.c_c
    assert theirs._chi_n == pytest.approx(c.chi, rel=1e-15)
    return theirs


def test_agrees_with_the_cmaes_package() -> None:
    """With the same samples and costs, all quantities stay equal over 25 generations.

    These are the mean, sigma, the covariance and both paths. The package has h_sigma = 1 at the
    first update where ours is 0, as published. After that update its path and covariance are
    corrected by hand. Its test looks two updates ahead of ours, so generations are counted
    back.
    """
    mean, c = np.random.default_rng(0).normal(size=SIZE), cma_es.constants(SIZE, 8)
    theirs, ours = oracle(mean, 0.7), cma_es.initial_state(torch.from_numpy(mean), 0.7)
    distrusted = 0
    for generation, normal in enumerate(uniform_normals(25, 3)):
        samples = cma_es.ask(ours, normal)
        # The optimum is far away at first, so that the path grows long and h_sigma is 0 in some
        # later generation, too.
        cost = (samples - 30.0).square().sum(-1) if generation < 12 else ellipsoid(samples)
        ours = cma_es.tell(ours, samples, cost, c, generation)
        # It adds 1 on entry and 1 in the formula; the exponent is 2 g, as published.
        theirs._g = generation - 2
        if generation == 0:
            theirs._g = 0
        theirs.tell([(x.numpy().copy(), f.item()) for x, f in zip(samples, cost, strict=True)])
        if generation == 0:
            untrusted = c.c_1 * c.c_c * (2 - c.c_c)
            theirs._C += untrusted * np.eye(SIZE) - c.c_1 * np.outer(theirs._pc, theirs._pc)
            theirs._pc = np.zeros(SIZE)
        limit = c.chi * (1.4 + 2 / 17) * math.sqrt(1 - (1 - c.c_sigma) ** (2 * generation))
        distrusted += np.linalg.norm(theirs._p_sigma) > limit
        for mine, other in [
            (ours.mean, theirs._mean),
            (ours.sigma, theirs._sigma),
            (ours.covariance, theirs._C),
            (ours.path_sigma, theirs._p_sigma),
            (ours.path_c, theirs._pc),
        ]:
            np.testing.assert_allclose(
                mine.numpy(), other, rtol=1e-8, atol=1e-10, err_msg=f"generation {generation}"
            )
    assert 1 < distrusted < 25


def test_first_update_never_trusts_its_path() -> None:
    """The path of the covariance stays 0 at the first update and moves at the second."""
    c, state = (
        cma_es.constants(SIZE, 8),
        cma_es.initial_state(torch.zeros(SIZE, dtype=torch.float64), 1.0),
    )
    for generation, normal in enumerate(uniform_normals(2, 0)):
        assert not state.path_c.any()
        samples = cma_es.ask(state, normal)
        state = cma_es.tell(state, samples, samples.square().sum(-1), c, generation)
    assert state.path_c.any()


def test_batches_equal_one_by_one() -> None:
    """A search in a batch of two leading axes takes the same steps as alone."""
    c, means = (
        cma_es.constants(SIZE, 8),
        torch.randn(2, 3, SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    )
    normals = torch.randn(
        5, 2, 3, POPULATION, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    together = cma_es.initial_state(means, 0.5)
    alone = {(b, k): cma_es.initial_state(means[b, k], 0.5) for b in range(2) for k in range(3)}
    for generation, normal in enumerate(normals):
        samples = cma_es.ask(together, normal)
        together = cma_es.tell(together, samples, ellipsoid(samples), c, generation)
        for place, state in alone.items():
            mine = cma_es.ask(state, normal[place])
            alone[place] = cma_es.tell(state, mine, ellipsoid(mine), c, generation)
    for place, state in alone.items():
        for name in ("mean", "sigma", "covariance", "path_sigma", "path_c"):
            assert torch.allclose(
                getattr(together[place], name), getattr(state, name), rtol=1e-9, atol=1e-11
            ), name


def test_ties_rank_in_order_of_trial() -> None:
    """Equal costs are ranked stably: the first samples win."""
    c, normal = cma_es.constants(SIZE, 8), uniform_normals(1, 0)[0]
    state = cma_es.initial_state(torch.zeros(SIZE, dtype=torch.float64), 1.0)
    told = cma_es.tell(state, normal, torch.zeros(POPULATION), c, 0)
    expected = torch.tensor(c.weights, dtype=torch.float64) @ normal[:8]
    assert torch.allclose(told.mean, expected, atol=1e-14)


def test_centroids_divide_the_box() -> None:
    """One centroid is near the origin, two have norm 0.5, three have norms 0.61-0.67.

    Two are 1 apart, three are 1.11 apart.
    """
    one, two, three = (cma_es.centroids(k, SIZE) for k in (1, 2, 3))
    assert one.norm() < 0.05
    assert two.norm(dim=1).tolist() == pytest.approx([0.5, 0.5], abs=0.05)
    assert (two[0] - two[1]).norm().item() == pytest.approx(1.0, abs=0.05)
    assert all(0.58 < n < 0.70 for n in three.norm(dim=1).tolist())
    assert torch.pdist(three).tolist() == pytest.approx([1.11] * 3, abs=0.06)
    assert torch.equal(cma_es.centroids.__wrapped__(3, SIZE), three)
