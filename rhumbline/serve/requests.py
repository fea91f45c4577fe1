"""From the JSON body of a job to an instance and a way to solve it."""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rhumbline import files
from rhumbline.errors import InputError, RhumbError
from rhumbline.improvers import SOLVER_NAMES
from rhumbline.inputs import instances_from
from rhumbline.pipeline import SolveRequest, max_group_length
from rhumbline.registry import did_you_mean
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.driver import Budget
from rhumbline.search.strategies import STRATEGIES, build_strategy
from rhumbline.serve.settings import ServiceSettings


@dataclass(frozen=True)
class RequestLimits:
    """Limits of the fields of a job, on every server."""

    max_seed: int = 2**31 - 1
    max_attempts: int = 10**9
    max_plans: int = 100  # that `top` may ask for
    max_name_characters: int = 200
    max_suffix_characters: int = 12  # of a file name, with the dot
    max_quoted_characters: int = 60  # of a value in a message


LIMITS = RequestLimits()


class Refused(RhumbError):
    """A request that is refused, with an HTTP status."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class JobRequest:
    """A job as its client described it. Nothing in it names a file of the server."""

    instance: Mapping[str, Any]  # "name" and "text", or the fields of an instance
    seconds: float | None
    attempts: int | None
    search: str | None
    then: str
    seed: int
    top: int
    latents: bool  # whether to record the latents that the search tries

    @property
    def budget(self) -> Budget:
        """When the search stops."""
        return Budget(self.attempts, self.seconds)

    @property
    def way_to_solve(self) -> tuple[Any, ...]:
        """Return what jobs must have in common to be solved together."""
        return (
            self.seconds,
            self.attempts,
            self.search,
            self.then,
            self.seed,
            self.top,
            self.latents,
        )

    def solve_request(self) -> SolveRequest:
        """Return what the pipeline needs."""
        return SolveRequest(
            budget=self.budget,
            strategy=self.search,
            seed=self.seed,
            after=AfterSearch(top=self.top, then=None if self.then == "none" else self.then),
        )


def parse_request(body: Any, settings: ServiceSettings) -> JobRequest:
    """Return the job that a JSON body describes; raise `InputError` at the first fault."""
    if not isinstance(body, Mapping):
        expected = 'expected an object such as {"name": "a280.tsp", "text": "...", "seconds": 10}'
        raise InputError(f"the body is no JSON object; {expected}")
    option_names = ("seconds", "attempts", "search", "then", "seed", "top", "latents")
    fields: dict[str, Any] = {str(name): value for name, value in body.items()}
    options = {name: fields.pop(name) for name in option_names if name in fields}
    max_seconds = settings.max_seconds
    seconds = number_within(options, "seconds", max_seconds)
    attempts = whole_number_within(options, "attempts", 1, LIMITS.max_attempts)
    if seconds is None:
        # A job in attempts alone has an end in time as well: a service must not be occupied.
        seconds = settings.default_seconds if attempts is None else max_seconds
    search = options.get("search")
    if search is not None:
        check_name(search, "search", tuple(STRATEGIES))
        build_strategy(search)
    then = options.get("then", "auto")
    check_name(then, "then", ("none", *SOLVER_NAMES))
    latents = options.get("latents", False)
    if not isinstance(latents, bool):
        raise InputError(f"latents is {quote_value(latents)}, expected true or false")
    return JobRequest(
        instance=fields,
        seconds=seconds,
        attempts=attempts,
        search=search,
        then=then,
        seed=whole_number_within(options, "seed", 0, LIMITS.max_seed) or 0,
        top=whole_number_within(options, "top", 1, LIMITS.max_plans) or 1,
        latents=latents,
    )


def make_instance(request: JobRequest, settings: ServiceSettings) -> Any:
    """Return the instance of a job; raise `InputError` if it cannot be read or is too large."""
    fields = dict(request.instance)
    if "text" in fields:
        instance = instance_from_text(fields)
    else:
        if not fields:
            raise InputError('the body has no instance; give "name" and "text", or "coordinates"')
        found = instances_from(fields)
        instance = found[0]
    if instance.size > settings.max_nodes:
        limit = f"this service takes {settings.max_nodes:,} at most"
        raise InputError(f"{instance.name}: has size {instance.size:,}; {limit}")
    return instance


def instance_from_text(fields: dict[str, Any]) -> Any:
    """Return the instance of a file that a client sent as text; its name gives only the suffix."""
    text = fields.pop("text")
    name = fields.pop("name", "instance")
    if fields:
        given = ", ".join(quote_value(field) for field in fields)
        raise InputError(f'a job with "text" has no other fields of an instance; it has {given}')
    if not isinstance(text, str) or not isinstance(name, str):
        raise InputError('"name" and "text" are strings')
    whole_name = Path(name.replace("\\", "/")).name
    file_name = whole_name[-LIMITS.max_name_characters :]
    suffix = Path(file_name).suffix
    is_safe = suffix[1:].isalnum() and len(suffix) <= LIMITS.max_suffix_characters
    safe_suffix = suffix if is_safe else ""
    with tempfile.TemporaryDirectory(prefix="rhumb-serve-") as folder:
        path = Path(folder) / f"instance{safe_suffix}"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            instance = files.read(path)
        except InputError as error:
            shown_name = drop_unprintable(file_name) or "instance"
            message = str(error).replace(str(path), shown_name)
            raise InputError(message) from None
    if instance.name != path.stem:
        return instance
    # The file has no name of its own.
    stem = drop_unprintable(Path(file_name).stem)
    return replace(instance, name=stem or "instance")


def max_batch_length(instance: Any, settings: ServiceSettings) -> int:
    """Return how many instances of this size are solved together at most."""
    by_memory = max_group_length(instance.size, copies=1)
    return min(settings.max_batch, by_memory)


# --- fields


def number_within(options: Mapping[str, Any], name: str, largest: float) -> float | None:
    """Return a number above 0, or None if it was not given."""
    value = options.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= largest or not math.isfinite(value):
        expected = f"expected a number above 0, {largest:g} at most"
        raise InputError(f"{name} is {quote_value(value)}, {expected}")
    return float(value)


def whole_number_within(
    options: Mapping[str, Any], name: str, least: int, largest: int
) -> int | None:
    """Return a whole number, or None if it was not given."""
    value = options.get(name)
    if value is None:
        return None
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not least <= value <= largest:
        expected = f"expected a whole number from {least} to {largest:,}"
        raise InputError(f"{name} is {quote_value(value)}, {expected}")
    return value


def check_name(value: Any, what: str, known: tuple[str, ...]) -> None:
    """Raise unless a value is one of the known names."""
    if value in known:
        return
    hint = did_you_mean(value, known) if isinstance(value, str) else ""
    found = f"{what} is {quote_value(value)}, which is not known{hint}"
    raise InputError(f"{found}; use {', '.join(known)}")


def quote_value(value: Any) -> str:
    """Return a value of a request for a message: short, and on one line."""
    text = repr(value)
    return text[: LIMITS.max_quoted_characters]


def drop_unprintable(text: str) -> str:
    """Return the text without characters that do not print."""
    letters = [letter for letter in text if letter.isprintable()]
    shown = letters[: LIMITS.max_name_characters]
    return "".join(shown)
