"""Best known costs: from a JSON file beside the instances, or from the table of classic job shops.

The file is `optima.json` or `best_known.json`: an object of instance names and costs. In place of a
cost there may be an object as JSPLIB has them, with "optimum" or with "bounds" that have "upper".

The table serves job shops without such a file. Its makespans are optimal, or the least upper bound
that JSPLIB lists. Sources: Fisher & Thompson 1963 (ft), Lawrence 1984 (la), Adams, Balas & Zawack
1988 (abz), Applegate & Cook 1991 (orb), Storer, Wu & Vaccari 1992 (swv), Yamada & Nakano 1992 (yn),
Taillard 1993 (ta). The package holds only these numbers, not the instances.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

from rhumbline.errors import InputError, explain_parse_error, quote, shorten
from rhumbline.formats.safe_io import LIMITS, read_bytes
from rhumbline.problems.jssp.instance import JSSPInstance

BEST_KNOWN_FILES = ("optima.json", "best_known.json")

# Keyed by jobs and machines: an unrelated file called la01 must also have the size of la01.
CLASSIC_MAKESPANS: dict[tuple[int, int], str] = {
    (6, 6): "ft06 55",
    (10, 5): "la01 666 la02 655 la03 597 la04 590 la05 593",
    (15, 5): "la06 926 la07 890 la08 863 la09 951 la10 958",
    (20, 5): "ft20 1165 la11 1222 la12 1039 la13 1150 la14 1292 la15 1207",
    (10, 10): "ft10 930 abz5 1234 abz6 943 la16 945 la17 784 la18 848 la19 842 la20 902 "
    "orb01 1059 orb02 888 orb03 1005 orb04 1005 orb05 887 orb06 1010 orb07 397 orb08 899 "
    "orb09 934 orb10 944",
    (15, 10): "la21 1046 la22 927 la23 1032 la24 935 la25 977",
    (20, 10): "la26 1218 la27 1235 la28 1216 la29 1152 la30 1355 swv01 1407 swv03 1398 swv05 1424",
    (30, 10): "la31 1784 la32 1850 la33 1719 la34 1721 la35 1888",
    (15, 15): "la36 1268 la37 1397 la38 1196 la39 1233 la40 1222 ta01 1231 ta02 1244 ta03 1218 "
    "ta04 1175 ta05 1224 ta06 1238 ta07 1227 ta08 1217 ta09 1274 ta10 1241",
    (20, 15): "abz7 656 abz9 679 swv07 1600 swv09 1661 ta11 1361 ta13 1342 ta15 1340 ta17 1462 "
    "ta19 1335",
    (20, 20): "yn1 885 yn3 892 ta21 1644 ta23 1557 ta25 1595 ta27 1680 ta29 1635",
    (30, 15): "ta31 1764 ta33 1793 ta35 2007 ta37 1778 ta39 1795",
}


def read_best_known(folder: Path, name: str) -> float | None:
    """Return the cost of an instance in the first file of the folder that lists it, else None."""
    for file in BEST_KNOWN_FILES:
        path = folder / file
        costs = load_costs(path) if path.exists() else {}
        if name in costs:
            return check_known_cost(path, name, cost_of_entry(costs[name]))
    return None


def cost_of_entry(entry: object) -> object:
    """Return the cost of an entry that may be an object as in JSPLIB; its type is unchecked."""
    facts = as_object(entry)
    optimum = facts.get("optimum")
    if optimum is not None:
        return optimum
    bounds = as_object(facts.get("bounds"))
    upper = bounds.get("upper")
    if upper is not None:
        return upper
    return entry


def as_object(value: object) -> dict[str, object]:
    """Return a JSON object, or an empty one for any other value."""
    if isinstance(value, dict):
        return cast(dict[str, object], value)
    return {}


def check_known_cost(path: Path, name: str, cost: object) -> float:
    """Return the cost as a float, or raise unless it is a number of 0 or more."""
    shown = shorten(cost)
    if isinstance(cost, bool):
        cost = None  # Python counts True as a number
    if isinstance(cost, int | float) and 0 <= cost < 1e18:
        return float(cost)
    found = f"{quote(name)} has {quote(shown)}"
    expected = "expected its best known cost: a number of 0 or more"
    message = f"{found}, {expected}"
    raise InputError.at(path, None, message)


def load_costs(path: Path) -> dict[str, object]:
    """Read the whole object of a file; its values are unchecked."""
    try:
        costs = json.loads(read_bytes(path, LIMITS.max_text_bytes))
    except (ValueError, RecursionError) as error:  # bad JSON or UTF-8, a huge number, deep nesting
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        message = f"is not JSON ({explain_parse_error(error)}); correct or remove the file"
        raise InputError.at(path, line, message) from error
    if not isinstance(costs, dict):
        message = "expected a JSON object of instance names and costs; correct or remove it"
        raise InputError.at(path, None, message)
    return costs


def with_best_makespan(folder: Path, instance: JSSPInstance) -> JSSPInstance:
    """Return the job shop with its best known makespan, if there is one.

    A file of the folder has priority over the table.
    """
    known = read_best_known(folder, instance.name)
    if known is None:
        known = classic_makespan(instance)
    return replace(instance, best_known=known)


def classic_makespan(instance: JSSPInstance) -> float | None:
    """Return the makespan of the table for an instance of this name and size, else None.

    A makespan below the instance's lower bound belongs to another instance and is ignored.
    """
    size = (instance.job_count, instance.machine_count)
    row = CLASSIC_MAKESPANS.get(size, "")
    words = row.split()
    names = words[::2]
    numbers = map(float, words[1::2])
    makespans = dict(zip(names, numbers, strict=True))
    name = instance.name.lower()
    makespan = makespans.get(name)
    if makespan is None or makespan < instance.lower_bound:
        return None
    return makespan
