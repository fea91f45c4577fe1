"""What a polish is worth: each file with the same seconds, with and without it.

    python benchmarks/polish.py ../shared/instances/tsplib --seconds 10 --threads 1

Prints a line for each file as it goes (gap without, gap of the search part with a polish, gap after it), and the means.
Both runs of a file follow each other, so that a busy machine is equally unfair to both.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from rhumbline.api import solve
from rhumbline.formats import read


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--largest", type=int, default=318)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--every", type=int, default=1, help="only every so many files")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    instances = [read(path) for path in sorted([*args.folder.glob("*.tsp"), *args.folder.glob("*.vrp")])]
    rows: list[tuple[float, float, float]] = []
    options = {"seconds": args.seconds, "device": args.device}
    solve(instances[0], polish=True, attempts=1, device=args.device)  # compile everything
    for instance in [i for i in instances if i.size <= args.largest and i.best_known][:: args.every]:
        without, polished = solve(instance, **options)[0], solve(instance, polish=True, **options)[0]
        before = (polished.polish.before - instance.best_known) / instance.best_known
        rows.append((without.gap, before, polished.gap))
        print(f"{instance.name:12} {instance.size:4}  " + "  ".join(f"{gap:8.3%}" for gap in rows[-1]), flush=True)
    means = np.mean(rows, axis=0)
    print(f"mean of {len(rows):7}  " + "  ".join(f"{gap:8.3%}" for gap in means))


if __name__ == "__main__":
    main()
