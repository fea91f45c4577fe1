"""Best known costs: `optima.json` or `best_known.json` beside the instances, a JSON object of names and numbers.

In place of a number there may be an object as JSPLIB has them, with an "optimum" or with "bounds" that have an "upper".
"""

import json
from pathlib import Path
from typing import cast

from rhumbline.errors import InputError
from rhumbline.formats.atomic import read_bytes

FILES = ("optima.json", "best_known.json")


def best_known(folder: Path, name: str) -> float | None:
    """The cost that the first file of the folder with this instance has for it; None without file or entry."""
    for path in (folder / file for file in FILES):
        costs = load_costs(path) if path.exists() else {}
        if name in costs:
            return checked(path, name, number_of(costs[name]))
    return None


def number_of(entry: object) -> object:
    """The number of an entry that tells more than that."""
    facts = cast(dict[str, object], entry) if isinstance(entry, dict) else {}
    bounds = facts.get("bounds")
    upper = cast(dict[str, object], bounds).get("upper") if isinstance(bounds, dict) else None
    return next((x for x in (facts.get("optimum"), upper) if x is not None), entry)


def checked(path: Path, name: str, cost: object) -> float:
    """The same cost, or an error unless it is one."""
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < 1e18:
        message = f"{name!r} has {str(cost)[:40]!r}, expected its best known cost: a number of 0 or more"
        raise InputError.at(path, None, message)
    return float(cost)


def load_costs(path: Path) -> dict[str, object]:
    """The whole object, its values unchecked."""
    try:
        costs = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8, too long a number, too deep a nesting
        line = getattr(error, "lineno", None)
        raise InputError.at(path, line, f"is not JSON ({error}); correct or remove the file") from error
    if not isinstance(costs, dict):
        raise InputError.at(path, None, "expected a JSON object of instance names and costs; correct or remove it")
    return costs
