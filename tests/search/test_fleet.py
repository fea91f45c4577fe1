"""A limit on vehicles: the smallest excess first, then the shortest plan."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rhumbline.api import prepare, solve
from rhumbline.decoding.request import reprice
from rhumbline.errors import Infeasible, InputError
from rhumbline.inputs import instances_from
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRP, Routes, cvrp_from_arrays
from rhumbline.problems.metrics import Metric
from rhumbline.problems.tsp import TSPInstance
from rhumbline.search.driver import Budget, stream
from rhumbline.search.strategies import STRATEGIES
from rhumbline.search.strategies.greedy_sampling import Sampling

# Two customers of 6 lie 10 to the left of the depot, two of 4 lie 10 to the right; a vehicle holds
# 10. With two vehicles each must take one of either side (10 + 20 + 10, twice); with three, the
# right ones share one: 20 + 20 + 20.
DEPOT, CUSTOMERS, DEMANDS, CAPACITY = (
    (0.0, 0.0),
    [[-10, 0], [-10, 0], [10, 0], [10, 0]],
    [6, 6, 4, 4],
    10,
)
SIDES = cvrp_from_arrays(DEPOT, CUSTOMERS, DEMANDS, CAPACITY, "sides")
# Three customers of 6: their 18 would fit into two vehicles of 10, but no two of them fit into one.
THIRDS = cvrp_from_arrays(DEPOT, [[1, 0], [2, 0], [3, 0]], [6, 6, 6], CAPACITY, "thirds")


@pytest.fixture(scope="module")
def policy() -> CVRPPolicy:
    """An untrained policy."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(3)
        return CVRPPolicy(Architecture(16, 2, 1, 16, 4)).requires_grad_(False)


@pytest.mark.parametrize(
    ("vehicles", "cost", "routes"), [(2, 80, 2), (3, 60, 3), (10**30, 60, 3), (None, 60, 3)]
)
def test_the_best_plan_within_the_fleet(
    policy: CVRPPolicy, vehicles: int | None, cost: float, routes: int
) -> None:
    """With two vehicles the plan is longer, and is found although shorter ones are."""
    (found,) = solve(SIDES, policy=policy, strategy=Sampling(), attempts=64, vehicles=vehicles)
    found.plan.check(replace(SIDES, vehicles=vehicles))
    assert (found.cost, len(found.plan.routes), found.unmet) == (pytest.approx(cost), routes, None)


@pytest.mark.parametrize("augment", [1, 3])
@pytest.mark.parametrize("name", sorted(STRATEGIES.table))
def test_every_strategy_keeps_the_limit_and_shows_plain_costs(
    policy: CVRPPolicy, name: str, augment: int
) -> None:
    """The incumbent never gets more routes, and the displayed cost is its length."""
    many = (
        CVRPPolicy(replace(policy.architecture, latent=0, members=2))
        if name == "population"
        else policy
    )
    task = prepare(SIDES, policy=many, vehicles=2, augment=augment)
    before = 4
    for progress in stream(STRATEGIES[name](), task, Budget(attempts=48)):
        plan = CVRP().decode(SIDES, task.account.actions[0].tolist())
        assert progress.best.item() == pytest.approx(plan.cost(SIDES), rel=1e-6)
        assert 60 <= progress.latest.item() <= 81
        assert len(plan.routes) <= before
        before = len(plan.routes)


def test_a_limit_that_does_not_bind_changes_nothing(policy: CVRPPolicy) -> None:
    """Four vehicles for four customers: the costs of every step equal those of a free fleet."""
    free, limited = (
        [
            (p.best.item(), p.latest.item())
            for p in stream(
                STRATEGIES["cmaes"](), prepare(SIDES, policy=policy, vehicles=k), Budget(48)
            )
        ]
        for k in (None, 4)
    )
    assert free == limited


def test_instances_with_and_without_a_limit_share_a_group(policy: CVRPPolicy) -> None:
    """Each instance keeps its own limit: the fleet of the second one stays free."""
    both = [replace(SIDES, vehicles=2), SIDES]
    assert [s.cost for s in solve(both, policy=policy, strategy=Sampling(), attempts=64)] == [
        pytest.approx(80),
        pytest.approx(60),
    ]


PLANS = [
    [1, 3, 0, 2, 4, 0, 0, 0],
    [1, 0, 2, 0, 3, 4, 0, 0],
    [1, 0, 2, 0, 3, 0, 4, 0],
]  # of 2, 3 and 4 routes


@pytest.mark.parametrize(("metric", "surcharge"), [("EXACT_2D", 17), ("EUC_2D", 161)])
def test_surcharges_by_hand(metric: Metric, surcharge: float) -> None:
    """With 2 vehicles the plans pay for no, one and two extra routes.

    A surcharge is 1 and eight legs of at most 2 (unit square) or 20.
    """
    batch = CVRP().collate([replace(SIDES, metric=metric, vehicles=2)])
    actions = torch.tensor([PLANS])
    lengths, costs = CVRP().total_length(batch, actions), CVRP().cost(batch, actions)
    assert (lengths * batch.scale).flatten().tolist() == pytest.approx([80, 60, 80])
    assert (costs - lengths).flatten().tolist() == pytest.approx([0, surcharge, 2 * surcharge])
    for i in range(3):
        assert batch.without_surcharge(costs[:, i]).item() == pytest.approx(
            lengths[0, i].item(), rel=1e-9
        )


def test_rollouts_of_kernels_are_repriced() -> None:
    """A kernel measures straight lines.

    Surcharges are added from its actions; costs of a free fleet stay.
    """
    actions = torch.tensor([[PLANS]], dtype=torch.int16)
    for vehicles, added in ((2, [0, 17, 34]), (None, [0, 0, 0])):
        batch = CVRP().collate([replace(SIDES, vehicles=vehicles)])
        length = CVRP().total_length(batch, actions[0].long())[:, None]
        found = reprice(CVRP(), batch, length, actions)
        assert (found.cost - length).flatten().tolist() == pytest.approx(added)
        assert torch.equal(found.actions, actions)


def test_a_fleet_that_packing_forbids_is_reported(policy: CVRPPolicy) -> None:
    """Two vehicles have room for 18 but not for 6, 6 and 6.

    The error names plan, limit and attempts, and has the plans.
    """
    words = (
        "thirds: the plan needs 3 vehicles, 2 are allowed; 5 attempts found none within the limit"
    )
    with pytest.raises(Infeasible, match=f"^{words}") as missed:
        solve(THIRDS, policy=policy, strategy=Sampling(), attempts=5, vehicles=2)
    (solution,) = missed.value.solutions
    assert len(solution.plan.routes) == 3
    assert solution.unmet == str(missed.value)


def test_limits_that_make_no_sense_are_refused_before_any_search() -> None:
    """Fewer vehicles than the demand needs, and vehicles for a TSP."""
    with pytest.raises(
        InputError, match="sides: 1 vehicles are allowed, but the demand of 20 needs at least 2"
    ):
        instances_from(SIDES, vehicles=1)
    with pytest.raises(
        InputError, match="square: a number of vehicles is for vehicle routing, this is 'tsp'"
    ):
        instances_from(TSPInstance("square", "EXACT_2D", xy=np.eye(2)), vehicles=1)


# --- arrays


@pytest.mark.parametrize("kind", [np.asarray, lambda x: x], ids=["arrays", "lists"])
def test_four_arrays_are_an_instance(policy: CVRPPolicy, kind) -> None:
    """Depot, customers, demands and capacity are solved like a file, as arrays or nested lists."""
    source = tuple(kind(x) for x in (list(DEPOT), CUSTOMERS, DEMANDS, CAPACITY))
    (alone,) = solve(source, policy=policy, strategy=Sampling(), attempts=64)
    assert isinstance(alone.plan, Routes)
    assert (alone.instance.name, alone.cost) == ("arrays", pytest.approx(60))
    several = solve([source, source], policy=policy, strategy=Sampling(), attempts=64, vehicles=2)
    assert [(s.instance.name, s.cost) for s in several] == [
        ("arrays-1", pytest.approx(80)),
        ("arrays-2", pytest.approx(80)),
    ]
    mixed = instances_from([SIDES, source])
    assert [i.demands for i in mixed] == [SIDES.demands] * 2


def test_matrices_of_four_rows_are_still_tours() -> None:
    """A nested list of 4 x 4 numbers is a matrix, and four points are cities."""
    matrix = (1 - np.eye(4, dtype=int)).tolist()
    assert [i.problem for i in instances_from(matrix)] == ["tsp"]
    assert [
        i.problem for i in instances_from([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    ] == ["tsp"]


def test_wrong_arrays_are_named() -> None:
    """Errors in four arrays are reported as by `cvrp_from_arrays`."""
    with pytest.raises(InputError, match="arrays: expected a depot"):
        instances_from((DEPOT, CUSTOMERS, DEMANDS[:3], CAPACITY))
