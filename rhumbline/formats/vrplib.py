"""VRPLIB text files: instances of capacitated vehicle routing in, solutions in and out, as on
CVRPLIB.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from rhumbline.errors import Infeasible, InputError
from rhumbline.formats.best_known import read_best_known
from rhumbline.formats.coordinates import (
    read_coordinates,
    read_display_positions,
    read_weight_matrix,
)
from rhumbline.formats.safe_io import write_text
from rhumbline.formats.sections import KEYWORD, Sections, read_sections, text_lines
from rhumbline.problems.cvrp import CVRP, CVRPInstance, Routes, min_vehicles
from rhumbline.problems.cvrp.instance import MAX_CAPACITY
from rhumbline.problems.metrics import Metric

VRPLIB_METRICS: dict[str, Metric] = {
    "EUC_2D": "EUC_2D",
    "CEIL_2D": "CEIL_2D",
    "FLOOR_2D": "FLOOR_2D",
    "EXACT_2D": "EXACT_2D",
    "EXPLICIT": "EXPLICIT",
}
VRPLIB_SECTIONS = (
    "NODE_COORD_SECTION",
    "EDGE_WEIGHT_SECTION",
    "DISPLAY_DATA_SECTION",
    "DEMAND_SECTION",
    "DEPOT_SECTION",
)
ROUTE_LINE = re.compile(r"route\s*#?\s*\d*\s*:(.*)", re.IGNORECASE)
COST_LINE = re.compile(r"cost\s*:?\s+(\S+)", re.IGNORECASE)
ROUNDING = 0.01  # of a cost: what scales and rules of rounding may make of it


@dataclass(frozen=True)
class NodeTable:
    """Nodes in the order of the file, the depot somewhere among them."""

    numbers: tuple[int, ...]
    xy: Float[np.ndarray, "N 2"] | None
    matrix: Float[np.ndarray, "N N"] | None


def read_vrp(path: Path) -> CVRPInstance:
    """The instance of a VRPLIB file, with its best known cost if a JSON file in the same folder has
    it.

    The depot becomes node 0 and the others keep the order of the file (of the matrix, if there is
    one), so that customer k is the k-th of them, as in CVRPLIB's solutions.
    """
    file = read_sections(path, VRPLIB_SECTIONS)
    file.check_type("CVRP", "rhumb reads files of capacitated vehicle routing here")
    refuse_durations(file)
    size = file.dimension(2, CVRP.max_size, "nodes (the depot and its customers)")
    demand = read_demands(file, size)
    nodes = read_nodes(file, size, demand)
    if missing := set(nodes.numbers) ^ set(demand):
        raise file.error(*explain_mismatch(file, demand, missing))
    depot = read_depot(file, set(demand))
    order = [nodes.numbers.index(depot), *(i for i, n in enumerate(nodes.numbers) if n != depot)]
    numbers = [nodes.numbers[i] for i in order]
    name = file.name()
    capacity = positive_header(file, "CAPACITY", "the load of a vehicle")
    check_demands(file, [demand[n] for n in numbers], numbers, capacity)
    demands = tuple(demand[n][1] for n in numbers)
    return CVRPInstance(
        name=name,
        metric=file.choice("EDGE_WEIGHT_TYPE", VRPLIB_METRICS),
        demands=demands,
        capacity=capacity,
        xy=None if nodes.xy is None else nodes.xy[order],
        matrix=None if nodes.matrix is None else nodes.matrix[np.ix_(order, order)],
        vehicles=read_vehicles(file, demands, capacity),
        best_known=read_best_known(path.parent, name),
    )


def refuse_durations(file: Sections) -> None:
    """Raise at the headers that limit how long a route may be."""
    for key in ("DISTANCE", "SERVICE_TIME"):
        if key in file.headers:
            message = f"{key} limits the duration of routes, which is not supported; remove it to solve without"
            raise file.error(file.headers[key][0], message)


def read_nodes(file: Sections, size: int, demand: Collection[int]) -> NodeTable:
    """Numbers of all nodes with their positions or their matrix, which has the nodes in
    ascending order.
    """
    if file.choice("EDGE_WEIGHT_TYPE", VRPLIB_METRICS) != "EXPLICIT":
        return NodeTable(*read_coordinates(file, "NODE_COORD_SECTION", size), matrix=None)
    numbers, xy = read_display_positions(file, size) or (tuple(sorted(demand)), None)
    return NodeTable(numbers, xy, read_weight_matrix(file, size))


def read_demands(file: Sections, size: int) -> dict[int, tuple[int, int]]:
    """Line and demand of each node number."""
    start, rows = file.section("DEMAND_SECTION")
    if len(rows) != size:
        message = f"DEMAND_SECTION has {len(rows)} rows, DIMENSION says {size} (the depot needs a row with demand 0)"
        given = {words[0] for _, words in rows}
        without = (
            words[0]
            for _, words in file.rows.get("NODE_COORD_SECTION", ())
            if words[0] not in given
        )
        raise file.error(
            start, message + next((f"; node {node[:40]} has none" for node in without), "")
        )
    seen: dict[int, int] = {}
    demands: list[int] = []
    for line, words in rows:
        if len(words) != 2:
            raise file.error(
                line, f"read {len(words)} words, expected two: a node number and its demand"
            )
        file.once(seen, file.whole(line, words[0], "a node number"), line)
        demands.append(file.whole(line, words[1], "the demand of a node"))
    return {
        node: (line, demand) for (node, line), demand in zip(seen.items(), demands, strict=True)
    }


def explain_mismatch(
    file: Sections, demand: dict[int, tuple[int, int]], missing: set[int]
) -> tuple[int | None, str]:
    """Where and why sections speak of different nodes."""
    node = min(missing)
    if node in demand:
        return demand[node][
            0
        ], f"node {node} has a demand but no coordinates; expected the same nodes in both sections"
    start, _ = file.section("DEMAND_SECTION")
    return (
        start,
        f"node {node} has coordinates but no row in DEMAND_SECTION; expected one for every node",
    )


def read_depot(file: Sections, numbers: set[int]) -> int:
    """The number of the only depot."""
    start, _ = file.section("DEPOT_SECTION")
    words = file.words_to_end("DEPOT_SECTION", "the depots, expected the next section or EOF")
    depots = [
        (line, file.whole(line, word, "the node number of the depot or -1")) for line, word in words
    ]
    if not depots:
        raise file.error(
            start, "DEPOT_SECTION names no depot, expected the number of one node and then -1"
        )
    if len(depots) > 1:
        raise file.error(
            depots[1][0],
            f"DEPOT_SECTION names {len(depots)} depots, expected one; multi-depot is not supported",
        )
    line, depot = depots[0]
    if depot not in numbers:
        raise file.error(
            line, f"the depot is node {depot}, which is not in the file; expected one of its nodes"
        )
    return depot


def positive_header(file: Sections, key: str, what: str) -> int:
    """The value of a header that counts something."""
    if key not in file.headers:
        raise file.error(None, f"{key} is missing, expected '{key} : ' and {what}")
    line, word = file.headers[key]
    value = file.whole(line, word, f"{what} after {key}")
    if not 1 <= value <= MAX_CAPACITY:
        raise file.error(line, f"{key} is {value}, expected {what}: 1 to {MAX_CAPACITY}")
    return value


def check_demands(
    file: Sections, rows: list[tuple[int, int]], numbers: list[int], capacity: int
) -> None:
    """Raise at a depot that demands something and at customers that no vehicle can serve."""
    line, demand = rows[0]
    if demand:
        raise file.error(line, f"the depot (node {numbers[0]}) demands {demand}, expected 0")
    for customer, (line, demand) in enumerate(rows[1:], 1):
        if demand > capacity:
            who = f"customer {customer} (node {numbers[customer]})"
            raise file.error(
                line, f"{who} demands {demand}, more than the CAPACITY {capacity} of a vehicle"
            )


def read_vehicles(file: Sections, demands: tuple[int, ...], capacity: int) -> int | None:
    """The most vehicles that the file allows; None without VEHICLES. The k of a name such as
    A-n32-k5 is no limit.
    """
    if "VEHICLES" not in file.headers:
        return None
    vehicles = positive_header(file, "VEHICLES", "the number of vehicles")
    needed = min_vehicles(demands, capacity)
    if vehicles < needed:
        message = f"VEHICLES is {vehicles}, but the demand of {sum(demands)} needs at least {needed} of CAPACITY {capacity}"
        raise file.error(file.headers["VEHICLES"][0], message)
    return vehicles


def read_sol(path: Path, instance: CVRPInstance) -> Routes:
    """The routes of a CVRPLIB solution file, which must serve each customer of the instance once.

    Lines are 'Route #1: 3 5', 'Cost 1234', or 'KEY : value' with notes; a route without customers
    is left out. The file names no instance, so a cost that is far from the plan's says that it
    belongs to another one.
    """
    file = Sections(path, {}, {}, {})
    routes: list[tuple[int, ...]] = []
    seen: dict[int, int] = {}
    said: list[tuple[int, float]] = []
    for line, text in text_lines(path):
        if route := ROUTE_LINE.fullmatch(text):
            routes.append(read_route(file, line, route[1].split(), instance, seen))
        elif cost := COST_LINE.fullmatch(text):
            said.append((line, file.number(line, cost[1])))
        elif not (KEYWORD.match(text) and ":" in text):
            raise file.error(
                line,
                f"read {text[:40]!r}, expected 'Route #1: ' and customers, or 'Cost ' and a number",
            )
    plan = Routes(tuple(route for route in routes if route))
    try:
        plan.check(instance)
    except Infeasible as error:
        raise InputError.at(path, None, f"is no plan for {error}") from error
    for line, cost in said:
        check_stated_cost(file, line, cost, plan, instance)
    return plan


def check_stated_cost(
    file: Sections, line: int, said: float, plan: Routes, instance: CVRPInstance
) -> None:
    """Refuse a cost that no rule of rounding makes of the plan's; where distances are rounded,
    each may be one off.
    """
    links = sum(len(route) + 1 for route in plan.routes)
    cost = plan.cost(instance)
    if abs(said - cost) > ROUNDING * cost + links * instance.has_integer_costs:
        words = f"the cost is said to be {said:,g}, in {instance.name} these routes cost {cost:,g}"
        raise file.error(
            line, f"{words}; is this the solution of another instance? If not, take out this line"
        )


def read_route(
    file: Sections, line: int, words: list[str], instance: CVRPInstance, seen: dict[int, int]
) -> tuple[int, ...]:
    """The customers of one route, noted in `seen`."""
    route = tuple(file.whole(line, word, "the number of a customer") for word in words)
    for customer in route:
        if not 1 <= customer < instance.size:
            known = f"expected 1 to {instance.size - 1}; is this the solution of another instance?"
            raise file.error(line, f"customer {customer} is not in {instance.name}, {known}")
        if customer in seen:
            raise file.error(
                line, f"customer {customer} is served twice, first on line {seen[customer]}"
            )
        seen[customer] = line
    load = sum(instance.demands[customer] for customer in route)
    if load > instance.capacity:
        raise file.error(
            line,
            f"the route carries {load}, the capacity of {instance.name} is {instance.capacity}",
        )
    return route


def write_sol(path: Path, routes: Routes, instance: CVRPInstance, comment: str) -> None:
    """Check a plan and write it as CVRPLIB does. The format knows no comments, so that `comment`
    is left out.
    """
    routes.check(instance)
    served = [route for route in routes.to_file_numbers(instance) if route]
    lines = [
        f"Route #{number}: {' '.join(map(str, route))}" for number, route in enumerate(served, 1)
    ]
    write_text(path, "\n".join([*lines, f"Cost {routes.cost(instance)}", ""]))
