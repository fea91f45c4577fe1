"""A suite measures a problem that another package brings."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from rhumbline import checkpoint
from rhumbline.bench import provenance
from rhumbline.bench.compare import Comparison, prepare_comparison
from rhumbline.bench.compare.sets import SetSelection, load_sets
from rhumbline.bench.methods import BenchOptions
from rhumbline.bench.report import markdown_report
from rhumbline.bench.results import Result, read_results
from rhumbline.bench.runner import measure_suite
from rhumbline.bench.suite import parse_suite
from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError

CPU = BenchOptions(device="cpu", threads=1)
XY = np.random.default_rng(1).random((6, 2))


def complain(message: str) -> None:
    raise AssertionError(message)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Offer the problem as an entry point does; return a folder with a file and a checkpoint."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1]), *sys.path])
    monkeypatch.setattr(provenance, "current_commit", lambda: "c0ffee")
    point = EntryPoint("ring", "ring_problem:RING", "rhumbline.domains")
    monkeypatch.setitem(DOMAINS.outside, "ring", point)
    monkeypatch.setattr(DOMAINS, "loaded", dict(DOMAINS.loaded))
    from ring_problem import TINY, RingPolicy

    facts = checkpoint.TrainingFacts("ring-net", 6, 3)
    checkpoint.save(tmp_path / "ring.safetensors", RingPolicy(TINY), facts)
    np.savetxt(tmp_path / "six.ring", XY)
    return tmp_path


def measured(folder: Path, **method: object) -> list[Result]:
    """Return the results of one method on the file."""
    files = {"name": "rings", "problem": "ring", "files": "*.ring"}
    tables = {"set": [files], "method": [{"name": "m", **method}]}
    suite = parse_suite(tables, folder / "rings.toml")
    list(measure_suite(suite, folder / "r.jsonl", CPU, complain))
    return read_results(folder / "r.jsonl", complain)


def test_its_files_are_measured(folder: Path) -> None:
    """Tables tell sizes in nodes, the default word."""
    (result,) = measured(folder, policy=str(folder / "ring.safetensors"), attempts=4)
    assert (result.problem, result.size, result.attempts) == ("ring", 6, 4)
    assert result.cost is not None
    assert "ring, size 6" in markdown_report([result])


def test_a_solver_of_ours_is_refused(folder: Path) -> None:
    """No classical solver knows the problem, and a suite without work is refused."""
    with pytest.raises(InputError, match=r"no method .* solves a set"):
        measured(folder, solver="nearest")


def test_its_policies_are_compared(folder: Path) -> None:
    """A comparison takes its files and names the weights by their digest."""
    sets = load_sets(str(folder / "six.ring"), SetSelection(), complain)
    policies = (str(folder / "ring.safetensors"),)
    (pair,) = prepare_comparison(Comparison(policies=policies, attempts=(4,)), sets, CPU)
    assert pair.instance_set.spec.problem == "ring"
    assert "(weights " in pair.runner.solver
