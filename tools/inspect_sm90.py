"""What the GPU kernels need on a Hopper (sm_90), read off machine code that is compiled without a
GPU.

    python tools/inspect_sm90.py [--only rollout-tsp-256] [--temperature 1] [--shape 64 4]

Triton's wheel brings assembler and disassembler, so this runs anywhere, CI included. The package's
own launchers are called with small tensors on the CPU, and what they would start is compiled
instead: tiles, types and flags are those of a launch. Rollouts are asked for as large, middling and
small pieces of work, which may have tiles of their own, and as large ones that have begun, and with
a layer on the glimpse; scores of one policy, and of latents with rows left out; the encoder's
attention and what puts routes together once. Ends with 1 if a kernel asks for more shared memory
than a processor has, or if the assembler gave up on registers; kernels that merely spill are slow,
not wrong. These are the compiler's figures: nothing is timed on a GPU, instructions are those of
the whole code, and `seconds` is the time to compile.
"""

import os

os.environ["TRITON_INTERPRET"] = "0"  # Triton asks when it is imported

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from rhumbline.kernels import HEAD_WIDTH, HEADS, MAX_TILE_NODES
from rhumbline.kernels.triton import encoder_attention
from rhumbline.kernels.triton import set_partitioning as triton_partitioning
from rhumbline.kernels.triton.job_shop import launch as triton_job_shop
from rhumbline.kernels.triton.rollout import launch as triton_rollout
from rhumbline.kernels.triton.rollout import score_bounds
from rhumbline.kernels.triton.rollout import tables as rollout_tables
from rhumbline.kernels.triton.scoring import autograd as scoring
from rhumbline.policies.jssp import JSSPPolicy
from rhumbline.problems.jssp import JSSP

SHARED_BYTES = 232_448  # that one program may have of a processor's shared memory
FEW_REGISTERS = (
    100  # of 255. A kernel that spills although it was given fewer is one that ptxas gave up on
)
WIDTH = HEADS * HEAD_WIDTH
NODES = {  # padded to 64, 128, 192 and 256, and what comes part by part; jobs to 16, 32, 64 and 128
    "tsp": (50, 100, 150, 200, 500),
    "cvrp": (51, 101, 151, 201, 501),
    "jssp": (10, 20, 50, 100),
}
LATENTS = (
    200,
    50,
    2,
)  # with 100 starts each they fill all processors with tiles of 64 rows, of 32, or not at all
SCHEDULES = (528, 264, 16)  # of ten jobs, the same with tiles of 64 rows, of 32, or not at all
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
COLUMNS = (
    "kernel",
    "rows",
    "warps",
    "stages",
    "flags",
    "shared bytes",
    "registers",
    "spilled loads",
    "spilled stores",
    "instructions",
    "seconds",
)


class Hopper:
    """As much of a driver as Triton needs to compile for a chip that is not there."""

    def get_current_target(self) -> GPUTarget:
        """The chip: compute capability 9.0, warps of 32."""
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The default one."""
        return 0


@dataclass(frozen=True)
class Launch:
    """A kernel and what a launcher gave it."""

    kernel: JITFunction
    problem: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """Kernel, problem and padded nodes, where it is made for them."""
        kernel = self.kernel.__name__.removesuffix("_kernel").removeprefix(f"{self.problem}_")
        columns = self.options.get("NP") or self.options.get("JP")
        return f"{kernel}-{self.problem}-{columns}" if columns else f"{kernel}-{self.problem}"

    @property
    def rows(self) -> int:
        """Of a program's products."""
        return self.options["M"] if "M" in self.options else self.options["R"] * self.options["JP"]

    @property
    def flags(self) -> str:
        """Names of the compile-time switches that are on."""
        return " ".join(key for key, value in self.options.items() if value is True)

    @property
    def title(self) -> str:
        """Name and flags."""
        return f"{self.name} {self.flags}".strip()

    def compile(self) -> Any:
        """Compile the kernel without starting it."""
        return self.kernel.run(*self.arguments, grid=None, warmup=True, **self.options)


@dataclass(frozen=True)
class Use:
    """What a compiled kernel takes."""

    shared: int
    registers: int
    loads: int  # spilled
    stores: int
    instructions: int

    @property
    def fault(self) -> str | None:
        """Why the kernel cannot run, or not at a bearable speed."""
        if self.shared > SHARED_BYTES:
            return f"needs {self.shared:,} bytes of shared memory, and there are {SHARED_BYTES:,}"
        if self.registers < FEW_REGISTERS and self.loads + self.stores:
            spills = f"spills {self.loads:,} loads: ptxas gave up"
            return f"was given {self.registers} registers and {spills}"
        return None


def launches(problem: str, work: Callable[[], object]) -> list[Launch]:
    """What a call of the package's launchers would start, none of which is run."""
    seen: list[Launch] = []

    def note(kernel: JITFunction, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        seen.append(Launch(kernel, problem, arguments, options))

    with patch.object(JITFunction, "run", note):
        work()
    return seen


def rollouts(
    problem: str,
    nodes: int,
    latents: int,
    *,
    begun: bool = False,
    layered: bool = False,
    **options: Any,
) -> None:
    """Rollouts of one instance from 100 starts under each latent; what the tensors hold does not
    matter.
    """
    padded, whole = rollout_tables.padded_columns(nodes), partial(torch.ones, dtype=torch.int64)
    rows = {
        name: torch.zeros(1, padded, WIDTH).bfloat16()
        for name in ("key", "value", "pointer", "query_last")
    }
    context = torch.zeros(1, nodes, WIDTH) if problem == "tsp" else torch.zeros(1, WIDTH)
    shift = torch.zeros(1, latents, WIDTH)
    fixed = rollout_tables.NodeTables(
        **rows,
        query_context=context,
        bias=torch.zeros(1, padded),
        reach=torch.zeros(1, HEADS, 2, padded),
    )
    square = torch.zeros(1, WIDTH, WIDTH).bfloat16()
    layer = rollout_tables.LayerTables(square, shift, rows["key"], fixed.bias) if layered else None
    tables = rollout_tables.TritonTables(fixed, shift, shift.bfloat16(), layer)
    demands = () if problem == "tsp" else (whole(1, nodes), whole(1))
    launch = triton_rollout.tsp_rollout if problem == "tsp" else triton_rollout.cvrp_rollout
    inputs = (torch.zeros(1, nodes, 2), *demands, whole(1, 100), whole(1), whole(2))
    steps = nodes if problem == "tsp" else 2 * (nodes - 1)
    given = (whole(1, latents * 100, steps), whole(1, latents * 100)) if begun else None
    launch(tables, *inputs, given=given, **options)


def scores(problem: str, nodes: int, latents: int) -> None:
    """Scores of 20 plans of one instance and their gradients: every kernel of `score_actions`.
    Plans hold node 0 only.
    """
    plans = torch.zeros(1, 20, nodes if problem == "tsp" else 2 * nodes, dtype=torch.int16)
    names = ("key", "value", "pointer", "query_last")
    rows = {name: torch.zeros(1, nodes, WIDTH, requires_grad=True) for name in names}
    groups = {
        "query_constant": torch.zeros(1, latents, WIDTH),
        "pointer_constant": torch.zeros(1, latents, nodes),
    }
    if problem == "tsp":
        tables, mask = scoring.ScoringTables(**rows, **groups, query_first=rows["query_last"]), None
    else:
        tables = scoring.ScoringTables(**rows, **groups, query_load=torch.zeros(1, WIDTH))
        mask = scoring.cvrp_mask(plans, torch.ones(1, nodes), 10)
    skip = plans > 0 if latents > 1 else None
    scoring.score_actions(tables, plans, mask, skip=skip, dtype=torch.bfloat16).sum().backward()


def small_ones(nodes: int) -> None:
    """What lists the rows of scores, by name and by gradient, and what tells how far attention
    scores reach.
    """
    each = torch.zeros(1, 20 * nodes)
    scoring._list_rows_by_kernel(each.to(torch.uint8))
    scoring._list_rows_by_kernel(each, each)
    key = torch.zeros(1, rollout_tables.padded_columns(nodes), WIDTH).bfloat16()
    for query in (key, key.float()):
        score_bounds.launch_bound_scores(query, key, HEADS, rollout_tables.part_width(key.shape[1]))


def attends(nodes: int) -> None:
    """The encoder's attention and its gradient, as training has them."""
    qkv = torch.zeros(1, nodes, 3 * WIDTH).bfloat16()
    encoder_attention.triton_attend_backward(
        qkv, encoder_attention.triton_attend(qkv, HEADS), HEADS
    )


def merges(customers: int) -> None:
    """Prices of customers, and what a beam adds to its places, when routes are put together."""
    members, sizes = torch.zeros(1, 4, 64, dtype=torch.int16), torch.zeros(1, 64, dtype=torch.int32)
    triton_partitioning.launch_prices(
        members, sizes, torch.zeros(1, 64), torch.zeros(1, customers), 200, 0.7, 0.7, 20, 1e-6
    )
    padded = 1 << (customers - 1).bit_length()
    cover, words = (torch.zeros(1, 64, size, dtype=torch.int32) for size in (padded // 32, 64))
    served, each = torch.zeros(1, 64, padded).bfloat16(), torch.zeros(1, 64)
    triton_partitioning.launch_additions(
        cover, each, words, served, each, torch.zeros(1), customers, 128
    )


def schedules(
    jobs: int, latents: int, *, temperature: float, mark: float, shape: tuple[int, int] | None
) -> None:
    """Rollouts of one job shop under each latent; no action of theirs is ever marked."""
    problem, policy = JSSP(), JSSPPolicy()
    batch = problem.sample(1, f"{jobs}x20", torch.Generator())
    with torch.no_grad():
        memory = policy.encode(batch)
        shift = policy.condition(memory, torch.zeros(1, latents, policy.space.size))
    more = {"starts": 1, "steps": problem.horizon(batch), "heads": policy.architecture.heads}
    counters = torch.zeros(2, dtype=torch.int64)
    weights = triton_job_shop.build_shop_weights(policy.decoder)
    triton_job_shop.jssp_rollout(
        weights, memory, shift, batch, counters, **more, temperature=temperature, shape=shape
    )


def ways(problem: str, nodes: int, options: dict[str, Any]) -> Iterator[Callable[[], object]]:
    """How kernels are launched for a problem's size; options are the rollouts'."""
    if problem == "jssp":
        yield from (partial(schedules, nodes, latents, **options) for latents in SCHEDULES)
        return
    yield partial(rollouts, problem, nodes, LATENTS[0], begun=True, **options)
    if nodes > MAX_TILE_NODES:
        yield partial(rollouts, problem, nodes, LATENTS[0], **options)
        return
    yield from (partial(rollouts, problem, nodes, latents, **options) for latents in LATENTS)
    for begun in (False, True):
        yield partial(rollouts, problem, nodes, LATENTS[0], begun=begun, layered=True, **options)
    yield from (partial(scores, problem, nodes, latents) for latents in (1, 4))
    if problem == "tsp":  # the same for both
        yield partial(attends, nodes)
        yield partial(small_ones, nodes)
    else:
        yield partial(merges, nodes - 1)


def all_launches(**options: Any) -> Iterator[Launch]:
    """Every kernel for all problems and all padded sizes, each way of launching it once; options
    are the rollouts'.
    """
    seen: set[tuple[Any, ...]] = set()
    for problem, sizes in NODES.items():
        for nodes in sizes:
            for launch in (
                launch for way in ways(problem, nodes, options) for launch in launches(problem, way)
            ):
                key = (launch.name, *launch.options.items())
                if key not in seen:
                    yield launch
                seen.add(key)


def use(kernel: Any) -> Use:
    """What a compiled kernel takes, by the disassembler of Triton's wheel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text = partial(subprocess.run, capture_output=True, text=True, check=True)
        registers = re.search(r"REG:(\d+)", text([CUOBJDUMP, "-res-usage", file.name]).stdout)
        code = text([CUOBJDUMP, "-sass", file.name]).stdout
    assert registers, "cuobjdump names no registers"
    count = (
        len(re.findall(word, code)) for word in (r"\bLDL\b", r"\bSTL\b", r"/\*[0-9a-f]{4,5}\*/")
    )
    return Use(kernel.metadata.shared, int(registers[1]), *count)


def row(cells: Iterable[object]) -> str:
    """A line of the table."""
    return f"| {' | '.join(map(str, cells))} |"


def report(launch: Launch) -> str | None:
    """Compile and print one row; what is wrong with the kernel, if anything."""
    began = time.perf_counter()
    kernel = launch.compile()
    seconds, found = time.perf_counter() - began, use(kernel)
    tile = (launch.rows, launch.options["num_warps"], kernel.metadata.num_stages)
    figures = (f"{figure:,}" for figure in astuple(found))
    print(row((launch.name, *tile, launch.flags, *figures, f"{seconds:.1f}")), flush=True)
    return found.fault and f"{launch.title} {found.fault}"


def main() -> None:
    """Print a row for each kernel; exit with 1 if one cannot run."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--only",
        default="",
        help="kernels whose name and flags have this in them, such as rollout-tsp-256",
    )
    parser.add_argument(
        "--temperature", type=float, default=1.0, help="of the rollouts; 0 is greedy"
    )
    parser.add_argument(
        "--mark", type=float, default=0.0, help="probability from which rollouts mark actions"
    )
    parser.add_argument(
        "--shape",
        type=int,
        nargs=2,
        help="rows and warps of the rollouts, instead of the launcher's",
    )
    args = parser.parse_args()
    options = {"temperature": args.temperature, "mark": args.mark, "shape": args.shape}
    chosen = [launch for launch in all_launches(**options) if args.only in launch.title]
    if not chosen:
        parser.error(f"no kernel has {args.only!r} in its name")
    driver.set_active(Hopper())
    print(row(COLUMNS), row("---" for _ in COLUMNS), sep="\n")
    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
        knobs.cache.dir = folder  # nothing compiled before counts
        faults = [fault for fault in map(report, chosen) if fault]
    sys.exit("\n".join(faults) or None)


if __name__ == "__main__":
    main()
