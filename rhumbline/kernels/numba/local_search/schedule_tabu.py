"""numba: tabu search on one schedule; `local_search.schedule_tabu` calls it.

A schedule is the order of the operations on each machine, stored as links: the machine predecessor
(`previous`) and successor (`following`) of each operation. `before` and `behind` are its
predecessor and successor in its job. Every operation starts as early as these allow: `end` is the
earliest end, and `rest` the longest path from the start of the operation to the end of the
schedule. So an operation is critical if `end + rest - duration` is the makespan.

A move takes an operation of a critical block to the block's ends, or one of its ends into the block
(N7 of Zhang et al. 2007). Its makespan is estimated from the ends and rests of the operations that
it affects (Balas and Vazacopoulos 1998). The best move that is not tabu is made even if the
schedule gets longer; its reversal is tabu for a while. Moves that might contradict the order of a
job are left out, by a condition that also holds for durations of 0 and for jobs that visit a
machine twice.

A move changes a topological order of the operations between two positions only. Ends are computed
again from the first of these on, and rests up to the last.

Arrays have one entry more than there are operations: a sentinel of duration 0, the neighbour of
operations without one.
"""

import numpy as np
from numba import njit, types

from rhumbline.kernels.numba.local_search.tour_moves import draw

# Counting the references of arrays (`_nrt`) took three quarters of the time.
njit_function = njit(
    nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True, _nrt=False
)
INFINITE_TIME, NEVER_DUE = 2**62, 2**30
MIN_TENURE = 10  # moves; plus jobs // machines, and a random part of up to two fifths
BEST_MAKESPAN, MOVES, IDLE_MOVES = range(
    3
)  # indices of `state`: the last counts moves since the best makespan


@njit_function
def sort_operations(shop, links, due, order, place):
    """Write a topological order to `order` and the position of each operation to `place`.

    Returns whether all operations are in it; if not, the orders contain a cycle. The sentinel is never due, and the
    order has room behind its last entry, so the code needs no branches that a processor would mispredict.
    """
    (_, before, behind), (previous, following) = shop, links
    sentinel, filled, at = len(before) - 1, 0, 0
    due[sentinel] = NEVER_DUE
    for o in range(sentinel):
        due[o] = (before[o] != sentinel) + (previous[o] != sentinel)
        order[filled] = o
        filled += due[o] == 0
    while at < filled:
        o = order[at]
        place[o] = at
        due[behind[o]] -= 1
        order[filled] = behind[o]
        filled += due[behind[o]] == 0
        due[following[o]] -= 1
        order[filled] = following[o]
        filled += due[following[o]] == 0
        at += 1
    return filled == sentinel


@njit_function
def update_ends(shop, links, order, first, end):
    """Compute the earliest ends of the operations from position `first` of the topological order on."""
    (duration, before, _), (previous, _) = shop, links
    for k in range(first, len(order) - 1):
        o = order[k]
        end[o] = max(end[before[o]], end[previous[o]]) + duration[o]


@njit_function
def update_rests(shop, links, order, last, rest):
    """Compute the longest paths to the end from the operations up to position `last` of the topological order."""
    (duration, _, behind), (_, following) = shop, links
    for k in range(last, -1, -1):
        o = order[k]
        rest[o] = max(rest[behind[o]], rest[following[o]]) + duration[o]


@njit_function
def find_makespan(before, rest):
    """Return the longest path from the first operation of a job: one of them begins every longest path."""
    sentinel, makespan = len(before) - 1, 0
    for o in range(sentinel):
        if before[o] == sentinel:
            makespan = max(makespan, rest[o])
    return makespan


@njit_function
def continues_path(o, time, duration, end, rest, makespan):
    """Return whether operation o continues a critical path whose previous operation ends at `time`."""
    return o != len(duration) - 1 and end[o] == time + duration[o] and time + rest[o] == makespan


@njit_function
def critical_path(shop, links, times, makespan, path, random):
    """Write a critical path to `path`, with random choices where several exist; return its number of operations."""
    (duration, before, behind), (_, following), (end, rest) = shop, links, times
    sentinel = len(duration) - 1
    length, seen, here = 0, 0, sentinel
    for o in range(sentinel):
        if before[o] == sentinel and rest[o] == makespan:
            seen += 1
            here = o if seen == 1 or draw(random, seen) == 0 else here
    while here != sentinel:
        path[length] = here
        length += 1
        time, one, two = end[here], behind[here], following[here]
        here = one if continues_path(one, time, duration, end, rest, makespan) else sentinel
        if continues_path(two, time, duration, end, rest, makespan) and (
            here == sentinel or draw(random, 2) == 0
        ):
            here = two
    return length


@njit_function
def read_path(shop, times, path, length, path_data):
    """Write what estimates read of the operations of a path: duration, end before and rest behind in the job."""
    (duration, before, behind), (end, rest) = shop, times
    span, ready, left, _ = path_data
    for k in range(length):
        o = path[k]
        span[k] = duration[o]
        ready[k] = end[before[o]]
        left[k] = rest[behind[o]]


@njit_function
def is_safe(o, goal, forward, shop, times):
    """Return whether an operation can move behind (or, backward, before) another of its block without creating a cycle.

    The condition is sufficient. A path from its job successor to `goal` would be longer than the rest of `goal`, unless
    the successor has duration 0.
    """
    (duration, before, behind), (end, rest) = shop, times
    other, time = (behind[o], rest) if forward else (before[o], end)
    if other == len(duration) - 1:
        return True
    lead = np.int64(time[goal]) - time[other]
    return lead > 0 or (lead == 0 and duration[other] > 0 and other != goal)


@njit_function
def estimate_forward(path_data, source, target, earliest, latest, limit):
    """Estimate the makespan if the operation at place `source` of a block moves behind that at `target`.

    It is the longest path through the operations between these places: the first can begin at `earliest`, and `latest`
    is the longest path behind the last. Ends and rests of job neighbours are taken to stay as they are, so the estimate
    may be wrong in either direction, except for a swap of neighbours: that is exact for paths through one of the two.
    Stops, with less than the estimate, as soon as it exceeds `limit`.
    """
    span, ready, left, trial = path_data
    time = earliest
    for k in range(source + 1, target + 1):
        trial[k] = max(time, ready[k])
        time = trial[k] + span[k]
    way = max(latest, left[source]) + span[source]
    longest = max(time, ready[source]) + way
    k = target
    while k > source and longest <= limit:
        way = max(way, left[k]) + span[k]
        longest = max(longest, trial[k] + way)
        k -= 1
    return longest


@njit_function
def estimate_backward(path_data, source, target, earliest, latest, limit):
    """Estimate the makespan if the operation at place `source` of a block moves before that at `target`.

    See `estimate_forward`, of which this is the mirror image.
    """
    span, ready, left, trial = path_data
    way = latest
    for k in range(source - 1, target - 1, -1):
        trial[k] = max(way, left[k]) + span[k]
        way = trial[k]
    time = max(earliest, ready[source]) + span[source]
    longest = time + max(way, left[source])
    k = target
    while k < source and longest <= limit:
        time = max(time, ready[k])
        longest = max(longest, time + trial[k])
        time += span[k]
        k += 1
    return longest


@njit_function
def is_tabu(until, slot, path, source, target, now):
    """Return whether a move brings back an order of two operations that is still tabu."""
    moved, found = path[source], False
    for k in range(source + 1, target + 1):
        found |= until[path[k], slot[moved]] > now
    for k in range(target, source):
        found |= until[moved, slot[path[k]]] > now
    return found


@njit_function
def make_tabu(until, slot, path, source, target, end):
    """Make the orders that a move reverses tabu until the move number `end`."""
    moved = path[source]
    for k in range(source + 1, target + 1):
        until[moved, slot[path[k]]] = end
    for k in range(target, source):
        until[path[k], slot[moved]] = end


@njit_function
def block_end(path, length, following, start):
    """Return the last place of the block that begins at place `start` of a critical path."""
    stop = start
    while stop + 1 < length and following[path[stop]] == path[stop + 1]:
        stop += 1
    return stop


@njit_function
def list_block_moves(start, stop, is_first, is_last, sources, targets, count):
    """Append the moves of the block from place `start` to `stop` of a path; return the new number of moves.

    The first operation goes behind each other one and each other one before it; the same for the last operation. In
    the first block only moves that change its last operation can shorten the path, and in the last block only those
    that change its first.
    """
    for k in range(start + 1, stop + 1 if not is_first else 0):
        sources[count], targets[count] = start, k
        count += 1
        sources[count], targets[count] = k, start
        count += k > start + 1  # a swap of neighbours is one move
    for k in range(start if is_first else start + 1, stop if not is_last else 0):
        sources[count], targets[count] = k, stop
        count += 1
        sources[count], targets[count] = stop, k
        count += k < stop - 1
    return count


@njit_function
def list_moves(path, length, following, sources, targets):
    """Write source and target place of all moves within the blocks of a critical path; return their number."""
    count, start = 0, 0
    while start < length:
        stop = block_end(path, length, following, start)
        if stop > start:
            count = list_block_moves(
                start, stop, start == 0, stop == length - 1, sources, targets, count
            )
        start = stop + 1
    return count


@njit_function
def choose_move(shop, links, times, tabu, path, path_data, sources, targets, count, random, state):
    """Return the index of the chosen one of `count` moves; -1 if there is none.

    It is the move with the least estimate among those that are not tabu or would beat the best makespan; else a random
    one.
    """
    (previous, following), (end, rest), (until, slot) = links, times, tabu
    chosen, least, ties, seen = -1, INFINITE_TIME, 0, 0
    for m in range(count):
        source, target = sources[m], targets[m]
        forward = source < target
        if not is_safe(path[source], path[target], forward, shop, times):
            continue
        seen += 1
        if least == INFINITE_TIME and draw(random, seen) == 0:
            chosen = m
        if forward:
            earliest, latest = end[previous[path[source]]], rest[following[path[target]]]
            value = estimate_forward(path_data, source, target, earliest, latest, least)
        else:
            earliest, latest = end[previous[path[target]]], rest[following[path[source]]]
            value = estimate_backward(path_data, source, target, earliest, latest, least)
        if value > least:
            continue
        if value >= state[BEST_MAKESPAN] and is_tabu(
            until, slot, path, source, target, state[MOVES]
        ):
            continue
        ties = ties + 1 if value == least else 1
        if ties == 1 or draw(random, ties) == 0:
            chosen = m
        least = value
    return chosen


@njit_function
def relink(links, o, ahead, last):
    """Take an operation from its place on the machine and put it between two that follow each other then."""
    previous, following = links
    following[previous[o]] = following[o]  # the links of the sentinel are never read
    previous[following[o]] = previous[o]
    previous[o], following[ahead] = ahead, o
    following[o], previous[last] = last, o


@njit_function
def reorder_forward(shop, links, order, place, scratch, o, goal):
    """Correct the topological order after operation o has moved behind `goal`.

    It and all that must follow it go behind the others, from its position to that of `goal`. Returns whether that was
    possible.
    """
    (_, before, _), (previous, _), (marked, room) = shop, links, scratch
    low, high = place[o], place[goal]
    kept, moved = low, 0
    for k in range(low, high + 1):
        x = order[k]
        mark = (x == o) | marked[before[x]] | marked[previous[x]]
        marked[x] = mark
        room[moved] = x
        order[kept] = x
        place[x] = kept
        moved += mark
        kept += 1 - mark
    is_possible = marked[goal] == 0
    for k in range(moved):
        x = room[k]
        order[kept + k] = x
        place[x] = kept + k
        marked[x] = 0
    return is_possible


@njit_function
def reorder_backward(shop, links, order, place, scratch, o, goal):
    """Correct the topological order after operation o has moved before `goal`; see `reorder_forward`."""
    (_, _, behind), (_, following), (marked, room) = shop, links, scratch
    low, high = place[goal], place[o]
    kept, moved = high, 0
    for k in range(high, low - 1, -1):
        x = order[k]
        mark = (x == o) | marked[behind[x]] | marked[following[x]]
        marked[x] = mark
        room[moved] = x
        order[kept] = x
        place[x] = kept
        moved += mark
        kept -= 1 - mark
    is_possible = marked[goal] == 0
    for k in range(moved):
        x = room[k]
        order[kept - k] = x
        place[x] = kept - k
        marked[x] = 0
    return is_possible


@njit_function
def make_move(shop, links, times, order, place, scratch, o, goal, forward):
    """Move an operation behind (or, backward, before) another; return whether the orders remain without a cycle.

    Links, topological order, ends and rests are then those of the new schedule.
    """
    (previous, following), (end, rest) = links, times
    if forward:
        first, last = place[o], place[goal]
        relink(links, o, goal, following[goal])
        is_possible = reorder_forward(shop, links, order, place, scratch, o, goal)
    else:
        first, last = place[goal], place[o]
        relink(links, o, previous[goal], goal)
        is_possible = reorder_backward(shop, links, order, place, scratch, o, goal)
    update_ends(shop, links, order, first, end)
    update_rests(shop, links, order, last, rest)
    return is_possible


def search_shop(
    shop, links, times, scratch, path_data, tabu, best, random, state, moves, tenure, most
):
    """Make up to `most` tabu moves from the current orders.

    Returns the number of moves made, which is smaller if no move is left, or -1 if the orders contain a cycle. `shop`
    are durations and job neighbours; `links` the machine neighbours; `times` ends and rests. `tabu` are the moves
    `until` which orders are tabu and the slots of the operations: until move `until[a, s]` operation a must not go
    before the operation with slot s on its machine. `best` gets the ends of the best schedule so far, `state` its
    makespan. `tenure` is the least number of moves for which an order is tabu.
    """
    (duration, before, _), (_, following), (end, rest), (until, slot) = shop, links, times, tabu
    sources, targets = moves
    order, place, path, marked, room = scratch
    if not sort_operations(shop, links, marked, order, place):
        return -1
    for o in range(len(marked)):
        marked[o] = 0
    update_ends(shop, links, order, 0, end)
    update_rests(shop, links, order, len(duration) - 2, rest)
    made = 0
    while True:
        makespan = find_makespan(before, rest)
        if makespan < state[BEST_MAKESPAN]:
            state[BEST_MAKESPAN], state[IDLE_MOVES] = makespan, 0
            for o in range(len(end)):
                best[o] = end[o]
        if made == most:
            return made
        length = critical_path(shop, links, times, makespan, path, random)
        read_path(shop, times, path, length, path_data)
        count = list_moves(path, length, following, sources, targets)
        chosen = choose_move(
            shop, links, times, tabu, path, path_data, sources, targets, count, random, state
        )
        if chosen < 0:
            return made
        source, target = sources[chosen], targets[chosen]
        made += 1
        state[MOVES] += 1
        state[IDLE_MOVES] += 1
        make_tabu(
            until,
            slot,
            path,
            source,
            target,
            state[MOVES] + tenure + draw(random, 2 * tenure // 5 + 1),
        )
        if not make_move(
            shop,
            links,
            times,
            order,
            place,
            (marked, room),
            path[source],
            path[target],
            source < target,
        ):
            return -1


INTS, TIMES, LONGS = types.uint32[::1], types.int32[::1], types.int64[::1]
SIGNATURE = types.int64(
    types.Tuple((TIMES, INTS, INTS)), types.UniTuple(INTS, 2), types.UniTuple(TIMES, 2), types.UniTuple(INTS, 5),
    types.UniTuple(LONGS, 4), types.Tuple((types.int32[:, ::1], INTS)), TIMES, types.uint64[::1], LONGS,
    types.UniTuple(INTS, 2), types.int64, types.int64,
)  # fmt: skip
