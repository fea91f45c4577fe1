"""Make `harbour100.tsp`: 100 cities along a bay, in three towns behind it and scattered inland.

Run `python examples/make_harbour.py` from the project's root. Its output is always the same.
"""

from pathlib import Path

import numpy as np

from rhumbline.formats.tsplib import write_tsp
from rhumbline.problems.tsp import TSPInstance

SEED = 1514
COAST = 40  # cities on the shore
INLAND = 24  # cities behind it, outside towns
TOWNS = ((230, 760, 12), (560, 850, 10), (840, 700, 14))  # x, y and number of cities
PROVENANCE = (
    "made for rhumbline by examples/make_harbour.py (seed 1514), Apache-2.0; "
    "bay, three towns, hinterland"
)


def coast_height(x: np.ndarray) -> np.ndarray:
    """Return the height of the shore above the lower edge: a bay open downwards, with ripples."""
    return 150 + 330 * np.exp(-(((x - 480) / 190) ** 2)) + 25 * np.sin(x / 45)


def candidates(rng: np.random.Generator) -> np.ndarray:
    """Return more cities than needed of each kind, all on land: [rows, 3] of x, y and kind."""
    x = rng.uniform(10, 990, 400)
    shore = np.stack([x, coast_height(x) + rng.normal(0, 9, 400), np.zeros(400)], axis=1)
    x, y = rng.uniform(10, 990, (2, 400))
    inland = np.stack([x, y, np.ones(400)], axis=1)[y > coast_height(x) + 40]
    towns = [
        np.column_stack([rng.normal((x, y), 38, (100, 2)), np.full(100, kind)])
        for kind, (x, y, _) in enumerate(TOWNS, 2)
    ]
    return np.rint(np.concatenate([shore, inland, *towns]))


def select(rows: np.ndarray, wanted: list[int], gap: float = 12.0) -> np.ndarray:
    """Return the first rows of each kind that keep a distance to all selected before.

    `wanted` has a number for each kind; the result is [cities, 2].
    """
    taken: list[np.ndarray] = []
    left = list(wanted)
    for *xy, kind in rows:
        far = all(np.hypot(*(np.array(xy) - other)) >= gap for other in taken)
        if left[int(kind)] and far and min(xy) >= 0 and max(xy) <= 1000:
            taken.append(np.array(xy))
            left[int(kind)] -= 1
    assert not any(left)
    return np.array(taken)


def harbour() -> TSPInstance:
    """Return the instance; its cities are shuffled so that their order has no meaning."""
    rng = np.random.default_rng(SEED)
    wanted = [COAST, INLAND, *(count for _, _, count in TOWNS)]
    xy = select(candidates(rng), wanted)
    return TSPInstance("harbour100", "EUC_2D", xy=rng.permutation(xy))


if __name__ == "__main__":
    write_tsp(Path(__file__).parent / "harbour100.tsp", harbour(), PROVENANCE)
