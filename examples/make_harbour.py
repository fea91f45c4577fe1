"""Make `harbour100.tsp`: 100 cities along a bay, in three towns behind it and scattered inland.

Run `python examples/make_harbour.py` from the project's root; it writes the same file each time.
"""

from pathlib import Path

import numpy as np

from rhumbline.formats.tsplib import write_tsp
from rhumbline.problems.tsp import TSPInstance

SEED = 1514
COAST, INLAND = 40, 24
TOWNS = ((230, 760, 12), (560, 850, 10), (840, 700, 14))  # x, y and number of cities
PROVENANCE = "made for rhumbline by examples/make_harbour.py (seed 1514), Apache-2.0; bay, three towns, hinterland"


def coast_height(x: np.ndarray) -> np.ndarray:
    """Height of the shore above the lower edge: a bay that opens downwards, with ripples."""
    return 150 + 330 * np.exp(-(((x - 480) / 190) ** 2)) + 25 * np.sin(x / 45)


def candidates(rng: np.random.Generator) -> np.ndarray:
    """More cities than needed of each kind, all on land: [rows, 3] of x, y and the kind's
    number.
    """
    x = rng.uniform(10, 990, 400)
    shore = np.stack([x, coast_height(x) + rng.normal(0, 9, 400), np.zeros(400)], axis=1)
    x, y = rng.uniform(10, 990, (2, 400))
    inland = np.stack([x, y, np.ones(400)], axis=1)[y > coast_height(x) + 40]
    towns = [
        np.column_stack([rng.normal((x, y), 38, (100, 2)), np.full(100, kind)])
        for kind, (x, y, _) in enumerate(TOWNS, 2)
    ]
    return np.rint(np.concatenate([shore, inland, *towns]))


def apart(rows: np.ndarray, wanted: list[int], gap: float = 12.0) -> np.ndarray:
    """The first rows of each kind that keep their distance from all rows taken before: [cities,
    2].
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
    """The instance; its cities are shuffled so that their order says nothing."""
    rng = np.random.default_rng(SEED)
    xy = apart(candidates(rng), [COAST, INLAND, *(count for _, _, count in TOWNS)])
    return TSPInstance("harbour100", "EUC_2D", xy=rng.permutation(xy))


if __name__ == "__main__":
    write_tsp(Path(__file__).parent / "harbour100.tsp", harbour(), PROVENANCE)
