"""Tables of named parts that other packages can extend: domains, strategies, engines.

A registry holds one literal table of `"module:attribute"` strings, so that a reader sees all names
and nothing is imported before it is used. An outside package adds a name by an entry point in its
`pyproject.toml`, without changing rhumbline:

    [project.entry-points."rhumbline.strategies"]
    nearby = "my_package:Nearby"
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from rhumbline.errors import InputError, note_once, shorten

EntryT = TypeVar("EntryT")


class Registry(Mapping[str, EntryT], Generic[EntryT]):
    """Names and the objects behind them, each loaded when it is first asked for.

    Our own names come first and cannot be replaced. An entry point that fails to import raises
    `InputError` with its name when it is asked for, and never when something else is.
    """

    def __init__(self, kind: str, table: Mapping[str, str]):
        self.kind = kind  # in the plural: "strategies"; the group is "rhumbline.strategies"
        self.table = dict(table)
        self.loaded: dict[str, EntryT] = {}

    @property
    def group(self) -> str:
        """The entry-point group of outside packages."""
        return f"rhumbline.{self.kind}"

    @cached_property
    def outside(self) -> dict[str, EntryPoint]:
        """Entry points of installed packages, by name; a name that is taken gives a note."""
        found = dict[str, EntryPoint]()
        for point in entry_points(group=self.group):
            name = point.name
            taken = name in self.table or name in found
            if taken:
                note = f"entry point '{name}' of {self.group} is ignored: the name is taken"
                note_once(f"{note} ({point.value})")
            else:
                found[name] = point
        return found

    def __getitem__(self, name: str) -> EntryT:
        if name not in self.loaded:
            self.loaded[name] = self.load(name)
        return self.loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.table
        yield from self.outside

    def __len__(self) -> int:
        return len(self.table) + len(self.outside)

    def __contains__(self, name: object) -> bool:
        return name in self.table or name in self.outside

    def load(self, name: str) -> EntryT:
        """Import what stands behind a name; raises `KeyError` for an unknown one."""
        if name in self.table:
            return load_reference(self.table[name])
        if name not in self.outside:
            raise KeyError(name)
        point = self.outside[name]
        try:
            return point.load()
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise InputError(
                f"'{name}' comes from the entry point {point.value} ({self.group}), "
                f"which cannot be loaded ({cause}); repair or uninstall that package"
            ) from error

    def find(self, name: str, what: str) -> EntryT:
        """The object behind a name that a user typed; an unknown one is refused with suggestions.

        `what` is the singular for the message, such as "strategy".
        """
        if name not in self:
            raise InputError(f"{what} '{shorten(name)}' is not known{suggest_known(name, self)}")
        return self[name]

    def working(self) -> Iterator[tuple[str, EntryT]]:
        """All names that can be loaded; a broken entry point is reported on stderr and left out."""
        for name in self:
            try:
                yield name, self[name]
            except InputError as error:
                note_once(str(error))


def load_reference(reference: str) -> Any:
    """Import what a "module:attribute" stands for."""
    module_name, _, attribute = reference.partition(":")
    module = import_module(module_name)
    return getattr(module, attribute)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" if a known name is close to `name`, and "" otherwise.

    Capitals make no difference: `--device CPU` is close to cpu.
    """
    if len(name) > 100:  # the comparison takes quadratic time
        return ""
    typed = name.lower()
    lowered = {other.lower(): other for other in known}
    close = get_close_matches(typed, lowered, n=5)
    if not close:
        return ""
    best = max(close, key=lambda other: similarity(other, typed))
    return f" (did you mean '{shorten(lowered[best])}'?)"


def similarity(known: str, typed: str) -> tuple[float, int]:
    """Return how similar two names are: by common characters, then by those in the same place.

    The places make tsp100 closer to tsp10 than tsp150.
    """
    common = SequenceMatcher(None, known, typed).ratio()
    in_place = sum(one == other for one, other in zip(known, typed, strict=False))
    return common, in_place


def suggest_known(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a close one, if any, and all known."""
    names = list(known)
    listed = shorten(", ".join(names), limit=320)
    return f"{did_you_mean(name, names)}; known: {listed or 'none'}"
