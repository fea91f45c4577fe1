"""Each problem has one record for suites, and an outside problem is refused in sentences."""

import pytest

from rhumbline.bench.baselines import BASELINES, SolverTask
from rhumbline.bench.instance_sets import draw_instances
from rhumbline.bench.problems import BENCH_PROBLEMS, find_bench_problem, tiny_tsp
from rhumbline.bench.reference.make import find_reference_solver
from rhumbline.bench.suite import SetSpec
from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError


@pytest.mark.parametrize("name", BENCH_PROBLEMS)
def test_each_record_is_of_a_domain(name: str) -> None:
    """Its tiny instance is one of that problem, and its reference solver solves the problem."""
    record = BENCH_PROBLEMS[name]
    assert record.tiny is not None
    assert isinstance(record.tiny(), DOMAINS[name].instance)
    assert name in BASELINES[find_reference_solver(name).solver].solvers


def test_every_domain_of_ours_has_a_record() -> None:
    """A domain without one could not be measured by recipes."""
    assert set(DOMAINS.table) == set(BENCH_PROBLEMS)


def test_sizes_are_told_in_the_words_of_the_problem() -> None:
    """Job shops have jobs and machines if the name of their set agrees with their sizes."""
    job_shops = find_bench_problem("jssp")
    assert job_shops.size_text("jssp10x10", [100]) == "10 jobs x 10 machines"
    assert job_shops.size_text("jssp10x10", [100, 150]) == "100 to 150 operations"
    assert job_shops.size_text("files", [36]) == "36 operations"
    assert find_bench_problem("orienteering").size_text("10x10", [20, 30]) == "size 20 to 30"


def test_an_outside_problem_is_refused_in_sentences() -> None:
    """It has neither recipes nor a solver for references, and no baseline solves it."""
    with pytest.raises(InputError, match="no recipes for problem 'orienteering'; use files"):
        draw_instances(SetSpec("o", "orienteering", "uniform"))
    with pytest.raises(InputError, match="no classical solver is known for it, only for tsp"):
        find_reference_solver("orienteering")
    with pytest.raises(InputError, match=r"HGS-CVRP .* solves cvrp, but .* is 'tsp'"):
        BASELINES["hgs"].solve(SolverTask(tiny_tsp(), 1.0, 0, {}))
