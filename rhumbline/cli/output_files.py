"""Where results go: file names made of instance names, and folders that are tried before any
work. No typer here.
"""

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from rhumbline.errors import InputError

MAX_STEM_LENGTH = 100  # characters of a file name before its ending; file systems take 255 bytes


def prepare_folder(folder: Path) -> Path:
    """The folder, created if missing and proved writable, so that no work is lost at the end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".rhumb-"):
            return folder
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(
            f"{folder}: nothing can be written there: {reason}; choose another folder"
        ) from error


def check_replaceable(paths: Iterable[Path]) -> None:
    """Refuse results whose names folders or read-only files have."""
    for path in paths:
        if path.exists() and not (path.is_file() and os.access(path, os.W_OK)):
            raise InputError(f"{path}: cannot be replaced; it is a folder or read-only")


def unique_stems(names: Sequence[str]) -> list[str]:
    """A file name for each instance: safe anywhere, and unique; the second of a name gets -2."""
    taken: set[str] = set()
    chosen: list[str] = []
    for name in names:
        stem = unused_stem(safe_stem(name), taken)
        taken.add(stem.lower())
        chosen.append(stem)
    return chosen


def plan_stems(stems: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """Names for so many plans of each instance: its own, and for the others that with .2, .3 and
    so on behind it.
    """
    taken = {stem.lower() for stem in stems}  # others than these cannot meet: their stems differ
    return [
        (stem, *(unused_stem(f"{stem}.{rank}", taken) for rank in range(2, count + 1)))
        for stem in stems
    ]


def safe_stem(name: str) -> str:
    """A name without separators, spaces, leading dots or dashes."""
    return (
        re.sub(r"[^\w.+-]+", "_", name, flags=re.ASCII).lstrip(".-")[:MAX_STEM_LENGTH] or "instance"
    )


def unused_stem(stem: str, taken: set[str]) -> str:
    """The stem itself, or with the first number from 2 that nobody has; some file systems do not
    know cases.
    """
    number = 1
    candidate = stem
    while candidate.lower() in taken:
        number += 1
        candidate = f"{stem}-{number}"
    return candidate
