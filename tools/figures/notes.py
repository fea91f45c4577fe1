"""Notes below the figures of docs/results/figures.md: what is drawn, and what is not measured."""

import json
from collections.abc import Mapping, Sequence

from rhumbline.bench.report import markdown_table
from tools.figures import curves, shift
from tools.figures.data import EVOLUTION, INSTANCES, TIMES, FigureData
from tools.figures.landscapes import read_maps
from tools.figures.radar import radar_rows
from tools.figures.rows import describe_rows, rows_of
from tools.table29 import read_published

PHASES = {
    "encoding": "encoding, once for a whole search",
    "decoding": "decoding, in our case with the environment",
    "environment": "environment",
    "cmaes": "CMA-ES: sampling and update",
    "rest": "the rest: checking plans, bookkeeping",
}


def describe_radar() -> str:
    """Return the note on the radar."""
    return describe_rows(radar_rows())


def describe_shift() -> str:
    """Return the note on the differences over the power of mutations."""
    rows = [row for suite in shift.SUITES.values() for row in rows_of(suite)]
    return describe_rows(rows)


def describe_tsp_curves() -> str:
    """Return the note on the searches on TSP sets."""
    return describe_rows(curves.standard_rows("tsp"))


def describe_cvrp_curves() -> str:
    """Return the note on the searches on CVRP sets."""
    return describe_rows(curves.standard_rows("cvrp"))


def describe_jssp_curves() -> str:
    """Return the note on the searches on JSSP sets."""
    return describe_rows(curves.standard_rows("jssp"))


def describe_ablation() -> str:
    """Return the note on the ablation, which may be drawn from another suite."""
    suite = rows_of(curves.ABLATION_SUITE)
    drawn = curves.ablation_rows()
    note = describe_rows(suite)
    if drawn and drawn[0].status.row.suite.name != curves.ABLATION_SUITE:
        count = max((len(row.results) for row in drawn), default=0)
        other = f"The figure shows the same searches in the suite `{curves.SUBSTITUTE_SUITE}`"
        note += f"\n\n{other}, on its first {count} instances:\n\n{describe_rows(drawn)}"
    return note


def describe_landscapes() -> str:
    """Return the note on the maps of instances."""
    return describe_file(INSTANCES)


def describe_evolution() -> str:
    """Return the note on the maps of checkpoints."""
    return describe_file(EVOLUTION)


def describe_file(data: FigureData) -> str:
    """Return what a file of maps holds, and how to measure it if that is needed."""
    maps = read_maps(data.path)
    text = "Nothing in this figure has been measured yet."
    if maps:
        half_width = f"{maps[0].axis[-1]:g}"
        grid = f"{len(maps[0].axis)} x {len(maps[0].axis)} latents up to ±{half_width}"
        text = f"{len(maps)} maps of {grid}, {len(maps[0].means)} generations of CMA-ES."
    return "\n\n".join([text, *describe_missing(data)])


def describe_missing(data: FigureData) -> list[str]:
    """Return why a file must be measured, and the command; an empty list if it need not be."""
    if not data.reason:
        return []
    command = f"python -m {' '.join(data.command)} --out FOLDER"
    return [f"To measure ({data.reason}):", f"```\n{command}\n```"]


def describe_times() -> str:
    """Return the table of the times of all phases, ours and the published ones."""
    if not TIMES.path.exists():
        return "\n\n".join(["Not measured.", *describe_missing(TIMES)])
    times = json.loads(TIMES.path.read_text(encoding="utf-8"))
    facts = f"{times['hardware']}, {times['date']}"
    note = f"Ours: one search of {times['attempts']:,} attempts ({facts}). "
    note += "Paper: one episode on a TPU v3-8, in which the encoding counts once."
    table = times_table(times["rows"], read_published()["time_tsp100"])
    return "\n\n".join([table, note, *describe_missing(TIMES)])


def times_table(rows: Sequence[Mapping], published: Mapping[str, float]) -> str:
    """Return a table of the milliseconds and share of each phase, ours and published."""
    heads = ["phase"]
    columns: list[Mapping[str, float]] = []
    for row in rows:
        count = row["instances"]
        heads.append("1 instance, ms" if count == 1 else f"{count:,} instances at once, ms each")
        columns.append({phase: value / count for phase, value in row["ms"].items()})
    heads.append("paper, ms")
    columns.append(published)
    lines = [heads]
    for phase, title in PHASES.items():
        lines.append([title, *(time_text(column, phase) for column in columns)])
    totals = [number_text(sum(column.values())) for column in columns]
    return markdown_table([*lines, ["all", *totals]])


def time_text(column: Mapping[str, float], phase: str) -> str:
    """Return the milliseconds of a phase, and its share of the whole search."""
    if phase not in column:
        return "-"
    share = column[phase] / sum(column.values())
    return f"{number_text(column[phase])} ({share:.1%})"


def number_text(value: float) -> str:
    """Return a number with three significant digits, or all digits from 100 on."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"
