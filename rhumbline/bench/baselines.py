"""Classical solvers as methods of a suite, to compare with.

Each solver uses one thread, except CP-SAT with its setting `workers`. Its library is loaded at the
first use.

A solver returns the actions of a plan. For the TSP these are the cities of the tour, for the CVRP
the customers with 0 between routes. For the JSSP they are 0, then the job of each decision.
`Problem.decode` builds the plan from them. The plan checks itself and computes its cost, as for
all other methods.
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
from rhumbline.domains import DOMAINS
from rhumbline.errors import Infeasible, InputError, MissingExtra
from rhumbline.external import cpsat, integer_distances
from rhumbline.external import pyvrp as vrp
from rhumbline.problems import Plan
from rhumbline.problems.cvrp import CVRPInstance, min_vehicles
from rhumbline.problems.cvrp.instance import LIMITS
from rhumbline.problems.jssp import JSSPInstance
from rhumbline.problems.jssp.dispatch_rules import dispatch
from rhumbline.problems.tsp import TSPInstance
from rhumbline.registry import suggest_known

SolverActions = list[int]


@dataclass(frozen=True)
class SolverTask:
    """One instance for a solver, with its budget and settings."""

    instance: Any
    seconds: float | None
    seed: int
    settings: Mapping[str, Any]

    def require_seconds(self) -> float:
        """Return the seconds for a solver that does not end by itself. Raises if there are none."""
        if self.seconds is None:
            raise InputError("this solver needs a budget in seconds, for example seconds = 5")
        return self.seconds

    def setting(self, name: str, default: int) -> int:
        """Return a whole number of the settings."""
        value = self.settings.get(name, default)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or value < 1:
            raise InputError(f"settings.{name} is {value!r}; expected a whole number of at least 1")
        return value


Solve = Callable[[SolverTask], SolverActions]


@dataclass(frozen=True)
class Baseline:
    """A solver: what it solves, what it needs, and which settings it has."""

    title: str
    # By problem
    solvers: Mapping[str, Solve]
    # The distribution that must be installed, and how to install it
    package: str = ""
    install: str = ""
    settings: tuple[str, ...] = ()
    # Whether it takes a budget in seconds
    needs_seconds: bool = True
    # The executable that must be on the path
    program: str = ""

    def require(self) -> None:
        """Raise unless the solver can run here."""
        if self.package and find_spec(self.package) is None:
            raise MissingExtra(f"{self.title} needs {self.package}; get it with: {self.install}")
        if self.program and shutil.which(self.program) is None:
            raise MissingExtra(
                f"{self.title} needs the program '{self.program}' on the path; {self.install}"
            )

    @property
    def versioned_title(self) -> str:
        """The title with the version of the package, if it is installed."""
        if not self.package:
            return self.title
        try:
            return f"{self.title} {version(self.package)}"
        except PackageNotFoundError:
            return self.title

    def check(
        self, method: str, settings: Mapping[str, Any], seconds: float | None, attempts: int | None
    ) -> None:
        """Refuse settings and budgets that the solver does not have."""
        where = f"method '{method}'"
        for name in sorted(settings):
            if name not in self.settings:
                known = suggest_known(name, self.settings)
                raise InputError(f"{where}: unknown setting '{name}' of {self.title}{known}")
        if attempts is not None:
            raise InputError(
                f"{where}: {self.title} does not count attempts; give seconds or its settings"
            )
        if self.needs_seconds and seconds is None:
            raise InputError(f"{where}: {self.title} needs seconds")
        if seconds is not None and not self.needs_seconds:
            raise InputError(f"{where}: {self.title} takes no seconds")

    def solve(self, task: SolverTask) -> Plan:
        """Return a plan that has passed the checker."""
        name = task.instance.problem
        if name not in self.solvers:
            known = ", ".join(self.solvers)
            raise InputError(f"{self.title} solves {known}, but {task.instance.name} is '{name}'")
        actions = self.solvers[name](task)
        plan = DOMAINS[name].problem.decode(task.instance, actions)
        plan.check(task.instance)
        return plan


def nearest_tour(task: SolverTask) -> SolverActions:
    """Return the best nearest-neighbour tour of some starts, each improved by 2-opt."""
    distances = task.instance.distances
    cities = len(distances)
    wanted = task.setting("starts", 1)
    starts = min(wanted, cities)
    tours: list[np.ndarray] = []
    for start in range(starts):
        order = nearest_order(distances, start)
        tour = two_opt(order, distances)
        tours.append(tour)
    best = min(tours, key=lambda tour: tour_length(tour, distances))
    return best.tolist()


def nearest_routes(task: SolverTask) -> SolverActions:
    """Return nearest-neighbour routes, each improved by 2-opt."""
    instance = task.instance
    unserved = set(range(1, instance.size))
    actions = list[int]()
    while unserved:
        route = nearest_route(instance, unserved)
        unserved -= set(route)
        nodes = np.asarray(route)
        order = two_opt(nodes, instance.distances)
        is_depot = order == 0
        depot = np.flatnonzero(is_depot)[0]
        from_depot = np.roll(order, -int(depot))
        _, *customers = from_depot.tolist()
        actions += [*customers, 0]
    return actions


def nearest_route(instance: Any, unserved: set[int]) -> list[int]:
    """Return a route from the depot, always to the nearest unserved customer that fits."""
    route = [0]
    candidates = sorted(unserved)
    free = instance.capacity
    while True:
        candidates = [customer for customer in candidates if instance.demands[customer] <= free]
        if not candidates:
            return route
        last = route[-1]
        distances = instance.distances[last]
        nearest = min(candidates, key=lambda customer: distances[customer])
        route.append(nearest)
        candidates.remove(nearest)
        free -= instance.demands[nearest]


def nearest_order(distances: Float[np.ndarray, "N N"], start: int) -> Int[np.ndarray, "N"]:
    """Return the cities in an order that always continues with the nearest unvisited one."""
    city = start
    order = [city]
    to_unvisited = distances.copy()
    for _ in range(len(distances) - 1):
        to_unvisited[:, city] = np.inf
        city = int(to_unvisited[city].argmin())
        order.append(city)
    return np.asarray(order)


def two_opt(
    tour: Int[np.ndarray, "M"], distances: Float[np.ndarray, "N N"]
) -> Int[np.ndarray, "M"]:
    """Reverse the segment with the largest gain until no segment has a gain, and return the tour.

    A segment from i + 1 to j replaces the edges after i and after j.
    """
    size = len(tour)
    is_above_diagonal = np.triu(np.ones((size, size), dtype=bool), 1)
    while size > 3:
        between = distances[np.ix_(tour, tour)]
        to_next = np.roll(between, -1, axis=1)
        after_next = np.roll(to_next, -1, axis=0)
        edges = np.diagonal(to_next)
        gain = edges[:, None] + edges[None] - between - after_next
        usable_gain = np.where(is_above_diagonal, gain, 0.0)
        best = int(usable_gain.argmax())
        i, j = divmod(best, size)
        if gain[i, j] <= 1e-9 or i == j:
            break
        first = i + 1
        end = j + 1
        reversed_segment = tour[first:end][::-1]
        tour = np.concatenate([tour[:first], reversed_segment, tour[end:]])
    return tour


def tour_length(tour: Int[np.ndarray, "M"], distances: Float[np.ndarray, "N N"]) -> float:
    """Return the length of a closed tour."""
    successors = np.roll(tour, -1)
    lengths = distances[tour, successors]
    return float(lengths.sum())


def lkh(task: SolverTask) -> SolverActions:
    """Solve a TSP with LKH through elkai. LKH has no clock, its budget is the number of runs."""
    import elkai  # pyright: ignore[reportMissingImports]

    if task.instance.size <= 3:
        return list(range(task.instance.size))
    distances = integer_distances(task.instance)
    matrix = elkai.DistanceMatrix(distances.tolist())
    closed_tour = matrix.solve_tsp(runs=task.setting("runs", 10))
    return [int(city) for city in closed_tour[:-1]]


def hgs(task: SolverTask) -> SolverActions:
    """Solve a CVRP with HGS-CVRP through hygese. Its clock counts CPU seconds of the process."""
    import hygese  # pyright: ignore[reportMissingImports]

    instance = task.instance
    parameters = hygese.AlgorithmParameters(
        timeLimit=task.require_seconds(), nbIter=10**9, seed=task.seed
    )
    x, y = instance.planar_xy.T
    data = {
        "distance_matrix": instance.distances,
        "x_coordinates": x - x.min(),
        "y_coordinates": y - y.min(),
        "demands": list(instance.demands),
        "vehicle_capacity": instance.capacity,
    }
    if instance.vehicles:
        data["num_vehicles"] = instance.vehicles
    solver = hygese.Solver(parameters, verbose=False)
    solution = solver.solve_cvrp(data, rounding=False)
    return join_routes(solution.routes)


def pyvrp_tour(task: SolverTask) -> SolverActions:
    """Solve a TSP with PyVRP, as one vehicle without a load whose depot is city 0."""
    routes = pyvrp_routes(task, tour=True)
    return join_tour(routes)


def pyvrp_cvrp(task: SolverTask) -> SolverActions:
    """Solve a CVRP with PyVRP."""
    routes = pyvrp_routes(task, tour=False)
    return join_routes(routes)


def pyvrp_routes(task: SolverTask, *, tour: bool) -> list[list[int]]:
    """Return routes of clients from PyVRP's iterated local search, which ends by the clock."""
    instance = task.instance
    if instance.size < 2:
        return []
    seconds = task.require_seconds()
    vehicles = 1 if tour else vehicles_to_offer(instance)
    data = vrp.make_data(instance, vehicles, tour)
    routes = vrp.solve_routes(data, seconds, task.seed)
    if routes is None:
        found_nothing = "PyVRP found no plan that obeys the rules"
        raise Infeasible(f"{instance.name}: {found_nothing} in {seconds:g} s")
    return routes


def ortools_tour(task: SolverTask) -> SolverActions:
    """Solve a TSP with OR-Tools routing and one vehicle."""
    routes = ortools_routes(task, None)
    return join_tour(routes)


def ortools_cvrp(task: SolverTask) -> SolverActions:
    """Solve a CVRP with OR-Tools routing."""
    demands = task.instance.demands
    return join_routes(ortools_routes(task, demands))


def ortools_routes(task: SolverTask, demands: Sequence[int] | None) -> list[list[int]]:
    """Return routes from OR-Tools' guided local search, which ends only by the clock."""
    from ortools.constraint_solver import pywrapcp, routing_enums_pb2  # pyright: ignore[reportMissingImports]

    instance = task.instance
    vehicles = 1 if demands is None else vehicles_to_offer(instance)
    manager = pywrapcp.RoutingIndexManager(instance.size, vehicles, 0)
    model = pywrapcp.RoutingModel(manager)
    distances = integer_distances(instance)
    transit = model.RegisterTransitMatrix(distances.tolist())
    model.SetArcCostEvaluatorOfAllVehicles(transit)
    if demands is not None:
        load = model.RegisterUnaryTransitVector(list(demands))
        capacities = [instance.capacity] * vehicles
        model.AddDimensionWithVehicleCapacity(load, 0, capacities, True, "load")
    parameters = pywrapcp.DefaultRoutingSearchParameters()
    heuristic = routing_enums_pb2.LocalSearchMetaheuristic.GUIDED_LOCAL_SEARCH
    parameters.local_search_metaheuristic = heuristic
    seconds = task.require_seconds()
    parameters.time_limit.FromMilliseconds(max(1, round(1000 * seconds)))
    solution = model.SolveWithParameters(parameters)
    if not solution:
        raise Infeasible(f"{instance.name}: OR-Tools found no plan in {seconds:g} s")
    return [ortools_route(model, manager, solution, vehicle) for vehicle in range(vehicles)]


def ortools_route(model: Any, manager: Any, solution: Any, vehicle: int) -> list[int]:
    """Return the customers of one vehicle."""
    route = list[int]()
    index = solution.Value(model.NextVar(model.Start(vehicle)))
    while not model.IsEnd(index):
        route.append(int(manager.IndexToNode(index)))
        index = solution.Value(model.NextVar(index))
    return route


def cpsat_jobs(task: SolverTask) -> SolverActions:
    """Solve a JSSP with CP-SAT of OR-Tools, without an initial plan. One worker by default."""
    instance = task.instance
    seconds = task.require_seconds()
    model, starts = cpsat.build_model(instance)
    workers = task.setting("workers", 1)
    solver = cpsat.make_solver(seconds, task.seed, workers)
    if not cpsat.run_solver(solver, model):
        raise Infeasible(f"{instance.name}: CP-SAT found no schedule in {seconds:g} s")
    schedule = cpsat.solver_schedule(solver, starts)
    return jobs_by_start(schedule.starts, instance.durations)


def jobs_by_start(
    starts: Sequence[Sequence[int]], durations: Sequence[Sequence[int]]
) -> SolverActions:
    """Return 0, then jobs in the order in which their operations start.

    Of operations that start at one time, those that take no time come first.
    """
    operations: list[tuple[int, int, int, int]] = []
    for job, job_starts in enumerate(starts):
        for step, start in enumerate(job_starts):
            duration = durations[job][step]
            end = start + duration
            operations.append((start, end, step, job))
    operations.sort(key=lambda operation: operation[:3])
    jobs = [job for _, _, _, job in operations]
    return [0, *jobs]


def dispatching_baseline(rule: str) -> Baseline:
    """Return a dispatching rule as a baseline."""

    def solve(task: SolverTask) -> SolverActions:
        schedule = dispatch(task.instance, rule)
        return jobs_by_start(schedule.starts, task.instance.durations)

    return Baseline(
        f"dispatching rule {rule.upper()}", {JSSPInstance.problem: solve}, needs_seconds=False
    )


def concorde(task: SolverTask) -> SolverActions:
    """Solve a TSP with Concorde's branch and cut, if the user has built it.

    On whole-number distances Concorde proves the optimum.
    """
    if task.instance.size < 5:
        return nearest_tour(task)
    distances = integer_distances(task.instance)
    command = ["concorde", "-x", "-s", str(task.seed), "-o", "tour.sol", "problem.tsp"]
    with tempfile.TemporaryDirectory() as folder:
        problem_file = Path(folder, "problem.tsp")
        tour_file = Path(folder, "tour.sol")
        problem_file.write_text(tsplib_matrix(distances))
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if not tour_file.exists():
            output = (done.stderr or done.stdout).strip()
            last_line = output.splitlines()[-1] if output else "nothing"
            name = task.instance.name
            raise Infeasible(f"{name}: concorde wrote no tour (it said: {last_line})")
        _, *cities = tour_file.read_text().split()
    return [int(city) for city in cities]


def tsplib_matrix(matrix: Int[np.ndarray, "N N"]) -> str:
    """Return a matrix as a TSPLIB file."""
    lines = [
        "NAME: problem",
        "TYPE: TSP",
        f"DIMENSION: {len(matrix)}",
        "EDGE_WEIGHT_TYPE: EXPLICIT",
        "EDGE_WEIGHT_FORMAT: FULL_MATRIX",
        "EDGE_WEIGHT_SECTION",
    ]
    for row in matrix.tolist():
        lines.append(" ".join(map(str, row)))
    lines.append("EOF")
    return "\n".join(lines) + "\n"


def vehicles_to_offer(instance: Any) -> int:
    """Return the number of allowed vehicles, or more than enough if there is no limit."""
    if instance.vehicles:
        return instance.vehicles
    needed = min_vehicles(instance.demands, instance.capacity)
    return needed + LIMITS.extra_vehicles


def join_routes(routes: Sequence[Sequence[int]]) -> SolverActions:
    """Return the customers of all routes, with the depot after each route."""
    actions = list[int]()
    for route in routes:
        if len(route):
            actions += [int(customer) for customer in route]
            actions.append(0)
    return actions


def join_tour(routes: Sequence[Sequence[int]]) -> SolverActions:
    """Return city 0 and the other cities of a tour that consists of one route."""
    tour = [0]
    for route in routes:
        tour += route
    return tour


def extra_command(extra: str) -> str:
    """Return the command that installs an extra of rhumbline."""
    return f"pip install 'rhumbline[{extra}]'"


BASELINES: dict[str, Baseline] = {
    "nearest": Baseline(
        f"nearest neighbour + 2-opt (rhumbline {__version__})",
        {TSPInstance.problem: nearest_tour, CVRPInstance.problem: nearest_routes},
        settings=("starts",),
        needs_seconds=False,
    ),
    "lkh": Baseline(
        "LKH (elkai; research and non-profit use only)",
        {TSPInstance.problem: lkh},
        package="elkai",
        install=extra_command("lkh"),
        settings=("runs",),
        needs_seconds=False,
    ),
    "hgs": Baseline(
        "HGS-CVRP (hygese)",
        {CVRPInstance.problem: hgs},
        package="hygese",
        install=extra_command("hgs"),
    ),
    "pyvrp": Baseline(
        "PyVRP",
        {TSPInstance.problem: pyvrp_tour, CVRPInstance.problem: pyvrp_cvrp},
        package="pyvrp",
        install=extra_command("solvers"),
    ),
    "ortools": Baseline(
        "OR-Tools routing",
        {TSPInstance.problem: ortools_tour, CVRPInstance.problem: ortools_cvrp},
        package="ortools",
        install=extra_command("solvers"),
    ),
    "cpsat": Baseline(
        "OR-Tools CP-SAT",
        {JSSPInstance.problem: cpsat_jobs},
        package="ortools",
        install=extra_command("solvers"),
        settings=("workers",),
    ),
    "concorde": Baseline(
        "Concorde",
        {TSPInstance.problem: concorde},
        install="build it from its authors' pages (academic use)",
        needs_seconds=False,
        program="concorde",
    ),
    **{rule: dispatching_baseline(rule) for rule in ("spt", "mwkr", "mopnr", "fifo")},
}
