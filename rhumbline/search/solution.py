"""What a search returns: plans checked and priced on the host, and the phase that found each."""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pkgutil import resolve_name
from typing import Any

from rhumbline.domains import DOMAINS
from rhumbline.errors import Infeasible, LimitExceeded, RhumbError
from rhumbline.problems import Plan


@dataclass(frozen=True)
class CostChange:
    """The best cost before and after a phase, and what went wrong in it, if anything."""

    before: int | float
    after: int | float
    trouble: str = ""


@dataclass(frozen=True)
class Candidate:
    """A verified plan, its cost in the instance's own metric, and the phase that found it."""

    plan: Plan
    cost: int | float
    phase: str


@dataclass(frozen=True, repr=False)
class Solution:
    """A verified plan. `cost` was recomputed on the host in the instance's own metric.

    `unmet` says which limit of the instance the best plan exceeds. `solve` raises it, the command
    line prints it.
    """

    instance: Any
    plan: Plan
    cost: int | float
    attempts: int
    seconds: float
    trace: tuple[tuple[int, float, float], ...] = ()  # attempts, seconds, best cost of each step
    # What found the plan: "construction" (before the first attempt), "warm start", "search",
    # "polish" or the name of a solver.
    phase: str = "search"
    polish: CostChange | None = None
    then: CostChange | None = None
    others: tuple[Candidate, ...] = ()  # the next best different plans, cheapest first
    unmet: str | None = None

    @property
    def gap(self) -> float | None:
        """Relative distance to the best known cost, if one is known; costs may be negative."""
        known = self.instance.best_known
        if not known:
            return None
        return (self.cost - known) / abs(known)

    def __repr__(self) -> str:
        gap = self.gap
        facts = [f"cost {self.cost:g}"]
        if gap is not None:
            facts.append(f"gap {gap:.2%}")
        facts.append(f"{self.attempts:,} attempts")
        facts.append(f"{self.seconds:.1f} s")
        name = self.instance.name
        text = ", ".join(facts)
        return f"<Solution of {name}: {text}>"

    def plot(self, axes: Any = None, title: str = "") -> Any:
        """Draw the plan, into `axes` of matplotlib if given, and return the axes.

        The title is by default the name of the instance, the cost and the gap.
        """
        return draw_plan(self.instance, self.plan, axes, title)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the facts, and the plan if it can be drawn."""
        cost = f"{self.cost:,}" if isinstance(self.cost, int) else f"{self.cost:,.4f}"
        gap = self.gap
        share = "" if gap is None else f"{gap:.2%}"
        facts = {
            "instance": self.instance.name,
            "cost": cost,
            "gap": share,
            "attempts": f"{self.attempts:,}",
            "seconds": f"{self.seconds:.1f}",
            "found by": self.phase,
        }
        picture = self._repr_png_()
        return facts_table(facts, picture)

    def _repr_png_(self) -> bytes | None:
        """Return a picture of the plan, or None where it cannot be drawn."""
        return plan_picture(self.instance, self.plan)


def incumbent(
    instance: Any, plan: Plan, warm_start: Plan | None, attempts: int
) -> tuple[Candidate, str | None]:
    """Return the plan of a search, or the warm start if that is no worse in the file's own metric.

    The second value names the limit of the instance that the plan exceeds, if any.
    """
    unmet = unmet_limit(plan, instance, attempts)
    cost = plan.cost(instance)
    found = Candidate(plan, cost, "search")
    if warm_start is None:
        return found, unmet
    given_cost = warm_start.cost(instance)
    if unmet or given_cost <= cost:
        return Candidate(warm_start, given_cost, "warm start"), None
    return found, unmet


def unmet_limit(plan: Plan, instance: Any, attempts: int) -> str | None:
    """Check a plan; return a message if it exceeds a limit of its instance, else None."""
    try:
        plan.check(instance)
    except LimitExceeded as error:
        noun = "attempt" if attempts == 1 else "attempts"
        advice = "search longer, or allow more"
        return f"{error}; {attempts:,} {noun} found none within the limit: {advice}"
    return None


def costs_less(cost: int | float, other: int | float) -> bool:
    """Return whether a cost is lower than another one by more than rounding.

    Lengths that are added in another order differ by that much. Costs may be negative.
    """
    relative_rounding = 1e-12  # of a sum of distances
    rounding = relative_rounding * abs(other)
    return cost < other - rounding


def is_feasible(plan: Plan, instance: Any) -> bool:
    """Return whether a plan obeys all rules; rollouts do not know the limits of a fleet."""
    try:
        plan.check(instance)
    except Infeasible:
        return False
    return True


# --- what a notebook shows


def draw_plan(instance: Any, plan: Plan, axes: Any = None, title: str = "") -> Any:
    """Draw a plan in the way of its problem; return the axes of matplotlib.

    Raises `MissingExtra` without matplotlib, and `InputError` for problems without pictures.
    """
    domain = DOMAINS.find(instance.problem, "problem")
    draw = resolve_name(domain.require("draw", "drawing a plan"))
    return draw(instance, plan, axes=axes, title=title)


def plan_picture(instance: Any, plan: Plan) -> bytes | None:
    """Return a plan as a PNG, or None where it cannot be drawn.

    A notebook calls this for each value that it shows, so that an error would hide the value.
    """
    try:
        axes = draw_plan(instance, plan)
    except RhumbError:
        return None
    content = BytesIO()
    dots_per_inch = 80  # half of those of a picture in a file
    axes.figure.savefig(content, format="png", dpi=dots_per_inch)
    return content.getvalue()


def facts_table(facts: dict[str, str], picture: bytes | None) -> str:
    """Return facts as a table in HTML, with a picture below it if there is one."""
    return "".join(table_parts(facts, picture))


def table_parts(facts: dict[str, str], picture: bytes | None) -> Iterator[str]:
    """Yield the parts of the HTML. Names come from files, so all text is escaped."""
    yield "<table><tr>"
    for name in facts:
        yield f"<th>{escape(name)}</th>"
    yield "</tr><tr>"
    for fact in facts.values():
        yield f"<td>{escape(fact)}</td>"
    yield "</tr></table>"
    if picture is not None:
        encoded = b64encode(picture).decode()
        yield f'<img alt="the plan" src="data:image/png;base64,{encoded}">'
