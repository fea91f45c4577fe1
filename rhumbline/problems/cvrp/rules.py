"""The capacitated vehicle routing problem: a depot (node 0), customers with whole demands,
vehicles of one capacity.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.problems.cvrp.instance import MAX_CUSTOMERS, CVRPInstance, Routes
from rhumbline.problems.metrics import longer_side, scale_to_unit_square
from rhumbline.problems.nodes import take_nodes
from rhumbline.record import Record

# Capacity of the field's random instances by number of customers (Kool et al. 2019, Hottung et al.
# 2022).
CAPACITY = {20: 30, 50: 40, 100: 50, 125: 55, 150: 60, 200: 70, 500: 100}
MAX_RANDOM_DEMAND = 9


@dataclass(frozen=True)
class CVRPBatch(Record):
    """Instances of one size on a device; node 0 is the depot."""

    xy: Float[Tensor, "B N 2"]  # in the unit square, one scale for both axes
    demand: Int[Tensor, "B N"]  # whole units, so that comparisons are exact
    capacity: Int[Tensor, "B"]
    key: Int[
        Tensor, "B"
    ]  # names the instance to the decoding noise, whatever its place in the batch
    scale: Float[Tensor, "B"]  # costs times this are in the instance's own units
    distance: Float[Tensor, "B N N"] | None = (
        None  # the file's metric; None means straight lines between `xy`
    )
    vehicles: Int[Tensor, "B"] | None = (
        None  # most routes of a plan; None means that every fleet is free
    )
    surcharge: Float[Tensor, "B"] | None = (
        None  # on each route too many: more than any plan is long
    )

    @property
    def has_euclidean_cost(self) -> bool:
        """Whether a cost is the length of straight lines and nothing else, as kernels have it."""
        return self.distance is None and self.vehicles is None

    def without_surcharge(self, cost: Float[Tensor, "B *R"]) -> Float[Tensor, "B *R"]:
        """Costs without surcharges."""
        return (
            cost
            if self.surcharge is None
            else cost.remainder(self.surcharge.view(-1, *[1] * (cost.ndim - 1)))
        )


@dataclass(frozen=True)
class CVRPState(Record):
    """Rollouts in progress. A finished one stands at the depot with nobody left, and stays
    there.
    """

    last: Int[Tensor, "B R"]
    left: Int[Tensor, "B R"]  # capacity left in the vehicle
    visited: Bool[Tensor, "B R N"]  # customers served; the depot never counts
    demand: Int[Tensor, "B 1 N"]
    capacity: Int[Tensor, "B 1"]


class CVRP:
    """The problem as the rollout engines see it. Every method is pure."""

    name = solves = "cvrp"
    nouns: tuple[str, str] = ("customer", "customers")
    size_unit = "customers"
    max_size = MAX_CUSTOMERS + 1  # with the depot
    default_size: int | str = 100
    every_customer_starts = 200
    most_starts = 100

    def sample(self, count: int, size: int, rng: torch.Generator) -> CVRPBatch:
        """Uniform positions, demands of 1 to 9, and the usual capacity for `size` customers."""
        xy = torch.rand(count, size + 1, 2, generator=rng, device=rng.device)
        demand = torch.randint(
            1, MAX_RANDOM_DEMAND + 1, (count, size + 1), generator=rng, device=rng.device
        )
        demand[:, 0] = 0
        key = torch.arange(count, device=rng.device)
        ones = torch.ones(count, device=rng.device)
        return CVRPBatch(xy, demand, torch.full_like(key, default_capacity(size)), key, ones)

    def collate(self, instances: Sequence[CVRPInstance]) -> CVRPBatch:
        """Instances of one size as a batch on the CPU, scaled for the policy."""
        xy = torch.from_numpy(
            np.stack([scale_to_unit_square(i.planar_xy) for i in instances]).astype(np.float32)
        )
        demand = torch.tensor([i.demands for i in instances])
        capacity = torch.tensor([i.capacity for i in instances])
        words = [np.asarray([*i.demands, i.capacity], dtype=np.int64).tobytes() for i in instances]
        key = torch.tensor(
            [crc32(w, crc32(x.numpy().tobytes())) for x, w in zip(xy, words, strict=True)]
        )
        if all(i.metric == "EXACT_2D" for i in instances):
            batch = CVRPBatch(
                xy,
                demand,
                capacity,
                key,
                torch.tensor([longer_side(i.planar_xy) for i in instances]),
            )
        else:
            distance = torch.from_numpy(np.stack([i.distances for i in instances]))
            batch = CVRPBatch(xy, demand, capacity, key, torch.ones(len(instances)), distance)
        return with_vehicle_limits(batch, [i.vehicles for i in instances])

    def item_count(self, instance: CVRPInstance) -> int:
        """How many there are to visit."""
        return instance.size - 1

    def action_count(self, batch: CVRPBatch) -> int:
        """How many nodes there are."""
        return batch.xy.shape[1]

    def starts(self, batch: CVRPBatch) -> Int[Tensor, "B S"]:
        """Every customer; in large instances `most_starts` of them, spread evenly over the
        file's order.
        """
        count = len(batch.xy)
        customers = batch.xy.shape[1] - 1
        chosen = customers if customers <= self.every_customer_starts else self.most_starts
        index = torch.arange(chosen, device=batch.xy.device) * customers // max(1, chosen) + 1
        return index.expand(count, chosen)

    def reset(self, batch: CVRPBatch, starts: Int[Tensor, "B R"]) -> CVRPState:
        """Each vehicle has left the depot and served its first customer."""
        (count, size), rollouts = batch.demand.shape, starts.shape[1]
        visited = torch.zeros(count, rollouts, size, dtype=torch.bool, device=starts.device)
        demand = batch.demand[:, None]
        capacity = batch.capacity[:, None]
        left = capacity - batch.demand.gather(1, starts)
        return CVRPState(
            starts, left, visited.scatter_(2, starts[..., None], True), demand, capacity
        )

    def mask(self, state: CVRPState) -> Bool[Tensor, "B R N"]:
        """Customers that are unserved and fit; the depot unless the vehicle is there and
        somebody still waits.
        """
        allowed = ~state.visited & (state.demand <= state.left[..., None])
        allowed[..., 0] = (state.last != 0) | self.served(state)
        return allowed

    def served(self, state: CVRPState) -> Bool[Tensor, "B R"]:
        """Whether nobody waits any more."""
        return state.visited[..., 1:].all(-1)

    def step(self, state: CVRPState, action: Int[Tensor, "B R"]) -> CVRPState:
        """The state after driving to `action`: a customer's demand is loaded off, the depot
        fills the vehicle.
        """
        demand = state.demand.expand_as(state.visited).gather(2, action[..., None])[..., 0]
        left = torch.where(action == 0, state.capacity, state.left - demand)
        customer = (action != 0)[..., None]
        visited = state.visited.scatter(
            2, action[..., None], customer | state.visited.gather(2, action[..., None])
        )
        return replace(state, last=action, left=left, visited=visited)

    def finished(self, state: CVRPState) -> bool:
        """Whether every vehicle is home and nobody waits."""
        return bool(((state.last == 0) & self.served(state)).all())

    def horizon(self, batch: CVRPBatch) -> int:
        """At worst every customer has a route of its own."""
        return 2 * (batch.xy.shape[1] - 1)

    def replay(self, batch: CVRPBatch, actions: Int[Tensor, "B R T"]) -> CVRPState:
        """The states before decisions 1..T-1 of given sequences (padded with the depot), steps
        flattened.
        """
        (count, rollouts, steps), size = actions.shape, batch.demand.shape[1]
        time = torch.arange(steps, device=actions.device).expand_as(actions)
        when = torch.zeros(count, rollouts, size, dtype=torch.int64, device=actions.device)
        when = when.scatter_(2, actions, time)  # customers occur once
        visited = when[:, :, None, :] < time[:1, :1, 1:, None]
        visited[..., 0] = False
        loads = batch.demand[:, None].expand(-1, rollouts, -1).gather(2, actions).cumsum(2)
        unloaded = (
            torch.where(actions == 0, loads, 0).cummax(2).values
        )  # served when the vehicle was last at the depot
        left = batch.capacity[:, None, None] - (loads - unloaded)
        flat = (count, rollouts * (steps - 1))
        return CVRPState(
            last=actions[:, :, :-1].reshape(flat),
            left=left[:, :, :-1].reshape(flat),
            visited=visited.reshape(*flat, size),
            demand=batch.demand[:, None],
            capacity=batch.capacity[:, None],
        )

    def cost(self, batch: CVRPBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """Length of the walk from the depot through all actions and back; waiting at the depot
        costs nothing.

        Where the fleet is limited, routes too many come on top: a search then minimises these
        first.
        """
        length = self.total_length(batch, actions)
        if batch.vehicles is None or batch.surcharge is None:
            return length
        following = torch.nn.functional.pad(actions, (0, 1))[..., 1:]
        routes = ((actions != 0) & (following == 0)).sum(
            -1
        )  # one ends where a depot follows a customer
        return length + (routes - batch.vehicles[:, None]).clamp(min=0) * batch.surcharge[:, None]

    def total_length(self, batch: CVRPBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """The walk alone."""
        return self.leg_lengths(batch, actions).sum(-1)

    def leg_lengths(
        self, batch: CVRPBatch, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R T1"]:
        """The way to each action, from the depot or the action before, and at last the way back."""
        walk = torch.nn.functional.pad(actions, (1, 1))
        here = walk[..., :-1]
        there = walk[..., 1:]
        if batch.distance is None:
            return (take_nodes(batch.xy, here) - take_nodes(batch.xy, there)).norm(dim=-1)
        size = batch.distance.shape[1]
        edges = batch.distance.flatten(1).gather(1, (here * size + there).flatten(1))
        return edges.view(here.shape)

    def outcome(
        self, batch: CVRPBatch, state: CVRPState, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """The same; the last state does not know it."""
        return self.cost(batch, actions)

    def views(
        self, actions: Int[Tensor, "B T"], uniforms: Float[Tensor, "B V 2"]
    ) -> Int[Tensor, "B V T"]:
        """The same routes in rotated order and either direction, as the uniforms say."""
        count = len(actions)
        steps = actions.shape[1]
        views = uniforms.shape[1]
        route = (actions == 0).long().cumsum(1) - (actions == 0).long()  # a depot ends its route
        routes = (torch.where(actions != 0, route, 0).amax(1) + 1)[:, None, None]
        rank = route[:, None].expand(count, views, steps)
        real = rank < routes
        back = uniforms[..., 1:] < 0.5
        turn = (uniforms[..., :1] * routes).long()
        rank = (torch.where(back, routes - 1 - rank, rank) + turn) % routes
        place = torch.arange(steps, device=actions.device).expand(count, views, steps)
        place = torch.where(back & (actions != 0)[:, None], steps - 1 - place, place)
        depot_last = (actions == 0)[:, None].expand(count, views, steps).long()
        order = torch.where(
            real, (rank * 2 + depot_last) * steps + place, 2 * steps * steps
        ).argsort(dim=2, stable=True)
        return actions[:, None].expand(-1, views, -1).gather(2, order)

    def improve(
        self, batch: CVRPBatch, actions: Int[Tensor, "B R T"], rounds: int
    ) -> Int[Tensor, "B R T"]:
        """There is no local improvement for vehicle routes yet."""
        raise InputError(
            "objective.improve: there is no local improvement for cvrp yet; set it to 0"
        )

    def decode(self, instance: CVRPInstance, actions: Sequence[int]) -> Routes:
        """The routes that an action sequence spells: cut at the depot."""
        routes: list[list[int]] = [[]]
        for action in actions:
            if action:
                routes[-1].append(int(action))
            elif routes[-1]:
                routes.append([])
        return Routes(tuple(tuple(route) for route in routes if route))


def with_vehicle_limits(batch: CVRPBatch, vehicles: Sequence[int | None]) -> CVRPBatch:
    """The batch with limits on vehicles, of which None is none; surcharges are in double
    precision.
    """
    if all(most is None for most in vehicles):
        return batch
    edges = 2 * (batch.xy.shape[1] - 1)  # of the longest walk, which can have half as many routes
    longest = (
        torch.full_like(batch.scale, 2.0)
        if batch.distance is None
        else batch.distance.flatten(1).amax(1)
    )
    most = torch.tensor([edges if most is None else most for most in vehicles])
    return replace(batch, vehicles=most, surcharge=1.0 + edges * longest.double())


def default_capacity(customers: int) -> int:
    """The field's capacity for a number of customers; between its sizes, the nearest one's."""
    return CAPACITY[min(CAPACITY, key=lambda size: abs(size - customers))]
