"""Instances of a set are the same everywhere, or the set is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_suites import METHODS

from rhumbline.bench.instance_sets import load_set
from rhumbline.bench.suite import SetSpec, Suite, read_suite
from rhumbline.errors import InputError
from rhumbline.problems.distributions.mutations import sample_mutated_set
from rhumbline.problems.standard_sets import cvrp_set, tsp_set

HERE = Path()


def refusal_of(spec: SetSpec, folder: Path = HERE, **more: object) -> str:
    with pytest.raises(InputError) as caught:
        load_set(spec, folder, **more)  # type: ignore[arg-type]
    return str(caught.value)


def checksum(spec: SetSpec) -> str:
    """Return the checksum of what a recipe draws, from the message about a missing one."""
    return refusal_of(replace(spec, sha256="")).split('"')[1]


def test_uniform_sets_are_drawn_from_their_seed(suite: Suite) -> None:
    """The instances are those of NumPy for that seed. Their names are numbered."""
    loaded = load_set(suite.sets[0], HERE)
    expected = np.random.default_rng(3).random((4, 10, 2))
    np.testing.assert_array_equal([i.xy for i in loaded.instances], expected)
    assert [i.name for i in loaded.instances] == [f"ten-0000{k}" for k in (1, 2, 3, 4)]
    assert loaded.references == (None,) * 4


def test_standard_sets_have_their_published_checksum() -> None:
    """The checksum in a suite is the published one. `first` takes the first instances."""
    spec = SetSpec("t", "tsp", "tsp125", "0747023340d78d23fb499c146e0f01db", first=2)
    np.testing.assert_array_equal(
        [i.xy for i in load_set(spec, HERE).instances], tsp_set("tsp125")[:2]
    )
    routes = load_set(
        SetSpec("v", "cvrp", "vrp125", "1cfa12202661ee8657e17ea72d15e025", first=1), HERE
    ).instances[0]
    xy, demands, capacity = cvrp_set("vrp125")
    np.testing.assert_array_equal(routes.xy, xy[0])
    assert (routes.demands, routes.capacity) == (tuple(demands[0]), capacity)


def test_job_shops_have_their_published_checksum() -> None:
    """The first durations of the standard set are 27, 17 and 69.

    It has a hundred instances, and there is no other recipe.
    """
    spec = SetSpec("j", "jssp", "jssp10x10", "fca0b967bf000233bfd98e91bd4518cd")
    instances = load_set(spec, HERE).instances
    assert (len(instances), instances[0].durations[0][:3]) == (100, (27, 17, 69))
    assert "no recipe 'uniform' for jssp; known: jssp10x10, jssp15x15, jssp20x15" in refusal_of(
        replace(spec, recipe="uniform")
    )


def test_mutated_sets() -> None:
    """They are those of `sample_mutated_set`. For the CVRP, the depot is one of the points."""
    spec = SetSpec("m", "tsp", "mutated", size=12, count=9, seed=1, power=0.5)
    spec = replace(spec, sha256=checksum(spec))
    np.testing.assert_array_equal(
        [i.xy for i in load_set(spec, HERE).instances], sample_mutated_set(9, 12, 0.5, 1)
    )
    routes = replace(spec, problem="cvrp", sha256="")
    loaded = load_set(replace(routes, sha256=checksum(routes)), HERE)
    np.testing.assert_array_equal(
        [i.xy for i in loaded.instances], sample_mutated_set(9, 13, 0.5, 1)
    )
    assert all(i.demands[0] == 0 and min(i.demands[1:]) >= 1 for i in loaded.instances)


def test_a_missing_checksum_is_refused_and_shown(suite: Suite) -> None:
    """The author of a suite can copy the checksum from the message."""
    message = refusal_of(replace(suite.sets[0], sha256=""))
    assert message.startswith("set 'ten' has no sha256")
    assert f'sha256 = "{suite.sets[0].sha256}"' in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "what is drawn here has sha256"),
        (
            {"recipe": "gauss"},
            "no recipe 'gauss' for tsp; known: uniform, mutated, tsp100, tsp125, tsp150, tsp200",
        ),
        ({"recipe": "mutated"}, "the recipe 'mutated' needs a power"),
        ({"count": 0}, "needs a size and a count of at least 1"),
        ({"first": 5}, "first is 5, but there are only 4 instances"),
        (
            {"problem": "knapsack"},
            "problem 'knapsack', which this version does not solve; known: tsp, cvrp",
        ),
    ],
)
def test_bad_recipes_are_refused(suite: Suite, change: dict[str, object], message: str) -> None:
    """The message names the set and what is wrong with it."""
    refusal = refusal_of(replace(suite.sets[0], **change))  # type: ignore[arg-type]
    assert refusal.startswith("set 'ten'")
    assert message in refusal


def reference(path: Path, costs: list[float], **more: object) -> None:
    np.savez(path, **({"cost": np.array(costs), "made_by": "me"} | more))  # type: ignore[arg-type]


def test_references_belong_to_instances(suite: Suite, tmp_path: Path) -> None:
    """Each instance has the cost in its place. A file for more instances also serves fewer."""
    reference(tmp_path / "r.npz", [1.0, 2.0, 3.0])
    loaded = load_set(replace(suite.sets[0], reference="r.npz", first=2), tmp_path)
    assert (loaded.references, loaded.referee) == ((1.0, 2.0), "me")


def test_other_references_change_the_digest(suite: Suite, tmp_path: Path) -> None:
    """So results against different references cannot be mixed."""
    spec = replace(suite.sets[0], reference="r.npz", first=2)
    digests = set[str]()
    for last in (2.0, 2.5):
        reference(tmp_path / "r.npz", [1.0, last])
        digests.add(load_set(spec, tmp_path).digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ([1.0] * 3, "holds 3 costs, but set 'ten' needs 4"),
        ([1.0] * 5, "holds 5 costs, but set 'ten' needs 4"),
        (
            [1.0, float("nan"), 1.0, 1.0],
            "has no cost for 1 of the first 4 instances (the first is number 2)",
        ),
        ([[1.0] * 4], "`cost` has shape [1, 4], expected one cost for each instance"),
    ],
)
def test_wrong_references_are_refused(
    suite: Suite, tmp_path: Path, costs: list[float], message: str
) -> None:
    """The message names a file with too few, too many, unfinished or misshaped costs."""
    reference(tmp_path / "r.npz", costs)
    refusal = refusal_of(replace(suite.sets[0], reference="r.npz"), tmp_path)
    assert refusal.startswith(f"{tmp_path / 'r.npz'}: ")
    assert message in refusal


def test_broken_reference_files_are_refused(suite: Suite, tmp_path: Path) -> None:
    """The message about a missing file has the remedy.

    Garbage and foreign files are not references.
    """
    spec = replace(suite.sets[0], reference="r.npz")
    assert "make it with `rhumb bench reference SUITE --only SET`" in refusal_of(spec, tmp_path)
    (tmp_path / "r.npz").write_bytes(b"PK\x03\x04 garbage")
    assert "is not a reference file with `cost` and `made_by`" in refusal_of(spec, tmp_path)
    np.savez(tmp_path / "r.npz", price=np.ones(4))
    assert "is not a reference file with `cost` and `made_by`" in refusal_of(spec, tmp_path)


FILE = (
    "NAME : {0}\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : EUC_2D\n"
    "NODE_COORD_SECTION\n1 0 0\n2 3 0\n3 3 4\nEOF\n"
)


def test_files_come_with_their_best_known_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is given by argument or environment.

    The instances are in the order of their names.
    """
    for name in ("b", "a"):
        (tmp_path / f"{name}.tsp").write_text(FILE.format(name))
    (tmp_path / "optima.json").write_text('{"a": 12}')
    spec = SetSpec("real", "tsp", files="$SOMEWHERE/*.tsp")
    assert (
        "say where with --folder SOMEWHERE=DIR or the environment variable SOMEWHERE"
        in refusal_of(spec)
    )
    given = load_set(spec, HERE, {"SOMEWHERE": str(tmp_path)})
    assert ([i.name for i in given.instances], given.references) == (["a", "b"], (12.0, None))
    monkeypatch.setenv("SOMEWHERE", str(tmp_path))
    assert load_set(spec, HERE).digest == given.digest
    (tmp_path / "a.tsp").write_text(FILE.format("a").replace("3 3 4", "3 3 5"))
    assert load_set(spec, HERE).digest != given.digest
    assert "these files have sha256" in refusal_of(replace(spec, sha256="0123"))
    assert "no file is called" in refusal_of(replace(spec, files="$SOMEWHERE/*.jsp"))
    assert "set 'real' is of problem 'cvrp'; a is 'tsp'" in refusal_of(
        replace(spec, problem="cvrp")
    )


def test_names_of_instances_must_differ(tmp_path: Path) -> None:
    """Two files may contain the same name. Their results could not be distinguished."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.tsp").write_text(FILE.format("twin"))
    assert "two instances are called 'twin'" in refusal_of(
        SetSpec("real", "tsp", files="*.tsp"), tmp_path
    )


def test_suites_find_files_beside_them(write: Callable[..., Path], tmp_path: Path) -> None:
    """Patterns are relative to the suite, not to the working directory."""
    (tmp_path / "x.tsp").write_text(FILE.format("x"))
    suite = read_suite(write('[[set]]\nname = "f"\nproblem = "tsp"\nfiles = "*.tsp"\n' + METHODS))
    assert [i.name for i in load_set(suite.sets[0], suite.folder).instances] == ["x"]
