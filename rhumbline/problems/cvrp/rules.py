"""Rules of the CVRP: batches of instances and rollouts in progress on the device.

Node 0 is the depot. Demands are whole numbers, and all vehicles have one capacity.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.problems.cvrp.instance import CVRPInstance, Routes
from rhumbline.problems.kernel_traits import GraphUse, RolloutKernel
from rhumbline.problems.metrics import longer_side, scale_to_unit_square
from rhumbline.problems.nodes import take_nodes
from rhumbline.record import PER_INSTANCE, Record


@dataclass(frozen=True)
class CVRPBatch(Record):
    """Instances of one size on a device; node 0 is the depot."""

    xy: Float[Tensor, "B N 2"]  # in the unit square, one scale for both axes
    demand: Int[Tensor, "B N"]  # whole units, so that comparisons are exact
    capacity: Int[Tensor, "B"]
    key: Int[Tensor, "B"]  # instance id: selects its random numbers, whatever its place
    scale: Float[Tensor, "B"]  # costs times this are in the instance's own units
    distance: Float[Tensor, "B N N"] | None = None  # the file's metric; None: Euclidean from `xy`
    vehicles: Int[Tensor, "B"] | None = None  # most routes of a plan; None means no limit
    surcharge: Float[Tensor, "B"] | None = None  # for each route above: more than any plan costs

    @property
    def has_euclidean_cost(self) -> bool:
        """Return whether a cost is only the Euclidean length in `xy`, which all kernels support."""
        return self.distance is None and self.vehicles is None

    def without_surcharge(self, cost: Float[Tensor, "B *R"]) -> Float[Tensor, "B *R"]:
        """Return costs without surcharges for too many routes.

        A surcharge exceeds the length of any plan, so the remainder is the length.
        """
        if self.surcharge is None:
            return cost
        trailing = cost.ndim - 1
        ones = [1] * trailing
        surcharge = self.surcharge.view(-1, *ones)
        return cost.remainder(surcharge)


@dataclass(frozen=True)
class CVRPState(Record):
    """Rollouts in progress. A finished one stays at the depot with all customers served."""

    last: Int[Tensor, "B R"]
    left: Int[Tensor, "B R"]  # capacity left in the vehicle
    visited: Bool[Tensor, "B R N"]  # customers served; the depot never counts
    demand: Int[Tensor, "B 1 N"] = field(metadata=PER_INSTANCE)
    capacity: Int[Tensor, "B 1"] = field(metadata=PER_INSTANCE)


class CVRP:
    """The rules of the CVRP for the rollout engines. Every method is pure."""

    name = solves = "cvrp"
    rollout_kernel: RolloutKernel | None = "routes"
    cuda_graph: GraphUse | None = None
    nouns: tuple[str, str] = ("customer", "customers")
    size_unit = "customers"
    max_size = 1001  # the depot counts
    max_random_demand = 9  # of the field's random instances (Kool et al. 2019)
    default_size: int | str = 100
    all_starts_size = 200  # up to this many customers an attempt starts at each of them
    max_starts = 100  # starts of an attempt in larger instances

    def sample(self, count: int, size: int, rng: torch.Generator) -> CVRPBatch:
        """Return uniform positions, demands of 1 to 9, and the default capacity for `size`."""
        device = rng.device
        shape = (count, size + 1)
        xy = torch.rand(*shape, 2, generator=rng, device=device)
        demand = torch.randint(
            1,
            self.max_random_demand + 1,
            shape,
            generator=rng,
            device=device,
        )
        demand[:, 0] = 0
        key = torch.arange(count, device=device)
        scale = torch.ones(count, device=device)
        capacity = torch.full_like(key, default_capacity(size))
        return CVRPBatch(xy, demand, capacity, key, scale)

    def collate(self, instances: Sequence[CVRPInstance]) -> CVRPBatch:
        """Return instances of one size as a batch on the CPU, scaled for the policy."""
        squares: list[np.ndarray] = []
        keys: list[int] = []
        for instance in instances:
            square = scale_to_unit_square(instance.planar_xy).astype(np.float32)
            squares.append(square)
            keys.append(key_of(instance, square))
        distance = None
        if all(instance.metric == "EXACT_2D" for instance in instances):
            sides = [longer_side(instance.planar_xy) for instance in instances]
            scale = torch.tensor(sides)
        else:
            distances = [instance.distances for instance in instances]
            distance = torch.from_numpy(np.stack(distances))
            scale = torch.ones(len(instances))
        batch = CVRPBatch(
            xy=torch.from_numpy(np.stack(squares)),
            demand=torch.tensor([instance.demands for instance in instances]),
            capacity=torch.tensor([instance.capacity for instance in instances]),
            key=torch.tensor(keys),
            scale=scale,
            distance=distance,
        )
        limits = [instance.vehicles for instance in instances]
        return with_vehicle_limits(batch, limits)

    def item_count(self, instance: CVRPInstance) -> int:
        """Return the number of customers."""
        return instance.size - 1

    def action_count(self, batch: CVRPBatch) -> int:
        """Return the number of nodes."""
        return batch.xy.shape[1]

    def starts(self, batch: CVRPBatch) -> Int[Tensor, "B S"]:
        """Return every customer; in large instances `max_starts`, evenly over the file's order."""
        count = len(batch.xy)
        customers = batch.xy.shape[1] - 1
        starts = self.max_starts
        if customers <= self.all_starts_size:
            starts = customers
        index = torch.arange(starts, device=batch.xy.device)
        divisor = max(1, starts)
        place = index * customers // divisor
        customer = place + 1
        return customer.expand(count, starts)

    def reset(self, batch: CVRPBatch, starts: Int[Tensor, "B R"]) -> CVRPState:
        """Return the state in which each vehicle has served its first customer."""
        size = batch.demand.shape[1]
        visited = torch.zeros(
            *starts.shape,
            size,
            dtype=torch.bool,
            device=starts.device,
        )
        visited.scatter_(2, starts[..., None], True)
        capacity = batch.capacity[:, None]
        first_demand = batch.demand.gather(1, starts)
        return CVRPState(
            last=starts,
            left=capacity - first_demand,
            visited=visited,
            demand=batch.demand[:, None],
            capacity=capacity,
        )

    def mask(self, state: CVRPState) -> Bool[Tensor, "B R N"]:
        """Return True for unserved customers that fit, and for the depot if it may be visited.

        It may unless the vehicle is already there and some customer is not served yet.
        """
        fits = state.demand <= state.left[..., None]
        allowed = ~state.visited & fits
        is_away = state.last != 0
        allowed[..., 0] = is_away | self.all_served(state)
        return allowed

    def all_served(self, state: CVRPState) -> Bool[Tensor, "B R"]:
        """Return whether all customers are served."""
        return state.visited[..., 1:].all(-1)

    def step(self, state: CVRPState, action: Int[Tensor, "B R"]) -> CVRPState:
        """Return the state after driving to `action`.

        A customer takes its demand from the vehicle; the depot fills the vehicle.
        """
        node = action[..., None]
        demands = state.demand.expand_as(state.visited)
        demand = demands.gather(2, node)[..., 0]
        is_depot = action == 0
        left = torch.where(is_depot, state.capacity, state.left - demand)
        is_customer = (action != 0)[..., None]
        is_served = is_customer | state.visited.gather(2, node)
        visited = state.visited.scatter(2, node, is_served)
        return replace(
            state,
            last=action,
            left=left,
            visited=visited,
        )

    def finished(self, state: CVRPState) -> bool:
        """Return whether every vehicle is at the depot and all customers are served."""
        is_home = state.last == 0
        is_done = is_home & self.all_served(state)
        return bool(is_done.all())

    def horizon(self, batch: CVRPBatch) -> int:
        """Return the longest action sequence: every customer has a route of its own."""
        nodes = batch.xy.shape[1]
        customers = nodes - 1
        return 2 * customers

    def replay(self, batch: CVRPBatch, actions: Int[Tensor, "B R T"]) -> CVRPState:
        """Return the states before decisions 1..T-1 of sequences padded with the depot.

        Steps are flattened into the rollout axis.
        """
        count, rollouts, steps = actions.shape
        size = batch.demand.shape[1]
        device = actions.device
        time = torch.arange(steps, device=device)
        served_at = torch.zeros(
            count,
            rollouts,
            size,
            dtype=torch.int64,
            device=device,
        )
        served_at.scatter_(2, actions, time.expand_as(actions))  # customers occur once
        visited = served_at.unsqueeze(2) < time[1:, None]
        visited[..., 0] = False
        demand = batch.demand[:, None]
        capacity = batch.capacity[:, None]
        demands = demand.expand(-1, rollouts, -1)
        loads = demands.gather(2, actions).cumsum(2)
        # What was served up to the vehicle's last visit to the depot.
        at_depot = torch.where(actions == 0, loads, 0)
        unloaded = at_depot.cummax(2).values
        left = capacity.unsqueeze(2) - (loads - unloaded)
        flat = (count, rollouts * (steps - 1))
        return CVRPState(
            last=actions[..., :-1].reshape(flat),
            left=left[..., :-1].reshape(flat),
            visited=visited.reshape(*flat, size),
            demand=demand,
            capacity=capacity,
        )

    def cost(self, batch: CVRPBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """Return the total length, with a surcharge for each route above the limit.

        The surcharge makes a search minimise the number of excess routes first.
        """
        length = self.total_length(batch, actions)
        if batch.vehicles is None or batch.surcharge is None:
            return length
        following = F.pad(actions, (0, 1))[..., 1:]
        is_customer = actions != 0
        is_route_end = is_customer & (following == 0)
        routes = is_route_end.sum(-1)
        limit = batch.vehicles[:, None]
        excess = (routes - limit).clamp(min=0)
        surcharge = batch.surcharge[:, None]
        return length + excess * surcharge

    def total_length(self, batch: CVRPBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """Return the length of the walk from the depot through all actions and back.

        Staying at the depot costs nothing.
        """
        return self.leg_lengths(batch, actions).sum(-1)

    def leg_lengths(
        self, batch: CVRPBatch, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R T1"]:
        """Return the distance to each action from the one before, and last the way back.

        The walk begins and ends at the depot.
        """
        walk = F.pad(actions, (1, 1))
        here = walk[..., :-1]
        there = walk[..., 1:]
        if batch.distance is None:
            from_xy = take_nodes(batch.xy, here)
            to_xy = take_nodes(batch.xy, there)
            return (from_xy - to_xy).norm(dim=-1)
        size = batch.distance.shape[1]
        edge = here * size + there
        distances = batch.distance.flatten(1)
        lengths = distances.gather(1, edge.flatten(1))
        return lengths.view(here.shape)

    def outcome(
        self, batch: CVRPBatch, state: CVRPState, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """Return the cost of sequences, computed from the actions; the state holds no cost."""
        return self.cost(batch, actions)

    def views(
        self, actions: Int[Tensor, "B T"], uniforms: Float[Tensor, "B V 2"]
    ) -> Int[Tensor, "B V T"]:
        """Return the same routes in rotated order and either direction.

        The uniforms select both. Sorting by (route, depot last, place in the route) does it.
        """
        count, steps = actions.shape
        shape = (count, uniforms.shape[1], steps)
        turn, orientation = uniforms.split(1, dim=2)
        actions = actions[:, None]
        is_depot = actions == 0
        is_last = is_depot.long()
        route = is_last.cumsum(2) - is_last  # a depot belongs to the route that it ends
        of_customers = torch.where(is_depot, 0, route)
        routes = of_customers.amax(2, keepdim=True) + 1
        is_used = route < routes  # the rest is padding
        is_reversed = orientation < 0.5
        rotation = (turn * routes).long()
        backwards = routes - 1 - route
        rank = torch.where(is_reversed, backwards, route)
        rank = (rank + rotation) % routes
        place = torch.arange(steps, device=actions.device)
        from_end = steps - 1 - place
        place = torch.where(is_reversed & ~is_depot, from_end, place)
        sort_key = (rank * 2 + is_last) * steps + place
        behind_all = 2 * steps * steps
        sort_key = torch.where(is_used, sort_key, behind_all)
        order = sort_key.argsort(dim=2, stable=True)
        return actions.expand(shape).gather(2, order)

    def improve(
        self, batch: CVRPBatch, actions: Int[Tensor, "B R T"], rounds: int
    ) -> Int[Tensor, "B R T"]:
        """Raise: there is no batched local search for the CVRP."""
        message = "there is no local improvement for cvrp yet; set it to 0"
        raise InputError(f"objective.improve: {message}")

    def decode(self, instance: CVRPInstance, actions: Sequence[int]) -> Routes:
        """Return the routes of an action sequence, which ends one at each depot."""
        routes: list[list[int]] = [[]]
        for action in actions:
            if action:
                routes[-1].append(int(action))
            elif routes[-1]:
                routes.append([])
        return Routes(tuple(tuple(route) for route in routes if route))


def key_of(instance: CVRPInstance, xy: Float[np.ndarray, "N 2"]) -> int:
    """Return the instance id: a checksum of scaled positions, demands and capacity."""
    loads = [*instance.demands, instance.capacity]
    table = np.asarray(loads, dtype=np.int64)
    load_bytes = table.tobytes()
    xy_bytes = xy.tobytes()
    xy_sum = crc32(xy_bytes)
    return crc32(load_bytes, xy_sum)


def with_vehicle_limits(batch: CVRPBatch, vehicles: Sequence[int | None]) -> CVRPBatch:
    """Return the batch with limits on vehicles; None means no limit for that instance.

    Surcharges are in double precision, so that lengths survive the addition.
    """
    if all(limit is None for limit in vehicles):
        return batch
    max_edges = 2 * (batch.xy.shape[1] - 1)  # of the longest walk, which has half as many routes
    if batch.distance is None:
        longest = torch.full_like(batch.scale, 2.0)  # more than the diagonal of the unit square
    else:
        longest = batch.distance.flatten(1).amax(1)
    limits = [max_edges if limit is None else min(limit, max_edges) for limit in vehicles]
    longest_walk = max_edges * longest.double()
    return replace(batch, vehicles=torch.tensor(limits), surcharge=1.0 + longest_walk)


def default_capacity(customers: int) -> int:
    """Return the field's capacity for a number of customers, or that of the nearest size.

    Sources: Kool et al. 2019, Hottung et al. 2022.
    """
    capacities = {
        20: 30,
        50: 40,
        100: 50,
        125: 55,
        150: 60,
        200: 70,
        500: 100,
    }
    nearest = min(capacities, key=lambda size: abs(size - customers))
    return capacities[nearest]
