"""Launches of the kernels in `tile_kernels` and `stream_kernels`: tiles, buffers, queries."""

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
    TritonTables,
    empty_and_full_queries,
    find_bounded_instances,
    part_width,
)
from rhumbline.kernels.triton.rollout.tables import TUNING as TABLE_TUNING
from rhumbline.kernels.triton.rollout.tile_kernels import cvrp_rollout_kernel, tsp_rollout_kernel


@dataclass(frozen=True)
class LaunchTuning:
    """Tiles and limits of the launches; a tile is rows and warps."""

    # The least tile above 128 nodes, and for CVRP and layers, where smaller ones spill more.
    large_tile: tuple[int, int] = (64, 4)
    # Above 128 nodes one program fills a processor: two groups of warps share its tables.
    double_tile: tuple[int, int] = (128, 8)
    # Tables larger than a tile are read part by part, the next one while one is used.
    stream_tile: tuple[int, int] = (64, 4)
    stream_columns: int = 32
    stream_stages: int = 2
    # From this temperature on the weights of all logits in [-10, 10] are normal numbers.
    warm_temperature: float = 0.25


TUNING = LaunchTuning()

# Two kernels of everything: for instances whose scores are known to stay small, and for others.
BOUNDED = (True, False)
RUNTIME_OPTIONS = ("sharpness", "certain")  # options that no kernel is compiled for

Shape = tuple[int, int]  # rows and warps of a program
GivenActions = tuple[Tensor, Tensor]  # sequences [B, R, T], and how many actions of each count

_compiled: set[tuple[Any, ...]] = set()


def choose_tile(instances: int, rollouts: int, columns: int) -> Shape:
    """Choose the rollouts of a TSP that one program carries, and its warps.

    Large tiles read tables less often, small ones keep 132 processors busy. Two programs of 64 rows
    share a processor: one computes while the other waits.
    """
    if columns > TABLE_TUNING.whole_columns:
        return choose_wide_tile(instances, rollouts)
    rows = 16
    for larger in (64, 32):
        programs = instances * -(-rollouts // larger)
        if larger < 2 * rollouts and programs >= PROCESSORS:
            rows = larger
            break
    warps = rows * columns // 2048
    return rows, max(1, min(8, warps))


def choose_wide_tile(instances: int, rollouts: int) -> Shape:
    """Choose the tile above 128 nodes.

    The products of fewer than 64 rows would take tables from registers.
    """
    rows, _ = TUNING.double_tile
    programs = instances * -(-rollouts // rows)
    if programs >= PROCESSORS and rollouts > TUNING.large_tile[0]:
        return TUNING.double_tile
    return TUNING.large_tile


def choose_roomy_tile(instances: int, rollouts: int, columns: int) -> Shape:
    """Choose the tile for CVRP, and for any problem with a residual layer."""
    if columns > TABLE_TUNING.whole_columns:
        return choose_wide_tile(instances, rollouts)
    return TUNING.large_tile


@dataclass(frozen=True)
class RolloutInputs:
    """What a launch reads besides the policy's tables."""

    xy: Tensor  # [B, N, 2]
    starts: Tensor  # [B, S]
    key: Tensor  # [B] instance ids of the noise
    counters: Tensor  # [2] int64: seed and first attempt
    steps: int
    temperature: float
    given: GivenActions | None

    @property
    def sharpness(self) -> float:
        """Return 1 / temperature for exp2; any number does where nothing is drawn."""
        return LOG2E / (self.temperature or 1.0)

    def arguments(self) -> tuple[Tensor, ...]:
        """Return the tensors as the kernels take them."""
        return (
            self.xy.contiguous(),
            self.starts.to(torch.int32).contiguous(),
            self.key,
            self.counters,
        )


def make_buffers(inputs: RolloutInputs, rollouts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate actions and costs, and return the number of imposed actions of each rollout.

    Given actions are written into the buffer; every rollout has one at least and `steps` at most,
    which is not checked, as the host would wait for the device. Without given actions, the third
    tensor is one that no kernel reads.
    """
    device = inputs.xy.device
    count = len(inputs.xy)
    shape = (count, inputs.steps, rollouts)
    actions = torch.zeros(shape, dtype=torch.int16, device=device)
    cost = torch.empty(count, rollouts, device=device)
    if inputs.given is None:
        return actions, cost, actions
    sequence, length = inputs.given
    length = length.to(torch.int32)
    length = length.contiguous()
    step = torch.arange(inputs.steps, device=device)
    is_imposed = step[:, None] < length[:, None]
    actions.copy_(sequence.transpose(1, 2))
    actions.mul_(is_imposed)
    return actions, cost, length


@dataclass(frozen=True)
class Launch:
    """Arguments of both kernels, and the buffers of their results."""

    grid: tuple[int, int]
    inputs: tuple[Tensor, ...]
    actions: Tensor  # [B, T, R] int16; 0 after the end of a rollout
    cost: Tensor  # [B, R]
    sizes: tuple[int, int, int]  # K, S, N
    options: dict[str, Any]

    def start(self, kernel: Any, *more: Any) -> tuple[Tensor, Tensor]:
        """Start the kernels; return costs [B, K, S] and actions [B, K, S, T], a strided view.

        There are two launches, each for the instances that are or are not bounded, so that nothing
        is read back from the device.
        """
        self.compile(kernel, *more)
        start = kernel[self.grid]
        for flag in BOUNDED:
            start(*self.inputs, *more, BOUNDED=flag, **self.options)
        tried, starts, _ = self.sizes
        shape = (len(self.cost), tried, starts)
        cost = self.cost.view(shape)
        actions = self.actions.transpose(1, 2)
        return cost, actions.view(*shape, -1)

    def compile(self, kernel: Any, *more: Any) -> None:
        """Compile both kernels at the same time if they are new.

        Above 128 nodes each takes 15 to 25 seconds of a core.
        """
        options = [item for item in self.options.items() if item[0] not in RUNTIME_OPTIONS]
        key = (kernel, self.cost.device, *options)
        if key in _compiled:
            return
        if not isinstance(kernel, JITFunction):  # nothing is compiled for the interpreter
            return

        def warm_up(flag: bool) -> None:
            with torch.cuda.device_of(self.cost):  # a new thread has the default device
                kernel.warmup(
                    *self.inputs,
                    *more,
                    grid=self.grid,
                    BOUNDED=flag,
                    **self.options,
                )

        if self.cost.device.type == "cuda":
            # Look the cache up once before the threads do: the first look-up makes it.
            _ = kernel.device_caches[self.cost.device.index]
        with ThreadPoolExecutor(len(BOUNDED)) as threads:
            list(threads.map(warm_up, BOUNDED))
        _compiled.add(key)


def prepare_launch(
    tables: TritonTables,
    query: Tensor,
    bounded: Tensor,
    inputs: RolloutInputs,
    mark: float,
    shape: Shape,
) -> Launch:
    """Prepare tiles, buffers and common arguments of a launch."""
    assert inputs.given is None or not mark, "imposed actions have no probability to be marked by"
    nodes = tables.nodes
    count, size, _ = inputs.xy.shape
    per_latent = inputs.starts.shape[1]
    tried = tables.query_shift.shape[1]
    rollouts = tried * per_latent
    columns = nodes.key.shape[1]
    dtype = nodes.key.dtype
    rows, warps = shape
    actions, cost, length = make_buffers(inputs, rollouts)
    if tables.layer is None:
        layer = (nodes.key,) * 3  # not read
        bias = nodes.bias
    else:
        layer = tables.layer[:3]
        bias = nodes.bias + tables.layer.out_bias
    arguments = (
        nodes.key,
        nodes.value,
        nodes.pointer,
        nodes.query_last,
        query.to(dtype).contiguous(),
        tables.glimpse_shift,
        bias,
        bounded,
        *inputs.arguments(),
        actions,
        cost,
        length,
        *layer,
    )
    temperature = inputs.temperature
    options = {
        "NP": columns,
        "W": part_width(columns),
        "M": rows,
        "H": HEADS,
        "D": HEAD_WIDTH,
        "GREEDY": temperature == 0.0,
        "WARM": temperature >= TUNING.warm_temperature,
        "DT": tl.bfloat16 if dtype == torch.bfloat16 else tl.float32,
        "PREC": "ieee",
        "num_warps": warps,
        "num_stages": 1,
        "sharpness": inputs.sharpness,
        "MARK": mark > 0.0 and temperature > 0.0,
        "certain": mark,
        "GIVEN": inputs.given is not None,
        "LAYER": tables.layer is not None,
    }
    grid = (count, -(-rollouts // rows))
    return Launch(grid, arguments, actions, cost, (tried, per_latent, size), options)


def is_streamed(tables: TritonTables) -> bool:
    """Return whether tables exceed the memory of a processor and are read part by part."""
    columns = tables.nodes.key.shape[1]
    return columns > MAX_TILE_NODES


def launch_streamed(
    kernel: Any,
    tables: TritonTables,
    query: Tensor,
    inputs: RolloutInputs,
    shape: Shape,
    load: tuple[Tensor, ...] = (),
) -> tuple[Tensor, Tensor]:
    """Return the results of `Launch.start` from tables that are read part by part.

    `load` are the query, the demands and the capacities of a CVRP. Nothing is marked.
    """
    assert tables.layer is None, "no kernel whose tables come part by part knows of layers"
    nodes = tables.nodes
    count, size, _ = inputs.xy.shape
    per_latent = inputs.starts.shape[1]
    tried = tables.query_shift.shape[1]
    rollouts = tried * per_latent
    columns = nodes.key.shape[1]
    dtype = nodes.key.dtype
    rows, warps = shape
    seen = torch.zeros(count, rollouts, columns, dtype=torch.int8, device=inputs.xy.device)
    seen[..., size:] = 1  # nodes that do not exist
    actions, cost, length = make_buffers(inputs, rollouts)
    sizes = (tried, per_latent, size, columns)
    steps = (inputs.steps,) if load else ()
    kernel[count, -(-rollouts // rows)](
        nodes.key,
        nodes.value,
        nodes.pointer,
        nodes.query_last,
        query.to(dtype).contiguous(),
        tables.glimpse_shift,
        nodes.bias,
        seen,
        *inputs.arguments(),
        actions,
        cost,
        length,
        *load,
        *sizes,
        *steps,
        inputs.sharpness,
        W=min(TUNING.stream_columns, columns),
        M=rows,
        H=HEADS,
        D=HEAD_WIDTH,
        GREEDY=inputs.temperature == 0.0,
        GIVEN=inputs.given is not None,
        DT=tl.bfloat16 if dtype == torch.bfloat16 else tl.float32,
        PREC="ieee",
        num_warps=warps,
        num_stages=TUNING.stream_stages,
    )
    costs = cost.view(count, tried, per_latent)
    return costs, actions.transpose(1, 2).view(count, tried, per_latent, -1)


def launch_sizes(tables: TritonTables, starts: Tensor) -> tuple[int, int, int]:
    """Return the instances, the rollouts of each, and the columns of its tables."""
    count, tried, _ = tables.query_shift.shape
    columns = tables.nodes.key.shape[1]
    rollouts = tried * starts.shape[1]
    return count, rollouts, columns


@torch.no_grad()
def first_queries(shift: Tensor, first: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute the part of the query that a rollout keeps, [B, K * S, E], in `dtype`.

    `first` are rows of the first nodes: [B, 1, S, E] if all latents share them, or [B, K, S, E].
    The sum is in float32 and written once.
    """
    count, tried, width = shift.shape
    starts = first.shape[2]
    shape = (count, tried, starts, width)
    query = torch.empty(shape, dtype=dtype, device=shift.device)
    torch.add(shift[:, :, None], first, out=query)
    return query.flatten(1, 2)


def gather_rows(table: Tensor, nodes: Tensor) -> Tensor:
    """Gather the rows [B, k, S, E] of nodes [B, k, S] from a table [B, N, E]."""
    width = table.shape[2]
    index = nodes.long().flatten(1)
    index = index[..., None]
    index = index.expand(-1, -1, width)
    rows = table.gather(1, index)
    return rows.unflatten(1, nodes.shape[1:])


def tsp_rollout(
    tables: TritonTables,
    xy: Tensor,
    starts: Tensor,
    key: Tensor,
    counters: Tensor,
    *,
    temperature: float = 1.0,
    mark: float = 0.0,
    shape: Shape | None = None,
    given: GivenActions | None = None,
) -> tuple[Tensor, Tensor]:
    """Construct tours; return costs [B, K, S] and actions [B, K, S, N] (int16; a strided view).

    `counters` is [seed, first attempt], int64, on the device, so that a CUDA graph can be replayed
    with other noise. With `mark`, actions that had at least that probability when they were drawn
    are stored as their complements. With given actions, only the number of starts counts.
    """
    inputs = RolloutInputs(xy, starts, key, counters, xy.shape[1], temperature, given)
    nodes = tables.nodes
    context = nodes.query_context
    if given is None:
        first_nodes = starts[:, None]
    else:
        first_nodes = given[0][..., 0].unflatten(1, (-1, starts.shape[1]))
    first = gather_rows(context, first_nodes)
    query = first_queries(tables.query_shift, first, nodes.key.dtype)
    if is_streamed(tables):
        tile = shape or TUNING.stream_tile
        return launch_streamed(tsp_stream_kernel, tables, query, inputs, tile)
    any_first = first[:, 0] if given is None else context
    bounded = find_bounded_instances(nodes, tables.query_shift, any_first)
    if shape is None:
        choose = choose_tile if tables.layer is None else choose_roomy_tile
        shape = choose(*launch_sizes(tables, starts))
    launch = prepare_launch(tables, query, bounded, inputs, mark, shape)
    return launch.start(tsp_rollout_kernel, *launch.sizes)


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
    shape: Shape | None = None,
    given: GivenActions | None = None,
) -> tuple[Tensor, Tensor]:
    """Construct CVRP plans as `tsp_rollout` does tours.

    Actions are [B, K, S, 2n], padded with the depot. Demands and capacities are whole numbers.
    """
    steps = 2 * (xy.shape[1] - 1)
    inputs = RolloutInputs(xy, starts, key, counters, steps, temperature, given)
    query = tables.query_shift
    query_load = tables.nodes.query_context
    load = (
        query_load.contiguous(),
        demand.to(torch.int32).contiguous(),
        capacity.to(torch.int32).contiguous(),
    )
    if is_streamed(tables):
        tile = shape or TUNING.stream_tile
        return launch_streamed(cvrp_stream_kernel, tables, query, inputs, tile, load)
    extremes = empty_and_full_queries(query, query_load, capacity)
    bounded = find_bounded_instances(tables.nodes, extremes)
    shape = shape or choose_roomy_tile(*launch_sizes(tables, starts))
    launch = prepare_launch(tables, query, bounded, inputs, mark, shape)
    return launch.start(cvrp_rollout_kernel, *load, *launch.sizes, steps)
