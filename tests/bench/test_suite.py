"""Suites are read from TOML, and refused with the reason if they could be misread."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_suites import METHODS, SET

from rhumbline.bench.baselines import Baseline
from rhumbline.bench.methods import BenchOptions, can_solve, make_runner
from rhumbline.bench.suite import Suite, read_suite
from rhumbline.errors import InputError
from rhumbline.problems.cvrp import cvrp_from_arrays
from rhumbline.problems.jssp import JSSPInstance
from rhumbline.problems.tsp import tsp_from_array

Write = Callable[..., Path]
SUITES = Path(__file__).parents[2] / "suites"
PLACES = np.random.default_rng(0).random((6, 2))
SMALL = {
    "tsp": tsp_from_array(PLACES),
    "cvrp": cvrp_from_arrays(PLACES[0], PLACES[1:], np.array([1, 2, 3, 4, 5]), 10),
    "jssp": JSSPInstance("shop", ((3, 2), (2, 4)), ((0, 1), (0, 1)), 2),
}


def test_a_suite_is_its_tables(suite: Suite) -> None:
    """Names, defaults and budgets are those of the file."""
    assert (suite.name, suite.seeds, [s.name for s in suite.sets]) == ("small", (0,), ["ten"])
    search, nearest = suite.methods
    assert (search.strategy, search.budget_text, nearest.budget_text) == (
        "cmaes",
        "20 attempts",
        "until it ends",
    )
    assert search.budget(5).attempts == 20


def test_seconds_are_per_instance(write: Write) -> None:
    """Three instances that are solved together have three times the seconds of one, and as many
    attempts each.
    """
    method = read_suite(
        write(SET + '[[method]]\nname = "a"\nseconds = 1.5\nattempts = 7\n')
    ).methods[0]
    assert (method.budget(3).seconds, method.budget(3).attempts, method.budget_text) == (
        4.5,
        7,
        "7 attempts or 1.5 s",
    )


def test_the_digest_is_of_what_matters(write: Write) -> None:
    """Comments and layout do not change the digest, anything else does."""
    plain = read_suite(write()).digest
    assert read_suite(write("# a remark\n\n" + SET + METHODS)).digest == plain
    assert read_suite(write(SET + METHODS.replace("20", "21"))).digest != plain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected at least one \[\[set\]\]"),
        (SET, r"expected at least one \[\[method\]\]"),
        (
            "device = 1\n" + SET + METHODS,
            "unknown key 'device'; known: name, seeds, set, method",
        ),
        (
            SET + "colour = 1\n" + METHODS,
            r"\[\[set\]\] 1: unknown key 'colour'; known here: name, problem, recipe",
        ),
        (
            SET + METHODS + "atempts = 3\n",
            r"\[\[method\]\] 2: unknown key 'atempts' \(did you mean 'attempts'\?\)",
        ),
        (
            "seeds = [0, 0]\n" + SET + METHODS,
            r"seeds is \[0, 0\]; expected a list of different whole numbers",
        ),
        ("seeds = []\n" + SET + METHODS, r"seeds is \[\]"),
        ("seeds = 0\n" + SET + METHODS, "seeds is 0"),
        (SET + SET + METHODS, r"two \[\[set\]\] are called 'ten'"),
        ('[[set]]\nname = "x"\n' + METHODS, r"\[\[set\]\] 1 has no problem"),
        (
            '[[set]]\nname = "x"\nproblem = "tsp"\n' + METHODS,
            "set 'x': give either a recipe or files",
        ),
        (SET + "first = 0\n" + METHODS, "set 'ten': first is 0; expected at least 1"),
        (SET + 'power = "much"\n' + METHODS, "power is 'much'; expected a value of type float"),
        (SET + '[[method]]\nname = "a"\n', "method 'a': a budget needs attempts, seconds or both"),
        (SET + '[[method]]\nname = "a"\nattempts = 0\n', "method 'a': attempts must be at least 1"),
        (
            SET + '[[method]]\nname = "a"\nattempts = 2\ntogether = -1\n',
            "method 'a': expected together of at least 0",
        ),
        (
            SET + '[[method]]\nname = "a"\nattempts = 2\nthen = "ils"\n',
            "method 'a': then takes the second half of the seconds, so give them",
        ),
        (
            SET + '[[method]]\nname = "a"\nseconds = 2\nthen = "isl"\n',
            r"method 'a': then is 'isl' \(did you mean 'ils'\?\); known: auto, ",
        ),
        (
            SET + '[[method]]\nname = "a"\nsolver = "nearest"\npolish = true\n',
            "method 'a': polish, then and warm_start belong to a search, "
            "but the solver is 'nearest'",
        ),
        (
            SET + '[[method]]\nname = "a"\nattempts = 2\npolish = 1\n',
            "polish is 1; expected a value of type bool",
        ),
        ("seeds = [", "not a readable TOML suite"),
        (
            SET + "power = 0.5\n" + METHODS,
            "set 'ten': power is of the recipe 'mutated', but the recipe is 'uniform'",
        ),
        (
            SET.replace('"ten"', '"a/b"') + METHODS,
            "set 'a/b': results and figures are files of that name",
        ),
        (SET.replace('"ten"', '".."') + METHODS, r"set '\.\.': results and figures"),
        (
            'name = "../up"\n' + SET + METHODS,
            r"suite '\.\./up': results and figures are files of that name",
        ),
        (
            SET + '[[method]]\nname = "a"\nattempts = 2\npaper = {ten = "x"}\n',
            r"paper\.ten is 'x'; expected a gap in %",
        ),
        (
            SET + '[[method]]\nname = "a"\nattempts = 2\npaper = {ten = nan}\n',
            r"paper\.ten is nan; expected a gap",
        ),
        (
            SET + '[[method]]\nname = "a"\nattempts = 2\npaper = {ten = true}\n',
            r"paper\.ten is True",
        ),
        (
            SET + '[[method]]\nname = "a"\nattempts = 2\npaper = {tem = 1.0}\n',
            r"paper names the set 'tem', which is not there \(did you mean 'ten'\?\); known: ten",
        ),
        (
            SET + '[[method]]\nname = "a"\nattempts = 2\nsets = "t* foo*"\n',
            r"method 'a': sets has 'foo\*', which fits no set; known: ten",
        ),
        (
            SET + '[[method]]\nname = "a"\nattempts = 2\nsets = ""\n',
            "sets has '', which fits no set",
        ),
    ],
)
def test_bad_suites_are_refused(write: Write, text: str, message: str) -> None:
    """The message names the file, the table and what was expected."""
    path = write(text)
    with pytest.raises(InputError, match=message) as caught:
        read_suite(path)
    assert (
        "set 'ten'" in str(caught.value)
        or "method 'a'" in str(caught.value)
        or str(path) in str(caught.value)
        or ("set '" in str(caught.value))
    )


def test_a_missing_suite_is_named() -> None:
    """The message about a mistyped path says where suites are."""
    with pytest.raises(
        InputError,
        match=r"nowhere\.toml: no such suite; those of the project are in the folder suites",
    ):
        read_suite("nowhere.toml")


def test_parts_of_a_suite_can_be_selected(suite: Suite) -> None:
    """Patterns select methods or sets.

    Without a pattern for a kind, all of it is selected. Patterns that fit nothing are refused.
    """
    sets, methods = suite.select(["near*"])
    assert ([s.name for s in sets], [m.name for m in methods]) == (["ten"], ["nearest"])
    assert suite.select([]) == (suite.sets, suite.methods)
    with pytest.raises(
        InputError,
        match="--only far: no such set or method in suite 'small'; known: ten, search, nearest",
    ):
        suite.select(["far"])


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.toml")), ids=lambda p: p.stem)
def test_the_suites_of_the_project_can_be_read(path: Path) -> None:
    """Every suite that ships is complete, has the name of its file, and has work for each method
    and set.
    """
    suite = read_suite(path)
    assert suite.name == path.stem
    for method in suite.methods:
        assert any(method.applies_to(s.name) for s in suite.sets), method.name
    for one in suite.sets:
        assert any(method.applies_to(one.name) for method in suite.methods), one.name


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.toml")), ids=lambda p: p.stem)
def test_every_method_of_the_project_can_start_on_its_sets(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights exist, settings are known, and the policy has what the strategy searches.

    Nothing is solved.
    """
    monkeypatch.setattr(
        Baseline, "require", lambda self: None
    )  # other people's solvers need not be installed
    suite = read_suite(path)
    pairs = {
        (m.name, s.problem): m for m in suite.methods for s in suite.sets if m.applies_to(s.name)
    }
    able = [(m, problem) for (_, problem), m in pairs.items() if can_solve(m, problem)]
    assert {problem for m, problem in able if m.solver == "policy"} == {
        s.problem for s in suite.sets
    }
    for method, problem in able:
        make_runner(method, problem, BenchOptions(device="cpu", engine="torch")).check(
            SMALL[problem]
        )
