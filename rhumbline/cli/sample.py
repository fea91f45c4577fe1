"""`rhumb sample`: random instances in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhumbline.cli.ending import conclude, emit, undisturbed
from rhumbline.cli.outputs import ready
from rhumbline.errors import InputError

if TYPE_CHECKING:
    import numpy as np

LARGEST_SEED = 2**63 - 1
MOST_CITIES = 1 << 28  # 2 GiB of coordinates


def sample(
    problem: Annotated[str, typer.Argument(help="The problem: tsp or cvrp.")],
    out: Annotated[Path, typer.Option(help="The file to write, ending in .safetensors.")],
    size: Annotated[int, typer.Option(min=1, help="Cities of each instance.")] = 100,
    count: Annotated[int, typer.Option(min=1, help="Number of instances.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, metavar="N", help="Equal seeds give equal files.")] = 1,
    mutate: Annotated[str, typer.Option(metavar="OPERATOR", help="Disturb each instance: cluster, grid, ...")] = "",
    power: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Of the mutation: share of points. [0.5]")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
) -> None:
    """Write random instances, all of one size, for `rhumb solve` and benchmarks: uniform ones, or mutated ones.

    Example: rhumb sample tsp --size 100 --count 1000 --seed 1 --out tsp100.safetensors
    """
    check(out, size * count)
    if power is not None and not mutate:
        raise typer.BadParameter("says how strong a mutation is; name one with --mutate", param_hint="--power")
    mutation = (mutate, 0.5 if power is None else power) if mutate else None
    raise typer.Exit(conclude(lambda: write(problem, out, size, count, seed, mutation, force)))


def check(out: Path, cities: int) -> None:
    """Usage that typer cannot check."""
    if out.suffix.lower() != ".safetensors":
        raise typer.BadParameter(f"{out} does not end in .safetensors", param_hint="--out")
    if cities > MOST_CITIES:
        raise typer.BadParameter(f"size x count is {cities:,}; at most {MOST_CITIES:,}", param_hint="--count")


def write(
    problem: str, out: Path, size: int, count: int, seed: int, mutation: tuple[str, float] | None, force: bool
) -> None:
    """Sample on the CPU, so that a seed means the same everywhere, and write."""
    if out.exists() and not force:
        raise InputError(f"{out}: is there already; give --force to replace it")
    with undisturbed():
        import torch

        from rhumbline.formats.dataset import save_dataset
        from rhumbline.problems import PROBLEMS
    if problem not in PROBLEMS:
        raise typer.BadParameter(f"'{problem}' is not known; known: {', '.join(PROBLEMS)}", param_hint="PROBLEM")
    ready(out.parent)
    batch = PROBLEMS[problem].sample(count, size, torch.Generator().manual_seed(seed))
    kind = "mutated by {}, power {:g}".format(*mutation) if mutation else "uniform"
    note = {"problem": problem, "size": str(size), "count": str(count), "seed": str(seed), "distribution": kind}
    loads = {name: getattr(batch, name).numpy() for name in ("demand", "capacity") if hasattr(batch, name)}
    xy = mutated(batch.xy.numpy(), *mutation, seed) if mutation else batch.xy.numpy()
    save_dataset(out, xy, note, **loads)
    emit(str(out))


def mutated(xy: "np.ndarray", operator: str, power: float, seed: int) -> "np.ndarray":
    """Each instance after one mutation, of a random stream of its own; the depot is a point like any other."""
    import numpy as np

    from rhumbline.problems.mutate import mutate

    streams = (np.random.default_rng([seed, place]) for place in range(len(xy)))
    exact = (mutate(points.astype(np.float64), operator, power, rng) for points, rng in zip(xy, streams, strict=True))
    return np.stack(list(exact)).astype(xy.dtype)
