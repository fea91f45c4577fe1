"""One call from files or arrays to verified solutions."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import rhumbline
from rhumbline import checkpoint, kernels, pipeline
from rhumbline.api import solve
from rhumbline.decoding import ENGINES
from rhumbline.errors import CheckpointError, InputError, MissingExtra
from rhumbline.formats.tsplib import read_tsp
from rhumbline.inputs import instances_from
from rhumbline.pipeline import group_instances
from rhumbline.problems.tsp import Tour, TSPInstance
from rhumbline.search import driver
from rhumbline.search.driver import Budget
from rhumbline.search.strategies.eas import EASLay
from rhumbline.search.strategies.greedy_sampling import Greedy, Sampling
from rhumbline.search.task import make
from rhumbline.search.task import task as tasks

RNG = np.random.default_rng(0)
XY = RNG.random((3, 6, 2))
MATRIX = np.abs(RNG.integers(1, 50, (5, 5)))
MATRIX = (MATRIX + MATRIX.T) * (1 - np.eye(5, dtype=int))


def limit_group_numbers(monkeypatch, numbers: int) -> None:
    tuning = replace(pipeline.TUNING, max_group_numbers=numbers)
    monkeypatch.setattr(pipeline, "TUNING", tuning)


def write_file(path: Path, xy: np.ndarray) -> Path:
    rows = "\n".join(f"{i} {x} {y}" for i, (x, y) in enumerate(xy, 1))
    head = (
        f"NAME: {path.stem}\nTYPE: TSP\nDIMENSION: {len(xy)}\n"
        "EDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n"
    )
    path.write_text(f"{head}{rows}\nEOF\n")
    return path


def files(folder: Path, count: int, size: int) -> list[Path]:
    rng = np.random.default_rng(size)
    return [
        write_file(folder / f"file-{i}.tsp", rng.integers(0, 1000, (size, 2))) for i in range(count)
    ]


def random_tsp(*sizes: int) -> list[TSPInstance]:
    """Return a random instance of each size."""
    instances: list[TSPInstance] = []
    for size in sizes:
        xy = np.random.default_rng(size).random((size, 2))
        instances.append(TSPInstance(str(size), "EUC_2D", xy=xy))
    return instances


def test_a_batch_of_coordinates(policy) -> None:
    """[B, N, 2] gives B solutions in order, each a tour of its own instance."""
    solutions = solve(XY, policy=policy, attempts=16)
    assert [s.instance.name for s in solutions] == ["array-1", "array-2", "array-3"]
    for xy, solution in zip(XY, solutions, strict=True):
        order = np.array(solution.plan.order)
        assert sorted(order) == list(range(6))
        path = xy[order]
        assert solution.cost == pytest.approx(
            np.linalg.norm(path - np.roll(path, -1, 0), axis=1).sum()
        )


def test_a_matrix(policy) -> None:
    """[N, N] is a matrix of distances; the cost is a whole number of its units."""
    (solution,) = solve(MATRIX, policy=policy, attempts=16)
    order = np.array(solution.plan.order)
    assert solution.cost == MATRIX[order, np.roll(order, -1)].sum()
    assert isinstance(solution.cost, int)


def test_a_mixed_list_keeps_its_order(policy, tmp_path: Path) -> None:
    """Paths, arrays, matrices and instances of several sizes come back in the order given."""
    paths = files(tmp_path, 2, 6)
    mine = TSPInstance("mine", "EXACT_2D", xy=RNG.random((4, 2)))
    source = [XY[0], paths[0], MATRIX, str(paths[1]), mine, XY[:2]]
    solutions = solve(source, policy=policy, strategy=Sampling(), attempts=4)
    assert [s.instance.size for s in solutions] == [6, 6, 5, 6, 4, 6, 6]
    assert [s.instance.name for s in solutions] == [
        "array",
        "file-0",
        "array",
        "file-1",
        "mine",
        "array-1",
        "array-2",
    ]
    for solution in solutions:
        solution.plan.check(solution.instance)


def test_groups_have_one_shape(monkeypatch) -> None:
    """Instances are grouped by size and kind of metric, in order of appearance; groups stay within
    memory.
    """
    exact = instances_from(XY)
    rounded = [TSPInstance("r", "EUC_2D", xy=XY[0])]
    small = [TSPInstance("s", "EXACT_2D", xy=np.zeros((2, 2)))]
    mixed = [exact[0], small[0], rounded[0], exact[1], exact[2]]
    assert [g.places for g in group_instances(mixed)] == [(0, 3, 4), (1,), (2,)]
    assert group_instances(mixed)[0].instances == tuple(exact)
    limit_group_numbers(monkeypatch, 2 * 16 * 6 * 6)
    assert [g.places for g in group_instances(mixed)] == [(0,), (3, 4), (1,), (2,)]
    many = [len(g.places) for g in group_instances(exact * 7)]  # 21 of them, two at a time
    assert (sum(many), len(many), set(many)) == (21, 11, {1, 2})
    limit_group_numbers(monkeypatch, 10 * 16 * 6 * 6)
    assert [len(g.places) for g in group_instances(exact * 7)] == [7, 7, 7]  # and not 10, 10 and 1


@pytest.mark.parametrize("strategy", [None, Sampling()], ids=["default", "sampling"])
def test_files_together_cost_what_they_cost_alone(policy, tmp_path: Path, strategy) -> None:
    """Three files of equal size get the same costs in one call and in three."""
    paths = files(tmp_path, 3, 9)
    together = solve(paths, policy=policy, strategy=strategy, attempts=48)
    alone = [solve(p, policy=policy, strategy=strategy, attempts=48)[0] for p in paths]
    assert [s.cost for s in together] == [s.cost for s in alone]
    for path, solution in zip(paths, together, strict=True):
        assert Tour(solution.plan.order).cost(read_tsp(path)) == solution.cost


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Budget(1600, 30.0)),
        ({"attempts": 5}, Budget(5, None)),
        ({"seconds": 2.0}, Budget(None, 2.0)),
        ({"attempts": 5, "seconds": 2.0}, Budget(5, 2.0)),
    ],
)
def test_budgets(policy, monkeypatch, given, expected: Budget) -> None:
    """The default budget is 1600 attempts or 30 seconds; a given budget replaces both."""
    seen = []

    def fake(strategy, task, budget, watch, finish, warm):
        seen.append(budget)
        return driver.search(strategy, task, Budget(1), watch)

    monkeypatch.setattr(pipeline, "solve_task", fake)
    solve(XY[0], policy=policy, **given)
    assert seen == [expected]


@pytest.mark.parametrize(
    "given", [{"attempts": 0}, {"seconds": 0.0}, {"attempts": 0, "seconds": 0.0}]
)
def test_a_budget_of_nothing_is_refused(policy, monkeypatch, given) -> None:
    """Zero attempts or seconds are an error, not the default budget."""
    monkeypatch.setattr(pipeline, "DEFAULT_BUDGET", Budget(1))
    with pytest.raises(InputError, match="must be"):
        solve(XY[0], policy=policy, **given)


def test_gap(policy) -> None:
    """The gap is the fraction by which the cost exceeds the best known one."""
    square = np.array([[0.0, 0], [0, 1], [1, 1], [1, 0]])
    known = TSPInstance("square", "EXACT_2D", xy=square, best_known=3.2)
    (solution,) = solve(known, policy=policy, strategy=Sampling(), attempts=32)
    assert solution.cost == pytest.approx(4.0)
    assert solution.gap == pytest.approx(0.25)
    assert solve(square, policy=policy, attempts=1)[0].gap is None


def test_devices(policy) -> None:
    """An unknown or missing device is an error with the choices; auto is the CPU without a GPU."""
    with pytest.raises(InputError, match=r"device 'tpu' is not known .*; known: auto, cpu, cuda"):
        solve(XY[0], policy=policy, attempts=1, device="tpu")
    if not torch.cuda.is_available():
        assert pipeline.find_device("auto") == torch.device("cpu")
        with pytest.raises(MissingExtra, match="no NVIDIA GPU; use --device cpu"):
            solve(XY[0], policy=policy, attempts=1, device="cuda")


def test_policies_from_files(policy, tmp_path: Path) -> None:
    """A path to a checkpoint gives the same results as the policy itself; a missing one is an
    error.
    """
    path = tmp_path / "mine.safetensors"
    checkpoint.save(path, policy, checkpoint.TrainingFacts("tsp", 6))
    costs = [[s.cost for s in solve(XY, policy=p, attempts=16)] for p in (policy, path, str(path))]
    assert costs[0] == costs[1] == costs[2]
    with pytest.raises(CheckpointError, match="no checkpoint 'nowhere'"):
        solve(XY, policy="nowhere", attempts=1)


def test_interruption_returns_the_groups_so_far(policy, monkeypatch) -> None:
    """Ctrl-C in the second group returns the first group's solutions and the best ones of the
    second so far.
    """
    real, sizes = tasks.Task._try, []

    def interrupted(task, latents, temperature):
        sizes.append(task.starts.shape[1])
        if sizes.count(4) == 2:
            raise KeyboardInterrupt
        return real(task, latents, temperature)

    monkeypatch.setattr(tasks.Task, "_try", interrupted)
    source = [XY[0], RNG.random((4, 2)), RNG.random((3, 2))]
    solutions = solve(source, policy=policy, strategy=Sampling(population=2), attempts=6)
    assert [(s.instance.size, s.attempts) for s in solutions] == [(6, 6), (4, 2)]


def test_seeds_and_watching(policy) -> None:
    """The same seed repeats a solution and its trace; `watch` sees every step of every group."""
    seen = []
    big = RNG.random((14, 2))
    one, two = (
        solve(big, policy=policy, strategy=Sampling(), attempts=40, seed=3, watch=seen.append)[0]
        for _ in range(2)
    )
    assert one.plan == two.plan
    assert [t[2] for t in one.trace] == [t[2] for t in two.trace]
    assert [p.attempts for p in seen] == [16, 32, 40] * 2
    greedy = solve(big, policy=policy, strategy=Greedy(), then=None)[0]
    assert (greedy.attempts, len(greedy.trace)) == (1, 1)


WRONG = {
    "attempts=1.5": "attempts must be a whole number, not 1.5",
    "attempts='5'": "attempts must be a whole number, not '5'",
    "seconds='5'": "seconds must be a number, not '5'",
    "strategy=rhumbline.CMAES": "expected a name such as 'cmaes' or an object such as CMAES()",
    "strategy=3": "strategy is 3; expected a name",
    "policy=5": "the policy is int; expected a name, a path or a policy",
    "policy=rhumbline.CMAES()": "the policy is CMAES; expected a name, a path or a policy",
    "seed='a'": "seed is 'a', expected a whole number",
    "augment=2.5": "augment is 2.5, expected a whole number",
    "threads=0": "threads is 0, expected 1 or more",
    "threads='2'": "threads is '2', expected a whole number",
    "capacity='5'": "capacity is '5', expected a number",
    "capacity=float('nan')": "capacity is nan, expected a number above 0",
    "capacity=5": "a capacity is for vehicle routing, this is 'tsp'",
}
# Calls of `stream`, by what is wrong with them.
STREAMS = {
    "'cmaes', 'a.tsp', 5": "the task is str; expected a task, such as rhumbline.prepare(",
    "'cmaes', task, 5": "the budget is int; expected a budget, such as rhumbline.Budget(seconds=5)",
    "'cmaess', task, budget": "'cmaess' is not known (did you mean 'cmaes'?)",
    "None, task, budget": "strategy is None; expected a name such as 'cmaes' or an object",
}
REFUSALS = """
import json, rhumbline
messages = {}
points = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
task = rhumbline.prepare([points], device="cpu")
budget = rhumbline.Budget(attempts=1)
for options in %r:
    try:
        if "task" in options or "tsp" in options:
            eval(f"rhumbline.stream({options})")
        else:
            eval(f"rhumbline.solve([points], {options})")
    except Exception as error:
        messages[options] = f"{type(error).__module__}.{type(error).__name__}: {error}"
print(json.dumps(messages))
"""


@pytest.fixture(scope="module")
def refusals() -> dict[str, str]:
    """Return the error for each wrong value; its process has no type checks as tests have."""
    code = REFUSALS % (list(WRONG | STREAMS),)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(("options", "words"), (WRONG | STREAMS).items())
def test_values_of_a_wrong_kind_are_refused(
    refusals: dict[str, str], options: str, words: str
) -> None:
    """The error is an InputError that says what is expected."""
    (message,) = refusals[options].splitlines()
    assert message.startswith("rhumbline.errors.InputError: ")
    assert words in message


def test_nothing_in_nothing_out(policy) -> None:
    """An empty list has no solutions."""
    assert solve([], policy=policy) == []


def test_tensors_are_arrays() -> None:
    """Coordinates, matrices and the four arrays of CVRP may be tensors, alone or in lists."""
    xy = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]], requires_grad=True)
    routing = (torch.zeros(2), xy, torch.tensor([1, 2, 3]), torch.tensor(5))
    tour, one, two = instances_from(xy)[0], *instances_from([routing, routing])
    assert tour.distances[0, 1] == one.distances[0, 2] == 5.0
    assert one.demands == two.demands == (0, 1, 2, 3)
    assert instances_from(routing)[0].capacity == 5


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([5], "expected a path, an array, a mapping or a list of these, got int"),
        ([XY[0], None], "expected a path, an array, a mapping or a list of these, got NoneType"),
        (
            ([0, 0], [[1, 1], [2, 2]], [3, 4]),
            "vehicle routing is a tuple: depot, customers, demands, capacity",
        ),
        (
            {"depot": [0, 0], "capacity": 3},
            "'customers' and 'demands' are missing; a CVRP has depot, customers",
        ),
    ],
)
def test_what_is_no_instance_is_refused(source, words: str) -> None:
    """The error says what is expected."""
    with pytest.raises(InputError, match=words):
        instances_from(source)


def test_an_engine_that_an_instance_does_not_support_is_refused_early(policy, monkeypatch) -> None:
    """One of two sizes is too large for kernels with a layer: nothing is solved. `auto` decides for
    each group.
    """
    monkeypatch.setattr(
        kernels, "why_not_layer", lambda _, nodes: "too many nodes" if nodes > 5 else None
    )
    instances = random_tsp(5, 6)
    device = torch.device("cpu")
    policies = {"tsp": policy}
    with pytest.raises(MissingExtra, match="too many nodes"):
        next(
            pipeline.make_tasks(
                instances, policies, seed=0, device=device, engine="fused", strategy=EASLay()
            )
        )
    tasks = pipeline.make_tasks(
        instances, policies, seed=0, device=device, engine="auto", strategy=EASLay()
    )
    assert {task.instances[0].size: task.engine for _, task in tasks} == {5: "auto", 6: "torch"}


@dataclass(frozen=True)
class NeedsBudget(Sampling):
    """A third-party strategy whose `init` reads the budget."""

    def init(self, task):
        assert task.account.limit
        return super().init(task)


def test_third_party_strategies_begin_once_for_each_group(policy) -> None:
    """Only needs are checked beforehand: an `init` may read the budget, which is not set yet."""
    solutions = solve(random_tsp(5, 6), policy=policy, strategy=NeedsBudget(), attempts=4)
    assert [solution.attempts for solution in solutions] == [4, 4]


@pytest.mark.parametrize("sizes", [(5, 6), (6, 5)])
def test_the_largest_instance_is_tried_first(policy, monkeypatch, sizes) -> None:
    """In any order, an engine that the larger instance does not support is refused before the first
    is encoded.
    """
    monkeypatch.setattr(make, "choose_engine", refuse_more_than_5)
    instances = random_tsp(*sizes)
    device = torch.device("cpu")
    with pytest.raises(MissingExtra, match="6 are too many"):
        next(pipeline.make_tasks(instances, {"tsp": policy}, seed=0, device=device, engine="fused"))


def refuse_more_than_5(wanted, ask):
    if ask.nodes > 5:
        raise MissingExtra(f"{ask.nodes} are too many")
    return ENGINES["torch"]


def test_stream_takes_names(policy) -> None:
    """A strategy by name is the one with the usual settings."""
    best: list[list[float]] = []
    for strategy in ("sampling", Sampling()):
        task = rhumbline.prepare(XY[0], policy=policy, device="cpu")
        steps = rhumbline.stream(strategy, task, rhumbline.Budget(attempts=8))
        best.append([progress.best.item() for progress in steps])
    assert best[0] == best[1]


def test_threads_are_given_back(policy, monkeypatch) -> None:
    """They count for one call, also if it fails."""
    before = torch.get_num_threads()
    seen: list[int] = []
    solve(
        XY[0],
        policy=policy,
        attempts=4,
        device="cpu",
        threads=before + 1,
        watch=lambda _: seen.append(torch.get_num_threads()),
    )
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before
    monkeypatch.setattr("rhumbline.api.solve_groups", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        solve(XY[0], policy=policy, attempts=4, threads=before + 1)
    assert torch.get_num_threads() == before
