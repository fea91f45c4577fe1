"""Results of several files: duplicates count once, contradictions and other lines are refused."""

import gzip
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


def refuse_warnings(text: str) -> None:
    raise AssertionError(text)


def write_results(path: Path, *results: Result, **changed: Any) -> Path:
    path.write_text("".join(json.dumps(asdict(r) | changed) + "\n" for r in results))
    return path


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_packed_lines_are_the_same_lines(tmp_path: Path, suffix: str, pack: Any) -> None:
    """Packed results are read, but nothing is added to them.

    The message about a broken archive names it.
    """
    packed, broken = tmp_path / f"golden.jsonl.{suffix}", tmp_path / f"broken.{suffix}"
    packed.write_bytes(pack(GOLDEN.read_bytes()))
    assert read_results(packed, print) == read_results(GOLDEN, print)
    with pytest.raises(
        InputError, match=rf"golden\.jsonl\.{suffix}: is packed; results are added to plain files"
    ):
        refuse_packed(packed)
    broken.write_bytes(b"{}")
    with pytest.raises(InputError, match=rf"broken\.{suffix}: cannot be unpacked"):
        read_results(broken, print)


def test_a_line_counts_once(tmp_path: Path) -> None:
    """A file that is named twice and a line that was copied within a file count once, with a
    warning.
    """
    one, warnings = write_results(tmp_path / "one.jsonl", A, B, A), list[str]()
    assert read_result_files([one, one], warnings.append) == [A, B]
    assert warnings == [
        f"{one}: 1 of its 3 lines is there twice; each is counted once",
        f"{one}: 3 of its 3 lines are there twice; each is counted once",
    ]


@pytest.mark.parametrize(
    "change", [{"cost": 7.71}, {"seconds": 9.0}, {"when": "2026-11-16T12:00:00+00:00"}]
)
def test_two_measurements_of_the_same_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """They may be in one file or in two.

    The message has both lines, because only one of them can count.
    """
    one, two = (
        write_results(tmp_path / "one.jsonl", B, A),
        write_results(tmp_path / "two.jsonl", A, **change),
    )
    message = (
        r"two\.jsonl:1: is another measurement of what .*one\.jsonl:2 measured "
        r"\(A on one-1, seed 0\)"
    )
    with pytest.raises(InputError, match=message):
        read_result_files([one, two], refuse_warnings)
    one.write_text(one.read_text() + two.read_text())
    with pytest.raises(
        InputError, match=r"one\.jsonl:3: is another measurement of what .*one\.jsonl:2"
    ):
        read_results(one, refuse_warnings)


@pytest.mark.parametrize("name", ["suite_hash", "commit", "hardware", "budget", "solver"])
def test_measurements_that_differ_in_a_field_are_not_duplicates(tmp_path: Path, name: str) -> None:
    """Another suite, commit, hardware, budget or solver is another row, not a contradiction."""
    one, two = (
        write_results(tmp_path / "one.jsonl", A),
        write_results(tmp_path / "two.jsonl", A, **{name: "other"}),
    )
    assert read_result_files([one, two], refuse_warnings) == [A, replace(A, **{name: "other"})]


def test_sets_of_one_name_are_the_same_instances(tmp_path: Path) -> None:
    """Other instances or references under the same name are refused.

    In another suite they are another set.
    """
    one, two = (
        write_results(tmp_path / "one.jsonl", A, B),
        write_results(tmp_path / "two.jsonl", B, set_hash="00ff"),
    )
    message = (
        r"two\.jsonl:1: set 'one' of suite 'demo' has other instances or references here "
        r"\(00ff\) than in .*one\.j"
    )
    with pytest.raises(InputError, match=message):
        read_result_files([one, two], refuse_warnings)
    three = write_results(tmp_path / "three.jsonl", B, set_hash="00ff", suite="another")
    assert len(read_result_files([one, three], refuse_warnings)) == 3


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
def test_values_of_the_wrong_type_are_refused(
    tmp_path: Path, name: str, value: Any, message: str
) -> None:
    """The message has file and line.

    A complete last line without an end was not cut off, so it is refused as well.
    """
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(asdict(A)) + "\n" + json.dumps(asdict(B) | {name: value}))
    with pytest.raises(InputError, match=rf"r\.jsonl:2: is not a result line \({message}"):
        read_results(path, refuse_warnings)
