"""The pacer: sizes of pieces, from the time that the last one took."""

import math

import pytest

from rhumbline.search.pacing import TUNING, Pacer


def make_pacer(units: int) -> Pacer:
    """Return a pacer for which this many rollouts make a piece."""
    return Pacer(TUNING.piece_elements_cpu // units)


def test_pieces_without_a_time_limit_ignore_the_clock() -> None:
    """They are the same before and after a timing, so that runs can be repeated."""
    pacer = make_pacer(10)
    before = pacer.units_per_torch_piece(1, math.inf)
    pacer.record(1, 100.0)
    assert pacer.units_per_torch_piece(1, math.inf) == before == 10 * TUNING.untimed_piece_factor


def test_torch_pieces_fill_half_of_the_time_left() -> None:
    """Up to the longest piece; never fewer units than a fused engine has."""
    pacer = make_pacer(10)
    assert pacer.units_per_torch_piece(1, 1000.0) == 10
    pacer.record(10, 0.1)
    assert pacer.units_per_torch_piece(1, 2.0) == pytest.approx(100, abs=1)
    assert pacer.units_per_torch_piece(1, 1000.0) == pytest.approx(300, abs=1)
    assert pacer.units_per_torch_piece(1, 0.0) == 10


def test_large_units_are_made_one_by_one() -> None:
    """A piece has at least one unit; completions fill a tile of the kernel."""
    pacer = make_pacer(10)
    assert pacer.units_per_piece(100, is_cuda=False) == 1
    assert pacer.units_per_piece(100, is_cuda=True) > 1
    assert pacer.prefixes_per_piece(1, samples=1) == TUNING.min_completions
    assert pacer.prefixes_per_piece(1, samples=16) == 1


def test_rollouts_within_a_share_of_the_time() -> None:
    """None before the first timing, infinitely many without a time limit."""
    pacer = make_pacer(10)
    assert pacer.rollouts_within(3, 0.5, math.inf) == math.inf
    assert pacer.rollouts_within(3, 0.5, 80.0) == 0
    pacer.record(3, 0.1)
    assert pacer.rollouts_within(3, 0.5, 80.0) == pytest.approx(400)
    assert pacer.rollouts_within(3, 0.5, 0.0) == 0
