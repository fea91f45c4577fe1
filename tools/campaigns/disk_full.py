"""Outputs on full and limited disks: no traceback, no lost result, the documented exit code."""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from rhumbline.files import read
from rhumbline.files.plans import match_plan_files
from tools.campaigns.record import CampaignResult, Effort

ROOT = Path(__file__).parents[2]
FULL = "/dev/full"
FILES = ("harbour100.tsp", "bakery80.vrp", "workshop12.jsp")
SUFFIXES = {".tsp": ".tour", ".vrp": ".sol", ".jsp": ".sched"}
# Codes that docs/guide/solve.md gives: done, a place cannot be written, an output has failed.
CODES = {"solve": {0, 6}, "train": {0, 3, 6}, "bench": {0, 3, 6}, "info": {0, 6}}
MAX_SECONDS = 120.0  # of one process, which may have to compile a kernel
EFFORT = Effort(min_seconds=12.0)
RECIPE = """problem = "tsp"
size = 8
batch = 4
updates = 3
report = 0.0
[policy]
width = 16
heads = 2
layers = 1
hidden = 16
latent = 4
[objective]
latents = 4
starts = 4
[validation]
count = 4
latents = 2
"""
SUITE = """name = "small"
seeds = [0]
[[set]]
name = "files"
problem = "tsp"
files = "{folder}/*.tsp"
[[method]]
name = "greedy"
strategy = "greedy"
attempts = 1
"""


@dataclass(frozen=True)
class Ended:
    """A process that has ended, and what to run to see it again."""

    words: Sequence[str]
    limit: int | None  # bytes of a file
    code: int | None  # None: it was still running after `MAX_SECONDS`
    stdout: str
    stderr: str

    def describe(self, fault: str) -> str:
        """Return a sentence about a fault of this process."""
        command = " ".join(self.words)
        limits = "" if self.limit is None else f" (files of at most {self.limit} bytes)"
        return f"{fault}: rhumb {command}{limits}: exit {self.code}: {self.stderr[-300:]!r}"


@dataclass
class Tally:
    """What has been tried and what went wrong."""

    tried: int = 0
    faults: list[str] = field(default_factory=list[str])
    codes: Counter[str] = field(default_factory=Counter[str])

    def check(self, ended: Ended) -> None:
        """Count a process, and check what holds for each of them."""
        verb = ended.words[0]
        self.tried += 1
        self.codes[f"{verb}, exit {ended.code}"] += 1
        if "Traceback" in ended.stderr or "Exception ignored" in ended.stderr:
            self.faults.append(ended.describe("a traceback"))
        elif ended.code not in CODES[verb]:
            self.faults.append(ended.describe("an exit code that is not documented"))

    def expect(self, holds: bool, fault: str, ended: Ended) -> None:
        """Keep a fault unless something holds."""
        if not holds:
            self.faults.append(ended.describe(fault))


def run(seconds: float, seed: int) -> CampaignResult:
    """Run commands with failing outputs until the time is up, each kind as often as the others."""
    rng = random.Random(seed)
    tally = Tally()
    ends = time.monotonic() + seconds
    trials = [try_solve, try_streams, try_other_streams, try_bench, try_train]
    rng.shuffle(trials)
    for trial in cycle(trials):
        with tempfile.TemporaryDirectory() as folder:
            trial(Path(folder), rng, tally)
        if time.monotonic() > ends:
            break
    figures: dict[str, float | int | str] = dict(sorted(tally.codes.items()))
    return CampaignResult("disk_full", tally.tried, tuple(tally.faults), figures)


def try_solve(folder: Path, rng: random.Random, tally: Tally) -> None:
    """Solve a file with outputs that are larger than files may be.

    The result is printed in any case; a plan is there as a whole or not at all, and the exit code
    says whether all outputs are.
    """
    source = ROOT / "examples" / rng.choice(FILES)
    limit = random_limit(rng, 100_000)
    out = folder / "out"
    words = [*solve_words(source, rng), "--json", "--output", str(out)]
    picture = rng.random() < 0.3
    if picture:
        words.append("--plot")
    traces = {"": True, str(folder / "trace"): limit > 1000, FULL: False}
    trace = rng.choice(list(traces))
    if trace:
        words += ["--trace", trace]
    ended = start(words, limit)
    tally.check(ended)
    results = [json.loads(line) for line in ended.stdout.splitlines()]
    tally.expect(len(results) == 1, "a lost result", ended)
    written = {path.suffix for path in out.iterdir()} if out.exists() else set[str]()
    plan = out / f"{source.stem}{SUFFIXES[source.suffix]}"
    if plan.suffix in written and results:
        instance = read(source)
        (kept,) = match_plan_files([instance], [plan])
        same = kept is not None and kept.cost(instance) == results[0]["cost"]
        tally.expect(same, "a plan that is not the result", ended)
    wanted = {plan.suffix, ".png"} if picture else {plan.suffix}
    complete = written == wanted
    tally.expect(written <= wanted, f"files that stay: {sorted(written)}", ended)
    if not complete or trace == FULL:
        tally.expect(ended.code == 6, "a failed output without exit 6", ended)
    elif traces[trace]:
        tally.expect(ended.code == 0, "a failure without a cause", ended)


def try_streams(folder: Path, rng: random.Random, tally: Tally) -> None:
    """Solve a file with a full or closed stdout or stderr; the plan is written in any case."""
    source = ROOT / "examples" / rng.choice(FILES)
    out = folder / "out"
    words = [*solve_words(source, rng), "--output", str(out)]
    stdout, stderr = random_streams(rng)
    ended = start(words, None, f"{stdout} {stderr}")
    check_streams(ended, stdout, stderr, tally)
    tally.expect(bool(stdout) or ended.stdout.count("\n") == 1, "a lost result", ended)
    plan = out / f"{source.stem}{SUFFIXES[source.suffix]}"
    tally.expect(plan.is_file(), f"a lost plan for {stdout} {stderr}", ended)


def try_other_streams(folder: Path, rng: random.Random, tally: Tally) -> None:
    """Run another command with a full or closed stdout or stderr; its files are written."""
    bench, results = bench_words(folder)
    train = train_words(folder)
    made = {"bench": results, "train": folder / "run" / "policy.safetensors", "info": None}
    words = rng.choice([bench, train, ["info", "tsp"]])
    stdout, stderr = random_streams(rng)
    ended = start(words, None, f"{stdout} {stderr}")
    check_streams(ended, stdout, stderr, tally)
    tally.expect(bool(stdout) or bool(ended.stdout), "a lost result", ended)
    file = made[words[0]]
    tally.expect(file is None or file.is_file(), "a lost file", ended)


def random_streams(rng: random.Random) -> tuple[str, str]:
    """Return redirections of stdout and stderr, each open, full or closed."""
    stdout = rng.choice(["", f">{FULL}", ">&-"])
    stderr = rng.choice(["", f"2>{FULL}", "2>&-"])
    return stdout, stderr


def check_streams(ended: Ended, stdout: str, stderr: str, tally: Tally) -> None:
    """Check that stderr costs nothing, and that a failed stdout is an error."""
    tally.check(ended)
    expected = 6 if stdout else 0
    tally.expect(ended.code == expected, f"a wrong code for {stdout} {stderr}", ended)


def bench_words(folder: Path) -> tuple[list[str], Path]:
    """Write a small suite; return the command that runs it, and the file of its results."""
    instances = folder / "instances"
    instances.mkdir()
    for number in range(3):
        text = (ROOT / "examples" / "harbour100.tsp").read_text()
        (instances / f"{number}.tsp").write_text(text.replace("harbour100", f"copy{number}"))
    suite = folder / "small.toml"
    suite.write_text(SUITE.format(folder=instances))
    results = folder / "results.jsonl"
    return ["bench", str(suite), "--out", str(results), "--device", "cpu"], results


def train_words(folder: Path) -> list[str]:
    """Write a small recipe; return the command that runs it."""
    recipe = folder / "tiny.toml"
    recipe.write_text(RECIPE)
    return ["train", str(recipe), "--out", str(folder / "run"), "--device", "cpu"]


def try_bench(folder: Path, rng: random.Random, tally: Tally) -> None:
    """Run a suite whose results do not fit on the disk, and go on when there is room."""
    words, results = bench_words(folder)
    tally.check(start(words, random_limit(rng, 10_000)))
    again = start(words, None)
    tally.check(again)
    tally.expect(again.code == 0, "a run that cannot go on", again)
    text = results.read_text() if results.exists() else ""
    names = [json.loads(line)["instance"] for line in text.splitlines()]
    tally.expect(len(names) == len(set(names)) == 3, f"results are {names}", again)


def try_train(folder: Path, rng: random.Random, tally: Tally) -> None:
    """Train into a folder in which policies, states or reports do not fit."""
    ended = start(train_words(folder), random_limit(rng, 200_000))
    tally.check(ended)
    printed = ended.stdout.strip()
    tally.expect(bool(printed) == (ended.code == 0), "no path of the policy", ended)


def solve_words(source: Path, rng: random.Random) -> list[str]:
    """Return a short solve of a file, with options that change what is written."""
    seed = str(rng.randrange(1000))
    attempts = str(rng.choice([1, 16, 64]))
    return ["solve", str(source), "--device", "cpu", "--attempts", attempts, "--seed", seed]


def random_limit(rng: random.Random, largest: int) -> int:
    """Return a number of bytes; small ones are as frequent as large ones."""
    return int(largest ** rng.random())


def start(words: Sequence[str], limit: int | None, redirections: str = "") -> Ended:
    """Run the command with a limit on the size of files, and redirections of a shell."""
    command = [sys.executable, "-m", "rhumbline", *words]
    shell = ["bash", "-c", f'"$@" {redirections}', "bash", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            shell,
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment,
            timeout=MAX_SECONDS,
            preexec_fn=limit_files(limit),
        )
    except subprocess.TimeoutExpired:
        return Ended(words, limit, None, "", "")
    return Ended(words, limit, done.returncode, done.stdout, done.stderr)


def limit_files(limit: int | None) -> Callable[[], None]:
    """Return a function that limits the size of the files of its process, as a full disk does."""

    def apply() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return apply
