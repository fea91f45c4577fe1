"""Days of a delivery service that does not exist: user data to try `rhumb train --data`
with (docs/own.md).

    python examples/make_deliveries.py days --count 500 --seed 1

writes a VRPLIB file for each day. The depot and 400 addresses in a dozen neighbourhoods are always
the same; each day 60 to 90 of them order something, and a vehicle carries the parcels of about 20.
Another seed gives other days.
"""

import argparse
from pathlib import Path

import numpy as np
from jaxtyping import Float

ADDRESSES, NEIGHBOURHOODS, SPREAD = 400, 12, 40.0
SIDE, DEPOT = 1000.0, (850.0, 120.0)
ORDERS, PARCELS, ROUTE = (60, 90), (1, 12), 20
MAP = 2026  # the seed of the town, which does not change


def town() -> Float[np.ndarray, "addresses 2"]:
    """Where the addresses are: about the middles of neighbourhoods, of which some are large."""
    draws = np.random.default_rng(MAP)
    middles = draws.uniform(0.1 * SIDE, 0.9 * SIDE, (NEIGHBOURHOODS, 2))
    weights = draws.dirichlet(np.full(NEIGHBOURHOODS, 2.0))
    owner = draws.choice(NEIGHBOURHOODS, ADDRESSES, p=weights)
    return np.rint(middles[owner] + SPREAD * draws.standard_normal((ADDRESSES, 2)))


def day(
    number: int, addresses: Float[np.ndarray, "addresses 2"], draws: np.random.Generator
) -> str:
    """The orders of one day as a VRPLIB file."""
    count = int(draws.integers(ORDERS[0], ORDERS[1] + 1))
    nodes = [DEPOT, *addresses[draws.choice(ADDRESSES, count, replace=False)].tolist()]
    demands = [0, *draws.integers(PARCELS[0], PARCELS[1] + 1, count).tolist()]
    capacity = round(ROUTE * sum(PARCELS) / 2)
    head = (
        f"NAME : day{number:04}\nTYPE : CVRP\nDIMENSION : {count + 1}\nEDGE_WEIGHT_TYPE : EUC_2D\n"
    )
    places = "\n".join(f"{n} {x:g} {y:g}" for n, (x, y) in enumerate(nodes, 1))
    wanted = "\n".join(f"{n} {q}" for n, q in enumerate(demands, 1))
    parts = f"CAPACITY : {capacity}\nNODE_COORD_SECTION\n{places}\nDEMAND_SECTION\n{wanted}\n"
    return f"{head}{parts}DEPOT_SECTION\n1\n-1\nEOF\n"


def main() -> None:
    """Write one file for each day."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    addresses, draws = town(), np.random.default_rng(args.seed)
    for number in range(1, args.count + 1):
        (args.folder / f"day{number:04}.vrp").write_text(day(number, addresses, draws))


if __name__ == "__main__":
    main()
