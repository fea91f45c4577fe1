"""Regions of a large plan: neighbouring routes, which are an instance of their own."""

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from jaxtyping import Int

from rhumbline.problems.cvrp.instance import CVRPInstance, Routes


@dataclass(frozen=True)
class RegionTuning:
    """Sizes of regions."""

    # The shipped policy was trained with 100 customers, and knows up to 250. With 150 of them a
    # region takes 0.02 s of one core.
    max_customers: int = 150


TUNING = RegionTuning()


@dataclass(frozen=True)
class RouteRegion:
    """Some routes of a plan, and their customers as an instance."""

    instance: CVRPInstance
    nodes: Int[np.ndarray, "M"]  # the node of the large instance behind each node of the region
    routes: tuple[int, ...]  # their numbers in the plan
    cost: int | float


class RouteRegions:
    """A plan that is improved region by region."""

    def __init__(self, instance: CVRPInstance, plan: Routes) -> None:
        self.instance = instance
        self.routes = [route for route in plan.routes if route]
        self.route_of = np.zeros(instance.size, dtype=np.int64)
        self.number_routes()

    @property
    def plan(self) -> Routes:
        """The plan as it is now."""
        return Routes(tuple(self.routes))

    def number_routes(self) -> None:
        """Note the route of each customer."""
        customers = list[int]()
        numbers = list[int]()
        for number, route in enumerate(self.routes):
            customers += route
            repeated = [number] * len(route)
            numbers += repeated
        self.route_of[customers] = numbers

    def choose(self, rng: np.random.Generator) -> RouteRegion | None:
        """Return the routes that come nearest to a random customer, as many as a region holds.

        None if the nearest route alone has too many customers.
        """
        customers = np.arange(1, self.instance.size)
        seed = int(rng.integers(1, self.instance.size))
        lengths = self.instance.legs(seed, customers)
        order = lengths.argsort(kind="stable")
        nearest_first = customers[order]
        numbers = self.route_of[nearest_first]
        chosen = dict[int, None]()
        count = 0
        for number in numbers.tolist():
            if number in chosen:
                continue
            count += len(self.routes[number])
            if count > TUNING.max_customers:
                break
            chosen[number] = None
        return self.make_region(tuple(chosen)) if chosen else None

    def make_region(self, numbers: tuple[int, ...]) -> RouteRegion:
        """Return some routes as a region; it may have the vehicles that the others leave."""
        whole = self.instance
        routes = tuple(self.routes[number] for number in numbers)
        customers = sorted(chain.from_iterable(routes))
        nodes = np.asarray([0, *customers])
        vehicles = whole.vehicles
        if vehicles is not None:
            spare = max(0, vehicles - len(self.routes))
            vehicles = len(routes) + spare
        xy = None
        if whole.xy is not None:
            xy = whole.xy[nodes]
        matrix = None
        if whole.matrix is not None:
            matrix = whole.matrix[nodes[:, None], nodes]
        part = replace(
            whole,
            name=f"{whole.name}, a region",
            demands=tuple(whole.demands[node] for node in (0, *customers)),
            xy=xy,
            matrix=matrix,
            vehicles=vehicles,
            best_known=None,
        )
        cost = Routes(routes).cost(whole)
        return RouteRegion(part, nodes, numbers, cost)

    def put_back(self, region: RouteRegion, plan: Routes) -> None:
        """Replace the routes of a region by a plan of its instance."""
        removed = set(region.routes)
        kept = [route for number, route in enumerate(self.routes) if number not in removed]
        for route in plan.routes:
            customers = region.nodes[list(route)]
            kept.append(tuple(customers.tolist()))
        self.routes = kept
        self.number_routes()
