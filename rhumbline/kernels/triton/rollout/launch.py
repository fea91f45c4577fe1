"""Launches of the rollout kernels in `gpu_kernels` and `stream_kernels`: tiles, buffers, what of
a query is kept.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton.runtime.jit import JITFunction

from rhumbline.kernels import HEAD_WIDTH, HEADS, MAX_TILE_NODES
from rhumbline.kernels.triton.rollout.stream_kernels import cvrp_stream_kernel, tsp_stream_kernel
from rhumbline.kernels.triton.rollout.tables import (
    LOG2E,
    PROCESSORS,
    WHOLE,
    TritonTables,
    empty_and_full_queries,
    find_bounded_instances,
    part_width,
)
from rhumbline.kernels.triton.rollout.tile_kernels import cvrp_rollout_kernel, tsp_rollout_kernel

LARGE_TILE = (
    64,
    4,
)  # rows and warps; the least above 128 nodes, and for CVRP and layers, where smaller ones spill more
DOUBLE_TILE = (
    128,
    8,
)  # above 128 nodes one program fills a processor: two groups of warps share its tables
BOUNDED = (
    True,
    False,
)  # two kernels of everything: for instances whose scores are known to stay small, and for others
STREAM_TILE, STREAM_PART, STREAM_STAGES = (
    (64, 4),
    32,
    2,
)  # where tables come part by part, the next while one is used
WARM = 0.25  # temperature from which the weights of all logits in [-10, 10] are normal numbers


def choose_tile(instances: int, rollouts: int, padded: int) -> tuple[int, int]:
    """Rollouts of a TSP per program, and warps: large tiles read tables less often, small ones fill
    132 processors.

    Two programs of 64 rows share a processor: one computes while the other waits.
    """
    if padded > WHOLE:
        return choose_wide_tile(instances, rollouts)
    fits = (m for m in (64, 32) if m < 2 * rollouts)
    rows = next((m for m in fits if instances * -(-rollouts // m) >= PROCESSORS), 16)
    return rows, max(1, min(8, rows * padded // 2048))


def choose_wide_tile(instances: int, rollouts: int) -> tuple[int, int]:
    """The same above 128 nodes, where the products of fewer than 64 rows would take tables from
    registers.
    """
    programs = instances * -(-rollouts // DOUBLE_TILE[0])
    return DOUBLE_TILE if programs >= PROCESSORS and rollouts > LARGE_TILE[0] else LARGE_TILE


def choose_roomy_tile(instances: int, rollouts: int, padded: int) -> tuple[int, int]:
    """The same for CVRP, and for whatever has a layer on the glimpse."""
    return choose_wide_tile(instances, rollouts) if padded > WHOLE else LARGE_TILE


ARGUMENTS = "sharpness", "certain"  # options that no kernel is made for
_compiled: set[tuple[Any, ...]] = set()


GivenActions = tuple[
    Tensor, Tensor
]  # sequences [B, R, T] of which only the beginning counts, and its length [B, R]


def make_buffers(
    count: int, steps: int, rollouts: int, given: GivenActions | None, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Where actions go, where costs go, and how many actions of each rollout are imposed: these
    stand there already.

    Of each rollout one action at least and `steps` at most; to look would make the host wait.
    Without any imposed actions the last is something that no kernel looks at.
    """
    actions = torch.zeros(count, steps, rollouts, dtype=torch.int16, device=device)
    cost = torch.empty(count, rollouts, device=device)
    if given is None:
        return actions, cost, actions
    sequence = given[0].transpose(1, 2)
    length = given[1].to(torch.int32).contiguous()
    imposed = torch.arange(steps, device=device)[:, None] < length[:, None]
    return actions.copy_(sequence).mul_(imposed), cost, length


@dataclass(frozen=True)
class Launch:
    """What both kernels are started with, and where their results go."""

    grid: tuple[int, int]
    inputs: tuple[Tensor, ...]
    actions: Tensor  # [B, T, R] int16; 0 where a rollout ended before
    cost: Tensor  # [B, R]
    sizes: tuple[int, int, int]  # K, S, N
    options: dict[str, Any]

    def start(self, kernel: Any, *more: Any) -> tuple[Tensor, Tensor]:
        """Costs [B, K, S] and actions [B, K, S, T], the latter a strided view.

        Two launches, each for the instances that are or are not bounded: nothing is read back from
        the device.
        """
        self.compile(kernel, *more)
        for flag in BOUNDED:
            kernel[self.grid](*self.inputs, *more, BOUNDED=flag, **self.options)
        shape = (len(self.cost), *self.sizes[:2])
        return self.cost.view(shape), self.actions.transpose(1, 2).view(*shape, -1)

    def compile(self, kernel: Any, *more: Any) -> None:
        """Compile both kernels side by side the first time: above 128 nodes each takes 15 to 25
        seconds of a core.
        """
        key = (
            kernel,
            self.cost.device,
            *(item for item in self.options.items() if item[0] not in ARGUMENTS),
        )
        if key in _compiled or not isinstance(
            kernel, JITFunction
        ):  # nothing is compiled for the interpreter
            return

        def work(flag: bool) -> None:
            with torch.cuda.device_of(self.cost):  # which a new thread has to be told
                kernel.warmup(*self.inputs, *more, grid=self.grid, BOUNDED=flag, **self.options)

        if self.cost.device.type == "cuda":
            _ = kernel.device_caches[
                self.cost.device.index
            ]  # made by whoever looks first: not by two at a time
        with ThreadPoolExecutor(len(BOUNDED)) as threads:
            list(threads.map(work, BOUNDED))
        _compiled.add(key)


def prepare_launch(
    tables: TritonTables,
    query: Tensor,
    safe: Tensor,
    xy: Tensor,
    starts: Tensor,
    key: Tensor,
    counters: Tensor,
    steps: int,
    temperature: float,
    mark: float,
    shape: tuple[int, int],
    given: GivenActions | None,
) -> Launch:
    """Tiles, buffers and common arguments of a rollout of `steps` actions."""
    (count, size, _), per, tried, nodes = (
        xy.shape,
        starts.shape[1],
        tables.query_shift.shape[1],
        tables.nodes,
    )
    rows, warps = shape
    assert given is None or not mark, "imposed actions have no probability to be marked by"
    actions, cost, length = make_buffers(count, steps, tried * per, given, xy.device)
    layer = tables.layer[:3] if tables.layer else (nodes.key,) * 3  # which nobody reads
    bias = nodes.bias + tables.layer.out_bias if tables.layer else nodes.bias
    inputs = (
        nodes.key,
        nodes.value,
        nodes.pointer,
        nodes.query_last,
        query.to(nodes.key.dtype).contiguous(),
        tables.glimpse_shift,
        bias,
        safe,
        xy.contiguous(),
        starts.to(torch.int32).contiguous(),
        key,
        counters,
        actions,
        cost,
        length,
        *layer,
    )
    half = nodes.key.dtype == torch.bfloat16
    options = {
        "NP": nodes.key.shape[1],
        "W": part_width(nodes.key.shape[1]),
        "M": rows,
        "H": HEADS,
        "D": HEAD_WIDTH,
        "GREEDY": temperature == 0.0,
        "WARM": temperature >= WARM,
        "DT": tl.bfloat16 if half else tl.float32,
        "PREC": "ieee",
        "num_warps": warps,
        "num_stages": 1,
        "sharpness": LOG2E / (temperature or 1.0),
        "MARK": mark > 0.0 and temperature > 0.0,
        "certain": mark,
        "GIVEN": given is not None,
        "LAYER": tables.layer is not None,
    }
    return Launch(
        (count, -(-tried * per // rows)), inputs, actions, cost, (tried, per, size), options
    )


def is_streamed(tables: TritonTables) -> bool:
    """Whether tables are too large for a processor and come part by part."""
    return tables.nodes.key.shape[1] > MAX_TILE_NODES


def launch_streamed(
    kernel: Any,
    tables: TritonTables,
    query: Tensor,
    xy: Tensor,
    starts: Tensor,
    key: Tensor,
    counters: Tensor,
    steps: int,
    temperature: float,
    shape: tuple[int, int],
    given: GivenActions | None,
    more: tuple[Tensor, ...] = (),
    last: tuple[int, ...] = (),
) -> tuple[Tensor, Tensor]:
    """The same results as of `Launch.start`, from tables that come part by part; nothing is
    marked.
    """
    (count, size, _), per, tried, nodes = (
        xy.shape,
        starts.shape[1],
        tables.query_shift.shape[1],
        tables.nodes,
    )
    (rows, warps), rollouts, padded = shape, tried * per, nodes.key.shape[1]
    assert tables.layer is None, "no kernel whose tables come part by part knows of layers"
    seen = torch.zeros(count, rollouts, padded, dtype=torch.int8, device=xy.device)
    seen[..., size:] = 1  # nodes that do not exist
    actions, cost, length = make_buffers(count, steps, rollouts, given, xy.device)
    kernel[count, -(-rollouts // rows)](
        nodes.key,
        nodes.value,
        nodes.pointer,
        nodes.query_last,
        query.to(nodes.key.dtype).contiguous(),
        tables.glimpse_shift,
        nodes.bias,
        seen,
        xy.contiguous(),
        starts.to(torch.int32).contiguous(),
        key,
        counters,
        actions,
        cost,
        length,
        *more,
        tried,
        per,
        size,
        padded,
        *last,
        LOG2E / (temperature or 1.0),
        W=min(STREAM_PART, padded),
        M=rows,
        H=HEADS,
        D=HEAD_WIDTH,
        GREEDY=temperature == 0.0,
        GIVEN=given is not None,
        DT=tl.bfloat16 if nodes.key.dtype == torch.bfloat16 else tl.float32,
        PREC="ieee",
        num_warps=warps,
        num_stages=STREAM_STAGES,
    )
    return cost.view(count, tried, per), actions.transpose(1, 2).view(count, tried, per, -1)


def launch_sizes(tables: TritonTables, starts: Tensor) -> tuple[int, int, int]:
    """Instances, rollouts of each, and columns of its tables."""
    count, tried, _ = tables.query_shift.shape
    return count, tried * starts.shape[1], tables.nodes.key.shape[1]


@torch.no_grad()
def first_queries(shift: Tensor, first: Tensor, dtype: torch.dtype) -> Tensor:
    """The part of the query that a rollout keeps, [B, K * S, E]: added in float32 and written once,
    in `dtype`.

    `first` are rows of the first nodes, [B, 1, S, E] if these are the same under all latents, or
    [B, K, S, E].
    """
    (count, tried, width), per = shift.shape, first.shape[2]
    query = torch.empty(count, tried, per, width, dtype=dtype, device=shift.device)
    torch.add(shift[:, :, None], first, out=query)
    return query.flatten(1, 2)


def gather_rows(table: Tensor, nodes: Tensor) -> Tensor:
    """Rows [B, k, S, E] of a table [B, N, E]."""
    index = nodes.long().flatten(1)[..., None].expand(-1, -1, table.shape[2])
    return table.gather(1, index).unflatten(1, nodes.shape[1:])


def tsp_rollout(
    tables: TritonTables,
    xy: Tensor,
    starts: Tensor,
    key: Tensor,
    counters: Tensor,
    *,
    temperature: float = 1.0,
    mark: float = 0.0,
    shape: tuple[int, int] | None = None,
    given: GivenActions | None = None,
) -> tuple[Tensor, Tensor]:
    """Costs [B, K, S] and actions [B, K, S, N] (int16; a strided view). `counters` is [seed, first
    attempt], int64.

    The counters live on the device so that a CUDA graph can be replayed with other noise. With
    `mark`, actions that had at least that probability when they were drawn come as their
    complements. Where beginnings are given, of starts only the number counts.
    """
    context = tables.nodes.query_context
    place = (xy, starts, key, counters, xy.shape[1], temperature)
    nodes = given[0][..., 0].unflatten(1, (-1, starts.shape[1])) if given else starts[:, None]
    first = gather_rows(context, nodes)
    query = first_queries(tables.query_shift, first, tables.nodes.key.dtype)
    if is_streamed(tables):
        return launch_streamed(
            tsp_stream_kernel, tables, query, *place, shape or STREAM_TILE, given
        )
    safe = find_bounded_instances(
        tables.nodes, tables.query_shift, context if given else first[:, 0]
    )
    choose = choose_roomy_tile if tables.layer else choose_tile
    go = prepare_launch(
        tables, query, safe, *place, mark, shape or choose(*launch_sizes(tables, starts)), given
    )
    return go.start(tsp_rollout_kernel, *go.sizes)


def cvrp_rollout(
    tables: TritonTables,
    xy: Tensor,
    demand: Tensor,
    capacity: Tensor,
    starts: Tensor,
    key: Tensor,
    counters: Tensor,
    *,
    temperature: float = 1.0,
    mark: float = 0.0,
    shape: tuple[int, int] | None = None,
    given: GivenActions | None = None,
) -> tuple[Tensor, Tensor]:
    """The same for CVRP: actions [B, K, S, 2n], padded with the depot. Demands and capacities
    are whole.
    """
    steps = 2 * (xy.shape[1] - 1)
    query = tables.query_shift
    load = tables.nodes.query_context
    whole = (demand.to(torch.int32).contiguous(), capacity.to(torch.int32).contiguous())
    more = (load.contiguous(), *whole)
    place = (xy, starts, key, counters, steps, temperature)
    if is_streamed(tables):
        shape = shape or STREAM_TILE
        return launch_streamed(
            cvrp_stream_kernel, tables, query, *place, shape, given, more=more, last=(steps,)
        )
    safe = find_bounded_instances(tables.nodes, empty_and_full_queries(query, load, capacity))
    go = prepare_launch(
        tables,
        query,
        safe,
        *place,
        mark,
        shape or choose_roomy_tile(*launch_sizes(tables, starts)),
        given,
    )
    return go.start(cvrp_rollout_kernel, *more, *go.sizes, steps)
