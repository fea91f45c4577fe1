"""VRPLIB text files: read CVRP instances, and read and write solutions, as on CVRPLIB."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from rhumbline.errors import Infeasible, LimitExceeded, quote, shorten
from rhumbline.formats.best_known import read_best_known
from rhumbline.formats.safe_io import write_text
from rhumbline.formats.sections import (
    KEYWORD,
    Sections,
    SizeLimits,
    read_sections,
    text_lines,
)
from rhumbline.formats.unsupported.solomon import is_solomon, refuse_solomon
from rhumbline.formats.values.coordinates import (
    read_coordinates,
    read_display_positions,
    read_weight_matrix,
)
from rhumbline.formats.values.decimal_words import load_factor, parse_load
from rhumbline.problems.cvrp.instance import LIMITS, CVRPInstance, Routes, min_vehicles
from rhumbline.problems.decimals import Loads, format_load
from rhumbline.problems.metrics import Metric

VRPLIB_METRICS: dict[str, Metric] = {
    "EUC_2D": "EUC_2D",
    "CEIL_2D": "CEIL_2D",
    "FLOOR_2D": "FLOOR_2D",
    "EXACT_2D": "EXACT_2D",
    "EXPLICIT": "EXPLICIT",
}


@dataclass(frozen=True)
class RoutingGrammar:
    """The sections of instance files and the lines of solution files.

    Repetitions are possessive (`*+`), so that a line of spaces takes linear time.
    """

    sections: tuple[str, ...] = (
        "NODE_COORD_SECTION",
        "EDGE_WEIGHT_SECTION",
        "DISPLAY_DATA_SECTION",
        "DEMAND_SECTION",
        "DEPOT_SECTION",
    )
    route_line: re.Pattern[str] = re.compile(r"route\s*+#?\s*+\d*+\s*+:(.*)", re.IGNORECASE)
    cost_line: re.Pattern[str] = re.compile(r"cost(?:\s*+:)?+\s++(\S++)", re.IGNORECASE)
    cost_tolerance: float = 0.01  # share of a cost that scales and rounding rules may change


VRPLIB = RoutingGrammar()


@dataclass(frozen=True)
class NodeTable:
    """Nodes in the order of the file, the depot anywhere among them."""

    numbers: tuple[int, ...]
    xy: Float[np.ndarray, "N 2"] | None
    matrix: Float[np.ndarray, "N N"] | None


def read_vrp(path: Path) -> CVRPInstance:
    """Read a VRPLIB instance, with its best known cost if a JSON file beside it has one.

    The depot becomes node 0. The others keep the order of the file (of the matrix, if there is
    one), so that customer k is the k-th of them, as in CVRPLIB's solutions.
    """
    if is_solomon(path):
        refuse_solomon(path)
    sizes = SizeLimits(2, LIMITS.max_customers + 1, "nodes (the depot and its customers)")
    file = read_sections(path, VRPLIB.sections, sizes)
    file.check_type("CVRP", "rhumb reads files of capacitated vehicle routing here")
    refuse_duration_limits(file)
    size = file.dimension(sizes)
    factor = load_factor(file)
    demand_rows = read_demands(file, size, factor)
    nodes = read_nodes(file, size, demand_rows)
    missing = set(nodes.numbers) ^ set(demand_rows)
    if missing:
        raise file.error(*explain_mismatch(file, demand_rows, missing))
    depot = read_depot(file, set(demand_rows))
    customers = [index for index, number in enumerate(nodes.numbers) if number != depot]
    depot_index = nodes.numbers.index(depot)
    order = [depot_index, *customers]
    numbers = [nodes.numbers[index] for index in order]
    name = file.name()
    capacity = positive_header(file, "CAPACITY", "the load of a vehicle", factor)
    demands = tuple(demand_rows[number][1] for number in numbers)
    loads = Loads(demands, capacity, factor)
    lines = [demand_rows[number][0] for number in numbers]
    check_demands(file, lines, numbers, loads)
    return CVRPInstance(
        name=name,
        metric=file.choice("EDGE_WEIGHT_TYPE", VRPLIB_METRICS),
        demands=demands,
        capacity=capacity,
        xy=None if nodes.xy is None else nodes.xy[order],
        matrix=None if nodes.matrix is None else nodes.matrix[np.ix_(order, order)],
        vehicles=read_vehicles(file, loads),
        best_known=read_best_known(path.parent, name),
        load_factor=factor,
    )


def refuse_duration_limits(file: Sections) -> None:
    """Raise at a header that limits the duration of a route."""
    for key in ("DISTANCE", "SERVICE_TIME"):
        if key in file.headers:
            line, _ = file.headers[key]
            found = f"{key} limits the duration of routes, which is not supported"
            raise file.error(line, f"{found}; remove it to solve without")


def read_nodes(file: Sections, size: int, demand_nodes: Collection[int]) -> NodeTable:
    """Read the numbers of all nodes with their positions or their matrix.

    A matrix has the nodes in ascending order; without positions the demands name them.
    """
    if file.choice("EDGE_WEIGHT_TYPE", VRPLIB_METRICS) != "EXPLICIT":
        numbers, xy = read_coordinates(file, "NODE_COORD_SECTION", size)
        return NodeTable(numbers, xy, matrix=None)
    numbers = tuple(sorted(demand_nodes))
    xy = None
    display = read_display_positions(file, size)
    if display:
        numbers, xy = display
    matrix = read_weight_matrix(file, size)
    return NodeTable(numbers, xy, matrix)


def read_demands(file: Sections, size: int, factor: int) -> dict[int, tuple[int, int]]:
    """Read line and demand of each node number; demands are multiplied by the factor."""
    start, rows = file.section("DEMAND_SECTION")
    if len(rows) != size:
        raise file.error(start, explain_demand_count(file, size))
    seen: dict[int, int] = {}
    demands: list[int] = []
    for line, words in rows:
        if len(words) != 2:
            expected = "expected two: a node number and its demand"
            raise file.error(line, f"read {len(words)} words, {expected}")
        number, load = words
        node = file.parse_integer(line, number, "a node number")
        file.note_once(seen, node, line)
        demand = parse_load(file, (line, load), "the demand of a node", factor)
        demands.append(demand)
    rows_of_nodes = zip(seen.items(), demands, strict=True)
    return {node: (line, demand) for (node, line), demand in rows_of_nodes}


def explain_demand_count(file: Sections, size: int) -> str:
    """Return a message on too many or too few demands, with a node that has none, if known."""
    _, rows = file.section("DEMAND_SECTION")
    found = f"DEMAND_SECTION has {len(rows)} rows, DIMENSION says {size}"
    message = f"{found} (the depot needs a row with demand 0)"
    with_demand = {words[0] for _, words in rows}
    for _, words in file.rows.get("NODE_COORD_SECTION", ()):
        node = words[0]
        if node not in with_demand:
            return f"{message}; node {shorten(node)} has none"
    return message


def explain_mismatch(
    file: Sections, demand_rows: dict[int, tuple[int, int]], missing: set[int]
) -> tuple[int | None, str]:
    """Return line and message where the sections name different nodes."""
    node = min(missing)
    if node in demand_rows:
        line, _ = demand_rows[node]
        found = f"node {node} has a demand but no coordinates"
        return line, f"{found}; expected the same nodes in both sections"
    start, _ = file.section("DEMAND_SECTION")
    found = f"node {node} has coordinates but no row in DEMAND_SECTION"
    return start, f"{found}; expected one for every node"


def read_depot(file: Sections, numbers: set[int]) -> int:
    """Read the number of the only depot."""
    start, _ = file.section("DEPOT_SECTION")
    ending = "the depots, expected the next section or EOF"
    depots: list[tuple[int, int]] = []
    for line, word in file.words_to_end("DEPOT_SECTION", ending):
        number = file.parse_integer(line, word, "the node number of the depot or -1")
        depots.append((line, number))
    if not depots:
        expected = "expected the number of one node and then -1"
        raise file.error(start, f"DEPOT_SECTION names no depot, {expected}")
    if len(depots) > 1:
        line, _ = depots[1]
        found = f"DEPOT_SECTION names {len(depots)} depots, expected one"
        raise file.error(line, f"{found}; multi-depot is not supported")
    line, depot = depots[0]
    if depot not in numbers:
        found = f"the depot is node {depot}, which is not in the file"
        raise file.error(line, f"{found}; expected one of its nodes")
    return depot


def positive_header(file: Sections, key: str, what: str, factor: int = 0) -> int:
    """Return the value of a required header; a factor of loads is multiplied with it."""
    if key not in file.headers:
        expected = f"expected '{key} : ' and {what}"
        raise file.error(None, f"{key} is missing, {expected}")
    line, word = file.headers[key]
    description = f"{what} after {key}"
    if factor:
        value = parse_load(file, (line, word), description, factor)
    else:
        value = file.parse_integer(line, word, description)
    if not 1 <= value <= LIMITS.max_capacity:
        expected = f"expected {what}: 1 to {LIMITS.max_capacity}"
        raise file.error(line, f"{key} is {value}, {expected}")
    return value


def check_demands(file: Sections, lines: list[int], numbers: list[int], loads: Loads) -> None:
    """Raise if the depot has a demand, or at a customer whose demand exceeds the capacity."""
    factor = loads.factor
    for place, demand in enumerate(loads.demands):
        shown = format_load(demand, factor)
        node = numbers[place]
        if place == 0 and demand:
            raise file.error(lines[0], f"the depot (node {node}) demands {shown}, expected 0")
        if demand > loads.capacity:
            who = f"customer {place} (node {node})"
            limit = f"more than the CAPACITY {format_load(loads.capacity, factor)} of a vehicle"
            raise file.error(lines[place], f"{who} demands {shown}, {limit}")


def read_vehicles(file: Sections, loads: Loads) -> int | None:
    """Read the limit on the number of vehicles; None without VEHICLES.

    The k of a name such as A-n32-k5 is no limit.
    """
    if "VEHICLES" not in file.headers:
        return None
    vehicles = positive_header(file, "VEHICLES", "the number of vehicles")
    needed = min_vehicles(loads.demands, loads.capacity)
    if vehicles < needed:
        line, _ = file.headers["VEHICLES"]
        demand = format_load(sum(loads.demands), loads.factor)
        capacity = format_load(loads.capacity, loads.factor)
        need = f"the demand of {demand} needs at least {needed} of CAPACITY {capacity}"
        raise file.error(line, f"VEHICLES is {vehicles}, but {need}")
    return vehicles


def read_sol(path: Path, instance: CVRPInstance) -> Routes:
    """Read a CVRPLIB solution file, which must serve each customer of the instance once.

    Lines are 'Route #1: 3 5', 'Cost 1234', or 'KEY : value' with notes; a route without customers
    is left out. The file names no instance, so a cost that is far from the plan's is refused: the
    solution then belongs to another instance.
    """
    file = Sections(path, {}, {}, {})
    routes: list[tuple[int, ...]] = []
    seen: dict[int, int] = {}
    stated_costs: list[tuple[int, float]] = []
    for line, text in text_lines(path):
        if route := VRPLIB.route_line.fullmatch(text):
            routes.append(read_route(file, line, route[1].split(), instance, seen))
        elif cost := VRPLIB.cost_line.fullmatch(text):
            stated_costs.append((line, file.parse_number(line, cost[1])))
        elif not (KEYWORD.match(text) and ":" in text):
            expected = "expected 'Route #1: ' and customers, or 'Cost ' and a number"
            raise file.error(line, f"read {quote(text)}, {expected}")
    plan = Routes(tuple(route for route in routes if route))
    try:
        plan.check(instance)
    except Infeasible as error:
        raise file.violation(None, f"is no plan for {error}") from error
    for line, stated in stated_costs:
        check_stated_cost(file, line, stated, plan, instance)
    return plan


def check_stated_cost(
    file: Sections, line: int, stated: float, plan: Routes, instance: CVRPInstance
) -> None:
    """Raise if no rule of rounding explains the difference to the plan's cost.

    Where distances are rounded, each edge may differ by one.
    """
    cost = plan.cost(instance)
    edges = sum(len(route) + 1 for route in plan.routes)
    rounding = edges * instance.has_integer_costs
    difference = abs(stated - cost)
    tolerance = VRPLIB.cost_tolerance * cost
    if difference > tolerance + rounding:
        said = f"the cost is said to be {stated:,g}"
        found = f"in {shorten(instance.name)} these routes cost {cost:,g}"
        advice = "is this the solution of another instance? If not, take out this line"
        raise file.violation(line, f"{said}, {found}; {advice}")


def read_route(
    file: Sections, line: int, words: list[str], instance: CVRPInstance, seen: dict[int, int]
) -> tuple[int, ...]:
    """Return the customers of one route, and record their line in `seen`."""
    route = tuple(file.parse_integer(line, word, "the number of a customer") for word in words)
    for customer in route:
        if not 1 <= customer < instance.size:
            expected = f"expected 1 to {instance.size - 1}"
            found = f"customer {customer} is not in {shorten(instance.name)}, {expected}"
            raise file.violation(line, f"{found}; is this the solution of another instance?")
        if customer in seen:
            first = f"first on line {seen[customer]}"
            raise file.violation(line, f"customer {customer} is served twice, {first}")
        seen[customer] = line
    load = sum(instance.demands[customer] for customer in route)
    capacity = instance.capacity
    if load > capacity:
        found = f"the route carries {instance.show_load(load)}"
        limit = f"the capacity of {shorten(instance.name)} is"
        shown = instance.show_load(capacity)
        raise file.violation(line, f"{found}, {limit} {shown}")
    return route


def write_sol(path: Path, routes: Routes, instance: CVRPInstance, comment: str) -> None:
    """Check a plan and write it as CVRPLIB does; `comment` is unused, the format has none.

    A plan that only exceeds the limit on vehicles is written with a note that says so.
    """
    notes: list[str] = []
    try:
        routes.check(instance)
    except LimitExceeded as error:
        notes.append(f"COMMENT : over the limit: {error.excess}")
    plan = routes.to_file_numbers(instance)
    served = [route for route in plan if route]
    lines: list[str] = []
    for number, route in enumerate(served, 1):
        words = " ".join(map(str, route))
        lines.append(f"Route #{number}: {words}")
    lines.append(f"Cost {routes.cost(instance)}")
    lines += [*notes, ""]
    write_text(path, "\n".join(lines))
