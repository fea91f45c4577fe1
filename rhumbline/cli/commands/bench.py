"""`rhumb bench`: run a suite, or make its references. The options; `bench_run` does the work."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from rhumbline.cli.options import Device, DeviceChoice, Engine, Threads, flag
from rhumbline.cli.process import defer_signals, run_command
from rhumbline.registry import did_you_mean

PANEL = "With the word reference"  # of the help: options for references only

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="SUITE",
        help="A suite file; or the word reference and a suite file, to make references.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Where lines are added. [results/NAME.jsonl]"),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only this set or method; patterns work; repeatable."),
]
Limit = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Only the first N instances of each set.")
]
Folders = Annotated[
    list[str] | None,
    typer.Option(
        "--folder", metavar="NAME=DIR", help="Where $NAME of a suite's files is; repeatable."
    ),
]
WarningsOnly = Annotated[bool, flag("--quiet", "Nothing on stderr but warnings and errors.")]
SolverSeconds = Annotated[
    float | None,
    typer.Option(
        min=0.01, help="Seconds of HGS or CP-SAT per instance. [5 or 60]", rich_help_panel=PANEL
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Processes that share the GPUs or the cores, for references too."
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.0, help="Stop after this time and keep what is done.", rich_help_panel=PANEL
    ),
]
Again = Annotated[
    bool,
    flag("--again", "Solve again what has no proven cost.", rich_help_panel=PANEL),
]
Elsewhere = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="DIR",
        help="First copy results from files of the same names in this folder.",
        rich_help_panel=PANEL,
    ),
]
Machine = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="A description of the machine, for the file. [its processor]",
        rich_help_panel=PANEL,
    ),
]


def refuse_options(options: Mapping[str, object], why: str) -> None:
    """Refuse options that would have no effect, rather than ignore them."""
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(why, param_hint=name)


def bench_command(
    words: Words,
    out: Out = None,
    only: Only = None,
    limit: Limit = None,
    device: Device = DeviceChoice.auto,
    engine: Engine = "auto",
    threads: Threads = None,
    folders: Folders = None,
    quiet: WarningsOnly = False,
    seconds: SolverSeconds = None,
    workers: Workers = None,
    minutes: Minutes = None,
    again: Again = False,
    machine: Machine = None,
    elsewhere: Elsewhere = None,
) -> None:
    """Measure the methods of a suite on its instances, one line of JSON for each result.

    Run again with the same file, it continues where it stopped.

    `rhumb bench reference SUITE` solves the sets of a suite by LKH, HGS or CP-SAT and writes the
    reference files that the suite names. It adds what a file lacks, or solves again, and never
    replaces a better cost by a worse one. Its --limit may exceed what the suite uses.

    `rhumb bench compare SET` needs no suite: it compares strategies and policies on test sets,
    validation instances or files. See `rhumb bench compare --help`.

    Example: rhumb bench suites/quick.toml && rhumb report results/quick.jsonl
    """
    makes_references = words[0] == "reference"
    if len(words) != 1 + makes_references:
        guess = did_you_mean(words[0], ("reference", "compare"))
        message = f"expected one suite, got {' '.join(words)[:100]}{guess}"
        raise typer.BadParameter(message, param_hint="SUITE")
    if makes_references:
        for_suites = {
            "--out": out,
            "--threads": threads,
            "--device": None if device is DeviceChoice.auto else device,
            "--engine": None if engine == "auto" else engine,
        }
        writes = "which writes the files that the suite names"
        refuse_options(for_suites, f"means nothing to `rhumb bench reference`, {writes}")
    else:
        for_references = {
            "--seconds": seconds,
            "--minutes": minutes,
            "--again": again or None,
            "--machine": machine,
            "--from": elsewhere,
        }
        message = "is for `rhumb bench reference`; a suite has its own budgets"
        refuse_options(for_references, message)

    def body() -> int:
        with defer_signals():
            from rhumbline.bench.methods import BenchOptions
            from rhumbline.cli import bench_run
        options = BenchOptions(
            only=tuple(only or ()),
            limit=limit,
            device=device.value,
            engine=engine,
            threads=threads,
            workers=None if makes_references else workers,
            folders=bench_run.parse_folders(folders or []),
        )
        if not makes_references:
            return bench_run.run_suite(Path(words[0]), out, options, quiet)
        reference_options = bench_run.make_reference_options(workers, minutes, again, machine)
        return bench_run.run_references(
            Path(words[1]), options, reference_options, seconds, elsewhere, quiet
        )

    raise typer.Exit(run_command(body))
