"""The runner measures every result once, also after interruptions, and never mixes origins in a
file.
"""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_suites import METHODS, SET

import rhumbline
from rhumbline.bench import provenance, runner
from rhumbline.bench.baselines import BASELINES, Baseline, SolverTask
from rhumbline.bench.methods import BenchOptions, spent_share, thin_steps, warm_up_baseline
from rhumbline.bench.report import table_rows
from rhumbline.bench.results import Result, read_results
from rhumbline.bench.runner import (
    BenchJob,
    JobProgress,
    MethodOnSet,
    RunProgress,
    TimeEstimate,
    measure_suite,
    prepare_pairs,
)
from rhumbline.bench.suite import Suite, read_suite
from rhumbline.checkpoint import TrainingFacts, save
from rhumbline.errors import InputError
from rhumbline.policies.jssp_machines import JSSPMachinesPolicy, MachinesArchitecture
from rhumbline.problems.tsp import tsp_from_array
from rhumbline.search.driver import Budget, Progress

Write = Callable[..., Path]
CPU = BenchOptions(device="cpu", threads=1)


@pytest.fixture(autouse=True)
def one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tests independent of the state of the checkout."""
    monkeypatch.setattr(provenance, "current_commit", lambda: "c0ffee")


def refuse_warnings(text: str) -> None:
    raise AssertionError(text)


def measure_all(suite: Suite, out: Path, options: BenchOptions = CPU) -> list[RunProgress]:
    return list(measure_suite(suite, out, options, refuse_warnings))


def test_there_is_one_line_for_each_method_instance_and_seed(write: Write, tmp_path: Path) -> None:
    """All combinations are there once.

    Their costs are those of `rhumbline.solve` on the same instances.
    """
    suite, out = read_suite(write("seeds = [0, 5]\n" + SET + METHODS)), tmp_path / "r.jsonl"
    reports = measure_all(suite, out)
    results = read_results(out, refuse_warnings)
    assert (
        reports[-1].done
        == reports[-1].total
        == len(results)
        == len({r.key for r in results})
        == 2 * 4 * 2
    )
    for r in results[:8]:
        assert (r.method, r.attempts, r.together, r.set, r.problem, r.size) == (
            "search",
            20,
            2,
            "ten",
            "tsp",
            10,
        )
    xy = [i.xy for i in prepare_pairs(suite, CPU)[0].instance_set.instances]
    again = rhumbline.solve(
        [tsp_from_array(x) for x in xy if x is not None],
        policy=suite.methods[0].policy,
        attempts=20,
        seed=5,
        device="cpu",
        strategy="cmaes",
    )
    mine = [r.cost for r in results if r.seed == 5 and r.method == "search"]
    assert mine == pytest.approx([s.cost for s in again])


@pytest.mark.parametrize("strategy", ["eas-emb", "sgbs"])
def test_symmetric_copies_share_the_attempts(strategy: str, write: Write, tmp_path: Path) -> None:
    """A method with copies spends as many attempts as without, and its solver names the copies."""
    method = (
        '[[method]]\nname = "s"\npolicy = "{policy}"\nattempts = 20\naugment = 4\n'
        f'strategy = "{strategy}"\n'
    )
    suite, out = read_suite(write(SET + method)), tmp_path / "r.jsonl"
    measure_all(suite, out)
    xy = [i.xy for i in prepare_pairs(suite, CPU)[0].instance_set.instances]
    again = rhumbline.solve(
        [tsp_from_array(x) for x in xy if x is not None],
        policy=suite.methods[0].policy,
        attempts=20,
        device="cpu",
        strategy=strategy,
        augment=4,
    )
    results = read_results(out, refuse_warnings)
    assert [r.cost for r in results] == pytest.approx([s.cost for s in again])
    assert {(r.attempts, "4 copies" in r.solver) for r in results} == {(20, True)}


def test_phases_after_a_search_are_measured(write: Write, tmp_path: Path) -> None:
    """Results are those of `rhumbline.solve` with a polish; the name and the trace say so."""
    method = '[[method]]\nname = "s"\npolicy = "{policy}"\nattempts = 20\npolish = true\n'
    suite = read_suite(write(SET + method))
    out = tmp_path / "r.jsonl"
    measure_all(suite, out)
    instances = prepare_pairs(suite, CPU)[0].instance_set.instances
    polished = rhumbline.solve(
        list(instances),
        policy=suite.methods[0].policy,
        attempts=20,
        device="cpu",
        strategy="cmaes",
        polish=True,
    )
    results = read_results(out, refuse_warnings)
    assert [r.cost for r in results] == pytest.approx([s.cost for s in polished])
    for r in results:
        assert r.attempts == 20
        assert "cmaes, polish, policy " in r.solver
        assert r.trace[-1][2] == pytest.approx(r.cost, abs=1e-5)


def test_a_solver_continues_a_search(write: Write, tmp_path: Path) -> None:
    """It gets the second half of the seconds; what it finds is the result."""
    method = '[[method]]\nname = "s"\npolicy = "{policy}"\nseconds = 0.1\nthen = "auto"\n'
    suite = read_suite(write(SET + method + "together = 2\n"))
    out = tmp_path / "r.jsonl"
    measure_all(suite, out)
    results = read_results(out, refuse_warnings)
    assert len(results) == 4
    for r in results:
        assert "cmaes, then auto, policy " in r.solver
        assert r.trace[-1][2] == pytest.approx(r.cost, abs=1e-5)
        assert r.seconds > 0.09  # half of 0.2 that two share; tiny tours are then solved at once


def test_a_search_starts_from_plans(write: Write, tmp_path: Path) -> None:
    """No result is worse than its plan, which is found by the name of its instance."""
    suite = read_suite(write(SET + METHODS))
    instances = prepare_pairs(suite, CPU)[0].instance_set.instances
    start = instances[1]
    (good,) = rhumbline.solve(start, policy=suite.methods[0].policy, attempts=99, device="cpu")
    (tmp_path / "plans").mkdir()
    rhumbline.write_plan(tmp_path / "plans" / f"{start.name}.tour", good.plan, start, "")
    method = '[[method]]\nname = "s"\npolicy = "{policy}"\nattempts = 1\nwarm_start = "$PLANS/*"\n'
    suite = read_suite(write(SET + method))
    options = replace(CPU, folders={"PLANS": str(tmp_path / "plans")})
    out = tmp_path / "r.jsonl"
    measure_all(suite, out, options)
    costs = {r.instance: r.cost for r in read_results(out, refuse_warnings)}
    assert costs[start.name] <= good.cost
    assert "from plans " in read_results(out, refuse_warnings)[0].solver
    with pytest.raises(InputError, match=r"the warm start of method 's' is in the folder .PLANS"):
        measure_all(suite, out)
    options = replace(CPU, folders={"PLANS": str(tmp_path / "nothing")})
    with pytest.raises(InputError, match="method 's': no plan is called"):
        measure_all(suite, out, options)


def test_a_solver_for_other_problems_is_refused(write: Write, tmp_path: Path) -> None:
    """Before anything is measured, with the name of the method."""
    method = '[[method]]\nname = "s"\npolicy = "{policy}"\nseconds = 0.1\nthen = "tabu"\n'
    suite = read_suite(write(SET + method))
    with pytest.raises(InputError, match=r"method 's' on tsp: .*tabu"):
        measure_all(suite, tmp_path / "r.jsonl")


def test_a_line_has_its_origin(suite: Suite, tmp_path: Path) -> None:
    """Device, versions, commit, suite, budget and trace are in every line."""
    measure_all(suite, tmp_path / "r.jsonl")
    first = read_results(tmp_path / "r.jsonl", refuse_warnings)[0]
    assert (first.commit, first.suite_hash, first.budget) == ("c0ffee", suite.digest, "20 attempts")
    assert first.hardware.endswith("1 thread")
    assert first.versions["torch"] == torch.__version__
    assert [step[0] for step in first.trace] == [16, 20]
    assert first.trace[-1][2] == pytest.approx(first.cost, abs=1e-5)
    assert all(best <= latest for _, _, best, latest in first.trace)


def test_an_interrupted_run_can_be_continued(suite: Suite, tmp_path: Path) -> None:
    """Existing results are not measured again. The file ends up as without the interruption."""
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    measure_all(suite, whole)
    for report in measure_suite(suite, cut, CPU, refuse_warnings):
        if report.done == 2:
            break
    before = cut.read_text()
    reports = measure_all(suite, cut)
    assert (reports[0].done, reports[-1].done) == (2, 8)
    assert cut.read_text().startswith(before)
    facts = [
        [(r.key, r.cost) for r in read_results(path, refuse_warnings)] for path in (whole, cut)
    ]
    assert facts[0] == facts[1]
    assert measure_all(suite, cut)[0].done == 8


def test_an_incomplete_line_is_dropped_with_a_warning(suite: Suite, tmp_path: Path) -> None:
    """A crash in the middle of a line costs only that line, which is measured again."""
    out, warnings = tmp_path / "r.jsonl", list[str]()
    measure_all(suite, out)
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:-1]) + lines[-1][:40])
    assert len(read_results(out, warnings.append)) == 7
    list(measure_suite(suite, out, CPU, warnings.append))
    assert warnings == [f"{out}:8: the last line was cut off in the middle; it is dropped"] * 2
    assert len(read_results(out, refuse_warnings)) == 8


def test_a_missing_line_end_is_added(suite: Suite, tmp_path: Path) -> None:
    """A complete last line without its end is kept. The next result starts on a new line."""
    out = tmp_path / "r.jsonl"
    measure_all(suite, out, BenchOptions(device="cpu", threads=1, limit=2))
    out.write_text(out.read_text().rstrip("\n"))
    measure_all(suite, out)
    assert len(read_results(out, refuse_warnings)) == 8


def test_the_limit_takes_first_instances_and_can_be_raised(suite: Suite, tmp_path: Path) -> None:
    """A run with a limit is the first part of the run without one."""
    out = tmp_path / "r.jsonl"
    assert measure_all(suite, out, BenchOptions(device="cpu", threads=1, limit=1))[-1].total == 2
    assert [r.instance for r in read_results(out, refuse_warnings)] == ["ten-00001"] * 2
    assert [measure_all(suite, out)[i].done for i in (0, -1)] == [2, 8]


def test_only_some_methods(suite: Suite, tmp_path: Path) -> None:
    """`--only` leaves the others out."""
    measure_all(
        suite, tmp_path / "r.jsonl", BenchOptions(only=("nearest",), device="cpu", threads=1)
    )
    assert {r.method for r in read_results(tmp_path / "r.jsonl", refuse_warnings)} == {"nearest"}


def test_another_suite_is_not_mixed_in(suite: Suite, write: Write, tmp_path: Path) -> None:
    """A changed suite needs a new file. Nothing is added to the old one."""
    out = tmp_path / "r.jsonl"
    measure_all(suite, out)
    before = out.read_bytes()
    other = read_suite(write(SET + METHODS.replace("20", "21"), "other"))
    with pytest.raises(
        InputError, match=r"r\.jsonl:1: is a result of another suite: \w+ \(suite small\), not \w+"
    ):
        measure_all(other, out)
    assert out.read_bytes() == before


def test_another_commit_is_not_mixed_in(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a run nor a report mixes results of different code."""
    out = tmp_path / "r.jsonl"
    measure_all(suite, out, BenchOptions(device="cpu", threads=1, limit=1))
    monkeypatch.setattr(provenance, "current_commit", lambda: "decaf")
    with pytest.raises(
        InputError, match="is a result of another commit: c0ffee, not decaf; results are not mixed"
    ):
        measure_all(suite, out)
    first, *others = out.read_text().splitlines()
    out.write_text("\n".join([first, *(line.replace("c0ffee", "decaf") for line in others)]) + "\n")
    with pytest.raises(
        InputError, match=r"r\.jsonl:2: is a result of another commit: decaf, not c0ffee"
    ):
        read_results(out, refuse_warnings)


def test_another_machine_is_not_mixed_in(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of two machines are not averaged."""
    out = tmp_path / "r.jsonl"
    measure_all(suite, out, BenchOptions(device="cpu", threads=1, limit=1))
    monkeypatch.setattr(provenance, "hardware_name", lambda device, threads: "abacus")
    with pytest.raises(InputError, match=r"is a result of another machine: .*, not abacus"):
        measure_all(suite, out)


def test_files_that_changed_are_not_mixed_in(write: Write, tmp_path: Path) -> None:
    """The suite is the same, but its files are not."""
    text = (
        "NAME : a\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : EUC_2D\n"
        "NODE_COORD_SECTION\n1 0 0\n2 3 0\n3 3 4\nEOF\n"
    )
    (tmp_path / "a.tsp").write_text(text)
    suite = read_suite(write('[[set]]\nname = "f"\nproblem = "tsp"\nfiles = "*.tsp"\n' + METHODS))
    measure_all(
        suite, tmp_path / "r.jsonl", BenchOptions(only=("nearest",), device="cpu", threads=1)
    )
    (tmp_path / "a.tsp").write_text(text.replace("3 3 4", "3 3 5"))
    with pytest.raises(InputError, match="set 'f' had other instances or references then"):
        measure_all(
            suite, tmp_path / "r.jsonl", BenchOptions(only=("nearest",), device="cpu", threads=1)
        )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "is not a result line"),
        ("[1]", "not a JSON object"),
        ('{"suite": "x"}', "'suite_hash' is missing"),
    ],
)
def test_a_line_that_is_not_a_result_is_refused(
    suite: Suite, tmp_path: Path, row: str, message: str
) -> None:
    """Only the last line can have been cut off. Any other bad line is refused."""
    out = tmp_path / "r.jsonl"
    measure_all(suite, out, BenchOptions(only=("nearest",), device="cpu", threads=1))
    out.write_text(row + "\n" + out.read_text())
    with pytest.raises(InputError, match=rf"r\.jsonl:1: .*{message}"):
        read_results(out, refuse_warnings)


def test_unknown_fields_are_refused(suite: Suite, tmp_path: Path) -> None:
    """A line with unknown fields was written by another version."""
    out = tmp_path / "r.jsonl"
    measure_all(suite, out, BenchOptions(only=("nearest",), device="cpu", threads=1))
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    out.write_text("\n".join(json.dumps(row | {"mood": 1}) for row in rows) + "\n")
    with pytest.raises(InputError, match="'mood' is unknown"):
        read_results(out, refuse_warnings)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ('solver = "gurobi"', "method 'm': no solver 'gurobi'; known: policy, nearest, lkh"),
        ('strategy = "magic"\nattempts = 1', "method 'm': no strategy 'magic'; known: cmaes"),
        (
            "attempts = 1\nsettings = {colour = 1}",
            "method 'm': unknown key 'colour'; known here: components",
        ),
        ('attempts = 1\npolicy = "absent"', "no checkpoint 'absent'"),
        (
            'solver = "nearest"\nsettings = {colour = 1}',
            "unknown setting 'colour' of nearest neighbour",
        ),
        ('solver = "nearest"\nseconds = 1', "takes no seconds"),
        ('solver = "nearest"\nattempts = 1', "does not count attempts"),
        (
            'solver = "hgs"\nseconds = 1',
            "no method that was asked for solves a set that was asked for",
        ),
        ('solver = "pyvrp"', "PyVRP needs seconds"),
        (
            'attempts = 1\npolicy = "tsp100-single"',
            "method 'm' on tsp: this policy has no latent space to search",
        ),
    ],
)
def test_methods_that_cannot_work_are_refused_before_any_work(
    write: Write, tmp_path: Path, method: str, message: str
) -> None:
    """Nothing is measured before everything is known to work."""
    suite = read_suite(write(SET + f'[[method]]\nname = "m"\n{method}\n'))
    with pytest.raises(InputError, match=message):
        measure_all(suite, tmp_path / "r.jsonl")
    assert not (tmp_path / "r.jsonl").exists()


def test_the_time_left_is_estimated_from_finished_jobs(suite: Suite) -> None:
    """The pace is that of the same method and set, else the mean.

    Before any job there is no estimate.
    """
    search, nearest = prepare_pairs(suite, CPU)
    estimate, job, other = (
        TimeEstimate(),
        BenchJob(search, 0, (0, 1)),
        BenchJob(nearest, 0, (0, 1, 2)),
    )
    assert estimate.seconds_left([job, other]) is None
    estimate.add_job(job, 10.0)
    assert estimate.seconds_left([job, job]) == 20.0
    assert estimate.seconds_left([other]) == 15.0
    estimate.add_job(other, 0.3)
    assert estimate.seconds_left([job, other]) == pytest.approx(10.3)


def test_budgets_in_seconds_give_an_estimate_at_once(write: Write) -> None:
    """Four instances of two seconds take eight."""
    text = SET + '[[method]]\nname = "s"\npolicy = "{policy}"\nseconds = 2\n'
    (pair,) = prepare_pairs(read_suite(write(text)), CPU)
    assert isinstance(pair, MethodOnSet)
    assert TimeEstimate().seconds_left([BenchJob(pair, 0, (0, 1, 2, 3))]) == 8.0


def test_a_job_reports_how_far_it_is(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two results, the listener gets what is running and how much of its budget is spent.

    The results do not change.
    """
    monkeypatch.setattr(runner.JobProgress, "seconds_between_reports", 0.0)
    reports: list[RunProgress] = []
    list(measure_suite(suite, tmp_path / "reported.jsonl", CPU, refuse_warnings, reports.append))
    current = [(s.done, s.current.method, s.current.spent) for s in reports if s.current]
    assert current[:4] == [
        (0, "search", "warming up"),
        (0, "search", ""),
        (0, "search", "16 of 20 attempts"),
        (0, "search", "20 of 20 attempts"),
    ]
    assert current[4][0] == 2
    assert current[-1] == (7, "nearest", "")
    assert all(s.current and s.current.set == "ten" and not s.latest for s in reports)
    measure_all(suite, tmp_path / "silent.jsonl")
    reported, silent = (
        read_results(tmp_path / f"{name}.jsonl", refuse_warnings) for name in ("reported", "silent")
    )
    assert [(r.key, r.cost) for r in reported] == [(r.key, r.cost) for r in silent]


def test_a_job_reports_how_long_it_takes(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter in 10 s leaves 30 s, and 40 s for another job of the kind.

    Warming up is not counted.
    """
    (search, _), now, reports = prepare_pairs(suite, CPU), [0.0], list[RunProgress]()
    job = BenchJob(search, 0, (0, 1))
    monkeypatch.setattr(runner.time, "monotonic", lambda: now[0])
    progress = JobProgress(job, [job], TimeEstimate(), reports.append, 0, 4)
    for at, share in ((100.0, 0.0), (110.0, 0.25), (110.5, 0.3)):
        now[0] = at
        progress.report(share, "")
    assert [s.seconds_left for s in reports] == [
        None,
        pytest.approx(70.0),
    ]  # The last report would be too early.


def test_budgets_are_spent_by_attempts_or_by_the_clock() -> None:
    """The larger share counts."""
    progress = Progress(40, 6.0, torch.zeros(1), torch.zeros(1), None)
    assert spent_share(progress, Budget(attempts=160)) == (0.25, "40 of 160 attempts")
    assert spent_share(progress, Budget(attempts=160, seconds=8.0)) == (0.75, "6 of 8 s")
    assert spent_share(progress, Budget(seconds=3.0)) == (1.0, "6 of 3 s")


def test_two_runs_do_not_share_a_file(suite: Suite, tmp_path: Path) -> None:
    """The second run is refused and changes nothing.

    When the first has ended, for whatever reason, the file is free.
    """
    out = tmp_path / "r.jsonl"
    first = measure_suite(suite, out, CPU, refuse_warnings)
    for _ in range(2):
        next(first)
    before = out.read_bytes()
    with pytest.raises(
        InputError, match=r"r\.jsonl: another run is adding to this file; wait for it"
    ):
        measure_all(suite, out)
    assert out.read_bytes() == before != b""
    first.close()
    assert measure_all(suite, out)[-1].done == 8


def test_loading_a_library_is_not_measured(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call of a solver takes a second longer by a clock of the test.

    No result contains that second.
    """
    now, calls = [0.0], list[int]()

    def slow_at_first(work: SolverTask) -> list[int]:
        calls.append(work.instance.size)
        now[0] += 1.0 if len(calls) == 1 else 0.25
        return list(range(work.instance.size))

    monkeypatch.setitem(
        BASELINES, "nearest", Baseline("slow", {"tsp": slow_at_first}, "numpy", needs_seconds=False)
    )
    monkeypatch.setattr(runner.time, "monotonic", lambda: now[0])
    warm_up_baseline.cache_clear()
    measure_all(
        suite, tmp_path / "r.jsonl", BenchOptions(only=("nearest",), device="cpu", threads=1)
    )
    warm_up_baseline.cache_clear()
    assert calls == [6, 10, 10, 10, 10]
    assert [r.seconds for r in read_results(tmp_path / "r.jsonl", refuse_warnings)] == [0.25] * 4


def test_traces_keep_first_and_last() -> None:
    """A few steps are all kept. Many are thinned evenly on a logarithmic scale."""
    assert thin_steps(1) == [0]
    assert thin_steps(5) == [0, 1, 2, 3, 4]
    assert (thin_steps(100)[0], thin_steps(100)[-1], len(thin_steps(100)) <= 24) == (0, 99, True)


def test_the_gap_is_a_fraction_of_the_reference(suite: Suite, tmp_path: Path) -> None:
    """10 % above the reference is 0.1. Without a reference there is no gap."""
    measure_all(
        suite, tmp_path / "r.jsonl", BenchOptions(only=("nearest",), device="cpu", threads=1)
    )
    r = read_results(tmp_path / "r.jsonl", refuse_warnings)[0]
    facts = {name: getattr(r, name) for name in Result.__dataclass_fields__}
    assert r.gap is None
    gap = Result(**facts | {"cost": 11.0, "reference": 10.0}).gap
    assert gap is not None
    assert math.isclose(gap, 0.1)


TIGHT = """NAME : {name}
TYPE : CVRP
DIMENSION : 4
CAPACITY : 10
VEHICLES : {vehicles}
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 0 10
3 10 0
4 10 10
DEMAND_SECTION
1 0
2 6
3 6
4 6
DEPOT_SECTION
1
-1
EOF
"""
ROUTING = """
[[set]]
name = "f"
problem = "cvrp"
files = "*.vrp"
[[method]]
name = "greedy"
strategy = "greedy"
policy = "cvrp100-single"
attempts = 1
[[method]]
name = "nearest"
solver = "nearest"
"""


def test_plans_that_exceed_a_limit_have_no_cost(write: Write, tmp_path: Path) -> None:
    """Three demands of 6 need three vehicles of capacity 10, with routes of length 20, 20 and 28.

    Two vehicles are not enough.
    """
    for name, vehicles in (("a", 2), ("b", 3)):
        (tmp_path / f"{name}.vrp").write_text(TIGHT.format(name=name, vehicles=vehicles))
    out = tmp_path / "r.jsonl"
    measure_all(
        read_suite(write(ROUTING)), out, BenchOptions(device="cpu", threads=1, engine="torch")
    )
    results = read_results(out, refuse_warnings)
    assert [(r.method, r.instance, r.cost, r.gap) for r in results] == [
        (method, *of)
        for method in ("greedy", "nearest")
        for of in (("a", None, None), ("b", 68, None))
    ]
    assert ["vehicles" in r.missing for r in results] == [True, False, True, False]
    assert [(row.n, row.missing, row.cost) for row in table_rows(results)] == [(1, 1, 68.0)] * 2
    assert (
        measure_all(
            read_suite(write(ROUTING)), out, BenchOptions(device="cpu", threads=1, engine="torch")
        )[0].done
        == 4
    )


def test_policies_for_machines_solve_job_shops(write: Write, tmp_path: Path) -> None:
    """On one machine, any order takes 3 + 2."""
    save(
        tmp_path / "m.safetensors",
        JSSPMachinesPolicy(MachinesArchitecture(16, 2, 16, 4)),
        TrainingFacts("jssp-machines", 2),
    )
    (tmp_path / "shop.txt").write_text("2 1\n0 3\n0 2\n")
    text = (
        '[[set]]\nname = "s"\nproblem = "jssp"\nfiles = "*.txt"\n'
        '[[method]]\nname = "m"\nattempts = 2\n'
    )
    measure_all(
        read_suite(write(f'{text}policy = "{tmp_path / "m.safetensors"}"\n')), tmp_path / "r.jsonl"
    )
    assert [r.cost for r in read_results(tmp_path / "r.jsonl", refuse_warnings)] == [5]
