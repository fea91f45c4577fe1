"""Comparisons: which instances they are of, what is counted, and what their tables say."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhumbline
from rhumbline.bench import provenance
from rhumbline.bench.compare import Comparison, measure_comparison, prepare_comparison
from rhumbline.bench.compare.sets import (
    SetSelection,
    draw_uniform_set,
    draw_validation_set,
    draw_varied_set,
    load_sets,
)
from rhumbline.bench.compare.tables import comparison_tables
from rhumbline.bench.instance_sets import InstanceSet
from rhumbline.bench.methods import BenchOptions
from rhumbline.bench.reference.file import read_references
from rhumbline.bench.results import Result, read_results
from rhumbline.cli.commands.compare import run_compare
from rhumbline.errors import InputError

ROOT = Path(__file__).parents[2]
CPU = BenchOptions(device="cpu", threads=1)
TINY = SetSelection(first=3, validation=True)


@pytest.fixture(autouse=True)
def one_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tests do not depend on the state of the checkout, and leave no results in it."""
    monkeypatch.setattr(provenance, "current_commit", lambda: "c0ffee")
    monkeypatch.chdir(tmp_path)


def complain(text: str) -> None:
    raise AssertionError(text)


def measured(
    comparison: Comparison, sets: Sequence[InstanceSet], out: Path
) -> tuple[list[Result], int]:
    """All lines of the file, and how many were there before."""
    pairs = prepare_comparison(comparison, sets, CPU)
    progress = list(measure_comparison(pairs, comparison.seeds, out, CPU, complain))
    return read_results(out, complain), progress[0].done


# --- instances


@pytest.mark.parametrize(
    ("draw", "name", "count", "digest"),
    [
        (draw_uniform_set, "tsp20", 2, "044bda507f7a070e"),
        (draw_uniform_set, "vrp10", 2, "1e13e908f4aedb4f"),
        (draw_uniform_set, "jssp3x3", 2, "47a13234f43acc82"),
        (draw_varied_set, "vrp10", 4, "60eb36b36e640fef"),
        (draw_varied_set, "tsp20", 4, "23c02df99bf18d9d"),
    ],
)
def test_validation_instances_are_always_the_same(
    draw: Callable[..., Any], name: str, count: int, digest: str
) -> None:
    """Bit for bit those with which all settings of docs and research notes were chosen."""
    arrays = [np.ascontiguousarray(array).tobytes() for array in draw(name, count).arrays]
    assert sha256(b"".join(arrays)).hexdigest()[:16] == digest


def test_numbers_of_job_shops_are_those_of_python() -> None:
    """Lines of results are JSON, which knows no integers of NumPy."""
    (shop,) = draw_uniform_set("jssp3x3", 1).instances
    assert {type(x) for row in shop.durations + shop.machines for x in row} == {int}


def test_a_test_set_has_its_references() -> None:
    """The third of the first three by itself keeps its own reference."""
    (whole,) = load_sets("tsp100", SetSelection(first=3), complain)
    (last,) = load_sets("tsp100", SetSelection(first=3, skip=2), complain)
    stored = read_references(ROOT / "benchmarks" / "reference" / "tsp100.npz").cost
    assert whole.references == tuple(stored[:3])
    assert last.references == (stored[2],)
    assert last.instances[0].name == whole.instances[2].name
    assert last.digest != whole.digest


def test_files_are_sets_by_problem_smallest_first() -> None:
    """The examples: one set of each problem, measured against the best known costs."""
    sets = load_sets(str(ROOT / "examples"), SetSelection(), complain)
    assert sorted(one.spec.name for one in sets) == [
        "examples, cvrp",
        "examples, jssp",
        "examples, tsp",
    ]
    assert all(one.references[0] == one.instances[0].best_known for one in sets)


def test_unreadable_files_are_reported_and_left_out(tmp_path: Path) -> None:
    """The others are solved."""
    (tmp_path / "broken.tsp").write_text("DIMENSION: many\n")
    (tmp_path / "good.tsp").write_bytes((ROOT / "examples" / "harbour100.tsp").read_bytes())
    said = list[str]()
    (found,) = load_sets(str(tmp_path), SetSelection(), said.append)
    assert [instance.name for instance in found.instances] == ["harbour100"]
    assert "broken.tsp" in said[0]


@pytest.mark.parametrize(
    ("place", "selection", "words"),
    [
        ("nothing", {}, "nothing: no such file, and no test set"),
        ("tsp100", {"first": 3, "skip": 3}, "--skip 3 of the first 3 leaves nothing to solve"),
        ("tsp100", {"varied": True}, "--varied is for --validation"),
        ("knapsack7", {"validation": True}, "no validation instances are called knapsack7"),
        ("jssp3x3", {"validation": True, "varied": True}, "--varied is for sets such as vrp300"),
    ],
)
def test_sets_that_cannot_be_had(place: str, selection: dict[str, Any], words: str) -> None:
    """The message names the option, before any work."""
    with pytest.raises(InputError, match=words):
        load_sets(place, SetSelection(**selection), complain)


def test_what_follows_a_search_is_compared() -> None:
    """Every solver is a method of its own, with its name; a polish is the same for all."""
    comparison = Comparison(("sampling",), seconds=(2.0,), solvers=("", "auto"), polish=True)
    methods = comparison.methods()
    assert [m.name for m in methods] == [
        "sampling, 2 s, polish",
        "sampling, 2 s, polish, then auto",
    ]
    assert [(m.polish, m.then) for m in methods] == [(True, ""), (True, "auto")]
    with pytest.raises(InputError, match="then takes the second half of the seconds"):
        Comparison(("sampling",), attempts=(8,), solvers=("auto",)).methods()
    with pytest.raises(InputError, match="--then ils,ils: expected different values"):
        Comparison(("sampling",), seconds=(2.0,), solvers=("ils", "ils"))


# --- measuring


def test_lines_are_those_of_every_suite(policy: Path, tmp_path: Path) -> None:
    """One line for each method and instance; costs and attempts are those of `rhumbline.solve`."""
    comparison = Comparison(("eas-emb",), (str(policy),), attempts=(7,), augment=2)
    sets = [draw_validation_set("tsp6", TINY)]
    results, _ = measured(comparison, sets, tmp_path / "r.jsonl")
    xy = [instance.xy for instance in sets[0].instances]
    again = rhumbline.solve(
        np.stack(xy), policy=policy, strategy="eas-emb", attempts=7, augment=2, device="cpu"
    )
    assert [r.cost for r in results] == pytest.approx([solution.cost for solution in again])
    assert [(r.attempts, r.together) for r in results] == [(7, 3)] * 3
    assert all(r.seconds > 0 for r in results)
    assert results[0].suite == "compare"


def test_a_comparison_continues_and_grows(policy: Path, tmp_path: Path) -> None:
    """What was measured stays; other strategies, budgets and seeds add their own lines."""
    out, sets = tmp_path / "r.jsonl", [draw_validation_set("tsp6", TINY)]
    first = Comparison(("sampling",), (str(policy),), attempts=(4,))
    assert (len(measured(first, sets, out)[0]), measured(first, sets, out)[1]) == (3, 3)
    more = replace(first, strategies=("sampling", "cmaes"), attempts=(4, 8), seeds=(0, 1))
    results, before = measured(more, sets, out)
    assert before == 3
    assert len(results) == len({r.key for r in results}) == 3 * 2 * 2 * 2


def test_other_instances_need_another_file(policy: Path, tmp_path: Path) -> None:
    """Lines of other sets are not mixed in."""
    comparison = Comparison(("greedy",), (str(policy),), attempts=(1,))
    out = tmp_path / "r.jsonl"
    measured(comparison, [draw_validation_set("tsp6", TINY)], out)
    with pytest.raises(InputError, match="results are not mixed"):
        measured(comparison, [draw_validation_set("tsp7", TINY)], out)


def test_the_default_is_what_solve_takes(policy: Path) -> None:
    """With a latent space and no kernel for so small a policy that is CMA-ES."""
    sets = [draw_validation_set("tsp6", TINY)]
    (pair,) = prepare_comparison(Comparison(policies=(str(policy),)), sets, CPU)
    assert pair.method.strategy == "cmaes"
    assert pair.method.name.startswith("default")


def test_weights_are_named_by_their_numbers(policy: Path, tmp_path: Path) -> None:
    """A copy of a policy has the same mark, another policy has another one."""
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(policy.read_bytes())
    sets = [draw_validation_set("tsp6", TINY)]
    comparison = Comparison(("greedy",), (str(policy), str(copy), "tsp"), attempts=(1,))
    pairs = prepare_comparison(comparison, sets, CPU)
    one, same, other = (pair.runner.solver.split("(weights ")[1] for pair in pairs)
    assert one == same != other


# --- tables


def line(method: str, instance: str, cost: float | None, **more: Any) -> Result:
    usual: dict[str, Any] = dict.fromkeys(
        ("suite", "suite_hash", "commit", "machine", "set", "set_hash", "hardware", "solver"), "x"
    )
    usual |= {"seed": 0, "problem": "tsp", "size": 5, "referee": "", "budget": "1 attempt"}
    usual |= {"reference": None, "attempts": 1, "seconds": 1.0, "together": 2, "versions": {}}
    return Result(method=method, instance=instance, cost=cost, when="now", **usual | more)


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|")[1:-1]]


def test_policies_are_compared_instance_by_instance() -> None:
    """By hand: 10 % more on one of two instances is 5 ± 9.8 %, which is not significant."""
    results = [line("a", "1", 10.0), line("a", "2", 20.0), line("b", "1", 11.0)]
    results.append(line("b", "2", 20.0))
    _, _, title, _, first, second, _, note = comparison_tables(results).splitlines()
    assert "gap to the best of these rows, %" in title
    assert cells(first)[1:5] == ["2", "15", "+0.0000 ± 0.0000", ""]
    assert cells(second)[1:5] == ["2", "15.5000", "+5.0000 ± 9.8000", "+5.0000 ± 9.8000"]
    assert note.endswith(
        "b, compared with a: no significant difference (+5.0000 ± 9.8000 %, n = 2)"
    )


@pytest.mark.parametrize(
    ("costs", "verdict"),
    [((9.0, 18.0, 27.1), "significantly better"), ((11.0, 22.0, 33.1), "significantly worse")],
)
def test_differences_beyond_their_interval_are_significant(
    costs: tuple[float, ...], verdict: str
) -> None:
    """About 10 % on each of three instances."""
    results = [line("a", f"{i}", 10.0 * i) for i in (1, 2, 3)]
    results += [line("b", f"{i}", cost) for i, cost in enumerate(costs, 1)]
    assert f"b, compared with a: {verdict} (" in comparison_tables(results)


def test_only_equal_budgets_are_compared() -> None:
    """The first method of each budget has nothing before it."""
    results = [line("a", "1", 10.0), line("c", "1", 5.0, budget="9 attempts")]
    assert "compared with" not in comparison_tables(results)


def test_references_and_seeds() -> None:
    """Gaps are to references where all have one; seeds of an instance are averaged first."""
    results = [
        line("a", "1", cost, seed=seed, reference=10.0) for seed, cost in ((0, 11.0), (1, 13.0))
    ]
    (row,) = (text for text in comparison_tables(results).splitlines() if text.startswith("| a"))
    assert cells(row)[1:4] == ["1", "12", "+20.0000"]


def test_a_missing_plan_is_in_no_mean() -> None:
    """Instances without a plan are left out of both sides of a pair."""
    results = [line("a", "1", 10.0), line("a", "2", 20.0), line("b", "1", 10.0)]
    results.append(line("b", "2", None, missing="no plan"))
    (row,) = (text for text in comparison_tables(results).splitlines() if text.startswith("| b"))
    assert cells(row)[1:5] == ["1", "10", "+0.0000", "+0.0000"]


# --- the command


def test_rows_name_policies_where_several_are_given(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One strategy by two policies; each row is the one that the policy has by itself."""
    words = ["tsp10", "--validation", "--first", "2", "--search", "greedy", "--attempts", "1"]
    words += ["--device", "cpu", "--threads", "1", "--quiet", "--policy"]

    def costs(policies: str) -> dict[str, str]:
        assert run_compare([*words, policies]) == 0
        rows = [row for row in capsys.readouterr().out.splitlines() if row.startswith("| greedy")]
        return {cells(row)[0]: cells(row)[2] for row in rows}

    one, other = costs(str(policy)), costs("tsp100-single")
    assert list(one.values()) != list(other.values())
    assert costs(f"{policy},tsp100-single") == one | other
    assert (tmp_path / "results" / "compare-tsp10-validation-first-2.jsonl").is_file()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--policy", "tsp,tsp"], 3, "expected different values with commas between them"),
        (["--search", "cmeas"], 3, "cmeas"),
        (["--search", "cmaes+componets=2"], 3, "did you mean 'components'"),
        (["--search", "population"], 3, "not a population"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before anything is measured."""
    usual = ["tsp6", "--validation", "--first", "2", "--device", "cpu"]
    assert run_compare([*usual, *words]) == code
    assert message in capsys.readouterr().err
    assert not list(Path().glob("results/*.jsonl"))


def test_an_interrupted_comparison_prints_what_was_finished(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first method's table, exit code 130, and the same command continues."""
    words = ["tsp6", "--validation", "--first", "2", "--search", "greedy,sampling"]
    words += ["--attempts", "2", "--device", "cpu", "--threads", "1", "--policy", str(policy)]
    from rhumbline.bench import runner

    real, made = runner.append_results, list[int]()

    def interrupt_second(path: Path, results: Sequence[Result]) -> None:
        if made:
            raise KeyboardInterrupt
        made.append(len(results))
        real(path, results)

    monkeypatch.setattr(runner, "append_results", interrupt_second)
    assert run_compare(words) == 130
    told = capsys.readouterr()
    assert "| greedy" in told.out
    assert "| sampling" not in told.out
    assert "the same command goes on from there" in told.err
    monkeypatch.undo()


def test_the_command_needs_neither_typer_nor_rich(policy: Path, tmp_path: Path) -> None:
    """As on bare GPU nodes: `rhumb bench compare` runs where importing either of them fails."""
    for name in ("typer", "rich", "matplotlib"):
        (tmp_path / "broken" / name).mkdir(parents=True)
        (tmp_path / "broken" / name / "__init__.py").write_text("raise ImportError")
    paths = os.pathsep.join((str(tmp_path / "broken"), str(ROOT)))
    words = ["tsp6", "--validation", "--first", "2", "--search", "greedy", "--attempts", "1"]
    words += ["--policy", str(policy), "--device", "cpu", "--threads", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "rhumbline", "bench", "compare", *words],
        env=os.environ | {"PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "| greedy" in done.stdout) == (0, True), done.stderr
