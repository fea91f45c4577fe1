"""Lines of several files: what is the same counts once, what contradicts is refused, what is no
result is named.
"""

import json
import lzma
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rhumbline.bench.results import Result, read_result_files, read_results, refuse_packed
from rhumbline.errors import InputError

GOLDEN = Path(__file__).parent / "golden" / "results.jsonl"
A, B = read_results(GOLDEN, print)[:2]


def complain(text: str) -> None:
    raise AssertionError(text)


def written(path: Path, *results: Result, **changed: Any) -> Path:
    path.write_text("".join(json.dumps(asdict(r) | changed) + "\n" for r in results))
    return path


def test_packed_lines_are_the_same_lines(tmp_path: Path) -> None:
    """Results that are kept for good are read, nothing is added to them, and what cannot be
    unpacked is named.
    """
    packed, broken = tmp_path / "golden.jsonl.xz", tmp_path / "broken.xz"
    packed.write_bytes(lzma.compress(GOLDEN.read_bytes()))
    assert read_results(packed, print) == read_results(GOLDEN, print)
    with pytest.raises(
        InputError, match=r"golden\.jsonl\.xz: is packed; results are added to plain files"
    ):
        refuse_packed(packed)
    broken.write_bytes(b"{}")
    with pytest.raises(InputError, match=r"broken\.xz: cannot be unpacked"):
        read_results(broken, print)


def test_a_line_counts_once(tmp_path: Path) -> None:
    """A file named twice, and a line that was copied within one: the results of one, and a
    warning for each file.
    """
    one, said = written(tmp_path / "one.jsonl", A, B, A), list[str]()
    assert read_result_files([one, one], said.append) == [A, B]
    assert said == [
        f"{one}: 1 of its 3 lines is there twice; each is counted once",
        f"{one}: 3 of its 3 lines are there twice; each is counted once",
    ]


@pytest.mark.parametrize(
    "change", [{"cost": 7.71}, {"seconds": 9.0}, {"when": "2026-11-16T12:00:00+00:00"}]
)
def test_two_measurements_of_the_same_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """Within a file or across files, with both places; nobody can tell which one counts."""
    one, two = written(tmp_path / "one.jsonl", B, A), written(tmp_path / "two.jsonl", A, **change)
    said = r"two\.jsonl:1: is another measurement of what .*one\.jsonl:2 measured \(A on one-1, seed 0\)"
    with pytest.raises(InputError, match=said):
        read_result_files([one, two], complain)
    one.write_text(one.read_text() + two.read_text())
    with pytest.raises(
        InputError, match=r"one\.jsonl:3: is another measurement of what .*one\.jsonl:2"
    ):
        read_results(one, complain)


@pytest.mark.parametrize("name", ["suite_hash", "commit", "hardware", "budget", "solver"])
def test_measurements_of_other_kinds_stand_side_by_side(tmp_path: Path, name: str) -> None:
    """Another suite, commit, hardware, budget or solver is another row, not a contradiction."""
    one, two = (
        written(tmp_path / "one.jsonl", A),
        written(tmp_path / "two.jsonl", A, **{name: "other"}),
    )
    assert read_result_files([one, two], complain) == [A, replace(A, **{name: "other"})]


def test_sets_of_one_name_are_the_same_instances(tmp_path: Path) -> None:
    """Other instances or references under the same name are refused; in another suite they are
    another set.
    """
    one, two = (
        written(tmp_path / "one.jsonl", A, B),
        written(tmp_path / "two.jsonl", B, set_hash="00ff"),
    )
    said = r"two\.jsonl:1: set 'one' of suite 'demo' has other instances or references here \(00ff\) than in .*one\.j"
    with pytest.raises(InputError, match=said):
        read_result_files([one, two], complain)
    three = written(tmp_path / "three.jsonl", B, set_hash="00ff", suite="another")
    assert len(read_result_files([one, three], complain)) == 3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cost", "7.7", "'cost' is '7.7'; expected a number of at least 0, or null"),
        ("cost", float("nan"), "'cost' is nan"),
        ("cost", float("inf"), "'cost' is inf"),
        ("cost", -1.0, "'cost' is -1.0"),
        ("cost", True, "'cost' is True"),
        ("reference", "none", "'reference' is 'none'"),
        ("together", 0, "'together' is 0; expected a whole number of at least 1"),
        ("seconds", None, "'seconds' is None; expected a number of at least 0"),
        ("seed", 0.5, "'seed' is 0.5; expected a whole number"),
        ("method", 3, "'method' is 3; expected a text"),
        ("versions", [], r"'versions' is \[\]; expected a table of texts"),
        ("trace", "no", "'trace' is 'no'; expected a list of steps with 4 numbers each"),
        ("trace", [[1, 2, 3]], "'trace' is"),
        ("trace", [[1, 2, 3, float("nan")]], "'trace' is"),
    ],
)
def test_values_of_the_wrong_type_are_no_results(
    tmp_path: Path, name: str, value: Any, message: str
) -> None:
    """Named with file and line, also in a last line without an end: it is whole, so it was not
    cut off.
    """
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(asdict(A)) + "\n" + json.dumps(asdict(B) | {name: value}))
    with pytest.raises(InputError, match=rf"r\.jsonl:2: is not a result line \({message}"):
        read_results(path, complain)
