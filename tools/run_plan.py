"""Many commands within one limit, on a GPU node that is paid by the minute.

    python tools/run_plan.py tools/plans/tables.txt --limit 560 --out DIR

A plan has a command in each line; # begins a comment. What the first characters mean:

    & COMMAND    side by side with the other such lines, before anything else: a short run of what
                 follows, so that its kernels are compiled on all cores at once instead of one
                 after another. The output is thrown away.
    ~ COMMAND    beside everything that follows, for work that leaves the GPU alone.
    COMMAND      one after another. Each may take what is left of the limit.
    @60 COMMAND  the same, of which it may take sixty seconds at most.

`python` is this interpreter, and the package is found without being installed. Everything goes to
DIR/log.txt as it comes, with the clock and the exit code of each command; a command that fails or
is cut off does not stop the rest. What is cut off is interrupted as by Ctrl-C, so that it can keep
its results, and killed three seconds later. $OUT in a command is DIR, for files of theirs. Try a
plan with --dry first: it looks whether all programs and files are there.

With --kernels FILE what an earlier call has compiled is not compiled again: Triton's kernels are
unpacked from there, if there is such a file, and those of the whole plan packed into
DIR/kernels.tgz, a few megabytes to bring along next time. They hold until their code changes, on
machines of the same make.

A plan that is longer than a call goes on in the next with --done FILE: what ended well, or had all
the seconds that its line gives it, is written there and left out when it is found there. What is
side by side is run every time.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
COMPILING = 240.0  # seconds that commands side by side may take at most
GRACE = 3.0  # seconds between an interruption and the end


@dataclass(frozen=True)
class Line:
    """A command of a plan."""

    kind: str  # "&", "~" or ""
    words: tuple[str, ...]
    most: float = float("inf")  # seconds

    @property
    def text(self) -> str:
        """The command as a shell would read it."""
        return shlex.join(self.words)

    @property
    def title(self) -> str:
        """The text with its seconds: a line that gets more of them is another one."""
        return self.text if self.most == float("inf") else f"@{self.most:g} {self.text}"


@dataclass(frozen=True)
class Running:
    """A command that was started, or could not be."""

    line: Line
    process: "subprocess.Popen[str] | None"

    @property
    def over(self) -> bool:
        """Whether the command has ended, or was never started."""
        return self.process is None or self.process.poll() is not None

    def wait(self, until: float) -> None:
        """Wait for the end of the command, up to a moment."""
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(max(until - time.monotonic(), 0.0))

    def send(self, kind: signal.Signals) -> None:
        """To the command and whatever it has started."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, kind)

    @property
    def ending(self) -> str:
        """How the command ended, in words."""
        return (
            "not started: no such program"
            if self.process is None
            else f"exit {self.process.returncode}"
        )


def line_of(text: str) -> Line:
    """A line of a plan that is neither empty nor a comment."""
    kind = text[0] if text[0] in "&~" else ""
    words, most = shlex.split(text[len(kind) :], comments=True), float("inf")
    if words and words[0].startswith("@"):
        most = float(words.pop(0)[1:])
    if not words or not most > 0 or (kind and most != float("inf")):
        raise ValueError("expected a command, or @SECONDS and a command that runs by itself")
    return Line(kind, tuple(sys.executable if word == "python" else word for word in words), most)


def read_plan(path: Path) -> list[Line]:
    """All commands of a plan."""
    lines: list[Line] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            lines += (
                [line_of(text.strip())] if text.strip() and not text.strip().startswith("#") else []
            )
        except ValueError as error:
            raise SystemExit(f"{path}, line {number}: {error}") from error
    return lines


def missing(lines: Sequence[Line]) -> list[str]:
    """Programs, scripts, suites and recipes that a plan names and that are not there."""
    programs = {line.words[0] for line in lines}
    files = {
        word
        for line in lines
        for word in line.words[1:]
        if word.endswith((".py", ".toml")) and "$" not in word
    }
    found = {p for p in programs if not shutil.which(p)} | {
        f for f in files if not (ROOT / f).exists()
    }
    return sorted(found)


class Node:
    """Runs commands and keeps the clock."""

    def __init__(self, out: Path, limit: float, done: Path | None = None) -> None:
        self.began, self.limit, self.out = time.monotonic(), limit, str(out.resolve())
        out.mkdir(parents=True, exist_ok=True)
        self.log = (out / "log.txt").open("a", encoding="utf-8")
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
        }
        self.started: list[Running] = []
        self.done = done

    def close(self) -> None:
        """End whatever still runs."""
        self.finish([one for one in self.started if not one.over], 0.0)
        self.log.close()

    @property
    def left(self) -> float:
        """Seconds until commands have to be interrupted."""
        return self.limit - GRACE - (time.monotonic() - self.began)

    def say(self, text: str) -> None:
        """To the log, and to whoever is watching."""
        line = f"== {time.monotonic() - self.began:.0f} s: {text}"
        print(line, flush=True)
        print(line, file=self.log, flush=True)

    def start(self, line: Line, output: IO[str] | int) -> Running:
        """A command in a process group of its own, so that all it starts can be ended with it."""
        words = [word.replace("$OUT", self.out) for word in line.words]
        options: dict[str, Any] = {
            "stdout": output,
            "stderr": subprocess.STDOUT,
            "text": True,
            "env": self.environment,
        }
        process = None
        with suppress(OSError):
            process = subprocess.Popen(words, cwd=ROOT, start_new_session=True, **options)
        self.started.append(Running(line, process))
        return self.started[-1]

    def finish(self, running: Sequence[Running], seconds: float) -> list[str]:
        """How each of them ended; what is left at the time limit is cut off, and nothing
        they started stays.
        """
        until = time.monotonic() + seconds
        for one in running:
            one.wait(until)
        late = [one for one in running if not one.over]
        for one in late:
            one.send(signal.SIGINT)
        until = time.monotonic() + GRACE
        for one in late:
            one.wait(until)
        for one in running:
            one.send(signal.SIGKILL)
            one.wait(float("inf"))
        return [self.ended(one, one in late, seconds) for one in running]

    def ended(self, one: Running, late: bool, seconds: float) -> str:
        """How a command ended; also kept for the next call, if it is not to be run again."""
        ending = "cut off" if late else one.ending
        if (
            self.done
            and one.line.kind != "&"
            and (ending == "exit 0" or (late and seconds >= one.line.most))
        ):
            self.done.parent.mkdir(parents=True, exist_ok=True)
            with self.done.open("a", encoding="utf-8") as file:
                print(one.line.title, file=file)
        return ending

    def still_to_do(self, lines: Sequence[Line]) -> list[Line]:
        """Without what an earlier call has done."""
        done = (
            self.done.read_text(encoding="utf-8").splitlines()
            if self.done and self.done.exists()
            else []
        )
        return [line for line in lines if line.title not in done]

    def run(self, lines: Sequence[Line]) -> None:
        """The whole plan, or what is left of it."""
        lines = self.still_to_do(lines)
        self.together([line for line in lines if line.kind == "&"])
        beside = [self.start(line, self.log) for line in lines if line.kind == "~"]
        for line in (line for line in lines if not line.kind):
            if self.left < 1.0:
                self.say(f"no time for {line.text}")
                continue
            self.say(line.text)
            self.say(*self.finish([self.start(line, self.log)], min(line.most, self.left)))
        self.tell(beside, self.finish(beside, self.left))

    def together(self, lines: Sequence[Line]) -> None:
        """Side by side; only how they ended is kept."""
        if lines:
            self.say(f"{len(lines)} commands side by side")
            running = [self.start(line, subprocess.DEVNULL) for line in lines]
            self.tell(running, self.finish(running, min(COMPILING, self.left)))

    def tell(self, running: Sequence[Running], endings: Sequence[str]) -> None:
        """How several commands ended."""
        for one, ending in zip(running, endings, strict=True):
            self.say(f"{ending}: {one.line.text}")


def compiled_kernels() -> Path:
    """Where Triton keeps them; it notes whole paths, so they can only be brought back to the
    same place.
    """
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")


def unpack(kernels: Path) -> None:
    """Put those of an earlier call where Triton looks for them."""
    compiled_kernels().mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(kernels) as archive:
            archive.extractall(compiled_kernels(), filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SystemExit(
            f"{kernels}: is no archive of kernels ({error}); leave out --kernels, or delete it"
        ) from error


def pack(kernels: Path) -> None:
    """Machine code, what launches it and what is known about it; stages on the way there are
    large, and not needed.
    """
    place = compiled_kernels()
    with tarfile.open(kernels, "w:gz") as archive:
        for file in sorted(
            path for path in place.rglob("*") if path.suffix in (".cubin", ".json", ".so")
        ):
            archive.add(file, file.relative_to(place))


def stopped(*_: object) -> None:
    """What ends us, ends what we have started."""
    raise KeyboardInterrupt


def main() -> None:
    """Check a plan and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument("--limit", type=float, default=560.0, help="seconds")
    parser.add_argument("--out", type=Path, default=Path("runs/node"))
    parser.add_argument("--done", type=Path, default=None, help="what earlier calls have done")
    parser.add_argument("--kernels", type=Path, default=None, help="compiled by earlier calls")
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    lines = read_plan(args.plan)
    absent = missing(lines)
    if absent:
        raise SystemExit(f"{args.plan}: {', '.join(absent)} is not there")
    if args.dry:
        print("\n".join(f"{line.kind or ' '} {line.text}" for line in lines))
        return
    for kind in (
        signal.SIGTERM,
        signal.SIGINT,
    ):  # what is not ignored here is not ignored by what we start
        signal.signal(kind, stopped)
    if args.kernels and args.kernels.exists():
        unpack(args.kernels)
    try:
        with closing(Node(args.out, args.limit, args.done)) as node:
            node.run(lines)
    finally:
        if args.kernels:
            pack(args.out / "kernels.tgz")


if __name__ == "__main__":
    main()
