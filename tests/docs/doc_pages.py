"""The pages of the documentation, and the blocks of code on them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
]
FENCE = re.compile(r"^( *)```([\w-]*)$")
# A comment before a block says that no test runs it, and why.
NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str  # below the root of the repository
    line: int
    language: str
    code: str
    not_run: str | None

    @property
    def place(self) -> str:
        """Where the block is, for messages."""
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    """Return the path of a page below the root."""
    return page.relative_to(ROOT).as_posix()


def read_blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    rows = page.read_text(encoding="utf-8").splitlines()
    start: int | None = None
    language = ""
    for number, row in enumerate(rows):
        fence = FENCE.match(row)
        if fence is None:
            continue
        if start is None:
            start = number
            language = fence[2]
            continue
        code = "\n".join(rows[start + 1 : number]) + "\n"
        yield Block(name_of(page), start + 1, language, code, reason_before(rows[:start]))
        start = None


def reason_before(rows: list[str]) -> str | None:
    """Return why the block after these rows is not run; None if it is."""
    for row in reversed(rows):
        if row.strip():
            found = NOT_RUN.match(row.strip())
            return found[1] if found else None
    return None


def rhumb_commands(block: Block) -> Iterator[list[str]]:
    """Yield the words behind `rhumb` of each such command in a block.

    Grammars such as `rhumb solve FILE [--set FIELD=VALUE ...]` are left out.
    """
    text = re.sub(r"\\\n\s*", " ", block.code)
    for row in text.splitlines():
        line = row.strip().removeprefix("$ ")
        for command in re.split(r"\s(?:&&|\||>)\s", re.sub(r"\s#\s.*", "", line)):
            words = command.strip()
            if words.startswith("rhumb ") and not re.search(r"\[|\.\.\.|\$", words):
                yield shlex.split(words)[1:]
