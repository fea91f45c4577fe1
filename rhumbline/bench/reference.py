"""Reference files: the costs of a set by a strong classical solver, made piece by piece."""

import io
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from rhumbline.baselines.methods import BASELINES, Baseline, Work
from rhumbline.bench.run import Options
from rhumbline.bench.sets import load_set, read_references, reference_file
from rhumbline.bench.suite import Suite
from rhumbline.errors import InputError
from rhumbline.formats.atomic import write_bytes

PAUSE = 20.0  # seconds between two writes


@dataclass(frozen=True)
class Referee:
    """The solver that makes references of a problem, and its budget."""

    solver: str
    seconds: float | None = None
    settings: Mapping[str, int] = field(default_factory=dict[str, int])


REFEREES = {
    "tsp": Referee("lkh", settings={"runs": 10}),
    "cvrp": Referee("hgs", seconds=5.0),
    "jssp": Referee("cpsat", seconds=60.0),
}


def make_references(suite: Suite, options: Options, seconds: float | None) -> Iterator[tuple[Path, int, int]]:
    """Solve what the reference files of the chosen sets lack; yields file, number done and number wanted."""
    specs, _ = suite.chosen(options.only)
    named = [spec for spec in specs if spec.reference]
    if not named:
        raise InputError(f"suite '{suite.name}': no set that was asked for names a reference file")
    for spec in named:
        bench_set = load_set(spec, suite.folder, options.folders, referenced=False)
        file = reference_file(spec, suite.folder)
        yield from fill(file, list(bench_set.instances[: options.limit]), REFEREES[spec.problem], seconds)


def fill(file: Path, instances: list[Any], referee: Referee, seconds: float | None) -> Iterator[tuple[Path, int, int]]:
    """Solve the instances without a cost and write now and then."""
    baseline = BASELINES[referee.solver]
    baseline.require()
    limit = (seconds or referee.seconds) if baseline.timed else None
    made_by = sentence(baseline, referee, limit)
    costs, saved = resumed(file, made_by, len(instances)), time.monotonic()
    for place, instance in enumerate(instances):
        if np.isnan(costs[place]):
            costs[place] = baseline.solve(Work(instance, limit, 0, referee.settings)).cost(instance)
        last = place == len(instances) - 1
        if last or time.monotonic() - saved > PAUSE:
            store(file, costs, made_by)
            saved = time.monotonic()
        yield file, place + 1, len(instances)


def sentence(baseline: Baseline, referee: Referee, seconds: float | None) -> str:
    """Who makes the costs and with which budget."""
    budget = [f"{name} {value}" for name, value in referee.settings.items()]
    budget += [f"{seconds:g} s per instance"] if seconds else []
    return ", ".join([baseline.called, *budget, "one thread"])


def resumed(file: Path, made_by: str, count: int) -> Float[np.ndarray, "R"]:
    """The costs that a file has already, NaN for the rest; refused if somebody else made them."""
    known, maker = read_references(file) if file.exists() else (np.zeros(0), made_by)
    if maker != made_by:
        raise InputError(f"{file}: was made by {maker}; this would be {made_by}; remove it or leave it as it is")
    costs = np.full(max(count, len(known)), np.nan)
    costs[: len(known)] = known
    return costs


def store(file: Path, costs: Float[np.ndarray, "R"], made_by: str) -> None:
    """Write a file in one step, in the form of benchmarks/reference."""
    content = io.BytesIO()
    np.savez_compressed(content, cost=costs, made_by=made_by)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, content.getvalue())
