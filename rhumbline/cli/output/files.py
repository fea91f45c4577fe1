"""Where results go: file names made of instance names, and folders tested before any work.

This module does without typer, because `rhumb train` uses it.
"""

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rhumbline.errors import InputError


@dataclass(frozen=True)
class OutputPaths:
    """Where the files of each instance go.

    `stems` and `suffixes` are known after the instances have been read. `stems` holds the names
    for the plans of each instance, that of the best plan first.
    """

    output: Path | None
    plot: bool
    stems: tuple[tuple[str, ...], ...] = ()
    suffixes: tuple[str, ...] = ()  # of the plan files: .tour, .sol

    def plans(self, index: int, count: int) -> list[Path]:
        """Return the files for the best `count` plans of an instance; none without --output."""
        if self.output is None:
            return []
        suffix = self.suffixes[index]
        stems = self.stems[index][:count]
        return [self.output / f"{stem}{suffix}" for stem in stems]

    def picture(self, index: int) -> Path | None:
        """Return the file for the picture of an instance, or None without --plot."""
        if not self.plot:
            return None
        folder = self.output or Path()
        stem = self.stems[index][0]
        return folder / f"{stem}.png"

    def files(self, index: int, count: int) -> list[Path]:
        """Return all files of an instance that has `count` plans."""
        files = self.plans(index, count)
        picture = self.picture(index)
        if picture:
            files.append(picture)
        return files


def prepare_folder(folder: Path) -> Path:
    """Create a folder if it is missing and test that it is writable, before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".rhumb-"):
            return folder
    except (OSError, ValueError) as error:
        known_reason = error.strerror if isinstance(error, OSError) else None
        reason = known_reason or str(error)
        message = f"{folder}: nothing can be written there: {reason}; choose another folder"
        raise InputError(message) from error


def check_replaceable(paths: Iterable[Path]) -> None:
    """Refuse output files whose names belong to folders or read-only files."""
    for path in paths:
        is_file = path.is_file()
        is_replaceable = is_file and os.access(path, os.W_OK)
        if path.exists() and not is_replaceable:
            raise InputError(f"{path}: cannot be replaced; it is a folder or read-only")


def unique_stems(names: Sequence[str]) -> list[str]:
    """Return a safe and unique file name for each instance; a second "a" becomes "a-2"."""
    taken: set[str] = set()
    stems: list[str] = []
    for name in names:
        stem = unused_stem(safe_stem(name), taken)
        taken.add(stem.lower())
        stems.append(stem)
    return stems


def plan_stems(stems: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """Return file names for the best `count` plans of each instance.

    The best plan has the name of its instance; the others have .2, .3 and so on behind it.
    """
    taken = {stem.lower() for stem in stems}  # numbered names of two instances never collide
    names: list[tuple[str, ...]] = []
    for stem in stems:
        ranks = range(2, count + 1)
        others = [unused_stem(f"{stem}.{rank}", taken) for rank in ranks]
        names.append((stem, *others))
    return names


def safe_stem(name: str) -> str:
    """Return a name without separators, spaces, leading dots or dashes."""
    stem = re.sub(r"[^\w.+-]+", "_", name, flags=re.ASCII)
    stem = stem.lstrip(".-")[:100]  # file systems take 255 bytes, with the suffix
    return stem or "instance"


def unused_stem(stem: str, taken: set[str]) -> str:
    """Return the stem, with the first free number from 2 behind it if it is taken.

    `taken` is in lower case, because some file systems ignore case.
    """
    number = 1
    candidate = stem
    while candidate.lower() in taken:
        number += 1
        candidate = f"{stem}-{number}"
    return candidate
