"""The console blocks of the site, run as a user types them."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, Block, read_blocks, rhumb_commands

BLOCKS = [
    block
    for page in PAGES
    for block in read_blocks(page)
    if block.language == "console" and block.not_run is None
]


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_console_blocks_run(block: Block, tmp_path: Path) -> None:
    """Every command of a console block ends with exit code 0, in a copy of a clone's folders."""
    for folder in ("examples", "recipes", "suites", "benchmarks"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for command in block.code.splitlines():
        if command.startswith("$ printf "):  # writes a small file
            subprocess.run(command[2:], shell=True, cwd=tmp_path, check=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    commands = list(rhumb_commands(block))
    assert commands, f"{block.place}: a console block without a command of rhumb"
    for words in commands:
        done = subprocess.run(
            [sys.executable, "-m", "rhumbline", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
