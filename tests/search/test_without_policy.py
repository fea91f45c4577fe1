"""Files that are too large for the policy: plans at once, what is refused, and interruptions."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhumbline
from rhumbline import improvers
from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.formats.tsplib import read_tsp
from rhumbline.formats.vrplib import read_vrp
from rhumbline.pipeline import Listener, SolveRequest, solve_groups
from rhumbline.problems.cvrp import CVRPInstance, Routes, cvrp_from_arrays
from rhumbline.problems.cvrp.construct import construct_routes
from rhumbline.problems.cvrp.regions import RouteRegions
from rhumbline.problems.tsp import Tour, TSPInstance, tsp_from_array
from rhumbline.problems.tsp.construct import construct_tour
from rhumbline.search import first_plans
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.driver import Budget
from rhumbline.search.without_policy.host_task import HostTask
from rhumbline.search.without_policy.regions import RegionSearch

RNG = np.random.default_rng(3)
XY = RNG.integers(0, 10_000, (3000, 2)).astype(float)
CITIES = TSPInstance("cities", "EUC_2D", xy=XY)
DELIVERY = CVRPInstance("delivery", "EUC_2D", (0, *RNG.integers(1, 10, 2999).tolist()), 60, xy=XY)
SMALL = tsp_from_array(RNG.random((5, 2)), "small")


class Recorder(Listener):
    """Writes down the notes and the phases that it hears of."""

    def __init__(self) -> None:
        self.notes = list[str]()
        self.phases = list[str]()

    def note(self, line: str) -> None:
        self.notes.append(line)

    def progress(self, progress: Any) -> None:
        self.phases.append(progress.phase)


def solve_cities(seconds: float, listener: Listener) -> Any:
    """Return the result of the cities with local search."""
    request = SolveRequest(Budget(seconds=seconds), after=AfterSearch(then="auto"))
    (result,) = solve_groups([CITIES], request, listener)
    return result


def write_file(path: Path, head: str, rows: list[str]) -> Path:
    path.write_text("\n".join([head, *rows, "EOF", ""]))
    return path


def position_rows(count: int) -> list[str]:
    return [f"{number} {number % 97} {number % 89}" for number in range(1, count + 1)]


def test_a_large_file_of_cities_is_solved(tmp_path: Path) -> None:
    """The plan is verified, and no worse than the construction; the seconds are kept."""
    head = "NAME: big\nTYPE: TSP\nDIMENSION: 3000\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION"
    rows = [f"{number} {x:.0f} {y:.0f}" for number, (x, y) in enumerate(XY, 1)]
    path = write_file(tmp_path / "big.tsp", head, rows)
    (solution,) = rhumbline.solve(path, seconds=2)
    instance = read_tsp(path)
    solution.plan.check(instance)
    assert solution.cost == solution.plan.cost(instance)
    assert solution.cost <= construct_tour(CITIES).cost(CITIES)
    assert solution.then is not None
    assert solution.attempts == 0
    assert "distances" not in vars(solution.instance)


def test_a_large_file_of_customers_is_solved(tmp_path: Path) -> None:
    """The same for routes."""
    words = "TYPE: CVRP\nDIMENSION: 3000\nCAPACITY: 60\nEDGE_WEIGHT_TYPE: EUC_2D"
    rows = [f"{number} {x:.0f} {y:.0f}" for number, (x, y) in enumerate(XY, 1)]
    demands = [f"{number} {load}" for number, load in enumerate(DELIVERY.demands, 1)]
    sections = [*rows, "DEMAND_SECTION", *demands, "DEPOT_SECTION", "1", "-1"]
    path = write_file(tmp_path / "big.vrp", f"NAME: big\n{words}\nNODE_COORD_SECTION", sections)
    (solution,) = rhumbline.solve(path, seconds=2)
    solution.plan.check(read_vrp(path))
    stars = 2.0 * DELIVERY.legs(0, np.arange(3000)).sum()
    assert solution.cost < 0.5 * stars
    assert solution.then is not None
    assert "distances" not in vars(solution.instance)


def test_a_note_says_what_is_done_and_every_phase_is_heard_of() -> None:
    """The first report is the construction, before local search begins."""
    listener = Recorder()
    result = solve_cities(0.5, listener)
    (note,) = listener.notes
    assert note.startswith(
        "3,000 cities are more than the policy takes (1,000): local search (ils)"
    )
    assert listener.phases[:2] == ["construction", "ils"]
    assert result.run.policy is None
    assert result.solutions[0].trace[0][0] == 0


@pytest.mark.parametrize("instance", [CITIES, DELIVERY], ids=["tsp", "cvrp"])
def test_without_seconds_the_construction_is_the_result(instance: Any) -> None:
    """It uses no random numbers, so two calls with different seeds agree."""
    first, second = (rhumbline.solve(instance, attempts=3, seed=seed)[0] for seed in (0, 1))
    assert first.plan == second.plan
    assert first.phase == "construction"


def test_a_warm_start_is_kept_if_it_is_better() -> None:
    """A plan that the construction does not reach is the result without seconds."""
    angle = np.linspace(0.0, 2.0 * np.pi, 1500, endpoint=False)
    order = RNG.permutation(1500)
    xy = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1.0 + 0.2 * RNG.random((1500, 1)))
    instance = tsp_from_array(xy[order], "ring")
    given = Tour(tuple(np.argsort(order).tolist()))
    (solution,) = rhumbline.solve(instance, attempts=1, warm_start=given)
    assert solution.plan == given
    assert solution.phase == "warm start"


def test_large_and_small_instances_in_one_call(policy: Any) -> None:
    """Each result is at the place of its instance; the policy has the small one."""
    request = SolveRequest(Budget(attempts=2), policy=policy, device="cpu")
    found: dict[int, Any] = {}
    for result in solve_groups([CITIES, SMALL, CITIES], request):
        found |= result.by_place()
    assert [found[place].instance for place in range(3)] == [CITIES, SMALL, CITIES]
    assert [found[place].attempts for place in range(3)] == [0, 2, 0]


def test_an_interruption_before_the_construction_keeps_a_plan(monkeypatch) -> None:
    """Ctrl-C while plans are constructed: they are constructed again, and returned."""
    construct = first_plans.construct_plan
    calls = list[int]()

    def interrupt_once(instance: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return construct(instance)

    monkeypatch.setattr(first_plans, "construct_plan", interrupt_once)
    result = solve_cities(9.0, Recorder())
    assert result.interrupted
    result.solutions[0].plan.check(CITIES)


def test_an_interruption_of_local_search_keeps_its_plan(monkeypatch) -> None:
    """Ctrl-C after the solver has reported a plan: that plan is the result."""
    better = construct_tour(CITIES).order
    better = Tour(tuple(np.roll(better, 1).tolist()))

    def report_and_stop(name, instance, plans, seconds, seed, on_plan) -> None:
        on_plan(better)
        raise KeyboardInterrupt

    monkeypatch.setattr(improvers, "improve_plans", report_and_stop)
    result = solve_cities(9.0, Recorder())
    assert result.interrupted
    assert result.solutions[0].then is not None


# --- regions


def search_three_regions(driver: Any, seed: int) -> Any:
    """Return the plan of the deliveries after three regions, and the plans that were reported."""
    task = HostTask(DOMAINS["cvrp"].problem, [DELIVERY], seed, policy=driver)
    regions = RouteRegions(DELIVERY, construct_routes(DELIVERY))
    reported = list[Any]()
    end = time.monotonic() + 1000.0
    search = RegionSearch(task, regions, end, reported.append)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        search.solve(regions.choose(rng))
    search.report_news()
    assert search.attempts == 3
    return regions.plan, reported


def test_regions_only_improve_a_plan(driver: Any) -> None:
    """A policy that has learnt nothing may find no better plan; the same seed repeats it."""
    plan, reported = search_three_regions(driver, 1)
    plan.check(DELIVERY)
    first = construct_routes(DELIVERY)
    assert plan.cost(DELIVERY) <= first.cost(DELIVERY)
    assert bool(reported) == (plan != Routes(first.routes))
    assert search_three_regions(driver, 1)[0] == plan


@pytest.mark.slow
def test_the_shipped_policy_improves_a_constructed_plan() -> None:
    """Regions alone: `then=None`, and the solution counts them as attempts."""
    (solution,) = rhumbline.solve(DELIVERY, seconds=4, then=None)
    solution.plan.check(DELIVERY)
    assert solution.attempts >= 1
    assert solution.cost <= construct_routes(DELIVERY).cost(DELIVERY)


# --- what is refused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "cmaes"}, "3,000 cities .* leave out the search and its settings"),
        (
            {"then": "lkh", "seconds": 1},
            "lkh takes up to 2,000 nodes, and there are 3,000; use ils",
        ),
    ],
)
def test_what_needs_the_policy_or_a_table_is_refused(options: Any, words: str) -> None:
    """Before any work, with what to do instead."""
    if options.get("then"):
        pytest.importorskip("elkai")
    with pytest.raises(InputError, match=words):
        rhumbline.solve(CITIES, **options)


def test_a_task_needs_the_policy() -> None:
    """`prepare` encodes, which is refused beyond what policies take."""
    with pytest.raises(InputError, match="2,999 customers are more than the policy takes"):
        rhumbline.prepare(DELIVERY)


@pytest.mark.parametrize(
    ("suffix", "head", "rows", "words"),
    [
        (
            "tsp",
            "DIMENSION: 10001\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION",
            ["these are no coordinates"],
            ":1: DIMENSION is 10001, expected 1 to 10000 cities",
        ),
        (
            "vrp",
            "CAPACITY: 9\nDIMENSION: 99999999\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION",
            ["these are no coordinates"],
            ":2: DIMENSION is 99999999, expected 2 to 10001 nodes",
        ),
        (
            "tsp",
            "EDGE_WEIGHT_TYPE: EXPLICIT\nDIMENSION: 2001\nEDGE_WEIGHT_SECTION",
            ["KEY : these are no numbers"],
            ":2: DIMENSION is 2001, and an EXPLICIT matrix may have up to 2000 cities: larger",
        ),
    ],
)
def test_files_beyond_the_limits_are_refused_before_their_sections(
    tmp_path: Path, suffix: str, head: str, rows: list[str], words: str
) -> None:
    """What is wrong in a section is not even read."""
    path = write_file(tmp_path / f"huge.{suffix}", head, rows)
    read = read_tsp if suffix == "tsp" else read_vrp
    with pytest.raises(InputError, match=words):
        read(path)


def test_the_largest_sizes_are_read(tmp_path: Path) -> None:
    """10,000 cities, and a matrix of 2,000 nodes from Python, but not of 2,001."""
    head = "DIMENSION: 10000\nEDGE_WEIGHT_TYPE: CEIL_2D\nNODE_COORD_SECTION"
    path = write_file(tmp_path / "largest.tsp", head, position_rows(10_000))
    assert read_tsp(path).size == 10_000
    assert tsp_from_array(np.zeros((2000, 2000))).size == 2000
    for source in (np.zeros((2001, 2001)), {"distances": [[0.0]] * 2001}):
        with pytest.raises(InputError, match=r"matrix of 2,001 nodes; .* up to 2,000"):
            rhumbline.solve(source)
    with pytest.raises(InputError, match="10,001 customers; 1 to 10,000"):
        cvrp_from_arrays([0.0, 0.0], np.zeros((10_001, 2)), np.ones(10_001), 5)
