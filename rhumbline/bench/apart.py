"""What tells results of one name apart: tables, figures and legends use the same words for it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rhumbline.bench.results import Result, fact

ORIGIN = ("commit", "suite_hash", "versions")
FACTS = ("hardware", "budget", "solver", *ORIGIN)
WORDS = {"commit": "commit ", "suite_hash": "suite "}  # before a value that does not explain itself

Source = tuple[str, ...]  # a name, and a value of each fact


def source_of(item: Any, name: str, facts: Sequence[str]) -> Source:
    """A name with the facts of a result or a row."""
    return (name, *(fact(item, f) for f in facts))


def differences(sources: Iterable[Source], facts: Sequence[str]) -> dict[Source, str]:
    """What tells each source from others of its name, in words; nothing for the only one of a name."""
    by_name: dict[str, list[Source]] = {}
    for source in dict.fromkeys(sources):
        by_name.setdefault(source[0], []).append(source)
    return {source: words_of(source, some, facts) for some in by_name.values() for source in some}


def words_of(source: Source, some: Sequence[Source], facts: Sequence[str]) -> str:
    """The facts in which a source differs from some of the others; of its versions only those that differ."""
    said: list[str] = []
    for place, name in enumerate(facts, 1):
        values = {other[place] for other in some}
        if len(values) > 1:
            said.append(own_part(source[place], values) if name == "versions" else WORDS.get(name, "") + source[place])
    return "; ".join(said)


def own_part(value: str, values: Iterable[str]) -> str:
    """The items of a list that not all lists have."""
    common = set.intersection(*(set(v.split(", ")) for v in values))
    return ", ".join(item for item in value.split(", ") if item not in common)


def by_method(result: Result) -> str:
    """The usual name of a result."""
    return result.method


def named(
    results: Sequence[Result], called: Callable[[Result], str] = by_method, facts: Sequence[str] = FACTS
) -> dict[str, list[Result]]:
    """Results by name, those of one name kept apart by what differs, which the name then says."""
    sources = [source_of(r, called(r), facts) for r in results]
    words = differences(sources, facts)
    groups: dict[str, list[Result]] = {}
    for result, source in zip(results, sources, strict=True):
        label = f"{source[0]} ({words[source]})" if words[source] else source[0]
        groups.setdefault(label, []).append(result)
    return groups
