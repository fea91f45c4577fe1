"""`rhumb solve` without errors: what is printed where, and which files are written."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rhumbline.checkpoint import TrainingFacts, save
from rhumbline.files import read
from rhumbline.formats.dataset import save_dataset
from rhumbline.formats.tsplib import read_tour
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.search.strategies import STRATEGIES

Run = Callable[..., Any]
KEYS = [
    "name",
    "problem",
    "cost",
    "plan",
    "attempts",
    "seconds",
    "verified",
    "gap",
    "search",
    "policy",
    "engine",
    "seed",
    "file",
]


def records(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


def without_seconds(text: str) -> str:
    return re.sub(r"\d+\.\d s", "T s", text)


def test_json_is_one_object_and_nothing_else(rhumb: Run, policy: Path, square: Path) -> None:
    """The object has the promised keys, the file's city numbers, and the cost and gap of the
    best tour of a square.
    """
    done = rhumb(
        "solve",
        square,
        "--policy",
        policy,
        "--attempts",
        32,
        "--seed",
        5,
        "--device",
        "cpu",
        "--json",
        "--quiet",
    )
    assert (done.exit_code, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    (found,) = records(done.stdout)
    seconds, plan = found.pop("seconds"), found.pop("plan")
    assert 0 < seconds < 60
    assert sorted(plan) == [10, 20, 30, 40]
    assert found == {
        "name": "square",
        "problem": "tsp",
        "cost": 40,
        "attempts": 32,
        "verified": True,
        "gap": 0.0,
        "search": "cmaes",
        "policy": str(policy),
        "engine": "torch",
        "seed": 5,
        "file": str(square),
    }


def test_keys_come_in_the_documented_order(rhumb: Run, policy: Path, tsp: Run) -> None:
    """Programs that cut columns can rely on the order; an unknown optimum is null."""
    done = rhumb(
        "solve",
        tsp("a"),
        "--policy",
        policy,
        "--attempts",
        1,
        "--device",
        "cpu",
        "--json",
        "--quiet",
    )
    (found,) = records(done.stdout)
    assert (list(found), found["gap"]) == (KEYS, None)


def test_threads_change_the_speed_only(rhumb: Run, policy: Path, tsp: Run) -> None:
    """--threads reaches torch, whose number the fused engine uses too; plans do not depend on it,
    and 0 is wrong usage.
    """
    words = (
        "solve",
        tsp("a"),
        "--policy",
        policy,
        "--attempts",
        4,
        "--device",
        "cpu",
        "--json",
        "--quiet",
    )
    plans = []
    for count in (2, 1):
        (found,) = records(rhumb(*words, "--threads", count).stdout)
        assert torch.get_num_threads() == count
        plans.append(found["plan"])
    assert plans[0] == plans[1]
    assert rhumb(*words, "--threads", 0).exit_code == 2


def test_people_get_a_line_before_and_a_line_after(
    rhumb: Run, policy: Path, square: Path, tmp_path: Path
) -> None:
    """Without --json stdout has one line for each instance, and stderr says what is searched and
    how.
    """
    words = (
        "--policy",
        policy,
        "--attempts",
        32,
        "--device",
        "cpu",
        "--output",
        tmp_path / "new" / "tours",
    )
    done = rhumb("solve", square, *words)
    tour = tmp_path / "new" / "tours" / "square.tour"
    line = (
        "square  cost 40   gap 0.00% to 40 (best known)   32 attempts   T s   verified   "
        f"-> {tour}\n"
    )
    header = (
        f"square  tsp, 4 cities, EUC_2D   policy {policy} (trained at 20)   "
        "cmaes, 3 components   cpu, torch\n"
    )
    assert (done.exit_code, without_seconds(done.stdout), done.stderr) == (0, line, header)
    assert read_tour(tour, read(square)).cost(read(square)) == 40


def test_large_costs_have_separators_and_exact_ones_decimals(
    rhumb: Run, policy: Path, tmp_path: Path
) -> None:
    """Rounded metrics print integers; the unrounded metric of a dataset prints four decimals."""
    corners = np.array([[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]])
    save_dataset(tmp_path / "unit.safetensors", corners / 2, {})
    matrix = (
        "NAME: far\nDIMENSION: 2\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\n"
    )
    (tmp_path / "far.tsp").write_text(matrix + "EDGE_WEIGHT_SECTION\n0 6172\n6172 0\n")
    files = (tmp_path / "unit.safetensors", tmp_path / "far.tsp")
    done = rhumb(
        "solve", *files, "--policy", policy, "--attempts", 16, "--device", "cpu", "--quiet"
    )
    lines = [
        "unit-0001  cost 2.0000   16 attempts   T s   verified",
        "far  cost 12,344   1 attempt   T s   verified",
    ]
    assert without_seconds(done.stdout).splitlines() == lines


def test_equal_sizes_are_solved_together_in_their_order(rhumb: Run, policy: Path, tsp: Run) -> None:
    """Groups come in order of first appearance, files keep their order in a group, and each group
    has one header; the first line says how much there is to do, another how far the call is.
    """
    files = [tsp("a", 6), tsp("b", 7), tsp("c", 6)]
    words = (
        "--policy",
        policy,
        "--attempts",
        2,
        "--device",
        "cpu",
        "--search",
        "sampling",
        "--set",
        "temperature=0.5",
    )
    done = rhumb("solve", *files, *words, "--json")
    with_policy = f"policy {policy} (trained at 20)   sampling, temperature 0.5   cpu, torch"
    assert [r["name"] for r in records(done.stdout)] == ["a", "c", "b"]
    plan, before, mean, status, last = done.stderr.splitlines()
    assert plan == "3 instances in 2 groups: 2 attempts for each instance"
    assert before == f"2 instances, tsp, 6 cities, EUC_2D   {with_policy}"
    assert re.fullmatch(r"2 instances   mean cost \d+\.\d{4}   \d+\.\d s", mean)
    assert re.fullmatch(r"2 of 3 instances done   about \d+ s left", status)
    assert last == f"b  tsp, 7 cities, EUC_2D   {with_policy}"


def test_results_name_their_files(rhumb: Run, policy: Path, tsp: Run) -> None:
    """Results come in groups of equal size: a program identifies them by the file that
    each names.
    """
    files = [tsp("a", 6), tsp("b", 7), tsp("c", 6)]
    for file in files:
        file.write_text(re.sub(r"NAME ?: ?\w+", "NAME: same", file.read_text()))
    done = rhumb(
        "solve", *files, "--policy", policy, "--attempts", 2, "--device", "cpu", "--json", "--quiet"
    )
    found = [(r["name"], r["file"]) for r in records(done.stdout)]
    assert found == [("same", str(files[place])) for place in (0, 2, 1)]


def test_a_folder_stands_for_its_files(rhumb: Run, policy: Path, tsp: Run) -> None:
    """Files of a folder are solved in the order of their names, other files are ignored; JSON has
    the file of each.
    """
    first, second = tsp("b", 5), tsp("a", 6)
    (first.parent / "notes.txt").write_text("nothing to solve")
    budget = ("--policy", policy, "--attempts", 1, "--device", "cpu", "--json", "--quiet")
    done = rhumb("solve", first.parent, *budget)
    assert done.exit_code == 0, done.stderr
    assert sorted(r["file"] for r in records(done.stdout)) == [str(second), str(first)]
    nothing = first.parent / "empty"
    nothing.mkdir()
    done = rhumb("solve", nothing, *budget)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "no file in this folder holds instances" in done.stderr


def test_datasets_are_solved_like_files(rhumb: Run, policy: Path, tmp_path: Path) -> None:
    """Every instance of a dataset has its line, and costs are those of the file's coordinates, not
    of the unit square.
    """
    xy = np.random.default_rng(1).random((3, 5, 2)) * 0.1
    save_dataset(tmp_path / "few.safetensors", xy, {})
    words = ("--policy", policy, "--attempts", 4, "--device", "cpu", "--json", "--quiet")
    found = records(rhumb("solve", tmp_path / "few.safetensors", *words).stdout)
    assert [r["name"] for r in found] == ["few-0001", "few-0002", "few-0003"]
    for points, record in zip(xy, found, strict=True):
        path = points[np.array(record["plan"]) - 1]
        length = np.linalg.norm(path - np.roll(path, -1, axis=0), axis=1).sum()
        assert record["cost"] == pytest.approx(length, rel=1e-12)


def test_the_default_budget_is_printed(rhumb: Run, policy: Path, square: Path) -> None:
    """Users see how long a search without a budget takes."""
    done = rhumb("solve", square, "--policy", policy, "--search", "greedy", "--device", "cpu")
    expected = (
        "no budget given: up to 1,600 attempts and then local search, 30 seconds at most "
        "(--attempts, --seconds, --then none)"
    )
    assert (done.exit_code, done.stderr.splitlines()[0]) == (0, expected)
    assert "   1 attempt   " in done.stdout


@pytest.mark.parametrize(
    ("cities", "more", "warned"), [(30, (), False), (31, (), True), (31, ("--polish",), False)]
)
def test_large_instances_come_with_a_word_of_advice(
    cities: int, more: tuple[str, ...], warned: bool, rhumb: Run, policy: Path, tsp: Run
) -> None:
    """Beyond 1.5 times the training size (here 20) a polish is recommended, unless it was
    requested.
    """
    done = rhumb(
        "solve", tsp("a", cities), "--policy", policy, "--attempts", 1, "--device", "cpu", *more
    )
    advice = (
        f"{cities} cities are far beyond what this policy was trained at: "
        "expect a larger gap, and try --polish"
    )
    assert (done.exit_code, advice in done.stderr.splitlines()) == (0, warned)


def test_seconds_end_a_search(rhumb: Run, policy: Path, tsp: Run) -> None:
    """A budget of seconds alone is enough; the search ends within a step of it."""
    words = ("--policy", policy, "--seconds", 0.2, "--device", "cpu", "--json", "--quiet")
    (found,) = records(rhumb("solve", tsp("a"), *words).stdout)
    assert found["attempts"] >= 1
    assert found["seconds"] < 5


def test_quiet_says_nothing_on_stderr(rhumb: Run, policy: Path, tsp: Run) -> None:
    """With --quiet stderr is empty, also with several files and without a budget."""
    done = rhumb(
        "solve",
        tsp("a"),
        tsp("b"),
        "--policy",
        policy,
        "--search",
        "greedy",
        "--device",
        "cpu",
        "--quiet",
    )
    assert (done.exit_code, done.stderr, done.stdout.count("\n")) == (0, "", 2)


def test_names_become_safe_and_unique_files(
    rhumb: Run, policy: Path, tsp: Run, tmp_path: Path
) -> None:
    """Instances of one name, or with separators in it, each have a tour in the folder and nothing
    outside it.
    """
    files = [
        tsp("a", title="x/../y"),
        tsp("b", title="Same"),
        tsp("c", title="same"),
        tsp("d", 7, title="same"),
    ]
    words = (
        "--policy",
        policy,
        "--search",
        "greedy",
        "--device",
        "cpu",
        "--quiet",
        "--output",
        tmp_path / "out",
    )
    assert rhumb("solve", *files, *words).exit_code == 0
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["Same.tour", "same-2.tour", "same-3.tour", "x_.._y.tour"]
    read_tour(tmp_path / "out" / "same-3.tour", read(files[3]))


def test_pictures_go_beside_tours(rhumb: Run, policy: Path, square: Path, tmp_path: Path) -> None:
    """--plot writes a PNG into the folder of --output and names it."""
    words = (
        "--policy",
        policy,
        "--search",
        "greedy",
        "--device",
        "cpu",
        "--quiet",
        "--output",
        tmp_path / "o",
        "--plot",
    )
    done = rhumb("solve", square, *words)
    assert done.stdout.rstrip().endswith(
        f"-> {tmp_path / 'o' / 'square.tour'}, {tmp_path / 'o' / 'square.png'}"
    )
    assert (tmp_path / "o" / "square.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_without_a_folder_go_here(
    rhumb: Run, policy: Path, square: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--plot alone writes to the current folder, and no tour."""
    monkeypatch.chdir(tmp_path)
    done = rhumb(
        "solve",
        square,
        "--policy",
        policy,
        "--search",
        "greedy",
        "--device",
        "cpu",
        "--quiet",
        "--plot",
    )
    assert done.stdout.rstrip().endswith("verified   -> square.png")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["optima.json", "square.png", "square.tsp"]


def test_large_instances_say_how_many_starts_they_have(rhumb: Run, policy: Path, tsp: Run) -> None:
    """Beyond 200 cities an attempt has 100 starts, and the header says so."""
    done = rhumb(
        "solve",
        tsp("big", 201),
        "--policy",
        policy,
        "--search",
        "greedy",
        "--attempts",
        1,
        "--device",
        "cpu",
    )
    assert done.stderr.startswith("big  tsp, 201 cities, EUC_2D, 100 of 201 starts   policy ")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_smallest_instances_are_solved(rhumb: Run, policy: Path, tsp: Run, size: int) -> None:
    """Instances may have one, two or three cities."""
    words = ("--policy", policy, "--attempts", 20, "--device", "cpu", "--json", "--quiet")
    (found,) = records(rhumb("solve", tsp("small", size, first=0), *words).stdout)
    assert sorted(found["plan"]) == list(range(size))


def test_settings_reach_the_strategy(rhumb: Run, policy: Path, square: Path) -> None:
    """--set is repeatable, and the header shows settings that are not the defaults."""
    words = (
        "--policy",
        policy,
        "--attempts",
        4,
        "--device",
        "cpu",
        "--set",
        "components=1",
        "--set",
        "sigma=1e-1",
    )
    assert "   cmaes, 1 component, sigma 0.1   " in rhumb("solve", square, *words).stderr


def test_a_search_that_ends_by_itself_says_so(rhumb: Run, policy: Path, square: Path) -> None:
    """Greedy makes one attempt of five and says so on stderr, unless one attempt was the budget."""
    words = (
        "solve",
        square,
        "--policy",
        policy,
        "--device",
        "cpu",
        "--search",
        "greedy",
        "--attempts",
    )
    done = rhumb(*words, 5)
    assert "   1 attempt   " in done.stdout
    assert "greedy ended by itself after 1 attempt of 5: it repeats nothing" in done.stderr
    assert "by itself" not in rhumb(*words, 1).stderr
    others = ("--search", "sampling", "--attempts", 10_000_000, "--seconds", 0.1)
    assert (
        "by itself"
        not in rhumb("solve", square, "--policy", policy, "--device", "cpu", *others).stderr
    )
    assert (
        "greedy ended by itself after 1 attempt: it repeats nothing"
        in rhumb(*words[:-1], "--seconds", 5).stderr
    )


def test_symmetries_share_the_attempts(rhumb: Run, policy: Path, square: Path) -> None:
    """--augment 8 is in the header and in the JSON; the number of attempts stays the same. 9 is
    wrong usage.
    """
    words = (
        "solve",
        square,
        "--policy",
        policy,
        "--attempts",
        20,
        "--device",
        "cpu",
        "--json",
        "--augment",
    )
    done = rhumb(*words, 8)
    (found,) = records(done.stdout)
    assert (found["attempts"], found["cost"], found["augment"]) == (20, 40, 8)
    assert "   cmaes, 3 components, 8 symmetries   " in done.stderr
    assert rhumb(*words, 9).exit_code == 2


@pytest.mark.parametrize("search", STRATEGIES.table)
def test_help_names_every_strategy(
    rhumb: Run, policy: Path, square: Path, search: str, tmp_path: Path
) -> None:
    """Each strategy is in the help and runs under that name."""
    assert search in rhumb("solve", "--help").stdout
    if search == "population":
        policy = tmp_path / "many.safetensors"
        save(
            policy,
            TSPPolicy(Architecture(16, 2, 1, 16, latent=0, members=2)),
            TrainingFacts("tsp", 20),
        )
    words = (
        "--policy",
        policy,
        "--attempts",
        3,
        "--device",
        "cpu",
        "--json",
        "--quiet",
        "--search",
        search,
    )
    (found,) = records(rhumb("solve", square, *words).stdout)
    assert (found["search"], sorted(found["plan"])) == (search, [10, 20, 30, 40])


def test_equal_seeds_give_equal_results(rhumb: Run, policy: Path, tsp: Run) -> None:
    """The same command prints the same plan, alone or beside another file of its size."""
    one, other = tsp("one", 12), tsp("other", 12)
    words = (
        "--policy",
        policy,
        "--attempts",
        5,
        "--device",
        "cpu",
        "--json",
        "--quiet",
        "--search",
        "uniform",
    )
    alone = records(rhumb("solve", one, *words).stdout)[0]
    beside = records(rhumb("solve", other, one, *words).stdout)[1]
    assert (alone["plan"], alone["cost"]) == (beside["plan"], beside["cost"])
