"""Make `bakery80.vrp`: a bakery delivers crates to 80 shops, in two towns and along a road.

Run `python examples/make_bakery.py` from the project's root. Its output is always the same.
"""

from pathlib import Path

import numpy as np

from rhumbline.problems.cvrp import CVRPInstance

SEED = 1733
CAPACITY = 90  # crates
BAKERY = (80, 420)
TOWNS = ((420, 640, 26), (760, 300, 30))  # x, y and number of shops
ROAD = 24  # shops along it
PROVENANCE = (
    "made for rhumbline by examples/make_bakery.py (seed 1733), Apache-2.0; two towns and a road"
)


def shops(rng: np.random.Generator) -> np.ndarray:
    """Return positions in whole numbers, shuffled so that their order has no meaning."""
    towns = [rng.normal((x, y), 70, (count, 2)) for x, y, count in TOWNS]
    x = rng.uniform(100, 980, ROAD)
    road = np.stack([x, 420 + 120 * np.sin(x / 160) + rng.normal(0, 12, ROAD)], axis=1)
    return rng.permutation(np.rint(np.concatenate([*towns, road])).clip(0, 1000))


def bakery() -> CVRPInstance:
    """Return the instance: most shops take a few crates, every eighth many."""
    rng = np.random.default_rng(SEED)
    xy = np.concatenate([[BAKERY], shops(rng)]).astype(float)
    crates = np.where(
        rng.random(len(xy) - 1) < 1 / 8,
        rng.integers(25, 46, len(xy) - 1),
        rng.integers(2, 13, len(xy) - 1),
    )
    return CVRPInstance(
        "bakery80", "EUC_2D", demands=(0, *crates.tolist()), capacity=CAPACITY, xy=xy
    )


def text(instance: CVRPInstance) -> str:
    """Return the text of the file; the bakery is node 1."""
    assert instance.xy is not None
    head = {
        "NAME": instance.name,
        "COMMENT": PROVENANCE,
        "TYPE": "CVRP",
        "DIMENSION": len(instance.xy),
    }
    head |= {"EDGE_WEIGHT_TYPE": instance.metric, "CAPACITY": instance.capacity}
    lines = [f"{key} : {value}" for key, value in head.items()]
    places = [f"{i} {x:.0f} {y:.0f}" for i, (x, y) in enumerate(instance.xy, 1)]
    crates = [f"{i} {demand}" for i, demand in enumerate(instance.demands, 1)]
    lines += [
        "NODE_COORD_SECTION",
        *places,
        "DEMAND_SECTION",
        *crates,
        "DEPOT_SECTION",
        "1",
        "-1",
        "EOF",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "bakery80.vrp").write_text(text(bakery()), encoding="utf-8")
