"""What `make gpu-check` does without a GPU, and how it judges what it has measured."""

import importlib.util
import json
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch

TOOL = Path(__file__).parents[1] / "tools" / "gpu_check.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """Load the program as a module."""
    spec = importlib.util.spec_from_file_location("gpu_check", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """It says so and exits with 4, as whatever needs something that is missing."""
    assert tool.main([]) == 4
    assert "needs an NVIDIA GPU" in capsys.readouterr().err


def test_rates_beside_recorded_ones(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rate that has fallen or was not measured counts; a new one does not."""
    file = tmp_path / "rates.json"
    assert tool.read_recorded(file, "H200") == {}
    tool.record_rates(file, "H100", {"a": 1.0})
    tool.record_rates(file, "H200", {"same": 100.0, "slower": 100.0, "gone": 100.0})
    recorded = tool.read_recorded(file, "H200")
    assert tool.read_recorded(file, "H100") == {"a": 1.0}
    assert tool.print_rates({"same": 95.0, "slower": 80.0, "new": 5.0}, recorded) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "FALLEN" in line] == ["slower", "gone"]
    assert "recorded 100.0/s: 0.95x" in lines[0]
    assert "not recorded" in lines[2]


def test_rates_of_plain_torch_only_have_to_be_measured(tool: ModuleType) -> None:
    """They depend on the host, so a lower one is no fault of the kernels."""
    recorded = {"rollout: a, torch": 100.0, "rollout: a, fused": 100.0}
    lower = {"rollout: a, torch": 50.0, "rollout: a, fused": 95.0}
    assert tool.print_rates(lower, recorded) == 0
    assert tool.print_rates({"rollout: a, fused": 95.0}, recorded) == 1


def test_two_rates_of_one_name_are_refused(tool: ModuleType) -> None:
    """The second would hide the first."""
    rates = {"rollout: a, fused": 1.0}
    with pytest.raises(ValueError, match="two micro-benchmarks measure 'rollout: a, fused'"):
        tool.add_rates(rates, {"rollout: a, fused": 2.0})


def test_lines_of_benchmarks_are_read(tool: ModuleType, tmp_path: Path) -> None:
    """Where a line has no rate, calls per second stand for it."""
    file = tmp_path / "lines.jsonl"
    case = {"benchmark": "rollout", "case": "TSP100", "engine": "fused", "milliseconds": 2.0}
    cases = [case | {"rate": 7.0}, case | {"engine": "torch", "rate": None}]
    file.write_text("".join(json.dumps(line) + "\n" for line in cases))
    assert tool.read_rates(file) == {"rollout: TSP100, fused": 7.0, "rollout: TSP100, torch": 500.0}
    assert tool.read_rates(tmp_path / "none") == {}


def test_checks_that_fail_or_come_too_late(
    tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """One broken kernel hides no other, and what had no time is not passed over."""
    checks = {
        "good": lambda: None,
        "bad": lambda: tool.require(False, "differs"),
        "last": lambda: None,
    }
    assert tool.run_checks(checks, time.monotonic() + 60.0) == 1
    assert "bad" in capsys.readouterr().out.splitlines()[1]
    assert tool.run_checks(checks, time.monotonic() - 1.0) == 3


def test_measured_programs_exist(tool: ModuleType) -> None:
    """The micro-benchmarks are where the program looks for them."""
    for script, *_ in tool.BENCHMARKS:
        assert (TOOL.parents[1] / "benchmarks" / "micro" / script).exists()
    assert len(tool.parity_checks()) == 10


@pytest.mark.skipif(torch.cuda.is_available(), reason="the checks run on the GPU there")
def test_rollouts_of_the_cpu_kernel_pass(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same check holds for the fused engine of a CPU."""
    monkeypatch.setattr(tool, "DEVICE", "cpu")
    tool.check_rollouts("cvrp", 20)
