"""Damaged files of every format: each is read, or refused in one short sentence.

    python -m tools.campaigns parsers --seconds 600
    python -m tools.campaigns.parsers "job shop" 1234 0      the file of a fault, and what happens

Files are read in forked workers with bounded memory and time. A worker reads a batch; if it dies
or hangs, the file it was at is the fault, and another worker goes on behind it.
"""

import json
import mmap
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rhumbline.errors import InputError
from tools.campaigns.file_samples import Format, formats
from tools.campaigns.record import CampaignResult, Effort


@dataclass(frozen=True)
class ParserLimits:
    """What a reader may take, and how the work is cut."""

    seconds_per_file: float = 2.0  # of processor time, so that a busy machine makes no faults
    waiting_seconds: float = 60.0  # before a worker that waits, or ignores its alarm, is killed
    extra_memory: int = 2 * 2**30  # bytes of address space beyond those of a fresh worker
    batch: int = 400
    message_characters: int = 500
    max_faults: int = 20  # of a format; more of them are counted only


LIMITS = ParserLimits()
EFFORT = Effort(min_seconds=5.0, weight=3.0)


class TooSlow(BaseException):
    """A reader took too long; no reader catches this."""


@dataclass
class Tally:
    """What became of the files of one format."""

    read: int = 0
    refused: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list[str])


def run(seconds: float, seed: int) -> CampaignResult:
    """Read damaged files of all formats, in turns, until the time is up."""
    ends = time.monotonic() + seconds
    read_samples()
    tallies = {name: Tally() for name in formats()}
    done = 0
    while time.monotonic() < ends:
        for name in formats():
            read_batch(name, seed, done, LIMITS.batch, tallies[name])
            if time.monotonic() > ends:
                break
        done += LIMITS.batch
    return summarise(tallies)


def read_samples() -> None:
    """Read all valid samples, so that workers inherit every import."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in formats().values():
            for sample in kind.samples:
                path = Path(folder, kind.name)
                path.write_bytes(sample)
                kind.read(path)


def summarise(tallies: dict[str, Tally]) -> CampaignResult:
    """Return the figures of all formats."""
    figures: dict[str, float | int | str] = {}
    faults: list[str] = []
    for name, tally in tallies.items():
        files = tally.read + tally.refused + len(tally.faults)
        rate = files / max(tally.seconds, 1e-9)
        words = f"{files} files, {tally.read} read, {tally.refused} refused, {rate:.0f} a second"
        figures[name] = words
        faults += tally.faults[: LIMITS.max_faults]
    tried = sum(t.read + t.refused + len(t.faults) for t in tallies.values())
    return CampaignResult("parsers", tried, tuple(faults), figures)


def read_batch(name: str, seed: int, first: int, count: int, tally: Tally) -> None:
    """Read some damaged files of a format, each worker as far as it comes."""
    begins = time.monotonic()
    number = first
    while number < first + count:
        number = run_worker(name, seed, range(number, first + count), tally)
    tally.seconds += time.monotonic() - begins


def run_worker(name: str, seed: int, numbers: range, tally: Tally) -> int:
    """Let a forked worker read files; return the number of the first file it did not reach."""
    progress = mmap.mmap(-1, 8)
    reading, writing = os.pipe()
    worker = os.fork()
    if not worker:
        os.close(reading)
        work(name, seed, numbers, progress, writing)
    os.close(writing)
    reports = b"".join(follow_worker(worker, reading, progress))
    _, status = os.waitpid(worker, 0)
    for line in reports.splitlines():
        outcome = json.loads(line)
        tally.read += outcome["read"]
        tally.refused += outcome["refused"]
        tally.faults += outcome["faults"]
    at = int.from_bytes(progress, "little")
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        return numbers.stop
    why = "did not end in time" if os.WIFSIGNALED(status) else f"ended with status {status}"
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        why = f"died of signal {os.WTERMSIG(status)}"
    tally.faults.append(describe(name, seed, at, f"the worker {why}"))
    return at + 1


def follow_worker(worker: int, reading: int, progress: mmap.mmap) -> Iterator[bytes]:
    """Yield what a worker reports; kill it if it stays at one file for too long."""
    at = bytes(progress)
    since = time.monotonic()
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], 0.5)
            if ready:
                piece = pipe.read(2**16)
                if not piece:
                    return
                yield piece
            now = bytes(progress)
            if now != at:
                at = now
                since = time.monotonic()
            elif time.monotonic() - since > LIMITS.waiting_seconds:
                os.kill(worker, signal.SIGKILL)
                return


def work(name: str, seed: int, numbers: range, progress: mmap.mmap, writing: int) -> NoReturn:
    """Read the files of a batch in a worker and report in one line at a time."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, sys.stderr.fileno())
    signal.signal(signal.SIGPROF, raise_too_slow)
    limit_memory()
    kind = formats()[name]
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        path = Path(folder, kind.name)
        for number in numbers:
            progress[:] = number.to_bytes(8, "little")
            outcome = read_damaged(kind, name, seed, number, path)
            report = {"read": 0, "refused": 0, "faults": []}
            if outcome in ("read", "refused"):
                report[outcome] = 1
            else:
                report["faults"] = [describe(name, seed, number, outcome)]
            os.write(writing, json.dumps(report).encode() + b"\n")
    os._exit(0)


def memory_folder() -> str | None:
    """Return a folder that lives in memory, if the system has one."""
    folder = "/dev/shm"
    return folder if os.access(folder, os.W_OK) else None


def limit_memory() -> None:
    """Bound the address space of this process to what it has, and the extra memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + LIMITS.extra_memory
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def raise_too_slow(number: int, frame: FrameType | None) -> None:
    """Handle the alarm of a file."""
    raise TooSlow


def damaged_content(name: str, seed: int, number: int) -> bytes:
    """Return the damaged file of a number; equal arguments give equal bytes."""
    return formats()[name].make_damaged(random.Random(f"{name} {seed} {number}"))


def read_damaged(kind: Format, name: str, seed: int, number: int, path: Path) -> str:
    """Read one damaged file: "read", "refused", or what went wrong."""
    path.write_bytes(damaged_content(name, seed, number))
    signal.setitimer(signal.ITIMER_PROF, LIMITS.seconds_per_file)
    try:
        kind.read(path)
    except InputError as error:
        return judge_message(str(error).replace(str(path.parent), ""))
    except TooSlow:
        return f"took more than {LIMITS.seconds_per_file:g} s of processor time"
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return f"{type(error).__name__} at {where}: {str(error)[:100]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "read"


def judge_message(message: str) -> str:
    """Return "refused" for a good message, or what is wrong with it."""
    if not message:
        return "a refusal without words"
    if len(message) > LIMITS.message_characters:
        return f"a message of {len(message)} characters: {message[:200]!r}"
    if not message.isprintable():
        return f"control characters in {message!r}"
    return "refused"


def describe(name: str, seed: int, number: int, what: str) -> str:
    """Return a fault with what is needed to see it again."""
    return f'{what} (python -m tools.campaigns.parsers "{name}" {number} {seed})'


def show(name: str, number: int, seed: int) -> None:
    """Print a damaged file and what comes of reading it here, with a traceback."""
    kind = formats()[name]
    content = damaged_content(name, seed, number)
    print(content[:2_000], len(content), "bytes")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, kind.name)
        path.write_bytes(content)
        print(kind.read(path))


if __name__ == "__main__":
    show(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
