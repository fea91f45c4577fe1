"""Scores of given actions with gradients in every table: an autograd function of five kernels.

`kernels` has the formulas; `research/notebooks/kernels.md` the design and its limits.
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

SCORE_ROUNDING = 1e-6  # a forced move scores 0 up to this
LIST_TILE = 1024  # rows that are listed at a time


@dataclass(frozen=True)
class ScoringTables:
    """Decoder tables of B instances. The groups G divide R: sequence r uses row r // (R // G)."""

    key: Tensor  # [B, N, E]
    value: Tensor  # [B, N, E]
    pointer: Tensor  # [B, N, E] embeddings times the output projection, divided by sqrt(E)
    query_last: Tensor  # [B, N, E] query part of the current node
    query_constant: Tensor  # [B, G, E] query part of all steps: the graph's and the latent's
    query_first: Tensor | None = None  # [B, N, E] query part of the first node
    pointer_constant: Tensor | None = None  # [B, G', N] added to the pointer's scores before tanh
    # [B, G'', E] the same as a bias of the glimpse: constant += shift . pointer
    pointer_shift: Tensor | None = None
    query_load: Tensor | None = None  # [B, E] query part per unit of load left (CVRP only)


@dataclass(frozen=True)
class ScoringMask:
    """What the kernels' rules read. Rows are the steps first_step .. A-1 of every sequence."""

    problem: int
    position: Tensor  # int16 [B, R, N'] step that visits a node; -1 beyond the nodes
    first_step: int = 1
    # float32 [B, R, T] load left before the step + 1/2; negative: the depot is forbidden
    room: Tensor | None = None
    demand: Tensor | None = None  # float32 [B, N], 0 for the depot; whole, so comparisons are exact


def step_numbers(actions: Tensor) -> Tensor:
    """Return the number of each step, in the shape of the actions."""
    length = actions.shape[2]
    steps = torch.arange(length, device=actions.device, dtype=torch.int16)
    return steps.expand_as(actions)


def tsp_mask(actions: Tensor) -> ScoringMask:
    """Compute the rules of the TSP for actions [B, R, N], a permutation of the nodes each."""
    nodes = actions.shape[2]
    position = _empty_positions(actions, nodes)
    steps = step_numbers(actions)
    position.scatter_(2, actions.long(), steps)
    return ScoringMask(TSP.value, position)


def cvrp_mask(actions: Tensor, demand: Tensor, capacity: int, first_step: int = 1) -> ScoringMask:
    """Compute the rules of the CVRP for actions [B, R, A] that start at the depot, node 0.

    Actions are padded with depots. Demand [B, N] and capacity are whole units. A vehicle may not
    stay at the depot while a customer is left.
    """
    # Rollouts come as strided views, and what follows would inherit the strides.
    actions = actions.long().contiguous()
    _, sequences, length = actions.shape
    steps = step_numbers(actions)
    demand = demand.float().contiguous()
    demand_of_node = demand[:, None]
    demand_of_node = demand_of_node.expand(-1, sequences, -1)  # [B, R, N]
    position = _empty_positions(actions, demand.shape[1])
    position.scatter_(2, actions, steps)
    of_customers = position[:, :, 1:]
    last_customer = of_customers.amax(2, keepdim=True)
    all_served = steps > last_customer
    position[:, :, 0] = length  # the depot never counts as visited
    served = demand_of_node.gather(2, actions)
    served = served.cumsum(2)
    at_depot = actions == 0
    at_return = served.masked_fill(~at_depot, 0.0)
    left = capacity - served + at_return.cummax(2).values
    before = slice(first_step - 1, -1)
    is_away = ~at_depot[:, :, before]
    depot_allowed = is_away | all_served[:, :, first_step:]
    room = left[:, :, before] + 0.5
    room = torch.where(depot_allowed, room, -room)
    return ScoringMask(
        CVRP.value,
        position,
        first_step,
        room,
        demand,
    )


def _empty_positions(actions: Tensor, nodes: int) -> Tensor:
    """Allocate positions to be filled in: 0, and -1 beyond the nodes."""
    columns = _padded_columns(nodes)
    position = actions.new_zeros(*actions.shape[:2], columns, dtype=torch.int16)
    position[:, :, nodes:] = -1
    return position


class Tile(NamedTuple):
    """How one kernel is launched."""

    rows: int
    warps: int
    stages: int


class TileConfig(NamedTuple):
    """Tiles of the four kernels; the defaults are for up to 128 nodes in 16 bits on an H200.

    With 8 warps the forward kernel needs 128 rows: on fewer, both groups of warps compute the same
    tile (seen in the machine code).
    """

    forward: Tile = Tile(64, 4, 3)
    pointer: Tile = Tile(64, 8, 2)
    heads: Tile = Tile(64, 4, 1)
    query: Tile = Tile(64, 4, 2)
    programs: int = 1056  # wanted per launch of a backward kernel: 8 per processor of an H200

    @staticmethod
    def choose(nodes: int, dtype: torch.dtype, problem: int) -> TileConfig:
        """Choose tiles that fit the registers and the shared memory of an H200."""
        if dtype == torch.float32:  # no tensor cores: for checks, not for speed
            small = Tile(16, 4, 1)
            return TileConfig(small, small, small, small)
        if nodes <= 128:
            return TileConfig()
        # The mask of a CVRP is larger, and leaves less room in registers.
        heads = Tile(32, 4, 1) if problem == CVRP.value else Tile(64, 4, 1)
        columns = _padded_columns(nodes)

        def narrowed(tile: Tile) -> Tile:
            rows = tile.rows * 128 // columns
            return tile._replace(rows=max(16, rows))

        return TileConfig(
            forward=narrowed(Tile(64, 4, 2)),
            pointer=narrowed(Tile(64, 8, 2)),
            heads=narrowed(heads),
            query=narrowed(Tile(64, 8, 3)),
        )


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
    """Compute the log-probability of given actions, differentiable in every table.

    Returns float32 [B, R], or [B, R, T] per step. `actions` are integers [B, R, A]; the first is
    given, not scored. `mask` is `tsp_mask(actions)` by default. `scale` multiplies q . key:
    1/sqrt(16) by default; tables that already carry log2(e)/4 take ln 2.

    Decisions with a probability of at least `certain` are scored, but not differentiated; at 1
    these are the forced ones, which have no gradient. Those in `skip` [B, R, A] are not even
    scored: they count as certain. `dtype` is that of the matrix products: bfloat16 on a GPU,
    float32 elsewhere.

    The host neither waits for the device nor reads from it, so a training step can be captured in
    a CUDA graph.
    """
    if mask is None:
        mask = tsp_mask(actions)
    settings = _Settings(scale, clip, heads, certain, dtype, config)
    call, inputs, rules = _prepare(tables, actions, mask, settings)
    differentiable = any(x is not None and x.requires_grad for x in inputs)
    save = torch.is_grad_enabled() and differentiable
    rows = None
    if skip is not None:
        wanted = ~skip[:, :, mask.first_step :]
        rows = _list_rows(wanted.flatten(1))
    score = _Scores.apply(call, save, rows, *inputs, *rules)
    return score if per_step else score.sum(2)


@torch.no_grad()
def glimpses(
    tables: ScoringTables,
    actions: Tensor,
    mask: ScoringMask | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Compute the attention read-out before each decision of given actions, [B, R, T, E].

    It has no gradient. Arguments are those of `score_actions`.
    """
    if mask is None:
        mask = tsp_mask(actions)
    settings = _Settings(dtype=dtype)
    call, inputs, rules = _prepare(tables, actions, mask, settings)
    _, glimpse, _, _ = _score(call, True, None, (*inputs, *rules))
    return glimpse


class _Settings(NamedTuple):
    """Options of `score_actions`, with its defaults."""

    scale: float = 0.25
    clip: float = 10.0
    heads: int = 8
    certain: float = 1.0
    dtype: torch.dtype | None = None
    config: TileConfig | None = None


def _prepare(
    tables: ScoringTables, actions: Tensor, mask: ScoringMask, settings: _Settings
) -> tuple[_Call, tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:
    """Describe a call, and return its tensors: the tables, and what the rules read."""
    scale, clip, heads, certain, dtype, config = settings
    assert 0 < clip <= 40, "the pointer's softmax subtracts the bound `clip`, not the maximum"
    has_load = tables.query_load is not None
    assert (mask.problem == CVRP.value) == has_load, "CVRP, and only CVRP, has a load query"
    if dtype is None:
        dtype = torch.bfloat16 if tables.key.is_cuda else torch.float32
    if config is None:
        config = TileConfig.choose(tables.key.shape[1], dtype, mask.problem)
    # What exists once per sequence or less stays in plain torch and float32, as do its gradients.
    with torch.autocast(tables.key.device.type, enabled=False):
        constant = _pointer_constant(tables)
        query = _query_base(tables, actions)
    load = None if tables.query_load is None else tables.query_load.float().contiguous()
    key = tables.key.to(dtype).contiguous()
    value = tables.value.to(dtype).contiguous()
    pointer = tables.pointer.to(dtype).contiguous()
    query_last = tables.query_last.to(dtype).contiguous()
    groups = None if constant is None else constant.shape[1]
    call = _Call(
        key.shape,
        actions.shape,
        groups,
        mask.problem,
        mask.first_step,
        scale,
        clip,
        heads,
        certain,
        config,
    )
    sequences = actions.shape[1]
    enough = 0 < call.steps < actions.shape[2] < NEVER.value
    assert enough, "at least one step to score; steps are 16-bit"
    offsets = sequences * call.steps * key.shape[2]
    assert offsets < 2**31, "offsets within an instance are 32-bit"
    assert sequences % (groups or 1) == 0, "trajectories share pointer constants in equal groups"
    rules = (actions.contiguous(), mask.position, mask.room, mask.demand)
    return call, (key, value, pointer, constant, query_last, query, load), rules


def _pointer_constant(tables: ScoringTables) -> Tensor | None:
    """Add the pointer's constants and the glimpse's bias to one padded table [B, G, N'].

    Returns None if there is neither.
    """
    parts: list[Tensor] = []
    if tables.pointer_constant is not None:
        parts.append(tables.pointer_constant.float())
    if tables.pointer_shift is not None:
        pointer = tables.pointer.float().transpose(1, 2)
        parts.append(tables.pointer_shift.float() @ pointer)
    if not parts:
        return None
    groups = max(x.shape[1] for x in parts)
    nodes = tables.key.shape[1]
    missing = _padded_columns(nodes) - nodes
    whole = sum(_repeat(x, groups) for x in parts)
    return torch.nn.functional.pad(whole, (0, missing))


def _query_base(tables: ScoringTables, actions: Tensor) -> Tensor:
    """Compute the part of the query that a sequence keeps, [B, R, E]."""
    constant = tables.query_constant.float()
    query = _repeat(constant, actions.shape[1])
    if tables.query_first is not None:
        width = query.shape[2]
        first = actions[:, :, :1].long()
        first = first.expand(-1, -1, width)
        rows = tables.query_first.float()
        query = query + rows.gather(1, first)
    return query.contiguous()


def _repeat(x: Tensor, groups: int) -> Tensor:
    """Repeat each of the G rows of [B, G, ...] groups // G times, one after the other.

    A view does it, which a CUDA graph can capture.
    """
    count, own, width = x.shape
    assert groups % own == 0
    times = groups // own
    repeated = x[:, :, None]
    repeated = repeated.expand(-1, -1, times, -1)
    return repeated.reshape(count, groups, width)


def _padded_columns(nodes: int) -> int:
    """Return the columns of a tile."""
    power_of_two = triton.next_power_of_2(nodes)
    return max(16, power_of_two)


class _Call(NamedTuple):
    """All that the launches share, except the tensors."""

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
        """Return the number of scored steps, T."""
        _, _, length = self.actions
        return length - self.first_step

    def sizes(self, grouped: bool) -> tuple[int, ...]:
        """Return R, A, T, t0 of the kernels.

        With `grouped`, the groups of pointer constants and the size of a group follow.
        """
        _, rollouts, length = self.actions
        sizes = (rollouts, length, self.steps, self.first_step)
        if not grouped:
            return sizes
        groups = self.groups or 1
        return *sizes, groups, rollouts // groups

    def tiles(self, tile: Tile) -> int:
        """Return the tiles of rows of an instance."""
        _, rollouts, _ = self.actions
        rows = rollouts * self.steps
        return triton.cdiv(rows, tile.rows)

    def chunks(self, tile: Tile, groups: int) -> int:
        """Return the chunks of tiles of an instance, for about `programs` programs in all."""
        wanted = triton.cdiv(self.config.programs, groups)
        tiles = self.tiles(tile)
        return max(1, min(tiles, wanted))

    def options(self, tile: Tile) -> dict[str, int]:
        """Return the compile-time arguments and launch options of one kernel."""
        _, nodes, width = self.tables
        return {
            "N": nodes,
            "NP": _padded_columns(nodes),
            "M": tile.rows,
            "H": self.heads,
            "D": width // self.heads,
            "E": width,
            "PROBLEM": self.problem,
            "num_warps": tile.warps,
            "num_stages": tile.stages,
        }

    @property
    def certain_from(self) -> float:
        """Return the least score of a decision that counts as certain."""
        return math.log(self.certain) - SCORE_ROUNDING


def _list_rows(kept: Tensor) -> tuple[Tensor, Tensor]:
    """List the rows kept, [B, rows + 1] in rising order, then junk; and count them.

    The counts [B, rows] are those up to each row.
    """
    if kernels.on_gpu(kept):
        return _list_rows_by_kernel(kept.contiguous().view(torch.uint8))
    count, rows = kept.shape
    device = kept.device
    place = kept.cumsum(1, dtype=torch.int32)
    every = torch.arange(rows, dtype=torch.int32, device=device).expand_as(place)
    index = torch.zeros(count, rows + 1, dtype=torch.int32, device=device)
    target = torch.where(kept, place - 1, rows).long()
    index.scatter_(1, target, every)
    return index, place


def _list_rows_with_gradient(
    score: Tensor, grad: Tensor, certain_from: float
) -> tuple[Tensor, Tensor]:
    """List the rows that have a gradient, as `_list_rows` does.

    Those are the rows that are not certain and have a weight. NaN scores are kept.
    """
    score = score.flatten(1)
    grad = grad.flatten(1)
    if kernels.on_gpu(score):
        return _list_rows_by_kernel(score, grad, certain_from)
    is_certain = score >= certain_from
    return _list_rows((grad != 0) & ~is_certain)


def _list_rows_by_kernel(
    what: Tensor, grad: Tensor | None = None, certain_from: float = 0.0
) -> tuple[Tensor, Tensor]:
    """List rows by one kernel instead of a dozen passes.

    `what` are flags, or scores if there is a gradient.
    """
    count, rows = what.shape
    index = torch.empty(count, rows + 1, dtype=torch.int32, device=what.device)
    place = torch.empty(count, rows, dtype=torch.int32, device=what.device)
    by_gradient = grad is not None
    list_kernel[(count,)](
        what,
        grad if by_gradient else what,
        index,
        place,
        rows,
        certain_from,
        M=LIST_TILE,
        BY_GRADIENT=by_gradient,
        num_warps=4,
    )
    return index, place


def _fill_missing(key: Tensor, tensors: tuple[Tensor | None, ...]) -> list[Tensor]:
    """Replace missing tensors by a pointer that the kernels do not follow."""
    present = []
    for x in tensors:
        present.append(key if x is None else x)
    return present


def _score(
    call: _Call,
    save: bool,
    rows: tuple[Tensor, Tensor] | None,
    tensors: tuple[Tensor | None, ...],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute scores [B, R, T] and what the backward pass needs, if it is to be saved.

    That are glimpses, the heads' log-sums, and log z of each row.
    """
    key = tensors[0]
    assert key is not None
    tile = call.config.forward
    count, rollouts, _ = call.actions
    width = key.shape[2]
    score = key.new_zeros((count, rollouts, call.steps), dtype=torch.float32)
    glimpse = key.new_empty((*score.shape, width) if save else 1)
    stat = score.new_empty((count, call.heads, rollouts, call.steps, 2) if save else 1)
    log_z = score.new_empty(score.shape if save else 1)
    listed = (key, key) if rows is None else rows
    forward_kernel[(count * call.tiles(tile),)](
        *listed,
        *_fill_missing(key, tensors),
        score,
        glimpse,
        stat,
        log_z,
        *call.sizes(grouped=True),
        call.scale * LOG2E.value,
        call.clip,
        HAS_PC=call.groups is not None,
        SAVE=save,
        LISTED=rows is not None,
        **call.options(tile),
    )
    return score, glimpse, stat, log_z


class _Saved(NamedTuple):
    """What the forward pass has saved, missing tensors filled in."""

    key: Tensor
    value: Tensor
    pointer: Tensor
    constant: Tensor
    query_last: Tensor
    query: Tensor
    load: Tensor
    rules: tuple[Tensor, Tensor, Tensor, Tensor]  # actions, positions, room, demand
    glimpse: Tensor
    stat: Tensor
    log_z: Tensor


class _Scores(torch.autograd.Function):
    """Per-step log-probabilities [B, R, T].

    Tensors are those of `forward_kernel`: contiguous, and tables of one type.
    """

    @staticmethod
    def forward(ctx, call, save, rows, *tensors):
        score, glimpse, stat, log_z = _score(call, save, rows, tensors)
        ctx.call = call
        ctx.save_for_backward(*tensors, glimpse, stat, log_z, score)
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        call = ctx.call
        *tensors, glimpse, stat, log_z, score = ctx.saved_tensors
        *tables, actions, position, room, demand = _fill_missing(tensors[0], tensors)
        rules = (actions, position, room, demand)
        saved = _Saved(*tables, rules, glimpse, stat, log_z)
        # Active search moves the pointers only.
        deep = any(ctx.needs_input_grad[i] for i in (3, 4, 7, 8, 9))
        grad = grad.float().contiguous()
        grad_rows = torch.empty_like(glimpse) if deep else None
        rows = _list_rows_with_gradient(score, grad, call.certain_from)
        grad_pointer, grad_constant = _pointer_pass(call, rows, saved, grad, grad_rows)
        if not deep:
            grad_pointer = grad_pointer.to(saved.pointer.dtype)
            has_constant = tensors[3] is not None
            grad_constant = grad_constant.to(saved.constant.dtype) if has_constant else None
            return None, None, None, None, None, grad_pointer, grad_constant, *[None] * 7
        # From here on the rows hold the gradients of the queries, no longer those of the glimpses,
        # which saves a buffer.
        grad_key, grad_value = _heads_pass(call, rows, saved, grad_rows)
        grad_last, grad_query, grad_load = _query_pass(call, rows, saved.rules, grad_rows)
        grads = (
            grad_key,
            grad_value,
            grad_pointer,
            grad_constant,
            grad_last,
            grad_query,
            grad_load,
        )
        pairs = zip(tensors[:7], grads, strict=True)
        grads = [None if x is None else grad.to(x.dtype) for x, grad in pairs]
        return None, None, None, *grads, None, None, None, None


def _pointer_pass(call, rows, saved, grad, grad_rows):
    """Compute the gradients of the pointer table and of its constants.

    Writes the gradients of the glimpses into `grad_rows`, unless it is None.
    """
    count, nodes, width = call.tables
    tile = call.config.pointer
    chunks = call.chunks(tile, 2 * count)
    grad_pointer = grad.new_empty(count, chunks, nodes, width)
    one = call.groups in (None, 1)
    groups = chunks if one else call.groups
    grad_constant = grad.new_zeros(count, groups, _padded_columns(nodes))
    target = saved.glimpse if grad_rows is None else grad_rows  # not followed if it is None
    pointer_backward_kernel[(count * chunks,)](
        *rows,
        saved.pointer,
        saved.constant,
        *saved.rules,
        grad,
        saved.glimpse,
        saved.log_z,
        target,
        grad_pointer,
        grad_constant,
        *call.sizes(grouped=True),
        call.clip,
        chunks,
        HAS_PC=call.groups is not None,
        ONE=one,
        DEEP=grad_rows is not None,
        **call.options(tile),
    )
    if one:
        grad_constant = grad_constant.sum(1, keepdim=True)
    return grad_pointer.sum(1), grad_constant


def _heads_pass(call, rows, saved, grad_rows):
    """Compute the gradients of keys and values.

    The gradients of the queries replace those of the glimpses in `grad_rows`.
    """
    count, nodes, width = call.tables
    tile = call.config.heads
    chunks = call.chunks(tile, count * call.heads)
    grads = saved.stat.new_empty(2, count, chunks, nodes, width)
    heads_backward_kernel[(count * call.heads * chunks,)](
        *rows,
        saved.key,
        saved.value,
        saved.query_last,
        saved.query,
        saved.load,
        *saved.rules,
        saved.glimpse,
        saved.stat,
        grad_rows,
        *grads,
        *call.sizes(grouped=False),
        call.scale,
        chunks,
        **call.options(tile),
    )
    return grads.sum(2)


def _query_pass(call, rows, rules, grad_rows):
    """Compute the gradients of the current node's table, of the queries and of the load's query."""
    count, nodes, width = call.tables
    tile = call.config.query
    actions, _, room, _ = rules
    sequences = actions.shape[1]
    chunks = call.chunks(tile, 2 * count)
    like = {"device": grad_rows.device, "dtype": torch.float32}
    grad_last = torch.empty(count, chunks, nodes, width, **like)
    grad_load = torch.empty(count, chunks, width, **like)
    query_backward_kernel[(count * chunks,)](
        *rows,
        grad_rows,
        actions,
        room,
        grad_last,
        grad_load,
        *call.sizes(grouped=False),
        chunks,
        **call.options(tile),
    )
    grad_query = torch.empty(count, sequences, width, **like)
    trajectory_backward_kernel[(count * sequences,)](
        *rows,
        grad_rows,
        grad_query,
        sequences,
        call.steps,
        M=16,
        E=width,
        num_warps=1,
    )
    return grad_last.sum(1), grad_query, grad_load.sum(1)
