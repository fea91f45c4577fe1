"""Figures of result lines: each is drawn if the lines have what it shows."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from rhumbline.bench.report import NORMAL_95
from rhumbline.bench.results import Result, costs_of, found_among, grouped
from rhumbline.plots.canvas import save
from rhumbline.plots.curves import Curve, draw_anytime, draw_search, draw_shift
from rhumbline.plots.radar import draw_radar

CURVE_POINTS = 64
ATTEMPTS, SECONDS, BEST, LATEST = range(4)  # columns of a trace
OURS = "COMPASS"  # the method that others are compared with, if it is there


def draw_all(results: Sequence[Result], folder: Path) -> Iterator[Path]:
    """Draw what can be drawn and tell where; results without a cost are left out."""
    results = found_among(results)
    for name, some in grouped(results, lambda r: f"{r.suite}-{r.set}").items():
        yield from written(folder / f"search-{name}.png", search_figure(some))
        yield from written(folder / f"seconds-{name}.png", anytime_figure(some))
    for problem, some in grouped([r for r in results if r.power is not None], lambda r: r.problem).items():
        yield from written(folder / f"mutations-{problem}.png", shift_figure(some))
    yield from written(folder / "radar.png", radar_figure(results))


def written(path: Path, figure: Any | None) -> Iterator[Path]:
    """The path of a figure after it was saved; nothing if there is none."""
    if figure is not None:
        save(path, figure)
        yield path


def search_figure(results: Sequence[Result]) -> Any | None:
    """Best so far and latest step over attempts, where searches have left a trace of several steps."""
    if not any(len(r.trace) > 1 for r in results):
        return None
    measured = [some for some in grouped(results, lambda r: r.method).values() if some[0].trace]
    best = [curve(some, ATTEMPTS, BEST) for some in measured]
    best += [level(some) for some in grouped(results, lambda r: r.method).values() if not some[0].trace]
    latest = [curve(some, ATTEMPTS, LATEST) for some in measured if len(some[0].trace) > 1]
    return draw_search(
        best, latest, "gap, %" if has_gaps(results) else "cost", f"{heading(results)}, with 95 % intervals"
    )


def anytime_figure(results: Sequence[Result]) -> Any | None:
    """Gap over seconds of families, or of methods that belong to none, where references are known."""
    families = grouped(results, lambda r: r.family or r.method)
    if len(families) < 2 or not has_gaps(results):
        return None
    curves = [
        curve(some, SECONDS, BEST) if any(len(r.trace) > 1 for r in some) else budget_curve(family, some)
        for family, some in families.items()
    ]
    return draw_anytime(curves, heading(results))


def heading(results: Sequence[Result]) -> str:
    """What a figure of curves shows."""
    return f"{results[0].set}: mean over {len({r.instance for r in results}):,} instances"


def shift_figure(results: Sequence[Result]) -> Any | None:
    """The difference to our method, or else to the last one, over powers that all methods were measured at."""
    methods = grouped(results, lambda r: r.method)
    means = {name: mean_costs(some) for name, some in methods.items()}
    powers = sorted(set.intersection(*(set(m) for m in means.values())))
    if len(powers) < 2 or len(means) < 2:
        return None
    base = next((name for name in means if name.startswith(OURS)), list(means)[-1])
    difference = {
        name: np.array([100.0 * (means[base][p] - mean[p]) / means[base][p] for p in powers])
        for name, mean in means.items()
    }
    return draw_shift(np.array(powers), difference, base, f"{results[0].problem}, mutated")


def mean_costs(results: Sequence[Result]) -> dict[float, float]:
    """Mean cost of a method at each power."""
    groups = grouped(results, lambda r: repr(r.power))
    return {float(power): float(np.mean(costs_of(some))) for power, some in groups.items()}


def radar_figure(results: Sequence[Result]) -> Any | None:
    """Searches by category: on each set from the worst (0) to the best (1), averaged over the sets of a category."""
    tasks = grouped([r for r in results if r.category and r.attempts], lambda r: f"{r.category}\0{r.suite}\0{r.set}")
    points: dict[str, dict[str, list[float]]] = {}
    for task, some in tasks.items():
        for method, score in normalised(some).items():
            points.setdefault(task.split("\0")[0], {}).setdefault(method, []).append(score)
    shared = [m for m in dict.fromkeys(r.method for r in results) if points and all(m in p for p in points.values())]
    if len(points) < 3 or len(shared) < 2:
        return None
    return draw_radar(list(points), {m: [float(np.mean(points[c][m])) for c in points] for m in shared})


def normalised(results: Sequence[Result]) -> dict[str, float]:
    """Mean costs of methods as scores from 0 to 1."""
    means = {m: float(np.mean(costs_of(some))) for m, some in grouped(results, lambda r: r.method).items()}
    worst, best = max(means.values()), min(means.values())
    return {m: (worst - mean) / (worst - best) if worst > best else 1.0 for m, mean in means.items()}


def has_gaps(results: Sequence[Result]) -> bool:
    """Whether every instance has a reference."""
    return all(r.reference for r in results)


def curve(some: Sequence[Result], along: int, what: int) -> Curve:
    """Mean and interval over instances of a method's traces; each keeps its last value until its next step."""
    share = [1.0 if along == ATTEMPTS else r.together for r in some]
    traces = [np.asarray(r.trace, dtype=np.float64) for r in some]
    times = [trace[:, along] / s for trace, s in zip(traces, share, strict=True)]
    begin, end = max(t[0] for t in times), max(t[-1] for t in times)
    grid = np.unique(np.concatenate([t[t >= begin] for t in times]))
    if len(grid) > CURVE_POINTS:
        grid = np.geomspace(max(begin, 1e-3), end, CURVE_POINTS)
    values = np.stack(
        [at(grid, t, in_unit(trace[:, what], r, some)) for t, trace, r in zip(times, traces, some, strict=True)]
    )
    return Curve(name_of(some[0], along), grid, *mean_and_half(values, some))


def mean_and_half(
    values: Float[np.ndarray, "R G"], some: Sequence[Result]
) -> tuple[Float[np.ndarray, "G"], Float[np.ndarray, "G"]]:
    """Mean and half its 95 % interval; instances are the sample, seeds of one are averaged first."""
    names = np.array([r.instance for r in some])
    means = np.stack([values[names == name].mean(0) for name in dict.fromkeys(names.tolist())])
    deviation = means.std(0, ddof=1) if len(means) > 1 else np.zeros_like(means[0])
    return means.mean(0), NORMAL_95 * deviation / np.sqrt(len(means))


def name_of(result: Result, along: int) -> str:
    """A method in figures over attempts, a family in those over time."""
    return result.family if along == SECONDS and result.family else result.method


def at(
    grid: Float[np.ndarray, "G"], times: Float[np.ndarray, "P"], values: Float[np.ndarray, "P"]
) -> Float[np.ndarray, "G"]:
    """The latest value at each time."""
    return values[np.maximum(np.searchsorted(times, grid + 1e-12, side="right") - 1, 0)]


def in_unit(costs: Float[np.ndarray, "P"], result: Result, some: Sequence[Result]) -> Float[np.ndarray, "P"]:
    """Gaps in % where all results have a reference, else the costs themselves."""
    return 100.0 * (costs / result.reference - 1.0) if result.reference and has_gaps(some) else costs


def level(some: Sequence[Result]) -> Curve:
    """A method without steps: its mean as a level."""
    values = np.stack([in_unit(np.array([c]), r, some) for r, c in zip(some, costs_of(some), strict=True)])
    return Curve(some[0].method, np.ones(1), *mean_and_half(values, some))


def budget_curve(family: str, some: Sequence[Result]) -> Curve:
    """One point for each method of a family: its mean seconds and mean gap."""
    points = []
    for one in grouped(some, lambda r: r.method).values():
        mean, half = mean_and_half(np.array([[100.0 * (r.gap or 0.0)] for r in one]), one)
        points.append((np.mean([r.seconds / r.together for r in one]), mean[0], half[0]))
    x, mean, spread = np.array(sorted(points)).T
    return Curve(family, x, mean, spread, marked=True)
