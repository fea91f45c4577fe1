"""Solomon's files of vehicle routing with time windows, which are recognised and refused."""

import re
from pathlib import Path
from typing import NoReturn

from rhumbline.errors import InputError
from rhumbline.formats.sections import text_lines
from rhumbline.formats.unsupported.words import SUGGESTION

TITLE_OF_COLUMNS = re.compile(r"cust\b.*\b(ready|due)\b", re.IGNORECASE)


def is_solomon(path: Path) -> bool:
    """Return whether a file has the titles of Solomon's and of Gehring and Homberger's files."""
    return find_time_windows(path) is not None


def refuse_solomon(path: Path) -> NoReturn:
    """Raise at the line that names the columns of time windows."""
    line = find_time_windows(path)
    message = f"time windows are not supported (this is a file in Solomon's format); {SUGGESTION}"
    raise InputError.at(path, line, message)


def find_time_windows(path: Path) -> int | None:
    """Return the line of 'CUST NO. ... READY TIME DUE DATE' below VEHICLE and CUSTOMER, or None.

    It stands among the first lines of such files.
    """
    max_lines_above = 20  # the titles stand at the beginning
    titles: set[str] = set()
    for count, (line, text) in enumerate(text_lines(path)):
        titles.add(text.upper().split()[0])
        if {"VEHICLE", "CUSTOMER"} <= titles and TITLE_OF_COLUMNS.search(text):
            return line
        if count > max_lines_above:
            return None
    return None
