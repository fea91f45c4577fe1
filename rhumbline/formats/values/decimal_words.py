"""Decimals in files whose quantities must be whole: exact scaling, or the factor to use."""

import re
from collections.abc import Sequence
from fractions import Fraction

from rhumbline.errors import quote
from rhumbline.formats.sections import Sections
from rhumbline.problems.decimals import LIMITS, advise_scaling, common_factor

DECIMAL = re.compile(r"[0-9]{1,15}\.[0-9]{0,30}|\.[0-9]{1,30}")


def load_factor(file: Sections) -> int:
    """Return the least factor that makes all demands and the capacity of a file whole numbers."""
    words: list[tuple[int | None, str]] = []
    if "CAPACITY" in file.headers:
        words.append(file.headers["CAPACITY"])
    words += [(line, row[-1]) for line, row in file.rows.get("DEMAND_SECTION", ()) if row]
    factor = 1
    for line, word in words:
        if DECIMAL.fullmatch(word):
            common = common_factor([Fraction(1, factor), as_fraction(word)])
            if common is None:
                found = f"read {quote(word)}, which has too many decimals to be counted exactly"
                raise file.error(line, f"{found}; round demands and capacity")
            factor = common
    return factor


def parse_load(file: Sections, place: tuple[int, str], what: str, factor: int) -> int:
    """Return a demand or a capacity times the factor of its file; `place` is line and word."""
    line, word = place
    if DECIMAL.fullmatch(word):
        return int(as_fraction(word) * factor)
    load = file.parse_integer(line, word, what) * factor
    if factor > 1 and load > LIMITS.max_capacity:
        unit = f"in units of 1/{factor}, which the decimals of this file need"
        most = f"at most {LIMITS.max_capacity // factor:,}"
        raise file.error(line, f"read {quote(word)}, expected {most} {unit}")
    return load


def as_fraction(word: str) -> Fraction:
    """Return the number that a decimal word stands for."""
    return Fraction(f"0{word}" if word.startswith(".") else word)


def refuse_decimal_words(file: Sections, line: int, words: Sequence[str], what: str) -> None:
    """Raise at decimals among words that must be whole numbers, with the factor to use."""
    decimals = [word for word in words if DECIMAL.fullmatch(word)]
    if decimals:
        first = quote(decimals[0])
        expected = f"expected {what}: a whole number"
        advice = advise_scaling("durations", decimals)
        raise file.error(line, f"read {first}, {expected}; {advice}")
