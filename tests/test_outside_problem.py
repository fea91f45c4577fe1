"""The package of `examples/outside_problem` is found by its entry points, and works like ours."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import rhumbline
from rhumbline import checkpoint
from rhumbline.cli.app import app
from rhumbline.domains import DOMAINS
from rhumbline.errors import Infeasible, InputError
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.search.strategies import STRATEGIES
from rhumbline.testing import check_engine, check_policy, check_problem, check_strategy

PROJECT = Path(__file__).parents[1] / "examples" / "outside_problem"
PACKAGE = "rhumbline_orienteering"
ISLAND = PROJECT / "island30.op"
SMALL = Architecture(width=16, heads=2, layers=1, hidden=16, latent=3)
REFUSED = {
    "population": "not a population of decoders",
    "cmaes-refine": "no neighbourhoods in plans of op",
}
RECIPE = """
problem = "op"
size = 8
batch = 4
updates = 3
report = 0.0
policy = { width = 16, heads = 2, layers = 1, hidden = 16, latent = 3 }
objective = { loss = "reinforce", latents = 3, starts = 4 }
optimiser = { lr = 3e-3, warmup = 2, clip = 1.0 }
validation = { count = 6, latents = 3 }
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `pip install` leaves of the package."""
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    shutil.copytree(PROJECT / PACKAGE, folder / PACKAGE)
    info = folder / f"{PACKAGE}-{project['version']}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata)
    lines: list[str] = []
    for group, points in project["entry-points"].items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True)
def op(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The domain, installed for one test."""
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.delitem(vars(DOMAINS), "outside", raising=False)  # what was found before
    monkeypatch.setattr(DOMAINS, "loaded", dict(DOMAINS.loaded))
    yield DOMAINS["op"]
    vars(DOMAINS).pop("outside", None)


@pytest.fixture
def instances() -> list[Any]:
    """Three random instances, and some in which few customers or none can be reached."""
    kind = import_module(PACKAGE).OPInstance
    rng = np.random.default_rng(0)

    def make(count: int, limit: float, name: str) -> Any:
        prizes = map(int, rng.integers(1, 50, count - 1))
        return kind(name, 100.0 * rng.random((count, 2)), (0, *prizes), limit)

    some = [make(8, 200.0, f"random-{number}") for number in range(3)]
    return [*some, make(5, 60.0, "near"), make(4, 1.0, "nowhere")]


@pytest.fixture
def policy(op: Any) -> Any:
    family = op.policies["op"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        policy = family.network(SMALL)
        for name, weight in policy.named_parameters():
            if name.endswith("_latent"):
                weight.data.normal_(0, 0.02)
    return policy.requires_grad_(False)


@pytest.fixture
def weights(policy: Any, tmp_path: Path) -> Path:
    """A checkpoint of the untrained policy."""
    path = tmp_path / "op.safetensors"
    checkpoint.save(path, policy, checkpoint.TrainingFacts("op", 8))
    return path


def run(*words: object) -> Any:
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.stderr
    return done


# --- contracts


def test_it_is_small() -> None:
    """What another problem needs fits on a few pages."""
    files = (PROJECT / PACKAGE).glob("*.py")
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert len(lines) <= 300


def test_rules(op: Any, instances: list[Any]) -> None:
    """The rules keep all contracts; costs are negative prizes."""
    check_problem(op.problem, instances)
    batch = op.problem.sample(2, 6, torch.Generator().manual_seed(0))
    assert (op.problem.cost(batch, op.problem.starts(batch)[..., None]) < 0).all()


def test_policy(op: Any, policy: Any, instances: list[Any]) -> None:
    """So does the policy, with a latent space and without."""
    check_policy(policy, op.problem, instances)
    check_policy(type(policy)(Architecture(16, 2, 1, 16, latent=0)), op.problem, instances[:3])
    check_engine("torch", op.problem, policy, instances)


@pytest.mark.parametrize("augment", [1, 4])
@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_strategies(op: Any, policy: Any, instances: list[Any], name: str, augment: int) -> None:
    """Every strategy works on it, or is refused in a sentence."""
    strategy = STRATEGIES[name]()
    refusal = check_strategy(strategy, op.problem, policy, instances[:3], augment=augment)
    assert (refusal is not None) == (name in REFUSED)
    assert REFUSED.get(name, "") in (refusal or "")


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - set(REFUSED)))
def test_solve_by_every_strategy(policy: Any, instances: list[Any], name: str) -> None:
    """Solutions are verified; where no customer can be reached, the trip is empty."""
    solutions = rhumbline.solve(instances, policy=policy, strategy=name, attempts=12, device="cpu")
    for instance, solution in zip(instances, solutions, strict=True):
        assert solution.cost == solution.plan.cost(instance)
    assert [solution.cost for solution in solutions][-1] == 0
    assert solutions[0].cost < 0


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refusals(policy: Any, instances: list[Any], name: str) -> None:
    """What the problem or the policy lacks is said in a sentence."""
    with pytest.raises(InputError, match=REFUSED[name]):
        rhumbline.solve(instances[0], policy=policy, strategy=name, attempts=12, device="cpu")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"then": "lkh"}, "op"),
        ({"polish": True}, "op"),
        ({"policy": None}, "no weights for op"),
        ({"engine": "fused"}, "op"),
    ],
    ids=str,
)
def test_what_it_lacks(
    policy: Any, instances: list[Any], options: dict[str, Any], words: str
) -> None:
    """Parts that the domain leaves out are refused by name."""
    given = {"policy": policy, "attempts": 4, "seconds": 5.0, "device": "cpu"} | options
    with pytest.raises((InputError, rhumbline.errors.CheckpointError, Exception), match=words):
        rhumbline.solve(instances[0], **given)


def test_top_and_warm_start(op: Any, policy: Any) -> None:
    """The best different trips are returned, and none is worse than a given one."""
    instance = rhumbline.read(ISLAND)
    (solution,) = rhumbline.solve(instance, policy=policy, attempts=64, top=3, device="cpu")
    assert len(solution.others) == 2
    plan = solution.plan
    (again,) = rhumbline.solve(instance, policy=policy, attempts=1, warm_start=plan, device="cpu")
    assert again.cost <= solution.cost


# --- its own files


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("far\n0 0 0\n", "x.op:1: .*expected numbers"),
        ("-3\n0 0 0\n", "x.op:1: expected the limit"),
        ("9\n0 0\n", "x.op:2: expected x, y and a whole prize"),
        ("# nothing\n", "x.op:"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, text: str, words: str) -> None:
    """An error has the file, the line, and what was expected."""
    path = tmp_path / "x.op"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        rhumbline.read(path)


def test_wrong_trips_are_refused() -> None:
    """A trip that is too long, or that visits a customer twice."""
    trip = import_module(PACKAGE).Trip
    instance = rhumbline.read(ISLAND)
    for customers, words in (((1, 1), "twice"), ((31,), "unknown"), (range(1, 31), "limit is 180")):
        with pytest.raises(Infeasible, match=words):
            trip(tuple(customers)).check(instance)


# --- from the shell


def test_solve_from_the_shell(weights: Path, tmp_path: Path) -> None:
    """A file gives a trip, a picture and a line of JSON; the trip can be a warm start."""
    out = tmp_path / "out"
    words = ("--policy", weights, "--device", "cpu")
    run("solve", ISLAND, *words, "--attempts", 30, "--output", out, "--plot")
    assert (out / "island30.png").stat().st_size > 10_000
    trip = out / "island30.json"
    done = run("solve", ISLAND, *words, "--attempts", 1, "--json", "--warm-start", trip)
    result = json.loads(done.stdout)
    customers = json.loads(trip.read_text())["plan"]
    instance = rhumbline.read(ISLAND)
    assert result["problem"] == "op"
    assert result["cost"] <= -sum(instance.prizes[customer] for customer in customers)
    lines = tmp_path / "result.json"
    lines.write_text(done.stdout)
    done = run("solve", ISLAND, *words, "--attempts", 1, "--json", "--warm-start", lines)
    assert json.loads(done.stdout)["cost"] <= result["cost"]


def test_sample_and_train_from_the_shell(tmp_path: Path) -> None:
    """Random instances train a policy, from the recipe or from a dataset, which solves them."""
    data = tmp_path / "op8.safetensors"
    recipe = tmp_path / "op.toml"
    recipe.write_text(RECIPE)
    run("sample", "op", "--size", 8, "--count", 20, "--out", data)
    run("train", recipe, "--out", tmp_path / "random", "--device", "cpu")
    run("train", recipe, "--data", data, "--out", tmp_path / "own", "--device", "cpu")
    for name in ("random", "own"):
        path = tmp_path / name / "policy.safetensors"
        _, facts = checkpoint.load_with_facts(path)
        assert (facts.problem, facts.updates) == ("op", 3)
        done = run("solve", data, "--policy", path, "--attempts", 2, "--json", "--device", "cpu")
        assert len(done.stdout.splitlines()) == 20
    assert "op" in run("info", path).stdout


def test_it_is_installed_by_its_entry_point(site: Path, weights: Path) -> None:
    """A fresh process finds the package without an import."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); from rhumbline.cli import main; main()"
    words = ["solve", ISLAND, "--policy", weights, "--attempts", "4", "--json", "--device", "cpu"]
    command = [sys.executable, "-c", code, str(site), *map(str, words)]
    command[3:4] = [str(site)]
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import rhumbline.cli as c; c.main()"
    command[2] = code
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["problem"] == "op"
