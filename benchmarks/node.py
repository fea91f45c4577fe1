"""Many commands within one limit, on a GPU node that is paid by the minute.

    python benchmarks/node.py benchmarks/plans/strategies.txt --limit 560 --out DIR

A plan has a command in each line; # begins a comment. What the first characters mean:

    & COMMAND   side by side with the other such lines, before anything else: a short run of what follows, so that its
                kernels are compiled on all cores at once instead of one after another. Their output is thrown away.
    ~ COMMAND   beside everything that follows, for work that leaves the GPU alone.
    COMMAND     one after another. Each may take what is left of the limit, or `@60 COMMAND` sixty seconds of it.

`python` is this interpreter, and the package is found without being installed. Everything goes to DIR/log.txt as it
comes, with the clock and the exit code of each command; a command that fails or is cut off does not stop the rest.
$OUT in a command is DIR, for files of theirs. Try a plan with --dry first: it looks whether each file is there and runs
nothing.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
COMPILING = 150.0  # seconds that commands side by side may take at most


@dataclass(frozen=True)
class Line:
    """A command of a plan."""

    kind: str  # "&", "~" or ""
    words: tuple[str, ...]
    most: float | None = None  # seconds

    @property
    def text(self) -> str:
        return shlex.join(self.words)


def line_of(text: str) -> Line:
    """A line of a plan that is neither empty nor a comment."""
    kind = text[0] if text[0] in "&~" else ""
    words = shlex.split(text[len(kind) :], comments=True)
    most = float(words.pop(0)[1:]) if words[0].startswith("@") else None
    return Line(kind, tuple(sys.executable if word == "python" else word for word in words), most)


def read_plan(path: Path) -> list[Line]:
    """All commands of a plan."""
    texts = (text.strip() for text in path.read_text(encoding="utf-8").splitlines())
    return [line_of(text) for text in texts if text and not text.startswith("#")]


def missing(lines: Sequence[Line]) -> list[str]:
    """Scripts, suites and recipes that a plan names and that are not there."""
    named = {word for line in lines for word in line.words[1:] if word.endswith((".py", ".toml"))}
    return sorted(word for word in named if not (ROOT / word).exists())


class Node:
    """Runs commands and keeps the clock."""

    def __init__(self, out: Path, limit: float) -> None:
        self.began, self.limit, self.out = time.monotonic(), limit, str(out.resolve())
        out.mkdir(parents=True, exist_ok=True)
        self.log = (out / "log.txt").open("w", encoding="utf-8")
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        more = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
        self.environment = os.environ | more

    @property
    def left(self) -> float:
        """Seconds."""
        return self.limit - (time.monotonic() - self.began)

    def say(self, text: str) -> None:
        """To the log, and to whoever is watching."""
        line = f"== {time.monotonic() - self.began:.0f} s: {text}"
        print(line, flush=True)
        print(line, file=self.log, flush=True)

    def start(self, line: Line, output: IO[str] | int) -> "subprocess.Popen[str]":
        """A command in a process group of its own, so that all it starts can be ended with it."""
        words = [word.replace("$OUT", self.out) for word in line.words]
        both = {"stdout": output, "stderr": subprocess.STDOUT}
        return subprocess.Popen(words, cwd=ROOT, env=self.environment, text=True, start_new_session=True, **both)

    def finish(self, process: "subprocess.Popen[str]", seconds: float) -> str:
        """How it ended: its exit code, or that its time was up."""
        try:
            return f"exit {process.wait(max(seconds, 0.0))}"
        except subprocess.TimeoutExpired:
            self.end(process)
            return "cut off"

    def end(self, process: "subprocess.Popen[str]") -> None:
        """As Ctrl-C would, so that results are kept; after three seconds for good."""
        for kind, seconds in ((signal.SIGINT, 3.0), (signal.SIGKILL, None)):
            if process.poll() is None:
                os.killpg(process.pid, kind)
                try:
                    process.wait(seconds)
                except subprocess.TimeoutExpired:
                    continue

    def close(self) -> None:
        """The log."""
        self.log.close()

    def run(self, lines: Sequence[Line]) -> None:
        """The whole plan."""
        self.together([line for line in lines if line.kind == "&"])
        beside = [(line, self.start(line, self.log)) for line in lines if line.kind == "~"]
        for line in (line for line in lines if not line.kind):
            if self.left < 1.0:
                self.say(f"no time for {line.text}")
                continue
            self.say(line.text)
            ended = self.finish(self.start(line, self.log), min(line.most or self.left, self.left))
            self.say(ended)
        for line, process in beside:
            self.say(f"{self.finish(process, self.left)}: {line.text}")

    def together(self, lines: Sequence[Line]) -> None:
        """Side by side; only how they ended is kept."""
        if not lines:
            return
        self.say(f"{len(lines)} commands side by side")
        most = min(COMPILING, self.left)
        running = [(line, self.start(line, subprocess.DEVNULL)) for line in lines]
        last = time.monotonic() + most
        for line, process in running:
            self.say(f"{self.finish(process, last - time.monotonic())}: {line.text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--limit", type=float, default=560.0, help="seconds")
    parser.add_argument("--out", type=Path, default=Path("runs/node"))
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    lines = read_plan(args.plan)
    absent = missing(lines)
    if absent:
        raise SystemExit(f"{args.plan}: {', '.join(absent)} is not there")
    if args.dry:
        print("\n".join(f"{line.kind or ' '} {line.text}" for line in lines))
        return
    with closing(Node(args.out, args.limit)) as node:
        node.run(lines)


if __name__ == "__main__":
    main()
