"""What puts routes together, engine beside engine, on the same routes: those a search has at its
end.

    python benchmarks/partition.py [--set vrp100] [--first 64] [--attempts 400] [--stock 2048]
[--places 1024]

For each engine: milliseconds for all instances together and for each, the mean cost of the best
plan that is known or was put together, and for how many instances that is new. On a GPU tensor
operations and the kernels, on a CPU tensor operations and the compiled beam. Validation instances,
weights of the paper's protocol. `--profile` also says where the time of the latter goes, `--shapes
32,64,4 64,32,8` tries the kernels with other tiles: places, routes and warps.
"""

import argparse
import time
from functools import partial
from typing import Any

import torch
from strategies import Bench, validation
from torch.profiler import ProfilerActivity, profile

from rhumbline.api import find_device, load_policy
from rhumbline.search.driver import Budget, search
from rhumbline.search.recombine.routes import RoutePool, recombine_routes
from rhumbline.search.recombine.set_partitioning import best_partition_engine
from rhumbline.search.strategies.cmaes_refine import CMAESRefine

SEEN: list[RoutePool] = []


class Recorder(CMAESRefine):
    """`cmaes-refine`, whose routes can be seen."""

    def merge_routes(self, task: Any, stock: RoutePool, beyond: float) -> Any:
        SEEN.append(stock)
        return super().merge_routes(task, stock, beyond)


def routes_at_the_end(args: argparse.Namespace, device: torch.device) -> tuple[Any, RoutePool]:
    recorder = Recorder(stock=args.stock)
    bench = Bench(validation(args.set, args.first), load_policy("cvrp100", "cvrp"), device, 1)
    _, task = next(bench.tasks(recorder))
    search(recorder, task, Budget(args.attempts))
    return task.original_batch, SEEN[-1]


def timed(batch: Any, stock: RoutePool, places: int, engine: Any) -> tuple[float, Any]:
    """Seconds of the second time, and the plans."""
    for _ in range(2):
        if stock.rank.is_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        found = recombine_routes(batch, stock, places, engine=engine)
        found.cost.sum().item()
        spent = time.perf_counter() - began
    return spent, found


def profiled(batch: Any, stock: RoutePool, places: int, engine: Any) -> None:
    on_gpu = stock.rank.is_cuda
    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    ) as found:
        recombine_routes(batch, stock, places, engine=engine).cost.sum().item()
    key = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    print(found.key_averages().table(key, 20, max_name_column_width=60))


def compared(batch: Any, stock: RoutePool, places: int, engine: Any, shape: str = "") -> None:
    known, (spent, found) = stock.rank.amin(1, keepdim=True), timed(batch, stock, places, engine)
    better = torch.minimum(found.cost.to(known.dtype), known)
    new, each = int((better < known * (1.0 - 1e-6)).sum()), 1e3 * spent / len(known)
    print(
        f"{engine:8} {shape:8} {better.mean():.5f}  {new} better  {1e3 * spent:.1f} ms, {each:.2f} each",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", default="vrp100")
    parser.add_argument("--first", type=int, default=64)
    parser.add_argument("--attempts", type=int, default=400)
    parser.add_argument("--stock", type=int, default=2048)
    parser.add_argument("--places", type=int, default=1024)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--shapes", nargs="*", default=[], metavar="M,T,WARPS")
    args = parser.parse_args()
    if not args.set.startswith("vrp") or not args.stock:
        raise SystemExit(
            "only vehicles have routes: give --set vrp100 or the like, and a stock above 0"
        )
    device = find_device(args.device)
    batch, stock = routes_at_the_end(args, device)
    print(
        f"{args.set}, {args.first} instances, {args.stock} routes, {args.places} places, {device.type}"
    )
    print(f"{'known':8} {'':8} {stock.rank.amin(1).mean():.5f}")
    compare = partial(compared, batch, stock, args.places)
    engine = best_partition_engine(device, batch.xy.shape[1] - 1, "auto")
    compare("tensors")
    if engine != "tensors":
        compare(engine)
    for shape in args.shapes if engine == "kernels" else []:
        from rhumbline.kernels.triton import set_partitioning as triton_partitioning

        triton_partitioning.PLACES, triton_partitioning.ROUTES, triton_partitioning.WARPS = map(
            int, shape.split(",")
        )
        compare("kernels", shape)
    if args.profile:
        profiled(batch, stock, args.places, engine)


if __name__ == "__main__":
    main()
