"""The grammar that TSPLIB and its relatives share: 'KEY : value' headers, then sections of rows,
then EOF.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from rhumbline.errors import InputError
from rhumbline.formats.safe_io import read_bytes
from rhumbline.problems.metrics import MAX_NUMBER

T = TypeVar("T")

MOST_DIGITS = 15  # of a whole number: below 2**53 as well
# A line that is no data: 'KEY : value' or 'KEY' alone. The words nan and inf are (bad) data.
KEYWORD = re.compile(r"(?!(?:nan|inf|infinity)\b)([a-z_]\w*)\s*(?:$|:\s*(.*))", re.IGNORECASE)


class Row(NamedTuple):
    """The words of one data line."""

    line: int
    words: list[str]


@dataclass(frozen=True)
class Sections:
    """A file taken apart; lines are counted from 1 and kept for messages."""

    path: Path
    headers: dict[str, tuple[int, str]]
    rows: dict[str, list[Row]]
    starts: dict[str, int]  # the line that opens each section

    def error(self, line: int | None, message: str) -> InputError:
        """An error that points into this file."""
        return InputError.at(self.path, line, message)

    def section(self, key: str) -> tuple[int, list[Row]]:
        """First line and rows of a section that must be there."""
        if key not in self.rows:
            raise self.error(
                None, f"{key} is missing, expected it after the header; is the file complete?"
            )
        return self.starts[key], self.rows[key]

    def choice(self, key: str, options: Mapping[str, T]) -> T:
        """What a header that must be there selects."""
        line, word = self.headers.get(key, (None, ""))
        if line is None:
            raise self.error(None, f"{key} is missing, expected one of {', '.join(options)}")
        if word.upper() not in options:
            raise self.error(
                line, f"{key} {word[:40]!r} is not supported, expected one of {', '.join(options)}"
            )
        return options[word.upper()]

    def whole(self, line: int, word: str, what: str) -> int:
        """A word as a number 0, 1, 2, ..."""
        if not word.isdecimal() or len(word) > MOST_DIGITS:
            longer = f", of at most {MOST_DIGITS} digits" if word.isdecimal() else ""
            raise self.error(
                line, f"read {word[:40]!r}, expected {what}: a whole number, not negative{longer}"
            )
        return int(word)

    def number(self, line: int, word: str) -> float:
        """A word as a finite number."""
        try:
            value = float(word.replace("_", "?"))  # Python alone would take 1_000
        except ValueError:
            value = np.nan
        if not abs(value) <= MAX_NUMBER:
            raise self.error(
                line, f"read {word[:40]!r}, expected a finite number of size up to {MAX_NUMBER:g}"
            )
        return value

    def once(self, seen: dict[int, int], node: int, line: int) -> None:
        """Note the line of a node that must not come twice."""
        if node in seen:
            raise self.error(
                line,
                f"node {node} is given twice, first on line {seen[node]}; expected each node once",
            )
        seen[node] = line

    def words_to_end(self, key: str, what: str) -> list[tuple[int, str]]:
        """Line and word of each entry of a section up to the -1 that ends it; only further -1
        may follow.
        """
        _, rows = self.section(key)
        entries = [(line, word) for line, words in rows for word in words]
        end = next((place for place, (_, word) in enumerate(entries) if word == "-1"), len(entries))
        for line, word in entries[end:]:
            if word != "-1":
                raise self.error(line, f"read {word[:40]!r} behind the -1 that ends {what}")
        return entries[:end]

    def check_type(self, expected: str, advice: str) -> None:
        """Raise unless the file says this TYPE, or none."""
        line, value = self.headers.get("TYPE", (None, ""))
        word = first_word(value) or expected
        if word != expected:
            raise self.error(line, f"TYPE is {word[:40]!r}, expected {expected}; {advice}")

    def dimension(self, smallest: int, largest: int, nodes: str) -> int:
        """The number of nodes, within what the package solves."""
        if "DIMENSION" not in self.headers:
            raise self.error(
                None, f"DIMENSION is missing, expected 'DIMENSION : ' and the number of {nodes}"
            )
        line, word = self.headers["DIMENSION"]
        size = self.whole(line, word, f"the number of {nodes} after DIMENSION")
        if not smallest <= size <= largest:
            limits = f"expected {smallest} to {largest} {nodes}, the limit of this package"
            raise self.error(line, f"DIMENSION is {size}, {limits}")
        return size

    def name(self) -> str:
        """The file's NAME, or the name of the file; ulysses22 calls itself 'ulysses22.tsp'."""
        _, name = self.headers.get("NAME", (None, ""))
        return name.removesuffix(".tsp").removesuffix(".vrp") or self.path.stem


def read_sections(path: Path, allowed: tuple[str, ...]) -> Sections:
    """Headers and rows of a file that may have these sections and no others."""
    file = Sections(path, {}, {}, {})
    rows: list[Row] | None = None  # of the section we are in
    for line, text in text_lines(path):
        keyword = KEYWORD.match(text)
        if keyword is None:
            if rows is None:
                raise file.error(
                    line,
                    f"read {text[:40]!r}, expected 'KEY : value' or one of {', '.join(allowed)}",
                )
            rows.append(Row(line, text.split()))
        elif keyword[1].upper() == "EOF":
            break
        else:
            rows = open_keyword(file, line, keyword[1].upper(), keyword[2], allowed)
    return file


def open_keyword(
    file: Sections, line: int, key: str, value: str | None, allowed: tuple[str, ...]
) -> list[Row] | None:
    """Note a header, or begin a section and give the list for its rows."""
    if key in file.rows or (key in file.headers and key != "COMMENT"):
        raise file.error(line, f"{key} is given twice, expected it once; remove one")
    if value is not None and not key.endswith("_SECTION"):
        file.headers[key] = (line, value)
        return None
    if key not in allowed or value:
        shown = f"{key[:40]} {value or ''}".strip()
        raise file.error(
            line, f"{shown} is not supported here, expected numbers or one of {', '.join(allowed)}"
        )
    file.starts[key] = line
    return file.rows.setdefault(key, [])


def read_type(path: Path) -> str:
    """The first word of a file's TYPE header; empty without one."""
    keywords = (KEYWORD.match(text) for _, text in text_lines(path))
    return next((first_word(k[2]) for k in keywords if k and k[1].upper() == "TYPE"), "")


def first_word(value: str | None) -> str:
    """The word that a header's value begins with, in capitals: behind it, files put remarks."""
    return next(iter((value or "").upper().split()), "")


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, stripped, with their numbers."""
    content = read_bytes(path)
    if b"\0" in content:
        raise InputError.at(path, None, "is a binary file (or UTF-16 text), expected text in UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:  # old files have comments in Latin-1
        text = content.decode("latin-1")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return ((line, stripped) for line, raw in enumerate(lines, 1) if (stripped := raw.strip()))
