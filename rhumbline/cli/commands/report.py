"""`rhumb report`: results to tables and figures."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rhumbline.cli.options import one_of
from rhumbline.cli.process import defer_signals, run_command


class Format(StrEnum):
    """How tables are written."""

    md = "md"
    compact = "compact"  # Markdown, one table for each suite
    csv = "csv"
    latex = "latex"


def report_command(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULTS", help="Files that `rhumb bench` wrote.")
    ],
    kind: Annotated[Format, one_of(Format, "The format of the tables.", "--format")] = Format.md,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw figures into this folder.")
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="PAGE", help="Put the tables into a Markdown page, between a suite's marks."
        ),
    ] = None,
) -> None:
    """Print tables of results: n, mean cost, gap, 95 % interval, time and hardware. They depend
    only on the files given.

    Example: rhumb report results/quick.jsonl --format md --plots figures
    """
    if into is not None and kind not in (Format.md, Format.compact):
        raise typer.BadParameter("is for Markdown; leave --format out", param_hint="--into")

    def body() -> int:
        with defer_signals():
            from rhumbline.cli import bench_run
        return bench_run.print_report(results, kind.value, plots, into)

    raise typer.Exit(run_command(body))
