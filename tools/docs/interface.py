"""The reference of `import rhumbline`: every public name, by what it is for."""

import inspect
from collections.abc import Iterable

import rhumbline

# Sections, each with its public names in the order of the page.
SECTIONS = {
    "Solving": ("solve", "solve_many", "Solution", "Improvement"),
    "Files": ("read", "write_plan"),
    "Instances": (
        "TSPInstance",
        "CVRPInstance",
        "JSSPInstance",
    ),
    "A search, step by step": ("prepare", "stream", "Budget", "Progress"),
    "Strategies": (
        "CMAES",
        "CMAESPublished",
        "CMAESElite",
        "CMAESRefine",
        "CMAESEAS",
        "EASEmb",
        "EASLay",
        "SGBS",
        "SGBSEAS",
        "Sampling",
        "SamplingElite",
        "Greedy",
        "Uniform",
        "Fixed",
        "Population",
    ),
    "Policies and training": ("load", "save", "train", "TrainConfig"),
    "Problems and decoding": ("TSP", "CVRP", "JSSP", "rollout", "log_prob"),
    "Errors": ("RhumbError", "InputError", "CheckpointError", "MissingExtra", "Infeasible"),
}


def unlisted_names() -> set[str]:
    """Return the public names that no section has."""
    listed = {name for names in SECTIONS.values() for name in names}
    return set(rhumbline.__all__) ^ listed


def describe_interface() -> str:
    """Return a section for each group of names, documented by autodoc."""
    assert not unlisted_names(), f"sort into SECTIONS: {unlisted_names()}"
    return "\n\n".join(describe_section(title, names) for title, names in SECTIONS.items())


def describe_section(title: str, names: Iterable[str]) -> str:
    """Return a section with autodoc's directive for each name."""
    rows = [f"## {title}", "", "```{eval-rst}"]
    for name in names:
        rows += [*directive(name), ""]
    return "\n".join([*rows, "```"])


def directive(name: str) -> list[str]:
    """Return the directive that documents a name."""
    value = getattr(rhumbline, name)
    if not inspect.isclass(value):
        return [f".. autofunction:: rhumbline.{name}"]
    rows = [f".. autoclass:: rhumbline.{name}"]
    if name not in SECTIONS["Strategies"] and not issubclass(value, Exception):
        rows += ["   :members:", "   :undoc-members:"]
    return rows
