"""Find the files that hold instances, given a file, a folder or a pattern."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

from rhumbline.errors import InputError, shorten_path
from rhumbline.files import DATASET_SUFFIX, all_formats, reader_suffixes
from rhumbline.formats.best_known import BEST_KNOWN_FILES
from rhumbline.formats.safe_io import error_reason


@dataclass
class Discovery:
    """The instance files at a place, and the other files there, which are skipped."""

    files: list[Path] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)

    def enter(self, file: Path) -> None:
        """Add a file of a folder or a pattern to those that it belongs to."""
        if holds_instances(file):
            self.files.append(file)
        elif not (file.is_dir() or is_ignored(file)):
            self.skipped.append(file)

    def enter_folder(self, folder: Path) -> None:
        """Add the files of a folder, sorted by name."""
        for file in sorted(folder.iterdir()):
            self.enter(file)


def find_instance_files(place: str | Path) -> list[Path]:
    """Return the file itself, the instance files of a folder by name, or those of a pattern."""
    return discover_files(place).files


def discover_files(place: str | Path) -> Discovery:
    """Return the same files, and those of a folder or a pattern that hold no instances."""
    try:
        return discover_files_at(place)
    except OSError as error:  # a name that is too long, a folder without permission
        message = f"cannot be read: {error_reason(error)}"
        raise InputError.at(Path(place), None, message) from error


def discover_files_at(place: str | Path) -> Discovery:
    """Do the work of `discover_files`; may raise `OSError`."""
    path = Path(place)
    if path.is_dir():
        found = Discovery()
        found.enter_folder(path)
        if not found.files:
            known = ", ".join(known_suffixes())
            expected = f"expected names that end in {known}"
            raise InputError(
                f"{shorten_path(path)}: no file in this folder holds instances; {expected}"
            )
        return found
    if path.exists() or not has_wildcard(str(place)):
        return Discovery([path])  # its reader says what is wrong with it
    found = discover_pattern(place)
    if not found.files:
        raise InputError(f"{shorten_path(place)}: no file that holds instances has such a name")
    return found


def discover_pattern(pattern: str | Path) -> Discovery:
    """Return the instance files that match a pattern, and those of matching folders.

    A pattern that names a suffix means every file with it; without one the content decides.
    """
    suffix = Path(pattern).suffix
    names_suffix = bool(suffix) and not has_wildcard(suffix)
    found = Discovery()
    for match in map(Path, sorted(glob(str(pattern)))):
        if match.is_dir():
            found.enter_folder(match)
        elif names_suffix:
            found.files.append(match)
        else:
            found.enter(match)
    return found


def skipped_text(skipped: Sequence[Path], max_names: int = 8) -> str:
    """Format a note that names the first skipped files."""
    count = len(skipped)
    names = [file.name for file in skipped[:max_names]]
    if count > max_names:
        names.append("...")
    what = "file that is no instance" if count == 1 else "files that are no instances"
    listed = ", ".join(names)
    return f"skipped {count:,} {what}: {listed}"


def has_wildcard(text: str) -> bool:
    """Return whether a name is a pattern."""
    return any(sign in text for sign in "*?[")


def is_ignored(file: Path) -> bool:
    """Return whether a file is left out without a note: hidden, or a table of best known costs."""
    name = file.name
    return name in BEST_KNOWN_FILES or name.startswith(".")


def holds_instances(file: Path) -> bool:
    """Return whether a file of a folder holds instances, by its suffix or its content."""
    if is_ignored(file):
        return False
    if not file.is_file() or not file.stat().st_size:
        return False
    suffix = file.suffix.lower()
    checks = [formats.content_checks.get(suffix) for formats in all_formats()]
    content_checks = [check for check in checks if check]
    if not content_checks:
        return suffix == DATASET_SUFFIX or suffix in reader_suffixes()
    try:
        return any(check(file) for check in content_checks)
    except InputError:  # such as a binary file named .txt
        return False


def known_suffixes() -> list[str]:
    """Return the suffixes that files of instances have, also those that much else has."""
    of_readers = reader_suffixes()
    suffixes = dict.fromkeys([*of_readers, DATASET_SUFFIX])
    for formats in all_formats():
        suffixes |= dict.fromkeys(formats.content_checks)
    return list(suffixes)
