"""Files that hold instances, found by the name of a file, of a folder or by a pattern."""

from glob import glob
from pathlib import Path

from rhumbline.errors import InputError
from rhumbline.formats import DATASET_SUFFIX, INSTANCE_READERS
from rhumbline.formats.best_known import BEST_KNOWN_FILES
from rhumbline.formats.jsplib import is_job_shop_file
from rhumbline.formats.jsplib_json import is_job_shop_json
from rhumbline.formats.safe_io import error_reason

ENDINGS = (*INSTANCE_READERS, DATASET_SUFFIX)
TEXT, JSON = ".txt", ".json"  # JSPLIB's files are called so and our own; so is much else
SIGNS = "*?["  # of patterns


def find_instance_files(place: str | Path) -> list[Path]:
    """The file itself; of a folder all files that hold instances, by name; or those that a
    pattern names.
    """
    try:
        return find_files_at(place)
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise InputError.at(Path(place), None, f"cannot be read: {error_reason(error)}") from error


def find_files_at(place: str | Path) -> list[Path]:
    """The same, where nothing keeps one from looking."""
    path = Path(place)
    if path.is_dir():
        found = files_of(path)
        if not found:
            wanted = ", ".join((*ENDINGS, TEXT))
            raise InputError(
                f"{path}: no file in this folder holds instances; expected names that end in {wanted}"
            )
        return found
    if path.exists() or not any(sign in str(place) for sign in SIGNS):
        return [path]  # whoever reads it says what is wrong with it
    any_kind = not path.suffix or any(
        sign in path.suffix for sign in SIGNS
    )  # else those of that ending are meant
    found: list[Path] = []
    for one in map(Path, sorted(glob(str(place)))):
        found += (
            files_of(one) if one.is_dir() else [one] if not any_kind or holds_instances(one) else []
        )
    if not found:
        raise InputError(f"{place}: no file that holds instances has such a name")
    return found


def files_of(folder: Path) -> list[Path]:
    """The files of a folder that hold instances."""
    return [file for file in sorted(folder.iterdir()) if holds_instances(file)]


def holds_instances(file: Path) -> bool:
    """Whether a file of a folder is one to read: by its ending, and not one of best known costs."""
    if (
        file.name in BEST_KNOWN_FILES
        or file.name.startswith(".")
        or not file.is_file()
        or not file.stat().st_size
    ):
        return False
    ending = file.suffix.lower()
    if ending not in (TEXT, JSON):
        return ending in ENDINGS
    try:
        return is_job_shop_json(file) if ending == JSON else is_job_shop_file(file)
    except InputError:  # such as a text that is none
        return False
