"""Instances and plans on the host, exact."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from rhumbline.errors import Infeasible
from rhumbline.problems.metrics import euclidean_distances

TOLERANCE = 1e-9  # of the limit, for sums of distances


@dataclass(frozen=True, eq=False)
class OPInstance:
    """Places with prizes, the depot first, and the greatest length of a trip."""

    problem = "op"
    has_integer_costs = True

    name: str
    xy: np.ndarray  # [N, 2]
    prizes: tuple[int, ...]  # of each node; 0 for the depot
    limit: float
    best_known: float | None = None  # the negative prize

    @property
    def size(self) -> int:
        return len(self.xy)

    @property
    def details(self) -> str:
        return f"trips of at most {self.limit:g}"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @cached_property
    def distances(self) -> np.ndarray:
        return euclidean_distances(self.xy)


@dataclass(frozen=True)
class Trip:
    """Customers 1..N-1 in visiting order; the trip begins and ends at the depot."""

    customers: tuple[int, ...]

    def check(self, instance: OPInstance) -> None:
        unknown = set(self.customers) - set(range(1, instance.size))
        if unknown or len(set(self.customers)) < len(self.customers):
            raise Infeasible(f"{instance.name}: a customer is unknown or visited twice")
        walk = [0, *self.customers, 0]
        length = instance.distances[walk[:-1], walk[1:]].sum()
        if length > instance.limit * (1 + TOLERANCE):
            limit = f"the limit is {instance.limit:g}"
            raise Infeasible(f"{instance.name}: the trip has length {length:g}, {limit}")

    def cost(self, instance: OPInstance) -> int:
        """Return the negative prize: lower is better."""
        return -sum(instance.prizes[customer] for customer in self.customers)

    def to_file_numbers(self, instance: OPInstance) -> list[int]:
        return list(self.customers)
