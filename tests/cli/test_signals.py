"""Signals while a solve prepares, and compilers that an interruption leaves behind."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

import pytest

from rhumbline import pipeline
from rhumbline.checkpoint import tensor_file
from rhumbline.cli import signals, solve_run
from rhumbline.cli.signals import SignalGate, end_quickly, leave_at_once
from rhumbline.kernels.background import run_in_background

Run = Callable[..., Any]


def send(number: int) -> None:
    """Send a signal to this process; its handler runs before this returns."""
    os.kill(os.getpid(), number)


def test_a_closed_gate_keeps_a_signal() -> None:
    """It raises where it is asked for, once; the handlers of before are back in the end."""
    before = signal.getsignal(signal.SIGTERM)
    with SignalGate() as gate:
        gate.close()
        send(signal.SIGTERM)
        with gate.raise_at_once():
            pass
        with pytest.raises(KeyboardInterrupt):
            gate.raise_if_received()
        gate.raise_if_received()
        with gate.raise_at_once(), pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_second_signal_raises_at_once() -> None:
    """Who sends two does not want to wait for plans."""
    with SignalGate() as gate:
        gate.close()
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM)


@pytest.mark.parametrize("place", ["prepare_output_paths", "match_plan_files", "load_policies"])
def test_a_signal_after_the_file_was_read_gives_a_plan(
    rhumb: Run, policy: Path, square: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Whatever the command does at that moment."""
    module = pipeline if place == "load_policies" else solve_run
    real = getattr(module, place)

    def interrupted(*words: Any) -> Any:
        send(signal.SIGTERM)
        return real(*words)

    monkeypatch.setattr(module, place, interrupted)
    done = rhumb("solve", square, "--policy", policy, "--attempts", 8, "--device", "cpu")
    assert done.exit_code == 130
    assert done.stdout.startswith("square  cost 40   gap 0.00% to 40 (best known)")
    assert "from construction   0 attempts" in done.stdout
    assert done.stderr.endswith("interrupted; these plans are the best found so far\n")


def test_a_signal_while_weights_are_read_interrupts(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors would turn the exception of a handler into an error about the file."""
    real = tensor_file.read_header_and_tensors

    def interrupted(path: Path, device: Any) -> Any:
        try:
            send(signal.SIGINT)
            time.sleep(0.5)  # handlers run in the main thread, so not here
            return real(path, device)
        except KeyboardInterrupt as error:
            raise ValueError from error

    monkeypatch.setattr(tensor_file, "read_header_and_tensors", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tensor_file.read_tensor_file(policy)


# --- compilers


def test_work_in_the_background_returns_and_raises() -> None:
    """What it returns, and what it raises; in a thread it runs where it is called."""
    assert run_in_background(current_thread) is not main_thread()
    assert run_in_background(lambda: run_in_background(current_thread)) is not main_thread()
    with pytest.raises(ZeroDivisionError):
        run_in_background(lambda: 1 // 0)


def test_a_signal_does_not_wait_for_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread goes on, and the process ends without waiting for it; only then it is hasty."""
    ended: list[int] = []
    monkeypatch.setattr(signals.os, "_exit", ended.append)
    finish = Event()
    began = time.monotonic()

    def compile_for_long() -> None:
        send(signal.SIGINT)
        finish.wait(30)

    with pytest.raises(KeyboardInterrupt):
        run_in_background(compile_for_long)
    assert time.monotonic() - began < 10
    for code in (130, 0):
        with pytest.raises(SystemExit), leave_at_once(130):
            raise SystemExit(code)
    assert ended == [130]
    finish.set()


def test_one_of_several_training_processes_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that exchange tensors may crash while Python unloads; errors end as always."""
    ended: list[int] = []
    monkeypatch.setattr(signals.os, "_exit", ended.append)
    for processes, code in (("1", 0), ("2", 3), ("2", 0), ("2", None), ("2", 130)):
        monkeypatch.setenv("WORLD_SIZE", processes)
        with pytest.raises(SystemExit), end_quickly(["train", "a.toml"]):
            raise SystemExit(code)
    assert ended == [0, 0, 130]
