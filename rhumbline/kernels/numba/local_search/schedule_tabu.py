"""numba: tabu search on one schedule; `local_search.schedule_tabu` calls it.

A schedule is the order of the operations on each machine, here as the neighbours of each operation;
every operation starts as early as that allows. A move takes an operation of a critical block to the
block's ends, or one of its ends into the block (N7 of Zhang et al. 2007). Its makespan is estimated
from the heads and tails of the operations that it touches (Balas and Vazacopoulos 1998). The best
move that is not tabu is made even if the schedule gets longer; its reversal is tabu for a while.
Moves that might contradict a job are left out, by a condition that also holds for times of 0 and
for jobs that visit a machine twice.

Arrays have one entry more than there are operations: a dummy operation that takes no time, the
neighbour of operations without one.
"""

import numpy as np
from numba import types

from rhumbline.kernels.numba.local_search.tour_moves import draw, step

ENDLESS, NEVER = 2**62, 2**30
LEAST_BAN = 10  # moves; one more for each time that all machines go into the jobs, and two fifths more at most
BEST, NOW, IDLE = range(3)  # in `state`: the best makespan, moves made, moves since it was found


@step
def set_heads(duration, before, behind, previous, following, head, due, order):
    """The earliest starts, and operations such that none comes before what it waits for; whether that is all.

    Nobody is ever due, and there is room behind the last, so that nothing here depends on what is hard to foresee.
    """
    sentinel, filled, at = len(duration) - 1, 0, 0
    due[sentinel] = NEVER
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


@step
def measure(duration, before, behind, previous, following, head, tail, due, order):
    """Heads, tails and the makespan; -1 if the orders contradict each other."""
    if not set_heads(duration, before, behind, previous, following, head, due, order):
        return -1
    makespan = 0
    for k in range(len(duration) - 2, -1, -1):
        o = order[k]
        tail[o] = max(tail[behind[o]] + duration[behind[o]], tail[following[o]] + duration[following[o]])
        makespan = max(makespan, head[o] + duration[o] + tail[o])
    return makespan


@step
def is_next(o, end, duration, head, tail, makespan):
    """Whether a critical path goes on with an operation when one before it ends."""
    return o != len(duration) - 1 and head[o] == end and end + duration[o] + tail[o] == makespan


@step
def critical_path(duration, behind, following, head, tail, makespan, path, random):
    """One longest path, taken at random where several go on; how many operations it has."""
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
        here = one if is_next(one, end, duration, head, tail, makespan) else sentinel
        if is_next(two, end, duration, head, tail, makespan) and (here == sentinel or draw(random, 2) == 0):
            here = two
    return length


@step
def is_safe(o, goal, forward, duration, before, behind, head, tail):
    """Whether an operation may surely go behind (or before) another of its block: no way leads back to its job.

    A way from the next of its job to the goal would be longer than the goal's, unless that next one takes no time.
    """
    other, time = (behind[o], tail) if forward else (before[o], head)
    if other == len(duration) - 1:
        return True
    lead = time[goal] + duration[goal] - time[other] - duration[other]
    return lead > 0 or (lead == 0 and duration[other] > 0 and other != goal)


@step
def rearranged(path, source, target, segment):
    """The operations between two places of a block, with that of the first in the other; how many."""
    low, way = min(source, target), 1 if source < target else -1
    for k in range(source, target, way):
        segment[k - low] = path[k + way]
    segment[target - low] = path[source]
    return abs(target - source) + 1


@step
def guess(duration, before, behind, head, tail, segment, size, earliest, latest, trial):
    """The longest path through a segment that begins after `earliest` and is followed by `latest`, all else as it was.

    What comes before and behind in the jobs is taken to stay where it is, so this may be wrong in either direction.
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


@step
def is_forbidden(until, slot, segment, size, forward, now):
    """Whether one of the orders that a move brings about must not come back yet."""
    moved = segment[size - 1] if forward else segment[0]
    for k in range(size - 1):
        if forward and until[segment[k], slot[moved]] > now:
            return True
        if not forward and until[moved, slot[segment[k + 1]]] > now:
            return True
    return False


@step
def forbid(until, slot, segment, size, forward, end):
    """Forbid the orders that a move has undone."""
    moved = segment[size - 1] if forward else segment[0]
    for k in range(size - 1):
        if forward:
            until[moved, slot[segment[k]]] = end
        else:
            until[segment[k + 1], slot[moved]] = end


@step
def block_end(path, length, following, start):
    """The last place of the block that begins at a place of a critical path."""
    stop = start
    while stop + 1 < length and following[path[stop]] == path[stop + 1]:
        stop += 1
    return stop


@step
def move_of(kind, one, start, stop):
    """From where to where the moves of a place of a block go: to its end and its beginning, and from these to it."""
    if kind == 0:
        return one, stop
    if kind == 1:
        return one, start
    return (start, one) if kind == 2 else (stop, one)


@step
def is_double(kind, one, start, stop):
    """Whether another move does the same: at the ends of a block, and where neighbours change places."""
    if kind < 2:
        return kind == 1 and one == start + 1  # as the first to the second place does, or in a block of two to its end
    return not start < one < stop or (kind == 3 and one == stop - 1)


@step
def choose(shop, links, times, until, slot, path, length, segment, trial, random, state, move):
    """The move with the least guess that is not forbidden or beats the best, into `move`; else any; -1 for none."""
    (duration, before, behind), (previous, following), (head, tail) = shop, links, times
    least, ties, seen, start = ENDLESS, 0, 0, 0
    move[:] = -1
    while start < length:
        stop = block_end(path, length, following, start)
        for one in range(start, stop + 1):
            for kind in range(4):
                source, target = move_of(kind, one, start, stop)
                if source == target or is_double(kind, one, start, stop):
                    continue
                forward, low, high = source < target, min(source, target), max(source, target)
                if not is_safe(path[source], path[target], forward, duration, before, behind, head, tail):
                    continue
                seen += 1
                if least == ENDLESS and draw(random, seen) == 0:
                    move[0], move[1] = source, target
                size = rearranged(path, source, target, segment)
                ahead, last = previous[path[low]], following[path[high]]
                earliest, latest = head[ahead] + duration[ahead], tail[last] + duration[last]
                value = guess(duration, before, behind, head, tail, segment, size, earliest, latest, trial)
                if value > least:
                    continue
                if value >= state[BEST] and is_forbidden(until, slot, segment, size, forward, state[NOW]):
                    continue
                ties = ties + 1 if value == least else 1
                if draw(random, ties) == 0:
                    move[0], move[1] = source, target
                least = value
        start = stop + 1


@step
def perform(previous, following, path, source, target, segment, size):
    """Put a segment into its new order on the machine."""
    low, high = min(source, target), max(source, target)
    ahead, last = previous[path[low]], following[path[high]]
    for k in range(size):
        o = segment[k]
        previous[o], following[ahead] = ahead, o  # the successor of the sentinel is never read
        ahead = o
    following[ahead], previous[last] = last, ahead


def search_shop(shop, links, times, scratch, until, slot, best, random, state, ban, most):
    """Up to `most` moves from the present orders; those made, fewer if no move is left, -1 if orders contradict.

    `shop` are durations and neighbours in the jobs; `links` those on the machines; `times` heads and tails;
    `until` says to when one operation may not come before another, that with a `slot` on its machine. `best` gets the
    starts of the best schedule so far, `state` its makespan.
    """
    (duration, before, behind), (previous, following), (head, tail) = shop, links, times
    due, order, path, segment, trial = scratch
    move = np.empty(2, np.int64)
    makespan = measure(duration, before, behind, previous, following, head, tail, due, order)
    for made in range(most):
        if makespan < 0:
            return -1
        if makespan < state[BEST]:
            state[BEST], state[IDLE] = makespan, 0
            best[:] = head
        length = critical_path(duration, behind, following, head, tail, makespan, path, random)
        choose(shop, links, times, until, slot, path, length, segment, trial, random, state, move)
        if move[0] < 0:
            return made
        size = rearranged(path, move[0], move[1], segment)
        state[NOW] += 1
        state[IDLE] += 1
        forbid(until, slot, segment, size, move[0] < move[1], state[NOW] + ban + draw(random, 2 * ban // 5 + 1))
        perform(previous, following, path, move[0], move[1], segment, size)
        makespan = measure(duration, before, behind, previous, following, head, tail, due, order)
    if makespan < 0:
        return -1
    if makespan < state[BEST]:
        state[BEST], state[IDLE] = makespan, 0
        best[:] = head
    return most


INTS, LONGS = types.uint32[::1], types.int64[::1]
SIGNATURE = types.int64(
    types.Tuple((LONGS, INTS, INTS)), types.UniTuple(INTS, 2), types.UniTuple(LONGS, 2),
    types.Tuple((INTS, INTS, INTS, INTS, LONGS)), types.int64[:, ::1], INTS, LONGS, types.uint64[::1], LONGS,
    types.int64, types.int64,
)  # fmt: skip
