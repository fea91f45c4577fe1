"""The radar figure: methods compared by category, and which sets and instances it shows."""

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
from rhumbline.plots.canvas import THEME
from rhumbline.plots.curves import Palette, is_ours
from rhumbline.plots.radar import draw_radar

SetResults = dict[str, list[Result]]  # of one set, by method


def radar_figure(results: Sequence[Result], palette: Palette | None = None) -> Any | None:
    """Draw the mean score of each method in each category.

    A score is 0 for the worst method of a set and 1 for the best. Returns None unless there are at
    least three categories and two methods.
    """
    categories = sets_by_category(results)
    names = methods_to_draw(categories)
    axis_titles: list[str] = []
    scores: dict[str, list[float]] = {name: [] for name in names}
    for category, sets in categories.items():
        common = common_results(sets, names)
        if not common:
            continue
        axis_titles.append(f"{category}\n{axis_size_text(common)}")
        set_scores = [normalised_scores(set_results) for set_results in common]
        for name in names:
            scores_of_name = [by_name[name] for by_name in set_scores]
            scores[name].append(float(np.mean(scores_of_name)))
    if len(axis_titles) < 3 or len(names) < 2:
        return None
    title = (
        "Mean over sets of a score of mean costs:\n"
        "0 is the worst of these methods on a set, 1 the best"
    )
    return draw_radar(axis_titles, scores, title, short_name_palette(names, palette))


def sets_by_category(results: Sequence[Result]) -> dict[str, list[SetResults]]:
    """Return the sets of each category in a fixed order.

    Classical solvers, which count no attempts, are left out.
    """
    first_categories = (
        "in distribution",
        "few-shot",
        "larger",
        "small shift",
        "medium shift",
        "large shift",
    )
    relevant = [result for result in results if result.category and result.attempts]
    by_category = group_results(relevant, lambda result: result.category)

    def order(category: str) -> tuple[int, str]:
        if category in first_categories:
            return first_categories.index(category), category
        return len(first_categories), category

    categories: dict[str, list[SetResults]] = {}
    for category in sorted(by_category, key=order):
        sets = group_results(by_category[category], lambda result: result.set_key)
        categories[category] = [results_by_method(group) for group in sets.values()]
    return categories


def results_by_method(results: Sequence[Result]) -> SetResults:
    """Return the results of a set by short method name.

    Where two methods have the same short name, their whole names are used.
    """
    whole_names: dict[str, set[str]] = {}
    for result in results:
        whole_names.setdefault(short_method_name(result), set()).add(result.method)

    def name_of(result: Result) -> str:
        short = short_method_name(result)
        if len(whole_names[short]) > 1:
            return result.method
        return short

    return group_by_label(results, name_of)


def short_method_name(result: Result) -> str:
    """Return the name of a method up to the first comma: "COMPASS, job shop" is COMPASS."""
    return result.method.split(",")[0]


def methods_to_draw(categories: Mapping[str, Sequence[SetResults]]) -> list[str]:
    """Return the methods that share a set with all others in every category of ours.

    If our method is missing, every category counts. As long as some category has no set with all
    methods, the method with the smallest number of sets is dropped, but never ours.
    """
    names: list[str] = []
    for sets in categories.values():
        for set_results in sets:
            names += [name for name in set_results if name not in names]
    ours = next((name for name in names if is_ours(name)), None)
    relevant = list(categories.values())
    if ours is not None:
        relevant = [sets for sets in relevant if has_method(sets, ours)]
    for sets in relevant:
        names = [name for name in names if has_method(sets, name)]
    while len(names) > 1 and not have_common_results(relevant, names):
        others = [name for name in names if name != ours]
        names.remove(rarest_method(relevant, others))
    return names


def have_common_results(categories: Sequence[Sequence[SetResults]], names: Sequence[str]) -> bool:
    """Return whether every category has a set on which all methods have results."""
    return all(common_results(sets, names) for sets in categories)


def has_method(sets: Sequence[SetResults], name: str) -> bool:
    """Return whether a method has results on one of the sets."""
    return any(name in set_results for set_results in sets)


def rarest_method(categories: Sequence[Sequence[SetResults]], names: Sequence[str]) -> str:
    """Return the method with results on the smallest number of sets, the last one of several."""
    counts = dict.fromkeys(reversed(names), 0)
    for sets in categories:
        for set_results in sets:
            for name in counts:
                counts[name] += name in set_results
    return min(counts, key=lambda name: counts[name])


def common_results(sets: Sequence[SetResults], names: Sequence[str]) -> list[SetResults]:
    """Return the sets on which all methods have results, with the instances that all have."""
    found: list[SetResults] = []
    for set_results in sets:
        if not all(name in set_results for name in names):
            continue
        common = keep_common_instances({name: set_results[name] for name in names})
        if common:
            found.append(common)
    return found


def normalised_scores(set_results: SetResults) -> dict[str, float]:
    """Return scores of the methods' mean costs, from 0 for the worst of them to 1."""
    means = {name: mean_cost(group) for name, group in set_results.items()}
    worst = max(means.values())
    best = min(means.values())
    if worst == best:
        return dict.fromkeys(means, 1.0)
    scores: dict[str, float] = {}
    for name, mean in means.items():
        scores[name] = (worst - mean) / (worst - best)
    return scores


def mean_cost(results: Sequence[Result]) -> float:
    """Return the mean cost over instances. The seeds of an instance are averaged first."""
    groups = group_by_instance(results)
    instance_means: list[Any] = []
    for group in groups.values():
        costs = costs_of(group)
        instance_means.append(np.mean(costs))
    return float(np.mean(instance_means))


def axis_size_text(sets: Sequence[SetResults]) -> str:
    """Return in words how many sets and instances an axis is of."""
    counts: list[int] = []
    for set_results in sets:
        first_group = next(iter(set_results.values()))
        counts.append(len(group_by_instance(first_group)))
    text = f"{len(counts)} set"
    if len(counts) > 1:
        text += "s"
    if len(set(counts)) == 1:
        return f"{text} x {counts[0]:,}"
    return f"{text}, {sum(counts):,} instances"


def short_name_palette(names: Sequence[str], palette: Palette | None) -> Palette | None:
    """Return the report's colours by short name: that of the first method with this name.

    The colour of a labelled name, such as "COMPASS (commit 1)", is that of the name.
    """
    if palette is None:
        return None
    colours: dict[str, str] = {}
    for name, colour in palette.items():
        short_name = name.split(",")[0]
        colours.setdefault(short_name, colour)
    colours.update(palette)
    chosen: dict[str, str] = {}
    for name in names:
        unlabelled = name.split(" (")[0]
        default = colours.get(unlabelled, THEME.ink)
        chosen[name] = colours.get(name, default)
    return chosen
