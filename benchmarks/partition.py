"""What puts routes together, engine beside engine, on the same routes: those a search has at its end.

    python benchmarks/partition.py [--set vrp100] [--first 64] [--attempts 400] [--stock 2048] [--places 1024]

For each engine: milliseconds for all instances together and for each, the mean cost of the best plan that is known or
was put together, and for how many instances that is new. On a GPU tensor operations and the kernels, on a CPU tensor
operations and the compiled beam. Validation instances, weights of the paper's protocol. `--profile` also says where the
time of the latter goes.
"""

import argparse
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from strategies import Bench, validation
from torch.profiler import ProfilerActivity, profile

from rhumbline.api import find_device, policy_for
from rhumbline.search.merge import Stock, merged
from rhumbline.search.refine import CMAESRefine
from rhumbline.search.run import Budget, search


@dataclass(frozen=True)
class Recorder(CMAESRefine):
    """`cmaes-refine` that also keeps the routes it last had."""

    last: tuple[list[Any], ...] = ([],)

    def put_together(self, task: Any, stock: Stock, beyond: float) -> Any:
        self.last[0][:] = [task.originals, stock]
        return super().put_together(task, stock, beyond)


def routes_at_the_end(args: argparse.Namespace, device: torch.device) -> tuple[Any, Stock]:
    recorder = Recorder(stock=args.stock)
    bench = Bench(validation(args.set, args.first), policy_for("cvrp100", "cvrp"), device, 1)
    _, task = next(bench.tasks(replace(recorder)))
    search(recorder, task, Budget(args.attempts))
    return recorder.last[0][0], recorder.last[0][1]


def timed(batch: Any, stock: Stock, places: int, engine: Any) -> tuple[float, Any]:
    """Seconds of the second time, and the plans."""
    for _ in range(2):
        if stock.rank.is_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        found = merged(batch, stock, places, engine=engine)
        found.cost.sum().item()
        spent = time.perf_counter() - began
    return spent, found


def profiled(batch: Any, stock: Stock, places: int, engine: Any) -> None:
    on_gpu = stock.rank.is_cuda
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as found:
        merged(batch, stock, places, engine=engine).cost.sum().item()
    key = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    print(found.key_averages().table(key, 20, max_name_column_width=60))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", default="vrp100")
    parser.add_argument("--first", type=int, default=64)
    parser.add_argument("--attempts", type=int, default=400)
    parser.add_argument("--stock", type=int, default=2048)
    parser.add_argument("--places", type=int, default=1024)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    device = find_device(args.device)
    batch, stock = routes_at_the_end(args, device)
    known = stock.rank.amin(1, keepdim=True)
    print(f"{args.set}, {args.first} instances, {args.stock} routes, {args.places} places, {device.type}")
    print(f"{'known':8} {known.mean():.5f}")
    for engine in ("tensors", "kernels" if device.type == "cuda" else "compiled"):
        spent, found = timed(batch, stock, args.places, engine)
        better = torch.minimum(found.cost.to(known.dtype), known)
        new = int((better < known * (1.0 - 1e-6)).sum())
        each = 1e3 * spent / args.first
        print(f"{engine:8} {better.mean():.5f}  {new} better  {1e3 * spent:.1f} ms, {each:.2f} each", flush=True)
        if args.profile and engine != "tensors":
            profiled(batch, stock, args.places, engine)


if __name__ == "__main__":
    main()
