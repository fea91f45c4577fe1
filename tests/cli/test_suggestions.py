"""A mistyped name, wherever it is typed, is refused with the name that was meant."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from rhumbline.bench.draw import draw_jssp
from rhumbline.bench.methods import can_solve
from rhumbline.bench.suite import Method, SetSpec, parse_suite
from rhumbline.checkpoint import find_checkpoint
from rhumbline.cli.app import app
from rhumbline.cli.commands.compare import run_compare
from rhumbline.cli.commands.train import run_train
from rhumbline.decoding.engines import Ask, choose_engine
from rhumbline.domains import DOMAINS, find_policy_family
from rhumbline.errors import InputError
from rhumbline.formats.safe_io import read_bytes
from rhumbline.improvers import SOLVER_NAMES, require_solver
from rhumbline.pipeline import find_device
from rhumbline.problems.jssp import JSSPInstance
from rhumbline.problems.jssp.dispatch_rules import dispatch
from rhumbline.problems.standard_sets import tsp_set
from rhumbline.registry import did_you_mean, suggest_known
from rhumbline.search.strategies import STRATEGIES, build_strategy
from rhumbline.toml_config import read_toml

Run = Callable[..., Any]
CPU = find_device("cpu")
SUITE = {
    "set": [{"name": "small", "problem": "tsp", "recipe": "tsp100"}],
    "method": [{"name": "search", "attempts": 1}],
}
ONE_JOB = JSSPInstance("one", ((1, 2),), ((0, 1),), 2)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["slove", "x.tsp"], "solve"),
        (["solve", "x.tsp", "--secnds", "3"], "--seconds"),
        (["solve", "x.tsp", "--search", "cmaess"], "cmaes"),
        (["solve", "x.tsp", "--search", "CMAES"], "cmaes"),
        (["solve", "x.tsp", "--seconds", "1", "--then", "iils"], "ils"),
        (["solve", "x.tsp", "--device", "cda"], "cuda"),
        (["solve", "x.tsp", "--engine", "fussed"], "fused"),
        (["solve", "x.tsp", "--set", "componets=3"], "components"),
        (["bench", "s.toml", "--engine", "touch"], "torch"),
        (["bench", "refrence", "s.toml"], "reference"),
        (["report", "r.jsonl", "--format", "latexx"], "latex"),
        (["sample", "tps", "--out", "x.safetensors"], "tsp"),
    ],
)
def test_words_of_the_command_line(rhumb: Run, words: list[str], meant: str) -> None:
    """Wrong usage is exit 2, and the message has the name that was meant."""
    done = rhumb(*words)
    assert done.exit_code == 2
    text = " ".join(done.stderr.replace("│", " ").split())
    assert re.search(rf"(did you mean|possible options:)[^)]*{meant}\b", text, re.IGNORECASE), text


@pytest.mark.parametrize(
    ("parse", "words", "meant"),
    [
        (run_train, ["recipe.toml", "--mintes", "3"], "--minutes"),
        (run_train, ["recipe.toml", "--mintes=3"], "--minutes"),
        (run_train, ["recipe.toml", "--device", "cda"], "cuda"),
        (run_compare, ["tsp100", "--enginee", "torch"], "--engine"),
        (run_compare, ["tsp100", "--engine", "fussed"], "fused"),
    ],
)
def test_words_of_the_commands_without_typer(
    parse: Callable[[list[str]], int],
    words: list[str],
    meant: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`train` and `bench compare` suggest as the others do."""
    with pytest.raises(SystemExit) as stop:
        parse(words)
    assert stop.value.code == 2
    assert f"(did you mean '{meant}'?)" in capsys.readouterr().err


def refuse_suite(**changes: Any) -> Any:
    """Return a call that reads a suite with a changed table."""
    return lambda: parse_suite(SUITE | changes, Path("s.toml"))


@pytest.mark.parametrize(
    ("act", "meant"),
    [
        (lambda: find_device("cda"), "cuda"),
        (lambda: choose_engine("fussed", Ask(DOMAINS["tsp"].problem, CPU, 1)), "fused"),
        (lambda: build_strategy("cmaes-elit"), "cmaes-elite"),
        (lambda: build_strategy("cmaes", ["sigm=1"]), "sigma"),
        (lambda: require_solver("tabuu", "jssp"), "tabu"),
        (lambda: find_checkpoint("tspp", "tsp"), "tsp"),
        (lambda: find_policy_family("jsp"), "jssp"),
        (lambda: dispatch(ONE_JOB, "mwrk"), "mwkr"),
        (lambda: dispatch(ONE_JOB, kind="activ"), "active"),
        (lambda: tsp_set("tsp1000"), "tsp100"),
        (lambda: draw_jssp(SetSpec("s", "jssp", recipe="jsp10x10")), "jssp10x10"),
        (lambda: can_solve(Method("m", solver="pyvrpp", seconds=1.0), "cvrp"), "pyvrp"),
        (lambda: Method("m", then="ruinn", seconds=1.0), "ruin"),
        (refuse_suite(sedes=[1]), "seeds"),
        (refuse_suite(method=[{"name": "m", "attemps": 1}]), "attempts"),
        (refuse_suite(method=[{"name": "m", "attempts": 1, "sets": "smal"}]), "small"),
        (lambda: parse_suite(SUITE, Path("s.toml")).select(["serch"]), "search"),
    ],
)
def test_names_in_suites_recipes_and_python(act: Callable[[], object], meant: str) -> None:
    """Each refusal names what was probably meant."""
    with pytest.raises(InputError) as caught:
        act()
    assert f"(did you mean '{meant}'?)" in str(caught.value)


def test_a_mistyped_file_name(tmp_path: Path) -> None:
    """A file of nearly the same name in the folder is named; without one nothing is."""
    (tmp_path / "harbour100.tsp").touch()
    (tmp_path / "bakery80.vrp").touch()
    with pytest.raises(InputError, match=r"no such file \(did you mean 'harbour100.tsp'\?\);"):
        read_bytes(tmp_path / "harbor100.tsp")
    with pytest.raises(InputError, match="no such file; check"):
        read_bytes(tmp_path / "quarry.jsp")
    with pytest.raises(InputError, match="no such file; check"):
        read_bytes(tmp_path / "nowhere" / "harbour100.tsp")
    (tmp_path / "tsp100.toml").touch()
    with pytest.raises(InputError, match=r"no such recipe \(did you mean 'tsp100.toml'\?\)"):
        read_toml(tmp_path / "tsp10.toml", "recipe")


def test_a_name_like_no_other_gets_the_list() -> None:
    """Without a close name the message only lists the known ones; long names stay short."""
    assert suggest_known("qqqq", ["ils", "tabu"]) == "; known: ils, tabu"
    assert suggest_known("x", []) == "; known: none"
    assert did_you_mean("x" * 1_000_000, ["ils"]) == ""
    with pytest.raises(InputError) as caught:
        STRATEGIES.find("x" * 100_000, "strategy")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("option", "names"),
    [("--search", list(STRATEGIES.table)), ("--then", list(SOLVER_NAMES))],
)
def test_help_lists_the_names_of_the_registry(option: str, names: list[str]) -> None:
    """The help is a literal text, because loading the registry would load torch."""
    command: Any = typer.main.get_command(app)
    options = {name: one for one in command.commands["solve"].params for name in one.opts}
    words = re.sub(r"\[.*\]|\(.*?\)", "", options[option].help).rpartition(": ")[2]
    assert sorted(re.findall(r"[a-z][a-z-]*", words.replace(" or ", " "))) == sorted(names)
