"""numba: tabu search on one schedule; `local_search.schedule_tabu` calls it.

A schedule is the order of the operations on each machine, stored as links: the machine predecessor
(`previous`) and successor (`following`) of each operation. `before` and `behind` are its
predecessor and successor in its job. Every operation starts as early as these allow. A move takes
an operation of a critical block to the block's ends, or one of its ends into the block (N7 of Zhang
et al. 2007). Its makespan is estimated from the heads and tails of the operations that it affects
(Balas and Vazacopoulos 1998). The best move that is not tabu is made even if the schedule gets
longer; its reversal is tabu for a while. Moves that might contradict the order of a job are left
out, by a condition that also holds for durations of 0 and for jobs that visit a machine twice.

Arrays have one entry more than there are operations: a sentinel of duration 0, the neighbour of
operations without one.
"""

import numpy as np
from numba import types

from rhumbline.kernels.numba.local_search.tour_moves import draw, njit_function

INFINITE_TIME, NEVER_DUE = 2**62, 2**30
MIN_TENURE = 10  # moves; plus jobs // machines, and a random part of up to two fifths
BEST_MAKESPAN, MOVES, IDLE_MOVES = range(3)  # indices of `state`: the last counts moves since the best makespan


@njit_function
def set_heads(duration, before, behind, previous, following, head, due, order):
    """Write the earliest starts to `head` and a topological order to `order`; return whether all operations are in it.

    The sentinel is never due, and the order has room behind its last entry, so the code needs no branches that a
    processor would mispredict.
    """
    sentinel, filled, at = len(duration) - 1, 0, 0
    due[sentinel] = NEVER_DUE
    for o in range(sentinel):
        due[o] = (before[o] != sentinel) + (previous[o] != sentinel)
        order[filled] = o
        filled += due[o] == 0
    while at < filled:
        o = order[at]
        head[o] = max(head[before[o]] + duration[before[o]], head[previous[o]] + duration[previous[o]])
        due[behind[o]] -= 1
        order[filled] = behind[o]
        filled += due[behind[o]] == 0
        due[following[o]] -= 1
        order[filled] = following[o]
        filled += due[following[o]] == 0
        at += 1
    return filled == sentinel


@njit_function
def measure(duration, before, behind, previous, following, head, tail, due, order):
    """Write heads and tails; return the makespan, or -1 if the orders contain a cycle."""
    if not set_heads(duration, before, behind, previous, following, head, due, order):
        return -1
    makespan = 0
    for k in range(len(duration) - 2, -1, -1):
        o = order[k]
        tail[o] = max(tail[behind[o]] + duration[behind[o]], tail[following[o]] + duration[following[o]])
        makespan = max(makespan, head[o] + duration[o] + tail[o])
    return makespan


@njit_function
def continues_path(o, end, duration, head, tail, makespan):
    """Return whether operation o continues a critical path whose previous operation ends at `end`."""
    return o != len(duration) - 1 and head[o] == end and end + duration[o] + tail[o] == makespan


@njit_function
def critical_path(duration, behind, following, head, tail, makespan, path, random):
    """Write a critical path to `path`, with random choices where several exist; return its number of operations."""
    sentinel = len(duration) - 1
    length, seen, here = 0, 0, sentinel
    for o in range(sentinel):
        if head[o] == 0 and duration[o] + tail[o] == makespan:
            seen += 1
            here = o if draw(random, seen) == 0 else here
    while here != sentinel:
        path[length] = here
        length += 1
        end, one, two = head[here] + duration[here], behind[here], following[here]
        here = one if continues_path(one, end, duration, head, tail, makespan) else sentinel
        if continues_path(two, end, duration, head, tail, makespan) and (here == sentinel or draw(random, 2) == 0):
            here = two
    return length


@njit_function
def is_safe(o, goal, forward, duration, before, behind, head, tail):
    """Return whether an operation can move behind (or, backward, before) another of its block without creating a cycle.

    The condition is sufficient. A path from its job successor to `goal` would be longer than the tail of `goal`, unless
    the successor has duration 0.
    """
    other, time = (behind[o], tail) if forward else (before[o], head)
    if other == len(duration) - 1:
        return True
    lead = time[goal] + duration[goal] - time[other] - duration[other]
    return lead > 0 or (lead == 0 and duration[other] > 0 and other != goal)


@njit_function
def fill_segment(path, source, target, segment):
    """Write the operations between two places of a block to `segment`, with the one at `source` moved to `target`.

    Returns the size of the segment.
    """
    low, way = min(source, target), 1 if source < target else -1
    for k in range(source, target, way):
        segment[k - low] = path[k + way]
    segment[target - low] = path[source]
    return abs(target - source) + 1


@njit_function
def estimate_makespan(duration, before, behind, head, tail, segment, size, earliest, latest, trial):
    """Estimate the makespan if `segment` begins after `earliest` and is followed by the tail `latest`.

    It is the longest path through the segment. Heads and tails of job neighbours are taken to stay as they are, so the
    estimate may be wrong in either direction.
    """
    longest, end, rest = 0, earliest, latest
    for k in range(size):
        o = segment[k]
        trial[k] = max(end, head[before[o]] + duration[before[o]])
        end = trial[k] + duration[o]
    for k in range(size - 1, -1, -1):
        o = segment[k]
        rest = max(rest, tail[behind[o]] + duration[behind[o]]) + duration[o]
        longest = max(longest, trial[k] + rest)
    return longest


@njit_function
def is_tabu(until, slot, segment, size, forward, now):
    """Return whether a move brings back an order of two operations that is still tabu."""
    moved = segment[size - 1] if forward else segment[0]
    for k in range(size - 1):
        if forward and until[segment[k], slot[moved]] > now:
            return True
        if not forward and until[moved, slot[segment[k + 1]]] > now:
            return True
    return False


@njit_function
def make_tabu(until, slot, segment, size, forward, end):
    """Make the orders that a move has reversed tabu until the move number `end`."""
    moved = segment[size - 1] if forward else segment[0]
    for k in range(size - 1):
        if forward:
            until[moved, slot[segment[k]]] = end
        else:
            until[segment[k + 1], slot[moved]] = end


@njit_function
def block_end(path, length, following, start):
    """Return the last place of the block that begins at place `start` of a critical path."""
    stop = start
    while stop + 1 < length and following[path[stop]] == path[stop + 1]:
        stop += 1
    return stop


@njit_function
def block_move(kind, one, start, stop):
    """Return source and target of move `kind` at a place of a block: to its end, to its begin, or from these to it."""
    if kind == 0:
        return one, stop
    if kind == 1:
        return one, start
    return (start, one) if kind == 2 else (stop, one)


@njit_function
def is_duplicate(kind, one, start, stop):
    """Return whether another kind or place gives the same move: at the ends of a block, or a swap of neighbours."""
    if kind < 2:
        return kind == 1 and one == start + 1  # the same as kind 0 of the first place
    return not start < one < stop or (kind == 3 and one == stop - 1)


@njit_function
def choose_move(shop, links, times, until, slot, path, length, segment, trial, random, state, move):
    """Write the source and the target of the chosen move to `move`; -1 if there is none.

    It is the move with the least estimate among those that are not tabu or would beat the best makespan; else a random
    one.
    """
    (duration, before, behind), (previous, following), (head, tail) = shop, links, times
    least, ties, seen, start = INFINITE_TIME, 0, 0, 0
    move[:] = -1
    while start < length:
        stop = block_end(path, length, following, start)
        for one in range(start, stop + 1):
            for kind in range(4):
                source, target = block_move(kind, one, start, stop)
                if source == target or is_duplicate(kind, one, start, stop):
                    continue
                forward, low, high = source < target, min(source, target), max(source, target)
                if not is_safe(path[source], path[target], forward, duration, before, behind, head, tail):
                    continue
                seen += 1
                if least == INFINITE_TIME and draw(random, seen) == 0:
                    move[0], move[1] = source, target
                size = fill_segment(path, source, target, segment)
                ahead, last = previous[path[low]], following[path[high]]
                earliest, latest = head[ahead] + duration[ahead], tail[last] + duration[last]
                value = estimate_makespan(duration, before, behind, head, tail, segment, size, earliest, latest, trial)
                if value > least:
                    continue
                if value >= state[BEST_MAKESPAN] and is_tabu(until, slot, segment, size, forward, state[MOVES]):
                    continue
                ties = ties + 1 if value == least else 1
                if draw(random, ties) == 0:
                    move[0], move[1] = source, target
                least = value
        start = stop + 1


@njit_function
def make_move(previous, following, path, source, target, segment, size):
    """Put a segment into its new order on the machine."""
    low, high = min(source, target), max(source, target)
    ahead, last = previous[path[low]], following[path[high]]
    for k in range(size):
        o = segment[k]
        previous[o], following[ahead] = ahead, o  # the sentinel's successor is never read
        ahead = o
    following[ahead], previous[last] = last, ahead


def search_shop(shop, links, times, scratch, until, slot, best, random, state, tenure, most):
    """Make up to `most` tabu moves from the current orders.

    Returns the number of moves made, which is smaller if no move is left, or -1 if the orders contain a cycle. `shop`
    are durations and job neighbours; `links` the machine neighbours; `times` heads and tails. Until move `until[a, s]`
    operation a must not go before the operation with slot s on its machine. `best` gets the starts of the best schedule
    so far, `state` its makespan. `tenure` is the least number of moves for which an order is tabu.
    """
    (duration, before, behind), (previous, following), (head, tail) = shop, links, times
    due, order, path, segment, trial = scratch
    move = np.empty(2, np.int64)
    makespan = measure(duration, before, behind, previous, following, head, tail, due, order)
    for made in range(most):
        if makespan < 0:
            return -1
        if makespan < state[BEST_MAKESPAN]:
            state[BEST_MAKESPAN], state[IDLE_MOVES] = makespan, 0
            best[:] = head
        length = critical_path(duration, behind, following, head, tail, makespan, path, random)
        choose_move(shop, links, times, until, slot, path, length, segment, trial, random, state, move)
        if move[0] < 0:
            return made
        size = fill_segment(path, move[0], move[1], segment)
        state[MOVES] += 1
        state[IDLE_MOVES] += 1
        make_tabu(until, slot, segment, size, move[0] < move[1], state[MOVES] + tenure + draw(random, 2 * tenure // 5 + 1))
        make_move(previous, following, path, move[0], move[1], segment, size)
        makespan = measure(duration, before, behind, previous, following, head, tail, due, order)
    if makespan < 0:
        return -1
    if makespan < state[BEST_MAKESPAN]:
        state[BEST_MAKESPAN], state[IDLE_MOVES] = makespan, 0
        best[:] = head
    return most


INTS, LONGS = types.uint32[::1], types.int64[::1]
SIGNATURE = types.int64(
    types.Tuple((LONGS, INTS, INTS)), types.UniTuple(INTS, 2), types.UniTuple(LONGS, 2),
    types.Tuple((INTS, INTS, INTS, INTS, LONGS)), types.int64[:, ::1], INTS, LONGS, types.uint64[::1], LONGS,
    types.int64, types.int64,
)  # fmt: skip
