"""The pacer: sizes of pieces, from the time that the last one took."""

import math

import pytest

from rhumbline.search.task.pacing import TUNING, Pacer, Spent


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
    """The first one is small; then they fill half of the time, up to the longest piece."""
    pacer = Pacer(TUNING.first_piece_elements // 10)
    assert pacer.units_per_torch_piece(1, 1000.0) == 10
    pacer.record(100, 1.0)
    assert pacer.units_per_torch_piece(1, 2.0) == pytest.approx(100, abs=1)
    assert pacer.units_per_torch_piece(1, 1000.0) == pytest.approx(300, abs=1)
    assert pacer.units_per_torch_piece(1, 0.0) == 1


def test_pieces_grow_by_a_factor_at_most() -> None:
    """The first pieces are mostly overhead, and tell little of the pace of large ones."""
    pacer = make_pacer(1000)
    pacer.record(3, 1e-9)
    assert pacer.units_per_torch_piece(1, 10.0) == 3 * TUNING.max_growth


def test_kernels_get_a_quarter_of_the_time_left() -> None:
    """A piece of a kernel is never larger than one without a time limit, and has one unit."""
    pacer = make_pacer(1000)
    pacer.record(500, 1.0)
    assert pacer.units_per_timed_piece(1, 0.4) == pytest.approx(50, abs=1)
    assert pacer.units_per_timed_piece(1, 1e9) == pytest.approx(500 * TUNING.max_piece_seconds)
    assert pacer.units_per_timed_piece(1, 0.0) == 1
    pacer.record(500, 1e-9)
    assert pacer.units_per_timed_piece(1, 1.0) == 1000


def test_a_tile_counts_as_a_whole() -> None:
    """One rollout takes as long as the tile of which it is a part."""
    pacer = Pacer(1, tile=16)
    pacer.record(1, 0.16)
    assert pacer.seconds_per_element == pytest.approx(0.01)
    pacer.check_fit(16, 0.16)
    with pytest.raises(Spent):
        pacer.check_fit(17, 0.32 - 1.1 * TUNING.max_late_seconds)


def test_what_may_end_late_is_watched() -> None:
    """Before the first timing everything may; without a time limit nothing is late."""
    pacer = make_pacer(10)
    assert pacer.is_risky(1, 1e9)
    assert not pacer.is_risky(1, math.inf)
    pacer.record(10, 1.0)
    assert pacer.is_risky(10, 1.0)
    assert not pacer.is_risky(10, 100.0)


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
