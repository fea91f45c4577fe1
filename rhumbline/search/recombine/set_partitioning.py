"""Set partitioning: select routes that serve every customer exactly once, at the least cost.

Each customer gets a price, a Lagrange multiplier of the constraint "served once". Prices say what a
route is worth. A beam search then adds routes one by one, always for the most constrained customer:
the one with the smallest choice of routes left. There are three engines: batched tensor operations,
Triton kernels on a GPU, and on a CPU a compiled beam that runs one instance per thread.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline import kernels
from rhumbline.record import Record
from rhumbline.search.plan_sets.diverse import gather_per_instance, mark_repeats


@dataclass(frozen=True)
class PartitionTuning:
    """Settings of the price updates and of the beam."""

    price_rounds: int = 200  # subgradient steps
    step_size: float = 0.7  # of the first step
    momentum: float = 0.7
    patience: int = 20  # rounds without a better bound before the step size is halved
    min_square_norm: float = 1e-6  # added to the divisor of a step
    candidates_per_place: int = 4  # several candidates often serve the same customers
    max_batch_elements: int = 1 << 26  # numbers in one step of all beams that run together
    kernel_routes_per_place: int = 128  # that the GPU kernel lists for each place of the beam

    @property
    def descent(self) -> tuple[int, float, float, int]:
        """What the kernels need to update prices."""
        return (
            self.price_rounds,
            self.step_size,
            self.momentum,
            self.patience,
        )


TUNING = PartitionTuning()


@dataclass(frozen=True)
class PartitionProblem(Record):
    """Routes to select from, and the limits on a selection."""

    served: Float[Tensor, "B R n"]  # 1 for the customers of each route
    code: Int[Tensor, "B R"]  # hash of these customers
    cost: Float[Tensor, "B R"]  # relative to the best plan; infinite for an empty entry
    best: Bool[Tensor, "B R"]  # routes of the best plan
    max_routes: Int[Tensor, "B"]  # in one plan
    max_cost: Float[Tensor, "B"]  # a plan has to cost less


PartitionEngine = Literal["tensors", "kernels", "compiled"]


def instance_slices(count: int, elements: int, most: int | None = None) -> list[slice]:
    """Split instances into slices that fit into memory, at most `most` in each.

    `elements` are the numbers that one instance takes.
    """
    affordable = TUNING.max_batch_elements // elements
    size = max(1, affordable)
    if most is not None:
        size = min(size, most)
    size = min(size, count)
    slices = list[slice]()
    for first in range(0, count, size):
        slices.append(slice(first, first + size))
    return slices


def solve_partition(
    problem: PartitionProblem, width: int, engine: PartitionEngine
) -> Int[Tensor, "B q"]:
    """Return the routes of the best plan that a beam of `width` places finds, padded with -1."""
    if engine == "compiled":
        return solve_compiled(problem, width)
    return solve_batched(problem, width, engine == "kernels")


def best_partition_engine(device: torch.device, customers: int, wanted: str) -> PartitionEngine:
    """Return the fastest engine for a device, unless plain torch is wanted.

    The kernels hold as many customers as one of their tiles.
    """
    if wanted == "torch":
        return "tensors"
    reason = kernels.why_not_compiled(device, customers + 1, kernels.MAX_TILE_NODES + 1)
    if reason:
        return "tensors"
    return "kernels" if device.type == "cuda" else "compiled"


def solve_compiled(problem: PartitionProblem, width: int) -> Int[Tensor, "B q"]:
    """Solve each instance with the compiled beam, in a thread of its own."""
    from rhumbline.kernels.numba.local_search import launch as local_moves

    descent = TUNING.descent
    customers = problem.served.shape[2]
    rows = zip(problem.served, problem.code, problem.cost, problem.best, strict=True)
    tables = [sparse_routes(*row) for row in rows]

    def find(table: tuple[list[np.ndarray], np.ndarray], max_cost: float, depth: int) -> list[int]:
        routes, best = table
        branch = TUNING.candidates_per_place
        return local_moves.find_cheapest_partition(
            routes, best, customers, max_cost, descent, depth, width, branch
        )

    max_cost = problem.max_cost.tolist()
    max_routes = problem.max_routes.tolist()
    with ThreadPoolExecutor(len(tables)) as pool:  # no tensors inside: torch has its own threads
        found = list(pool.map(find, tables, max_cost, max_routes))
    longest = max(len(chosen) for chosen in found) + 1
    padded = list[list[int]]()
    for chosen in found:
        padding = [-1] * (longest - len(chosen))
        padded.append([*chosen, *padding])
    return torch.tensor(padded)


def sparse_routes(
    served: Float[Tensor, "R n"],
    code: Int[Tensor, "R"],
    cost: Float[Tensor, "R"],
    best: Bool[Tensor, "R"],
) -> tuple[list[np.ndarray], np.ndarray]:
    """Convert the routes of one instance to the arrays that the compiled beam takes.

    They are the first member of each route, all members, costs and codes; and separately, which
    routes belong to the best plan. An empty entry serves no customer.
    """
    routes = len(cost)
    is_route = cost.isfinite()
    served = served * is_route[:, None]
    owner, members = served.nonzero(as_tuple=True)
    sizes = owner.bincount(minlength=routes)
    ends = sizes.cumsum(0)
    first = torch.nn.functional.pad(ends, (1, 0))
    cost = cost.double()
    cost = cost.masked_fill(~is_route, 1.0)
    tensors = [first, members.int(), cost, code.contiguous()]
    arrays = [x.numpy() for x in tensors]
    in_best = best & is_route
    return arrays, in_best.numpy()


def solve_batched(problem: PartitionProblem, width: int, packed: bool) -> Int[Tensor, "B q"]:
    """Solve with tensor operations or kernels, for as many instances at once as fit into memory."""
    cost = problem.cost
    code = problem.code
    served = problem.served
    count, routes = cost.shape
    price_function = customer_prices_by_kernel if packed else customer_prices
    price = price_function(cost, served, problem.best)
    value = cost - route_price_sums(served, price)
    goal = problem.max_cost - price.sum(1)
    gain = value.clamp(max=0.0)
    most = goal - gain.sum(1)  # routes that are added later may still lower the sum

    kind = PackedRoutes if packed else DenseRoutes
    columns = TUNING.kernel_routes_per_place if packed else routes
    slices = instance_slices(count, width * columns)
    tables = list[PackedRoutes | DenseRoutes]()
    for rows in slices:
        table = kind.build(value[rows], served[rows], code[rows], most[rows])
        tables.append(table)
    totals = list[Tensor]()
    selections = list[Tensor]()
    for table, rows in zip(tables, slices, strict=True):
        max_routes = problem.max_routes[rows]
        total, chosen = beam_partition(table, max_routes, width)
        totals.append(total)
        selections.append(chosen)
    is_useless = torch.cat(totals) >= goal
    chosen = pad_selections(selections)
    return chosen.masked_fill(is_useless[:, None], -1)


def pad_selections(selections: list[Tensor]) -> Int[Tensor, "B q"]:
    """Concatenate selections of different lengths, padded with -1."""
    lengths = [chosen.shape[1] for chosen in selections]
    longest = max(lengths)
    padded = list[Tensor]()
    for chosen, length in zip(selections, lengths, strict=True):
        padding = (0, longest - length)
        chosen = torch.nn.functional.pad(chosen, padding, value=-1)
        padded.append(chosen)
    return torch.cat(padded)


# --- prices


def customer_prices(
    cost: Float[Tensor, "B R"], served: Float[Tensor, "B R n"], best: Bool[Tensor, "B R"]
) -> Float[Tensor, "B n"]:
    """Return prices that make the lower bound on all plans high, by subgradient ascent.

    Costs are relative: the best plan costs 1.
    """
    price = initial_prices(cost, served, best)
    kept = price
    direction = torch.zeros_like(served[:, 0])
    first_cost = cost[:, :1]
    bound = torch.full_like(first_cost, -torch.inf)
    step_size = torch.full_like(bound, TUNING.step_size)
    in_vain = torch.zeros_like(bound)
    for _ in range(TUNING.price_rounds):
        value = cost - route_price_sums(served, price)
        gain = value.clamp(max=0.0)
        lower_bound = price.sum(1, keepdim=True) + gain.sum(1, keepdim=True)
        is_higher = lower_bound > bound
        kept = torch.where(is_higher, price, kept)
        bound = torch.maximum(lower_bound, bound)

        in_vain = in_vain + 1.0
        give_up = in_vain > TUNING.patience
        in_vain = in_vain.masked_fill(is_higher | give_up, 0.0)
        is_stuck = (in_vain == 0) & ~is_higher
        step_size = torch.where(is_stuck, 0.5 * step_size, step_size)

        is_used = (value < 0).float()
        times_served = is_used[:, None] @ served
        lack = 1.0 - times_served[:, 0]
        direction = TUNING.momentum * direction + lack
        square = direction.square()
        square_norm = square.sum(1, keepdim=True) + TUNING.min_square_norm
        distance = (1.0 - lower_bound).clamp(min=0.0)
        price = price + step_size * distance / square_norm * direction
    return kept


def initial_prices(
    cost: Float[Tensor, "B R"], served: Float[Tensor, "B R n"], best: Bool[Tensor, "B R"]
) -> Float[Tensor, "B n"]:
    """Share the cost of each route of the best plan among its customers.

    Several best plans are averaged.
    """
    members = served.sum(2).clamp(min=1.0)
    cost = cost.masked_fill(~best, 0.0)
    share = cost / members
    rows = torch.stack([share, best.float()], 1)
    rows = rows.double()
    sums = rows @ served.double()
    sums = sums.float()
    price, plans = sums.unbind(1)
    return price / plans.clamp(min=1.0)


def customer_prices_by_kernel(
    cost: Float[Tensor, "B R"], served: Float[Tensor, "B R n"], best: Bool[Tensor, "B R"]
) -> Float[Tensor, "B n"]:
    """Return the same prices from one kernel launch.

    The kernel adds in another order, so after some rounds its prices differ.
    """
    from rhumbline.kernels.triton import set_partitioning as triton_partitioning

    members, size = list_members(served)
    first = initial_prices(cost, served, best)
    descent = (*TUNING.descent, TUNING.min_square_norm)
    return triton_partitioning.launch_prices(members, size, cost.contiguous(), first, *descent)


def list_members(
    served: Float[Tensor, "B R n"],
) -> tuple[Int[Tensor, "B L R"], Int[Tensor, "B R"]]:
    """Return the customers of each route, one below the other, and their number."""
    count, routes, _ = served.shape
    size = served.sum(2).int()
    instance, route, customer = served.nonzero(as_tuple=True)
    sizes = size.flatten()
    before = sizes.cumsum(0) - sizes  # customers of all routes before each
    index = instance * routes + route
    number = torch.arange(len(customer), device=served.device)
    place = number - before[index]
    longest = int(size.amax())
    members = size.new_zeros(count, longest, routes, dtype=torch.int16)
    members[instance, place, route] = customer.short()
    return members, size


def route_price_sums(
    served: Float[Tensor, "B R n"], price: Float[Tensor, "B n"]
) -> Float[Tensor, "B R"]:
    """Sum the prices of each route's customers.

    A matrix product would be shorter, but its last bits depend on the size of the batch.
    """
    prices = served * price[:, None]
    return prices.sum(2)


# --- tables of routes


class RouteTable(Protocol):
    """Routes to select from, in whatever form the covered customers are stored."""

    @property
    def value(self) -> Float[Tensor, "B R"]:
        """Cost of each route minus the prices of its customers: below 0 a route pays."""
        ...

    @property
    def code(self) -> Int[Tensor, "B R"]:
        """Hash of the customers of each route."""
        ...

    def empty_cover(self) -> Tensor:
        """Return the cover of the first place of a beam, which serves no customer: [B, 1, ...]."""
        ...

    def is_complete(self, cover: Tensor) -> Bool[Tensor, "B W"]:
        """Return whether every customer is served."""
        ...

    def add_routes(self, cover: Tensor, route: Int[Tensor, "B W"]) -> Tensor:
        """Return the covers after adding one route at each place."""
        ...

    def additions(self, cover: Tensor, score: Float[Tensor, "B W"]) -> tuple[Tensor, Tensor | None]:
        """Return the scores [B, W, K] after adding a route for the most constrained customer.

        That is the one with the smallest choice left. A score is infinite where there is no such
        route. The second tensor names the routes; None means that each route has its own column.
        """
        ...

    def original_indices(self, chosen: Int[Tensor, "B q"]) -> Int[Tensor, "B q"]:
        """Return the indices that routes had before the table was built."""
        ...


@dataclass(frozen=True)
class DenseRoutes(Record):
    """Covers as ones and zeros, for tensor operations."""

    value: Float[Tensor, "B R"]
    served: Float[Tensor, "B R n"]
    across: Float[Tensor, "B n R"]
    code: Int[Tensor, "B R"]
    most: Float[Tensor, "B"]  # sums of values from here on make no better plan

    @classmethod
    def build(cls, value: Tensor, served: Tensor, code: Tensor, most: Tensor) -> Self:
        """Build the table, in bfloat16 on a GPU.

        Half the size is faster. Counts are exact up to 256, and only the least count matters.
        """
        served = served.bfloat16() if served.is_cuda else served
        across = served.mT.contiguous()
        return cls(value, served, across, code, most)

    def empty_cover(self) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(self.served[:, :1])

    def is_complete(self, cover: Tensor) -> Bool[Tensor, "B W"]:
        """Return whether there are as many ones as customers."""
        ones = cover.sum(2, dtype=torch.float32)
        customers = cover.shape[2]
        return ones == customers

    def add_routes(self, cover: Tensor, route: Int[Tensor, "B W"]) -> Tensor:
        """Add the customers of the routes, none of whom is covered yet."""
        added = gather_per_instance(self.served, route)
        return cover + added

    def additions(self, cover: Tensor, score: Float[Tensor, "B W"]) -> tuple[Tensor, None]:
        """Score all routes at all places."""
        value = self.value[:, None]
        sums = score[..., None] + value
        is_free = cover @ self.across == 0
        limit = self.most[:, None, None]
        is_free = is_free.logical_and_(sums < limit)
        choices = is_free.to(cover.dtype) @ self.served
        choices = choices.masked_fill_(cover > 0, torch.inf)
        customer = choices.argmin(2)
        serves = gather_per_instance(self.across, customer)
        is_free &= serves > 0
        is_excluded = is_free.logical_not_()
        sums = sums.masked_fill_(is_excluded, torch.inf)
        return sums, None

    def original_indices(self, chosen: Int[Tensor, "B q"]) -> Int[Tensor, "B q"]:
        """Return the indices as they are."""
        return chosen


@dataclass(frozen=True)
class PackedRoutes(Record):
    """Covers as bits of 32-bit words, and routes in ascending order of value, for the kernel."""

    value: Float[Tensor, "B R"]
    served: Float[Tensor, "B R C"]  # filled up with empty columns to a power of two
    words: Int[Tensor, "B M R"]
    code: Int[Tensor, "B R"]
    most: Float[Tensor, "B"]
    order: Int[Tensor, "B R"]
    full: Int[Tensor, "M"]  # words of all customers
    customers: int

    @classmethod
    def build(cls, value: Tensor, served: Tensor, code: Tensor, most: Tensor) -> Self:
        """Build the table. Low values come first: the kernel lists the first routes it finds."""
        device = value.device
        value, order = value.sort(dim=1, stable=True)
        code = code.gather(1, order)
        customers = served.shape[2]
        power_of_two = 1 << (customers - 1).bit_length()
        columns = max(32, power_of_two)
        served = gather_per_instance(served, order)
        served = torch.nn.functional.pad(served, (0, columns - customers))

        bit = torch.arange(32, device=device)
        bits = served.long()
        bits = bits.unflatten(2, (-1, 32)) << bit
        words = to_signed_words(bits.sum(3))
        words = words.mT.contiguous()
        column = torch.arange(columns, device=device)
        column = column.view(-1, 32)
        is_customer = column < customers
        full_bits = is_customer.long() << column % 32
        full = to_signed_words(full_bits.sum(1))

        served = served.bfloat16() if served.is_cuda else served
        return cls(value, served, words, code, most, order, full, customers)

    def empty_cover(self) -> Tensor:
        """Return words of zeros."""
        return torch.zeros_like(self.words[..., 0])[:, None]

    def is_complete(self, cover: Tensor) -> Bool[Tensor, "B W"]:
        """Return whether the bits of all customers are set."""
        is_set = cover == self.full
        return is_set.all(2)

    def add_routes(self, cover: Tensor, route: Int[Tensor, "B W"]) -> Tensor:
        """Set the bits of the routes as well."""
        words = self.words.mT
        return cover | gather_per_instance(words, route)

    def additions(self, cover: Tensor, score: Float[Tensor, "B W"]) -> tuple[Tensor, Tensor]:
        """List the best routes of each place."""
        from rhumbline.kernels.triton import set_partitioning as triton_partitioning

        tables = (self.words, self.served, self.value, self.most)
        listed = TUNING.kernel_routes_per_place
        return triton_partitioning.launch_additions(
            cover, score.contiguous(), *tables, self.customers, listed
        )

    def original_indices(self, chosen: Int[Tensor, "B q"]) -> Int[Tensor, "B q"]:
        """Undo the sorting by value."""
        is_padding = chosen < 0
        index = chosen.clamp(min=0)
        original = self.order.gather(1, index)
        return original.masked_fill(is_padding, -1)


def to_signed_words(words: Int[Tensor, "*w"]) -> Int[Tensor, "*w"]:
    """Reinterpret unsigned 32-bit words, held as 64-bit integers, as signed 32-bit integers."""
    sign_bit = 1 << 31
    is_negative = words >= sign_bit
    below_zero = words - (1 << 32)
    signed = torch.where(is_negative, below_zero, words)
    return signed.int()


# --- beam search


@dataclass(frozen=True)
class PartialCover(Record):
    """Places of the beam: sets of routes without a common customer."""

    cover: Tensor  # covered customers, in the form of the table
    score: Float[Tensor, "B W"]
    code: Int[Tensor, "B W"]  # hash of these customers


def beam_partition(
    table: RouteTable, max_routes: Int[Tensor, "B"], width: int
) -> tuple[Float[Tensor, "B"], Int[Tensor, "B q"]]:
    """Find up to `max_routes` routes that serve every customer once with the least sum of values.

    Returns the sums, infinite where nothing is found, and the routes, padded with -1. Each step
    adds a route for the most constrained customer, so that dead ends show early.
    """
    value = table.value
    device = value.device
    no_score = torch.zeros_like(value[:, :1])
    no_code = torch.zeros_like(table.code[:, :1])
    state = PartialCover(table.empty_cover(), no_score, no_code)
    count = len(value)
    total = no_score[:, 0] + torch.inf
    last = torch.zeros(2, count, dtype=torch.int64, device=device)
    steps = list[tuple[Tensor, Tensor]]()
    deepest = int(max_routes.amax())
    for depth in range(deepest):
        if device.type == "cpu" and not state.score.isfinite().any():
            break  # asking would make a GPU wait
        state, parent, route = extend_beam(state, table, width)
        steps.append((parent, route))
        score = state.score
        is_complete = table.is_complete(state.cover)
        is_too_deep = depth >= max_routes
        is_excluded = ~is_complete | is_too_deep[:, None]
        plans = score.masked_fill(is_excluded, torch.inf)
        least, place = plans.min(1)
        step = torch.full_like(place, depth)
        found = torch.stack([step, place])
        last = torch.where(least < total, found, last)
        total = torch.minimum(total, least)
        score = score.masked_fill(is_complete, torch.inf)
        state = replace(state, score=score)
    chosen = trace_back(steps, last, total)
    return total, table.original_indices(chosen)


def extend_beam(
    state: PartialCover, table: RouteTable, width: int
) -> tuple[PartialCover, Int[Tensor, "B W"], Int[Tensor, "B W"]]:
    """Add a route at each place and keep the best results, no two for the same customers.

    Returns the new places, the places they come from, and the routes that were added.
    """
    sums, added = table.additions(state.cover, state.score)
    candidates = TUNING.candidates_per_place * width
    available = sums[0].numel()
    count = min(candidates, available)
    flat = sums.flatten(1)
    score, where = flat.topk(count, dim=1, largest=False)
    columns = sums.shape[2]
    parent = where // columns
    if added is None:
        route = where % columns
    else:
        route = added.flatten(1).gather(1, where)
        route = route.long()
    code = state.code.gather(1, parent)
    code = code + table.code.gather(1, route)

    is_repeat = mark_repeats(code)
    score = score.masked_fill(is_repeat, torch.inf)
    score, kept = score.sort(dim=1, stable=True)
    score = score[:, :width]
    kept = kept[:, :width]
    parent = parent.gather(1, kept)
    route = route.gather(1, kept)
    code = code.gather(1, kept)
    cover = gather_per_instance(state.cover, parent)
    cover = table.add_routes(cover, route)
    return PartialCover(cover, score, code), parent, route


def trace_back(
    steps: list[tuple[Tensor, Tensor]], last: Int[Tensor, "2 B"], total: Float[Tensor, "B"]
) -> Int[Tensor, "B q"]:
    """Return the routes that led to the best places, given by step and place in `last`."""
    last_step, place = last
    chosen = list[Tensor]()
    for step in reversed(range(len(steps))):
        parents, routes = steps[step]
        on_path = (step <= last_step) & total.isfinite()
        width = parents.shape[1]
        column = place[:, None]
        column = column.clamp(max=width - 1)  # beyond that it is not used
        route = routes.gather(1, column)
        parent = parents.gather(1, column)
        route = torch.where(on_path, route[:, 0], -1)
        place = torch.where(on_path, parent[:, 0], place)
        chosen.append(route)
    chosen.reverse()
    return torch.stack(chosen, 1)
