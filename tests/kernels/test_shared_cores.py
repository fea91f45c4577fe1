"""Threads where cores are shared with other processes."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rhumbline.kernels import threads
from rhumbline.kernels.threads import SHARED_CORES, free_cores, limit_spinning, worker_threads


@pytest.fixture
def set_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that lets some threads of other processes run, on four cores."""
    path = tmp_path / "loadavg"
    settings = replace(threads.TUNING, load_file=path, seconds_between_looks=0.0)
    monkeypatch.setattr(threads, "TUNING", replace(settings, min_seconds_between_looks=0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)

    def others(count: int) -> None:
        path.write_text(f"0.00 0.01 0.05 {count + 1}/200 4711\n")

    return others


@pytest.mark.parametrize(("others", "free"), [(0, 4), (1, 3), (3, 1), (9, 1)])
def test_free_cores_are_those_without_other_threads(set_load, others: int, free: int) -> None:
    """One core is left at least, whatever runs there."""
    set_load(others)
    assert free_cores() == free


@pytest.mark.parametrize("text", ["", "nothing here", "1 2 3 x/y 5"])
def test_an_unknown_load_is_none(set_load, text: str) -> None:
    """Other systems have no such file, or another one."""
    set_load(0)
    threads.TUNING.load_file.write_text(text)
    assert free_cores() == 4


def test_torch_gets_free_cores_and_kernels_what_the_user_wants(set_load) -> None:
    """The number follows the load, and is restored in the end."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        set_load(9)
        with SHARED_CORES.share():
            assert (torch.get_num_threads(), worker_threads()) == (1, 3)
            set_load(0)
            SHARED_CORES.adapt()
            assert torch.get_num_threads() == 3
            set_load(2)
            SHARED_CORES.adapt()
            with SHARED_CORES.share():  # a search within a solve
                assert (torch.get_num_threads(), worker_threads()) == (2, 3)
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == worker_threads() == 3
        set_load(9)
        SHARED_CORES.adapt()
        with SHARED_CORES.share(enabled=False):
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("given", "has_torch", "expected"),
    [
        ({}, False, {"GOMP_SPINCOUNT": str(threads.TUNING.spin_count)}),
        ({}, True, {}),
        ({"OMP_WAIT_POLICY": "active"}, False, {"OMP_WAIT_POLICY": "active"}),
        ({"GOMP_SPINCOUNT": "7"}, False, {"GOMP_SPINCOUNT": "7"}),
    ],
)
def test_spinning_is_limited_before_torch_is_there(
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    has_torch: bool,
    expected: dict[str, str],
) -> None:
    """What the user has set stays."""
    environment = dict(given)
    monkeypatch.setattr(threads.os, "environ", environment)
    if not has_torch:
        monkeypatch.delitem(sys.modules, "torch")
    limit_spinning()
    assert environment == expected
