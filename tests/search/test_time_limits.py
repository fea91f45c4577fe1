"""Time limits: searches end on time, within rollouts as well, and have a plan."""

import time

import numpy as np
import pytest
import torch

import rhumbline
from rhumbline.decoding import ENGINES, TimeLimit
from rhumbline.decoding.rollouts import rollout
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.jssp import JSSP, JSSPInstance, jssp_from_arrays
from rhumbline.problems.metrics import embed_in_plane, euclidean_distances
from rhumbline.problems.tsp import TSP, tsp_from_array
from rhumbline.search.task.account import Account, Spent

RNG = np.random.default_rng(0)


def random_shop(jobs: int, machines: int) -> JSSPInstance:
    """Return an instance in which each job visits each machine once."""
    durations = RNG.integers(1, 100, (jobs, machines))
    orders = np.stack([RNG.permutation(machines) for _ in range(jobs)])
    return jssp_from_arrays(durations, orders)


def test_no_attempt_begins_after_the_deadline() -> None:
    """Not even the first one; a constructed plan takes its place."""
    account = Account(deadline=time.monotonic() - 1.0)
    with pytest.raises(Spent):
        account.allow_attempts(5)
    assert Account(limit=3).allow_attempts(5) == 3


@pytest.mark.parametrize("strategy", ["sampling-elite", "sgbs", "greedy"])
def test_a_large_shop_ends_on_time(strategy: str) -> None:
    """It took 54 s on busy cores, and 2 s on idle ones. The rest is for cores that are busy."""
    rhumbline.solve(random_shop(2, 2), strategy=strategy, attempts=1, device="cpu", then="none")
    shop = random_shop(30, 15)
    began = time.monotonic()
    (found,) = rhumbline.solve(shop, strategy=strategy, seconds=0.4, device="cpu", then="none")
    seconds = time.monotonic() - began
    found.plan.check(shop)
    assert seconds < 1.2


class Steps:
    """A limit that ends the rollouts at some look at it."""

    def __init__(self, allowed: int) -> None:
        self.left = allowed

    def check(self) -> None:
        """Count a look."""
        self.left -= 1
        if self.left < 0:
            raise Spent


def test_plain_torch_looks_at_the_clock_before_each_step() -> None:
    """Before the chunk, and then before each of 12 decisions."""
    policy = JSSPPolicy(JSSPArchitecture(width=16, heads=2, layers=1, hidden=16, latent=2))
    rules = JSSP()
    batch = rules.collate([random_shop(4, 3)])
    latents = policy.space.centre((1, 2), torch.device("cpu"))
    starts = rules.starts(batch)

    def roll(allowed: int) -> None:
        steps = Steps(allowed)
        limit = TimeLimit(steps.check)
        rollout(rules, policy, batch, latents, starts, seed=0, engine="torch", limit=limit)
        assert steps.left == 0

    roll(13)
    with pytest.raises(Spent):
        roll(12)


def test_kernels_begin_no_tile_after_the_deadline() -> None:
    """A deadline that does not come changes nothing."""
    pytest.importorskip("numba")
    policy = TSPPolicy(Architecture(layers=1, hidden=16, latent=2)).requires_grad_(False)
    rules = TSP()
    batch = rules.collate([tsp_from_array(RNG.random((20, 2)))])
    latents = torch.zeros(1, 40, 2)

    def roll(limit: TimeLimit) -> torch.Tensor:
        starts = rules.starts(batch)
        engine = ENGINES["numba"]
        rolled = rollout(rules, policy, batch, latents, starts, seed=0, engine=engine, limit=limit)
        return rolled.cost

    late = TimeLimit(deadline=time.monotonic() + 60.0)
    assert torch.equal(roll(late), roll(TimeLimit()))
    steps = Steps(1)
    with pytest.raises(Spent):
        roll(TimeLimit(steps.check, time.monotonic() - 1.0))


@pytest.mark.parametrize("cities", [1, 2, 3, 40, 300])
def test_matrices_of_the_plane_are_found_again(cities: int) -> None:
    """The distances of positions in the plane lead back to them, as far as rounds go."""
    wanted = euclidean_distances(RNG.random((cities, 2)) * 1000.0)
    found = euclidean_distances(embed_in_plane(wanted))
    assert np.abs(found - wanted).max() <= 1e-3 * wanted.max()
