"""The grammar shared by TSPLIB and VRPLIB: 'KEY : value' headers, sections of rows, then EOF."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from rhumbline.errors import InputError
from rhumbline.formats.safe_io import read_bytes
from rhumbline.problems.metrics import MAX_NUMBER

Option = TypeVar("Option")

MAX_DIGITS = 15  # of a whole number: it stays below 2**53
# A line that holds no data: 'KEY : value', or 'KEY' alone. The words nan and inf are (bad) data.
KEYWORD = re.compile(r"(?!(?:nan|inf|infinity)\b)([a-z_]\w*)\s*(?:$|:\s*(.*))", re.IGNORECASE)


class Row(NamedTuple):
    """The words of one data line, and its number."""

    line: int
    words: list[str]


@dataclass(frozen=True)
class Sections:
    """Headers and sections of a file. Lines count from 1 and are kept for error messages."""

    path: Path
    headers: dict[str, tuple[int, str]]  # line and value of each header
    rows: dict[str, list[Row]]  # of each section
    starts: dict[str, int]  # the line that opens each section

    def error(self, line: int | None, message: str) -> InputError:
        """Return an error that points into this file."""
        return InputError.at(self.path, line, message)

    def section(self, key: str) -> tuple[int, list[Row]]:
        """Return the first line and the rows of a required section."""
        if key not in self.rows:
            expected = "expected it after the header; is the file complete?"
            raise self.error(None, f"{key} is missing, {expected}")
        return self.starts[key], self.rows[key]

    def choice(self, key: str, options: Mapping[str, Option]) -> Option:
        """Return the option that a required header selects."""
        line, word = self.headers.get(key, (None, ""))
        known = f"expected one of {', '.join(options)}"
        if line is None:
            raise self.error(None, f"{key} is missing, {known}")
        if word.upper() not in options:
            raise self.error(line, f"{key} {word[:40]!r} is not supported, {known}")
        return options[word.upper()]

    def parse_integer(self, line: int, word: str, what: str) -> int:
        """Return a word as a whole number, 0 or more."""
        if not word.isdecimal() or len(word) > MAX_DIGITS:
            limit = f", of at most {MAX_DIGITS} digits" if word.isdecimal() else ""
            expected = f"expected {what}: a whole number, not negative{limit}"
            raise self.error(line, f"read {word[:40]!r}, {expected}")
        return int(word)

    def parse_number(self, line: int, word: str) -> float:
        """Return a word as a finite number."""
        try:
            value = float(word.replace("_", "?"))  # Python alone would accept 1_000
        except ValueError:
            value = np.nan
        if not abs(value) <= MAX_NUMBER:
            expected = f"expected a finite number of size up to {MAX_NUMBER:g}"
            raise self.error(line, f"read {word[:40]!r}, {expected}")
        return value

    def note_once(self, seen: dict[int, int], node: int, line: int) -> None:
        """Record the line of a node in `seen`; raise if the node is already there."""
        if node in seen:
            found = f"node {node} is given twice, first on line {seen[node]}"
            raise self.error(line, f"{found}; expected each node once")
        seen[node] = line

    def words_to_end(self, key: str, what: str) -> list[tuple[int, str]]:
        """Return line and word of each entry of a section up to the -1 that ends it.

        Only more -1 may follow.
        """
        _, rows = self.section(key)
        entries = [(line, word) for line, words in rows for word in words]
        ends = (index for index, (_, word) in enumerate(entries) if word == "-1")
        end = next(ends, len(entries))
        for line, word in entries[end:]:
            if word != "-1":
                raise self.error(line, f"read {word[:40]!r} behind the -1 that ends {what}")
        return entries[:end]

    def check_type(self, expected: str, advice: str) -> None:
        """Raise unless the file has this TYPE, or none."""
        line, value = self.headers.get("TYPE", (None, ""))
        word = first_word(value) or expected
        if word != expected:
            raise self.error(line, f"TYPE is {word[:40]!r}, expected {expected}; {advice}")

    def dimension(self, smallest: int, largest: int, nodes: str) -> int:
        """Return the number of nodes, which must be within what the package solves."""
        if "DIMENSION" not in self.headers:
            expected = f"expected 'DIMENSION : ' and the number of {nodes}"
            raise self.error(None, f"DIMENSION is missing, {expected}")
        line, word = self.headers["DIMENSION"]
        size = self.parse_integer(line, word, f"the number of {nodes} after DIMENSION")
        if not smallest <= size <= largest:
            limits = f"expected {smallest} to {largest} {nodes}, the limit of this package"
            raise self.error(line, f"DIMENSION is {size}, {limits}")
        return size

    def name(self) -> str:
        """Return the file's NAME, or the stem of the path without one.

        A suffix is dropped: ulysses22 calls itself 'ulysses22.tsp'.
        """
        _, name = self.headers.get("NAME", (None, ""))
        return name.removesuffix(".tsp").removesuffix(".vrp") or self.path.stem


def read_sections(path: Path, allowed: tuple[str, ...]) -> Sections:
    """Read the headers and rows of a file that may have these sections and no others."""
    file = Sections(path, {}, {}, {})
    rows: list[Row] | None = None  # of the current section
    for line, text in text_lines(path):
        keyword = KEYWORD.match(text)
        if keyword is None:
            if rows is None:
                expected = f"expected 'KEY : value' or one of {', '.join(allowed)}"
                raise file.error(line, f"read {text[:40]!r}, {expected}")
            rows.append(Row(line, text.split()))
        elif keyword[1].upper() == "EOF":
            break
        else:
            rows = open_keyword(file, line, keyword[1].upper(), keyword[2], allowed)
    return file


def open_keyword(
    file: Sections, line: int, key: str, value: str | None, allowed: tuple[str, ...]
) -> list[Row] | None:
    """Record a header, or open a section and return the list for its rows."""
    if key in file.rows or (key in file.headers and key != "COMMENT"):
        raise file.error(line, f"{key} is given twice, expected it once; remove one")
    if value is not None and not key.endswith("_SECTION"):
        file.headers[key] = (line, value)
        return None
    if key not in allowed or value:
        shown = f"{key[:40]} {value or ''}".strip()
        expected = f"expected numbers or one of {', '.join(allowed)}"
        raise file.error(line, f"{shown} is not supported here, {expected}")
    file.starts[key] = line
    return file.rows.setdefault(key, [])


def read_type(path: Path) -> str:
    """Return the first word of a file's TYPE header in capitals; empty without one."""
    for _, text in text_lines(path):
        keyword = KEYWORD.match(text)
        if keyword and keyword[1].upper() == "TYPE":
            return first_word(keyword[2])
    return ""


def first_word(value: str | None) -> str:
    """Return the first word of a header's value in capitals; files put remarks behind it."""
    words = (value or "").upper().split()
    return words[0] if words else ""


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Return the lines of a file that are not blank, stripped, with their numbers."""
    content = read_bytes(path)
    if b"\0" in content:
        message = "is a binary file (or UTF-16 text), expected text in UTF-8"
        raise InputError.at(path, None, message)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:  # old files have comments in Latin-1
        text = content.decode("latin-1")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return ((line, stripped) for line, raw in enumerate(lines, 1) if (stripped := raw.strip()))
