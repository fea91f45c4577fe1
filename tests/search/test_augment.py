"""The eight symmetries of the square, and searches that share attempts among them."""

from typing import Any

import numpy as np
import pytest
import torch

from rhumbline import api
from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.kernels.numba.local_search import launch as local_moves
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPInstance
from rhumbline.problems.symmetry import symmetric_copies, symmetries
from rhumbline.problems.tsp import TSP, Tour, TSPInstance
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies import STRATEGIES
from rhumbline.search.strategies.greedy_sampling import Greedy, Uniform
from rhumbline.search.strategies.population import Population
from rhumbline.search.task import make_task


def test_the_order_of_symmetries() -> None:
    """(x,y), (1-x,y), (x,1-y), (1-x,1-y), (y,x), (1-y,x), (y,1-x), (1-y,1-x)."""
    found = symmetries(torch.tensor([[[0.1, 0.3]]]))[0, :, 0]
    expected = [
        (0.1, 0.3),
        (0.9, 0.3),
        (0.1, 0.7),
        (0.9, 0.7),
        (0.3, 0.1),
        (0.7, 0.1),
        (0.3, 0.9),
        (0.7, 0.9),
    ]
    assert torch.allclose(found, torch.tensor(expected))


def test_distances_stay(rng) -> None:
    """Every copy has the distances of the original, so every tour keeps its length."""
    xy = torch.rand(2, 9, 2, generator=rng)
    for copy in symmetries(xy).unbind(1):
        assert torch.allclose(torch.cdist(copy, copy), torch.cdist(xy, xy), atol=1e-5)


def test_copies_share_all_but_positions(rng) -> None:
    """Demands, capacity, id and scale are repeated; copies of an instance are adjacent."""
    batch = CVRP().sample(2, 5, rng)
    many = symmetric_copies(batch, 8)
    assert torch.equal(many.demand, batch.demand.repeat_interleave(8, 0))
    assert many.key.tolist() == [0] * 8 + [1] * 8
    assert torch.equal(many.xy[8], batch.xy[1])
    assert symmetric_copies(batch, 1) is batch


@pytest.mark.parametrize("copies", [0, 9])
def test_a_square_has_eight_symmetries(rng, copies: int) -> None:
    """Other numbers are refused."""
    with pytest.raises(InputError, match="1 to 8 symmetries"):
        symmetric_copies(TSP().sample(1, 4, rng), copies)


def test_the_best_copy_of_each_start_counts(policy, make_instances) -> None:
    """A strategy sees, for each latent and start, the cheapest copy and its sequence."""
    task = make_task(TSP(), policy, make_instances(2, 4), augment=2)
    cost = torch.tensor([[[1.0, 5.0]], [[2.0, 4.0]], [[9.0, 9.0]], [[8.0, 10.0]]])
    actions = torch.arange(4)[:, None, None, None].expand(4, 1, 2, 3).to(torch.int16)
    merged = task.best_of_copies(Rollouts(cost, actions))
    assert merged.cost.tolist() == [[[1.0, 4.0]], [[8.0, 9.0]]]
    assert merged.actions[..., 0].tolist() == [[[0, 1]], [[3, 2]]]


def test_greedy_over_eight_views_is_never_worse(policy, make_instances) -> None:
    """The first copy is the instance itself, so eight views find nothing longer, often less."""
    instances = make_instances(6, 12)
    one, _ = search(Greedy(), make_task(TSP(), policy, instances), Budget(100))
    eight, _ = search(Greedy(), make_task(TSP(), policy, instances, augment=8), Budget(100))
    assert [s.attempts for s in eight] == [8] * 6
    assert all(a.cost <= b.cost * (1 + 1e-9) for a, b in zip(eight, one, strict=True))
    assert any(a.cost < b.cost - 1e-6 for a, b in zip(eight, one, strict=True))


def test_a_few_attempts_take_a_few_copies(policy, make_instances) -> None:
    """Three greedy attempts of eight are those of the first three copies."""
    instances = make_instances(3, 12)
    some, _ = search(Greedy(), make_task(TSP(), policy, instances, augment=8), Budget(3))
    three, _ = search(Greedy(), make_task(TSP(), policy, instances, augment=3), Budget(3))
    assert [(s.cost, s.attempts) for s in some] == [(s.cost, 3) for s in three]


def test_augment_in_python(policy) -> None:
    """`solve(augment=8)` shares the attempts and returns tours of the given array."""
    xy = np.random.default_rng(0).random((9, 2))
    (found,) = api.solve(xy, policy=policy, attempts=24, augment=8, device="cpu")
    assert found.attempts == 24
    assert found.cost == found.plan.cost(TSPInstance("x", "EXACT_2D", xy=xy))


@pytest.mark.parametrize("name", ["cmaes", "eas-emb", "sgbs"])
def test_later_phases_see_the_instances_themselves(name: str, policy, make_instances) -> None:
    """Diverse sets, warm starts and polishes know no copies. Every plan belongs to its instance."""
    instances, announced = make_instances(3, 20), list[Any]()
    short = Tour(
        tuple(
            local_moves.shorten_tour(
                d := instances[1].distances, local_moves.nearest_nodes(d), tuple(range(20))
            )[0]
        )
    )
    options: dict[str, Any] = {
        "policy": policy,
        "strategy": name,
        "attempts": 24,
        "augment": 4,
        "device": "cpu",
    }
    plain = api.solve(instances, **options)
    found = api.solve(
        instances,
        top=4,
        polish=True,
        warm_start=[None, short, None],
        improved=announced.append,
        **options,
    )
    for instance, before, after in zip(instances, plain, found, strict=True):
        assert len(after.others) == 3
        for plan in (after, *after.others):
            plan.plan.check(instance)
            assert plan.cost == plan.plan.cost(instance)
        assert after.polish.before <= before.cost * (1 + 1e-9)
        assert after.cost <= after.others[0].cost
    assert found[1].cost <= short.cost(instances[1])
    assert next(t for t in announced if t.instance is instances[1]).phase == "warm start"
    assert all(t.cost == t.plan.cost(t.instance) for t in announced)


def test_strategies_by_name(policy) -> None:
    """Python takes the names of the command line. An unknown one is refused with the known ones."""
    xy = np.random.default_rng(0).random((7, 2))
    by_name = api.solve(xy, policy=policy, attempts=20, strategy="uniform", device="cpu")
    by_hand = api.solve(xy, policy=policy, attempts=20, strategy=Uniform(), device="cpu")
    assert by_name[0].trace[0][::2] == by_hand[0].trace[0][::2]
    with pytest.raises(
        InputError, match=r"'tabu' is not known; known: cmaes, .*, sgbs-eas, cmaes-eas"
    ):
        api.solve(xy, policy=policy, strategy="tabu")


@pytest.mark.parametrize("augment", [1, 8])
@pytest.mark.parametrize("name", sorted(STRATEGIES.table))
def test_strategies_solve_cvrp(name: str, augment: int) -> None:
    """With and without copies: checked plans, and the budget to the attempt."""
    strategy = STRATEGIES[name]()
    own = {"members": 2, "latent": 0} if isinstance(strategy, Population) else {"latent": 3}
    torch.manual_seed(0)
    policy = CVRPPolicy(Architecture(32, 2, 1, 32, **own)).requires_grad_(False)
    draw = np.random.default_rng(1)
    instances = [
        CVRPInstance(f"v{i}", "EXACT_2D", (0, 3, 4, 5, 2, 4), 9, xy=draw.random((6, 2)))
        for i in range(2)
    ]
    solutions, _ = search(
        strategy, make_task(CVRP(), policy, instances, augment=augment), Budget(11)
    )
    for instance, solution in zip(instances, solutions, strict=True):
        solution.plan.check(instance)
        assert solution.cost == solution.plan.cost(instance)
        assert solution.attempts == (min(11, augment) if name == "greedy" else 11)
