"""`rhumb` on job shops with an untrained policy: from files and samples to verified schedules."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rhumbline
from rhumbline.checkpoint import TrainingFacts, save
from rhumbline.errors import InputError
from rhumbline.files import read, read_many
from rhumbline.formats.jsplib import read_schedule
from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
from rhumbline.problems.jssp import JSSPInstance, Schedule

Run = Callable[..., Any]
QUICK = ("--attempts", 4, "--device", "cpu", "--search", "sampling")
# Machine 2 of the three has nothing to do; job 2 comes to machine 1 twice; one operation takes no
# time. The comment says that short rows are intended.
SHOP = "3 3  # first machine: 0\n0 3 1 2\n1 4 0 1 1 0\n0 2\n"
BEST = 6  # machine 0 works 3 + 1 + 2 = 6, and 2 and 0 on machine 1 fit behind its 4


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "shop.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(3)
        save(
            path,
            JSSPPolicy(JSSPArchitecture(width=32, heads=2, layers=1, hidden=32, latent=4)),
            TrainingFacts("jssp", "6x6", 7),
        )
    return path


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.txt"
    path.write_text(SHOP)
    (tmp_path / "optima.json").write_text(json.dumps({"shop": BEST}))
    return path


def test_json_has_the_start_times_of_each_job(rhumb: Run, shop: Path, untrained: Path) -> None:
    """The plan is a feasible schedule of the file, and the cost is its makespan."""
    done = rhumb("solve", shop, "--policy", untrained, "--json", "--quiet", *QUICK)
    assert (done.exit_code, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert {
        "name": "shop",
        "problem": "jssp",
        "verified": True,
        "attempts": 4,
    }.items() <= result.items()
    instance, schedule = read(shop), Schedule(tuple(map(tuple, result["plan"])))
    assert isinstance(instance, JSSPInstance)
    schedule.check(instance)
    assert result["cost"] == schedule.cost(instance)
    assert result["gap"] == pytest.approx(result["cost"] / BEST - 1)
    assert all(type(start) is int for row in result["plan"] for start in row)


def test_the_header_has_jobs_and_machines(rhumb: Run, shop: Path, untrained: Path) -> None:
    """The line before the search counts operations, jobs and machines, without a metric
    or starts.
    """
    done = rhumb("solve", shop, "--policy", untrained, *QUICK)
    assert done.stderr.startswith("shop  jssp, 6 operations, 3 jobs, 3 machines   policy ")
    assert "(trained at 6x6)   sampling   cpu, torch\n" in done.stderr
    assert done.stdout.startswith("shop  cost ")
    assert "(best known)   4 attempts" in done.stdout


def test_schedules_and_charts_are_written(
    rhumb: Run, shop: Path, untrained: Path, tmp_path: Path
) -> None:
    """The schedule file has the plan that was printed; the picture is a PNG."""
    out = tmp_path / "out"
    done = rhumb(
        "solve", shop, "--policy", untrained, "--output", out, "--plot", "--json", "--quiet", *QUICK
    )
    instance, result = read(shop), json.loads(done.stdout)
    assert isinstance(instance, JSSPInstance)
    assert read_schedule(out / "shop.sched", instance).to_file_numbers(instance) == result["plan"]
    assert f"# cost {result['cost']}, found by rhumbline" in (out / "shop.sched").read_text()
    assert (out / "shop.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in out.iterdir()) == ["shop.png", "shop.sched"]


@pytest.mark.parametrize(
    ("text", "cost"), [("1 1\n0 5\n", 5), ("1 3\n0 1 2 2 1 3\n", 6), ("3 1\n0 5\n0 0\n0 7\n", 12)]
)
def test_one_job_or_one_machine_is_solved(
    rhumb: Run, tmp_path: Path, untrained: Path, text: str, cost: int
) -> None:
    """Every order of decisions is equally good; the makespan is the sum of the durations."""
    (tmp_path / "one.jsp").write_text(text)
    done = rhumb("solve", tmp_path / "one.jsp", "--policy", untrained, "--json", "--quiet", *QUICK)
    assert json.loads(done.stdout)["cost"] == cost


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("3 3\n0 3\n", 1, "1 rows follow, 3 jobs need 3 rows"),
        ("1 3\n0 3 1\n", 2, "read 3 numbers, expected pairs"),
        ("1 3\n0 -3\n", 2, "read '-3', expected a duration"),
        ("1 3\n0 3 3 1\n", 2, "read machine 3, expected 0 to 2"),
        ("1 3\n1 3 2 1\n", 1, "they may count from 0 or from 1"),
        ("1 3\n0 3000000000\n", 2, "at most 2,147,483,647 are supported"),
    ],
)
def test_bad_files_are_one_line_and_exit_3(
    rhumb: Run, tmp_path: Path, text: str, line: int, words: str
) -> None:
    """The error has file, line and reason, and comes before any policy is loaded."""
    (tmp_path / "bad.txt").write_text(text)
    done = rhumb("solve", tmp_path / "bad.txt")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith(f"error: {tmp_path}/bad.txt:{line}: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_samples_can_be_solved(rhumb: Run, tmp_path: Path, untrained: Path) -> None:
    """Sizes are jobs x machines; equal seeds give equal bytes, and `solve` reads the file."""
    one, two = tmp_path / "s.safetensors", tmp_path / "t.safetensors"
    for path in (one, two):
        assert (
            rhumb(
                "sample", "jssp", "--size", "4x3", "--count", 2, "--seed", 5, "--out", path
            ).exit_code
            == 0
        )
    assert one.read_bytes() == two.read_bytes()
    assert [i.shape for i in read_many(one)] == [(4, 3, 3)] * 2
    done = rhumb("solve", one, "--policy", untrained, "--json", "--quiet", *QUICK)
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["s-0001", "s-0002"]


def test_samples_have_a_default_size(rhumb: Run, tmp_path: Path) -> None:
    """The default is 10 jobs on 10 machines, durations of 1 to 98, each job once on each
    machine.
    """
    rhumb("sample", "jssp", "--count", 5, "--out", tmp_path / "s.safetensors")
    for instance in read_many(tmp_path / "s.safetensors"):
        assert isinstance(instance, JSSPInstance)
        assert instance.shape == (10, 10, 10)
        assert all(1 <= d <= 98 for row in instance.durations for d in row)
        assert all(sorted(row) == list(range(10)) for row in instance.machines)


@pytest.mark.parametrize(
    ("problem", "size", "code"),
    [
        ("jssp", "10y10", 2),
        ("jssp", "0x5", 2),
        ("jssp", "x", 2),
        ("jssp", "101x30", 3),
        ("tsp", "10x10", 2),
        ("tsp", "-3", 2),
        ("tsp", "9" * 30, 2),
        ("jssp", "3x3x3", 3),
    ],
)
def test_strange_sizes_are_refused(
    rhumb: Run, tmp_path: Path, problem: str, size: str, code: int
) -> None:
    """A malformed size is wrong usage; a size that is too large is exit 3. No file is left."""
    done = rhumb(
        "sample", problem, "--size", size, "--count", 2, "--out", tmp_path / "s.safetensors"
    )
    assert (done.exit_code, done.stdout, list(tmp_path.iterdir())) == (code, "", [])
    assert "Traceback" not in done.stderr


def test_arrays_are_solved_like_files(untrained: Path) -> None:
    """Durations and machines are arrays or lists, machines from 0 or from 1; a mapping without
    machines is refused.
    """
    durations, machines = np.array([[3, 2], [4, 1]]), [[0, 1], [1, 0]]
    shops = [
        {"durations": durations, "machines": machines},
        {"durations": [[1]], "machines": [[1]], "name": "b"},
    ]
    found = rhumbline.solve(shops, policy=untrained, attempts=8, device="cpu")
    assert [(s.instance.name, s.cost) for s in found] == [("arrays", 6), ("b", 1)]
    with pytest.raises(InputError, match="'machines' is missing; a job shop has durations, mach"):
        rhumbline.solve({"durations": durations}, policy=untrained)


def test_arrays_say_how_their_machines_count_like_json_files(untrained: Path) -> None:
    """Machines 1 and 3 may count from 0 or from 1; `first_machine` decides, and must be
    an integer.
    """
    shop = {"durations": [[3, 2], [4, 1]], "machines": [[1, 3], [3, 1]]}
    with pytest.raises(
        InputError, match=r"may count from 0 or from 1; .* by first_machine = 0 or 1$"
    ):
        rhumbline.solve(shop, policy=untrained)
    told = shop | {"first_machine": 1, "machine_count": 5}
    (found,) = rhumbline.solve(told, policy=untrained, attempts=8, device="cpu")
    assert (found.instance.machines, found.instance.machine_count) == (((0, 2), (2, 0)), 5)
    assert found.cost == 6
    with pytest.raises(InputError, match=r"first_machine is 1\.0, expected a whole number"):
        rhumbline.solve(shop | {"first_machine": 1.0}, policy=untrained)
