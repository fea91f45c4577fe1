"""Figures of result lines: each is drawn if the lines have what it shows."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rhumbline.bench.results import Result


def draw_all(results: Sequence[Result], folder: Path) -> Iterator[Path]:
    """Draw what can be drawn and tell where."""
    yield from ()
