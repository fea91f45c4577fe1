"""Plans from the numbers of a JSON result, as `rhumb solve --json` prints them."""

from typing import Any

from rhumbline.problems.cvrp import Routes
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.tsp import Tour, TSPInstance


def parse_tour(numbers: Any, instance: TSPInstance) -> Tour:
    """Return a tour from the file's own node numbers."""
    numbered = enumerate(instance.node_numbers)
    city_of = {number: index for index, number in numbered}
    order = tuple(city_of[number] for number in numbers)
    return Tour(order)


def parse_routes(numbers: Any, _: Any) -> Routes:
    """Return routes from lists of customers; empty ones are left out."""
    rows = integer_lists(numbers)
    routes = [row for row in rows if row]
    return Routes(tuple(routes))


def parse_schedule(numbers: Any, _: Any) -> Schedule:
    """Return a schedule from the start times of each job."""
    return Schedule(integer_lists(numbers))


def integer_lists(numbers: Any) -> tuple[tuple[int, ...], ...]:
    """Return lists of whole numbers as tuples; raise `TypeError` unless they are such."""
    rows = tuple(tuple(row) for row in numbers)
    if any(type(x) is not int for row in rows for x in row):
        raise TypeError("not a whole number")
    return rows
