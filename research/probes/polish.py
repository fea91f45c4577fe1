# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""What a polish is worth: each file with the same seconds, with and without it.

    python research/probes/polish.py ../shared/instances/tsplib --seconds 10 --threads 1

Prints a line for each file as it goes (gap without, gap of the search part with a polish, gap after
it), and the means. Both runs of a file follow each other, so that a busy machine is equally unfair
to both. With --then SOLVER there is one run of each file instead: the gap when the solver takes
over, and the one at the end.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from rhumbline.api import solve
from rhumbline.files import read
from rhumbline.search import after_search


def by_number_of_plans(numbers: list[int], device: str) -> None:
    """Mean lengths of 24 uniform TSP100 instances after 32 attempts, when so many plans of each
    are polished.
    """
    instances = list(np.random.RandomState(1234).uniform(size=(24, 100, 2)))
    for number in numbers:
        after_search.TUNING = replace(after_search.TUNING, polished_plans=max(1, number))
        found = solve(instances, attempts=32, polish=number > 0, device=device)
        print(
            f"{number:3} plans polished: mean length {np.mean([s.cost for s in found]):.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", default=Path())
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--largest", type=int, default=318)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--every", type=int, default=1, help="only every so many files")
    parser.add_argument("--then", default=None)
    parser.add_argument(
        "--plans", type=int, nargs="+", help="instead: polish so many plans on uniform TSP100"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.plans:
        by_number_of_plans(args.plans, args.device)
        return
    instances = [
        read(path)
        for path in sorted(
            p for kind in ("*.tsp", "*.vrp", "*.txt") for p in args.folder.glob(kind)
        )
    ]
    rows: list[tuple[float, ...]] = []
    options = {"seconds": args.seconds, "device": args.device}
    solve(instances[0], polish=True, attempts=1, device=args.device)  # compile everything
    for instance in [i for i in instances if i.size <= args.largest and i.best_known][
        :: args.every
    ]:
        if args.then:
            found = solve(instance, then=args.then, **options)[0]
            rows.append((found.then.before / instance.best_known - 1, found.gap))
        else:
            without, polished = (
                solve(instance, **options)[0],
                solve(instance, polish=True, **options)[0],
            )
            rows.append(
                (without.gap, polished.polish.before / instance.best_known - 1, polished.gap)
            )
        print(
            f"{instance.name:12} {instance.size:4}  "
            + "  ".join(f"{gap:8.3%}" for gap in rows[-1]),
            flush=True,
        )
    means = np.mean(rows, axis=0)
    print(f"mean of {len(rows):7}  " + "  ".join(f"{gap:8.3%}" for gap in means))


if __name__ == "__main__":
    main()
