"""`rhumb sample`: random instances in a file."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhumbline.cli.options import flag
from rhumbline.cli.output_files import prepare_folder
from rhumbline.cli.process import defer_signals, print_result, run_command
from rhumbline.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from rhumbline.problems import Problem

LARGEST_SEED = 2**63 - 1
MOST_ENTRIES = 1 << 28  # 2 GiB of coordinates


def sample(
    problem: Annotated[str, typer.Argument(help="The problem: tsp, cvrp or jssp.")],
    out: Annotated[Path, typer.Option(help="The file to write, ending in .safetensors.")],
    size: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Cities or customers; jobs x machines, as in 20x15. [100, 10x10]"
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of instances.")] = 1000,
    seed: Annotated[
        int,
        typer.Option(min=0, max=LARGEST_SEED, metavar="N", help="Equal seeds give equal files."),
    ] = 1,
    mutate: Annotated[
        str, typer.Option(metavar="OPERATOR", help="Disturb each instance: cluster, grid, ...")
    ] = "",
    power: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Of the mutation: share of points. [0.5]")
    ] = None,
    force: Annotated[bool, flag("--force", "Replace the file if there is one.")] = False,
) -> None:
    """Write random instances, all of one size, for `rhumb solve` and benchmarks: uniform ones, or
    mutated ones.

    Example: rhumb sample tsp --size 100 --count 1000 --seed 1 --out tsp100.safetensors
    """
    if out.suffix.lower() != ".safetensors":
        raise typer.BadParameter(f"{out} does not end in .safetensors", param_hint="--out")
    if power is not None and not mutate:
        raise typer.BadParameter(
            "says how strong a mutation is; name one with --mutate", param_hint="--power"
        )
    mutation = (mutate, 0.5 if power is None else power) if mutate else None
    raise typer.Exit(
        run_command(lambda: write_samples(problem, out, size, count, seed, mutation, force))
    )


def size_for(problem: "Problem[Any, Any]", text: str | None, count: int) -> int | str:
    """The size that a user means, of the form that the problem's usual one has."""
    usual = problem.default_size
    size = str(usual) if text is None else text
    numbers = size.split("x") if isinstance(usual, str) else [size]
    if not all(n.isdecimal() and 0 < int(n) < 10**9 for n in numbers):
        raise typer.BadParameter(
            f"'{size}' is no size of {problem.name}; one is {usual}", param_hint="--size"
        )
    entries = count * math.prod(int(n) for n in numbers)
    if entries > MOST_ENTRIES:
        raise typer.BadParameter(
            f"size x count is {entries:,}; at most {MOST_ENTRIES:,}", param_hint="--count"
        )
    return size if isinstance(usual, str) else int(size)


def write_samples(
    problem: str,
    out: Path,
    size: str | None,
    count: int,
    seed: int,
    mutation: tuple[str, float] | None,
    force: bool,
) -> None:
    """Sample on the CPU, so that a seed means the same everywhere, and write."""
    if out.exists() and not force:
        raise InputError(f"{out}: is there already; give --force to replace it")
    with defer_signals():
        import torch

        from rhumbline.formats.dataset import save_batch
        from rhumbline.problems import PROBLEMS
    known = [name for name, rules in PROBLEMS.items() if name == rules.solves]
    if problem not in known:
        raise typer.BadParameter(
            f"'{problem}' is not known; known: {', '.join(known)}", param_hint="PROBLEM"
        )
    drawn = size_for(PROBLEMS[problem], size, count)
    prepare_folder(out.parent)
    batch = PROBLEMS[problem].sample(count, drawn, torch.Generator().manual_seed(seed))
    if mutation and not hasattr(batch, "xy"):
        raise InputError(f"--mutate moves points; instances of {problem} have none")
    if mutation:
        batch = replace(
            batch, xy=torch.from_numpy(mutate_points(batch.xy.numpy(), *mutation, seed))
        )
    kind = "mutated by {}, power {:g}".format(*mutation) if mutation else "uniform"
    note = {
        "problem": problem,
        "size": str(drawn),
        "count": str(count),
        "seed": str(seed),
        "distribution": kind,
    }
    save_batch(out, batch, note)
    print_result(str(out))


def mutate_points(xy: "np.ndarray", operator: str, power: float, seed: int) -> "np.ndarray":
    """Each instance after one mutation, of a random stream of its own; the depot is a point like
    any other.
    """
    import numpy as np

    from rhumbline.problems.distributions.mutations import mutate

    streams = (np.random.default_rng([seed, place]) for place in range(len(xy)))
    exact = (
        mutate(points.astype(np.float64), operator, power, rng)
        for points, rng in zip(xy, streams, strict=True)
    )
    return np.stack(list(exact)).astype(xy.dtype)
