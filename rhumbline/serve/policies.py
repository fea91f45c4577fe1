"""The checkpoints that a service uses instead of the default ones."""

from collections.abc import Sequence

from rhumbline.checkpoint import find_checkpoint, load
from rhumbline.errors import InputError
from rhumbline.pipeline import rules_of


def policies_by_problem(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the problem and the checkpoint of each name or path; refuse two of one problem."""
    found: dict[str, str] = {}
    for name in names:
        checkpoint = find_checkpoint(name, "")
        path = str(checkpoint)
        policy = load(path)
        problem = rules_of(policy).solves
        if problem in found:
            both = f"{found[problem]} and {name} both solve '{problem}'"
            raise InputError(f"{both}; give one --policy for each problem")
        found[problem] = path
    return tuple(found.items())
