"""The rules of vehicle routing: by hand, against a slow simulator, and through a small policy."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from rhumbline.decoding import log_prob, rollout
from rhumbline.errors import Infeasible, InputError
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import (
    CVRP,
    CVRPBatch,
    CVRPInstance,
    CVRPState,
    Routes,
    cvrp_from_arrays,
    default_capacity,
    with_fleet,
)

PROBLEM = CVRP()
# Ways from the depot: 5, 3, 13, 5. Between customers: 1-2 is 4, 1-4 is 3.16 (root of 10), 3-4 is
# 8.60 (root of 74).
DEPOT = np.array([0.0, 0.0])
CUSTOMERS = np.array([[3.0, 4.0], [3.0, 0.0], [-5.0, 12.0], [0.0, 5.0]])
DEMANDS = np.array([4, 3, 6, 4])
LONG_SIDE = 12.0  # of the box around all five: 8 by 12


def four(capacity: int = 10, demands: np.ndarray = DEMANDS, **changes: Any) -> CVRPInstance:
    return replace(cvrp_from_arrays(DEPOT, CUSTOMERS, demands, capacity, "four"), **changes)


def walk_of(*nodes: int) -> torch.Tensor:
    return torch.tensor([[nodes]])


def after(batch: CVRPBatch, *nodes: int) -> CVRPState:
    """Return the state of one rollout that went through these nodes."""
    state = PROBLEM.reset(batch, torch.tensor([[nodes[0]]]))
    for node in nodes[1:]:
        state = PROBLEM.step(state, torch.tensor([[node]]))
    return state


def open_nodes(state: CVRPState) -> list[int]:
    """Return the nodes that the only rollout may drive to."""
    return PROBLEM.mask(state)[0, 0].nonzero()[:, 0].tolist()


# --- by hand


def test_loads_and_lengths_of_routes_by_hand() -> None:
    """Out to 1, on to 2 and back is 5 + 4 + 3; the others drive 26 and 10 for one customer each."""
    plan = Routes(((1, 2), (3,), (4,)))
    assert plan.loads(four()) == [7, 6, 4]
    assert plan.lengths(four()) == pytest.approx([12.0, 26.0, 10.0])
    assert plan.cost(four()) == pytest.approx(48.0)
    rounded = four(metric="EUC_2D")
    assert [type(length) for length in plan.lengths(rounded)] == [int] * 3
    assert Routes(()).lengths(rounded) == Routes(()).loads(rounded) == []


@pytest.mark.parametrize("metric", ["EXACT_2D", "EUC_2D", "CEIL_2D"])
def test_loads_and_lengths_sum_to_demand_and_cost(metric: Any) -> None:
    """Of random routes; whole numbers exactly."""
    rng = np.random.default_rng(7)
    demands = (0, *rng.integers(0, 9, 30).tolist())
    instance = CVRPInstance("random", metric, demands, 100, xy=rng.random((31, 2)) * 1000)
    cuts = np.sort(rng.choice(np.arange(1, 30), 6, replace=False))
    parts = np.split(rng.permutation(np.arange(1, 31)), cuts)
    plan = Routes(tuple(tuple(part.tolist()) for part in parts))
    facts = plan.route_facts(instance)
    assert [route["customers"] for route in facts["routes"]] == plan.to_file_numbers(instance)
    assert sum(route["load"] for route in facts["routes"]) == sum(demands)
    total = sum(route["length"] for route in facts["routes"])
    exact = pytest.approx(plan.cost(instance), rel=1e-12)
    assert total == (plan.cost(instance) if instance.has_integer_costs else exact)


def test_routes_cost_what_the_hand_computes() -> None:
    """Two pairs cost 5 + 4 + 3 with load 7, and 13 + root of 74 + 5 with load 10.

    The costs are in miles and in the unit square.
    """
    pairs, expected = Routes(((1, 2), (3, 4))), 12 + 18 + math.sqrt(74)
    pairs.check(four())
    assert pairs.cost(four()) == pytest.approx(expected, rel=1e-14)
    batch = PROBLEM.collate([four()])
    assert batch.scale.tolist() == [LONG_SIDE]
    assert PROBLEM.cost(batch, walk_of(1, 2, 0, 3, 4, 0)).item() == pytest.approx(
        expected / LONG_SIDE, rel=1e-6
    )
    singles = Routes(((1,), (2,), (3,), (4,)))
    assert singles.cost(four()) == 10 + 6 + 26 + 10


def test_routes_cost_whole_numbers_where_the_metric_does() -> None:
    """EUC_2D rounds 8.60 to 9: 12 + 27 = 39, an int, on the host and on the device."""
    instance = four(metric="EUC_2D")
    cost = Routes(((1, 2), (3, 4))).cost(instance)
    assert (cost, type(cost)) == (39, int)
    batch = PROBLEM.collate([instance])
    assert (PROBLEM.cost(batch, walk_of(1, 2, 0, 3, 4, 0)).item(), batch.scale.item()) == (39, 1)


def test_a_matrix_prices_routes() -> None:
    """A matrix gives distances directly: 2 + 6 + 9 = 17 there and back, in either order."""
    matrix = np.array([[0, 2, 9], [2, 0, 6], [9, 6, 0]])
    instance = CVRPInstance("three", "EXPLICIT", (0, 1, 1), 2, matrix=matrix)
    assert Routes(((1, 2),)).cost(instance) == Routes(((2, 1),)).cost(instance) == 17
    assert Routes(((1,), (2,))).cost(instance) == 4 + 18
    assert PROBLEM.cost(PROBLEM.collate([instance]), walk_of(1, 0, 2, 0)).item() == 22


def test_loads_by_hand() -> None:
    """A vehicle of 10 that served 4 and 3 has 3 left, at the depot it has 10 again."""
    batch = PROBLEM.collate([four()])
    lefts = [
        after(batch, *nodes).left.item()
        for nodes in ((1,), (1, 2), (1, 2, 0), (1, 2, 0, 3), (1, 2, 0, 3, 4))
    ]
    assert lefts == [6, 3, 10, 4, 0]


def test_a_demand_equal_to_the_load_left_fits() -> None:
    """With 4 left, customer 4 (who demands 4) fits; with one unit less it does not."""
    exact, short = (PROBLEM.collate([four(capacity)]) for capacity in (10, 9))
    assert open_nodes(after(exact, 3)) == [0, 1, 2, 4]  # 4 left: 4, 3 and 4 fit
    assert open_nodes(after(short, 3)) == [0, 2]  # 3 left
    assert open_nodes(after(exact, 3, 4)) == [0]  # nothing left


def test_the_depot_is_closed_at_the_depot() -> None:
    """A vehicle at the depot has to leave while customers wait: it cannot visit it twice."""
    batch = PROBLEM.collate([four()])
    assert open_nodes(after(batch, 1)) == [0, 2, 3, 4]
    assert open_nodes(after(batch, 1, 0)) == [2, 3, 4]


def test_only_the_depot_is_open_in_the_end() -> None:
    """When all are served the vehicle goes home, and stays there: the state no longer changes."""
    batch = PROBLEM.collate([four()])
    home = after(batch, 1, 2, 0, 3, 4, 0)
    assert open_nodes(after(batch, 1, 2, 0, 3, 4)) == [0]
    assert not PROBLEM.finished(after(batch, 1, 2, 0, 3, 4))
    assert open_nodes(home) == [0]
    assert PROBLEM.finished(home)
    assert_same_state(PROBLEM.step(home, torch.tensor([[0]])), home)


def test_one_rollout_does_not_finish_for_another() -> None:
    """The batch is finished when its last rollout is; the others wait at the depot."""
    batch = PROBLEM.collate([four()])
    state = PROBLEM.reset(batch, torch.tensor([[1, 1]]))
    for pair in ([2, 0], [0, 2], [3, 3], [4, 0], [0, 4]):
        state = PROBLEM.step(state, torch.tensor([pair]))
    assert PROBLEM.all_served(state).tolist() == [[True, True]]
    assert not PROBLEM.finished(state)  # the second stands at customer 4
    assert PROBLEM.finished(PROBLEM.step(state, torch.tensor([[0, 0]])))


def test_actions_are_cut_into_routes_at_the_depot() -> None:
    """Depots separate and end routes; as many as there are, none makes an empty route."""
    plan = Routes(((1, 2), (3, 4)))
    assert PROBLEM.decode(four(), [1, 2, 0, 3, 4, 0, 0, 0]) == plan
    assert PROBLEM.decode(four(), [1, 2, 0, 3, 4]) == plan
    assert plan.to_file_numbers(four()) == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        (((1, 2), (3,)), "four: customer 4 is visited 0 times"),
        (((1, 2), (3, 4), (2,)), "four: customer 2 is visited 2 times"),
        (((1, 2), (3, 4, 4)), "four: customer 4 is visited 2 times"),
        (((1, 2), (3, 5)), "four: a route visits customer 5 of 4"),
        (((1, 0, 2), (3, 4)), "four: a route visits customer 0 of 4"),
        (((1, -1), (3, 4)), "four: a route visits customer -1 of 4"),
        ((), "four: customer 1 is visited 0 times"),
        (((1, 2, 4), (3,)), "four: route 1 carries 11, the capacity is 10"),
        (((4, 3), (2, 1)), None),
        (((1,), (2, 4), (3,)), "four: the plan needs 3 vehicles, 2 are allowed"),
    ],
)
def test_wrong_routes_are_named(routes: tuple[tuple[int, ...], ...], words: str | None) -> None:
    """A plan with a wrong customer, an overload or too many vehicles is refused by name."""
    instance = four(vehicles=2)
    if words is None:
        Routes(routes).check(instance)
        return
    with pytest.raises(Infeasible, match=f"^{words}$"):
        Routes(routes).check(instance)


def test_a_free_fleet_has_no_limit() -> None:
    """Without `vehicles`, every customer may have one."""
    Routes(((1,), (2,), (3,), (4,))).check(four())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"capacity": 5}, "four: customer 3 demands 6, more than the capacity 5"),
        ({"capacity": 0}, "four: the capacity is 0, expected 1 to 1000000000"),
        ({"capacity": 10**9 + 1}, "four: the capacity is 1000000001, expected 1 to 1000000000"),
        (
            {"vehicles": 1},
            "four: 1 vehicles are allowed, but the demand of 17 needs at least 2 of capacity 10",
        ),
        (
            {"vehicles": 0},
            "four: 0 vehicles are allowed, but the demand of 17 needs at least 2 of capacity 10",
        ),
        (
            {"vehicles": 0, "demands": (0,) * 5},
            "four: 0 vehicles are allowed, but the demand of 0 needs at least 1",
        ),
    ],
)
def test_instances_without_a_plan_are_refused(changes: dict[str, Any], words: str) -> None:
    """A demand above the capacity and a fleet that is too small are errors of the input."""
    with pytest.raises(InputError, match=f"^{words}"):
        replace(four(), **changes)


# --- special instances


def test_customers_who_demand_nothing_fit_always() -> None:
    """A full vehicle may still call on them; they are served like all others and must be."""
    instance = four(demands=np.array([10, 0, 10, 0]))
    batch = PROBLEM.collate([instance])
    assert open_nodes(after(batch, 1)) == [0, 2, 4]
    assert open_nodes(after(batch, 1, 2, 4)) == [0]
    Routes(((1, 2, 4), (3,))).check(instance)
    with pytest.raises(Infeasible, match="customer 2 is visited 0 times"):
        Routes(((1, 4), (3,))).check(instance)


def test_without_any_demand() -> None:
    """Without any demand one route serves all, and the depot stays a choice on the way."""
    batch = PROBLEM.collate([four(1, np.zeros(4, dtype=int))])
    assert open_nodes(after(batch, 1)) == [0, 2, 3, 4]
    assert PROBLEM.finished(after(batch, 1, 2, 3, 4, 0))


def test_a_single_customer() -> None:
    """The only plan goes there and back, and takes the whole horizon of 2."""
    instance = cvrp_from_arrays(DEPOT, CUSTOMERS[:1], DEMANDS[:1], 4)
    batch = PROBLEM.collate([instance])
    assert (PROBLEM.horizon(batch), PROBLEM.starts(batch).tolist()) == (2, [[1]])
    state = PROBLEM.reset(batch, torch.tensor([[1]]))
    assert not PROBLEM.finished(state)
    assert open_nodes(state) == [0]
    assert PROBLEM.finished(after(batch, 1, 0))
    assert Routes(((1,),)).cost(instance) == 10


def test_full_vehicles_reach_the_horizon_exactly(rng: torch.Generator) -> None:
    """If every customer fills a vehicle, a sequence has length 2n and n routes."""
    instance = cvrp_from_arrays(DEPOT, CUSTOMERS, np.full(4, 7), 7)
    batch = PROBLEM.collate([instance])
    actions, _ = random_rollout(batch, rng)
    assert actions.shape[2] == PROBLEM.horizon(batch) == 8
    assert actions[..., 1::2].eq(0).all()
    assert all(PROBLEM.decode(instance, row).cost(instance) == 52 for row in actions[0].tolist())


def test_customers_at_the_depot_cost_nothing() -> None:
    """An instance without extent is scaled to a point, not to NaN."""
    instance = cvrp_from_arrays(
        np.array([7.5, 7.5]), np.full((3, 2), 7.5), np.ones(3, dtype=int), 2
    )
    batch = PROBLEM.collate([instance])
    assert batch.xy.eq(0).all()
    assert PROBLEM.cost(batch, walk_of(1, 2, 0, 3, 0)).item() == 0.0
    assert Routes(((1, 2), (3,))).cost(instance) == 0.0


# --- a slow simulator


@dataclass
class Vehicle:
    """The rules in plain Python, with sets and integers, as a reference."""

    demands: tuple[int, ...]
    capacity: int
    place: int = 0
    left: int = 0
    served: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.left = self.capacity

    @property
    def waiting(self) -> set[int]:
        return set(range(1, len(self.demands))) - self.served

    def allowed(self) -> set[int]:
        if not self.waiting:
            return {0}
        fitting = {c for c in self.waiting if self.demands[c] <= self.left}
        return fitting if self.place == 0 else fitting | {0}

    def drive(self, node: int) -> None:
        assert node in self.allowed()
        self.place = node
        if node == 0:
            self.left = self.capacity
        else:
            self.left -= self.demands[node]
            self.served.add(node)
        assert self.left >= 0


def random_rollout(batch: CVRPBatch, rng: torch.Generator) -> tuple[torch.Tensor, list[CVRPState]]:
    """Return actions of a uniformly random policy from all starts, and all states.

    The states are those before every decision, and the last one.
    """
    actions = [PROBLEM.starts(batch)]
    states = [PROBLEM.reset(batch, actions[0])]
    while not PROBLEM.finished(states[-1]):
        allowed = PROBLEM.mask(states[-1])
        actions.append(
            torch.rand(allowed.shape, generator=rng).masked_fill(~allowed, -1.0).argmax(-1)
        )
        states.append(PROBLEM.step(states[-1], actions[-1]))
    return torch.stack(actions, -1), states


def assert_same_state(one: CVRPState, other: CVRPState) -> None:
    for name in ("last", "left", "visited", "demand", "capacity"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def assert_simulated(state: CVRPState, vehicles: list[list[Vehicle]]) -> None:
    """Fail unless every rollout agrees with its simulated vehicle in place and open actions."""
    mask = PROBLEM.mask(state)
    for b, row in enumerate(vehicles):
        for r, vehicle in enumerate(row):
            assert state.last[b, r] == vehicle.place
            assert state.left[b, r] == vehicle.left
            assert set(state.visited[b, r].nonzero()[:, 0].tolist()) == vehicle.served
            assert set(mask[b, r].nonzero()[:, 0].tolist()) == vehicle.allowed()


@pytest.mark.parametrize(("size", "capacity"), [(1, 9), (2, 9), (5, 9), (9, 12), (9, 60)])
def test_rollouts_are_simulated_drives(size: int, capacity: int, rng: torch.Generator) -> None:
    """Reset, step and replay go through the states of the simulator, from all starts."""
    batch = PROBLEM.sample(3, size, rng)
    batch = replace(batch, capacity=torch.full_like(batch.capacity, capacity))
    batch.demand[1, 1] = 0
    actions, states = random_rollout(batch, rng)
    steps = len(states) - 1
    replayed = PROBLEM.replay(batch, actions)
    vehicles = [
        [Vehicle(tuple(demands), capacity) for _ in range(size)]
        for demands in batch.demand.tolist()
    ]
    for t, state in enumerate(states):
        for row, nodes in zip(vehicles, actions[:, :, t].tolist(), strict=True):
            for vehicle, node in zip(row, nodes, strict=True):
                vehicle.drive(node)
        assert_simulated(state, vehicles)
        if t < steps:
            cut = (3, size, steps)
            part = replace(
                replayed,
                last=replayed.last.view(cut)[..., t],
                left=replayed.left.view(cut)[..., t],
                visited=replayed.visited.view(*cut, -1)[:, :, t],
            )
            assert_simulated(part, vehicles)


def test_finished_rollouts_are_fixed_points(rng: torch.Generator) -> None:
    """A rollout at the depot with all customers served keeps its state to the end."""
    batch = PROBLEM.sample(4, 8, rng)
    _, states = random_rollout(replace(batch, capacity=batch.capacity * 0 + 10), rng)
    homes = 0
    for now, then in pairwise(states):
        home = (now.last == 0) & PROBLEM.all_served(now)
        homes += int(home.sum())
        assert torch.equal(now.left[home], then.left[home])
        assert torch.equal(now.visited[home], then.visited[home])
        assert then.last[home].eq(0).all()
    assert homes > 10


def test_replay_does_not_mind_padding(rng: torch.Generator) -> None:
    """Depots behind the end add states that stand at home, and change none before."""
    batch = PROBLEM.sample(2, 6, rng)
    actions, states = random_rollout(batch, rng)
    padded = torch.nn.functional.pad(actions, (0, 3))
    steps, rollouts = actions.shape[2] - 1, actions.shape[1]
    long = PROBLEM.replay(batch, padded)
    visited = long.visited.view(2, rollouts, steps + 3, -1)
    assert torch.equal(
        visited[:, :, :steps], PROBLEM.replay(batch, actions).visited.view(2, rollouts, steps, -1)
    )
    for t in range(steps, steps + 3):
        assert torch.equal(visited[:, :, t], states[-1].visited)
        assert torch.equal(long.left.view(2, rollouts, -1)[..., t], states[-1].left)


def test_costs_of_actions_are_costs_of_routes(rng: torch.Generator) -> None:
    """Unrounded costs, scaled back, equal those of the host; every random rollout is a plan."""
    instances = [scattered(i, np.arange(1, 10), 15 + i, extent=300.0) for i in range(3)]
    batch = PROBLEM.collate(instances)
    actions, _ = random_rollout(batch, rng)
    costs = PROBLEM.cost(batch, actions) * batch.scale[:, None]
    for instance, rows, row_costs in zip(instances, actions.tolist(), costs.tolist(), strict=True):
        for row, cost in zip(rows, row_costs, strict=True):
            plan = PROBLEM.decode(instance, row)
            plan.check(instance)
            assert plan.cost(instance) == pytest.approx(cost, rel=1e-6)


def scattered(seed: int, demands: np.ndarray, capacity: int, extent: float = 1.0) -> CVRPInstance:
    """Return customers with these demands and a depot, anywhere in a square."""
    xy = extent * np.random.default_rng(seed).random((len(demands) + 1, 2))
    return cvrp_from_arrays(xy[0], xy[1:], demands, capacity, f"random-{seed}")


def test_costs_take_strided_actions(rng: torch.Generator) -> None:
    """Sequences stored with steps before rollouts cost and replay as contiguous copies do."""
    batch = PROBLEM.sample(2, 6, rng)
    actions, _ = random_rollout(batch, rng)
    strided = actions.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous()
    assert torch.equal(PROBLEM.cost(batch, strided), PROBLEM.cost(batch, actions))
    assert_same_state(PROBLEM.replay(batch, strided), PROBLEM.replay(batch, actions))


# --- views


def undirected(actions: list[int]) -> list[tuple[int, ...]]:
    """Return the routes of a sequence in a form that ignores their order and direction."""
    routes = PROBLEM.decode(four(), actions).routes
    return sorted(min(route, route[::-1]) for route in routes)


def test_views_are_the_same_routes(rng: torch.Generator) -> None:
    """Views are the same routes: any route first, both directions, padding at the end."""
    batch = PROBLEM.sample(3, 9, rng)
    batch = replace(batch, capacity=torch.full_like(batch.capacity, 14))
    actions = torch.nn.functional.pad(
        random_rollout(batch, rng)[0][:, 0], (0, 2)
    )  # one plan per instance
    views = PROBLEM.views(actions, torch.rand(3, 60, 2, generator=rng))
    for own, seen in zip(actions.tolist(), views.tolist(), strict=True):
        assert all(undirected(view) == undirected(own) for view in seen)
        routes = PROBLEM.decode(four(), own).routes
        assert len(routes) > 2
        assert {view[0] for view in seen} == {
            end for route in routes for end in (route[0], route[-1])
        }
        length = len(own) - own[::-1].index(next(a for a in reversed(own) if a))
        assert all(view[length - 1] != 0 and not any(view[length:]) for view in seen)
    spread = PROBLEM.cost(batch, views) - PROBLEM.cost(batch, actions[:, None])
    assert spread.abs().max() < 1e-5  # sums of some twenty float32 in another order


def test_views_are_feasible_sequences(rng: torch.Generator) -> None:
    """Every view can be driven step by step."""
    batch = PROBLEM.sample(2, 7, rng)
    actions = random_rollout(batch, rng)[0][:, 3]
    views = PROBLEM.views(actions, torch.rand(2, 20, 2, generator=rng))
    for b, seen in enumerate(views.tolist()):
        for view in seen:
            vehicle = Vehicle(tuple(batch.demand[b].tolist()), int(batch.capacity[b]))
            for node in view:
                vehicle.drive(node)
            assert (vehicle.waiting, vehicle.place) == (set(), 0)


def test_the_uniforms_choose_the_view() -> None:
    """The first uniform rotates the routes; the second below a half reverses everything."""
    own = torch.tensor([[1, 2, 0, 3, 0, 4, 5, 6, 0, 0]])
    uniforms = torch.tensor([[[0.0, 0.9], [0.4, 0.9], [0.999, 0.5], [0.0, 0.1], [0.4, 0.49]]])
    assert PROBLEM.views(own, uniforms)[0].tolist() == [
        [1, 2, 0, 3, 0, 4, 5, 6, 0, 0],
        [4, 5, 6, 0, 1, 2, 0, 3, 0, 0],
        [3, 0, 4, 5, 6, 0, 1, 2, 0, 0],
        [6, 5, 4, 0, 3, 0, 2, 1, 0, 0],
        [2, 1, 0, 6, 5, 4, 0, 3, 0, 0],
    ]


# --- batches


def test_samples_follow_the_recipe(rng: torch.Generator) -> None:
    """Positions fill the unit square, demands are 1 to 9, and the capacity is the default."""
    batch = PROBLEM.sample(500, 20, rng)
    assert (batch.xy.shape, batch.demand.shape) == ((500, 21, 2), (500, 21))
    assert batch.demand[:, 0].eq(0).all()
    assert set(batch.demand[:, 1:].unique().tolist()) == set(range(1, 10))
    assert batch.demand[:, 1:].float().mean().item() == pytest.approx(
        5.0, abs=0.15
    )  # 10,000 draws of deviation 2.6
    assert set(batch.capacity.tolist()) == {30}
    assert batch.xy[:, 0].mean(0).tolist() == pytest.approx([0.5, 0.5], abs=0.06)


@pytest.mark.parametrize(
    ("size", "capacity"), [(20, 30), (50, 40), (100, 50), (125, 55), (200, 70), (110, 50), (7, 30)]
)
def test_capacity_follows_the_size(size: int, capacity: int) -> None:
    """The sizes of the literature have their capacity, others that of the nearest."""
    assert default_capacity(size) == capacity


def test_every_customer_starts_up_to_two_hundred() -> None:
    """Up to 200 customers all are starts; beyond, 100 that are spread over the order."""
    for customers, starts in ((200, 200), (250, 100), (1000, 100)):
        batch = PROBLEM.sample(2, customers, torch.Generator().manual_seed(0))
        found = PROBLEM.starts(batch)
        assert found.shape == (2, starts)
        assert len(set(found[0].tolist())) == starts
        assert (found[0, 0].item(), int(found.max()) <= customers) == (1, True)


def test_keys_name_instances_not_places() -> None:
    """An instance has the same key in any batch; other demands or capacities change it."""
    alone = PROBLEM.collate([four()]).key
    assert PROBLEM.collate([four(12), four()]).key[1] == alone[0]
    others = [
        four(12),
        four(demands=DEMANDS[::-1]),
        cvrp_from_arrays(DEPOT, CUSTOMERS[::-1], DEMANDS, 10),
    ]
    assert len({int(PROBLEM.collate([i]).key[0]) for i in [four(), *others]}) == 4


def test_instances_of_several_metrics_share_a_batch() -> None:
    """Beside a rounded instance the unrounded one is priced by its distances, in its own units."""
    batch = PROBLEM.collate([four(), four(metric="EUC_2D")])
    costs = PROBLEM.cost(batch, walk_of(1, 2, 0, 3, 4, 0).expand(2, 1, 6)) * batch.scale[:, None]
    assert costs[:, 0].tolist() == [pytest.approx(30 + math.sqrt(74), rel=1e-12), 39.0]


# --- arrays


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"depot": np.zeros(3)},
            r"expected a depot \[2\], customers \[n, 2\] and demands \[n\], got shapes \(3,\)",
        ),
        ({"depot": np.zeros((1, 2))}, r"got shapes \(1, 2\), \(4, 2\), \(4,\)"),
        ({"customers": np.zeros((4, 3))}, r"got shapes \(2,\), \(4, 3\), \(4,\)"),
        ({"customers": np.zeros(8)}, r"got shapes \(2,\), \(8,\), \(4,\)"),
        ({"demands": np.ones(5)}, r"got shapes \(2,\), \(4, 2\), \(5,\)"),
        ({"demands": np.ones((4, 1))}, r"got shapes \(2,\), \(4, 2\), \(4, 1\)"),
        ({"customers": [[0.0, 1.0], [2.0]]}, "expected arrays, got lists of unequal lengths"),
        (
            {"depot": np.array([0, np.nan])},
            r"the depot is at \[ *0. nan\], expected finite coordinates",
        ),
        (
            {"customers": np.full((4, 2), np.inf)},
            r"customer 1 is at \[inf inf\], expected finite coordinates",
        ),
        (
            {"demands": np.array([1, 2, -3, 4])},
            "customer 3 demands -3.*, expected a number of 0 or more",
        ),
        (
            {"demands": np.array([1, 0.1 + 0.2, 3, 4])},
            "such as 0.30000000000000004 have too many decimals .* round them",
        ),
        (
            {"demands": np.array([1, 2.5, 3, 4]), "capacity": 10**9},
            "counted in units of 1/2, and the capacity 1000000000 is then more than",
        ),
        ({"demands": np.array([1, 10.5, 3, 4])}, "customer 2 demands 10.5, more than the cap"),
        (
            {"demands": np.array([1, np.nan, 3, 4])},
            "customer 2 demands nan, expected a number of 0 or more",
        ),
        ({"demands": np.array(["1", "2", "3", "4"])}, "expected real numbers as demands, got <U1"),
        (
            {"customers": np.zeros((4, 2), dtype=complex)},
            "expected real numbers as customers, got complex128",
        ),
        ({"demands": np.array([1, 2, 11, 4])}, "customer 3 demands 11, more than the capacity 10"),
        ({"capacity": 0}, "the capacity is 0, expected 1 to"),
        ({"capacity": -5}, "the capacity is -5, expected 1 to"),
        ({"capacity": np.inf}, "the capacity is inf, expected a number"),
        ({"capacity": 1e300}, "the capacity is 1000.*, expected 1 to"),
        ({"capacity": np.array("ten")}, "expected real numbers as capacity, got <U3"),
        ({"capacity": np.array([10, 10])}, "expected a number"),
        (
            {"customers": np.zeros((0, 2)), "demands": np.zeros(0)},
            "has 0 customers; 1 to 10,000 are supported",
        ),
        (
            {"customers": np.zeros((10_001, 2)), "demands": np.zeros(10_001)},
            "has 10,001 customers; 1 to 10,000 are supported",
        ),
    ],
)
def test_arrays_that_are_refused(change: dict[str, Any], words: str) -> None:
    """Arrays that are no instance are refused by name with what was expected."""
    arrays = {"depot": DEPOT, "customers": CUSTOMERS, "demands": DEMANDS, "capacity": 10}
    with pytest.raises(InputError, match=f"^mine: .*{words}"):
        cvrp_from_arrays(**arrays | change, name="mine")


def test_half_a_vehicle_is_refused() -> None:
    """A limit on vehicles is a whole number."""
    assert with_fleet(four(), 2).vehicles == 2
    with pytest.raises(InputError, match=r"vehicles is 2\.5, expected a whole number"):
        with_fleet(four(), 2.5)


def test_arrays_may_be_lists_and_floats() -> None:
    """Lists, float32 and whole floats are taken for what they say."""
    made = cvrp_from_arrays([0.0, 0.0], CUSTOMERS.astype(np.float32), [4.0, 3.0, 6.0, 4.0], 10.0)
    assert (made.demands, made.capacity, made.metric) == ((0, 4, 3, 6, 4), 10, "EXACT_2D")
    assert made.xy is not None
    assert (made.xy.dtype, made.name) == (np.float64, "arrays")


# --- through a small policy


def tiny_policy(seed: int = 0, latent: int = 4) -> CVRPPolicy:
    """Return a random policy whose load, biases and latents matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = CVRPPolicy(Architecture(width=32, heads=2, layers=1, hidden=32, latent=latent))
        for name, weight in policy.decoder.named_parameters():
            if name.endswith("_latent"):
                weight.data.normal_(0, 0.01)  # times the amplification of 100
            elif name.endswith(("_bias", "_load")):
                weight.data.normal_(0, 0.5)
    return policy


def complete(demands: tuple[int, ...], capacity: int, start: int) -> Iterator[list[int]]:
    """Return every way to serve all customers and return, beginning with `start`."""

    def extend(nodes: list[int]) -> Iterator[list[int]]:
        vehicle = Vehicle(demands, capacity)
        for node in nodes:
            vehicle.drive(node)
        if not vehicle.waiting and vehicle.place == 0:
            yield nodes
            return
        for node in sorted(vehicle.allowed()):
            yield from extend([*nodes, node])

    return extend([start])


@pytest.mark.parametrize(
    ("demands", "capacity", "ways"),
    [
        ((1, 1, 1), 3, 8),  # two orders of the others, and before each of them home or not
        ((2, 2, 2), 2, 2),  # always home
        ((1, 1, 1), 2, 6),  # never three at once
        (
            (0, 1, 1),
            1,
            4,
        ),  # two orders of the others, and 1, who demands nothing, alone or with the first of them
    ],
)
def test_probabilities_of_all_sequences_sum_to_one(
    demands: tuple[int, ...], capacity: int, ways: int
) -> None:
    """From each start, over all sequences of the simulator, padded to the horizon."""
    batch = PROBLEM.collate([cvrp_from_arrays(DEPOT, CUSTOMERS[:3], np.array(demands), capacity)])
    policy, latents = tiny_policy(), torch.tensor([[[0.3, -0.9, 0.5, 0.1]]])
    horizon = PROBLEM.horizon(batch)
    for start in (1, 2, 3):
        found = [
            way + [0] * (horizon - len(way)) for way in complete((0, *demands), capacity, start)
        ]
        if start == 1:
            assert len(found) == ways
        with torch.no_grad():
            scores = log_prob(
                PROBLEM, policy, batch, latents, torch.tensor([found]), engine="torch"
            )
        assert scores.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
        assert scores.exp().max().item() < 0.999 or len(found) == 1


def test_padding_adds_nothing_to_a_log_probability(rng: torch.Generator) -> None:
    """Depots behind the end have probability 1, so they add exactly 0."""
    policy, latents = tiny_policy(), torch.rand(2, 1, 4, generator=rng)
    one, forced = PROBLEM.sample(2, 1, rng), torch.tensor([[[1, 0, 0, 0, 0, 0]]]).expand(2, 1, 6)
    batch = PROBLEM.sample(2, 6, rng)
    actions, _ = random_rollout(batch, rng)
    padded = torch.nn.functional.pad(actions, (0, 5))
    with torch.no_grad():
        nothing = log_prob(PROBLEM, policy, one, latents, forced, engine="torch")
        short, long = (
            log_prob(PROBLEM, policy, batch, latents, a, engine="torch") for a in (actions, padded)
        )
    assert nothing.tolist() == [[0.0], [0.0]]
    torch.testing.assert_close(
        long, short, rtol=1e-6, atol=0
    )  # a sum of more terms may be added in another order


def test_chunk_size_changes_nothing(rng: torch.Generator) -> None:
    """Splitting the rollouts into chunks gives the same actions, of the horizon's length."""
    batch = PROBLEM.sample(3, 8, rng)
    policy, latents, starts = (
        tiny_policy(),
        torch.rand(3, 4, 4, generator=rng),
        PROBLEM.starts(batch),
    )
    whole, split, single = (
        rollout(PROBLEM, policy, batch, latents, starts, seed=7, chunk=chunk, engine="torch")
        for chunk in (None, 13, 1)
    )
    assert whole.actions.shape == (3, 4, 8, PROBLEM.horizon(batch))
    for other in (split, single):
        assert torch.equal(whole.actions, other.actions)
        torch.testing.assert_close(whole.cost, other.cost, rtol=1e-6, atol=0)


def test_rollouts_are_plans_and_have_their_probability(rng: torch.Generator) -> None:
    """Sampled sequences pass the plan's check, cost what it says, and have a probability."""
    instances = [scattered(i, np.arange(8) % 5, 6) for i in range(2)]
    batch = PROBLEM.collate(instances)
    policy, latents = tiny_policy(), torch.rand(2, 3, 4, generator=rng)
    found = rollout(PROBLEM, policy, batch, latents, PROBLEM.starts(batch), seed=3, engine="torch")
    for b, instance in enumerate(instances):
        for row, cost in zip(
            found.actions[b].flatten(0, 1).tolist(), found.cost[b].flatten().tolist(), strict=True
        ):
            plan = PROBLEM.decode(instance, row)
            plan.check(instance)
            assert plan.cost(instance) == pytest.approx(cost * batch.scale[b].item(), rel=1e-6)
    with torch.no_grad():
        scores = log_prob(
            PROBLEM, policy, batch, latents, found.actions.flatten(1, 2), engine="torch"
        )
    assert scores.isfinite().all()
    assert (scores < 0).all()


def test_gradients_flow_to_every_weight_of_the_decoder(rng: torch.Generator) -> None:
    """The load's query vector, both input projections and the latent rows all get gradients."""
    batch = PROBLEM.sample(2, 6, rng)
    policy, latents = tiny_policy(), torch.rand(2, 1, 4, generator=rng)
    actions, _ = random_rollout(batch, rng)
    log_prob(PROBLEM, policy, batch, latents, actions, engine="torch").sum().backward()
    for name, weight in policy.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().max() > 0, name


def test_the_load_matters_as_a_share_of_the_capacity(rng: torch.Generator) -> None:
    """Demands and capacity times three change nothing for the policy; half the capacity does."""
    batch = PROBLEM.sample(2, 6, rng)
    policy, latents = tiny_policy(), torch.rand(2, 1, 4, generator=rng)
    actions, _ = random_rollout(batch, rng)
    tripled = replace(batch, demand=3 * batch.demand, capacity=3 * batch.capacity)
    roomy = replace(batch, capacity=2 * batch.capacity)
    with torch.no_grad():
        own, same, other = (
            log_prob(PROBLEM, policy, b, latents, actions, engine="torch")
            for b in (batch, tripled, roomy)
        )
    torch.testing.assert_close(own, same, rtol=1e-5, atol=1e-5)  # the share is rounded differently
    assert (own - other).abs().min() > 1e-4
