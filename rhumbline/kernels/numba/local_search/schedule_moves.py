"""numba: moves within the blocks of a critical path of one schedule; `launch` calls it.

A schedule is the order of the operations on each machine; every operation starts as early as that
allows. A block is a run of operations of a critical path on one machine without a gap. Only moves
of an operation to the front or the end of its block can help (N6 of Balas and Vazacopoulos 1998,
which contains the swaps of N5 at both ends). Each move is carried out and measured exactly, which
also detects cycles, and the best is kept.
"""

import numpy as np
from numba import njit, types

step = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@step
def reach(operation, end, head, due, stack, top):
    """Tell an operation that one before it ends now; it is put on the stack when it waits for no other."""
    if operation < 0:
        return top
    if end > head[operation]:
        head[operation] = end
    due[operation] -= 1
    if due[operation] == 0:
        stack[top] = operation
        top += 1
    return top


@step
def measure(duration, before, behind, sequence, opening, place, head, due, stack):
    """The earliest start of each operation, into `head`, and the makespan; -1 if the orders contradict each other."""
    count, top, makespan = len(duration), 0, 0
    for o in range(count):
        head[o] = 0
        due[o] = (before[o] >= 0) + (not opening[place[o]])
        if due[o] == 0:
            stack[top] = o
            top += 1
    done = 0
    while top > 0:
        top -= 1
        o = stack[top]
        done += 1
        end = head[o] + duration[o]
        if end > makespan:
            makespan = end
        following = place[o] + 1
        top = reach(behind[o], end, head, due, stack, top)
        if following < count and not opening[following]:
            top = reach(sequence[following], end, head, due, stack, top)
    return makespan if done == count else -1


@step
def carry(sequence, place, start, goal):
    """Move the operation at one position to another of the same machine; those between make room."""
    operation, way = sequence[start], 1 if goal > start else -1
    while start != goal:
        sequence[start] = sequence[start + way]
        place[sequence[start]] = start
        start += way
    sequence[goal] = operation
    place[operation] = goal


@step
def last_operation(duration, head, makespan):
    """The first operation of all that end with the schedule."""
    for o in range(len(duration)):
        if head[o] + duration[o] == makespan:
            return o
    return -1


@step
def block_start(duration, sequence, opening, place, head, o):
    """The position where the block that ends with an operation begins."""
    low = place[o]
    while not opening[low]:
        ahead = sequence[low - 1]
        if head[ahead] + duration[ahead] != head[sequence[low]]:
            break
        low -= 1
    return low


@step
def best_in_block(duration, before, behind, sequence, opening, place, low, high, best, move, head, due, stack):
    """The best move of an operation to either end of a block, if its makespan is below `best`."""
    for k in range(low, high + 1):
        for far in range(2):
            goal = high if far else low
            if goal == k or (goal == low and k == low + 1 and low + 1 == high):
                continue  # two operations have one swap only
            carry(sequence, place, k, goal)
            makespan = measure(duration, before, behind, sequence, opening, place, head, due, stack)
            carry(sequence, place, goal, k)
            if 0 <= makespan < best:
                best = makespan
                move[0], move[1] = k, goal
    return best


def improve_shop(duration, before, behind, sequence, opening, place, head, trial, due, stack, most):
    """Improve a schedule until no move shortens it, or `most` moves are made; how many were made.

    `before` and `behind` are the neighbours of an operation in its job, or -1. `sequence` has the machines' orders one
    behind the other; `opening` says where each begins, and `place` where each operation is. `head` gets the starts.
    """
    move, moves = np.zeros(2, np.int64), 0
    makespan = measure(duration, before, behind, sequence, opening, place, head, due, stack)
    while moves < most:
        best, o = makespan, last_operation(duration, head, makespan)
        while o >= 0 and head[o] > 0:
            low, high = block_start(duration, sequence, opening, place, head, o), place[o]
            if low < high:
                best = best_in_block(
                    duration, before, behind, sequence, opening, place, low, high, best, move, trial, due, stack
                )
            o = before[sequence[low]]
        if best >= makespan:
            break
        carry(sequence, place, move[0], move[1])
        makespan = measure(duration, before, behind, sequence, opening, place, head, due, stack)
        moves += 1
    return moves


INTS, LONGS = types.int32[::1], types.int64[::1]
SIGNATURE = types.int64(
    LONGS, INTS, INTS, INTS, types.boolean[::1], INTS, LONGS, LONGS, INTS, INTS, types.int64
)  # fmt: skip
