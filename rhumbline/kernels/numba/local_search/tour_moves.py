"""numba: 2-opt and Or-opt on one tour; `launch` calls it.

Cities wait in a queue (don't-look bits): a city is examined again only after a move has changed one
of its edges. All moves that join the city at the head to one of its nearest neighbours are priced,
and the best is made. With all other cities as neighbours, the result is an optimum of the whole
2-opt and Or-opt neighbourhoods.
"""

import numpy as np
from numba import njit, types

LONGEST = 3  # cities that Or-opt moves at once
LONGEST_KICK = 50  # cities in a part that a kick moves
UNLIMITED = 2**62

step = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@step
def wrapped(position, size):
    """A position that may have left the tour by less than its length."""
    if position >= size:
        return position - size
    return position + size if position < 0 else position


@step
def put(order, place, position, city):
    order[position] = city
    place[city] = position


@step
def reverse(order, place, i, j):
    """Turn the path from position i to j round; or the rest of the tour, where that is shorter: the same tour."""
    size = len(order)
    length = wrapped(j - i, size) + 1
    if 2 * length > size:
        i, j, length = wrapped(j + 1, size), wrapped(i - 1, size), size - length
    for _ in range(length // 2):
        left, right = order[i], order[j]
        put(order, place, i, right)
        put(order, place, j, left)
        i, j = wrapped(i + 1, size), wrapped(j - 1, size)


@step
def transfer(order, place, segment, low, length, gap, turned):
    """Move `length` cities from position `low` on to between positions `gap` and `gap` + 1, turned round or not."""
    size = len(order)
    for k in range(length):
        segment[k] = order[wrapped(low + k, size)]
    ahead, behind = wrapped(gap - low - length + 1, size), wrapped(low - 1 - gap, size)
    if ahead <= behind:
        for k in range(ahead):
            put(order, place, wrapped(low + k, size), order[wrapped(low + length + k, size)])
        first = wrapped(low + ahead, size)
    else:
        for k in range(1, behind + 1):
            put(order, place, wrapped(low + length - k, size), order[wrapped(low - k, size)])
        first = wrapped(low - behind, size)
    for k in range(length):
        put(order, place, wrapped(first + k, size), segment[length - 1 - k] if turned else segment[k])


@step
def best_reversal(distance, near, order, place, a, best, move):
    """The best 2-opt move that joins city a to a neighbour: its change, if it is below `best`, is put into `move`."""
    size = len(order)
    for way in (1, -1):
        b = order[wrapped(place[a] + way, size)]
        for k in range(near.shape[1]):
            c = near[a, k]
            if distance[a, c] >= distance[a, b]:
                break  # the other end of the move finds it, if it is one
            d = order[wrapped(place[c] + way, size)]
            change = distance[a, c] + distance[b, d] - distance[a, b] - distance[c, d]
            if change < best:
                best = change
                move[0] = 0
                move[1], move[2] = (place[b], place[c]) if way == 1 else (place[a], place[d])
    return best


@step
def best_transfer(distance, near, order, place, a, best, move):
    """The same for Or-opt: segments with city a at one end, and a neighbour of a beside it afterwards."""
    size = len(order)
    for way in (1, -1):
        p = order[wrapped(place[a] - way, size)]
        for length in range(1, LONGEST + 1):
            if length + 2 > size:
                break
            e = order[wrapped(place[a] + way * (length - 1), size)]
            q = order[wrapped(place[a] + way * length, size)]
            leaving = distance[p, q] - distance[p, a] - distance[e, q]
            if -leaving <= 0.0:
                continue
            low = place[a] if way == 1 else place[e]
            for k in range(near.shape[1]):
                c = near[a, k]
                if wrapped(place[c] - low, size) < length:
                    continue
                for side in (1, -1):
                    d = order[wrapped(place[c] + side, size)]
                    if wrapped(place[d] - low, size) < length:
                        continue
                    change = leaving + distance[a, c] + distance[e, d] - distance[c, d]
                    if change < best:
                        best = change
                        move[0], move[1], move[2] = length, low, place[c] if side == 1 else place[d]
                        move[3] = side != way
    return best


@step
def wake(queue, waiting, state, city):
    """Put a city at the end of the queue, unless it waits already."""
    if not waiting[city]:
        waiting[city] = True
        queue[(state[0] + state[1]) % len(queue)] = city
        state[1] += 1


@step
def wake_around(order, queue, waiting, state, position):
    """Wake the cities on both sides of an edge that begins at a position."""
    size = len(order)
    wake(queue, waiting, state, order[wrapped(position, size)])
    wake(queue, waiting, state, order[wrapped(position + 1, size)])


def improve_tour(distance, near, order, place, segment, queue, waiting, state, tolerance, most):
    """Improve a tour until no move helps by more than `tolerance`, or `most` moves are made; how many were made.

    `state` is the head and the length of the queue, which holds the cities to look at.
    """
    size, moves = len(order), 0
    move = segment[LONGEST:]
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
            wake_around(order, queue, waiting, state, wrapped(i - 1, size))
            wake_around(order, queue, waiting, state, j)
            reverse(order, place, i, j)
        else:
            low, gap = move[1], move[2]
            wake_around(order, queue, waiting, state, wrapped(low - 1, size))
            wake_around(order, queue, waiting, state, wrapped(low + move[0] - 1, size))
            wake_around(order, queue, waiting, state, gap)
            transfer(order, place, segment, low, move[0], gap, move[3] != 0)
    return moves


improve = step(improve_tour)


@step
def length_of(distance, order):
    total = distance[order[-1], order[0]]
    for k in range(len(order) - 1):
        total += distance[order[k], order[k + 1]]
    return total


@step
def draw(random, count):
    """A number below `count` (2^32 at most), from a state of 64 bits that must not be 0 (Marsaglia's xorshift)."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return np.int64(((x >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32))  # dividing would take longer


@step
def kick(order, place, scratch, queue, waiting, state, random):
    """Let two neighbouring parts of the tour change places (a double bridge), and wake the six cities at their ends."""
    size = len(order)
    longest = min(LONGEST_KICK, size // 3)
    start, a, b = draw(random, size), 1 + draw(random, longest), 1 + draw(random, longest)
    for k in range(a + b):
        scratch[k] = order[wrapped(start + k, size)]
    for k in range(a + b):
        put(order, place, wrapped(start + k, size), scratch[(k + a) % (a + b)])
    wake_around(order, queue, waiting, state, wrapped(start - 1, size))
    wake_around(order, queue, waiting, state, wrapped(start + b - 1, size))
    wake_around(order, queue, waiting, state, wrapped(start + a + b - 1, size))


def kick_tour(distance, near, order, place, segment, queue, waiting, state, tolerance, best, scratch, random, kicks):
    """Iterated local search: `kicks` kicks of a local optimum, each improved again and kept unless it is longer.

    `order` and `best` are the same tour before and after; the number of kicks that made it shorter.
    """
    shortest, better = length_of(distance, best), 0
    for _ in range(kicks):
        kick(order, place, scratch, queue, waiting, state, random)
        improve(distance, near, order, place, segment, queue, waiting, state, tolerance, UNLIMITED)
        length = length_of(distance, order)
        better += length < shortest - tolerance
        if length <= shortest:
            shortest = length
            best[:] = order
        else:
            for k in range(len(best)):
                put(order, place, k, best[k])
    return better


INTS = types.int32[::1]
SIGNATURE = types.int64(
    types.float64[:, ::1], types.int32[:, ::1], INTS, INTS, INTS, INTS, types.boolean[::1], types.int64[::1],
    types.float64, types.int64,
)  # fmt: skip
KICK_SIGNATURE = types.int64(
    types.float64[:, ::1], types.int32[:, ::1], INTS, INTS, INTS, INTS, types.boolean[::1], types.int64[::1],
    types.float64, INTS, INTS, types.uint64[::1], types.int64,
)  # fmt: skip
