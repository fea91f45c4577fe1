"""`rhumb solve` with phases besides the search: --polish, --warm-start, --then, --top, --trace."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rhumbline import improvers, kernels
from rhumbline.cli.output import render
from rhumbline.cli.output.files import plan_stems
from rhumbline.files import read
from rhumbline.formats.tsplib import read_tour
from rhumbline.problems.tsp import Tour
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.solution import Candidate, CostChange, Solution
from rhumbline.search.task import Task

Run = Callable[..., Any]


@pytest.fixture
def solve(rhumb: Run, policy: Path) -> Run:
    """Return a function that runs the command with a small budget, unless another is given."""

    def run(*words: object) -> Any:
        budget = () if "--seconds" in words else ("--attempts", 8)
        return rhumb("solve", *words, "--policy", policy, "--device", "cpu", *budget)

    return run


def one(done: Any) -> dict[str, Any]:
    assert done.exit_code == 0, done.stderr
    (line,) = done.stdout.splitlines()
    return json.loads(line)


def test_polish_in_json(solve: Run, tsp: Run) -> None:
    """The costs before and after the polish follow the other keys; the plan has the cost after."""
    file = tsp("a", 20)
    plain, polished = (one(solve(file, "--json", "--quiet", *more)) for more in ((), ("--polish",)))
    assert polished["polish"] == {"before": plain["cost"], "after": polished["cost"]}
    assert polished["polish"]["after"] < polished["polish"]["before"]
    assert (polished["phase"], list(polished)[-2:]) == ("polish", ["polish", "phase"])
    tour = Tour(tuple(number - 1 for number in polished["plan"]))
    assert tour.cost(read(file)) == polished["cost"]


def test_polish_for_people(solve: Run, tsp: Run) -> None:
    """The line of the result has the costs before and after."""
    done = solve(tsp("a", 20), "--polish", "--quiet")
    cost = done.stdout.split("cost ")[1].split()[0]
    assert f" -> {cost}   " in done.stdout.split("polish ")[1]


def test_top_plans(solve: Run, tsp: Run) -> None:
    """--top lists different plans, the result first; the line shows the costs of the others."""
    found = one(solve(tsp("a", 20), "--json", "--quiet", "--top", 3))
    assert [p["cost"] for p in found["plans"]] == sorted(p["cost"] for p in found["plans"])
    assert found["plans"][0] == {"cost": found["cost"], "plan": found["plan"], "phase": "search"}
    assert len({tuple(p["plan"]) for p in found["plans"]}) == 3
    assert "2 other plans: " in solve(tsp("a", 20), "--quiet", "--top", 3).stdout


def test_top_plans_are_written(solve: Run, tsp: Run, tmp_path: Path) -> None:
    """Each plan has a file, the best one that of the instance; the result names them all."""
    file, folder = tsp("a", 20), tmp_path / "plans"
    found = one(solve(file, "--json", "--quiet", "--top", 3, "--output", folder))
    names = ["a.tour", "a.2.tour", "a.3.tour"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    costs = [read_tour(folder / name, read(file)).cost(read(file)) for name in names]
    assert costs == [plan["cost"] for plan in found["plans"]]
    for name, cost in zip(names, costs, strict=True):
        assert f"cost {cost:.0f}," in (folder / name).read_text()
    line = solve(file, "--quiet", "--top", 3, "--output", folder).stdout
    assert line.endswith(f"-> {', '.join(str(folder / name) for name in names)}\n")


def test_fewer_plans_than_requested(solve: Run, tsp: Run, tmp_path: Path) -> None:
    """Four cities have three tours: no other file is written, and none is named."""
    line = solve(tsp("a", 4), "--quiet", "--top", 5, "--output", tmp_path / "plans").stdout
    written = [str(path) for path in (tmp_path / "plans").iterdir()]
    assert 1 < len(written) <= 3
    assert sorted(line.split("-> ")[-1].strip().split(", ")) == sorted(written)


def test_a_folder_in_the_way_of_the_second_plan(solve: Run, tsp: Run, tmp_path: Path) -> None:
    """A folder with the name of a plan's file is an error before the search."""
    (tmp_path / "a.2.tour").mkdir()
    done = solve(tsp("a", 6), "--top", 2, "--output", tmp_path)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "a.2.tour: cannot be replaced" in done.stderr


def test_names_of_several_plans_are_unique() -> None:
    """An instance that has the name of another's second plan keeps its name."""
    assert plan_stems(["a", "A.2", "b"], 3) == [
        ("a", "a.2-2", "a.3"),
        ("A.2", "A.2.2", "A.2.3"),
        ("b", "b.2", "b.3"),
    ]
    assert plan_stems(["a"], 1) == [("a",)]


def test_warm_start_from_own_results(solve: Run, tsp: Run, tmp_path: Path) -> None:
    """The tour of one run, as a file and as JSON, is the start of the next, which is no worse."""
    file = tsp("a", 20)
    best = one(solve(file, "--json", "--quiet", "--polish", "--output", tmp_path))
    (tmp_path / "a.json").write_text(json.dumps(best))
    for start in ("a.tour", "a.json"):
        found = one(solve(file, "--json", "--quiet", "--warm-start", tmp_path / start))
        assert (found["cost"], found["plan"], found["phase"]) == (
            best["cost"],
            best["plan"],
            "warm start",
        )
    assert (
        "nothing better than the warm start"
        in solve(file, "--warm-start", tmp_path / "a.tour").stdout
    )
    assert read_tour(tmp_path / "a.tour", read(file)).cost(read(file)) == best["cost"]


def test_warm_starts_for_several_files(solve: Run, tsp: Run, tmp_path: Path) -> None:
    """Results of several instances are matched to each of them by name."""
    files = [tsp("a", 20), tsp("bb", 20)]
    done = solve(*files, "--json", "--quiet", "--polish")
    (tmp_path / "all.json").write_text(done.stdout)
    again = solve(*files, "--json", "--quiet", "--warm-start", tmp_path / "all.json")
    costs = [[json.loads(line)["cost"] for line in x.stdout.splitlines()] for x in (done, again)]
    assert costs[0] == costs[1]


def test_bad_warm_starts(solve: Run, tsp: Run, square: Path, tmp_path: Path) -> None:
    """A plan for another instance, or none at all, is refused with the reason and exit code 3,
    before any search.
    """
    tour = tmp_path / "square.tour"
    tour.write_text("TYPE : TOUR\nTOUR_SECTION\n10\n20\n30\n40\n-1\nEOF\n")
    done = solve(tsp("a", 20), "--warm-start", tour)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "node 30 is not in a; is this the tour of another instance?" in done.stderr
    assert solve(square, "--warm-start", tmp_path / "nowhere.tour").exit_code == 3


def test_trace(solve: Run, tsp: Run, tmp_path: Path) -> None:
    """Every improvement is a line with name, attempts, seconds, cost and phase; costs fall to
    that of the result.
    """
    found = one(
        solve(tsp("a", 20), "--json", "--quiet", "--polish", "--trace", tmp_path / "curve.jsonl")
    )
    lines = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    costs = [line["cost"] for line in lines]
    assert {tuple(line) for line in lines} == {("name", "attempts", "seconds", "cost", "phase")}
    assert costs == sorted(set(costs), reverse=True)
    assert (costs[-1], lines[-1]["phase"]) == (found["cost"], "polish")
    assert {line["name"] for line in lines} == {"a"}


def test_trace_that_cannot_be_written(solve: Run, square: Path, tmp_path: Path) -> None:
    """A trace file that cannot be written is an error before any search."""
    done = solve(square, "--trace", tmp_path / "no" / "curve.jsonl")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "cannot be written: No such file or directory; choose another place" in done.stderr


def test_phases_that_an_interruption_skipped(
    solve: Run, tsp: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C before a polish or a solver began, their keys are present and null."""
    file, given = tsp("a", 12), tmp_path / "a.json"
    given.write_text(solve(file, "--json", "--quiet").stdout)

    def never(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Task, "_try", never)
    words = (
        "--warm-start",
        given,
        "--polish",
        "--then",
        "ils",
        "--top",
        2,
        "--seconds",
        20,
        "--json",
        "--quiet",
    )
    done = solve(file, *words)
    assert done.exit_code == 130, done.stderr
    found = json.loads(done.stdout)
    assert (found["polish"], found["then"], found["phase"], found["attempts"]) == (
        None,
        None,
        "warm start",
        0,
    )


def test_then_reports_its_phase(solve: Run, tsp: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver's better plan is the result, in JSON and in the line, which name the solver."""
    best: list[Tour] = []

    def improve(
        name: str, instance: Any, plans: Any, seconds: float, seed: int, found: Any
    ) -> None:
        from rhumbline.kernels.numba.local_search import launch as local_moves

        near = local_moves.nearest_nodes(instance.distances)
        best.append(
            Tour(tuple(local_moves.shorten_tour(instance.distances, near, plans[0].order)[0]))
        )
        found(best[-1])

    monkeypatch.setattr(improvers, "improve_plans", improve)
    monkeypatch.setattr(improvers, "find_spec", lambda name: True)
    monkeypatch.setattr(improvers, "prepare_solver", lambda name: None)
    file = tsp("a", 20)
    words = ("--search", "greedy", "--seconds", 20, "--then", "lkh", "--quiet")
    found = one(solve(file, *words, "--json"))
    assert found["then"] == {
        "solver": "lkh",
        "before": found["then"]["before"],
        "after": found["cost"],
    }
    assert (found["phase"], found["then"]["after"]) == ("lkh", best[0].cost(read(file)))
    assert f"lkh {found['then']['before']:,} -> {found['cost']:,}   " in solve(file, *words).stdout


def test_auto_names_the_solver(solve: Run, tsp: Run) -> None:
    """JSON and the line name the solver that ran."""
    words = ("--search", "greedy", "--seconds", 0.4, "--then", "auto", "--quiet")
    assert one(solve(tsp("a", 12), *words, "--json"))["then"]["solver"] == "ils"
    assert "   ils " in solve(tsp("a", 12), *words).stdout


def test_trouble_is_in_json() -> None:
    """The error of a phase is listed beside its costs."""
    plan = Candidate(Tour((0, 1, 2)), 12, "search")
    solution = Solution(
        SimpleNamespace(),
        plan.plan,
        12,
        1,
        1.0,
        (),
        "search",
        then=CostChange(12, 12, "it fell over"),
    )
    facts = render.after_search_facts(solution, AfterSearch(then="lkh"))
    assert facts["then"] == {"solver": "lkh", "before": 12, "after": 12, "trouble": "it fell over"}


def test_wrong_usage(solve: Run, square: Path) -> None:
    """Unknown solvers, solvers without seconds and impossible numbers end with exit code 2."""
    for words, message in (
        (
            ("--then", "gurobi", "--seconds", 1),
            "'gurobi' is not known; known: auto, none, ils, lkh, pyvrp, ruin, tabu, cpsat",
        ),
        (("--then", "lkh"), "it takes the second half of the --seconds"),
        (("--top", 0), "Invalid value for '--top'"),
    ):
        done = solve(square, *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in " ".join(done.stderr.replace("│", " ").split())


def test_local_search_follows_by_default(solve: Run, tsp: Run) -> None:
    """Where there are seconds, unless --then none was given; JSON says what ran."""
    file = tsp("a", 12)
    words = (file, "--search", "greedy", "--seconds", 0.4, "--json", "--quiet")
    found = one(solve(*words))
    assert (found["then"]["solver"], found["phase"]) == ("ils", "ils")
    assert found["then"]["after"] == found["cost"] <= found["then"]["before"]
    alone = one(solve(*words, "--then", "none"))
    assert "then" not in alone
    assert alone["cost"] >= found["cost"]
    header = solve(file, "--search", "greedy", "--seconds", 0.4).stderr.splitlines()[0]
    assert "   greedy, then ils   " in header


def test_attempts_alone_are_the_search_of_the_policy(solve: Run, tsp: Run) -> None:
    """There is no time to share: results are those of --then none, whatever the machine does."""
    file = tsp("a", 20)
    default, alone = (one(solve(file, "--json", *words)) for words in ((), ("--then", "none")))
    for found in (default, alone):
        del found["seconds"]
    assert default == alone


def test_what_is_missing(solve: Run, square: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is exit code 4 with the command that installs it; a solver for other
    problems is exit code 3.
    """
    monkeypatch.setattr(improvers, "find_spec", lambda name: None)
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    done = solve(square, "--then", "pyvrp", "--seconds", 1)
    assert (done.exit_code, "pip install 'rhumbline[solvers]'" in done.stderr) == (4, True)
    done = solve(square, "--polish")
    assert (done.exit_code, "pip install 'rhumbline[cpu]'" in done.stderr) == (4, True)
    done = solve(square, "--then", "cpsat", "--seconds", 1)
    assert (
        done.exit_code,
        "cpsat solves jssp, not tsp; use ils or lkh or pyvrp" in done.stderr,
    ) == (3, True)
