"""A problem that another package brings works like ours, without a change here."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from ring_problem import RING, TINY, Ring, RingInstance, RingPolicy
from typer.testing import CliRunner

import rhumbline
from rhumbline import checkpoint
from rhumbline.cli.app import app
from rhumbline.domains import DOMAINS, find_policy_family
from rhumbline.errors import CheckpointError, InputError
from rhumbline.files.discovery import find_instance_files
from rhumbline.files.plans import resolve_plan
from rhumbline.problems.tsp import Tour

RECIPE = """problem = "ring-net"
size = 6
batch = 4
updates = 3
report = 0.0
[policy]
width = 16
heads = 2
layers = 1
hidden = 16
latent = 4
[objective]
latents = 4
starts = 4
[validation]
count = 4
latents = 2
"""
XY = np.random.default_rng(1).random((6, 2))


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offer the problem as an entry point does."""
    point = EntryPoint("ring", "ring_problem:RING", "rhumbline.domains")
    monkeypatch.setitem(DOMAINS.outside, "ring", point)
    monkeypatch.setattr(DOMAINS, "loaded", dict(DOMAINS.loaded))


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Write a checkpoint of an untrained policy."""
    path = tmp_path / "ring.safetensors"
    checkpoint.save(path, RingPolicy(TINY), checkpoint.TrainingFacts("ring-net", 6, 3))
    return path


@pytest.fixture
def ring_file(tmp_path: Path) -> Path:
    path = tmp_path / "six.ring"
    np.savetxt(path, XY)
    return path


def run(*words: object) -> object:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def test_it_is_solved_from_python(policy: Path, ring_file: Path) -> None:
    """An instance, a file and a mapping have the same cost."""
    sources = [RingInstance("six", XY), ring_file, {"ring": XY.tolist()}]
    for source in sources:
        (solution,) = rhumbline.solve(source, policy=policy, attempts=8, device="cpu")
        assert isinstance(solution.plan, Ring)
        assert solution.cost == solution.plan.cost(solution.instance)
    several = rhumbline.solve(sources, policy=policy, attempts=8, device="cpu", augment=2)
    assert len(several) == 3


def test_it_is_solved_from_the_shell(policy: Path, ring_file: Path, tmp_path: Path) -> None:
    """The plan is printed, and written as a result that can be read again."""
    words = ("--policy", policy, "--attempts", 4, "--device", "cpu", "--output", tmp_path / "out")
    done = run("solve", ring_file, *words, "--json")
    assert done.exit_code == 0, done.stderr
    assert "six  ring, 6 cities, ring   policy" in done.stderr
    found = json.loads(done.stdout)
    written = json.loads((tmp_path / "out" / "six.json").read_text())
    assert written["plan"] == found["plan"]
    assert (found["problem"], written["problem"]) == ("ring", "ring")
    instance = rhumbline.read(ring_file)
    plan = resolve_plan(tmp_path / "out" / "six.json", instance)
    assert plan.cost(instance) == pytest.approx(found["cost"])


def test_it_is_sampled_and_solved_from_a_folder(policy: Path, tmp_path: Path) -> None:
    """Its datasets are told from those of the TSP, which has fewer tensors."""
    folder = tmp_path / "rings"
    out = folder / "some.safetensors"
    done = run("sample", "ring", "--size", 5, "--count", 2, "--out", out)
    assert done.exit_code == 0, done.stderr
    np.savetxt(folder / "six.ring", XY)
    assert [file.name for file in find_instance_files(folder)] == ["six.ring", out.name]
    done = run("solve", folder, "--policy", policy, "--attempts", 2, "--json", "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    names = [json.loads(line)["name"] for line in done.stdout.splitlines()]
    assert names == ["six", "some-1", "some-2"]


def test_advice_is_about_what_it_has(policy: Path, tmp_path: Path) -> None:
    """Far beyond the training size no polish is recommended that there is not."""
    np.savetxt(tmp_path / "ten.ring", np.random.default_rng(2).random((10, 2)))
    done = run("solve", tmp_path / "ten.ring", "--policy", policy, "--attempts", 1)
    assert "10 cities are far beyond what this policy was trained at: expect" in done.stderr
    assert "--polish" not in done.stderr


def test_its_checkpoints_are_described(policy: Path) -> None:
    """`rhumb info` knows the unit of its sizes."""
    done = run("info", policy)
    assert done.exit_code == 0, done.stderr
    assert "ring: ring-net, trained at 6 cities, 3 updates" in done.stdout


def test_what_it_lacks_is_refused_in_a_sentence(policy: Path, ring_file: Path) -> None:
    """Weights that do not come with the package, and a policy for another problem."""
    with pytest.raises(CheckpointError, match="no weights for ring come with this version"):
        rhumbline.solve(ring_file, attempts=1)
    with pytest.raises(CheckpointError, match="trained for 'ring-net'; these are 'tsp' instances"):
        rhumbline.solve(XY, policy=policy, attempts=1)
    given = Tour((0, 1, 2, 3, 4, 5))
    with pytest.raises(InputError, match="six: a Tour is no plan for a ring"):
        rhumbline.solve(ring_file, policy=policy, warm_start=given, attempts=1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--plot",), "drawing a plan is not supported for ring"),
        (("--top", 2), "more than the best plan of a search is not supported for ring"),
        (("--warm-start", "six.json"), "a warm start is not supported for ring"),
        (("--search", "cmaes-refine"), "there are no neighbourhoods in plans of ring-net"),
        (("--vehicles", 3), "a number of vehicles is for vehicle routing, this is 'ring'"),
    ],
)
def test_the_shell_refuses_what_it_lacks(
    policy: Path, ring_file: Path, monkeypatch: pytest.MonkeyPatch, words: tuple, message: str
) -> None:
    """Exit 3 and a sentence, before the search."""
    monkeypatch.chdir(ring_file.parent)
    Path("six.json").write_text('{"name": "six", "plan": [0, 1, 2, 3, 4, 5]}')
    done = run("solve", ring_file, "--policy", policy, "--attempts", 4, "--device", "cpu", *words)
    assert (done.exit_code, done.stdout) == (3, "")
    assert message in done.stderr


def test_policies_are_found_by_their_names() -> None:
    """Each name belongs to one domain; an unknown one is a KeyError."""
    assert find_policy_family("ring-net") == (RING, RING.policies["ring-net"])
    domain, family = find_policy_family("jssp-machines")
    assert (domain.name, family.rules.name) == ("jssp", "jssp-machines")
    with pytest.raises(InputError, match="problem 'nowhere' is not known; known: tsp, cvrp, jssp"):
        find_policy_family("nowhere")


def test_it_is_trained(tmp_path: Path) -> None:
    """A recipe names the policy; what it writes is solved with."""
    recipe = tmp_path / "ring.toml"
    recipe.write_text(RECIPE)
    out = tmp_path / "run"
    done = run("train", recipe, "--out", out, "--device", "cpu", "--quiet")
    assert done.exit_code == 0, done.stderr
    policy = Path(done.stdout.splitlines()[-1])
    (solution,) = rhumbline.solve(RingInstance("six", XY), policy=policy, attempts=4, device="cpu")
    assert solution.attempts == 4


def test_it_is_trained_on_files(tmp_path: Path, ring_file: Path) -> None:
    """Instances of the user take the place of random ones."""
    recipe = tmp_path / "ring.toml"
    recipe.write_text(RECIPE)
    done = run("train", recipe, "--data", ring_file, "--out", tmp_path / "run", "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    assert "1 instance of 6 cities to train on" in done.stderr
    assert Path(done.stdout.splitlines()[-1]).is_file()
