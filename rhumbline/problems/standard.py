"""The field's standard test sets, regenerated bit for bit from their seeds and checked by hash (spec 5)."""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from jaxtyping import Float

from rhumbline.errors import InputError


@dataclass(frozen=True)
class StandardSet:
    """How a set was drawn: one seed of NumPy's legacy generator for the whole file."""

    size: int
    count: int
    seed: int
    digest: str  # first 32 hex digits of the SHA-256 over the float64 bytes


TSP_SETS = {
    "tsp100": StandardSet(100, 10_000, 1234, "e16413180f18711fc3adeae6f9528518"),
    "tsp125": StandardSet(125, 1_000, 1235, "0747023340d78d23fb499c146e0f01db"),
    "tsp150": StandardSet(150, 1_000, 1235, "0396c6e697c14c89d19b36cc22446c8b"),
    "tsp200": StandardSet(200, 1_000, 1235, "1a44b500ef93e22c519940f397f883b2"),
}


def tsp_set(name: str) -> Float[np.ndarray, "count N 2"]:
    """Coordinates of a standard TSP test set; raises if this NumPy draws other numbers."""
    if name not in TSP_SETS:
        raise InputError(f"no standard set '{name}'; known: {', '.join(TSP_SETS)}")
    s = TSP_SETS[name]
    xy = np.random.RandomState(s.seed).uniform(size=(s.count, s.size, 2))
    if sha256(np.ascontiguousarray(xy).tobytes()).hexdigest()[:32] != s.digest:
        raise InputError(
            f"{name}: the regenerated set does not have the published hash; this NumPy draws other numbers"
        )
    return xy
