"""`rhumb merge`: the results of shards in one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhumbline.cli.process import defer_signals, print_note, print_result, run_command
from rhumbline.errors import Infeasible

if TYPE_CHECKING:
    from rhumbline.distributed.merge import Merged


def merge_command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Files of `rhumb solve --results`.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The new file.")],
    count: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Instances of the whole input, to see what is missing."
        ),
    ] = None,
) -> None:
    """Join the results of the shards of one input in the order of the input.

    The exit code is 5 if an instance is missing or has failed. Then repeat the `rhumb solve` of its
    shard, which continues where it stopped. Without --count, instances that are missing at the end
    of the input are not noticed.

    Example: rhumb merge out-*.jsonl --out all.jsonl --count 1000000
    """

    def body() -> int:
        with defer_signals():
            from rhumbline.distributed.merge import merge_results
        merged = merge_results(files, out, count)
        report_merged(merged)
        print_result(str(out))
        return Infeasible.exit_code if merged.missing or merged.failed else 0

    raise typer.Exit(run_command(body))


def report_merged(merged: "Merged") -> None:
    """Print on stderr what was joined and what is missing."""
    print_note(f"{merged.lines:,} results")
    if merged.repeated:
        print_note(f"{merged.repeated:,} were there twice; the first one is kept")
    if merged.failed:
        print_note(f"error: {merged.failed:,} instances have failed; their lines say why")
    if merged.missing:
        places = ranges_text(merged.missing)
        print_note(f"error: {len(merged.missing):,} instances are missing, at places {places}")


def ranges_text(places: list[int], max_ranges: int = 8) -> str:
    """Format increasing numbers as ranges: "3, 7-9"; only the first few."""
    ranges: list[list[int]] = []
    for place in places:
        is_next = bool(ranges) and place == ranges[-1][1] + 1
        if is_next:
            ranges[-1][1] = place
        else:
            ranges.append([place, place])
    words: list[str] = []
    for first, last in ranges[:max_ranges]:
        words.append(str(first) if first == last else f"{first}-{last}")
    if len(ranges) > max_ranges:
        words.append("...")
    return ", ".join(words)
