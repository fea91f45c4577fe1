"""Reference files: the best known cost of each instance of a set, its bound, and who found it.

A file is an npz archive with up to four columns:

- `cost`, one for each instance, NaN where there is none yet
- `bound`, a lower bound of the costs of all plans (optional)
- `made_by`, a sentence with solver, version and budget
- `made_on`, a sentence with day and machine (optional)

A sentence is one for all instances, or one for each if several makers have been at work.
"""

import io
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from jaxtyping import Float, Shaped

from rhumbline.errors import InputError
from rhumbline.formats.npz import read_arrays
from rhumbline.formats.safe_io import write_bytes


@dataclass(frozen=True)
class References:
    """Costs and bounds (NaN where unknown) of the first instances of a set, with their makers."""

    cost: Float[np.ndarray, "R"]
    bound: Float[np.ndarray, "R"]
    made_by: Shaped[np.ndarray, "R"]
    made_on: Shaped[np.ndarray, "R"]

    @classmethod
    def empty(cls, count: int, made_by: str = "", made_on: str = "") -> "References":
        """Return references without costs, which one maker is going to find."""
        return cls(
            cost=np.full(count, np.nan),
            bound=np.full(count, np.nan),
            made_by=np.full(count, made_by),
            made_on=np.full(count, made_on),
        )

    @property
    def has_cost(self) -> Shaped[np.ndarray, "R"]:
        """Which instances have a cost."""
        return ~np.isnan(self.cost)

    @property
    def is_proven(self) -> Shaped[np.ndarray, "R"]:
        """Which costs are optimal, because the bound meets them."""
        return self.bound >= self.cost

    def first(self, count: int) -> "References":
        """Return the first instances. Instances beyond the last one have neither cost nor bound."""
        missing_count = max(0, count - len(self.cost))
        missing = References.empty(missing_count)
        columns: dict[str, np.ndarray] = {}
        for column in fields(self):
            mine = getattr(self, column.name)
            added = getattr(missing, column.name)
            both = np.concatenate([mine, added])
            columns[column.name] = both[:count]
        return References(**columns)

    def merge(self, found: "References") -> "References":
        """Return the lower cost of each instance with its maker, and the higher bound.

        Of equal costs, that of `self` stays.
        """
        count = max(len(self.cost), len(found.cost))
        old = self.first(count)
        new = found.first(count)
        is_better = new.has_cost & ~(new.cost >= old.cost)
        return References(
            cost=np.where(is_better, new.cost, old.cost),
            bound=np.fmax(old.bound, new.bound),
            made_by=np.where(is_better, new.made_by, old.made_by),
            made_on=np.where(is_better, new.made_on, old.made_on),
        )

    def makers(self) -> str:
        """Return who made the costs, each with the number of costs if there are several."""
        makers = self.made_by[self.has_cost].tolist()
        counts = Counter(makers)
        if len(counts) == 1:
            return makers[0]
        texts = [f"{name} ({count})" for name, count in counts.items()]
        return "; ".join(texts)


def read_references(path: Path) -> References:
    """Read a reference file of any maker."""
    if not path.exists():
        raise InputError(
            f"{path}: no such reference file; make it with `rhumb bench reference SUITE --only SET`"
        )
    try:
        columns = read_columns(path)
        cost = columns["cost"].astype(np.float64)
        made_by = columns["made_by"].astype(str)
        bound = columns.get("bound", np.array(np.nan)).astype(np.float64)
        made_on = columns.get("made_on", np.array("")).astype(str)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: is not a reference file with `cost` and `made_by` ({error})"
        ) from error
    if cost.ndim != 1:
        raise InputError(
            f"{path}: `cost` has shape {list(cost.shape)}, expected one cost for each instance"
        )
    others = {"bound": bound, "made_by": made_by, "made_on": made_on}
    for name, column in others.items():
        fits = column.shape in ((), cost.shape)
        if not fits:
            raise InputError(
                f"{path}: `{name}` has shape {list(column.shape)}, but there are {len(cost)} costs"
            )
        others[name] = np.broadcast_to(column, cost.shape)
    return References(cost, **others)


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of an npz archive."""
    return read_arrays(path, "is not a reference file with `cost` and `made_by`")


def add_references(path: Path, found: References) -> None:
    """Merge costs into a file in one step. What the file holds by now stays, unless it is worse."""
    stored = read_references(path) if path.exists() else References.empty(0)
    merged = stored.merge(found)
    refuse_broken_bounds(path, merged)
    columns: dict[str, np.ndarray] = {
        "cost": merged.cost,
        "made_by": compact_column(merged.made_by, merged),
    }
    known_machines = merged.made_on[merged.has_cost]
    if any(known_machines):
        columns["made_on"] = compact_column(merged.made_on, merged)
    is_unknown = np.isnan(merged.bound)
    if not is_unknown.all():
        columns["bound"] = merged.bound
    content = io.BytesIO()
    np.savez_compressed(content, **columns)  # pyright: ignore[reportArgumentType]
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.getvalue()
    write_bytes(path, data)


def refuse_broken_bounds(path: Path, references: References) -> None:
    """Raise if a cost is below its bound, so that the two cannot be of the same instance."""
    broken = np.flatnonzero(references.cost < references.bound - 1e-6)
    if not len(broken):
        return
    place = int(broken[0])
    cost = references.cost[place]
    bound = references.bound[place]
    raise InputError(
        f"{path}: instance {place + 1} has cost {cost:g} below its bound {bound:g}; "
        "the file is of other instances: move it away"
    )


def compact_column(
    column: Shaped[np.ndarray, "R"], references: References
) -> Shaped[np.ndarray, "..."]:
    """Return one sentence if it holds for all costs, otherwise one for each instance."""
    sentences = set(column[references.has_cost].tolist())
    if len(sentences) == 1:
        return np.array(sentences.pop())
    return np.where(references.has_cost, column, "")
