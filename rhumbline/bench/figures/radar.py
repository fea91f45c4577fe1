"""Searches compared by category: which methods, sets and instances a radar shows, and their
scores.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rhumbline.bench.provenance import group_by_label
from rhumbline.bench.results import (
    Result,
    costs_of,
    group_by_instance,
    group_results,
    keep_common_instances,
)
from rhumbline.plots.canvas import INK
from rhumbline.plots.curves import OURS, Palette
from rhumbline.plots.radar import draw_radar

CATEGORY_ORDER = (
    "in distribution",
    "few-shot",
    "larger",
    "small shift",
    "medium shift",
    "large shift",
)  # others behind them

SetResults = dict[str, list[Result]]  # one set: results by method


def radar_figure(results: Sequence[Result], palette: Palette | None = None) -> Any | None:
    """Searches by category: on each set from the worst (0) to the best (1), averaged over the
    sets of a category.
    """
    tasks = sets_by_category(results)
    names = methods_to_draw(tasks)
    shown = {
        category: common_results(some, names)
        for category, some in tasks.items()
        if common_results(some, names)
    }
    if len(shown) < 3 or len(names) < 2:
        return None
    scores = {c: [normalised_scores(task) for task in some] for c, some in shown.items()}
    lines = {
        name: [float(np.mean([s[name] for s in some])) for some in scores.values()]
        for name in names
    }
    title = "Mean over sets of a score of mean costs:\n0 is the worst of these methods on a set, 1 the best"
    return draw_radar(
        [f"{c}\n{axis_size_text(some)}" for c, some in shown.items()],
        lines,
        title,
        short_name_palette(names, palette),
    )


def sets_by_category(results: Sequence[Result]) -> dict[str, list[SetResults]]:
    """The sets of each category in a fixed order; classical solvers, which count no attempts,
    are left out.
    """
    some = group_results([r for r in results if r.category and r.attempts], lambda r: r.category)
    places = {name: place for place, name in enumerate(CATEGORY_ORDER)}
    ordered = sorted(
        some, key=lambda category: (places.get(category, len(CATEGORY_ORDER)), category)
    )
    return {
        c: [
            results_by_method(one)
            for one in group_results(some[c], lambda r: f"{r.suite}\0{r.set}").values()
        ]
        for c in ordered
    }


def results_by_method(results: Sequence[Result]) -> SetResults:
    """Results of a set by method up to the first comma, or by the whole name where two methods
    begin alike.
    """
    whole = {
        short: {r.method for r in some}
        for short, some in group_results(results, short_method_name).items()
    }
    return group_by_label(
        results,
        lambda r: short_method_name(r) if len(whole[short_method_name(r)]) == 1 else r.method,
    )


def short_method_name(result: Result) -> str:
    """A method without what is said of it: "COMPASS, job shop" is COMPASS."""
    return result.method.split(",")[0]


def methods_to_draw(tasks: Mapping[str, Sequence[SetResults]]) -> list[str]:
    """The methods that share a set with each other in every category that ours has, or else that
    any has.

    As long as some category has no set of all, the method with the fewest sets is given up, but
    never ours.
    """
    every = list(dict.fromkeys(name for some in tasks.values() for task in some for name in task))
    ours = next((name for name in every if name.startswith(OURS)), None)
    wanted = [some for some in tasks.values() if ours is None or any(ours in task for task in some)]
    names = [name for name in every if all(any(name in task for task in some) for some in wanted)]
    while len(names) > 1 and not all(common_results(some, names) for some in wanted):
        counts = {
            name: sum(name in task for some in wanted for task in some)
            for name in names
            if name != ours
        }
        names.remove(min(reversed(counts), key=lambda name: counts[name]))
    return names


def common_results(some: Sequence[SetResults], names: Sequence[str]) -> list[SetResults]:
    """Sets on which all these methods have results, with the instances that all of them have."""
    found = [
        keep_common_instances({name: task[name] for name in names})
        for task in some
        if all(name in task for name in names)
    ]
    return [task for task in found if task]


def normalised_scores(task: SetResults) -> dict[str, float]:
    """Mean costs of methods as scores from 0, the worst of them, to 1."""
    means = {name: mean_cost(some) for name, some in task.items()}
    worst = max(means.values())
    best = min(means.values())
    return {
        name: (worst - mean) / (worst - best) if worst > best else 1.0
        for name, mean in means.items()
    }


def mean_cost(results: Sequence[Result]) -> float:
    """Mean over instances; seeds of one are averaged first."""
    return float(np.mean([np.mean(costs_of(its)) for its in group_by_instance(results).values()]))


def axis_size_text(some: Sequence[SetResults]) -> str:
    """How many sets and instances stand behind an axis."""
    counts = [len(group_by_instance(next(iter(task.values())))) for task in some]
    sets = f"{len(counts)} set{'s' if len(counts) > 1 else ''}"
    return (
        f"{sets} x {counts[0]:,}" if len(set(counts)) == 1 else f"{sets}, {sum(counts):,} instances"
    )


def short_name_palette(names: Sequence[str], palette: Palette | None) -> Palette | None:
    """The colours of the report for shortened names: that of the first method whose name begins
    so.
    """
    if palette is None:
        return None
    short = {
        whole.split(",")[0]: colour for whole, colour in reversed(list(palette.items()))
    } | dict(palette)
    return {name: short.get(name, short.get(name.split(" (")[0], INK)) for name in names}
