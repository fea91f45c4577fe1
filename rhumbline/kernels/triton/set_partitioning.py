"""Triton: prices of customers, and a beam search that combines routes by them.

`search/recombine/set_partitioning.py` describes the method.

Prices: one program runs all rounds of one instance, and reads only its lists of customers again and
again. Tensor operations would read a table of routes by customers twice in each round.

The beam: one program has some places of one instance. Customers are bits of 32-bit words, so that a
few instructions compare two sets. One matrix product counts, for all places, the routes that each
customer can choose from. Routes come in order of their values, so the first ones found for a place
are its best, and beyond some route all are too expensive for every place. No table of places by
routes is written; that table takes most of the time in plain tensor operations.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PLACES = 32  # of a tile of the beam
ROUTES = 64  # of a tile of the beam
WARPS = 4
LOOK = 1024  # routes of which only the values are compared, in one tile
PRICED = 1024  # routes of a tile of prices
PRICED_WARPS = 8


@triton.jit
def route_values(MEMBERS, SIZE, COST, PRICE, route, R):
    """Return the values of some routes at given prices, and their numbers of customers."""
    exists = route < R
    size = tl.load(SIZE + route, mask=exists, other=0)
    value = tl.load(COST + route, mask=exists, other=float("inf"))
    for k in range(0, tl.max(size)):
        customer = tl.load(MEMBERS + k * R + route, mask=k < size, other=0).to(tl.int32)
        value -= tl.load(PRICE + customer, mask=k < size, other=0.0)
    return value, size


@triton.jit(do_not_specialize=["rounds", "L"])  # L, the size of the longest route, may be any number
def prices_kernel(
    MEMBERS, SIZE, COST, PRICE, COUNT, KEPT, L, R, N, rounds, pace, momentum, patience, tiny,
    NP: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Run subgradient rounds from the prices in PRICE, which is scratch from then on; KEPT gets the best prices.

    MEMBERS has L slots of customers for each of R routes, of which the first SIZE count; COUNT is scratch.
    """
    b, column = tl.program_id(0).to(tl.int64), tl.arange(0, NP)
    real = column < N
    members, size, cost, prices, count = MEMBERS + b * L * R, SIZE + b * R, COST + b * R, PRICE + b * N, COUNT + b * N
    price, direction = tl.load(prices + column, mask=real, other=0.0), tl.zeros((NP,), dtype=tl.float32)
    kept, bound, idle_rounds = price, tl.sum(direction) - float("inf"), 0 * rounds
    for _ in range(rounds):
        tl.store(prices + column, price, mask=real)
        tl.store(count + column, 0, mask=real)
        tl.debug_barrier()  # other threads of the program read what is stored here
        dual_value = tl.sum(price)
        for start in range(0, R, M):
            route = start + tl.arange(0, M)
            value, long = route_values(members, size, cost, prices, route, R)
            is_negative = value < 0.0
            dual_value += tl.sum(tl.where(is_negative, value, 0.0))
            for k in range(0, tl.max(tl.where(is_negative, long, 0))):  # few values are negative
                customer = tl.load(members + k * R + route, mask=is_negative & (k < long), other=0).to(tl.int32)
                tl.atomic_add(count + customer, 1, mask=is_negative & (k < long), sem="relaxed")
        tl.debug_barrier()
        subgradient = 1.0 - tl.load(count + column, mask=real, other=1, cache_modifier=".cg").to(tl.float32)
        tl.debug_barrier()
        higher, is_idle = dual_value > bound, (dual_value <= bound) & (idle_rounds >= patience)
        kept, bound = tl.where(higher, price, kept), tl.maximum(dual_value, bound)
        idle_rounds, pace = tl.where(higher | is_idle, 0, idle_rounds + 1), tl.where(is_idle, 0.5 * pace, pace)
        direction = momentum * direction + subgradient
        price += pace * tl.maximum(1.0 - dual_value, 0.0) / (tl.sum(direction * direction) + tiny) * direction
    tl.store(KEPT + b * N + column, kept, mask=real)


def launch_prices(
    members: Tensor,
    size: Tensor,
    cost: Tensor,
    price: Tensor,
    rounds: int,
    pace: float,
    momentum: float,
    patience: int,
    tiny: float,
) -> Tensor:
    """Improve prices [B, n] by rounds of subgradient ascent, so that the bound is high.

    `members` are the customers of each route [B, L, R], of which the first `size` [B, R] count.
    """
    count, most, routes = members.shape
    _, customers = price.shape
    served = torch.zeros_like(price, dtype=torch.int32)
    kept = torch.empty_like(price)
    prices_kernel[(count,)](
        members,
        size,
        cost,
        price.clone(),
        served,
        kept,
        most,
        routes,
        customers,
        rounds,
        pace,
        momentum,
        patience,
        tiny,
        NP=triton.next_power_of_2(customers),
        M=PRICED,
        num_warps=PRICED_WARPS,
        num_stages=1,
    )
    return kept


@triton.jit
def compatible_routes(COVER, WORDS, VALUE, place, exists, score, most, route, WN: tl.constexpr, R):
    """Return whether each route can be added to each place, [M, T], and the sums of values then.

    It can if it serves no customer twice and its sum is below `most`.
    """
    real = route < R
    clash = tl.zeros((place.shape[0], route.shape[0]), dtype=tl.int32)
    for m in tl.static_range(WN):
        cover = tl.load(COVER + place * WN + m, mask=exists, other=-1)
        clash |= cover[:, None] & tl.load(WORDS + m * R + route, mask=real, other=-1)[None, :]
    sums = score[:, None] + tl.load(VALUE + route, mask=real, other=float("inf"))[None, :]
    return (clash == 0) & (sums < most) & real[None, :] & exists[:, None], sums


@triton.jit
def count_cheap_routes(VALUE, least, most, R, T: tl.constexpr):
    """Return the number of routes whose value is low enough for the best of some places.

    Values come in ascending order, so that all later routes can be skipped.
    """
    count = 0 * R
    for start in range(0, R, T):
        route = start + tl.arange(0, T)
        value = tl.load(VALUE + route, mask=route < R, other=float("inf"))
        count += tl.sum((least + value < most).to(tl.int32))
    return count


@triton.jit(do_not_specialize=["W"])  # a beam starts with one place
def places_kernel(
    COVER, SCORE, WORDS, SERVED, VALUE, MOST, SUMS, ADDED, W, R, N,
    WN: tl.constexpr, NP: tl.constexpr, K: tl.constexpr, M: tl.constexpr, T: tl.constexpr, LOOK: tl.constexpr,
):  # fmt: skip
    """Store the first K compatible routes of the most constrained customer, for each of M places.

    That is the unserved customer with the smallest number of compatible routes. SUMS gets the sums of values, ADDED the routes.
    """
    b = tl.program_id(0).to(tl.int64)
    place, column = tl.program_id(1) * M + tl.arange(0, M), tl.arange(0, NP)
    exists = place < W
    score, most = tl.load(SCORE + b * W + place, mask=exists, other=float("inf")), tl.load(MOST + b)
    cover, words, value = COVER + b * W * WN, WORDS + b * WN * R, VALUE + b * R
    choices, cheap = tl.zeros((M, NP), dtype=tl.float32), count_cheap_routes(value, tl.min(score), most, R, LOOK)
    for start in range(0, cheap, T):
        route = start + tl.arange(0, T)
        free, _ = compatible_routes(cover, words, value, place, exists, score, most, route, WN, R)
        served = tl.load(SERVED + (b * R + route[:, None]) * NP + column[None, :], mask=(route < R)[:, None], other=0.0)
        choices += tl.dot(free.to(served.dtype), served)
    real = exists[:, None] & (column < N)[None, :]
    word = tl.load(cover + place[:, None] * WN + (column >> 5)[None, :], mask=real, other=-1)
    customer = tl.argmin(tl.where((word >> (column & 31)[None, :]) & 1 == 1, float("inf"), choices), axis=1)
    count = tl.zeros((M,), dtype=tl.int32)
    for start in range(0, cheap, T):
        route = start + tl.arange(0, T)
        free, sums = compatible_routes(cover, words, value, place, exists, score, most, route, WN, R)
        row_words = tl.load(words + (customer >> 5)[:, None] * R + route[None, :], mask=(route < R)[None, :], other=0)
        wanted = (free & ((row_words >> (customer & 31)[:, None]) & 1 == 1)).to(tl.int32)
        at = count[:, None] + tl.cumsum(wanted, axis=1) - wanted
        kept, index = (wanted == 1) & (at < K), (b * W + place[:, None]) * K + at
        tl.store(SUMS + index, sums, mask=kept)
        tl.store(ADDED + index, route[None, :] + tl.zeros_like(at), mask=kept)
        count += tl.sum(wanted, axis=1)


def launch_additions(
    cover: Tensor,
    score: Tensor,
    words: Tensor,
    served: Tensor,
    value: Tensor,
    most: Tensor,
    customers: int,
    kept: int,
) -> tuple[Tensor, Tensor]:
    """Find the best `kept` additions to each place [B, W] of a beam.

    Returns their sums, infinite if there are no more, and their routes. `cover` are words of the
    customers served at each place [B, W, WN], `words` those of each route [B, WN, R], in order of
    their values [B, R]. `served` has a column for each customer [B, R, NP], in all a power of two,
    32 for each word.
    """
    count, width, size = cover.shape
    _, routes, columns = served.shape
    shape = (count, width, kept)
    sums = torch.full(shape, torch.inf, device=score.device)
    added = torch.zeros(shape, dtype=torch.int32, device=score.device)
    places_kernel[(count, triton.cdiv(width, PLACES))](
        cover,
        score,
        words,
        served,
        value,
        most,
        sums,
        added,
        width,
        routes,
        customers,
        WN=size,
        NP=columns,
        K=kept,
        M=PLACES,
        T=ROUTES,
        LOOK=LOOK,
        num_warps=WARPS,
    )
    return sums, added
