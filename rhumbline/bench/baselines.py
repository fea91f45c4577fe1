"""Classical solvers as methods of a suite: what to beat. Each uses one thread; libraries are loaded
when first used.

A solver returns an action sequence as our problems write them (TSP: cities; CVRP: customers with 0
between routes; JSSP: 0, then the job of each decision), so that `Problem.decode` builds the plan,
and the plan's own checker and metric judge it.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from rhumbline import __version__
from rhumbline.errors import Infeasible, InputError, MissingExtra
from rhumbline.external import cpsat, integer_distances
from rhumbline.external import pyvrp as vrp
from rhumbline.problems import PROBLEMS, Plan
from rhumbline.problems.cvrp import min_vehicles
from rhumbline.problems.cvrp.instance import MORE_VEHICLES
from rhumbline.problems.jssp.dispatch_rules import dispatch

SolverActions = list[int]
LARGEST_SCALED_DISTANCE = (
    1_000_000  # scaled distances: LKH multiplies by 100 in 32 bits and aborts the process beyond
)


@dataclass(frozen=True)
class SolverTask:
    """One instance for a solver, with its budget."""

    instance: Any
    seconds: float | None
    seed: int
    settings: Mapping[str, Any]

    def limit(self) -> float:
        """The seconds, for a solver that would not end by itself."""
        if self.seconds is None:
            raise InputError("this solver needs a budget in seconds, for example seconds = 5")
        return self.seconds

    def setting(self, name: str, usual: int) -> int:
        """A whole number of the settings."""
        value = self.settings.get(name, usual)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"settings.{name} is {value!r}; expected a whole number of at least 1")
        return value


@dataclass(frozen=True)
class Baseline:
    """A solver: what it solves, what it needs, and how it is called."""

    title: str
    solvers: Mapping[str, Callable[[SolverTask], SolverActions]]  # by problem
    package: str = ""  # distribution that must be installed
    install: str = ""  # how to get it
    settings: tuple[str, ...] = ()
    needs_seconds: bool = True  # whether it takes a budget in seconds
    program: str = ""  # executable that must be on the path

    def require(self) -> None:
        """Raise unless it can run here."""
        if self.package and find_spec(self.package) is None:
            raise MissingExtra(f"{self.title} needs {self.package}; get it with: {self.install}")
        if self.program and shutil.which(self.program) is None:
            raise MissingExtra(
                f"{self.title} needs the program '{self.program}' on the path; {self.install}"
            )

    @property
    def versioned_title(self) -> str:
        """Name and version."""
        try:
            return f"{self.title} {version(self.package)}" if self.package else self.title
        except PackageNotFoundError:
            return self.title

    def check(
        self, method: str, settings: Mapping[str, Any], seconds: float | None, attempts: int | None
    ) -> None:
        """Refuse settings and budgets that it does not have."""
        strange = sorted(set(settings) - set(self.settings))
        if strange:
            known = ", ".join(self.settings) or "none"
            raise InputError(
                f"method '{method}': unknown setting '{strange[0]}' of {self.title}; known: {known}"
            )
        if attempts is not None:
            raise InputError(
                f"method '{method}': {self.title} does not count attempts; give seconds or its settings"
            )
        if self.needs_seconds != (seconds is not None):
            raise InputError(
                f"method '{method}': {self.title} {'needs' if self.needs_seconds else 'takes no'} seconds"
            )

    def solve(self, work: SolverTask) -> Plan:
        """A plan that has passed the checker."""
        problem = PROBLEMS[work.instance.problem]
        plan = problem.decode(work.instance, self.solvers[work.instance.problem](work))
        plan.check(work.instance)
        return plan


def nearest_tour(work: SolverTask) -> SolverActions:
    """Nearest neighbour from each of some starts, improved by 2-opt; the best tour."""
    distances = work.instance.distances
    starts = range(min(work.setting("starts", 1), len(distances)))
    tours = [two_opt(nearest_order(distances, start), distances) for start in starts]
    return min(tours, key=lambda tour: tour_length(tour, distances)).tolist()


def nearest_routes(work: SolverTask) -> SolverActions:
    """Vehicles that drive to the nearest customer who fits, each route improved by 2-opt."""
    instance = work.instance
    actions = list[int]()
    waiting = set(range(1, instance.size))
    while waiting:
        route = [0]
        left = instance.capacity
        while fitting := [c for c in sorted(waiting) if instance.demands[c] <= left]:
            route.append(min(fitting, key=lambda c: instance.distances[route[-1], c]))
            left -= instance.demands[route[-1]]
            waiting.remove(route[-1])
        order = two_opt(np.asarray(route), instance.distances)
        actions += [*np.roll(order, -int(np.flatnonzero(order == 0)[0]))[1:].tolist(), 0]
    return actions


def nearest_order(distances: Float[np.ndarray, "N N"], start: int) -> Int[np.ndarray, "N"]:
    """Cities in the order in which somebody meets them who always goes to the nearest new one."""
    order = [start]
    far = distances.copy()
    for _ in range(len(distances) - 1):
        far[:, order[-1]] = np.inf
        order.append(int(far[order[-1]].argmin()))
    return np.asarray(order)


def two_opt(
    tour: Int[np.ndarray, "M"], distances: Float[np.ndarray, "N N"]
) -> Int[np.ndarray, "M"]:
    """The tour after reversing the segment that gains most, again and again until none gains."""
    size = len(tour)
    upper = np.triu(np.ones((size, size), dtype=bool), 1)
    while size > 3:
        between = distances[np.ix_(tour, tour)]
        edge = np.diagonal(np.roll(between, -1, axis=1))
        gain = edge[:, None] + edge[None] - between - np.roll(between, (-1, -1), axis=(0, 1))
        i, j = divmod(int(np.where(upper, gain, 0.0).argmax()), size)
        if gain[i, j] <= 1e-9 or i == j:
            break
        tour = np.concatenate([tour[: i + 1], tour[i + 1 : j + 1][::-1], tour[j + 1 :]])
    return tour


def tour_length(tour: Int[np.ndarray, "M"], distances: Float[np.ndarray, "N N"]) -> float:
    """Of the closed tour."""
    return float(distances[tour, np.roll(tour, -1)].sum())


def lkh(work: SolverTask) -> SolverActions:
    """LKH as elkai binds it; it has no clock, its budget is the number of runs."""
    import elkai  # pyright: ignore[reportMissingImports]

    if work.instance.size <= 3:
        return list(range(work.instance.size))
    matrix = integer_distances(work.instance, LARGEST_SCALED_DISTANCE).tolist()
    return [
        int(city)
        for city in elkai.DistanceMatrix(matrix).solve_tsp(runs=work.setting("runs", 10))[:-1]
    ]


def hgs(work: SolverTask) -> SolverActions:
    """HGS-CVRP as hygese binds it; its clock counts CPU seconds of the process."""
    import hygese  # pyright: ignore[reportMissingImports]

    instance = work.instance
    parameters = hygese.AlgorithmParameters(timeLimit=work.limit(), nbIter=10**9, seed=work.seed)
    data = {
        "distance_matrix": instance.distances,
        "x_coordinates": instance.planar_xy[:, 0] - instance.planar_xy[:, 0].min(),
        "y_coordinates": instance.planar_xy[:, 1] - instance.planar_xy[:, 1].min(),
        "demands": list(instance.demands),
        "vehicle_capacity": instance.capacity,
    } | ({"num_vehicles": instance.vehicles} if instance.vehicles else {})
    found = hygese.Solver(parameters, verbose=False).solve_cvrp(data, rounding=False)
    return join_routes(found.routes)


def pyvrp_tour(work: SolverTask) -> SolverActions:
    """PyVRP with one vehicle and no loads; city 0 is its depot."""
    return [0, *(city for route in pyvrp_routes(work, tour=True) for city in route)]


def pyvrp_cvrp(work: SolverTask) -> SolverActions:
    """PyVRP."""
    return join_routes(pyvrp_routes(work, tour=False))


def pyvrp_routes(work: SolverTask, *, tour: bool) -> list[list[int]]:
    """Routes of clients, from an iterated local search that ends by the clock."""
    instance = work.instance
    if instance.size < 2:
        return []
    data = vrp.make_data(instance, 1 if tour else vehicles_to_offer(instance), tour)
    routes = vrp.solve_routes(data, work.limit(), work.seed)
    if routes is None:
        raise Infeasible(
            f"{instance.name}: PyVRP found no plan that obeys the rules in {work.limit():g} s"
        )
    return routes


def ortools_tour(work: SolverTask) -> SolverActions:
    """OR-Tools routing with one vehicle."""
    return [0, *(city for route in ortools_routes(work, None) for city in route)]


def ortools_cvrp(work: SolverTask) -> SolverActions:
    """OR-Tools routing."""
    return join_routes(ortools_routes(work, work.instance.demands))


def ortools_routes(work: SolverTask, demands: Sequence[int] | None) -> list[list[int]]:
    """Routes by guided local search, which ends only by the clock."""
    from ortools.constraint_solver import pywrapcp, routing_enums_pb2  # pyright: ignore[reportMissingImports]

    instance = work.instance
    vehicles = 1 if demands is None else vehicles_to_offer(instance)
    manager = pywrapcp.RoutingIndexManager(instance.size, vehicles, 0)
    model = pywrapcp.RoutingModel(manager)
    model.SetArcCostEvaluatorOfAllVehicles(
        model.RegisterTransitMatrix(integer_distances(instance, LARGEST_SCALED_DISTANCE).tolist())
    )
    if demands is not None:
        load = model.RegisterUnaryTransitVector(list(demands))
        model.AddDimensionWithVehicleCapacity(load, 0, [instance.capacity] * vehicles, True, "load")
    parameters = pywrapcp.DefaultRoutingSearchParameters()
    heuristic = routing_enums_pb2.LocalSearchMetaheuristic.GUIDED_LOCAL_SEARCH
    parameters.local_search_metaheuristic = heuristic
    parameters.time_limit.FromMilliseconds(max(1, round(1000 * work.limit())))
    found = model.SolveWithParameters(parameters)
    if not found:
        raise Infeasible(f"{instance.name}: OR-Tools found no plan in {work.limit():g} s")
    return [ortools_route(model, manager, found, vehicle) for vehicle in range(vehicles)]


def ortools_route(model: Any, manager: Any, found: Any, vehicle: int) -> list[int]:
    """The customers of one vehicle."""
    route = list[int]()
    index = found.Value(model.NextVar(model.Start(vehicle)))
    while not model.IsEnd(index):
        route.append(int(manager.IndexToNode(index)))
        index = found.Value(model.NextVar(index))
    return route


def cpsat_jobs(work: SolverTask) -> SolverActions:
    """CP-SAT of OR-Tools with one worker and no plan to start from."""
    model, starts = cpsat.build_model(work.instance)
    solver = cpsat.make_solver(work.limit(), work.seed, workers=1)
    if not cpsat.run_solver(solver, model):
        raise Infeasible(f"{work.instance.name}: CP-SAT found no schedule in {work.limit():g} s")
    return jobs_by_start(cpsat.solver_schedule(solver, starts).starts, work.instance.durations)


def jobs_by_start(
    starts: Sequence[Sequence[int]], durations: Sequence[Sequence[int]]
) -> SolverActions:
    """Jobs in the order in which their operations start; operations that take no time come
    first.
    """
    cells = [
        (s, s + d, job, step)
        for job, row in enumerate(starts)
        for step, (s, d) in enumerate(zip(row, durations[job], strict=True))
    ]
    return [
        0,
        *(job for _, _, job, _ in sorted(cells, key=lambda cell: (cell[0], cell[1], cell[3]))),
    ]


def dispatching_solver(rule: str) -> Callable[[SolverTask], SolverActions]:
    """A dispatching rule as a solver."""
    return lambda work: jobs_by_start(dispatch(work.instance, rule).starts, work.instance.durations)


def concorde(work: SolverTask) -> SolverActions:
    """Concorde's branch and cut, if the user has built it; on whole-number distances it proves
    the optimum.
    """
    if work.instance.size < 5:
        return nearest_tour(work)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "problem.tsp").write_text(
            tsplib_matrix(integer_distances(work.instance, LARGEST_SCALED_DISTANCE))
        )
        command = ["concorde", "-x", "-s", str(work.seed), "-o", "tour.sol", "problem.tsp"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if not (place / "tour.sol").exists():
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
            raise Infeasible(f"{work.instance.name}: concorde wrote no tour (it said: {said[0]})")
        return [int(word) for word in (place / "tour.sol").read_text().split()[1:]]


def tsplib_matrix(matrix: Int[np.ndarray, "N N"]) -> str:
    """A TSPLIB file of a matrix."""
    head = [
        "NAME: problem",
        "TYPE: TSP",
        f"DIMENSION: {len(matrix)}",
        "EDGE_WEIGHT_TYPE: EXPLICIT",
        "EDGE_WEIGHT_FORMAT: FULL_MATRIX",
        "EDGE_WEIGHT_SECTION",
    ]
    return "\n".join([*head, *(" ".join(map(str, row)) for row in matrix.tolist()), "EOF", ""])


def vehicles_to_offer(instance: Any) -> int:
    """Vehicles to offer: those allowed, or more than enough."""
    return instance.vehicles or min_vehicles(instance.demands, instance.capacity) + MORE_VEHICLES


def join_routes(routes: Sequence[Sequence[int]]) -> SolverActions:
    """Routes with the depot after each."""
    return [int(node) for route in routes if len(route) for node in (*route, 0)]


INSTALL_COMMAND = "pip install 'rhumbline[{}]'"
BASELINES: dict[str, Baseline] = {
    "nearest": Baseline(
        f"nearest neighbour + 2-opt (rhumbline {__version__})",
        {"tsp": nearest_tour, "cvrp": nearest_routes},
        settings=("starts",),
        needs_seconds=False,
    ),
    "lkh": Baseline(
        "LKH (elkai; research and non-profit use only)",
        {"tsp": lkh},
        "elkai",
        INSTALL_COMMAND.format("lkh"),
        ("runs",),
        needs_seconds=False,
    ),
    "hgs": Baseline("HGS-CVRP (hygese)", {"cvrp": hgs}, "hygese", INSTALL_COMMAND.format("hgs")),
    "pyvrp": Baseline(
        "PyVRP", {"tsp": pyvrp_tour, "cvrp": pyvrp_cvrp}, "pyvrp", INSTALL_COMMAND.format("solvers")
    ),
    "ortools": Baseline(
        "OR-Tools routing",
        {"tsp": ortools_tour, "cvrp": ortools_cvrp},
        "ortools",
        INSTALL_COMMAND.format("solvers"),
    ),
    "cpsat": Baseline(
        "OR-Tools CP-SAT", {"jssp": cpsat_jobs}, "ortools", INSTALL_COMMAND.format("solvers")
    ),
    "concorde": Baseline(
        "Concorde",
        {"tsp": concorde},
        install="build it from its authors' pages (academic use)",
        needs_seconds=False,
        program="concorde",
    ),
    **{
        name: Baseline(
            f"dispatching rule {name.upper()}",
            {"jssp": dispatching_solver(name)},
            needs_seconds=False,
        )
        for name in ("spt", "mwkr", "mopnr", "fifo")
    },
}
