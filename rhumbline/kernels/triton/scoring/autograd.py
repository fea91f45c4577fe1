"""Scores of given actions with gradients in every table: tables, rules, and an autograd function of five kernels.

`log_prob_kernels` has the formulas; `docs/kernels.md` the design, its reasons and its limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from rhumbline import kernels
from rhumbline.kernels.triton.scoring.kernels import (
    CVRP,
    LOG2E,
    NEVER,
    TSP,
    forward_kernel,
    heads_backward_kernel,
    list_kernel,
    pointer_backward_kernel,
    query_backward_kernel,
    trajectory_backward_kernel,
)

ROUNDING = 1e-6  # of a score
LIST_TILE = 1024  # rows that are listed at a time


@dataclass(frozen=True)
class ScoringTables:
    """Folded decoder tables of B instances. The groups G divide R: trajectory r uses row r // (R // G)."""

    key: Tensor  # [B, N, E]
    value: Tensor  # [B, N, E]
    pointer: Tensor  # [B, N, E] embeddings times the output projection, already divided by sqrt(E)
    query_last: Tensor  # [B, N, E] query part of the current node
    query_constant: Tensor  # [B, G, E] query part that stays for all steps: the graph's, the latent's
    query_first: Tensor | None = None  # [B, N, E] query part of the first node
    pointer_constant: Tensor | None = None  # [B, G', N] added to the pointer's scores before tanh
    pointer_shift: Tensor | None = None  # [B, G'', E] the same as a shift of the glimpse: constant += shift . pointer
    query_load: Tensor | None = None  # [B, E] query part per unit of load left (CVRP only)


@dataclass(frozen=True)
class ScoringMask:
    """What the kernels' rules read. Rows are the steps first_step .. A-1 of every trajectory."""

    problem: int
    position: Tensor  # int16 [B, R, N'] step at which a node is visited; -1 beyond the nodes, up to `_padded_columns`
    first_step: int = 1
    room: Tensor | None = None  # float32 [B, R, T] load left before the step + 1/2; negative: the depot is forbidden
    demand: Tensor | None = None  # float32 [B, N], 0 for the depot; whole numbers, so that comparisons are exact


def tsp_mask(actions: Tensor) -> ScoringMask:
    """The rules of the travelling salesman for actions [B, R, N], a permutation of the nodes per trajectory."""
    steps = torch.arange(actions.shape[2], device=actions.device, dtype=torch.int16).expand_as(actions)
    return ScoringMask(TSP.value, _empty_positions(actions, actions.shape[2]).scatter_(2, actions.long(), steps))


def cvrp_mask(actions: Tensor, demand: Tensor, capacity: int, first_step: int = 1) -> ScoringMask:
    """The rules of vehicle routing for actions [B, R, A] that start at the depot, node 0, and are padded with depots.

    Demand [B, N] and capacity are whole units. A vehicle may not stay at the depot while a customer is left.
    """
    actions = actions.long().contiguous()  # rollouts come as strided views, and what follows would inherit the strides
    steps = torch.arange(actions.shape[2], device=actions.device, dtype=torch.int16).expand_as(actions)
    demand = demand.float().contiguous()
    at_node = demand[:, None].expand(-1, actions.shape[1], -1)  # [B, R, N]
    position = _empty_positions(actions, demand.shape[1]).scatter_(2, actions, steps)
    all_served = steps > position[:, :, 1:].amax(2, keepdim=True)
    position[:, :, 0] = actions.shape[2]  # the depot never counts as visited
    served = at_node.gather(2, actions).cumsum(2)
    at_depot = actions == 0
    left = capacity - served + served.masked_fill(~at_depot, 0.0).cummax(2).values
    before = slice(first_step - 1, -1)
    depot_allowed = ~at_depot[:, :, before] | all_served[:, :, first_step:]
    room = left[:, :, before] + 0.5
    return ScoringMask(CVRP.value, position, first_step, torch.where(depot_allowed, room, -room), demand)


def _empty_positions(actions: Tensor, nodes: int) -> Tensor:
    """Positions to be filled in: 0, and -1 beyond the nodes."""
    position = actions.new_zeros(*actions.shape[:2], _padded_columns(nodes), dtype=torch.int16)
    position[:, :, nodes:] = -1
    return position


class Tile(NamedTuple):
    """How one kernel is launched."""

    rows: int
    warps: int
    stages: int


class TileConfig(NamedTuple):
    """Tiles of the four kernels; the defaults are for up to 128 nodes in 16 bit on an H200.

    With 8 warps the forward needs 128 rows: on fewer, both warpgroups compute the same tile (seen in the machine code).
    """

    forward: Tile = Tile(64, 4, 3)
    pointer: Tile = Tile(64, 8, 2)
    heads: Tile = Tile(64, 4, 1)
    query: Tile = Tile(64, 4, 2)
    programs: int = 1056  # wanted programs per launch of a backward kernel: 8 per SM of an H200

    @staticmethod
    def choose(nodes: int, dtype: torch.dtype, problem: int) -> TileConfig:
        """Tiles that fit the registers and the shared memory of an H200."""
        if dtype == torch.float32:  # no tensor cores: for checks, not for speed
            return TileConfig(*[Tile(16, 4, 1)] * 4)
        if nodes <= 128:
            return TileConfig()
        heads = Tile(32, 4, 1) if problem == CVRP.value else Tile(64, 4, 1)  # more mask, less room in registers
        tiles = (Tile(64, 4, 2), Tile(64, 8, 2), heads, Tile(64, 8, 3))
        return TileConfig(*(tile._replace(rows=max(16, tile.rows * 128 // _padded_columns(nodes))) for tile in tiles))


def score_actions(
    tables: ScoringTables,
    actions: Tensor,
    mask: ScoringMask | None = None,
    *,
    per_step: bool = False,
    scale: float = 0.25,
    clip: float = 10.0,
    heads: int = 8,
    certain: float = 1.0,
    skip: Tensor | None = None,
    dtype: torch.dtype | None = None,
    config: TileConfig | None = None,
) -> Tensor:
    """Log-probability of given actions, float32 [B, R] (or [B, R, T] per step), differentiable in every table.

    `actions` are integers [B, R, A]; the first is given, not scored. `mask` is `tsp_mask(actions)` unless given.
    `scale` multiplies q . key: 1/sqrt(16) by default; tables that already carry log2(e)/4 take ln 2. Decisions with a
    probability of at least `certain` are scored, but not differentiated; at 1 these are the forced ones, which have no
    gradient. Those that `skip` [B, R, A] names are not even scored: they count as certain. `dtype` is that of the
    matrix products: bfloat16 on a GPU, float32 elsewhere. Nothing here waits for the device or reads from it, so a
    training step can be captured in a CUDA graph.
    """
    mask = tsp_mask(actions) if mask is None else mask
    call, inputs, rules = _prepare(
        tables, actions, mask, scale=scale, clip=clip, heads=heads, certain=certain, dtype=dtype, config=config
    )
    save = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    rows = None if skip is None else _list_rows(~skip[:, :, mask.first_step :].flatten(1))
    score = _Scores.apply(call, save, rows, *inputs, *rules)
    return score if per_step else score.sum(2)


@torch.no_grad()
def glimpses(
    tables: ScoringTables, actions: Tensor, mask: ScoringMask | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """What attention sees before each decision of given actions, [B, R, T, E], without gradient; else as `score_actions`."""
    mask = tsp_mask(actions) if mask is None else mask
    call, inputs, rules = _prepare(tables, actions, mask, dtype=dtype)
    return _score(call, True, None, (*inputs, *rules))[1]


def _prepare(
    tables: ScoringTables, actions: Tensor, mask: ScoringMask, *, scale: float = 0.25, clip: float = 10.0, heads: int = 8,
    certain: float = 1.0, dtype: torch.dtype | None = None, config: TileConfig | None = None,
) -> tuple[_Call, tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:  # fmt: skip
    """What a launch is, and its tensors: the tables, and what the rules read."""
    assert 0 < clip <= 40, "the pointer's softmax subtracts the bound `clip`, not the maximum"
    assert (mask.problem == CVRP.value) == (tables.query_load is not None), "CVRP, and only CVRP, has a load query"
    dtype = dtype or (torch.bfloat16 if tables.key.is_cuda else torch.float32)
    config = config or TileConfig.choose(tables.key.shape[1], dtype, mask.problem)
    # What exists once per trajectory or less stays in plain torch and float32, and so do its gradients.
    with torch.autocast(tables.key.device.type, enabled=False):
        constant, query = _pointer_constant(tables), _query_base(tables, actions)
    load = None if tables.query_load is None else tables.query_load.float().contiguous()
    large = (tables.key, tables.value, tables.pointer, tables.query_last)
    key, value, pointer, last = (x.to(dtype).contiguous() for x in large)
    groups = None if constant is None else constant.shape[1]
    call = _Call(key.shape, actions.shape, groups, mask.problem, mask.first_step, scale, clip, heads, certain, config)
    assert 0 < call.steps < actions.shape[2] < NEVER.value, "at least one step to score; steps are 16-bit"
    assert actions.shape[1] * call.steps * key.shape[2] < 2**31, "offsets within an instance are 32-bit"
    assert actions.shape[1] % (groups or 1) == 0, "trajectories share pointer constants in equal groups"
    rules = (actions.contiguous(), mask.position, mask.room, mask.demand)
    return call, (key, value, pointer, constant, last, query, load), rules


def _pointer_constant(tables: ScoringTables) -> Tensor | None:
    """The pointer's constants and the glimpse's shift as one table [B, G, N'], filled up; None if there is neither."""
    parts = [] if tables.pointer_constant is None else [tables.pointer_constant.float()]
    if tables.pointer_shift is not None:
        parts.append(tables.pointer_shift.float() @ tables.pointer.float().transpose(1, 2))
    groups = max((x.shape[1] for x in parts), default=0)
    fill = (0, _padded_columns(tables.key.shape[1]) - tables.key.shape[1])
    return torch.nn.functional.pad(sum(_repeat(x, groups) for x in parts), fill) if parts else None


def _query_base(tables: ScoringTables, actions: Tensor) -> Tensor:
    """The part of the query that a trajectory keeps, [B, R, E]."""
    query = _repeat(tables.query_constant.float(), actions.shape[1])
    if tables.query_first is not None:
        first = actions[:, :, :1].long().expand(-1, -1, query.shape[2])
        query = query + tables.query_first.float().gather(1, first)
    return query.contiguous()


def _repeat(x: Tensor, groups: int) -> Tensor:
    """Each of the G rows of [B, G, ...] groups // G times in a row, by a view: safe to capture in a CUDA graph."""
    assert groups % x.shape[1] == 0
    return x[:, :, None].expand(-1, -1, groups // x.shape[1], -1).reshape(x.shape[0], groups, x.shape[2])


def _padded_columns(nodes: int) -> int:
    """Columns of a tile."""
    return max(16, triton.next_power_of_2(nodes))


class _Call(NamedTuple):
    """All that the four launches share, except the tensors."""

    tables: tuple[int, int, int]  # B, N, E
    actions: tuple[int, int, int]  # B, R, A
    groups: int | None  # pointer constants per instance, None without any
    problem: int
    first_step: int
    scale: float
    clip: float
    heads: int
    certain: float
    config: TileConfig

    @property
    def steps(self) -> int:
        return self.actions[2] - self.first_step

    def sizes(self, grouped: bool) -> tuple[int, ...]:
        """R, A, T, t0 of the kernels; with `grouped` also the groups of pointer constants and the size of a group."""
        (_, rollouts, length), groups = self.actions, self.groups or 1
        return (rollouts, length, self.steps, self.first_step, *((groups, rollouts // groups) if grouped else ()))

    def tiles(self, tile: Tile) -> int:
        """Tiles of rows per instance."""
        return triton.cdiv(self.actions[1] * self.steps, tile.rows)

    def chunks(self, tile: Tile, groups: int) -> int:
        """Chunks of tiles per instance, so that the launch has about `programs` programs."""
        return max(1, min(self.tiles(tile), triton.cdiv(self.config.programs, groups)))

    def options(self, tile: Tile) -> dict[str, int]:
        """Compile-time arguments and launch options of one kernel."""
        _, nodes, width = self.tables
        shape = {"N": nodes, "NP": _padded_columns(nodes), "M": tile.rows, "H": self.heads, "D": width // self.heads}
        launch = {"num_warps": tile.warps, "num_stages": tile.stages}
        return {**shape, "E": width, "PROBLEM": self.problem, **launch}

    @property
    def certain_from(self) -> float:
        """The least score of a decision that was certain. Forced moves score 0 up to rounding."""
        return math.log(self.certain) - ROUNDING


def _list_rows(kept: Tensor) -> tuple[Tensor, Tensor]:
    """The rows kept, [B, rows + 1] in rising order, then junk; and how many are kept up to each row, [B, rows]."""
    if kernels.on_gpu(kept):
        return _list_rows_by_kernel(kept.contiguous().view(torch.uint8))
    place = kept.cumsum(1, dtype=torch.int32)
    every = torch.arange(kept.shape[1], dtype=torch.int32, device=kept.device).expand_as(place)
    index = torch.zeros(len(kept), kept.shape[1] + 1, dtype=torch.int32, device=kept.device)
    index.scatter_(1, torch.where(kept, place - 1, kept.shape[1]).long(), every)
    return index, place


def _list_rows_with_gradient(score: Tensor, grad: Tensor, certain_from: float) -> tuple[Tensor, Tensor]:
    """The rows that have a gradient, as `_list_rows`: not certain, and weighed at all. What is not a number stays."""
    score, grad = score.flatten(1), grad.flatten(1)
    if kernels.on_gpu(score):
        return _list_rows_by_kernel(score, grad, certain_from)
    return _list_rows((grad != 0) & ~(score >= certain_from))


def _list_rows_by_kernel(what: Tensor, grad: Tensor | None = None, certain_from: float = 0.0) -> tuple[Tensor, Tensor]:
    """Both of them by a kernel, instead of a dozen passes over all rows; `what` are scores if there is a gradient."""
    (count, rows), like = what.shape, {"dtype": torch.int32, "device": what.device}
    index, place = torch.empty(count, rows + 1, **like), torch.empty(count, rows, **like)
    weighed = grad is not None
    list_kernel[(count,)](
        what, grad if weighed else what, index, place, rows, certain_from, M=LIST_TILE, BY_GRADIENT=weighed, num_warps=4
    )
    return index, place


def _fill_missing(key: Tensor, tensors: tuple[Tensor | None, ...]) -> list[Tensor]:
    """The tensors; where the problem has none, a pointer that the kernels do not follow."""
    return [key if x is None else x for x in tensors]


def _score(
    call: _Call, save: bool, rows: tuple[Tensor, Tensor] | None, tensors: tuple[Tensor | None, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores [B, R, T] and, if they are to be saved, glimpses, the heads' log-sums and log z of each row."""
    key, tile = tensors[0], call.config.forward
    assert key is not None
    b, rollouts, _ = call.actions
    score = key.new_zeros((b, rollouts, call.steps), dtype=torch.float32)
    glimpse = key.new_empty((*score.shape, key.shape[2]) if save else 1)
    stat = score.new_empty((b, call.heads, rollouts, call.steps, 2) if save else 1)
    log_z = score.new_empty(score.shape if save else 1)
    arguments = (*(rows or (key, key)), *_fill_missing(key, tensors), score, glimpse, stat, log_z)
    numbers = (*call.sizes(grouped=True), call.scale * LOG2E.value, call.clip)
    flags = {"HAS_PC": call.groups is not None, "SAVE": save, "LISTED": rows is not None}
    forward_kernel[(b * call.tiles(tile),)](*arguments, *numbers, **flags, **call.options(tile))
    return score, glimpse, stat, log_z


class _Scores(torch.autograd.Function):
    """Per-step log-probabilities [B, R, T]; tensors as `forward_kernel` takes them, contiguous, tables of one type."""

    @staticmethod
    def forward(ctx, call, save, rows, *tensors):
        score, *saved = _score(call, save, rows, tensors)
        ctx.call = call
        ctx.save_for_backward(*tensors, *saved, score)
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        call = ctx.call
        *tensors, glimpse, stat, log_z, score = ctx.saved_tensors
        key, value, pointer, constant, last, query, load, *rules = _fill_missing(tensors[0], tensors)
        deep = any(ctx.needs_input_grad[i] for i in (3, 4, 7, 8, 9))  # active search moves the pointers only
        grad, grad_rows = grad.float().contiguous(), torch.empty_like(glimpse) if deep else None
        rows = _list_rows_with_gradient(score, grad, call.certain_from)
        grad_pointer, grad_constant = _pointer_pass(
            call, rows, pointer, constant, rules, grad, glimpse, log_z, grad_rows
        )
        if not deep:
            grad_constant = None if tensors[3] is None else grad_constant.to(constant.dtype)
            return None, None, None, None, None, grad_pointer.to(pointer.dtype), grad_constant, *[None] * 7
        # From here on the rows hold the gradients of the queries, no longer of the glimpses: one buffer less.
        grad_key, grad_value = _heads_pass(call, rows, (key, value, last, query, load), rules, glimpse, stat, grad_rows)
        grad_last, grad_query, grad_load = _query_pass(call, rows, rules, grad_rows)
        grads = (grad_key, grad_value, grad_pointer, grad_constant, grad_last, grad_query, grad_load)
        grads = [None if x is None else g.to(x.dtype) for x, g in zip(tensors[:7], grads, strict=True)]
        return None, None, None, *grads, None, None, None, None


def _pointer_pass(call, rows, pointer, constant, rules, grad, glimpse, log_z, grad_rows):
    """Gradients of the pointer table and its constants; writes those of the glimpses where they have rows."""
    (b, nodes, width), tile = call.tables, call.config.pointer
    chunks = call.chunks(tile, 2 * b)
    grad_pointer = grad.new_empty(b, chunks, nodes, width)
    one = call.groups in (None, 1)
    grad_constant = grad.new_zeros(b, chunks if one else call.groups, _padded_columns(nodes))
    below = glimpse if grad_rows is None else grad_rows  # a pointer that is then not followed
    tensors = (*rows, pointer, constant, *rules, grad, glimpse, log_z, below, grad_pointer, grad_constant)
    numbers = (*call.sizes(grouped=True), call.clip, chunks)
    flags = {"HAS_PC": call.groups is not None, "ONE": one, "DEEP": grad_rows is not None}
    pointer_backward_kernel[(b * chunks,)](*tensors, *numbers, **flags, **call.options(tile))
    return grad_pointer.sum(1), grad_constant.sum(1, keepdim=True) if one else grad_constant


def _heads_pass(call, rows, tables, rules, glimpse, stat, grad_rows):
    """Gradients of keys and values; those of the queries replace those of the glimpses."""
    (b, nodes, width), tile = call.tables, call.config.heads
    chunks = call.chunks(tile, b * call.heads)
    grads = stat.new_empty(2, b, chunks, nodes, width)
    tensors = (*rows, *tables, *rules, glimpse, stat, grad_rows, *grads)
    numbers = (*call.sizes(grouped=False), call.scale, chunks)
    heads_backward_kernel[(b * call.heads * chunks,)](*tensors, *numbers, **call.options(tile))
    return grads.sum(2)


def _query_pass(call, rows, rules, grad_rows):
    """Gradients of the current node's table, of each trajectory's query and of the load's."""
    (b, nodes, width), tile = call.tables, call.config.query
    chunks = call.chunks(tile, 2 * b)
    like = {"device": grad_rows.device, "dtype": torch.float32}
    grad_last, grad_load = torch.empty(b, chunks, nodes, width, **like), torch.empty(b, chunks, width, **like)
    tensors = (*rows, grad_rows, rules[0], rules[2], grad_last, grad_load)
    query_backward_kernel[(b * chunks,)](*tensors, *call.sizes(grouped=False), chunks, **call.options(tile))
    count = call.actions[1]
    grad_query = torch.empty(b, count, width, **like)
    trajectory_backward_kernel[(b * count,)](
        *rows, grad_rows, grad_query, count, call.steps, M=16, E=width, num_warps=1
    )
    return grad_last.sum(1), grad_query, grad_load.sum(1)
