"""Where the time of a search on TSP100 goes: encoding, decoding, CMA-ES and the rest.

    python -m tools.figures.time_breakdown --out FOLDER        # about a minute on a GPU

Writes FOLDER/time-breakdown.json, which `python -m tools.tables --collect` copies into the
repository. Each search makes 1,600 attempts from all starts, like the published one. It is timed
for one instance, and on a GPU also for 512 instances that are solved together.

Each phase ends with a wait for the device, so the phases add up to the time of the search.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch

from rhumbline.bench.methods import weights_digest
from rhumbline.bench.provenance import hardware_name
from rhumbline.pipeline import find_device, load_policy
from rhumbline.problems.standard_sets import tsp_set
from rhumbline.problems.tsp import TSP, TSPInstance
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies.cmaes import CMAES, CMAESState
from rhumbline.search.strategy import Step
from rhumbline.search.task import Task, make_task
from tools.figures.data import TIMED_POLICY, TIMES

ATTEMPTS = 1600
SET = "tsp100"
PHASES = ("encoding", "decoding", "cmaes", "rest")
ValueT = TypeVar("ValueT")


@dataclass
class PhaseClock:
    """Sums the seconds of each phase of a search."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def measure(self, phase: str, work: Callable[[], ValueT]) -> ValueT:
        """Do some work, wait for the device, and add the time to a phase."""
        began = time.perf_counter()
        value = work()
        self.wait()
        self.seconds[phase] += time.perf_counter() - began
        return value

    def wait(self) -> None:
        """Wait until the device has done all work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True)
class TimedCMAES(CMAES):
    """The published search with a clock."""

    starts: float | None = 1.0
    clock: PhaseClock | None = None

    def step(self, task: Task, state: CMAESState) -> Step:
        """Try one generation. Decoding is one phase; sampling and the update are another."""
        clock = self.clock
        assert clock is not None, "a search without a clock is not timed"
        proposal = clock.measure("cmaes", lambda: self.propose(task, state))
        rolled = clock.measure("decoding", lambda: task.rollout(*proposal.arguments))
        following = clock.measure("cmaes", lambda: self.learn(state, proposal, rolled))
        return Step(following, proposal.latents, rolled)


def time_search(policy: Any, count: int, attempts: int, device: torch.device) -> dict[str, float]:
    """Return the milliseconds of each phase of one search on the first instances of the set."""
    instances = [
        TSPInstance(f"{SET}-{place}", "EXACT_2D", xy=xy)
        for place, xy in enumerate(tsp_set(SET)[:count], 1)
    ]
    clock = PhaseClock(device)
    began = time.perf_counter()
    task = clock.measure("encoding", lambda: make_task(TSP(), policy, instances, device=device))
    search(TimedCMAES(clock=clock), task, Budget(attempts=attempts))
    clock.wait()
    whole = time.perf_counter() - began
    clock.seconds["rest"] = whole - sum(clock.seconds.values())
    return {phase: 1e3 * seconds for phase, seconds in clock.seconds.items()}


def mean_times(times: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean time of each phase, to four significant digits."""
    return {
        phase: float(f"{sum(row[phase] for row in times) / len(times):.4g}") for phase in PHASES
    }


def measure(counts: Sequence[int], repeats: int, attempts: int, device: torch.device) -> dict:
    """Return the content of the file, with a row of times for each number of instances."""
    policy = load_policy(*TIMED_POLICY)
    rows: list[dict[str, Any]] = []
    for count in counts:
        time_search(policy, count, attempts, device)  # compiles kernels
        times = [time_search(policy, count, attempts, device) for _ in range(repeats)]
        rows.append({"instances": count, "repeats": repeats, "ms": mean_times(times)})
        print(rows[-1], flush=True)
    return {
        "set": SET,
        "attempts": attempts,
        "weights": weights_digest(*TIMED_POLICY),
        "hardware": hardware_name(device, torch.get_num_threads()),
        "date": datetime.now(UTC).date().isoformat(),
        "rows": rows,
    }


def main() -> None:
    """Measure and write."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--out", type=Path, default=Path("results/figures"))
    parser.add_argument("--instances", type=int, nargs="+", help="[1 and 512 on a GPU, else 1]")
    parser.add_argument("--repeats", type=int, default=None, help="[5 on a GPU, else 2]")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    given = parser.parse_args()
    device = find_device(given.device)
    on_gpu = device.type == "cuda"
    counts = given.instances or ([1, 512] if on_gpu else [1])
    repeats = given.repeats or (5 if on_gpu else 2)
    times = measure(counts, repeats, given.attempts, device)
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / TIMES.name
    path.write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
