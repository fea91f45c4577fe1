"""Tables of a comparison: gaps and paired differences, with intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from jaxtyping import Float

from rhumbline.bench.report import (
    duration_text,
    half_interval_95,
    markdown_table,
    mean_cost_text,
)
from rhumbline.bench.results import Result, group_results


@dataclass(frozen=True)
class MeanDifference:
    """A mean over instances in percent, with half its 95 % interval."""

    mean: float
    half: float  # infinite for one instance, of which there is no interval
    count: int

    def __str__(self) -> str:
        mean = f"{self.mean:+.4f}"
        if self.count < 2:
            return mean
        return f"{mean} ± {self.half:.4f}"

    @property
    def verdict(self) -> str:
        """Whether zero is outside the interval, in words."""
        if self.count < 2:
            return "one instance has no interval"
        if abs(self.mean) <= self.half:
            return "no significant difference"
        return "significantly better" if self.mean < 0 else "significantly worse"


def mean_difference(percents: Float[np.ndarray, "I"]) -> MeanDifference:
    """Return the mean of these percentages and its interval."""
    count = len(percents)
    mean = float(percents.mean())
    if count < 2:
        return MeanDifference(mean, inf, count)
    half = float(half_interval_95(percents))
    return MeanDifference(mean, half, count)


def paired_difference(ours: dict[str, float], theirs: dict[str, float]) -> MeanDifference | None:
    """Return how much more the first costs in percent, over the instances that both have."""
    common = [name for name in ours if theirs.get(name)]
    if not common:
        return None
    ratios = np.array([ours[name] / theirs[name] for name in common])
    excess = ratios - 1.0
    percents = 100.0 * excess
    return mean_difference(percents)


def costs_by_instance(results: Sequence[Result]) -> dict[str, float]:
    """Return the cost of each instance, averaged over seeds; instances without a plan lack."""
    found: dict[str, list[float]] = {}
    for result in results:
        cost = result.cost
        if cost is not None:
            costs = found.setdefault(result.instance, [])
            costs.append(cost)
    means: dict[str, float] = {}
    for name, costs in found.items():
        mean = np.mean(costs)
        means[name] = float(mean)
    return means


def known_costs(results: Sequence[Result]) -> tuple[dict[str, float], str]:
    """Return the costs that gaps are to: references if all instances have one, else the best."""
    references = {r.instance: r.reference for r in results if r.reference}
    if all(r.instance in references for r in results):
        return references, "the reference"
    best: dict[str, float] = {}
    for result in results:
        if result.cost is not None:
            best[result.instance] = min(result.cost, best.get(result.instance, inf))
    return best, "the best of these rows"


def comparison_tables(results: Sequence[Result]) -> str:
    """Return a table for each set in Markdown, and sentences on the paired differences."""
    parts = list[str]()
    by_set = group_results(results, lambda result: result.set)
    for name, mine in by_set.items():
        table = comparison_table(mine)
        parts += [f"### {name}", table]
        notes = difference_notes(mine)
        if notes:
            parts.append("\n".join(notes))
    return "\n\n".join(parts)


def comparison_table(results: Sequence[Result]) -> str:
    """Return the methods on one set: gaps, paired differences, and what they took."""
    known, title = known_costs(results)
    lines = [
        [
            "method",
            "n",
            "mean cost",
            f"gap to {title}, %",
            "difference to the first, %",
            "attempts",
            "time / instance",
        ]
    ]
    lines += [comparison_row(some, first, known) for some, first in pair_with_first(results)]
    return markdown_table(lines)


def comparison_row(
    some: Sequence[Result], first: Sequence[Result], known: dict[str, float]
) -> list[str]:
    """Return the cells of one method."""
    costs = costs_by_instance(some)
    gap = paired_difference(costs, known)
    difference = None if first is some else paired_difference(costs, costs_by_instance(first))
    attempts = [result.attempts for result in some if result.attempts is not None]
    seconds = [result.seconds / result.together for result in some]
    mean_cost = float(np.mean(list(costs.values()))) if costs else None
    return [
        some[0].method,
        f"{len(costs):,}",
        mean_cost_text(mean_cost),
        str(gap or "-"),
        str(difference or ""),
        f"{np.mean(attempts):,.0f}" if attempts else "",
        duration_text(sum(seconds) / len(some)),
    ]


def pair_with_first(results: Sequence[Result]) -> Iterator[tuple[list[Result], list[Result]]]:
    """Yield the results of each method, and those of the first method with the same budget."""
    firsts: dict[str, list[Result]] = {}
    methods = group_results(results, lambda result: result.method)
    for some in methods.values():
        budget = some[0].budget
        first = firsts.setdefault(budget, some)
        yield some, first


def difference_notes(results: Sequence[Result]) -> list[str]:
    """Return a sentence for each paired difference: whether it is significant."""
    notes = list[str]()
    for some, first in pair_with_first(results):
        if first is some:
            continue
        difference = paired_difference(costs_by_instance(some), costs_by_instance(first))
        if difference is not None:
            facts = f"{difference} %, n = {difference.count}"
            notes.append(
                f"- {some[0].method}, compared with {first[0].method}: "
                f"{difference.verdict} ({facts})"
            )
    return notes
