"""What error messages repeat is short and harmless."""

import pytest

from rhumbline.errors import (
    LIMITS,
    Infeasible,
    InputError,
    escape_controls,
    quote,
    shorten,
    shorten_path,
    shorten_repr,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("short", "short"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 57 + LIMITS.ellipsis),
        (17, "17"),
        (2.5, "2.5"),
        (None, "None"),
        ([1, "a"], "[1, 'a']"),
        ("a\x1b[31m", r"a\x1b[31m"),
    ],
)
def test_values_are_shortened(value: object, expected: str) -> None:
    """Texts keep their beginning, numbers their size, lists their first entries."""
    assert shorten(value) == expected


def test_numbers_that_python_does_not_write() -> None:
    """Python refuses to write numbers of more than 4,300 digits."""
    assert shorten(10**5_000) == "a number of about 5,001 digits"
    assert shorten([10**5_000]) == "a list with numbers of thousands of digits"


def test_deep_and_wide_values_are_shortened() -> None:
    """A list may be nested deeper than `repr` can follow, and have millions of entries."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert len(shorten(deep)) <= 60
    assert len(shorten([0] * 10**6)) <= 60
    while deep:  # Python itself cannot free such a list at once
        deep = deep.pop()  # pyright: ignore[reportAssignmentType]


def test_texts_in_quotes() -> None:
    """Quotes stand around the part that is shown, and escape what is in it."""
    assert quote("it's") == '"it\'s"'
    assert quote("x" * 100) == f"'{'x' * 57}...'"
    assert shorten_repr("3") == "'3'"
    assert shorten_repr(3) == "3"


@pytest.mark.parametrize("kind", [InputError, Infeasible])
def test_messages_have_no_control_characters(kind: type[Exception]) -> None:
    """Escapes stand in their place; line breaks become spaces; an endless text loses its middle."""
    assert str(kind("a\x1b[2Jb\u202ec\ud800")) == r"a\x1b[2Jb\u202ec\ud800"
    assert str(kind("one\ntwo")) == "one two"
    assert str(kind("São Paulo → Øresund")) == "São Paulo → Øresund"
    assert len(str(kind("x" * 10**6))) <= 2_000


def test_long_paths_lose_their_middle() -> None:
    """Both ends of a path say more than its middle."""
    message = str(InputError.at("/a/" + "b" * 5_000 + "/c.tsp", 3, "is odd"))
    assert message.startswith("/a/bbb")
    assert message.endswith("bbb/c.tsp:3: is odd")
    assert len(message) < 320
    assert shorten_path("/a/b.tsp") == "/a/b.tsp"


def test_escapes_leave_printable_texts_alone() -> None:
    """Only what is not printable changes."""
    assert escape_controls("a b-ß") == "a b-ß"
    assert escape_controls("a\tb\0") == r"a\tb\x00"
