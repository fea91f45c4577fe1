"""Figures of result lines: each is drawn if the lines have what it shows.

A figure keeps apart what the tables keep apart, and compares methods on the instances that all of
them have.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from rhumbline.bench.figures.radar import radar_figure
from rhumbline.bench.provenance import ORIGIN_FIELDS, group_by_label
from rhumbline.bench.report import NORMAL_95
from rhumbline.bench.results import (
    Result,
    costs_of,
    drop_missing,
    group_by_instance,
    group_results,
    keep_common_instances,
)
from rhumbline.plots.canvas import save_figure
from rhumbline.plots.curves import (
    OURS,
    Curve,
    Palette,
    assign_colours,
    draw_anytime,
    draw_search,
    draw_shift,
)

CURVE_POINTS = 64
ATTEMPTS, SECONDS, BEST, LATEST = range(4)  # columns of a trace


def draw_all(results: Sequence[Result], folder: Path) -> Iterator[Path]:
    """Draw what can be drawn and tell where; results without a cost are left out."""
    results = drop_missing(results)
    palette = assign_colours(names_by_frequency(results))
    for some in group_results(results, lambda r: f"{r.suite}\0{r.set}").values():
        name = safe_file_name(f"{some[0].suite}-{some[0].set}")
        yield from save_if_drawn(folder / f"search-{name}.png", search_figure(some, palette))
        yield from save_if_drawn(folder / f"seconds-{name}.png", anytime_figure(some, palette))
    for name, some in group_mutated(results).items():
        yield from save_if_drawn(folder / f"mutations-{name}.png", shift_figure(some, palette))
    yield from save_if_drawn(folder / "radar.png", radar_figure(results, palette))


def save_if_drawn(path: Path, figure: Any | None) -> Iterator[Path]:
    """The path of a figure after it was saved; nothing if there is none."""
    if figure is not None:
        save_figure(path, figure)
        yield path


def safe_file_name(text: str) -> str:
    """Text that can be in the name of a file; suites are read with care, but lines may be of any
    origin.
    """
    return re.sub(r"[^\w.+ -]", "_", text)


def colour_name(result: Result) -> str:
    """What has one colour in all figures: a family, or a method that belongs to none."""
    return result.family or result.method


def names_by_frequency(results: Sequence[Result]) -> list[str]:
    """Names by the number of sets they are on: of more methods than colours, those of most
    figures differ.
    """
    sets = Counter(name for _, _, name in {(r.suite, r.set, colour_name(r)): None for r in results})
    return sorted(sets, key=lambda name: -sets[name])


def group_mutated(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results on mutated instances by problem, and by suite where several suites have such."""
    some = [r for r in results if r.power is not None]
    suites = {
        p: {r.suite for r in its} for p, its in group_results(some, lambda r: r.problem).items()
    }
    return group_results(
        some,
        lambda r: (
            r.problem if len(suites[r.problem]) == 1 else safe_file_name(f"{r.suite}-{r.problem}")
        ),
    )


def search_figure(results: Sequence[Result], palette: Palette | None = None) -> Any | None:
    """Best so far and latest step over attempts, where searches have left a trace of several
    steps.
    """
    methods = keep_common_instances(group_by_label(results))
    if not any(len(r.trace) > 1 for some in methods.values() for r in some):
        return None
    traced = {label: some for label, some in methods.items() if all(r.trace for r in some)}
    best = [mean_curve(label, some, ATTEMPTS, BEST) for label, some in traced.items()]
    best += [level_curve(label, some) for label, some in methods.items() if label not in traced]
    latest = [
        mean_curve(label, some, ATTEMPTS, LATEST)
        for label, some in traced.items()
        if any(len(r.trace) > 1 for r in some)
    ]
    shown = [r for some in methods.values() for r in some]
    return draw_search(
        best, latest, "gap, %" if has_gaps(shown) else "cost", figure_title(shown), palette
    )


def anytime_figure(results: Sequence[Result], palette: Palette | None = None) -> Any | None:
    """Gap over seconds of families, or of methods that belong to none, where references are
    known.
    """
    shown = [r for some in keep_common_instances(group_by_label(results)).values() for r in some]
    machines = list(dict.fromkeys(r.hardware for r in shown))
    several = len(machines) > 1
    families = group_by_label(
        shown,
        lambda r: f"{colour_name(r)}, {r.hardware}" if several else colour_name(r),
        ORIGIN_FIELDS,
    )
    if len(families) < 2 or not has_gaps(shown):
        return None
    curves = [
        mean_curve(label, some, SECONDS, BEST) if is_one_search(some) else budget_curve(label, some)
        for label, some in families.items()
    ]
    where = "" if several else f"\non {machines[0]}"  # else the legend says it of each
    return draw_anytime(curves, figure_title(shown) + where, palette=palette)


def is_one_search(some: Sequence[Result]) -> bool:
    """Whether results are of one method that left traces; runs with several budgets are a point
    each.
    """
    return (
        len({r.method for r in some}) == 1
        and all(r.trace for r in some)
        and any(len(r.trace) > 1 for r in some)
    )


def figure_title(results: Sequence[Result]) -> str:
    """What a figure of curves shows, and on how many instances."""
    count = len({r.instance for r in results})
    return f"{results[0].set}: {sample_text(count)}"


def sample_text(count: int) -> str:
    """How many instances a mean is of; one has no interval."""
    return f"mean over {count:,} instances, with 95 % intervals" if count > 1 else "1 instance"


def shift_figure(results: Sequence[Result], palette: Palette | None = None) -> Any | None:
    """The difference to our method, or else to the last one, over powers that all methods were
    measured at.
    """
    methods = keep_common_instances(group_by_label(results))
    powers = sorted({r.power for some in methods.values() for r in some if r.power is not None})
    if len(powers) < 2 or len(methods) < 2:
        return None
    base = next((name for name in methods if name.startswith(OURS)), list(methods)[-1])
    curves = [shift_curve(label, some, methods[base], powers) for label, some in methods.items()]
    counts = sorted({len(costs_at_power(methods[base], power)) for power in powers})
    each = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    plural, intervals = ("s", ", with 95 % intervals") if counts[-1] > 1 else ("", "")
    title = f"{results[0].problem}, mutated: {each} instance{plural} at each power{intervals}"
    return draw_shift(curves, base, title, palette)


def shift_curve(
    label: str, some: Sequence[Result], base: Sequence[Result], powers: Sequence[float]
) -> Curve:
    """Differences to the base in % of its mean cost, each with half its 95 % interval over pairs
    of one instance.
    """
    points: list[tuple[float, float, float]] = []
    for power in powers:
        mine = costs_at_power(some, power)
        theirs = costs_at_power(base, power)
        scale = 100.0 / np.mean(list(theirs.values()))
        mean, half = mean_and_half_interval(
            scale * np.array([[theirs[name] - cost] for name, cost in mine.items()])
        )
        points.append((power, mean[0], half[0]))
    return Curve(label, *np.array(points).T, marked=True, name=colour_name(some[0]))


def costs_at_power(some: Sequence[Result], power: float) -> dict[tuple[str, str], float]:
    """Mean cost of each instance of a power."""
    those = group_by_instance([r for r in some if r.power == power])
    return {name: float(np.mean(costs_of(its))) for name, its in those.items()}


def has_gaps(results: Sequence[Result]) -> bool:
    """Whether every instance has a reference."""
    return all(r.reference for r in results)


def mean_curve(label: str, some: Sequence[Result], along: int, what: int) -> Curve:
    """Mean and interval over instances of a method's traces; each keeps its last value until its
    next step.
    """
    share = [1.0 if along == ATTEMPTS else r.together for r in some]
    traces = [np.asarray(r.trace, dtype=np.float64) for r in some]
    times = [trace[:, along] / s for trace, s in zip(traces, share, strict=True)]
    begin = max(t[0] for t in times)
    end = max(t[-1] for t in times)
    grid = np.unique(np.concatenate([t[t >= begin] for t in times]))
    if len(grid) > CURVE_POINTS:
        grid = np.geomspace(grid[grid > 0][0], end, CURVE_POINTS)
    values = np.stack(
        [
            latest_values(grid, t, gaps_or_costs(trace[:, what], r, some))
            for t, trace, r in zip(times, traces, some, strict=True)
        ]
    )
    return Curve(
        label, grid, *mean_and_half_interval(average_seeds(values, some)), name=colour_name(some[0])
    )


def average_seeds(
    values: Float[np.ndarray, "R G"], some: Sequence[Result]
) -> Float[np.ndarray, "I G"]:
    """Values of each instance: those of its seeds are averaged."""
    names = np.array([r.instance for r in some])
    return np.stack([values[names == name].mean(0) for name in dict.fromkeys(names.tolist())])


def mean_and_half_interval(
    values: Float[np.ndarray, "I G"],
) -> tuple[Float[np.ndarray, "G"], Float[np.ndarray, "G"]]:
    """Mean over instances and half its 95 % interval; nothing is said of the interval of one."""
    deviation = values.std(0, ddof=1) if len(values) > 1 else np.zeros_like(values[0])
    return values.mean(0), NORMAL_95 * deviation / np.sqrt(len(values))


def latest_values(
    grid: Float[np.ndarray, "G"], times: Float[np.ndarray, "P"], values: Float[np.ndarray, "P"]
) -> Float[np.ndarray, "G"]:
    """The latest value at each time."""
    return values[np.maximum(np.searchsorted(times, grid + 1e-12, side="right") - 1, 0)]


def gaps_or_costs(
    costs: Float[np.ndarray, "P"], result: Result, some: Sequence[Result]
) -> Float[np.ndarray, "P"]:
    """Gaps in % where all results have a reference, else the costs themselves."""
    return (
        100.0 * (costs / result.reference - 1.0) if result.reference and has_gaps(some) else costs
    )


def level_curve(label: str, some: Sequence[Result]) -> Curve:
    """A method without steps: its mean as a level."""
    values = np.stack(
        [gaps_or_costs(np.array([c]), r, some) for r, c in zip(some, costs_of(some), strict=True)]
    )
    return Curve(
        label,
        np.ones(1),
        *mean_and_half_interval(average_seeds(values, some)),
        name=colour_name(some[0]),
    )


def budget_curve(label: str, some: Sequence[Result]) -> Curve:
    """One point for each method of a family: its mean seconds and mean gap."""
    points: list[tuple[float, float, float]] = []
    for one in group_results(some, lambda r: r.method).values():
        gaps = np.array([[100.0 * (r.gap or 0.0)] for r in one])
        mean, half = mean_and_half_interval(average_seeds(gaps, one))
        points.append((float(np.mean([r.seconds / r.together for r in one])), mean[0], half[0]))
    return Curve(label, *np.array(sorted(points)).T, marked=True, name=colour_name(some[0]))
