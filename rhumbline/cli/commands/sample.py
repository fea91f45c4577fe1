"""`rhumb sample`: random instances in a file."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhumbline.cli.options import LARGEST_SEED, flag
from rhumbline.cli.output.files import prepare_folder
from rhumbline.cli.process import defer_signals, print_result, run_command
from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError, shorten
from rhumbline.registry import suggest_known

if TYPE_CHECKING:
    import numpy as np

    from rhumbline.problems import Problem

*FIRST_NAMES, LAST_NAME = DOMAINS.table


@dataclass(frozen=True)
class Mutation:
    """A mutation of random instances: the operator, and the share of points that it moves."""

    operator: str
    power: float


@dataclass(frozen=True)
class SampleRequest:
    """What to sample."""

    problem: str
    size: str | None
    count: int
    seed: int
    mutation: Mutation | None


def sample_command(
    problem: Annotated[
        str, typer.Argument(help=f"The problem: {', '.join(FIRST_NAMES)} or {LAST_NAME}.")
    ],
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
        str, typer.Option(metavar="OPERATOR", help="Mutate each instance: cluster, grid, ...")
    ] = "",
    power: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Share of the points that are moved. [0.5]"),
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
        message = "says how strong a mutation is; name one with --mutate"
        raise typer.BadParameter(message, param_hint="--power")
    mutation = None
    if mutate:
        strength = 0.5 if power is None else power
        mutation = Mutation(mutate, strength)
    request = SampleRequest(problem, size, count, seed, mutation)
    exit_code = run_command(lambda: write_samples(request, out, force))
    raise typer.Exit(exit_code)


def write_samples(request: SampleRequest, out: Path, force: bool) -> None:
    """Sample instances and write them.

    Sampling is done on the CPU, so that a seed gives the same instances on every machine.
    """
    if out.exists() and not force:
        raise InputError(f"{out}: exists already; give --force to replace it")
    with defer_signals():
        import torch

    if request.problem not in DOMAINS:
        name = request.problem
        message = f"'{shorten(name)}' is not known{suggest_known(name, DOMAINS)}"
        raise typer.BadParameter(message, param_hint="PROBLEM")
    domain = DOMAINS[request.problem]
    dataset = domain.files.dataset or domain.refuse("a dataset")
    problem = domain.problem
    size = parse_sample_size(problem, request.size, request.count)
    prepare_folder(out.parent)
    generator = torch.Generator().manual_seed(request.seed)
    batch = problem.sample(request.count, size, generator)
    mutation = request.mutation
    distribution = "uniform"
    if mutation:
        if not hasattr(batch, "xy"):
            message = f"--mutate moves points; instances of {request.problem} have none"
            raise InputError(message)
        points = mutate_points(batch.xy.numpy(), mutation, request.seed)
        batch = replace(batch, xy=torch.from_numpy(points))
        distribution = f"mutated by {mutation.operator}, power {mutation.power:g}"
    note = {
        "problem": request.problem,
        "size": str(size),
        "count": str(request.count),
        "seed": str(request.seed),
        "distribution": distribution,
    }
    dataset.save(out, batch, note)
    print_result(str(out))


def parse_sample_size(problem: "Problem[Any, Any]", text: str | None, count: int) -> int | str:
    """Return the size a user means, in the form of the problem's default size: 100 or "10x10"."""
    default = problem.default_size
    has_two_numbers = isinstance(default, str)
    size = str(default) if text is None else text
    numbers = size.split("x") if has_two_numbers else [size]
    if not all(map(is_positive_integer, numbers)):
        message = f"'{size}' is no size of {problem.name}; one is {default}"
        raise typer.BadParameter(message, param_hint="--size")
    entries = count * math.prod(map(int, numbers))
    max_entries = 1 << 28  # 2 GiB of coordinates
    if entries > max_entries:
        message = f"size x count is {entries:,}; at most {max_entries:,}"
        raise typer.BadParameter(message, param_hint="--count")
    return size if has_two_numbers else int(size)


def is_positive_integer(text: str) -> bool:
    """Return whether a text is a number from 1 to 999,999,999."""
    if not text.isdecimal():
        return False
    return 0 < int(text) < 10**9


def mutate_points(xy: "np.ndarray", mutation: Mutation, seed: int) -> "np.ndarray":
    """Mutate each instance once, with a random stream of its own.

    The depot is moved like any other point.
    """
    import numpy as np

    from rhumbline.problems.distributions.mutations import mutate

    mutated: list[np.ndarray] = []
    for place, points in enumerate(xy):
        rng = np.random.default_rng([seed, place])
        exact = points.astype(np.float64)
        changed = mutate(exact, mutation.operator, mutation.power, rng)
        mutated.append(changed)
    stacked = np.stack(mutated)
    return stacked.astype(xy.dtype)
