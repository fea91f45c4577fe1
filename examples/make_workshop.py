"""Make `workshop12.jsp`: a day of 12 orders in a joinery with 8 machines, in minutes.

Every order is sawn first and packed last. In between, most are planed, milled and drilled in some
order, and all are sanded, some twice. Jobs therefore differ in length, skip machines and revisit
one. Run `python examples/make_workshop.py` from the project's root. Its output is always the same.
"""

from pathlib import Path

import numpy as np

from rhumbline.formats.jsplib import write_jsp
from rhumbline.problems.jssp import JSSPInstance

SEED = 414
ORDERS = 12
SAW, PLANE, MILL, DRILL, SAND, GLUE, PAINT, PACK = range(8)
MINUTES = {SAW: 25, PLANE: 35, MILL: 45, DRILL: 25, SAND: 20, GLUE: 40, PAINT: 45, PACK: 15}
FINISHES = ((SAND, PAINT), (SAND, GLUE, SAND), (GLUE, SAND, PAINT))


def order(rng: np.random.Generator) -> tuple[int, ...]:
    """Return the machines that one order visits."""
    shaping = [
        machine for machine in rng.permutation([PLANE, MILL, DRILL]).tolist() if rng.random() < 0.8
    ]
    return SAW, *shaping, *FINISHES[rng.integers(len(FINISHES))], PACK


def workshop() -> JSSPInstance:
    """Return the instance; times vary around the typical time of the machine."""
    rng = np.random.default_rng(SEED)
    machines = tuple(order(rng) for _ in range(ORDERS))
    durations = tuple(
        tuple(int(MINUTES[m] * rng.uniform(0.4, 1.6)) for m in row) for row in machines
    )
    return JSSPInstance("workshop12", durations, machines, len(MINUTES))


if __name__ == "__main__":
    provenance = (
        f"made for rhumbline by examples/make_workshop.py (seed {SEED}), Apache-2.0; "
        "joinery, times in minutes"
    )
    write_jsp(Path(__file__).with_name("workshop12.jsp"), workshop(), provenance)
