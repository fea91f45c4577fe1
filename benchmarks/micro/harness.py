"""What the micro-benchmarks share: clocks, turns, policies, and one line for each measured case.

Each program prints what it measures. With `--json FILE` it also appends a line of JSON for each
case, so that two commits or two machines can be compared.

On a GPU, times are of device events over several queued calls. On a CPU they are wall-clock times;
with one thread they are the processor time of that thread, which other jobs disturb less.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from rhumbline import checkpoint
from rhumbline.bench import provenance
from rhumbline.decoding import Rollouts
from rhumbline.domains import find_policy_family
from rhumbline.pipeline import find_device

PAUSE_SECONDS = 0.02  # until the OpenMP threads of the work before have stopped spinning
QUEUED_CALLS = 5  # on a GPU: the host prepares one call while the device works on another
TURN_SECONDS = 0.1  # on a CPU, of calls one after another
LATENT_DEVIATION = 0.0015  # of latent weights that are still zero, so that latents differ

Work = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One measured case."""

    benchmark: str
    case: str
    engine: str
    milliseconds: float
    rate: float | None = None  # of the unit, each second
    unit: str = ""


class Harness:
    """The device, the clock and the output of one program."""

    def __init__(self, benchmark: str, given: argparse.Namespace) -> None:
        if given.threads:
            torch.set_num_threads(given.threads)
        self.benchmark = benchmark
        self.device = find_device(given.device)
        self.repeats: int = given.repeats
        self.file: Path | None = given.json
        self.hardware = provenance.hardware_name(self.device, torch.get_num_threads())
        print(f"{self.hardware}, torch {torch.__version__}", flush=True)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    def wait(self) -> None:
        """Return when the device has finished everything."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def milliseconds(self, work: Work) -> float:
        """Return the median time of a call."""
        return statistics.median(self.in_turns({"": work})[""])

    def in_turns(self, works: Mapping[str, Work]) -> dict[str, list[float]]:
        """Return the milliseconds of each work in each turn, after a turn that does not count.

        Works alternate, so that other jobs on the machine disturb them alike.
        """
        measure = self.time_on_device if self.on_gpu else self.time_on_host
        for work in works.values():
            measure(work)
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(self.repeats):
            for name, work in works.items():
                times[name].append(measure(work))
        return times

    def time_on_device(self, work: Work) -> float:
        """Return the milliseconds of one among several queued calls."""
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(QUEUED_CALLS):
            work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / QUEUED_CALLS

    def time_on_host(self, work: Work) -> float:
        """Return the milliseconds of one among the calls of a turn, of at least one."""
        clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        time.sleep(PAUSE_SECONDS)
        began = clock()
        calls = 0
        while not calls or clock() - began < TURN_SECONDS:
            work()
            calls += 1
        return 1e3 * (clock() - began) / calls

    def compare(self, case: str, works: Mapping[str, Work], count: int, unit: str) -> None:
        """Time several engines in turns; print their rates, and ratios to the last of them.

        A ratio is the median of those of neighbouring turns.
        """
        times = self.in_turns(works)
        last = list(works)[-1]
        for name, spent in times.items():
            note = ""
            if name != last:
                pairs = zip(spent, times[last], strict=True)
                ratio = statistics.median(mine / other for mine, other in pairs)
                note = f"   {last} is {ratio:.1f}x as fast"
            middle = statistics.median(spent)
            self.report(Case(self.benchmark, case, name, middle, 1e3 * count / middle, unit), note)

    def report(self, case: Case, note: str = "") -> None:
        """Print a case, and append it to the file of lines."""
        rate = "" if case.rate is None else f"{case.rate:14,.1f} {case.unit}/s"
        words = f"{case.case:46s} {case.engine:8s} {case.milliseconds:10.2f} ms {rate}{note}"
        print(words, flush=True)
        if self.file:
            facts = {
                "hardware": self.hardware,
                "commit": provenance.current_commit(),
                "versions": provenance.library_versions(),
            }
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(case) | facts) + "\n")

    def profile(self, work: Work, rows: int) -> None:
        """Print the operations that take most of the time of one call."""
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if self.on_gpu:
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=kinds) as seen:
            work()
            self.wait()
        keys = ["self_cpu_time_total"] + ["self_device_time_total"] * self.on_gpu
        for key in keys:
            table = seen.key_averages().table(key, row_limit=rows, max_name_column_width=60)
            print(f"\nby {key}\n{table}")


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of all micro-benchmarks."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=as_written)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, default=None, help="on a CPU [all cores]")
    parser.add_argument("--repeats", type=int, default=5, help="turns; the median counts [5]")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="add lines here")
    return parser


def load_or_make_policy(problem: str, device: torch.device, name: str | None = None) -> Any:
    """Return the policy of a name, else the one shipped for a problem, else a random one.

    Latent weights that are zero become random, so that latents differ.
    """
    shipped = checkpoint.shipped_checkpoints()
    usual = [known for known in (f"{problem}100", problem) if known in shipped]
    if name or usual:
        policy: Any = checkpoint.load(checkpoint.find_checkpoint(name or usual[0], problem))
    else:
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(0)
            _, family = find_policy_family(problem)
            policy = family.network()
    rng = torch.Generator().manual_seed(0)
    for label, weights in policy.named_parameters():
        if label.endswith("_latent") and not weights.any():
            weights.data.normal_(0.0, LATENT_DEVIATION, generator=rng)
    return policy.to(device).requires_grad_(False)


def describe_agreement(one: Rollouts, other: Rollouts) -> str:
    """Return how many plans two engines built alike from the same noise, and what plans cost."""
    same = (one.actions == other.actions).all(-1)
    error = float("nan")
    if same.any():
        error = float(((one.cost - other.cost).abs() / one.cost)[same].max())
    share = float(same.float().mean())
    means = f"mean costs {one.cost.mean():.4f} and {other.cost.mean():.4f}"
    return f"equal plans {share:.2%}, cost error on these {error:.1e}, {means}"
