"""Files that hold instances, found by the name of a file, of a folder or by a pattern."""

from glob import glob
from pathlib import Path

from rhumbline.errors import InputError
from rhumbline.formats import DATASET, READERS
from rhumbline.formats.jsplib import is_shop
from rhumbline.formats.optima import FILES

ENDINGS = (*READERS, DATASET)
TEXT = ".txt"  # as JSPLIB calls its files; others may be called so too


def instance_files(place: str | Path) -> list[Path]:
    """The file itself; of a folder all files that hold instances, by name; or those that a pattern names."""
    path = Path(place)
    if path.is_dir():
        found = [file for file in sorted(path.iterdir()) if holds_instances(file)]
        if not found:
            wanted = ", ".join((*ENDINGS, TEXT))
            raise InputError(f"{path}: no file in this folder holds instances; expected names that end in {wanted}")
        return found
    if path.exists() or not any(sign in str(place) for sign in "*?["):
        return [path]  # whoever reads it says what is wrong with it
    found = [Path(name) for name in sorted(glob(str(place)))]
    if not found:
        raise InputError(f"{place}: no file has such a name")
    return found


def holds_instances(file: Path) -> bool:
    """Whether a file of a folder is one to read: by its ending, and not one of best known costs."""
    if file.name in FILES or file.name.startswith(".") or not file.is_file():
        return False
    ending = file.suffix.lower()
    return ending in ENDINGS or (ending == TEXT and is_shop(file))
