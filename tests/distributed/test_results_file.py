"""A results file loses nothing, repeats nothing and mixes nothing."""

import json

import numpy as np
import pytest

from rhumbline.distributed.fingerprints import InstanceKeys, content_hash, options_hash
from rhumbline.distributed.merge import merge_results
from rhumbline.distributed.results_file import ResultsFile
from rhumbline.errors import InputError
from rhumbline.pipeline import SolveRequest
from rhumbline.problems.tsp import TSPInstance
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.driver import Budget

LINES = [("a", {"cost": 1, "place": 0}), ("b", {"cost": 2, "place": 1})]


def write(path, lines, options="o") -> None:
    file = ResultsFile.open(path, options)
    file.write(lines)
    file.close()


def costs(path) -> list[int]:
    return [json.loads(line)["cost"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_that_was_cut_off_is_written_again(tmp_path, cut) -> None:
    path = tmp_path / "out.jsonl"
    write(path, LINES)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    write(path, LINES)
    assert path.read_bytes() == whole


def test_known_instances_are_not_repeated(tmp_path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, LINES[:1])
    write(path, LINES)
    write(path, LINES)
    assert costs(path) == [1, 2]


def test_results_of_other_options_are_refused_and_kept(tmp_path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, LINES)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"out.jsonl:1: holds results of other options"):
        ResultsFile.open(path, "other")
    assert path.read_bytes() == before


def test_a_file_of_something_else_is_refused_and_kept(tmp_path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n")
    with pytest.raises(InputError, match="is no JSON"):
        ResultsFile.open(path, "o")
    path.write_text('{"cost": 1}\n')
    with pytest.raises(InputError, match="expected a result"):
        ResultsFile.open(path, "o")
    assert path.read_text() == '{"cost": 1}\n'


def test_a_second_run_on_the_same_file_is_refused(tmp_path) -> None:
    path = tmp_path / "out.jsonl"
    first = ResultsFile.open(path, "o")
    with pytest.raises(InputError, match="in use by another run"):
        ResultsFile.open(path, "o")
    first.close()
    ResultsFile.open(path, "o").close()


def test_merge_keeps_the_order_of_the_input_and_says_what_is_missing(tmp_path) -> None:
    write(tmp_path / "1.jsonl", [("a", {"cost": 1, "place": 0}), ("d", {"cost": 4, "place": 3})])
    write(tmp_path / "2.jsonl", [("b", {"cost": 2, "place": 1}), ("a", {"cost": 1, "place": 0})])
    target = tmp_path / "all.jsonl"
    merged = merge_results([tmp_path / "1.jsonl", tmp_path / "2.jsonl"], target, count=6)
    assert costs(target) == [1, 2, 4]
    assert (merged.lines, merged.repeated, merged.missing) == (3, 1, [2, 4, 5])


def test_merge_refuses_results_of_other_options(tmp_path) -> None:
    write(tmp_path / "1.jsonl", LINES)
    write(tmp_path / "2.jsonl", [("c", {"cost": 3})], options="p")
    with pytest.raises(InputError, match=r"2.jsonl:1: has other options"):
        merge_results([tmp_path / "1.jsonl", tmp_path / "2.jsonl"], tmp_path / "all.jsonl")


def cities(xy, name="x") -> TSPInstance:
    return TSPInstance(name, "EXACT_2D", xy=np.asarray(xy, float))


def test_keys_depend_on_content_and_not_on_names() -> None:
    one = [[0, 0], [1, 0], [0, 1]]
    other = [[0, 0], [1, 0], [0, 2]]
    assert content_hash(cities(one)) == content_hash(cities(one, "y"))
    assert content_hash(cities(one)) != content_hash(cities(other))
    keys = InstanceKeys()
    assert len({keys.key(cities(one)), keys.key(cities(one)), keys.key(cities(other))}) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"budget": Budget(attempts=9)},
        {"strategy": "cmaes"},
        {"settings": ("components=2",)},
        {"after": AfterSearch(polish=True)},
        {"engine": "torch"},
    ],
)
def test_every_option_that_matters_changes_the_hash(change) -> None:
    plain = SolveRequest(budget=Budget(attempts=8))
    changed = SolveRequest(**{"budget": Budget(attempts=8)} | change)
    assert options_hash(plain, 64) != options_hash(changed, 64)
    assert options_hash(plain, 64) != options_hash(plain, 65)
    assert options_hash(plain, 64) == options_hash(SolveRequest(budget=Budget(attempts=8)), 64)
