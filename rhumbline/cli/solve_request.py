"""What `rhumb solve` was asked for besides the search, and how its settings are refused."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from rhumbline.errors import InputError, shorten
from rhumbline.improvers import SOLVER_NAMES
from rhumbline.pipeline import WrongSettings, first_strategy_accepting
from rhumbline.registry import suggest_known
from rhumbline.search.strategies import all_defaults, build_strategy, strategy_class


@dataclass(frozen=True)
class FileOptions:
    """What is read and written besides instances, plans and results."""

    vehicles: int | None = None  # the limit on the vehicles of a plan; None leaves it to the files
    capacity: float | None = None  # of each vehicle; None leaves it to the files
    warm_starts: tuple[Path, ...] = ()
    trace: Path | None = None
    skip_bad: bool = False  # whether to go on without the files that cannot be used


def check_after_search(then: str, attempts: int | None, seconds: float | None) -> None:
    """Refuse what is wrong whatever is installed and whatever the files hold."""
    if then not in SOLVER_NAMES:
        hint = suggest_known(then, SOLVER_NAMES)
        message = f"'{shorten(then)}' is not known{hint}"
        raise typer.BadParameter(message, param_hint="--then")
    names_solver = then not in ("auto", "none")
    has_attempts_only = attempts is not None and seconds is None
    if names_solver and has_attempts_only:
        message = "it takes the second half of the --seconds, so give them"
        raise typer.BadParameter(message, param_hint="--then")


def check_search(search: str | None, settings: Sequence[str]) -> None:
    """Refuse an unknown strategy, and settings that it does not accept.

    Without a name one of the default strategies must accept them; which one it is depends on the
    files.
    """
    if search is None:
        with report_wrong_usage():
            first_strategy_accepting(settings, all_defaults())
        return
    hint = "--search"
    try:
        strategy_class(search)
        hint = "--set"
        build_strategy(search, settings)
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


@contextmanager
def report_wrong_usage() -> Generator[None, None, None]:
    """Turn settings that the default strategy does not accept into wrong usage of `--set`."""
    try:
        yield
    except WrongSettings as error:
        raise typer.BadParameter(str(error), param_hint="--set") from error
