"""Files with flipped, inserted and missing bytes, for the tests of all readers."""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

from rhumbline.errors import InputError

T = TypeVar("T")

damage = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255), st.booleans()), max_size=4)


def attempt(call: Callable[..., T], *arguments: object) -> T | InputError:
    """Return the result of a call, or the input error it raises; other errors escape."""
    try:
        return call(*arguments)
    except InputError as error:
        return error


def damaged(good: str, changes: list[tuple[int, int, bool]], cut: int) -> bytes:
    """Return a file with some bytes replaced or inserted, and cut short."""
    content = bytearray(good.encode())
    for place, byte, insert in changes:
        place %= len(content)
        content[place : place + (not insert)] = bytes([byte])
    return bytes(content[:cut])
