"""Set partitioning over routes of sampled CVRP plans, engine beside engine.

    python benchmarks/micro/partitioning.py [--instances 64] [--pool 2048] [--width 1024]

Engines are tensor operations and, on a GPU, kernels, or on a CPU the compiled beam. Printed are the
times for all instances and the mean cost of the best plan that is sampled or recombined.
"""

from functools import partial
from typing import Any

import torch
from harness import Harness, Work, load_or_make_policy, make_parser

from rhumbline.decoding import rollout
from rhumbline.problems.cvrp import CVRP
from rhumbline.search.plan_sets.elite import EliteSet
from rhumbline.search.recombine.routes import RoutePool, extract_routes, recombine_routes
from rhumbline.search.recombine.set_partitioning import best_partition_engine

SEED = 7


def sample_routes(
    harness: Harness, shape: tuple[int, int], latents: int, pool: int
) -> tuple[Any, RoutePool]:
    """Return instances and the routes of the best of their sampled plans."""
    count, size = shape
    problem = CVRP()
    policy = load_or_make_policy("cvrp", harness.device)
    batch = problem.sample(count, size, torch.Generator().manual_seed(SEED)).to(harness.device)
    points = policy.space.sample((count, latents), torch.Generator().manual_seed(SEED))
    starts = problem.starts(batch)
    rolled = rollout(problem, policy, batch, points.to(harness.device), starts, seed=SEED)
    plans = EliteSet(rolled.cost.flatten(1), rolled.actions.flatten(1, 2))
    return batch, extract_routes(batch, plans, pool)


@torch.no_grad()
def main() -> None:
    """Measure what the command line says."""
    parser = make_parser(__doc__)
    parser.add_argument("--instances", type=int, default=64)
    parser.add_argument("--size", type=int, default=100, help="customers")
    parser.add_argument("--latents", type=int, default=4, help="sampled from every start")
    parser.add_argument("--pool", type=int, default=2048, help="routes of an instance")
    parser.add_argument("--width", type=int, default=1024, help="of the beam")
    parser.add_argument("--profile", action="store_true", help="of the fastest engine")
    parser.add_argument("--rows", type=int, default=20, help="of a profile")
    given = parser.parse_args()
    harness = Harness("partitioning", given)
    shape = (given.instances, given.size)
    batch, routes = sample_routes(harness, shape, given.latents, given.pool)
    engines = dict.fromkeys(["tensors", best_partition_engine(harness.device, given.size, "auto")])
    works: dict[str, Work] = {
        engine: partial(recombine_routes, batch, routes, given.width, engine=engine)
        for engine in engines
    }
    known = routes.rank.amin(1, keepdim=True)
    print(f"sampled: mean cost {known.mean():.5f}", flush=True)
    for engine, work in works.items():
        found: Any = work()
        best = torch.minimum(found.cost.to(known.dtype), known)
        better = int((best < known * (1.0 - 1e-6)).sum())
        print(f"{engine}: mean cost {best.mean():.5f}, {better} instances improved", flush=True)
    case = f"CVRP{given.size} {given.instances} instances, {given.pool} routes"
    harness.compare(case, works, given.instances, "instances")
    if given.profile:
        harness.profile(list(works.values())[-1], given.rows)


if __name__ == "__main__":
    main()
