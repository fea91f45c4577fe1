"""`rhumb train`: reports, metrics, resuming, and refusals."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rhumbline.cli.commands import train
from rhumbline.training.trainer import Diverged

Words = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Words:
    """Return a function that runs the command in `tmp_path`: exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> tuple[int, str, str]:
        code = train.run_train([*map(str, words), "--device", "cpu"])
        return (code, *capsys.readouterr())

    return call


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_reports_and_says_where_the_policy_is(
    run: Words, recipe: Path, tmp_path: Path
) -> None:
    """Stderr has titles and a row for each report, stdout the policy's path, metrics.jsonl the
    reports as JSON.
    """
    code, stdout, stderr = run(recipe)
    assert (code, stdout) == (0, "runs/tiny/policy.safetensors\n")
    titles, *rows = stderr.splitlines()
    assert titles.split() == list(train.COLUMNS)
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    kept = metrics(tmp_path / "runs" / "tiny")
    assert [line["update"] for line in kept] == [1, 2, 3]
    assert [f"{line['greedy']:.4f}" for line in kept] == [row.split()[6] for row in rows]


def test_resuming_continues_in_the_same_folder(run: Words, recipe: Path, tmp_path: Path) -> None:
    """--resume continues from the last update and appends to the metrics; --quiet leaves stderr
    empty.
    """
    run(recipe, "--out", "one", "--quiet")
    assert run(recipe, "--resume", "one", "--set", "updates=5", "--quiet") == (
        0,
        "one/policy.safetensors\n",
        "",
    )
    assert [line["update"] for line in metrics(tmp_path / "one")] == [1, 2, 3, 4, 5]


def test_a_finished_run_has_nothing_to_resume(run: Words, recipe: Path) -> None:
    """Resuming a run whose updates are done is an error."""
    run(recipe, "--out", "one", "--quiet")
    message = (
        "error: one: nothing to train, all updates are done; try --set updates=N or --minutes M\n"
    )
    assert run(recipe, "--resume", "one") == (3, "", message)


def test_another_run_is_not_overwritten(run: Words, recipe: Path, tmp_path: Path) -> None:
    """A folder that holds a run is refused, and its weights stay as they are."""
    run(recipe, "--out", "one", "--quiet")
    before = (tmp_path / "one" / "policy.safetensors").read_bytes()
    message = (
        "error: one: holds a run already; continue it with --resume one, or choose another --out\n"
    )
    assert run(recipe, "--out", "one") == (3, "", message)
    assert (tmp_path / "one" / "policy.safetensors").read_bytes() == before


def test_a_trained_policy_solves(
    run: Words, rhumb: Callable[..., Any], recipe: Path, square: Path
) -> None:
    """`solve` and `info` read what `train` writes."""
    run(recipe, "--out", "one", "--quiet")
    done = rhumb(
        "solve",
        square,
        "--policy",
        "one/policy.safetensors",
        "--attempts",
        32,
        "--device",
        "cpu",
        "--json",
    )
    assert (done.exit_code, json.loads(done.stdout)["cost"]) == (0, 40)
    facts = json.loads(rhumb("info", "one/policy.safetensors", "--json").stdout)
    assert (facts["size"], facts["updates"], facts["latent"]) == (8, 3, 4)
    assert facts["recipe"]["objective"]["starts"] == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--set", "speed=9"],
            "unknown key 'speed' (did you mean 'seed'?); known here: problem, size, sizes",
        ),
        (["--set", "updates=0"], "give --minutes, or `updates` in the recipe"),
        (["--resume", "nowhere"], "nowhere: no training to resume"),
        (["--out", "tiny.toml/run"], "nothing can be written there"),
    ],
)
def test_what_cannot_be_trained_is_exit_3(
    run: Words, recipe: Path, words: list[str], message: str
) -> None:
    """Recipe, checkpoint and folder are checked before training; the error is one line."""
    code, stdout, stderr = run(recipe, *words)
    assert (code, stdout, stderr.count("\n")) == (3, "", 1)
    assert stderr.startswith("error: ")
    assert message in stderr


def test_a_missing_recipe_is_exit_3(run: Words) -> None:
    """The missing file is named, and no folder is left behind."""
    assert run("none.toml") == (3, "", "error: none.toml: no such recipe\n")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "words", [[], ["r.toml", "--minutes", "0"], ["r.toml", "--minutes", "x"], ["r.toml", "--fast"]]
)
def test_wrong_usage_is_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """argparse's exit code is the documented one."""
    with pytest.raises(SystemExit) as end:
        train.run_train(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("usage: rhumb train")


def test_divergence_is_exit_1(run: Words, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that diverges ends with its reason in one line."""

    def diverge(*_: object, **__: object) -> Iterator[None]:
        raise Diverged("update 3: the loss is not finite; the last checkpoint is intact")
        yield

    monkeypatch.setattr("rhumbline.training.loop.train", diverge)
    message = "error: update 3: the loss is not finite; the last checkpoint is intact\n"
    assert run(recipe) == (1, "", message)


def test_only_the_first_process_prints(
    run: Words, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under torchrun other processes print nothing and do not write the metrics."""
    monkeypatch.setenv("RANK", "1")
    assert run(recipe, "--out", "two") == (0, "", "")
    assert not (tmp_path / "two" / "metrics.jsonl").exists()


def test_auto_begins_resumes_and_ends(run: Words, recipe: Path, tmp_path: Path) -> None:
    """The same command serves a job that is started again: also after the last update."""
    words = (recipe, "--out", "one", "--resume", "auto", "--quiet")
    done = (0, "one/policy.safetensors\n", "")
    assert run(*words, "--set", "updates=2") == done
    assert run(*words) == done
    note = "one: nothing to train, all updates are done\n"
    assert run(*words) == (0, "one/policy.safetensors\n", note)
    assert [line["update"] for line in metrics(tmp_path / "one")] == [1, 2, 3]
    assert run(recipe, "--resume", "auto", "--quiet")[1] == "runs/tiny/policy.safetensors\n"


def test_a_part_of_a_line_of_metrics_is_removed(run: Words, recipe: Path, tmp_path: Path) -> None:
    """A full disk or a kill may leave one; the file stays readable line by line."""
    run(recipe, "--out", "one", "--quiet", "--set", "updates=2")
    with (tmp_path / "one" / "metrics.jsonl").open("a") as file:
        file.write('{"update": 3, "minu')
    run(recipe, "--resume", "one", "--quiet")
    assert [line["update"] for line in metrics(tmp_path / "one")] == [1, 2, 3]


def test_metrics_that_cannot_be_written_name_the_state(
    run: Words, recipe: Path, tmp_path: Path
) -> None:
    """The state is written before the line of metrics, so nothing is lost."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "metrics.jsonl").symlink_to("/dev/full")
    code, _, stderr = run(recipe, "--out", "one", "--quiet")
    assert code == 3
    assert "metrics.jsonl: cannot be written" in stderr
    assert "the state of update 1 is intact: make room, then --resume one" in stderr
