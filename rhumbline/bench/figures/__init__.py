"""Figures of results. Each is drawn if the results have what it shows.

Figures separate results by the same fields as tables do. They compare methods on the instances
that all of them have.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from rhumbline.bench.figures.radar import radar_figure
from rhumbline.bench.provenance import group_by_label
from rhumbline.bench.report import half_interval_95
from rhumbline.bench.results import (
    FIELDS,
    InstanceKey,
    Result,
    SetKey,
    costs_of,
    drop_missing,
    group_by_instance,
    group_results,
    keep_common_instances,
)
from rhumbline.plots.canvas import save_figure
from rhumbline.plots.curves import (
    STYLE,
    Curve,
    Palette,
    assign_colours,
    draw_anytime,
    draw_search,
    draw_shift,
    is_ours,
)


class TraceColumn(IntEnum):
    """The columns of a trace."""

    ATTEMPTS = 0
    SECONDS = 1
    BEST = 2
    LATEST = 3


class Point(NamedTuple):
    """A point of a curve: a mean with half its 95 % interval."""

    x: float
    mean: float
    half_interval: float


def draw_all(results: Sequence[Result], folder: Path) -> Iterator[Path]:
    """Draw all figures that the results allow, and yield their paths.

    Results without a cost are left out.
    """
    results = drop_missing(results)
    palette = assign_colours(names_by_frequency(results))
    sets = group_results(results, lambda result: result.set_key)
    for (suite, set_name), group in sets.items():
        name = safe_file_name(f"{suite}-{set_name}")
        path = folder / f"search-{name}.png"
        figure = search_figure(group, palette)
        yield from save_if_drawn(path, figure)
        path = folder / f"seconds-{name}.png"
        figure = anytime_figure(group, palette)
        yield from save_if_drawn(path, figure)
    for name, group in group_mutated(results).items():
        path = folder / f"mutations-{name}.png"
        figure = shift_figure(group, palette)
        yield from save_if_drawn(path, figure)
    figure = radar_figure(results, palette)
    yield from save_if_drawn(folder / "radar.png", figure)


def save_if_drawn(path: Path, figure: Any | None) -> Iterator[Path]:
    """Save a figure and yield its path, or do nothing if there is no figure."""
    if figure is not None:
        save_figure(path, figure)
        yield path


def safe_file_name(text: str) -> str:
    """Replace the characters that cannot be in a file name.

    Suites refuse such names, but result lines may come from anywhere.
    """
    return re.sub(r"[^\w.+ -]", "_", text)


def colour_name(result: Result) -> str:
    """Return what has one colour in all figures: a family, or a method without a family."""
    return result.family or result.method


def names_by_frequency(results: Sequence[Result]) -> list[str]:
    """Return names by the number of sets that they are on, the most frequent first.

    If there are more names than colours, those that are in most figures have different ones.
    """
    sets: dict[str, set[SetKey]] = {}
    for result in results:
        name = colour_name(result)
        sets.setdefault(name, set()).add(result.set_key)
    return sorted(sets, key=lambda name: -len(sets[name]))


def group_mutated(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Group the results on mutated instances by problem, and by suite if there are several."""
    mutated = [result for result in results if result.power is not None]
    suites: dict[str, set[str]] = {}
    for result in mutated:
        suites.setdefault(result.problem, set()).add(result.suite)

    def name_of(result: Result) -> str:
        if len(suites[result.problem]) == 1:
            return result.problem
        return safe_file_name(f"{result.suite}-{result.problem}")

    return group_results(mutated, name_of)


def search_figure(results: Sequence[Result], palette: Palette | None = None) -> Any | None:
    """Draw the best cost so far and that of the latest step, over attempts.

    Returns None unless some search has left a trace of several steps.
    """
    methods = keep_common_instances(group_by_label(results))
    shown = join_groups(methods)
    if not has_steps(shown):
        return None
    best: list[Curve] = []
    levels: list[Curve] = []
    latest: list[Curve] = []
    for label, group in methods.items():
        if not all(result.trace for result in group):
            levels.append(level_curve(label, group))
            continue
        best.append(mean_curve(label, group, TraceColumn.ATTEMPTS, TraceColumn.BEST))
        if has_steps(group):
            latest.append(mean_curve(label, group, TraceColumn.ATTEMPTS, TraceColumn.LATEST))
    unit = "gap, %" if has_gaps(shown) else "cost"
    return draw_search(best + levels, latest, unit, figure_title(shown), palette)


def join_groups(groups: Mapping[str, Sequence[Result]]) -> list[Result]:
    """Return the results of all groups."""
    return [result for group in groups.values() for result in group]


def has_steps(results: Sequence[Result]) -> bool:
    """Return whether some trace has several steps."""
    step_counts = [len(result.trace) for result in results]
    return any(count > 1 for count in step_counts)


def has_gaps(results: Sequence[Result]) -> bool:
    """Return whether every instance has a reference."""
    return all(result.reference for result in results)


def anytime_figure(results: Sequence[Result], palette: Palette | None = None) -> Any | None:
    """Draw the gap over seconds of each family, or of each method without a family.

    Returns None unless all references are known and there are at least two curves.
    """
    by_label = group_by_label(results)
    common = keep_common_instances(by_label)
    shown = join_groups(common)
    hardware = [result.hardware for result in shown]
    machines = list(dict.fromkeys(hardware))
    several_machines = len(machines) > 1

    def name_of(result: Result) -> str:
        name = colour_name(result)
        if not several_machines:
            return name
        return f"{name}, {result.hardware}"

    families = group_by_label(shown, name_of, FIELDS.origin)
    if len(families) < 2 or not has_gaps(shown):
        return None
    curves: list[Curve] = []
    for label, group in families.items():
        if is_one_search(group):
            curve = mean_curve(label, group, TraceColumn.SECONDS, TraceColumn.BEST)
        else:
            curve = budget_curve(label, group)
        curves.append(curve)
    title = figure_title(shown)
    if not several_machines:  # Otherwise the legend names them.
        title += f"\non {machines[0]}"
    return draw_anytime(curves, title, palette=palette)


def is_one_search(results: Sequence[Result]) -> bool:
    """Return whether results are of one method that left traces.

    A family of methods with different budgets has a point for each instead.
    """
    methods = {result.method for result in results}
    if len(methods) > 1:
        return False
    have_traces = all(result.trace for result in results)
    return have_traces and has_steps(results)


def figure_title(results: Sequence[Result]) -> str:
    """Return the set of a figure and the number of its instances."""
    set_name = results[0].set
    instances = {result.instance for result in results}
    count = len(instances)
    sample = sample_text(count)
    return f"{set_name}: {sample}"


def sample_text(count: int) -> str:
    """Return in words how many instances a mean is of. One instance has no interval."""
    if count == 1:
        return "1 instance"
    return f"mean over {count:,} instances, with 95 % intervals"


def shift_figure(results: Sequence[Result], palette: Palette | None = None) -> Any | None:
    """Draw the difference to our method, or else to the last one, over the power of mutations.

    Returns None unless at least two methods were measured at two powers.
    """
    methods = keep_common_instances(group_by_label(results))
    shown = join_groups(methods)
    known_powers = {result.power for result in shown if result.power is not None}
    powers = sorted(known_powers)
    if len(powers) < 2 or len(methods) < 2:
        return None
    base = base_method(list(methods))
    curves: list[Curve] = []
    for label, group in methods.items():
        curves.append(shift_curve(label, group, methods[base], powers))
    sample = shift_sample_text(methods[base], powers)
    title = f"{results[0].problem}, mutated: {sample}"
    return draw_shift(curves, base, title, palette)


def base_method(names: Sequence[str]) -> str:
    """Return our method, or else the last one."""
    for name in names:
        if is_ours(name):
            return name
    return names[-1]


def shift_sample_text(base: Sequence[Result], powers: Sequence[float]) -> str:
    """Return in words how many instances each point of a shift figure is of."""
    counts = sorted({len(costs_at_power(base, power)) for power in powers})
    lowest = counts[0]
    highest = counts[-1]
    if highest == 1:
        return "1 instance at each power"
    number = f"{lowest:,}"
    if highest > lowest:
        number += f" to {highest:,}"
    return f"{number} instances at each power, with 95 % intervals"


def shift_curve(
    label: str, results: Sequence[Result], base: Sequence[Result], powers: Sequence[float]
) -> Curve:
    """Return the differences to the base in percent of its mean cost, a point for each power.

    The 95 % interval is that of pairs of one instance.
    """
    points: list[Point] = []
    for power in powers:
        costs = costs_at_power(results, power)
        base_costs = costs_at_power(base, power)
        differences = [[base_costs[key] - cost] for key, cost in costs.items()]
        mean_base_cost = np.mean(list(base_costs.values()))
        percents = 100.0 / mean_base_cost * np.array(differences)
        mean, half = mean_and_half_interval(percents)
        points.append(Point(power, mean[0], half[0]))
    return measured_curve(label, points, results)


def measured_curve(label: str, points: Sequence[Point], results: Sequence[Result]) -> Curve:
    """Return a curve of points that are measurements of their own."""
    columns = np.array(points).T
    return Curve(
        label,
        x=columns[0],
        mean=columns[1],
        half_interval=columns[2],
        is_measured=True,
        name=colour_name(results[0]),
    )


def costs_at_power(results: Sequence[Result], power: float) -> dict[InstanceKey, float]:
    """Return the mean cost of each instance of a power."""
    at_power = [result for result in results if result.power == power]
    groups = group_by_instance(at_power)
    costs: dict[InstanceKey, float] = {}
    for key, group in groups.items():
        costs[key] = float(np.mean(costs_of(group)))
    return costs


def mean_curve(
    label: str, results: Sequence[Result], along: TraceColumn, what: TraceColumn
) -> Curve:
    """Return mean and interval, over instances, of the traces of a method.

    `along` is the column of the x axis, `what` that of the values. A trace keeps its last value
    until its next step. The curve begins when all traces have begun.
    """
    times: list[np.ndarray] = []
    values: list[np.ndarray] = []
    for result in results:
        trace = np.asarray(result.trace, dtype=np.float64)
        share = 1.0 if along == TraceColumn.ATTEMPTS else result.together
        costs = trace[:, what]
        times.append(trace[:, along] / share)
        values.append(gaps_or_costs(costs, result, results))
    grid = common_grid(times)
    on_grid: list[np.ndarray] = []
    for time, value in zip(times, values, strict=True):
        on_grid.append(latest_values(grid, time, value))
    averaged = average_seeds(np.stack(on_grid), results)
    mean, half = mean_and_half_interval(averaged)
    name = colour_name(results[0])
    return Curve(label, grid, mean, half, name=name)


def common_grid(times: Sequence[Float[np.ndarray, "P"]]) -> Float[np.ndarray, "G"]:
    """Return all times from which on all traces have begun, or an even logarithmic grid."""
    begin = max(time[0] for time in times)
    end = max(time[-1] for time in times)
    common = [time[time >= begin] for time in times]
    grid = np.unique(np.concatenate(common))
    if len(grid) <= STYLE.max_points:
        return grid
    positive = grid[grid > 0]
    return np.geomspace(positive[0], end, STYLE.max_points)


def average_seeds(
    values: Float[np.ndarray, "R G"], results: Sequence[Result]
) -> Float[np.ndarray, "I G"]:
    """Return a row for each instance: the mean of the rows of its seeds."""
    names = np.array([result.instance for result in results])
    rows: list[np.ndarray] = []
    for name in dict.fromkeys(names.tolist()):
        seeds = values[names == name]
        rows.append(seeds.mean(0))
    return np.stack(rows)


def mean_and_half_interval(
    values: Float[np.ndarray, "I G"],
) -> tuple[Float[np.ndarray, "G"], Float[np.ndarray, "G"]]:
    """Return the mean over instances and half its 95 % interval, which is 0 for one instance."""
    mean = values.mean(0)
    half = np.zeros_like(values[0])
    if len(values) > 1:
        half = half_interval_95(values)
    return mean, half


def latest_values(
    grid: Float[np.ndarray, "G"], times: Float[np.ndarray, "P"], values: Float[np.ndarray, "P"]
) -> Float[np.ndarray, "G"]:
    """Return the latest value at each time of a grid."""
    after = np.searchsorted(times, grid + 1e-12, side="right")
    places = np.maximum(after - 1, 0)
    return values[places]


def gaps_or_costs(
    costs: Float[np.ndarray, "P"], result: Result, results: Sequence[Result]
) -> Float[np.ndarray, "P"]:
    """Return gaps in percent if all results have a reference, otherwise the costs."""
    if result.reference and has_gaps(results):
        return 100.0 * (costs / result.reference - 1.0)
    return costs


def level_curve(label: str, results: Sequence[Result]) -> Curve:
    """Return the mean of a method that has no steps, to be drawn as a level."""
    values: list[np.ndarray] = []
    for result, cost in zip(results, costs_of(results), strict=True):
        costs = np.array([cost])
        values.append(gaps_or_costs(costs, result, results))
    averaged = average_seeds(np.stack(values), results)
    mean, half = mean_and_half_interval(averaged)
    x = np.ones(1)
    name = colour_name(results[0])
    return Curve(label, x, mean, half, name=name)


def budget_curve(label: str, results: Sequence[Result]) -> Curve:
    """Return a point for each method of a family: its mean seconds and its mean gap."""
    points: list[Point] = []
    methods = group_results(results, lambda result: result.method)
    for group in methods.values():
        gaps = [[100.0 * (result.gap or 0.0)] for result in group]
        averaged = average_seeds(np.array(gaps), group)
        mean, half = mean_and_half_interval(averaged)
        seconds = [result.seconds / result.together for result in group]
        mean_seconds = float(np.mean(seconds))
        point = Point(mean_seconds, mean[0], half[0])
        points.append(point)
    points.sort()
    return measured_curve(label, points, results)
