"""Shell completion: what a shell is told after each Tab, and the scripts that ask for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = "import sys; sys.argv[0] = 'rhumb'; from rhumbline.cli import main; main()"


def answer(**variables: str) -> str:
    """Return what `rhumb` prints to a shell that asks by these variables."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-c", START]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


def completions(*words: str) -> list[str]:
    """Return what bash offers for the last of some words."""
    asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    return answer(_RHUMB_COMPLETE="complete_bash", **asked).split()


def test_commands_options_and_values_are_completed() -> None:
    """The beginning of a command, of an option, and of a value from a fixed list."""
    assert completions("rhumb", "so") == ["solve"]
    assert completions("rhumb", "solve", "--sec") == ["--seconds"]
    assert completions("rhumb", "solve", "--device", "cu") == ["cuda"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    """The script names the variable by which the shell asks."""
    script = answer(_RHUMB_COMPLETE=f"source_{shell}")
    assert f"_RHUMB_COMPLETE=complete_{shell}" in script
