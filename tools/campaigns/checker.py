"""Prices and checks plans from the raw numbers of an instance; shares no code with the package.

Everything is plain Python on lists. A function returns the cost of a plan, or raises `WrongPlan`.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

Point = tuple[float, float]
Matrix = Sequence[Sequence[float]]


class WrongPlan(Exception):
    """A plan breaks a rule of its problem."""


def exact_matrix(points: Sequence[Point]) -> list[list[float]]:
    """Return Euclidean distances as they are."""
    return [[math.hypot(a[0] - b[0], a[1] - b[1]) for b in points] for a in points]


def rounded_matrix(points: Sequence[Point]) -> list[list[float]]:
    """Return Euclidean distances to the nearest whole number, as TSPLIB's EUC_2D asks."""
    return [
        [int(math.sqrt((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) + 0.5) for b in points]
        for a in points
    ]


def tour_length(matrix: Matrix, cities: Sequence[int]) -> float:
    """Return the length of a closed tour of all cities 0..N-1."""
    if sorted(cities) != list(range(len(matrix))):
        raise WrongPlan(f"the tour {list(cities)} is no permutation of {len(matrix)} cities")
    length = 0.0
    for place, city in enumerate(cities):
        following = cities[(place + 1) % len(cities)]
        length += matrix[city][following]
    return length


def routes_length(
    matrix: Matrix,
    demands: Sequence[int],
    capacity: int,
    vehicles: int | None,
    routes: Sequence[Sequence[int]],
) -> float:
    """Return the length of routes from the depot 0 to customers 1..N-1 and back."""
    customers = sorted(customer for route in routes for customer in route)
    if customers != list(range(1, len(matrix))):
        raise WrongPlan(f"the routes {routes} do not serve each customer once")
    if vehicles is not None and len(routes) > vehicles:
        raise WrongPlan(f"{len(routes)} routes, {vehicles} vehicles")
    length = 0.0
    for route in routes:
        if sum(demands[customer] for customer in route) > capacity:
            raise WrongPlan(f"the route {list(route)} is overloaded")
        stops = [0, *route, 0]
        length += sum(matrix[a][b] for a, b in pairwise(stops))
    return length


def makespan(
    durations: Sequence[Sequence[int]],
    machines: Sequence[Sequence[int]],
    starts: Sequence[Sequence[int]],
) -> int:
    """Return the time at which the last operation ends."""
    if [len(row) for row in starts] != [len(row) for row in durations]:
        raise WrongPlan("the schedule has not one start for each operation")
    busy: dict[int, list[tuple[int, int]]] = {}
    ends = []
    for job, row in enumerate(starts):
        free = 0
        for step, start in enumerate(row):
            if start < free:
                raise WrongPlan(f"operation {step} of job {job} starts at {start}, before {free}")
            free = start + durations[job][step]
            busy.setdefault(machines[job][step], []).append((start, free))
        ends.append(free)
    for machine, spans in busy.items():
        longer = sorted(span for span in spans if span[0] < span[1])
        for (_, end), (start, _) in pairwise(longer):
            if start < end:
                raise WrongPlan(f"machine {machine} has two operations at time {start}")
        for instant, end in spans:
            if instant == end and any(start < instant < stop for start, stop in longer):
                raise WrongPlan(f"machine {machine} is interrupted at time {instant}")
    return max(ends)
