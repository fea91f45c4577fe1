"""`rhumb sample` and `rhumb info`."""

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rhumbline import __version__, kernels
from rhumbline.checkpoint import read_tensor_file, shipped_checkpoints, write_tensor_file
from rhumbline.formats.dataset import load_dataset

Run = Callable[..., Any]


def test_samples_are_those_of_their_seed(rhumb: Run, tmp_path: Path) -> None:
    """The file holds the numbers of a CPU generator with that seed; equal seeds give
    equal bytes.
    """
    one, two = tmp_path / "deep" / "one.safetensors", tmp_path / "one.safetensors"
    done = rhumb("sample", "tsp", "--size", 7, "--count", 3, "--seed", 4, "--out", one)
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{one}\n", "")
    rhumb("sample", "tsp", "--size", 7, "--count", 3, "--seed", 4, "--out", two)
    assert one.read_bytes() == two.read_bytes()
    expected = torch.rand(3, 7, 2, generator=torch.Generator().manual_seed(4)).numpy()
    np.testing.assert_array_equal(
        np.stack([i.planar_xy for i in load_dataset(one)]), expected.astype(np.float64)
    )


def test_samples_are_not_overwritten(rhumb: Run, tmp_path: Path) -> None:
    """An existing file stays, unless --force is given."""
    path = tmp_path / "a.safetensors"
    path.write_text("precious")
    done = rhumb("sample", "tsp", "--size", 3, "--count", 1, "--out", path)
    message = f"error: {path}: exists already; give --force to replace it\n"
    assert (done.exit_code, done.stdout, done.stderr, path.read_text()) == (
        3,
        "",
        message,
        "precious",
    )
    assert (
        rhumb("sample", "tsp", "--size", 3, "--count", 1, "--out", path, "--force").exit_code == 0
    )
    assert len(load_dataset(path)) == 1


def test_samples_can_be_solved(rhumb: Run, policy: Path, tmp_path: Path) -> None:
    """The output of `rhumb sample` is input for `rhumb solve`."""
    path = tmp_path / "s.safetensors"
    rhumb("sample", "tsp", "--size", 5, "--count", 4, "--out", path)
    done = rhumb(
        "solve",
        path,
        "--policy",
        policy,
        "--search",
        "greedy",
        "--device",
        "cpu",
        "--quiet",
        "--json",
    )
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == [
        f"s-000{i}" for i in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_samples_can_be_mutated(rhumb: Run, tmp_path: Path, problem: str) -> None:
    """Power 0 gives the uniform instances; with power 1 all points, the depot too, lie on
    one line.
    """
    for name, words in {"plain": [], "zero": ["--power", 0], "one": ["--power", 1]}.items():
        mutation = ["--mutate", "axis", *words] if words else []
        out = tmp_path / f"{name}.safetensors"
        assert (
            rhumb("sample", problem, "--size", 9, "--count", 4, *mutation, "--out", out).exit_code
            == 0
        )
    plain, zero, one = (
        [i.planar_xy for i in load_dataset(tmp_path / f"{n}.safetensors")]
        for n in ("plain", "zero", "one")
    )
    np.testing.assert_array_equal(plain, zero)
    assert all((points == points[0]).all(axis=0).any() for points in one)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["tsp"], 2),
        (["tsp", "--power", 0.5, "--out", "a.safetensors"], 2),
        (["tsp", "--mutate", "cluster", "--power", 1.5, "--out", "a.safetensors"], 2),
        (["tsp", "--mutate", "clutser", "--out", "a.safetensors"], 3),
        (["tsp", "--out", "a.tsp"], 2),
        (["vrp", "--out", "a.safetensors"], 2),
        (["tsp", "--count", 0, "--out", "a.safetensors"], 2),
        (["tsp", "--count", 10**12, "--out", "a.safetensors"], 2),
        (["tsp", "--size", 1001, "--count", 1, "--out", "a.safetensors"], 3),
        (["tsp", "--out", "/proc/nothing/a.safetensors"], 3),
    ],
)
def test_what_cannot_be_sampled_is_refused(
    rhumb: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[object], code: int
) -> None:
    """Wrong usage is exit 2, unusable sizes and paths are exit 3, and no file is left."""
    monkeypatch.chdir(tmp_path)
    done = rhumb("sample", *words)
    assert (done.exit_code, done.stdout, list(tmp_path.iterdir())) == (code, "", [])
    assert "Traceback" not in done.stderr


def test_info_shows_versions_devices_and_engines(rhumb: Run) -> None:
    """`info` shows what a bug report needs, as JSON and as text."""
    facts = json.loads(rhumb("info", "--json").stdout)
    assert list(facts) == ["versions", "devices", "engines", "checkpoints"]
    assert facts["versions"]["rhumbline"] == __version__
    assert facts["versions"]["python"] == platform.python_version()
    assert facts["engines"]["torch"] is None
    assert [c["name"] for c in facts["checkpoints"]] == list(shipped_checkpoints())
    done = rhumb("info")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()][:4] == [
        "versions",
        "devices",
        "engine",
        "engine",
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the fused engine may run here")
def test_info_says_why_an_engine_is_missing(rhumb: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason comes with a remedy."""
    reason = "the fused engine needs numba on a CPU; get it with: pip install 'rhumbline[cpu]'"
    monkeypatch.setattr(kernels, "why_not_numba", lambda: reason)
    assert json.loads(rhumb("info", "--json").stdout)["engines"]["fused"] == reason
    assert f"engine       fused: not available: {reason}" in rhumb("info").stdout


def test_info_describes_a_checkpoint(rhumb: Run, policy: Path) -> None:
    """Training facts, number of weights and latent size come from the file."""
    facts = json.loads(rhumb("info", policy, "--json").stdout)
    known = {
        "name": "tiny",
        "problem": "tsp",
        "size": 20,
        "trained_at": "20",
        "updates": 7,
        "latent": 4,
    }
    assert facts | known | {"validation": {"greedy": 4.5}} == facts
    lines = rhumb("info", policy).stdout.splitlines()
    assert lines[0] == "tiny: tsp, trained at 20 cities, 7 updates"
    assert lines[1] == f"{facts['weights']:,} weights, latent space of 4 dimensions"
    assert lines[2] == "validation greedy 4.5000"


def test_info_calls_samples_of_a_single_policy_samples(rhumb: Run) -> None:
    """A policy without latents has no "best latent"."""
    assert "best latent 7." in rhumb("info", "tsp100").stdout
    single = rhumb("info", "tsp100-single").stdout
    assert "best sample 7." in single
    assert "best latent" not in single


def test_info_on_an_unknown_checkpoint_is_exit_3(rhumb: Run) -> None:
    """The error names the checkpoint."""
    done = rhumb("info", "unknown")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith("error: no checkpoint 'unknown'")


ODD_FACTS: dict[str, dict[str, Any]] = {
    "validation": {"validation": {"greedy\x1b[31m\n" * 99: 1e308, "b": 10**300}},
    "versions": {"versions": {"torch": "\ud800\x07" + "9" * 10**4}},
    "recipe-deep": {"recipe": "[" * 10**5},
    "recipe-nested": {"recipe": "[" * 900 + "]" * 900},
    "recipe-nan": {"recipe": '{"sizes": [NaN], "lr": NaN}'},
    "recipe-sizes": {"recipe": '{"sizes": [[1], "x", null, -3, 1e400]}'},
    "updates": {"updates": 10**4000},
}


@pytest.mark.parametrize("name", ODD_FACTS)
def test_info_on_odd_facts(rhumb: Run, policy: Path, tmp_path: Path, name: str) -> None:
    """Lines are short and printable, and --json is JSON."""
    tensors, header = read_tensor_file(policy)
    header["about"].update(ODD_FACTS[name])
    odd = tmp_path / "odd.safetensors"
    write_tensor_file(odd, tensors, header)
    done = rhumb("info", odd)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("odd: tsp, trained at 20 cities")
    assert all(line.isprintable() and len(line) < 300 for line in lines)
    text = rhumb("info", odd, "--json").stdout
    facts = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert facts["trained_at"] == "20"
