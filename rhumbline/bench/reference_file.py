"""Reference files: the best cost known of each instance of a set, what is proven, and who found it.

A file is an npz with a `cost` for each instance, NaN where there is none yet; perhaps a `bound`
that no plan can beat; and two sentences, `made_by` (solver, version, budget) and perhaps `made_on`
(day, machine). A sentence is one for all instances, or one for each where several makers have been
at work.
"""

import io
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float, Shaped

from rhumbline.errors import InputError
from rhumbline.formats.safe_io import read_bytes, write_bytes


@dataclass(frozen=True)
class References:
    """Costs and bounds (NaN where unknown) of the first instances of a set, and the makers of
    the costs.
    """

    cost: Float[np.ndarray, "R"]
    bound: Float[np.ndarray, "R"]
    made_by: Shaped[np.ndarray, "R"]
    made_on: Shaped[np.ndarray, "R"]

    @classmethod
    def empty(cls, count: int, made_by: str = "", made_on: str = "") -> "References":
        """Places for costs that one maker is going to find."""
        return cls(*(np.full(count, x) for x in (np.nan, np.nan, made_by, made_on)))

    @property
    def known(self) -> Shaped[np.ndarray, "R"]:
        """Which instances have a cost."""
        return ~np.isnan(self.cost)

    @property
    def proven(self) -> Shaped[np.ndarray, "R"]:
        """Which costs are optimal: the bound meets them."""
        return self.bound >= self.cost

    def first(self, count: int) -> "References":
        """Of so many instances; those that are not there yet have nothing."""
        more = References.empty(max(0, count - len(self.cost)))
        pairs = ((getattr(self, f.name), getattr(more, f.name)) for f in fields(self))
        return References(*(np.concatenate(pair)[:count] for pair in pairs))

    def merged(self, found: "References") -> "References":
        """The cheaper cost of each instance with its own maker, the earlier of equals; and the
        higher bound.
        """
        count = max(len(self.cost), len(found.cost))
        old = self.first(count)
        new = found.first(count)
        better = new.known & ~(new.cost >= old.cost)
        cost, made_by, made_on = (
            np.where(better, getattr(new, name), getattr(old, name))
            for name in ("cost", "made_by", "made_on")
        )
        return References(cost, np.fmax(old.bound, new.bound), made_by, made_on)

    def makers(self) -> str:
        """Who made the costs, and how many each, if there are several."""
        each = Counter(self.made_by[self.known].tolist())
        return "; ".join(
            f"{name} ({count})" if len(each) > 1 else name for name, count in each.items()
        )


def read_references(path: Path) -> References:
    """What a file holds, whoever has written it."""
    if not path.exists():
        raise InputError(
            f"{path}: no such reference file; make it with `rhumb bench reference SUITE --only SET`"
        )
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as stored:
            columns = {name: stored[name] for name in stored.files}
            cost = columns["cost"].astype(np.float64)
            made_by = columns["made_by"].astype(str)
            bound = columns.get("bound", np.array(np.nan)).astype(np.float64)
            made_on = columns.get("made_on", np.array("")).astype(str)
    except (OSError, KeyError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(
            f"{path}: is not a reference file with `cost` and `made_by` ({error})"
        ) from error
    if cost.ndim != 1:
        raise InputError(
            f"{path}: `cost` has shape {list(cost.shape)}, expected one cost for each instance"
        )
    for name, column in (("bound", bound), ("made_by", made_by), ("made_on", made_on)):
        if column.shape not in ((), cost.shape):
            raise InputError(
                f"{path}: `{name}` has shape {list(column.shape)}, but there are {len(cost)} costs"
            )
    return References(cost, *(np.broadcast_to(x, cost.shape) for x in (bound, made_by, made_on)))


def add_references(path: Path, found: References) -> None:
    """Put costs into a file, in one step: what it holds by now stays, unless it is worse."""
    old = read_references(path) if path.exists() else References.empty(0)
    whole = old.merged(found)
    refuse_broken_bounds(path, whole)
    columns: dict[str, Any] = {"cost": whole.cost, "made_by": compact_column(whole.made_by, whole)}
    columns |= (
        {"made_on": compact_column(whole.made_on, whole)} if any(whole.made_on[whole.known]) else {}
    )
    columns |= {} if np.isnan(whole.bound).all() else {"bound": whole.bound}
    content = io.BytesIO()
    np.savez_compressed(content, **columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content.getvalue())


def refuse_broken_bounds(path: Path, whole: References) -> None:
    """A plan below a bound of the file means that the two are not of the same instance."""
    wrong = np.flatnonzero(whole.cost < whole.bound - 1e-6)
    if len(wrong):
        place = int(wrong[0])
        raise InputError(
            f"{path}: instance {place + 1} has cost {whole.cost[place]:g} below its bound {whole.bound[place]:g}; "
            "the file is of other instances: move it away"
        )


def compact_column(column: Shaped[np.ndarray, "R"], whole: References) -> Shaped[np.ndarray, "..."]:
    """One sentence if all costs have the same, otherwise one for each instance."""
    said = set(column[whole.known].tolist())
    return np.array(said.pop()) if len(said) == 1 else np.where(whole.known, column, "")
