"""Golden traces: hashes of what the code computes, compared after every commit of the redesign.

    python tools/golden.py record     writes tools/golden.json
    python tools/golden.py compare    prints every key whose value has changed; exits with 1 if any

`--only SECTION` takes one section (repeatable), `--file` another file. Each section runs in a
process of its own, with one thread. Only the section `weights` depends on the shipped weights;
record it again when these change: `python tools/golden.py record --only weights`.

Floating-point sums depend on the instruction set. On another kind of CPU than that of the
recording, differences are printed but do not fail: record the parent commit there first.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).with_name("golden.json")
DIGITS = 16  # hexadecimal digits kept of each hash
ATTEMPTS = 64
SEED = 7
UPDATES = 5
PROCESSES = 2

Values = dict[str, Any]


# --- hashes


def hash_of(*values: Any) -> str:
    """A hash of tensors, arrays, numbers, strings and nested lists of these."""
    digest = hashlib.sha256()
    for value in values:
        feed(digest, value)
    return digest.hexdigest()[:DIGITS]


def feed(digest: Any, value: Any) -> None:
    """Add one value to a hash: tensors and arrays by shape and bytes, anything else by its text."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().contiguous()
        value = value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy()
    if hasattr(value, "tobytes"):
        digest.update(f"{value.dtype}{list(value.shape)}".encode())
        digest.update(value.tobytes())
    elif isinstance(value, list | tuple):
        digest.update(f"[{len(value)}".encode())
        for one in value:
            feed(digest, one)
    else:
        digest.update(repr(value).encode())


def refusal(error: Exception) -> str:
    """The type of an exception; its words will be rewritten, so they are not recorded."""
    return f"refused: {type(error).__name__}"


# --- small policies and instances


def small_policy(kind: Any, architecture: Any, seed: int = 3) -> Any:
    """A random policy that has learnt nothing, with latents and biases that matter."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        policy = kind(architecture)
    rng = torch.Generator().manual_seed(seed)
    for parameter in policy.parameters():
        if not parameter.any():
            parameter.data.normal_(0.0, 0.3, generator=rng)
    return policy.eval().requires_grad_(False)


def small_policies() -> dict[str, Any]:
    """One policy for each kind of network, and populations of three decoders."""
    from rhumbline.policies.attention.encoder import Architecture
    from rhumbline.policies.cvrp import CVRPPolicy
    from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
    from rhumbline.policies.jssp_machines import JSSPMachinesPolicy, MachinesArchitecture
    from rhumbline.policies.tsp import TSPPolicy

    routing = Architecture(layers=1, hidden=64, latent=4, amplify=1.0)  # fused engines need 8 heads
    population = replace(routing, latent=0, members=3)
    shop = JSSPArchitecture(width=32, heads=2, layers=1, hidden=32, latent=4, amplify=1.0)
    machines = MachinesArchitecture(width=32, heads=2, hidden=32, latent=4, amplify=1.0)
    return {
        "tsp": small_policy(TSPPolicy, routing),
        "tsp population": small_policy(TSPPolicy, population),
        "cvrp": small_policy(CVRPPolicy, routing),
        "cvrp population": small_policy(CVRPPolicy, population),
        "jssp": small_policy(JSSPPolicy, shop),
        "jssp-machines": small_policy(JSSPMachinesPolicy, machines),
    }


def tsp_instances(count: int = 2, size: int = 12) -> Any:
    """Coordinates in the unit square."""
    import numpy as np

    return np.random.default_rng(1).random((count, size, 2))


def rounded_tsp_instances() -> list[Any]:
    """Instances whose distances are rounded to whole numbers."""
    from rhumbline.problems.tsp import TSPInstance

    coordinates = 1000 * tsp_instances()
    return [TSPInstance(f"rounded-{i}", "EUC_2D", xy=xy) for i, xy in enumerate(coordinates)]


def cvrp_instances(count: int = 2, customers: int = 11) -> list[tuple[Any, ...]]:
    """Depot, customers, demands and a capacity for about four customers."""
    import numpy as np

    rng = np.random.default_rng(2)
    xy = rng.random((count, customers + 1, 2))
    demands = rng.integers(1, 10, (count, customers))
    return [(nodes[0], nodes[1:], demand, 20) for nodes, demand in zip(xy, demands, strict=True)]


def jssp_instances(count: int = 2, jobs: int = 4, machines: int = 4) -> list[dict[str, Any]]:
    """Each job visits each machine once."""
    import numpy as np

    rng = np.random.default_rng(3)
    shops = list[dict[str, Any]]()
    for _ in range(count):
        durations = rng.integers(1, 100, (jobs, machines))
        orders = np.stack([rng.permutation(machines) for _ in range(jobs)])
        shops.append({"durations": durations.tolist(), "machines": orders.tolist()})
    return shops


# --- section "search": every strategy on every problem and engine

# Strategy and settings beyond every strategy with its defaults.
VARIANTS: list[tuple[str, tuple[str, ...]]] = [
    ("cmaes", ("population=4", "components=2", "parallel=true")),
    ("cmaes", ("population=4", "restart=0.99", "top=2")),
    ("cmaes", ("population=4", "starts=0.5")),
    ("cmaes", ("population=4", "temperature=0.3")),
    ("cmaes-elite", ("population=4", "starts=0.5", "elite=4")),
    ("cmaes-eas", ("population=4", "passes=2", "kept=3")),
    ("cmaes-refine", ("population=4", "rebuilt=2.0", "abreast=3", "beam=2")),
    ("cmaes-refine", ("population=4", "stock=64", "beam=0")),
    ("eas-emb", ("passes=3",)),
    ("eas-lay", ("passes=3",)),
    ("fixed", ("latents=5",)),
    ("population", ("pairs=true",)),
    ("sampling", ("population=8", "temperature=0.5")),
    ("sampling-elite", ("population=8", "elite=4")),
    ("sgbs", ("width=3", "branch=2")),
    ("sgbs-eas", ("width=3", "branch=2")),
]
# Options of `solve` for some searches: symmetric copies, several plans, a polish at the end.
OPTIONS: dict[str, dict[str, Any]] = {
    "augment": {"augment": 8},
    "augment-polish": {"augment": 4, "polish": True},
    "top": {"top": 3},
    "polish": {"polish": True},
}


def search_tsp() -> Values:
    """TSP with exact and with rounded distances."""
    policies = small_policies()
    policy, population = policies["tsp"], policies["tsp population"]
    found = searches("tsp", tsp_instances(), policy, population)
    found |= searches("tsp-rounded", rounded_tsp_instances(), policy, population)
    found |= default_searches("tsp-30", tsp_instances(2, 30), policy)
    return found | default_searches("tsp-310", tsp_instances(1, 310), policy, attempts=24)


def search_cvrp() -> Values:
    """CVRP with any number of vehicles."""
    policies = small_policies()
    policy, population = policies["cvrp"], policies["cvrp population"]
    found = searches("cvrp", cvrp_instances(), policy, population)
    found |= default_searches("cvrp-30", cvrp_instances(2, 30), policy)
    return found | default_searches("cvrp-310", cvrp_instances(1, 310), policy, attempts=24)


def search_cvrp_fleet() -> Values:
    """CVRP with a limit on the number of vehicles."""
    policies = small_policies()
    policy, population = policies["cvrp"], policies["cvrp population"]
    return searches("cvrp-fleet", cvrp_instances(), policy, population, vehicles=5)


def search_jssp() -> Values:
    """JSSP by both networks."""
    policies = small_policies()
    found = searches("jssp", jssp_instances(), policies["jssp"])
    return found | searches("jssp-machines", jssp_instances(), policies["jssp-machines"])


def searches(case: str, instances: Any, policy: Any, population: Any = None, **more: Any) -> Values:
    """All strategies with their defaults and all variants, on both engines."""
    from rhumbline.search.strategies import STRATEGIES

    found: Values = {}
    for engine in ("torch", "fused"):
        for name, settings in [*((name, ()) for name in STRATEGIES), *VARIANTS]:
            chosen = population if name == "population" and population is not None else policy
            key = f"{case}/{engine}/{name}" + "".join(f" {setting}" for setting in settings)
            found |= one_search(key, instances, chosen, name, settings, engine=engine, **more)
        for label, options in OPTIONS.items():
            key = f"{case}/{engine}/default {label}"
            found |= one_search(key, instances, policy, None, (), engine=engine, **more, **options)
    return found


def default_searches(case: str, instances: Any, policy: Any, **more: Any) -> Values:
    """The default strategy and the two others that have defaults by size, by the fused engine."""
    found: Values = {}
    for name in (None, "cmaes", "cmaes-elite"):
        key = f"{case}/fused/{name or 'default'}"
        found |= one_search(key, instances, policy, name, (), engine="fused", **more)
    return found


def one_search(
    key: str,
    instances: Any,
    policy: Any,
    name: str | None,
    settings: tuple[str, ...],
    *,
    attempts: int = ATTEMPTS,
    **options: Any,
) -> Values:
    """The hashes of one call of `solve`: costs, plans and all steps, or the type of its refusal."""
    from rhumbline import solve
    from rhumbline.search.strategies import build_strategy

    steps = list[Any]()

    def watch(progress: Any) -> None:
        steps.append((progress.attempts, progress.best, progress.latest, progress.latents))

    try:
        strategy = None if name is None else build_strategy(name, settings)
        solutions = solve(
            instances,
            policy=policy,
            strategy=strategy,
            attempts=attempts,
            seed=SEED,
            device="cpu",
            watch=watch,
            **options,
        )
    except Exception as error:
        return {key: refusal(error)}
    plans = [plan_values(s.plan) for s in solutions]
    others = [(plan_values(other.plan), other.cost) for s in solutions for other in s.others]
    trace = [(attempts, best) for s in solutions for attempts, _, best in s.trace]
    costs = [s.cost for s in solutions]
    return {
        key: {
            "costs": " ".join(f"{cost:.6g}" for cost in costs),
            "plans": hash_of(costs, plans, others),
            "trace": hash_of(trace, steps, [s.attempts for s in solutions]),
        }
    }


def plan_values(plan: Any) -> Any:
    """The only field of a plan, whatever its name."""
    (values,) = vars(plan).values()
    return values


# --- section "training": weights after a few updates of every recipe


def training() -> Values:
    """Every recipe at tiny sizes; those that begin with a checkpoint get one of a tiny policy."""
    found: Values = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_user_data(place)
        started = dict[str, Path]()
        for problem, recipe in {
            "tsp": "tsp100-single",
            "cvrp": "cvrp100-single",
            "jssp": "jssp-single",
        }.items():
            train_recipe(recipe, place / f"init-{problem}", place, {})
            started[problem] = place / f"init-{problem}" / "policy.safetensors"
        for path in sorted((ROOT / "recipes").glob("*.toml")):
            out = place / path.stem
            try:
                lines = train_recipe(path.stem, out, place, started)
            except Exception as error:
                found[path.stem] = refusal(error)
                continue
            states = sorted(out.glob("resume-*.safetensors"))
            found[path.stem] = {
                "policy": file_hash(out / "policy.safetensors"),
                "raw": hash_of([file_hash(state) for state in states]),
                "validation": lines,
            }
    return found


def train_recipe(name: str, out: Path, data: Path, started: dict[str, Path]) -> str:
    """Train a tiny policy for a few updates by a recipe; the last validation costs."""
    import tomllib

    import torch

    from rhumbline import train
    from rhumbline.training.config import read_recipe

    path = ROOT / "recipes" / f"{name}.toml"
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    config = read_recipe(path, tiny_changes(tables, data, started))
    out.mkdir(parents=True, exist_ok=True)
    (*_, last) = train(config, device=torch.device("cpu"), out=out)
    return f"{last.greedy:.9g} {last.latent:.9g}"


def tiny_changes(tables: dict[str, Any], data: Path, started: dict[str, Path]) -> list[str]:
    """Changes that make a recipe tiny and keep its objective."""
    problem = tables["problem"]
    shop = problem.startswith("jssp")
    objective, policy = tables["objective"], tables["policy"]
    members = 3 if policy.get("members") else 0
    latents = members or min(objective["latents"], 4)
    changes = [
        f"updates={UPDATES}",
        "report=1000.0",
        "graph=false",
        "compile=false",
        f"batch={8 if objective.get('copies') else 4}",
        f"accumulate={min(tables.get('accumulate', 1), 2)}",
        "size=" + ('"3x3"' if shop else "8"),
        "policy.width=32",
        "policy.hidden=32",
        f"objective.latents={latents}",
        f"objective.starts={min(objective['starts'], 4)}",
        "optimiser.warmup=2",
        "validation.count=4",
        f"validation.latents={min(tables.get('validation', {}).get('latents', 16), 2)}",
    ]
    if problem != "jssp-l2d":
        changes.append("policy.heads=2")
    if problem != "jssp-machines":
        changes.append("policy.layers=1")
    if policy.get("latent"):
        changes.append("policy.latent=4")
    if members:
        changes.append(f"policy.members={members}")
    if objective.get("longest"):
        changes.append("objective.longest=11")
    if tables.get("sizes"):
        changes.append('sizes=["3x3","4x3","3x4"]' if shop else "sizes=[6,8,11]")
    if tables.get("data"):
        changes.append(f'data=["{data / problem}"]')
    if tables.get("init") or policy.get("latent") or members:
        changes.append(f"init={started[problem]}" if problem in started else 'init=""')
    return changes


def write_user_data(folder: Path) -> None:
    """Files to train on: a few instances of each problem and of several sizes."""
    for problem in ("tsp", "cvrp", "jssp"):
        (folder / problem).mkdir()
    for place, size in enumerate((7, 8, 8, 9, 9, 10, 10, 10)):
        (folder / "tsp" / f"a{place}.tsp").write_text(tsp_text(size, place), encoding="utf-8")
        (folder / "cvrp" / f"a{place}.vrp").write_text(cvrp_text(size, place), encoding="utf-8")
        shop = jssp_text(3, 2 + place % 2, place)
        (folder / "jssp" / f"a{place}.jsp").write_text(shop, encoding="utf-8")


def node_rows(size: int, seed: int) -> str:
    """Lines of random coordinates."""
    import numpy as np

    xy = np.random.default_rng(seed).integers(0, 1000, (size, 2)).tolist()
    return "\n".join(f"{number} {x} {y}" for number, (x, y) in enumerate(xy, 1))


def tsp_text(size: int, seed: int) -> str:
    """A TSPLIB file."""
    head = f"NAME: a{seed}\nTYPE: TSP\nDIMENSION: {size}\nEDGE_WEIGHT_TYPE: EUC_2D\n"
    return f"{head}NODE_COORD_SECTION\n{node_rows(size, seed)}\nEOF\n"


def cvrp_text(size: int, seed: int) -> str:
    """A VRPLIB file."""
    head = f"NAME: a{seed}\nTYPE: CVRP\nDIMENSION: {size}\nCAPACITY: 12\nEDGE_WEIGHT_TYPE: EUC_2D\n"
    needs = [0] + [1 + number % 5 for number in range(2, size + 1)]
    demands = "\n".join(f"{number} {need}" for number, need in enumerate(needs, 1))
    nodes = f"NODE_COORD_SECTION\n{node_rows(size, 100 + seed)}\n"
    return f"{head}{nodes}DEMAND_SECTION\n{demands}\nDEPOT_SECTION\n1\n-1\nEOF\n"


def jssp_text(jobs: int, machines: int, seed: int) -> str:
    """A file in the standard format of job shops."""
    (shop,) = jssp_instances(1, jobs, machines)
    lines = [f"{jobs} {machines}"]
    for order, durations in zip(shop["machines"], shop["durations"], strict=True):
        pairs = zip(order, durations, strict=True)
        lines.append(" ".join(f"{machine} {duration + 1 + seed}" for machine, duration in pairs))
    return "\n".join(lines) + "\n"


def file_hash(path: Path) -> str:
    """A hash of the tensors of a file, in order of their names, without the names."""
    from safetensors.torch import load_file

    return hash_of([tensor for _, tensor in sorted(load_file(path).items())])


# --- section "weights": the command line on the examples, with the shipped weights


def weights() -> Values:
    """`rhumb solve --json` of each example, by plain torch and by default, without its seconds."""
    found: Values = {}
    runs = [
        ("harbour100.tsp", ()),
        ("bakery80.vrp", ()),
        ("workshop12.jsp", ()),
        ("harbour100.tsp", ("--engine", "torch")),
        ("bakery80.vrp", ("--engine", "torch")),
        ("workshop12.jsp", ("--engine", "torch")),
        ("harbour100.tsp", ("--search", "sampling", "--top", "3", "--polish")),
        ("bakery80.vrp", ("--warm-start", str(ROOT / "examples" / "bakery80.best.sol"))),
    ]
    for file, options in runs:
        names = [Path(option).name for option in options]
        found[" ".join((file, *names))] = solved_example(file, options)
    return found


def solved_example(file: str, options: tuple[str, ...]) -> Any:
    """Cost and hash of the object that one run of the command line prints."""
    fixed = (
        "--attempts",
        str(ATTEMPTS),
        "--seed",
        "1",
        "--threads",
        "1",
        "--device",
        "cpu",
        "--json",
        "--quiet",
    )
    command = [sys.executable, "-m", "rhumbline", "solve", f"examples/{file}", *fixed, *options]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        return f"exit status {run.returncode}"
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    timeless = [without_seconds(line) for line in lines]
    return {"cost": lines[0]["cost"], "json": hash_of(json.dumps(timeless, sort_keys=True))}


def without_seconds(value: Any) -> Any:
    """The same object without its measurements of time."""
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if "seconds" not in key}
        return {key: without_seconds(one) for key, one in kept.items()}
    if isinstance(value, list):
        return [without_seconds(one) for one in value]
    return value


# --- section "triton": the kernels of the GPU in Triton's interpreter


def triton() -> Values:
    """Rollouts, completions and scores with gradients, on tiny sizes."""
    import torch

    sys.path.insert(0, str(ROOT / "tests"))
    from interpreting import hasten

    hasten()
    from rhumbline.policies.attention.encoder import Architecture
    from rhumbline.policies.cvrp import CVRPPolicy
    from rhumbline.policies.tsp import TSPPolicy
    from rhumbline.problems.cvrp import CVRP
    from rhumbline.problems.tsp import TSP

    sizes = Architecture(width=128, heads=8, layers=1, hidden=64, latent=4, amplify=1.0)
    found: Values = {}
    for problem, kind in ((TSP(), TSPPolicy), (CVRP(), CVRPPolicy)):
        policy = small_policy(kind, sizes)
        batch = problem.sample(2, 11, torch.Generator().manual_seed(4))
        if problem.name == "cvrp":
            batch.capacity.fill_(20)
        latents = policy.space.sample((2, 2), torch.Generator().manual_seed(1))
        found |= triton_routing(problem, policy, batch, latents)
    found |= triton_shop()
    return found | triton_partition()


def triton_routing(problem: Any, policy: Any, batch: Any, latents: Any) -> Values:
    """Rollouts, completions of prefixes, a residual layer, and gradients of scores."""
    import torch

    from rhumbline.kernels.triton.rollout import launch as triton_rollout
    from rhumbline.kernels.triton.rollout import tables as rollout_tables
    from rhumbline.policies.attention.memory import ResidualLayer

    starts = problem.starts(batch)[:, :4]
    with torch.no_grad():
        memory = policy.encode(batch)
    load = () if problem.name == "tsp" else (batch.demand, batch.capacity)
    build = triton_rollout.tsp_rollout if problem.name == "tsp" else triton_rollout.cvrp_rollout

    @torch.no_grad()
    def rolled_out(read: Any, temperature: float, **options: Any) -> tuple[Any, Any]:
        tables = rollout_tables.build_triton_tables(
            read, policy.condition(read, latents), torch.float32
        )
        counters = torch.tensor([SEED, 5])
        first = (tables, batch.xy, *load, starts, batch.key, counters)
        return build(*first, temperature=temperature, shape=(16, 4), **options)

    cost, actions = rolled_out(memory, 1.0)
    plans = actions.flatten(1, 2).long()
    prefixes = (plans, torch.arange(1, 9).expand(2, 8).contiguous())
    rng = torch.Generator().manual_seed(8)
    shapes = ((128, 128), (1, 128), (128, 128), (1, 128))
    layer = ResidualLayer(*(0.15 * torch.randn(2, *shape, generator=rng) for shape in shapes))
    name = f"{problem.name} "
    return {
        name + "sampled": hash_of(cost, actions),
        name + "greedy": hash_of(*rolled_out(memory, 0.0)),
        name + "marked": hash_of(*rolled_out(memory, 1.0, mark=0.3)),
        name + "completed": hash_of(*rolled_out(memory, 0.3, given=prefixes)),
        name + "layer": hash_of(*rolled_out(replace(memory, layer=layer), 1.0)),
        name + "scores": hash_of(scores_and_gradients(policy, batch, latents, plans)),
        name + "certain": hash_of(scores_and_gradients(policy, batch, latents, plans, 0.3)),
    }


def scores_and_gradients(
    policy: Any,
    batch: Any,
    latents: Any,
    plans: Any,
    certain: float = 1.0,
) -> list[Any]:
    """Log-probabilities by the fused kernels and the gradient of each weight."""
    import torch

    from rhumbline.decoding.scoring import triton_log_prob

    policy.requires_grad_(True)
    policy.zero_grad()
    memory = policy.encode(batch)
    bias = policy.condition(memory, latents)
    scores = triton_log_prob(batch, memory, bias, plans, certain=certain)
    (scores * torch.arange(1.0, 1.0 + scores.numel()).view_as(scores)).sum().backward()
    gradients = [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]
    policy.requires_grad_(False)
    return [scores, gradients]


def triton_shop() -> Values:
    """JSSP rollouts."""
    import torch

    from rhumbline.kernels.triton.job_shop import launch as triton_job_shop
    from rhumbline.problems.jssp.rules import JSSP

    problem, policy = JSSP(), small_policies()["jssp"]
    batch = problem.sample(2, "4x3", torch.Generator().manual_seed(4))
    latents = policy.space.sample((2, 2), torch.Generator().manual_seed(1))
    found: Values = {}
    for temperature in (1.0, 0.0):
        with torch.no_grad():
            memory = policy.encode(batch)
            cost, actions = triton_job_shop.jssp_rollout(
                triton_job_shop.build_shop_weights(policy.decoder, torch.float32),
                memory,
                policy.condition(memory, latents),
                batch,
                torch.tensor([SEED, 5]),
                starts=2,
                steps=problem.horizon(batch),
                heads=2,
                active=problem.active,
                temperature=temperature,
                shape=(2, 4),
            )
        found[f"jssp at temperature {temperature}"] = hash_of(cost, actions)
    return found


def triton_partition() -> Values:
    """Set partitioning by the GPU's kernels."""
    return {"merged routes": merged_routes("kernels")}


# --- section "local": local search with counted steps, and set partitioning


def local() -> Values:
    """Local search of each problem by the compiled kernels, and routes of several plans merged."""
    found = {f"merged routes {engine}": merged_routes(engine) for engine in ("tensors", "compiled")}
    return found | local_tsp() | local_cvrp() | local_jssp()


def merged_routes(engine: Any) -> str:
    """The best plan that can be made of the routes of sampled plans."""
    import torch

    from rhumbline import rollout
    from rhumbline.problems.cvrp import CVRP
    from rhumbline.search.plan_sets.elite import EliteSet
    from rhumbline.search.recombine.routes import extract_routes, recombine_routes

    problem, policy = CVRP(), small_policies()["cvrp"]
    batch = problem.sample(2, 9, torch.Generator().manual_seed(6))
    batch.capacity.fill_(20)
    latents = policy.space.sample((2, 2), torch.Generator().manual_seed(1))
    starts = problem.starts(batch)
    rolled = rollout(problem, policy, batch, latents, starts, seed=SEED, engine="torch")
    elite = EliteSet(rolled.cost.flatten(1), rolled.actions.flatten(1, 2))
    pool = extract_routes(batch, elite, 48)
    best = recombine_routes(batch, pool, 16, engine=engine)
    return hash_of(list(vars(pool).values()), best.cost, best.actions)


def local_tsp() -> Values:
    """2-opt and Or-opt from a random tour, then kicks."""
    import numpy as np

    from rhumbline.kernels.numba.local_search.launch import nearest_nodes, shorten_tour
    from rhumbline.kernels.numba.tour_search.launch import TourSearch
    from rhumbline.local_search import threads as crew
    from rhumbline.local_search.tour_ils import tour_space
    from rhumbline.problems.tsp import TSPInstance

    rng = np.random.default_rng(11)
    instance = TSPInstance("tour", "EUC_2D", xy=1000 * rng.random((60, 2)))
    distance = np.ascontiguousarray(instance.distances)
    near = nearest_nodes(distance)
    order, moves = shorten_tour(distance, near, rng.permutation(60).tolist())
    search = TourSearch(tour_space(instance), order, crew.generator_state(SEED))
    while not search.is_local_optimum:
        search.run(500)
    shorter = search.run(500, temperature=1.0)
    kicked = search.best_order
    return {"tsp descent": hash_of(order, moves), "tsp kicks": hash_of(kicked, shorter)}


def local_cvrp() -> Values:
    """All moves of routes from one route for each customer, then ruin and recreate."""
    from threading import Event

    import numpy as np

    from rhumbline.kernels.numba.local_search.launch import nearest_customers, shorten_routes
    from rhumbline.local_search.route_ruin_recreate import Annealing
    from rhumbline.problems.cvrp import CVRPInstance, Routes

    rng = np.random.default_rng(12)
    demands = [0, *rng.integers(1, 10, 40).tolist()]
    instance = CVRPInstance("routes", "EUC_2D", tuple(demands), 40, xy=1000 * rng.random((41, 2)))
    distance = np.ascontiguousarray(instance.distances, dtype=np.float64)
    near = nearest_customers(distance)
    single = [[customer] for customer in range(1, 41)]
    routes, moves = shorten_routes(distance, near, np.asarray(demands, np.int64), 40, single)
    told = list[Any]()
    first = Routes(tuple(map(tuple, routes)))
    search = Annealing(instance, first, SEED, Event(), lambda plan: told.append(plan_values(plan)))
    for step in range(8):
        search.run_steps(0.1 * 0.5**step, 500)
        search.report_best()
    return {"cvrp descent": hash_of(routes, moves), "cvrp ruin": hash_of(told)}


def local_jssp() -> Values:
    """Moves in critical blocks from one operation after the other, then a tabu search."""
    import numpy as np

    from rhumbline.kernels.numba.local_search.launch import shorten_schedule
    from rhumbline.local_search import threads as crew
    from rhumbline.local_search.schedule_tabu import ShopTables, TabuWalk
    from rhumbline.problems.jssp.instance import jssp_from_arrays

    (shop,) = jssp_instances(1, 8, 6)
    instance = jssp_from_arrays(shop["durations"], shop["machines"])
    flat = np.concatenate([np.asarray(row) for row in instance.durations])
    begins = (np.cumsum(flat) - flat).reshape(8, 6)
    starts, moves = shorten_schedule(instance.durations, instance.machines, begins.tolist())
    walk = TabuWalk(
        ShopTables(instance), begins.flatten().astype(np.int64), crew.generator_state(SEED)
    )
    steps = list[Any]()
    for _ in range(5):
        going = walk.run_moves(200)
        steps.append((going, walk.makespan, walk.starts.copy()))
    return {"jssp descent": hash_of(starts, moves), "jssp tabu": hash_of(steps)}


# --- recording and comparing

SECTIONS: dict[str, Callable[[], Values]] = {
    "training": training,
    "search-cvrp": search_cvrp,
    "search-cvrp-fleet": search_cvrp_fleet,
    "search-tsp": search_tsp,
    "search-jssp": search_jssp,
    "triton": triton,
    "weights": weights,
    "local": local,
}


def computed_here(section: str) -> Values:
    """What one section computes, in this process."""
    if section == "triton":
        assert os.environ.get("TRITON_INTERPRET") == "1", "set before anything imports triton"
    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(1)
    return SECTIONS[section]()


def computed(section: str) -> tuple[Values, float]:
    """What one section computes in a process of its own, and its seconds."""
    began = time.monotonic()
    interpreted = {"TRITON_INTERPRET": "1"} if section == "triton" else {}
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    place = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}  # in a worktree, its own package
    environment = {**os.environ, **threads, **interpreted, **place}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        given = ["section", "--only", section, "--file", str(answer)]
        command = [sys.executable, str(Path(__file__).resolve()), *given]
        options: Values = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
        run = subprocess.run(command, **options, check=False)
        if run.returncode:
            sys.exit(f"section {section} failed:\n{run.stdout[-2000:]}{run.stderr[-6000:]}")
        return json.loads(answer.read_text(encoding="utf-8")), time.monotonic() - began


def all_computed(sections: list[str]) -> Values:
    """What all these sections compute, two at a time."""
    found: Values = {}
    with ThreadPoolExecutor(PROCESSES) as pool:
        for section, (values, seconds) in zip(sections, pool.map(computed, sections), strict=True):
            print(f"{section}: {len(values)} values, {seconds:.0f} s", file=sys.stderr)
            found[section] = values
    return found


def machine() -> str:
    """What bits of floating-point sums may depend on."""
    import torch

    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
            model,
        )
    return f"{model}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def flat(values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of nested tables with its path."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield from flat(value, f"{path} > {key}" if path else key)
    else:
        yield path, values


def differences(before: Values, after: Values) -> list[str]:
    """A line for each key whose value is another one, or which is there only once."""
    old, new = dict(flat(before)), dict(flat(after))
    keys = sorted(old.keys() | new.keys())
    changed = [key for key in keys if old.get(key) != new.get(key)]
    return [f"{key}: {old.get(key)} -> {new.get(key)}" for key in changed]


def record(file: Path, sections: list[str]) -> int:
    """Write what these sections compute; other sections of the file stay."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    values = known | all_computed(sections) | {"machine": machine()}
    text = json.dumps(values, indent=1, sort_keys=True)
    file.write_text(text + "\n", encoding="utf-8")
    return 0


def compare(file: Path, sections: list[str]) -> int:
    """Print what differs from the file; 1 if anything does and the machine is the same."""
    known = json.loads(file.read_text(encoding="utf-8"))
    began = time.monotonic()
    found = all_computed(sections)
    lines = differences({section: known.get(section, {}) for section in sections}, found)
    print(*lines, sep="\n", end="\n" if lines else "")
    print(f"golden: {len(lines)} differences, {time.monotonic() - began:.0f} s", file=sys.stderr)
    if lines and machine() != known["machine"]:
        print(f"not binding: recorded on {known['machine']}; this is {machine()}", file=sys.stderr)
        return 0
    return 1 if lines else 0


def main() -> int:
    """Record, compare, or (for the processes that these start) compute one section."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("action", choices=["record", "compare", "section"])
    parser.add_argument("--only", action="append", choices=sorted(SECTIONS), help="repeatable")
    parser.add_argument("--file", type=Path, default=GOLDEN)
    given = parser.parse_args()
    sections = given.only or list(SECTIONS)
    if given.action == "section":
        given.file.write_text(json.dumps(computed_here(sections[0])), encoding="utf-8")
        return 0
    return {"record": record, "compare": compare}[given.action](given.file, sections)


if __name__ == "__main__":
    sys.exit(main())
