"""Every failure has its exit code and one line on stderr, before any search begins."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rhumbline import pipeline
from rhumbline.checkpoint import TrainingFacts, save
from rhumbline.cli import solve_run
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.tsp import TSP, Tour

Run = Callable[..., Any]


def never(*_: object, **__: object) -> None:
    raise AssertionError("the search began")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Missing argument"),
        (["x.tsp", "--attempts", "0"], "greater than or equal to 1"),
        (["x.tsp", "--seconds", "0"], "0.0 is not a number of seconds above 0"),
        (["x.tsp", "--seconds", "nan"], "nan is not a number of seconds above 0"),
        (
            ["x.tsp", "--search", "tabu"],
            "'tabu' is not known; known: cmaes, cmaes-published, sampling, greedy",
        ),
        (["x.tsp", "--device", "tpu"], "'tpu' is not known"),
        (["x.tsp", "--set", "sigma"], "'sigma' is not FIELD=VALUE"),
        (["x.tsp", "--set", "sigma=1", "--set", "sigma=2"], "'sigma' is given twice: 1 and 2"),
        (
            ["x.tsp", "--set", "sigm=1"],
            "unknown key 'sigm' (did you mean 'sigma'?); known here: parts_per_rollout,",
        ),
        (
            ["x.tsp", "--search", "cmaes-elit"],
            "'cmaes-elit' is not known (did you mean 'cmaes-elite'?); known: cmaes,",
        ),
        (
            ["x.tsp", "--set", "route_pool=-1"],
            "cmaes-refine needs parts_per_rollout, beam and route_pool of at least 0",
        ),
        (["x.tsp", "--set", "size=3"], "unknown key 'size'; known here: parts_per_rollout, plans,"),
        (
            ["x.tsp", "--search", "eas-emb", "--set", "lr=1"],
            "unknown key 'lr'; known here: passes, rate, imitation",
        ),
        (["x.tsp", "--search", "sgbs", "--set", "width=0"], "a width of at least 1"),
        (["x.tsp", "--set", "components=2.5"], "components is 2.5; expected a value of type int"),
        (
            ["x.tsp", "--set", "components=many"],
            "components is 'many'; expected a value of type int",
        ),
        (["x.tsp", "--search", "cmaes", "--set", "population=1"], "a population of at least 2"),
        (["x.tsp", "--nonsense"], "No such option"),
    ],
)
def test_wrong_usage_is_exit_2(rhumb: Run, words: list[str], message: str) -> None:
    """Wrong options end with 2; the message says what is expected."""
    done = rhumb("solve", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_settings_that_the_chosen_strategy_refuses(rhumb: Run, tmp_path: Path) -> None:
    """If the file decides on the strategy, its settings are refused before any search, as wrong
    usage.
    """
    path = tmp_path / "x.tsp"
    path.write_text(
        "NAME: x\nTYPE: TSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n"
        "1 0 0\n2 3 0\n3 0 4\nEOF\n"
    )
    done = rhumb("solve", str(path), "--set", "population=1", "--attempts", "1")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "a population of at least 2" in done.stderr


def test_settings_are_those_of_the_problem(
    rhumb: Run, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings of the default search for routing are refused for job shops before any search;
    routing accepts them.
    """
    monkeypatch.setattr(pipeline, "solve_task", never)
    done = rhumb("solve", "examples/workshop12.jsp", "--set", "plans=4", "--device", "cpu")
    assert done.exit_code == 2
    assert "sampling-elite: unknown key 'plans'" in " ".join(done.stderr.replace("│", " ").split())
    done = rhumb(
        "solve", str(square), "examples/workshop12.jsp", "--set", "components=2", "--device", "cpu"
    )
    assert (done.exit_code, done.stdout) == (2, "")  # before the tour is searched
    for file in (square, "examples/bakery80.vrp"):
        for setting in ("elite=4", "parts_per_rollout=1"):
            with pytest.raises(AssertionError, match="the search began"):
                raise rhumb("solve", str(file), "--set", setting, "--device", "cpu").exception


def test_settings_of_a_population(
    rhumb: Run, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a policy decides on the strategy, its settings are known; the default strategy reports
    unknown ones.
    """
    monkeypatch.setattr(pipeline, "solve_task", never)
    with pytest.raises(AssertionError, match="the search began"):
        raise rhumb(
            "solve", square, "--policy", "tsp100-poppy", "--set", "pairs=true", "--device", "cpu"
        ).exception
    done = rhumb("solve", square, "--set", "pears=3", "--device", "cpu")
    assert done.exit_code == 2
    assert "cmaes-refine: unknown key 'pears'" in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("cmaes-refine", "there are no neighbourhoods in plans of jssp"),
        (
            "eas-lay",
            "adds a layer that the policy for jssp has no place for",
        ),
    ],
)
def test_what_one_of_several_files_does_not_support(
    rhumb: Run,
    square: Path,
    monkeypatch: pytest.MonkeyPatch,
    search: str,
    message: str,
) -> None:
    """A search that the last file does not support is refused before the first search."""
    monkeypatch.setattr(pipeline, "solve_task", never)
    done = rhumb(
        "solve",
        square,
        "examples/workshop12.jsp",
        "--search",
        search,
        "--attempts",
        4,
        "--device",
        "cpu",
    )
    assert (done.exit_code, done.stdout) == (3, "")
    assert message in " ".join(done.stderr.split())


def test_a_bad_file_among_good_ones_stops_everything(
    rhumb: Run, policy: Path, square: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are read before the first search, and the bad one is named."""
    monkeypatch.setattr(pipeline, "solve_task", never)
    bad = tmp_path / "bad.tsp"
    bad.write_text(
        "DIMENSION : 3\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 1 1\nEOF\n"
    )
    done = rhumb("solve", square, bad, "--policy", policy)
    message = (
        f"error: {bad}:3: NODE_COORD_SECTION has 2 rows, DIMENSION says 3; correct one of them\n"
    )
    assert (done.exit_code, done.stdout, done.stderr) == (3, "", message)


@pytest.mark.parametrize("extra", [["--quiet"], ["--json"]])
def test_a_missing_file_is_exit_3(
    rhumb: Run, policy: Path, tmp_path: Path, extra: list[str]
) -> None:
    """Errors are printed with --quiet too, and never on stdout."""
    done = rhumb("solve", tmp_path / "no.tsp", "--policy", policy, *extra)
    message = (
        f"error: {tmp_path / 'no.tsp'}: there is no such file; check the name and the folder\n"
    )
    assert (done.exit_code, done.stdout, done.stderr) == (3, "", message)


def test_a_folder_that_cannot_be_written_is_found_out_first(
    rhumb: Run, policy: Path, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder below a file cannot exist: exit 3 before the search."""
    monkeypatch.setattr(pipeline, "solve_task", never)
    done = rhumb("solve", square, "--policy", policy, "--output", square / "tours")
    reason = "nothing can be written there: Not a directory; choose another folder"
    message = f"error: {square / 'tours'}: {reason}\n"
    assert (done.exit_code, done.stdout, done.stderr) == (3, "", message)


def test_a_folder_in_the_place_of_a_tour_is_found_out_first(
    rhumb: Run, policy: Path, square: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that has the name of a tour file is refused before the search; nothing is
    written.
    """
    monkeypatch.setattr(pipeline, "solve_task", never)
    (tmp_path / "out" / "square.tour").mkdir(parents=True)
    done = rhumb("solve", square, "--policy", policy, "--output", tmp_path / "out")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith(f"error: {tmp_path / 'out' / 'square.tour'}: cannot be replaced")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["square.tour"]


def test_an_unknown_or_damaged_checkpoint_is_exit_3(
    rhumb: Run, policy: Path, square: Path, tmp_path: Path
) -> None:
    """The message names the checkpoint, on one line even if torch's has several."""
    (tmp_path / "cut.safetensors").write_bytes(policy.read_bytes()[:1000])
    for name in ("unknown", tmp_path / "cut.safetensors"):
        done = rhumb("solve", square, "--policy", name, "--attempts", 1)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (3, "", 1)
        assert done.stderr.startswith("error: ")
        assert str(name) in done.stderr


def test_a_single_policy_has_no_space_to_search(rhumb: Run, square: Path, tmp_path: Path) -> None:
    """CMA-ES on a policy without latents is refused; the message names strategies that work."""
    save(
        tmp_path / "single.safetensors",
        TSPPolicy(Architecture(16, 2, 1, 16, 0)),
        TrainingFacts("tsp", 20),
    )
    done = rhumb(
        "solve",
        square,
        "--policy",
        tmp_path / "single.safetensors",
        "--attempts",
        1,
        "--search",
        "cmaes",
        "--quiet",
    )
    message = "error: this policy has no latent space to search; use --search sampling or greedy\n"
    assert (done.exit_code, done.stdout, done.stderr) == (3, "", message)


def test_an_engine_that_is_not_here_is_exit_4(rhumb: Run, policy: Path, square: Path) -> None:
    """The fused engine for a policy that it does not support is an error, never a silent
    fallback.
    """
    done = rhumb(
        "solve", square, "--policy", policy, "--attempts", 1, "--device", "cpu", "--engine", "fused"
    )
    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr.startswith("error: the fused engine takes policies with 8 heads")


def test_a_strategy_for_plain_torch_refuses_the_fused_engine(
    rhumb: Run, policy: Path, square: Path
) -> None:
    """The message has the reason and the engine to use."""
    words = ("--policy", policy, "--device", "cpu", "--engine", "fused", "--search", "eas-lay")
    done = rhumb("solve", square, *words)
    assert (done.exit_code, done.stdout) == (4, "")
    assert "a layer on the glimpse is not linear" in done.stderr
    assert "Use engine torch (or auto)" in done.stderr


def test_pictures_without_matplotlib_are_exit_4(
    rhumb: Run, policy: Path, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The missing extra is named before the search begins."""
    monkeypatch.setattr("rhumbline.plots.canvas.find_spec", lambda name: None)
    monkeypatch.setattr(pipeline, "solve_task", never)
    done = rhumb("solve", square, "--policy", policy, "--plot")
    message = "error: pictures need matplotlib; get it with: pip install 'rhumbline[plots]'\n"
    assert (done.exit_code, done.stdout, done.stderr) == (4, "", message)


def test_a_plan_that_fails_verification_is_exit_5(
    rhumb: Run, policy: Path, square: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong tour is neither printed nor written."""
    monkeypatch.setattr(TSP, "decode", lambda *_: Tour((0, 1, 1, 3)))
    words = (
        "--policy",
        policy,
        "--attempts",
        1,
        "--device",
        "cpu",
        "--quiet",
        "--output",
        tmp_path / "out",
    )
    done = rhumb("solve", square, *words)
    message = "error: square: the tour visits city 20 2 times\n"
    assert (done.exit_code, done.stdout, done.stderr) == (5, "", message)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_search_without_a_tour_is_exit_5(
    rhumb: Run, policy: Path, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tour at the end of a search is a failure, not an empty success."""
    monkeypatch.setattr(pipeline, "solve_task", lambda *_: ([], False))
    done = rhumb("solve", square, "--policy", policy, "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (
        5,
        "",
        "error: the search ended without a plan\n",
    )


def test_an_interruption_while_reading_is_exit_130(
    rhumb: Run, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C before the search prints one word, no traceback."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(solve_run, "instances_from", interrupted)
    done = rhumb("solve", square)
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_an_interruption_before_any_tour_says_so(
    rhumb: Run, policy: Path, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a plan there is nothing to print; the reason is printed even with --quiet."""
    monkeypatch.setattr(pipeline, "solve_task", lambda *_: ([], True))
    done = rhumb("solve", square, "--policy", policy, "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (
        130,
        "",
        "interrupted before any plan was found\n",
    )


def test_an_interruption_while_checking_loses_nothing(
    rhumb: Run, policy: Path, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C between the search and its result the tour is verified and printed."""
    solve_task = pipeline.solve_task

    def late(*words: Any) -> None:
        solve_task(*words)
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "solve_task", late)
    done = rhumb("solve", square, "--policy", policy, "--attempts", 8, "--device", "cpu", "--quiet")
    assert (done.exit_code, done.stderr) == (130, "")
    assert done.stdout.startswith("square  cost ")


def test_our_own_bugs_keep_their_traceback(
    rhumb: Run, policy: Path, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only errors that the user can fix are shortened to a line."""
    monkeypatch.setattr(pipeline, "solve_task", lambda *_: 1 / 0)
    done = rhumb("solve", square, "--policy", policy, "--quiet")
    assert (done.exit_code, type(done.exception)) == (1, ZeroDivisionError)
