"""Small random instances as raw numbers, and what `rhumbline.solve` takes for each of them.

The numbers stay beside the source that the package reads, so that a plan can be checked against
what was meant, not against what was read.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.campaigns import checker


@dataclass(frozen=True)
class RawInstance:
    """An instance as the package takes it, and the price of a plan by the independent checker."""

    source: Any
    price: Callable[[Any], float]  # takes a plan in the numbers of its file
    text: str  # everything needed to make the instance again


def random_points(rng: random.Random, count: int) -> list[checker.Point]:
    """Return points of one of several kinds: whole numbers, coincident, on a line, decimals."""
    kind = rng.choice(("grid", "few", "line", "decimals", "far"))
    if kind == "grid":
        return [(rng.randrange(100), rng.randrange(100)) for _ in range(count)]
    if kind == "few":
        return [(rng.randrange(2), rng.randrange(2)) for _ in range(count)]
    if kind == "line":
        return [(rng.randrange(1000), 7) for _ in range(count)]
    if kind == "far":
        return [(rng.randrange(-(10**6), 10**6), rng.randrange(10**6)) for _ in range(count)]
    return [(rng.random(), rng.random()) for _ in range(count)]


def tsp_arrays(rng: random.Random, size: int, folder: Path) -> RawInstance:
    """Return a TSP as an array of coordinates."""
    import numpy as np

    points = random_points(rng, size)
    matrix = checker.exact_matrix(points)
    return RawInstance(np.asarray(points, float), tour_price(matrix), f"tsp {points}")


def tsp_matrix(rng: random.Random, size: int, folder: Path) -> RawInstance:
    """Return a TSP as a matrix of whole numbers that need not fit any plane."""
    import numpy as np

    size = max(3, size)  # two rows of two numbers would be coordinates
    matrix = [[0] * size for _ in range(size)]
    for a in range(size):
        for b in range(a):
            matrix[a][b] = matrix[b][a] = rng.randrange(rng.choice((2, 100, 10**5)))
    return RawInstance(np.asarray(matrix), tour_price(matrix), f"tsp matrix {matrix}")


def tsp_file(rng: random.Random, size: int, folder: Path) -> RawInstance:
    """Return a TSP as a TSPLIB file with rounded distances."""
    points = random_points(rng, size)
    path = folder / "cities.tsp"
    text = f"NAME: c\nTYPE: TSP\nDIMENSION: {size}\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n"
    text += "".join(f"{city} {x} {y}\n" for city, (x, y) in enumerate(points, start=1))
    path.write_text(text + "EOF\n")
    matrix = checker.rounded_matrix(points)
    return RawInstance(path, tour_price(matrix), text)


def tour_price(matrix: checker.Matrix) -> Callable[[Any], float]:
    """Return the price of tours in file numbers, which begin with 1."""
    return lambda plan: checker.tour_length(matrix, [city - 1 for city in plan])


def random_demands(rng: random.Random, customers: int) -> tuple[list[int], int]:
    """Return demands with the depot's 0 in front, and a capacity, tight or wide."""
    capacity = rng.choice((1, 5, 30, 1000))
    demands = [rng.randrange(capacity + 1) for _ in range(customers)]
    return [0, *demands], capacity


def cvrp_arrays(rng: random.Random, size: int, folder: Path) -> RawInstance:
    """Return a CVRP as a tuple of arrays."""
    import numpy as np

    points = random_points(rng, size)
    demands, capacity = random_demands(rng, size - 1)
    source = np.asarray(points[0]), np.asarray(points[1:]), np.asarray(demands[1:]), capacity
    matrix = checker.exact_matrix(points)
    text = f"cvrp {points} {demands} {capacity}"
    return RawInstance(source, routes_price(matrix, demands, capacity), text)


def cvrp_file(rng: random.Random, size: int, folder: Path) -> RawInstance:
    """Return a CVRP as a VRPLIB file with rounded distances."""
    points = random_points(rng, size)
    demands, capacity = random_demands(rng, size - 1)
    lines = [
        *("NAME : c", "TYPE : CVRP", f"DIMENSION : {size}", "EDGE_WEIGHT_TYPE : EUC_2D"),
        *(f"CAPACITY : {capacity}", "NODE_COORD_SECTION"),
        *(f"{node} {x} {y}" for node, (x, y) in enumerate(points, start=1)),
        "DEMAND_SECTION",
        *(f"{node} {demand}" for node, demand in enumerate(demands, start=1)),
        *("DEPOT_SECTION", "1", "-1", "EOF"),
    ]
    path = folder / "customers.vrp"
    text = "\n".join(lines) + "\n"
    path.write_text(text)
    matrix = checker.rounded_matrix(points)
    return RawInstance(path, routes_price(matrix, demands, capacity), text)


def routes_price(
    matrix: checker.Matrix, demands: Sequence[int], capacity: int
) -> Callable[[Any], float]:
    """Return the price of routes."""
    return lambda plan: checker.routes_length(matrix, demands, capacity, None, plan)


def job_shop(rng: random.Random, jobs: int, folder: Path) -> RawInstance:
    """Return a job shop as a mapping.

    Rows may be shorter than others, may visit a machine twice, and durations may be 0.
    """
    count = max(2, jobs - 1)
    longest = count
    durations = []
    machines = []
    for job in range(jobs):
        # The first job has the full length, so that all shops of a size have one shape.
        length = longest if job == 0 else rng.randrange(1, longest + 1)
        durations.append([rng.choice((0, 1, rng.randrange(100))) for _ in range(length)])
        if rng.random() < 0.5:
            row = rng.sample(range(count), length)
        else:
            row = [rng.randrange(count) for _ in range(length)]
        machines.append(row)
    source = {
        "durations": durations,
        "machines": machines,
        "machine_count": count,
        "first_machine": 0,
    }
    price = lambda starts: checker.makespan(durations, machines, starts)  # noqa: E731
    return RawInstance(source, price, f"jssp {source}")


# By the name that the package gives the problem.
MAKERS = {
    "tsp": (tsp_arrays, tsp_matrix, tsp_file),
    "cvrp": (cvrp_arrays, cvrp_file),
    "jssp": (job_shop,),
}
FILE_MAKERS = (tsp_file, cvrp_file)  # slower than the others
