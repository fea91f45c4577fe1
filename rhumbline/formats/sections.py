"""The grammar shared by TSPLIB and VRPLIB: 'KEY : value' headers, sections of rows, then EOF."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from rhumbline.errors import InputError, PlanError, escape_controls, quote, shorten
from rhumbline.formats.safe_io import LIMITS, read_bytes
from rhumbline.formats.unsupported.words import explain_type, explain_unsupported
from rhumbline.problems.metrics import METRIC_LIMITS

Option = TypeVar("Option")

# A line that holds no data: 'KEY : value', or 'KEY' alone. The words nan and inf are (bad) data.
KEYWORD = re.compile(r"(?!(?:nan|inf|infinity)\b)([a-z_]\w*)\s*(?:$|:\s*(.*))", re.IGNORECASE)


class Row(NamedTuple):
    """The words of one data line, and its number."""

    line: int
    words: list[str]


@dataclass(frozen=True)
class SizeLimits:
    """How many nodes an instance may have, and what the nodes are called in messages."""

    smallest: int
    largest: int
    nodes: str


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

    def violation(self, line: int | None, message: str) -> InputError:
        """Return an error that points to where the plan of this file breaks a rule."""
        return PlanError.at(self.path, line, message)

    def section(self, key: str) -> tuple[int, list[Row]]:
        """Return the first line and the rows of a required section."""
        if key not in self.rows:
            expected = "expected it after the header; is the file complete?"
            raise self.error(None, f"{key} is missing, {expected}")
        return self.starts[key], self.rows[key]

    def choice(self, key: str, options: Mapping[str, Option]) -> Option:
        """Return the option that a required header selects."""
        known = ", ".join(options)
        expected = f"expected one of {known}"
        if key not in self.headers:
            raise self.error(None, f"{key} is missing, {expected}")
        line, word = self.headers[key]
        name = word.upper()
        if name not in options:
            found = f"{key} {quote(word)} is not supported"
            raise self.error(line, f"{found}, {expected}")
        return options[name]

    def parse_integer(self, line: int, word: str, what: str) -> int:
        """Return a word as a whole number, 0 or more."""
        max_digits = 15  # numbers stay below 2**53
        is_number = word.isdecimal()
        is_short = len(word) <= max_digits
        if is_number and is_short:
            return int(word)
        expected = f"expected {what}: a whole number, not negative"
        if is_number:
            expected += f", of at most {max_digits} digits"
        raise self.error(line, f"read {quote(word)}, {expected}")

    def parse_number(self, line: int, word: str) -> float:
        """Return a word as a finite number."""
        value = np.nan
        max_number = METRIC_LIMITS.max_number
        is_short = len(word) <= LIMITS.max_number_characters
        if is_short:  # reading a million digits takes minutes
            text = word.replace("_", "?")  # Python alone would accept 1_000
            with suppress(ValueError):
                value = float(text)
        if not abs(value) <= max_number:
            expected = f"expected a finite number of size up to {max_number:g}"
            raise self.error(line, f"read {quote(word)}, {expected}")
        return value

    def note_once(self, seen: dict[int, int], node: int, line: int) -> None:
        """Record the line of a node in `seen`; raise if the node is already there."""
        if node in seen:
            first_line = seen[node]
            found = f"node {node} is given twice, first on line {first_line}"
            raise self.error(line, f"{found}; expected each node once")
        seen[node] = line

    def words_to_end(self, key: str, what: str) -> list[tuple[int, str]]:
        """Return line and word of each entry of a section up to the -1 that ends it.

        Only more -1 may follow.
        """
        _, rows = self.section(key)
        entries: list[tuple[int, str]] = []
        has_ended = False
        for line, words in rows:
            for word in words:
                if word == "-1":
                    has_ended = True
                elif has_ended:
                    message = f"read {quote(word)} behind the -1 that ends {what}"
                    raise self.error(line, message)
                else:
                    entries.append((line, word))
        return entries

    def check_type(self, expected: str, advice: str) -> None:
        """Raise unless the file has this TYPE, or none."""
        line, value = self.headers.get("TYPE", (None, ""))
        word = first_word(value) or expected
        if word != expected:
            found = f"TYPE is {quote(word)}"
            message = f"{found}, expected {expected}; {advice}"
            raise self.error(line, explain_type(word) or message)

    def dimension(self, limits: SizeLimits) -> int:
        """Return the number of nodes, which must be within what the package solves.

        A matrix has a lower limit.
        """
        if "DIMENSION" not in self.headers:
            expected = f"expected 'DIMENSION : ' and the number of {limits.nodes}"
            raise self.error(None, f"DIMENSION is missing, {expected}")
        line, word = self.headers["DIMENSION"]
        what = f"the number of {limits.nodes} after DIMENSION"
        size = self.parse_integer(line, word, what)
        if not limits.smallest <= size <= limits.largest:
            accepted = f"{limits.smallest} to {limits.largest} {limits.nodes}"
            raise self.error(
                line, f"DIMENSION is {size}, expected {accepted}, the limit of this package"
            )
        _, metric = self.headers.get("EDGE_WEIGHT_TYPE", (None, ""))
        if metric.upper() == "EXPLICIT" and size > METRIC_LIMITS.max_table_nodes:
            limit = f"an EXPLICIT matrix may have up to {METRIC_LIMITS.max_table_nodes}"
            reason = "larger ones take too much memory; give coordinates, if there are any"
            raise self.error(line, f"DIMENSION is {size}, and {limit} {limits.nodes}: {reason}")
        return size

    def name(self) -> str:
        """Return the file's NAME, or the stem of the path without one.

        A suffix is dropped: ulysses22 calls itself 'ulysses22.tsp'. Control characters become
        visible, because names are printed.
        """
        _, name = self.headers.get("NAME", (None, ""))
        name = escape_controls(re.sub(r"\s", " ", name))
        name = name.removesuffix(".tsp")
        name = name.removesuffix(".vrp")
        return name or self.path.stem


def read_sections(
    path: Path, allowed: tuple[str, ...], limits: SizeLimits | None = None
) -> Sections:
    """Read the headers and rows of a file that may have these sections and no others.

    A file beyond the limits is refused before its first section is read.
    """
    file = Sections(path, {}, {}, {})
    rows: list[Row] | None = None  # of the current section
    for line, text in text_lines(path):
        keyword = KEYWORD.match(text)
        if keyword is None:
            if rows is None:
                expected = f"expected 'KEY : value' or one of {', '.join(allowed)}"
                raise file.error(line, f"read {quote(text)}, {expected}")
            rows.append(Row(line, text.split()))
        elif keyword[1].upper() == "EOF":
            break
        else:
            rows = open_keyword(file, line, keyword[1].upper(), keyword[2], allowed)
            is_first_section = rows is not None and len(file.starts) == 1
            if is_first_section and limits and "DIMENSION" in file.headers:
                file.dimension(limits)
    return file


def open_keyword(
    file: Sections, line: int, key: str, value: str | None, allowed: tuple[str, ...]
) -> list[Row] | None:
    """Record a header, or open a section and return the list for its rows."""
    is_second_header = key in file.headers and key != "COMMENT"
    if key in file.rows or is_second_header:
        raise file.error(line, f"{shorten(key)} is given twice, expected it once; remove one")
    if value is not None and not key.endswith("_SECTION"):
        file.headers[key] = (line, value)
        return None
    if unsupported := explain_unsupported(key):
        raise file.error(line, unsupported)
    if key not in allowed or value:
        shown = shorten(f"{key} {value or ''}".strip())
        known = ", ".join(allowed)
        found = f"{shown} is not supported here"
        raise file.error(line, f"{found}, expected numbers or one of {known}")
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
    text = value or ""
    words = text.upper().split()
    return words[0] if words else ""


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Return the lines of a file that are not blank, stripped, with their numbers."""
    lines = decode_lines(path)
    return ((line, stripped) for line, raw in enumerate(lines, 1) if (stripped := raw.strip()))


def decode_lines(path: Path) -> list[str]:
    """Return all lines of a text file, whatever ends them."""
    content = read_bytes(path, LIMITS.max_text_bytes)
    if b"\0" in content:
        message = "is a binary file (or UTF-16 text), expected text in UTF-8"
        raise InputError.at(path, None, message)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:  # old files have comments in Latin-1
        text = content.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
