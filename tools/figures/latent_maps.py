"""Maps of a latent space of two dimensions: train a policy, keep checkpoints, compute the maps.

    python -m tools.figures.latent_maps --minutes 4 --out FOLDER                 # with a GPU
    python -m tools.figures.latent_maps --policies A.safetensors B.safetensors --out FOLDER

Without `--policies`, it first trains a policy by recipes/tsp100-latent.toml with policy.latent=2.
It keeps checkpoints in runs/latent2, and uses them again if they are already there.

Writes FOLDER/landscapes.npz, the maps of several instances for the last policy. With several
policies it also writes FOLDER/evolution.npz, the map of the first instance for each policy.
`python -m tools.tables --collect FOLDER/*` copies both into the repository.
"""

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rhumbline.bench.figures.landscape import compute_landscapes, write_landscapes
from rhumbline.pipeline import find_device, load_policy, make_tasks
from rhumbline.plots.latent import Landscape
from rhumbline.problems.standard_sets import tsp_set
from rhumbline.problems.tsp import TSPInstance
from rhumbline.training.config import TrainConfig, read_recipe
from rhumbline.training.loop import train
from rhumbline.training.run_folder import RUN_FILES
from tools.figures.data import EVOLUTION, INSTANCES, MAPPED_INSTANCES, MAPPED_SET
from tools.gap_tables import ROOT

RECIPE = ROOT / "recipes" / "tsp100-latent.toml"
CHANGES = ("init=tsp100-single", "policy.latent=2", "policy.amplify=30", "report=5")
# Shares of the minutes of a run after which checkpoints are kept, besides the first and the last
KEPT_SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)
CHECKPOINT = "update-{:07d}.safetensors"


@dataclass(frozen=True)
class MapSize:
    """How many maps there are, and how wide and fine they are."""

    set: str = MAPPED_SET
    instances: int = MAPPED_INSTANCES
    points: int = 181  # of the grid along each axis: about the paper's 32,000 latents
    half_width: float = 3.0  # searches leave the box [-1, 1] that latents were trained in
    generations: int = 33
    device: str = "auto"


def train_policies(folder: Path, minutes: float, changes: Sequence[str], device: str) -> list[Path]:
    """Train in a folder unless it has a policy; return the kept checkpoints in order of updates."""
    config = read_recipe(RECIPE, [*CHANGES, *changes])
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / RUN_FILES.policy).exists():
        train_one_run(replace(config, updates=1), folder, 0.0, device)
        train_one_run(config, folder, minutes, device)
    return sorted(folder.glob(CHECKPOINT.replace("{:07d}", "*")))


def train_one_run(config: TrainConfig, folder: Path, minutes: float, device: str) -> None:
    """Train; copy the policy after each of `KEPT_SHARES` of the minutes, and at the end."""
    marks = [share * minutes for share in KEPT_SHARES]
    scratch = folder / "run"
    shutil.rmtree(scratch, ignore_errors=True)
    update = 0
    for report in train(config, device=find_device(device), out=scratch, minutes=minutes or None):
        update = report.update
        if report.minutes >= marks[0]:
            marks = [mark for mark in marks if mark > report.minutes] or [float("inf")]
            shutil.copy(scratch / RUN_FILES.policy, folder / CHECKPOINT.format(update))
        print(f"update {update:,}: {report.minutes:.2f} min, cost {report.latent:.4f}", flush=True)
    shutil.copy(scratch / RUN_FILES.policy, folder / CHECKPOINT.format(update))
    if minutes:
        shutil.move(scratch / RUN_FILES.policy, folder / RUN_FILES.policy)
    shutil.rmtree(scratch)


def compute_maps(policy: Path, size: MapSize) -> list[Landscape]:
    """Return the landscapes of the first instances of a set."""
    positions = tsp_set(size.set)[: size.instances]
    instances = [
        TSPInstance(f"{size.set}-{place}", "EXACT_2D", xy=xy)
        for place, xy in enumerate(positions, 1)
    ]
    policies = {"tsp": load_policy(str(policy), "tsp")}
    device = find_device(size.device)
    maps: list[Landscape] = []
    for _, task in make_tasks(instances, policies, seed=0, device=device, engine="auto"):
        maps += compute_landscapes(task, size.points, size.generations, size.half_width)
    return maps


def checkpoint_title(path: Path) -> str:
    """Return the title of the map of a checkpoint: its number of updates, else its name."""
    digits = path.stem.removeprefix("update-")
    if not digits.isdigit():
        return path.stem
    count = int(digits)
    return "after 1 update" if count == 1 else f"after {count:,} updates"


def write_maps(policies: Sequence[Path], size: MapSize, out: Path) -> list[Path]:
    """Write the maps of instances, and with several policies also the maps of checkpoints."""
    out.mkdir(parents=True, exist_ok=True)
    written = [out / INSTANCES.name]
    write_landscapes(written[0], compute_maps(policies[-1], size))
    if len(policies) > 1:
        maps: list[Landscape] = []
        for path in policies:
            (first,) = compute_maps(path, replace(size, instances=1))
            maps.append(replace(first, name=f"{first.name} {checkpoint_title(path)}"))
        written.append(out / EVOLUTION.name)
        write_landscapes(written[1], maps)
    return written


def main() -> None:
    """Train if no policies are given, and compute maps."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--policies", type=Path, nargs="+", help="of one run, the last one last")
    parser.add_argument("--minutes", type=float, default=4.0, help="of training")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--run", type=Path, default=Path("runs/latent2"), help="its checkpoints")
    parser.add_argument("--out", type=Path, default=Path("results/figures"))
    default = MapSize()
    parser.add_argument("--mapped-set", default=default.set, help="a TSP set")
    parser.add_argument("--instances", type=int, default=default.instances)
    parser.add_argument("--points", type=int, default=default.points)
    parser.add_argument("--half-width", type=float, default=default.half_width)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    given = parser.parse_args()
    size = MapSize(
        given.mapped_set,
        given.instances,
        given.points,
        given.half_width,
        device=given.device,
    )
    policies = given.policies or train_policies(
        given.run, given.minutes, given.changes, given.device
    )
    for path in write_maps(policies, size, given.out):
        print(path)


if __name__ == "__main__":
    main()
