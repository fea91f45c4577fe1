"""Find the files that hold instances, given a file, a folder or a pattern."""

from glob import glob
from pathlib import Path

from rhumbline.errors import InputError, shorten_path
from rhumbline.files import DATASET_SUFFIX, all_formats, reader_suffixes
from rhumbline.formats.best_known import BEST_KNOWN_FILES
from rhumbline.formats.safe_io import error_reason


def find_instance_files(place: str | Path) -> list[Path]:
    """Return the file itself, the instance files of a folder by name, or those of a pattern."""
    try:
        return find_files_at(place)
    except OSError as error:  # a name that is too long, a folder without permission
        message = f"cannot be read: {error_reason(error)}"
        raise InputError.at(Path(place), None, message) from error


def find_files_at(place: str | Path) -> list[Path]:
    """Do the work of `find_instance_files`; may raise `OSError`."""
    path = Path(place)
    if path.is_dir():
        found = files_of_folder(path)
        if not found:
            known = ", ".join(known_suffixes())
            expected = f"expected names that end in {known}"
            raise InputError(
                f"{shorten_path(path)}: no file in this folder holds instances; {expected}"
            )
        return found
    if path.exists() or not has_wildcard(str(place)):
        return [path]  # its reader says what is wrong with it
    found = files_of_pattern(place)
    if not found:
        raise InputError(f"{shorten_path(place)}: no file that holds instances has such a name")
    return found


def files_of_pattern(pattern: str | Path) -> list[Path]:
    """Return the instance files that match a pattern, and those of matching folders.

    A pattern that names a suffix means every file with it; without one the content decides.
    """
    suffix = Path(pattern).suffix
    names_suffix = bool(suffix) and not has_wildcard(suffix)
    found: list[Path] = []
    for match in map(Path, sorted(glob(str(pattern)))):
        if match.is_dir():
            found += files_of_folder(match)
        elif names_suffix or holds_instances(match):
            found.append(match)
    return found


def files_of_folder(folder: Path) -> list[Path]:
    """Return the instance files of a folder, sorted by name."""
    return [file for file in sorted(folder.iterdir()) if holds_instances(file)]


def has_wildcard(text: str) -> bool:
    """Return whether a name is a pattern."""
    return any(sign in text for sign in "*?[")


def holds_instances(file: Path) -> bool:
    """Return whether a file of a folder holds instances, by its suffix or its content."""
    if file.name in BEST_KNOWN_FILES or file.name.startswith("."):
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
    suffixes = dict.fromkeys([*reader_suffixes(), DATASET_SUFFIX])
    for formats in all_formats():
        suffixes |= dict.fromkeys(formats.content_checks)
    return list(suffixes)
