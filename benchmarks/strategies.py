"""Strategies beside one another at equal attempts, and at equal seconds.

    python benchmarks/strategies.py --set tsp100 --first 1000 --attempts 160,1600 --strategies sampling,cmaes,eas-emb
    python benchmarks/strategies.py --set tsp100 --first 1000 --seconds 60 --strategies sampling,cmaes,eas-emb
    python benchmarks/strategies.py --set tsp100 --validation --first 16 --attempts 160 --strategies cmaes,cmaes+top=4
    python benchmarks/strategies.py --set vrp200 --validation --varied --first 32 --policy cvrp,runs/new.safetensors
    python benchmarks/strategies.py --set tsp100 --first 25 --augment 8 --strategies eas-emb --profile

Settings follow a strategy's name after `+`. Gaps are per instance against benchmarks/reference
where it has the set, else against the best cost of the instance in the whole run. `vs first` is the
mean difference to the first row of the same budget, instance by instance; of several policies,
separated by commas, each is searched by every strategy. ± are 95 % intervals. On a CPU searches by
CMA-ES choose among starts; with `+starts=1.0` they are as published, and as on a GPU. Each strategy
first makes a few attempts that do not count, so that compiling kernels is not timed; encoding is.
Instances are solved together, `--alone` one by one, and share the seconds. `--validation` draws
other instances of the same distribution, of any size: choose settings there, never on the test set;
with `--varied` vehicles of four kinds, and tours of the layouts of mixed training. `population`
needs --policy with a population. `--rehearse` makes only those attempts: several such commands side
by side compile what the real ones need. `--profile` compares nothing: it says where the time of a
few steps goes, on the host and on the device.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from evaluate import fingerprint, instances_of, keep, of_the_paper, references, summary
from torch.profiler import ProfilerActivity, profile

from rhumbline.api import Group, find_device, group_instances, load_policy, make_tasks
from rhumbline.errors import InputError, RhumbError
from rhumbline.problems.cvrp import CVRPInstance, default_capacity
from rhumbline.problems.distributions.varied import vary_tsp
from rhumbline.problems.jssp import jssp_from_tables
from rhumbline.problems.jssp.rules import MAX_RANDOM_DURATION
from rhumbline.problems.standard_sets import JSSP_SETS, find_set
from rhumbline.problems.tsp import TSP, TSPInstance
from rhumbline.search.driver import Budget, search, stream
from rhumbline.search.strategies import build_strategy
from rhumbline.search.strategy import warm_up_run_of
from rhumbline.search.task import Task

VALIDATION_SEED = 4321
SETTLING, WATCHED, SHOWN = 2, 5, 20  # steps before a profile, steps of it, rows of its tables


@dataclass(frozen=True)
class Row:
    name: str
    budget: Budget
    cost: np.ndarray
    attempts: int
    trajectories: int  # of all instances together
    seconds: float


@dataclass(frozen=True)
class Bench:
    """Instances and what they are solved with."""

    instances: list[Any]
    policy: Any
    device: torch.device
    augment: int
    alone: bool = False
    seed: int = 0

    def tasks(
        self, strategy: Any, instances: list[Any] | None = None
    ) -> Iterator[tuple[Group, Task]]:
        """All instances or some, group by group, or each by itself."""
        where = {
            "device": self.device,
            "engine": "auto",
            "augment": self.augment,
            "strategy": strategy,
        }
        some = instances or self.instances
        for first, group in enumerate([[i] for i in some] if self.alone else [some]):
            for found, task in make_tasks(
                group, {self.policy.problem: self.policy}, seed=self.seed, **where
            ):
                yield replace(found, places=tuple(place + first for place in found.places)), task

    def warm_up(self, strategy: Any) -> None:
        """A few attempts at a group of each size, on which tiles, and so kernels, depend; on a
        CPU at one instance.
        """
        some = (
            self.instances if self.device.type == "cuda" and not self.alone else self.instances[:1]
        )
        for group in {len(g.places): g for g in group_instances(some, self.augment)}.values():
            for _, task in self.tasks(strategy, list(group.instances)):
                short, attempts = warm_up_run_of(strategy, task)
                if search(short, task, Budget(attempts))[1]:
                    raise KeyboardInterrupt

    def wait(self) -> None:
        """Until the device has done all it was told."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def validation(name: str, count: int) -> list[Any]:
    stream = np.random.RandomState(VALIDATION_SEED)
    if name.startswith("jssp"):
        shop = find_set(JSSP_SETS, name)
        times = stream.randint(1, MAX_RANDOM_DURATION + 1, size=(count, shop.jobs, shop.machines))
        orders = stream.uniform(size=times.shape).argsort(2)
        return [
            jssp_from_tables(d, m, f"{i}")
            for i, (d, m) in enumerate(zip(times, orders, strict=True))
        ]
    if name[:3] not in ("tsp", "vrp") or not name[3:].isdecimal():
        raise SystemExit(
            f"{name} is no set to draw validation instances of: tsp150, vrp100, jssp10x10 and the like"
        )
    size = int(name[3:])
    if name.startswith("tsp"):
        return [
            TSPInstance(f"{i}", "EXACT_2D", xy=x)
            for i, x in enumerate(stream.uniform(size=(count, size, 2)))
        ]
    xy, demands = (
        stream.uniform(size=(count, size + 1, 2)),
        stream.randint(1, 10, size=(count, size)),
    )
    pairs = zip(xy, demands.tolist(), strict=True)
    return [
        CVRPInstance(f"{i}", "EXACT_2D", (0, *q), default_capacity(size), xy=x)
        for i, (x, q) in enumerate(pairs)
    ]


def varied_tours(size: int, count: int) -> list[Any]:
    """Layouts as in mixed training, seven in ten of them not uniform."""
    rng = torch.Generator().manual_seed(VALIDATION_SEED + size)
    xy = vary_tsp(TSP().sample(count, size, rng), 0.7, rng).xy.double().numpy()
    return [TSPInstance(f"{i}", "EXACT_2D", xy=x) for i, x in enumerate(xy)]


def varied_vehicles(size: int, count: int) -> list[Any]:
    """Uniform and clustered customers in turns, small and large demands, routes of about 6, 10,
    16 and 24 customers.
    """
    stream, made = np.random.RandomState(VALIDATION_SEED + size), list[Any]()
    for i in range(count):
        if i % 2:
            centres = stream.uniform(size=(8, 2))
            near = centres[stream.randint(8, size=size + 1)]
            xy = np.clip(near + stream.normal(size=(size + 1, 2)) * 0.07, 0, 1)
        else:
            xy = stream.uniform(size=(size + 1, 2))
        demands = stream.randint(1, 10 if i % 4 < 2 else 101, size=size)
        capacity = int((6, 10, 16, 24)[i % 4] * demands.mean())
        made.append(CVRPInstance(f"{i}", "EXACT_2D", (0, *demands.tolist()), capacity, xy=xy))
    return made


def strategy_of(text: str) -> Any:
    name, *settings = text.split("+")
    try:
        return build_strategy(name, settings)
    except InputError as error:
        raise SystemExit(str(error)) from error


def measured(text: str, bench: Bench, budget: Budget) -> Row:
    count, strategy = len(bench.instances), strategy_of(text)
    bench.warm_up(strategy)
    cost, began, made, starts = np.full(count, np.nan), time.perf_counter(), 0, 1
    for group, task in bench.tasks(strategy):
        share = (
            budget.seconds and budget.seconds * len(group.places) / count
        )  # groups come one by one
        found, interrupted = search(strategy, task, replace(budget, seconds=share))
        if interrupted:  # the budget was not spent, so this is no result
            raise KeyboardInterrupt
        cost[list(group.places)] = [s.cost for s in found]
        starts = task.starts.shape[1]
        made += (found[0].attempts * starts - task.spare_trajectories) * task.count
    return Row(
        text, budget, cost, round(made / (count * starts)), made, time.perf_counter() - began
    )


def profiled(text: str, bench: Bench, budget: Budget) -> None:
    """Print where the time of some steps goes."""
    strategy, on_gpu = strategy_of(text), bench.device.type == "cuda"
    bench.warm_up(strategy)
    steps = stream(strategy, next(bench.tasks(strategy))[1], budget)
    timed(steps, SETTLING, bench)
    with named_waits(on_gpu):
        done, host, whole = timed(steps, WATCHED, bench)
    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    ) as found:
        seen, _, _ = timed(steps, WATCHED, bench)
    if not seen:
        raise SystemExit(
            f"{text}: the budget ends after {SETTLING + done} steps or fewer; give more --attempts"
        )
    print(
        f"\n{text}: a step takes {1e3 * whole / done:.2f} ms, and the host is free after {1e3 * host / done:.2f} ms"
    )
    for key in ("self_cpu_time_total", *(["self_cuda_time_total"] if on_gpu else [])):
        print(
            f"\n{seen} steps by {key}\n{found.key_averages().table(key, SHOWN, max_name_column_width=60)}"
        )


@contextmanager
def named_waits(on_gpu: bool) -> Iterator[None]:
    """Let torch warn, with the line, where the host waits for the GPU."""
    if on_gpu:
        torch.cuda.set_sync_debug_mode("warn")
    yield
    if on_gpu:
        torch.cuda.set_sync_debug_mode("default")


def timed(steps: Iterator[Any], most: int, bench: Bench) -> tuple[int, float, float]:
    """How many steps there were, seconds until the host had told the device all, and until the
    device had done it.
    """
    bench.wait()
    began = time.perf_counter()
    count = sum(1 for _ in islice(steps, most))
    host = time.perf_counter() - began
    bench.wait()
    return count, host, time.perf_counter() - began


def interval(values: np.ndarray) -> str:
    error = 1.96 * values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{values.mean():+.4f} ± {error:.4f}"


def table(rows: list[Row], known: np.ndarray, relative_to: str) -> None:
    titles = (
        "budget",
        "attempts",
        "mean cost",
        f"gap to {relative_to}, %",
        "vs first, %",
        "seconds",
        "trajectories/s",
    )
    print(f"| strategy | {' | '.join(titles)} |", f"| --- |{' ---: |' * len(titles)}", sep="\n")
    for row in rows:
        first = next(r for r in rows if r.budget == row.budget)
        limit = f"{row.budget.attempts:,}" if row.budget.attempts else f"{row.budget.seconds:g} s"
        gap = interval(100 * (row.cost / known - 1))
        behind = "" if row is first else interval(100 * (row.cost / first.cost - 1))
        cost = f"{row.attempts:,} | {row.cost.mean():.5f}"
        speed = f"{row.seconds:.1f} | {row.trajectories / row.seconds:,.0f}"
        print(f"| {row.name} | {limit} | {cost} | {gap} | {behind} | {speed} |")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", default="tsp100")
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of them")
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--varied", action="store_true", help="other layouts: vrp300, tsp200")
    parser.add_argument("--attempts", default="")
    parser.add_argument("--seconds", default="")
    parser.add_argument("--strategies", default="sampling,fixed,uniform,cmaes,eas-emb,cmaes-eas")
    parser.add_argument(
        "--policy",
        default=None,
        help="a shipped name or a path, or several with commas between them",
    )
    parser.add_argument("--augment", type=int, default=1)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the searches; instances are the same"
    )
    parser.add_argument(
        "--alone", action="store_true", help="each instance by itself, one after another"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--rehearse", action="store_true", help="only compile what would be needed")
    parser.add_argument(
        "--ledger", type=Path, default=None, help="rows of the test sets for benchmarks/gaps.py"
    )
    return parser.parse_args()


def budgets(attempts: str, seconds: str) -> list[Budget]:
    chosen = [Budget(int(n)) for n in attempts.split(",") if n]
    chosen += [Budget(seconds=float(s)) for s in seconds.split(",") if s]
    return chosen or [Budget(160)]


def compared(benches: dict[str, Bench], args: argparse.Namespace) -> None:
    """All strategies with all policies; a policy is named where there are several."""
    bench, rows = next(iter(benches.values())), list[Row]()
    count, work = len(bench.instances), list(product(args.strategies.split(","), benches))
    known = (
        None if args.validation else references(args.set, args.first)[args.skip :]
    )  # first: it may refuse
    what = (
        torch.cuda.get_device_name()
        if bench.device.type == "cuda"
        else f"CPU, {torch.get_num_threads()} threads"
    )
    try:
        for budget in budgets(args.attempts, args.seconds):
            for text, policy in work:
                row = measured(text, benches[policy], budget)
                rows.append(
                    row := replace(row, name=f"{text}, {policy}") if len(benches) > 1 else row
                )
                gap = (
                    "" if known is None else f", gap {interval(100.0 * (row.cost / known - 1.0))} %"
                )
                print(f"{row.name}: {row.cost.mean():.5f}{gap}, {row.seconds:.1f} s", flush=True)
                keep_plain(row, args, known, what.split(",")[0])  # at once: a run may be killed
    except KeyboardInterrupt:
        print("\nInterrupted; the table has what was finished.")
    if not rows:
        return
    drawn = " (varied validation)" if args.varied else " (validation)" if args.validation else ""
    kind = f"{args.set}{drawn}, {count} instances"
    print(f"\n{kind}, augment {args.augment}, {what}\n")
    if known is None:
        table(rows, np.min([r.cost for r in rows], axis=0), "the best of these rows")
    else:
        table(rows, known, "the reference")


def keep_plain(row: Row, args: argparse.Namespace, known: np.ndarray | None, where: str) -> None:
    """In the ledger, if there is one: a row without settings, as `evaluate.py` keeps them."""
    if args.ledger and known is not None and "+" not in row.name:
        limit = f"{row.budget.seconds:g} s" if row.budget.seconds else f"{row.budget.attempts}"
        method = row.name if row.name == "greedy" else f"{row.name} {limit}"
        facts = {
            "where": where,
            "seconds": round(row.seconds, 1),
            "attempts": row.attempts,
            "weights": args.weights,
        }
        keep(summary(args.set, method, row.cost, known) | facts, args.ledger)


def instances_for(args: argparse.Namespace) -> list[Any]:
    """What is to be solved; also says that varied instances are for validation, and for routing."""
    if not args.varied:
        return (validation if args.validation else instances_of)(args.set, args.first)
    kind, size = args.set[:3], args.set[3:]
    if not args.validation or kind not in ("tsp", "vrp") or not size.isdecimal():
        raise SystemExit("--varied is for --validation and a set such as vrp300 or tsp200")
    return (varied_tours if kind == "tsp" else varied_vehicles)(int(size), args.first)


def policies_of(text: str) -> list[str]:
    """Names and paths, each once."""
    names = text.split(",")
    if "" in names or len(set(names)) < len(names):
        raise SystemExit(
            f"--policy {text}: expected different names or paths with commas between them"
        )
    return names


def main() -> None:
    args = options()
    if args.threads:
        torch.set_num_threads(args.threads)
    instances = instances_for(args)[args.skip :]
    if not 0 <= args.skip < args.first or not instances:
        raise SystemExit(f"--skip {args.skip} of the first {args.first} leaves nothing to solve")
    problem = instances[0].problem
    names = policies_of(args.policy) if args.policy else [of_the_paper(problem)]
    device, args.weights = find_device(args.device), fingerprint(names[0], problem)
    how = (device, args.augment, args.alone, args.seed)
    benches = {n: Bench(instances, load_policy(n, problem), *how) for n in names}
    unusual = args.policy or args.validation or args.skip or args.seed or args.augment > 1
    if args.ledger and (unusual or device.type == "cpu"):
        why = "the weights of the paper's protocol, first of a test set, no copies and a GPU, for published searches"
        raise SystemExit(f"--ledger is for {why}")
    if args.rehearse or args.profile:
        for text, bench in product(args.strategies.split(","), benches.values()):
            if args.rehearse:
                bench.warm_up(strategy_of(text))
            else:
                profiled(text, bench, budgets(args.attempts, args.seconds)[0])
    else:
        compared(benches, args)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except RhumbError as error:
        raise SystemExit(str(error)) from error
