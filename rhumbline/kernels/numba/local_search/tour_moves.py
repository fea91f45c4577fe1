"""numba: 2-opt and Or-opt on one tour; `launch` calls it.

Cities wait in a queue (don't-look bits): a city is examined again only after a move has changed one
of its edges. All moves that join the city at the head to one of its nearest neighbours are
evaluated, and the best is made. With all other cities as neighbours, the result is a local optimum
of the complete 2-opt and Or-opt neighbourhoods.

`order` holds the cities of the tour, and `place` the position of each city in it.
"""

import numpy as np
from numba import njit, types

MAX_SEGMENT = 3  # cities that Or-opt moves together

njit_function = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@njit_function
def wrap(position, size):
    """Return the position modulo the tour's size; it may be outside the tour by less than its size."""
    if position >= size:
        return position - size
    return position + size if position < 0 else position


@njit_function
def set_city(order, place, position, city):
    """Put a city at a position of the tour."""
    order[position] = city
    place[city] = position


@njit_function
def reverse(order, place, i, j):
    """Reverse the path from position i to j, or the rest of the tour if that is shorter.

    Both give the same tour, as distances are symmetric.
    """
    size = len(order)
    length = wrap(j - i, size) + 1
    if 2 * length > size:
        i, j, length = wrap(j + 1, size), wrap(i - 1, size), size - length
    for _ in range(length // 2):
        left, right = order[i], order[j]
        set_city(order, place, i, right)
        set_city(order, place, j, left)
        i, j = wrap(i + 1, size), wrap(j - 1, size)


@njit_function
def move_segment(order, place, segment, low, length, gap, reversed_):
    """Move `length` cities from position `low` to between positions `gap` and `gap` + 1, optionally reversed."""
    size = len(order)
    for k in range(length):
        segment[k] = order[wrap(low + k, size)]
    ahead, behind = wrap(gap - low - length + 1, size), wrap(low - 1 - gap, size)
    if ahead <= behind:
        for k in range(ahead):
            set_city(order, place, wrap(low + k, size), order[wrap(low + length + k, size)])
        first = wrap(low + ahead, size)
    else:
        for k in range(1, behind + 1):
            set_city(order, place, wrap(low + length - k, size), order[wrap(low - k, size)])
        first = wrap(low - behind, size)
    for k in range(length):
        set_city(order, place, wrap(first + k, size), segment[length - 1 - k] if reversed_ else segment[k])


@njit_function
def best_reversal(distance, near, order, place, a, best, move):
    """Find the best 2-opt move that joins city a to one of its neighbours.

    Returns its change in length if that is below `best`, else `best`. `move` gets 0 and the positions to reverse.
    """
    size = len(order)
    for way in (1, -1):
        b = order[wrap(place[a] + way, size)]
        for k in range(near.shape[1]):
            c = near[a, k]
            if distance[a, c] >= distance[a, b]:
                break  # a move that gains is found from its other end
            d = order[wrap(place[c] + way, size)]
            change = distance[a, c] + distance[b, d] - distance[a, b] - distance[c, d]
            if change < best:
                best = change
                move[0] = 0
                move[1], move[2] = (place[b], place[c]) if way == 1 else (place[a], place[d])
    return best


@njit_function
def best_transfer(distance, near, order, place, a, best, move):
    """Find the best Or-opt move of a segment with city a at one end, which joins a to one of its neighbours.

    Returns its change in length if that is below `best`, else `best`. `move` gets the length of the segment, its
    position, the gap that it goes to, and whether it is reversed.
    """
    size = len(order)
    for way in (1, -1):
        p = order[wrap(place[a] - way, size)]
        for length in range(1, MAX_SEGMENT + 1):
            if length + 2 > size:
                break
            e = order[wrap(place[a] + way * (length - 1), size)]
            q = order[wrap(place[a] + way * length, size)]
            leaving = distance[p, q] - distance[p, a] - distance[e, q]
            if -leaving <= 0.0:
                continue
            low = place[a] if way == 1 else place[e]
            for k in range(near.shape[1]):
                c = near[a, k]
                if wrap(place[c] - low, size) < length:
                    continue
                for side in (1, -1):
                    d = order[wrap(place[c] + side, size)]
                    if wrap(place[d] - low, size) < length:
                        continue
                    change = leaving + distance[a, c] + distance[e, d] - distance[c, d]
                    if change < best:
                        best = change
                        move[0], move[1], move[2] = length, low, place[c] if side == 1 else place[d]
                        move[3] = side != way
    return best


@njit_function
def wake(queue, waiting, state, city):
    """Append a city to the queue unless it is there; `state` is the head and the length of the queue."""
    if not waiting[city]:
        waiting[city] = True
        queue[(state[0] + state[1]) % len(queue)] = city
        state[1] += 1


@njit_function
def wake_edge(order, queue, waiting, state, position):
    """Wake the cities at both ends of the edge that begins at a position."""
    size = len(order)
    wake(queue, waiting, state, order[wrap(position, size)])
    wake(queue, waiting, state, order[wrap(position + 1, size)])


def improve_tour(distance, near, order, place, segment, queue, waiting, state, tolerance, most):
    """Improve a tour until no move gains more than `tolerance`, or `most` moves are made; return their number.

    `near` are the nearest cities of each city, in order. `queue` holds the cities to examine, `waiting` tells which
    they are, and `state` is the head and the length of the queue. `segment` is scratch for MAX_SEGMENT cities and a
    move.
    """
    size, moves = len(order), 0
    move = segment[MAX_SEGMENT:]
    while state[1] > 0 and moves < most:
        a = queue[state[0]]
        state[0] = (state[0] + 1) % size
        state[1] -= 1
        waiting[a] = False
        best = best_reversal(distance, near, order, place, a, -tolerance, move)
        best = best_transfer(distance, near, order, place, a, best, move)
        if best >= -tolerance:
            continue
        moves += 1
        if move[0] == 0:
            i, j = move[1], move[2]
            wake_edge(order, queue, waiting, state, wrap(i - 1, size))
            wake_edge(order, queue, waiting, state, j)
            reverse(order, place, i, j)
        else:
            low, gap = move[1], move[2]
            wake_edge(order, queue, waiting, state, wrap(low - 1, size))
            wake_edge(order, queue, waiting, state, wrap(low + move[0] - 1, size))
            wake_edge(order, queue, waiting, state, gap)
            move_segment(order, place, segment, low, move[0], gap, move[3] != 0)
    return moves


@njit_function
def draw(random, count):
    """Return a random integer below `count`, which is 2^32 at most.

    `random` holds a state of 64 bits, which must not be 0 (Marsaglia's xorshift).
    """
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return np.int64(((x >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32))  # faster than a division


INTS = types.int32[::1]
SIGNATURE = types.int64(
    types.float64[:, ::1], types.int32[:, ::1], INTS, INTS, INTS, INTS, types.boolean[::1], types.int64[::1],
    types.float64, types.int64,
)  # fmt: skip
