"""Files that hold instances, found by the name of a file, of a folder or by a pattern."""

from glob import glob
from pathlib import Path

from rhumbline.errors import InputError
from rhumbline.formats import DATASET, READERS
from rhumbline.formats.jsplib import is_shop
from rhumbline.formats.optima import FILES
from rhumbline.formats.shop_json import is_shop_json

ENDINGS = (*READERS, DATASET)
TEXT, JSON = ".txt", ".json"  # JSPLIB's files are called so and our own; so is much else
SIGNS = "*?["  # of patterns


def instance_files(place: str | Path) -> list[Path]:
    """The file itself; of a folder all files that hold instances, by name; or those that a pattern names."""
    path = Path(place)
    if path.is_dir():
        return files_of(path)
    if path.exists() or not any(sign in str(place) for sign in SIGNS):
        return [path]  # whoever reads it says what is wrong with it
    found = [Path(name) for name in sorted(glob(str(place)))]
    if any(sign in path.suffix for sign in SIGNS) or not path.suffix:  # what it names may be anything
        found = [file for one in found for file in (files_of(one) if one.is_dir() else [one]) if holds_instances(file)]
    if not found:
        raise InputError(f"{place}: no file that holds instances has such a name")
    return found


def files_of(folder: Path) -> list[Path]:
    """The files of a folder that hold instances."""
    found = [file for file in sorted(folder.iterdir()) if holds_instances(file)]
    if not found:
        wanted = ", ".join((*ENDINGS, TEXT))
        raise InputError(f"{folder}: no file in this folder holds instances; expected names that end in {wanted}")
    return found


def holds_instances(file: Path) -> bool:
    """Whether a file of a folder is one to read: by its ending, and not one of best known costs."""
    if file.name in FILES or file.name.startswith(".") or not file.is_file() or not file.stat().st_size:
        return False
    ending = file.suffix.lower()
    if ending == JSON:
        return is_shop_json(file)
    return ending in ENDINGS or (ending == TEXT and is_shop(file))
