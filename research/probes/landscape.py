# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""Pictures of a two-dimensional latent space: cost of each latent for one instance and for eight,
with a search's path.

    rhumb train recipes/tsp100-latent.toml --set init=tsp100-single --set policy.latent=2 \\
        --set policy.amplify=30 --minutes 1.3 --out runs/plane
    python research/probes/landscape.py --policy runs/plane/policy.safetensors --set tsp100 \\
        --points 41 --out docs/landscape

Writes OUT-1.png (the first instance), OUT-8.png (all) and OUT.npz, their numbers: with `--numbers
OUT.npz` instead of a policy the pictures are drawn again. 181 x 181 latents are the paper's 32,000
and want a GPU.
"""

import argparse
from pathlib import Path

from rhumbline.bench.figures.landscape import compute_landscapes, read_landscapes, write_landscapes
from rhumbline.errors import RhumbError
from rhumbline.pipeline import find_device, load_policy, make_tasks
from rhumbline.plots.canvas import save_figure
from rhumbline.plots.latent import Landscape, draw_landscapes
from rhumbline.problems.standard_sets import tsp_set
from rhumbline.problems.tsp import TSPInstance

TITLE = (
    "Best greedy tour at each latent, and the means of CMA-ES; "
    "dashed: where latents were trained; grey: not computed"
)


def computed(args: argparse.Namespace) -> list[Landscape]:
    """The landscapes of the first instances of a set."""
    xy = tsp_set(args.set)[: args.instances]
    instances = [TSPInstance(f"{args.set}-{i + 1}", "EXACT_2D", xy=x) for i, x in enumerate(xy)]
    policy, device = load_policy(args.policy, "tsp"), find_device(args.device)
    found = list[Landscape]()
    for _, task in make_tasks(instances, {"tsp": policy}, seed=0, device=device, engine="auto"):
        found += compute_landscapes(task, args.points, args.generations)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--policy")
    source.add_argument("--numbers", type=Path, help="of an earlier run")
    parser.add_argument("--set", default="tsp150")
    parser.add_argument("--instances", type=int, default=8)
    parser.add_argument("--points", type=int, default=181, help="of the grid along each axis")
    parser.add_argument("--generations", type=int, default=33)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("out/landscape"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    try:
        found = read_landscapes(args.numbers) if args.numbers else computed(args)
    except RhumbError as error:
        raise SystemExit(str(error)) from error
    if not args.numbers:
        write_landscapes(args.out.with_suffix(".npz"), found)
    for some in (found[:1], found):
        path = args.out.with_name(f"{args.out.name}-{len(some)}.png")
        save_figure(path, draw_landscapes(some, TITLE))
        print(path)


if __name__ == "__main__":
    main()
