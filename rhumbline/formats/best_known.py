"""Best known costs: `optima.json` or `best_known.json` beside the instances, a JSON object of names
and numbers.

In place of a number there may be an object as JSPLIB has them, with an "optimum" or with "bounds"
that have an "upper".
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

from rhumbline.errors import InputError
from rhumbline.formats.safe_io import read_bytes
from rhumbline.problems.jssp import JSSPInstance

BEST_KNOWN_FILES = ("optima.json", "best_known.json")


def read_best_known(folder: Path, name: str) -> float | None:
    """The cost that the first file of the folder with this instance has for it; None without
    file or entry.
    """
    for path in (folder / file for file in BEST_KNOWN_FILES):
        costs = load_costs(path) if path.exists() else {}
        if name in costs:
            return check_known_cost(path, name, cost_of_entry(costs[name]))
    return None


def cost_of_entry(entry: object) -> object:
    """The number of an entry that tells more than that."""
    facts = cast(dict[str, object], entry) if isinstance(entry, dict) else {}
    bounds = facts.get("bounds")
    upper = cast(dict[str, object], bounds).get("upper") if isinstance(bounds, dict) else None
    return next((x for x in (facts.get("optimum"), upper) if x is not None), entry)


def check_known_cost(path: Path, name: str, cost: object) -> float:
    """The same cost, or an error unless it is one."""
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < 1e18:
        message = (
            f"{name!r} has {str(cost)[:40]!r}, expected its best known cost: a number of 0 or more"
        )
        raise InputError.at(path, None, message)
    return float(cost)


def load_costs(path: Path) -> dict[str, object]:
    """The whole object, its values unchecked."""
    try:
        costs = json.loads(read_bytes(path))
    except (
        ValueError,
        RecursionError,
    ) as error:  # bad JSON, bad UTF-8, too long a number, too deep a nesting
        line = getattr(error, "lineno", None)
        raise InputError.at(
            path, line, f"is not JSON ({error}); correct or remove the file"
        ) from error
    if not isinstance(costs, dict):
        raise InputError.at(
            path, None, "expected a JSON object of instance names and costs; correct or remove it"
        )
    return costs


# By jobs and machines, so that a stranger's file that happens to be called la01 has to look like
# it.
CLASSIC_MAKESPANS = {
    (6, 6): "ft06 55",
    (10, 5): "la01 666 la02 655 la03 597 la04 590 la05 593",
    (15, 5): "la06 926 la07 890 la08 863 la09 951 la10 958",
    (20, 5): "ft20 1165 la11 1222 la12 1039 la13 1150 la14 1292 la15 1207",
    (
        10,
        10,
    ): "ft10 930 abz5 1234 abz6 943 la16 945 la17 784 la18 848 la19 842 la20 902 orb01 1059 orb02 888 "
    "orb03 1005 orb04 1005 orb05 887 orb06 1010 orb07 397 orb08 899 orb09 934 orb10 944",
    (15, 10): "la21 1046 la22 927 la23 1032 la24 935 la25 977",
    (20, 10): "la26 1218 la27 1235 la28 1216 la29 1152 la30 1355 swv01 1407 swv03 1398 swv05 1424",
    (30, 10): "la31 1784 la32 1850 la33 1719 la34 1721 la35 1888",
    (
        15,
        15,
    ): "la36 1268 la37 1397 la38 1196 la39 1233 la40 1222 ta01 1231 ta02 1244 ta03 1218 ta04 1175 ta05 1224 "
    "ta06 1238 ta07 1227 ta08 1217 ta09 1274 ta10 1241",
    (
        20,
        15,
    ): "abz7 656 abz9 679 swv07 1600 swv09 1661 ta11 1361 ta13 1342 ta15 1340 ta17 1462 ta19 1335",
    (20, 20): "yn1 885 yn3 892 ta21 1644 ta23 1557 ta25 1595 ta27 1680 ta29 1635",
    (30, 15): "ta31 1764 ta33 1793 ta35 2007 ta37 1778 ta39 1795",
}


def with_best_makespan(folder: Path, instance: JSSPInstance) -> JSSPInstance:
    """The instance with the best known makespan that a JSON file of the folder, or else the
    table here, has for it.
    """
    beside = read_best_known(folder, instance.name)
    return replace(instance, best_known=classic_makespan(instance) if beside is None else beside)


def classic_makespan(instance: JSSPInstance) -> float | None:
    """What the table has for an instance of this name and size; None too if the instance cannot
    be that quick.
    """
    words = CLASSIC_MAKESPANS.get((instance.job_count, instance.machine_count), "").split()
    costs = dict(zip(words[::2], map(float, words[1::2]), strict=True))
    cost = costs.get(instance.name.lower())
    return cost if cost is not None and cost >= instance.lower_bound else None
