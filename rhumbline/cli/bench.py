"""`rhumb bench`: run a suite, or make its references. The options; the work is in `benching`, which needs torch."""

from pathlib import Path
from typing import Annotated

import typer

from rhumbline.cli.ending import conclude, undisturbed
from rhumbline.cli.solve import Device, Engine

Words = Annotated[
    list[str],
    typer.Argument(metavar="SUITE", help="A suite file; or the word reference and a suite file, to make references."),
]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Where lines are added. [results/NAME.jsonl]")]
Only = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Only this set or method; patterns work; repeatable.")
]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N instances of each set.")]
Threads = Annotated[int | None, typer.Option(min=1, metavar="N", help="Threads on a CPU. [all cores]")]
Folders = Annotated[
    list[str] | None,
    typer.Option("--folder", metavar="NAME=DIR", help="Where $NAME of a suite's files is; repeatable."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Nothing on stderr but warnings and errors.")]
Seconds = Annotated[float | None, typer.Option(min=0.01, help="reference: of the solver per instance. [by problem]")]


def bench(
    words: Words,
    out: Out = None,
    only: Only = None,
    limit: Limit = None,
    device: Annotated[Device, typer.Option(help="auto is a GPU if there is one.")] = Device.auto,
    engine: Annotated[Engine, typer.Option(help="fused is the quick one; on a CPU it needs numba.")] = Engine.auto,
    threads: Threads = None,
    folders: Folders = None,
    seconds: Seconds = None,
    quiet: Quiet = False,
) -> None:
    """Measure methods on instances as a suite says, one line of JSON for each result.

    Started again with the same file, it goes on where it stopped. `rhumb bench reference SUITE` solves the sets of a
    suite by LKH, HGS or CP-SAT and writes the reference files that the suite names.

    Example: rhumb bench suites/quick.toml && rhumb report results/quick.jsonl
    """
    reference = words[0] == "reference"
    if len(words) != 1 + reference:
        raise typer.BadParameter(f"expected one suite, got {' '.join(words)}", param_hint="SUITE")
    if seconds is not None and not reference:
        raise typer.BadParameter("is for `rhumb bench reference`; a suite has its own budgets", param_hint="--seconds")

    def body() -> int:
        with undisturbed():
            from rhumbline.bench.run import Options
            from rhumbline.cli import benching
        chosen = (tuple(only or ()), limit, device.value, engine.value, threads, benching.folders_of(folders or []))
        if reference:
            return benching.run_references(Path(words[1]), Options(*chosen), seconds, quiet)
        return benching.run_suite(Path(words[0]), out, Options(*chosen), quiet)

    raise typer.Exit(conclude(body))
