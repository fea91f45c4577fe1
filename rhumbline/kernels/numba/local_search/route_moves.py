"""numba: relocate, swap, 2-opt* and 2-opt on the routes of one plan; `launch` calls it.

Every move between two routes is one operation: a segment of the first and a segment of the second
change places, each reversed or not. A relocation exchanges an empty segment, and 2-opt* exchanges
whole tails or heads. So there is one formula for the change in length, one check of the loads, and
one function that carries a move out. Within a route, customers are reversed (2-opt), moved (Or-opt)
or swapped.

As in `tour_moves`, customers wait in a queue. The customer at its head gets the best of all moves
that join it to one of its nearest neighbours.
"""

import numpy as np
from numba import njit, types

LONGEST = 3  # customers relocated at once
LONGEST_SWAP = 2  # customers on one side of a swap
EXCHANGE, TURN, SHIFT, TRADE = 0, 1, 2, 3  # kinds of moves
MOST_OFFERS = 32  # exchanges that bring one customer next to another: 4 of tails, 4 of three customers, 24 of fewer
MOVE = 9  # numbers of a move: its kind and up to eight more

step = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@step
def at(rows, length, r, i):
    """The customer at a place of a route; the depot before its first and behind its last."""
    return rows[r, i] if 0 <= i < length[r] else 0


@step
def carried(rows, before, r, i, a):
    """The load of `a` customers from place i on."""
    if a == 0:
        return 0
    return before[rows[r, i + a - 1]] - (before[rows[r, i - 1]] if i > 0 else 0)


@step
def joined(distance, rows, length, r, i, a, s, j, b, turned):
    """Change in length of route r when the piece j, b of route s takes the place of its own piece i, a."""
    p, q = at(rows, length, r, i - 1), at(rows, length, r, i + a)
    old = distance[p, rows[r, i]] + distance[rows[r, i + a - 1], q] if a > 0 else distance[p, q]
    if b == 0:
        return distance[p, q] - old
    first, last = rows[s, j], rows[s, j + b - 1]
    if turned:
        first, last = last, first
    return distance[p, first] + distance[last, q] - old


@step
def propose(offers, count, low, a, turn_a, j, b, turn_b):
    """Write an exchange down; how many are on the list then."""
    offers[count, 0], offers[count, 1], offers[count, 2] = low, a, turn_a
    offers[count, 3], offers[count, 4], offers[count, 5] = j, b, turn_b
    return count + 1


@step
def best_exchange(distance, plan, capacity, r, s, offers, count, best, move):
    """The best of the listed exchanges between two routes that both can carry, if it is better than `best`.

    They are listed first and priced in one place, which halves the time to compile.
    """
    rows, length, load, _, _, before = plan
    for k in range(count):
        i, a, turn_a = offers[k, 0], offers[k, 1], offers[k, 2]
        j, b, turn_b = offers[k, 3], offers[k, 4], offers[k, 5]
        change = joined(distance, rows, length, r, i, a, s, j, b, turn_b)
        change += joined(distance, rows, length, s, j, b, r, i, a, turn_a)
        if change >= best:
            continue
        more = carried(rows, before, s, j, b) - carried(rows, before, r, i, a)
        if load[r] + more <= capacity and load[s] - more <= capacity:
            best = change
            move[0], move[1], move[2], move[3], move[4] = EXCHANGE, r, i, a, turn_a
            move[5], move[6], move[7], move[8] = s, j, b, turn_b
    return best


@step
def best_between(distance, plan, capacity, u, v, offers, best, move):
    """The best move that brings customer u next to customer v of another route."""
    _, length, _, where, place, _ = plan
    r, i, s, j = where[u], place[u], where[v], place[v]
    count = 0
    for a in range(1, LONGEST + 1):
        for last in range(2 if a > 1 else 1):  # whether u is the last of its piece
            low = i - a + 1 if last else i
            if low < 0 or low + a > length[r]:
                continue
            for b in range(LONGEST_SWAP + 1 if a <= LONGEST_SWAP else 1):
                for turned in range(b if b > 1 else 1):
                    if j + b < length[s]:
                        count = propose(offers, count, low, a, last, j + 1, b, turned)
                    if j - b >= 0:
                        count = propose(offers, count, low, a, 1 - last, j - b, b, turned)
    tail, rest = length[r] - i, length[s] - j
    count = propose(offers, count, i + 1, tail - 1, 0, j, rest, 0)
    count = propose(offers, count, i, tail, 0, j + 1, rest - 1, 0)
    count = propose(offers, count, i + 1, tail - 1, 1, 0, j + 1, 1)
    count = propose(offers, count, 0, i, 1, j, rest, 1)
    return best_exchange(distance, plan, capacity, r, s, offers, count, best, move)


@step
def best_alone(distance, plan, capacity, spare, u, offers, best, move):
    """The best move that brings customer u next to the depot: turning a part of its route, or opening a new one."""
    rows, length, _, where, place, _ = plan
    r, i = where[u], place[u]
    best = try_turn(distance, rows, length, r, 0, i, best, move)
    best = try_turn(distance, rows, length, r, i, length[r] - 1, best, move)
    if spare < 0:
        return best
    count = propose(offers, 0, i, 1, 0, 0, 0, 0)
    count = propose(offers, count, i, length[r] - i, 0, 0, 0, 0)
    return best_exchange(distance, plan, capacity, r, spare, offers, count, best, move)


@step
def try_turn(distance, rows, length, r, low, high, best, move):
    """Note the reversal of places low..high of a route if it is better than `best`."""
    if low >= high:
        return best
    p, q, first, last = at(rows, length, r, low - 1), at(rows, length, r, high + 1), rows[r, low], rows[r, high]
    change = distance[p, last] + distance[first, q] - distance[p, first] - distance[last, q]
    if change >= best:
        return best
    move[0], move[1], move[2], move[3] = TURN, r, low, high
    return change


@step
def best_within(distance, plan, u, v, best, move):
    """The best move that brings customer u next to customer v of its own route."""
    rows, length, _, where, place, _ = plan
    r, i, j = where[u], place[u], place[v]
    low, high = (i, j) if i < j else (j, i)
    best = try_turn(distance, rows, length, r, low + 1, high, best, move)
    best = try_turn(distance, rows, length, r, low, high - 1, best, move)
    for side in (-1, 1):
        k = j + side  # the gap is between v and what is there
        w = at(rows, length, r, k)
        for a in range(1, LONGEST + 1):
            for last in (0, 1):
                low = i - a + 1 if last else i
                inside = low <= j < low + a or low <= k < low + a
                if inside or low < 0 or low + a > length[r] or (last and a == 1):
                    continue
                p, q = at(rows, length, r, low - 1), at(rows, length, r, low + a)
                e = rows[r, low if last else low + a - 1]
                change = distance[p, q] - distance[p, rows[r, low]] - distance[rows[r, low + a - 1], q]
                change += distance[u, v] + distance[e, w] - distance[v, w]
                if change < best:
                    best = change
                    move[0], move[1], move[2], move[3] = SHIFT, r, low, a
                    move[4], move[5] = min(j, k), last == (side == 1)
        if w != 0 and abs(k - i) > 1:
            change = traded(distance, rows, length, r, i, u, w) + traded(distance, rows, length, r, k, w, u)
            if change < best:
                best = change
                move[0], move[1], move[2], move[3] = TRADE, r, i, k
    return best


@step
def traded(distance, rows, length, r, i, old, new):
    """Change in length when a customer takes the place of another."""
    p, q = at(rows, length, r, i - 1), at(rows, length, r, i + 1)
    return distance[p, new] + distance[new, q] - distance[p, old] - distance[old, q]


@step
def refresh(plan, demand, r, queue, waiting, state):
    """Places and loads of a route that has changed; all its customers are to be looked at again."""
    rows, length, load, where, place, before = plan
    load[r] = 0
    for i in range(length[r]):
        customer = rows[r, i]
        load[r] += demand[customer]
        where[customer], place[customer], before[customer] = r, i, load[r]
        if not waiting[customer]:
            waiting[customer] = True
            queue[(state[0] + state[1]) % len(queue)] = customer
            state[1] += 1


@step
def rebuilt(rows, length, r, i, a, s, j, b, turned, fresh):
    """Route r with the piece j, b of route s in the place of its piece i, a, written to `fresh`; its length."""
    count = 0
    for k in range(i):
        fresh[count] = rows[r, k]
        count += 1
    for k in range(b):
        fresh[count] = rows[s, j + b - 1 - k] if turned else rows[s, j + k]
        count += 1
    for k in range(i + a, length[r]):
        fresh[count] = rows[r, k]
        count += 1
    return count


@step
def exchange(rows, length, r, i, a, turn_a, s, j, b, turn_b, fresh, other):
    """Carry out an exchange."""
    first = rebuilt(rows, length, r, i, a, s, j, b, turn_b, fresh)
    second = rebuilt(rows, length, s, j, b, r, i, a, turn_a, other)
    length[r], length[s] = first, second
    for k in range(first):
        rows[r, k] = fresh[k]
    for k in range(second):
        rows[s, k] = other[k]


@step
def shift(rows, length, r, low, a, gap, turned, fresh):
    """Carry out an Or-opt move: `a` customers from place `low` on go between places `gap` and `gap` + 1."""
    count = 0
    for k in range(-1, length[r]):
        if k >= 0 and not low <= k < low + a:
            fresh[count] = rows[r, k]
            count += 1
        if k == gap:
            for m in range(a):
                fresh[count] = rows[r, low + a - 1 - m] if turned else rows[r, low + m]
                count += 1
    for k in range(count):
        rows[r, k] = fresh[k]


@step
def carry_out(rows, length, move, fresh, other):
    """Make a move."""
    r, i, j = move[1], move[2], move[3]
    if move[0] == EXCHANGE:
        exchange(rows, length, r, i, j, move[4], move[5], move[6], move[7], move[8], fresh, other)
    elif move[0] == TURN:
        while i < j:
            rows[r, i], rows[r, j] = rows[r, j], rows[r, i]
            i, j = i + 1, j - 1
    elif move[0] == SHIFT:
        shift(rows, length, r, i, j, move[4], move[5], fresh)
    else:
        rows[r, i], rows[r, j] = rows[r, j], rows[r, i]


@step
def empty_route(length):
    """The number of a route without customers, or -1."""
    for r in range(len(length)):
        if length[r] == 0:
            return r
    return -1


def improve_routes(
    distance, near, demand, capacity, rows, length, load, where, place, before, queue, waiting, fresh, other, tolerance,
    most,
):  # fmt: skip
    """Improve routes until no move helps by more than `tolerance`, or `most` moves are made; how many were made."""
    plan = (rows, length, load, where, place, before)
    state, move, moves = np.zeros(2, np.int64), np.zeros(MOVE, np.int64), 0
    offers = np.empty((MOST_OFFERS, 6), np.int64)
    for r in range(len(length)):
        refresh(plan, demand, r, queue, waiting, state)
    while state[1] > 0 and moves < most:
        u = queue[state[0]]
        state[0] = (state[0] + 1) % len(queue)
        state[1] -= 1
        waiting[u] = False
        best = best_alone(distance, plan, capacity, empty_route(length), u, offers, -tolerance, move)
        for k in range(near.shape[1]):
            v = near[u, k]
            if where[v] == where[u]:
                best = best_within(distance, plan, u, v, best, move)
            else:
                best = best_between(distance, plan, capacity, u, v, offers, best, move)
        if best < -tolerance:
            moves += 1
            carry_out(rows, length, move, fresh, other)
            refresh(plan, demand, move[1], queue, waiting, state)
            if move[0] == EXCHANGE:
                refresh(plan, demand, move[5], queue, waiting, state)
    return moves


INTS, LONGS = types.int32[::1], types.int64[::1]
SIGNATURE = types.int64(
    types.float64[:, ::1], types.int32[:, ::1], LONGS, types.int64, types.int32[:, ::1], INTS, LONGS, INTS, INTS, LONGS,
    INTS, types.boolean[::1], INTS, INTS, types.float64, types.int64,
)  # fmt: skip
