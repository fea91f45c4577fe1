"""numba: relocate, swap, 2-opt* and 2-opt on the routes of one plan; `launch` calls it.

Every move between two routes is an exchange: a segment of the first and a segment of the second
change places, each reversed or not. A relocation exchanges an empty segment, and 2-opt* exchanges
whole tails or heads. So there is one formula for the change in length, one check of the loads, and
one function that makes the move. Within a route, customers are reversed (2-opt), moved (Or-opt) or
swapped.

As in `tour_moves`, customers wait in a queue. The customer at its head gets the best of all moves
that join it to one of its nearest neighbours.

A plan is a tuple: `rows` has the customers of each route, `length` and `load` are those of each
route; `route` and `place` say where each customer is, and `before` is the load up to and including
it. A segment is its first place and its number of customers, for instance `i, a` or `j, b`.
"""

import numpy as np
from numba import njit, types

MAX_SEGMENT = 3  # customers that are relocated together
MAX_SWAP_SEGMENT = 2  # customers on one side of a swap
EXCHANGE, REVERSE, OR_OPT, SWAP = 0, 1, 2, 3  # kinds of moves
MAX_OFFERS = 32  # exchanges that join two customers: 4 of tails, 4 of three customers, 24 of fewer
MOVE_NUMBERS = 9  # integers that describe a move: its kind and up to eight more

njit_function = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@njit_function
def node_at(rows, length, r, i):
    """Return the customer at a place of a route, or the depot before the first and behind the last one."""
    return rows[r, i] if 0 <= i < length[r] else 0


@njit_function
def segment_load(rows, before, r, i, a):
    """Return the load of the segment of `a` customers from place i."""
    if a == 0:
        return 0
    return before[rows[r, i + a - 1]] - (before[rows[r, i - 1]] if i > 0 else 0)


@njit_function
def replacement_change(distance, rows, length, r, i, a, s, j, b, reversed_):
    """Return the change in length of route r if the segment j, b of route s replaces its own segment i, a."""
    p, q = node_at(rows, length, r, i - 1), node_at(rows, length, r, i + a)
    old = distance[p, rows[r, i]] + distance[rows[r, i + a - 1], q] if a > 0 else distance[p, q]
    if b == 0:
        return distance[p, q] - old
    first, last = rows[s, j], rows[s, j + b - 1]
    if reversed_:
        first, last = last, first
    return distance[p, first] + distance[last, q] - old


@njit_function
def add_offer(offers, count, low, a, reverse_a, j, b, reverse_b):
    """Append an exchange to the list of offers, and return their number."""
    offers[count, 0], offers[count, 1], offers[count, 2] = low, a, reverse_a
    offers[count, 3], offers[count, 4], offers[count, 5] = j, b, reverse_b
    return count + 1


@njit_function
def best_exchange(distance, plan, capacity, r, s, offers, count, best, move):
    """Find the best listed exchange between two routes that respects their capacities, if it is better than `best`.

    Returns its change in length and writes it to `move`, else returns `best`. Exchanges are listed first and evaluated
    in one place, which halves the time to compile.
    """
    rows, length, load, _, _, before = plan
    for k in range(count):
        i, a, reverse_a = offers[k, 0], offers[k, 1], offers[k, 2]
        j, b, reverse_b = offers[k, 3], offers[k, 4], offers[k, 5]
        change = replacement_change(distance, rows, length, r, i, a, s, j, b, reverse_b)
        change += replacement_change(distance, rows, length, s, j, b, r, i, a, reverse_a)
        if change >= best:
            continue
        more = segment_load(rows, before, s, j, b) - segment_load(rows, before, r, i, a)
        if load[r] + more <= capacity and load[s] - more <= capacity:
            best = change
            move[0], move[1], move[2], move[3], move[4] = EXCHANGE, r, i, a, reverse_a
            move[5], move[6], move[7], move[8] = s, j, b, reverse_b
    return best


@njit_function
def best_between(distance, plan, capacity, u, v, offers, best, move):
    """Find the best move that brings customer u next to customer v of another route; as `best_exchange`."""
    _, length, _, route, place, _ = plan
    r, i, s, j = route[u], place[u], route[v], place[v]
    count = 0
    for a in range(1, MAX_SEGMENT + 1):
        for last in range(2 if a > 1 else 1):  # whether u is the last of its segment
            low = i - a + 1 if last else i
            if low < 0 or low + a > length[r]:
                continue
            for b in range(MAX_SWAP_SEGMENT + 1 if a <= MAX_SWAP_SEGMENT else 1):
                for reversed_ in range(b if b > 1 else 1):
                    if j + b < length[s]:
                        count = add_offer(offers, count, low, a, last, j + 1, b, reversed_)
                    if j - b >= 0:
                        count = add_offer(offers, count, low, a, 1 - last, j - b, b, reversed_)
    tail, rest = length[r] - i, length[s] - j
    count = add_offer(offers, count, i + 1, tail - 1, 0, j, rest, 0)
    count = add_offer(offers, count, i, tail, 0, j + 1, rest - 1, 0)
    count = add_offer(offers, count, i + 1, tail - 1, 1, 0, j + 1, 1)
    count = add_offer(offers, count, 0, i, 1, j, rest, 1)
    return best_exchange(distance, plan, capacity, r, s, offers, count, best, move)


@njit_function
def best_with_depot(distance, plan, capacity, spare, u, offers, best, move):
    """Find the best move that brings customer u next to the depot; as `best_exchange`.

    It reverses a part of the route, or opens the empty route `spare` unless that is -1.
    """
    rows, length, _, route, place, _ = plan
    r, i = route[u], place[u]
    best = try_reversal(distance, rows, length, r, 0, i, best, move)
    best = try_reversal(distance, rows, length, r, i, length[r] - 1, best, move)
    if spare < 0:
        return best
    count = add_offer(offers, 0, i, 1, 0, 0, 0, 0)
    count = add_offer(offers, count, i, length[r] - i, 0, 0, 0, 0)
    return best_exchange(distance, plan, capacity, r, spare, offers, count, best, move)


@njit_function
def try_reversal(distance, rows, length, r, low, high, best, move):
    """Write the reversal of places low..high to `move` if its change is below `best`; return the lower of both."""
    if low >= high:
        return best
    p, q, first, last = node_at(rows, length, r, low - 1), node_at(rows, length, r, high + 1), rows[r, low], rows[r, high]
    change = distance[p, last] + distance[first, q] - distance[p, first] - distance[last, q]
    if change >= best:
        return best
    move[0], move[1], move[2], move[3] = REVERSE, r, low, high
    return change


@njit_function
def best_within(distance, plan, u, v, best, move):
    """Find the best move that brings customer u next to customer v of its own route; as `best_exchange`."""
    rows, length, _, route, place, _ = plan
    r, i, j = route[u], place[u], place[v]
    low, high = (i, j) if i < j else (j, i)
    best = try_reversal(distance, rows, length, r, low + 1, high, best, move)
    best = try_reversal(distance, rows, length, r, low, high - 1, best, move)
    for side in (-1, 1):
        k = j + side  # the gap is between v and place k
        w = node_at(rows, length, r, k)
        for a in range(1, MAX_SEGMENT + 1):
            for last in (0, 1):
                low = i - a + 1 if last else i
                inside = low <= j < low + a or low <= k < low + a
                if inside or low < 0 or low + a > length[r] or (last and a == 1):
                    continue
                p, q = node_at(rows, length, r, low - 1), node_at(rows, length, r, low + a)
                e = rows[r, low if last else low + a - 1]
                change = distance[p, q] - distance[p, rows[r, low]] - distance[rows[r, low + a - 1], q]
                change += distance[u, v] + distance[e, w] - distance[v, w]
                if change < best:
                    best = change
                    move[0], move[1], move[2], move[3] = OR_OPT, r, low, a
                    move[4], move[5] = min(j, k), last == (side == 1)
        if w != 0 and abs(k - i) > 1:
            change = swap_change(distance, rows, length, r, i, u, w) + swap_change(distance, rows, length, r, k, w, u)
            if change < best:
                best = change
                move[0], move[1], move[2], move[3] = SWAP, r, i, k
    return best


@njit_function
def swap_change(distance, rows, length, r, i, old, new):
    """Return the change in length if customer `new` replaces customer `old` at place i of route r."""
    p, q = node_at(rows, length, r, i - 1), node_at(rows, length, r, i + 1)
    return distance[p, new] + distance[new, q] - distance[p, old] - distance[old, q]


@njit_function
def update_route(plan, demand, r, queue, waiting, state):
    """Update load and places of a route that has changed, and put all its customers into the queue."""
    rows, length, load, route, place, before = plan
    load[r] = 0
    for i in range(length[r]):
        customer = rows[r, i]
        load[r] += demand[customer]
        route[customer], place[customer], before[customer] = r, i, load[r]
        if not waiting[customer]:
            waiting[customer] = True
            queue[(state[0] + state[1]) % len(queue)] = customer
            state[1] += 1


@njit_function
def write_replaced(rows, length, r, i, a, s, j, b, reversed_, fresh):
    """Write route r with the segment j, b of route s in place of its segment i, a to `fresh`; return its length."""
    count = 0
    for k in range(i):
        fresh[count] = rows[r, k]
        count += 1
    for k in range(b):
        fresh[count] = rows[s, j + b - 1 - k] if reversed_ else rows[s, j + k]
        count += 1
    for k in range(i + a, length[r]):
        fresh[count] = rows[r, k]
        count += 1
    return count


@njit_function
def make_exchange(rows, length, r, i, a, reverse_a, s, j, b, reverse_b, fresh, other):
    """Make an exchange."""
    first = write_replaced(rows, length, r, i, a, s, j, b, reverse_b, fresh)
    second = write_replaced(rows, length, s, j, b, r, i, a, reverse_a, other)
    length[r], length[s] = first, second
    for k in range(first):
        rows[r, k] = fresh[k]
    for k in range(second):
        rows[s, k] = other[k]


@njit_function
def make_or_opt(rows, length, r, low, a, gap, reversed_, fresh):
    """Make an Or-opt move: `a` customers from place `low` go between places `gap` and `gap` + 1."""
    count = 0
    for k in range(-1, length[r]):
        if k >= 0 and not low <= k < low + a:
            fresh[count] = rows[r, k]
            count += 1
        if k == gap:
            for m in range(a):
                fresh[count] = rows[r, low + a - 1 - m] if reversed_ else rows[r, low + m]
                count += 1
    for k in range(count):
        rows[r, k] = fresh[k]


@njit_function
def make_move(rows, length, move, fresh, other):
    """Make a move of any kind."""
    r, i, j = move[1], move[2], move[3]
    if move[0] == EXCHANGE:
        make_exchange(rows, length, r, i, j, move[4], move[5], move[6], move[7], move[8], fresh, other)
    elif move[0] == REVERSE:
        while i < j:
            rows[r, i], rows[r, j] = rows[r, j], rows[r, i]
            i, j = i + 1, j - 1
    elif move[0] == OR_OPT:
        make_or_opt(rows, length, r, i, j, move[4], move[5], fresh)
    else:
        rows[r, i], rows[r, j] = rows[r, j], rows[r, i]


@njit_function
def empty_route(length):
    """Return the index of a route without customers, or -1."""
    for r in range(len(length)):
        if length[r] == 0:
            return r
    return -1


def improve_routes(
    distance, near, demand, capacity, rows, length, load, route, place, before, queue, waiting, fresh, other, tolerance,
    most,
):  # fmt: skip
    """Improve routes until no move gains more than `tolerance`, or `most` moves are made; return their number.

    `near` are the nearest customers of each customer. `load`, `route`, `place` and `before` are set here; `waiting`
    must begin as all False, and the other arrays are scratch.
    """
    plan = (rows, length, load, route, place, before)
    state, move, moves = np.zeros(2, np.int64), np.zeros(MOVE_NUMBERS, np.int64), 0
    offers = np.empty((MAX_OFFERS, 6), np.int64)
    for r in range(len(length)):
        update_route(plan, demand, r, queue, waiting, state)
    while state[1] > 0 and moves < most:
        u = queue[state[0]]
        state[0] = (state[0] + 1) % len(queue)
        state[1] -= 1
        waiting[u] = False
        best = best_with_depot(distance, plan, capacity, empty_route(length), u, offers, -tolerance, move)
        for k in range(near.shape[1]):
            v = near[u, k]
            if route[v] == route[u]:
                best = best_within(distance, plan, u, v, best, move)
            else:
                best = best_between(distance, plan, capacity, u, v, offers, best, move)
        if best < -tolerance:
            moves += 1
            make_move(rows, length, move, fresh, other)
            update_route(plan, demand, move[1], queue, waiting, state)
            if move[0] == EXCHANGE:
                update_route(plan, demand, move[5], queue, waiting, state)
    return moves


INTS, LONGS = types.int32[::1], types.int64[::1]
SIGNATURE = types.int64(
    types.float64[:, ::1], types.int32[:, ::1], LONGS, types.int64, types.int32[:, ::1], INTS, LONGS, INTS, INTS, LONGS,
    INTS, types.boolean[::1], INTS, INTS, types.float64, types.int64,
)  # fmt: skip
