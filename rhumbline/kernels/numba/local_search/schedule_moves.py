"""numba: moves within the blocks of a critical path of one schedule; `launch` calls it.

A schedule is the order of the operations on each machine; every operation starts as early as that
allows. A block is a maximal run of operations of a critical path on one machine without a gap. Only
moves of an operation to the front or the end of its block can help: N6 of Balas and Vazacopoulos
(1998), which contains the swaps of N5 at both ends. Each move is made and measured exactly, which
also detects cycles, and the best is kept.
"""

import numpy as np
from numba import njit, types

njit_function = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@njit_function
def release(operation, end, head, due, stack, top):
    """Record that a predecessor of an operation (-1: none) ends at `end`.

    The operation goes on the stack when it waits for no other. Returns the size of the stack.
    """
    if operation < 0:
        return top
    if end > head[operation]:
        head[operation] = end
    due[operation] -= 1
    if due[operation] == 0:
        stack[top] = operation
        top += 1
    return top


@njit_function
def measure(duration, before, behind, sequence, opening, place, head, due, stack):
    """Write the earliest starts to `head`; return the makespan, or -1 if the orders contain a cycle."""
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
        top = release(behind[o], end, head, due, stack, top)
        if following < count and not opening[following]:
            top = release(sequence[following], end, head, due, stack, top)
    return makespan if done == count else -1


@njit_function
def move_operation(sequence, place, start, goal):
    """Move the operation at position `start` to position `goal` of the same machine; those between shift by one."""
    operation, way = sequence[start], 1 if goal > start else -1
    while start != goal:
        sequence[start] = sequence[start + way]
        place[sequence[start]] = start
        start += way
    sequence[goal] = operation
    place[operation] = goal


@njit_function
def find_last_operation(duration, head, makespan):
    """Return the first operation that ends at the makespan, or -1."""
    for o in range(len(duration)):
        if head[o] + duration[o] == makespan:
            return o
    return -1


@njit_function
def find_block_start(duration, sequence, opening, place, head, o):
    """Return the position where the block that ends with operation o begins."""
    low = place[o]
    while not opening[low]:
        ahead = sequence[low - 1]
        if head[ahead] + duration[ahead] != head[sequence[low]]:
            break
        low -= 1
    return low


@njit_function
def best_move_in_block(duration, before, behind, sequence, opening, place, low, high, best, move, head, due, stack):
    """Find the best move of an operation to either end of the block at positions low..high.

    If its makespan is below `best`, returns that and writes the two positions to `move`; else returns `best`.
    """
    for k in range(low, high + 1):
        for far in range(2):
            goal = high if far else low
            if goal == k or (goal == low and k == low + 1 and low + 1 == high):
                continue  # a block of two has only one swap
            move_operation(sequence, place, k, goal)
            makespan = measure(duration, before, behind, sequence, opening, place, head, due, stack)
            move_operation(sequence, place, goal, k)
            if 0 <= makespan < best:
                best = makespan
                move[0], move[1] = k, goal
    return best


def improve_shop(duration, before, behind, sequence, opening, place, head, trial, due, stack, most):
    """Improve a schedule until no move shortens it, or `most` moves are made; return their number.

    `before` and `behind` are the neighbours of an operation in its job, or -1. `sequence` concatenates the orders of
    the machines; `opening` marks where each order begins, and `place` is the position of each operation. `head` gets
    the earliest starts.
    """
    move, moves = np.zeros(2, np.int64), 0
    makespan = measure(duration, before, behind, sequence, opening, place, head, due, stack)
    while moves < most:
        best, o = makespan, find_last_operation(duration, head, makespan)
        while o >= 0 and head[o] > 0:
            low, high = find_block_start(duration, sequence, opening, place, head, o), place[o]
            if low < high:
                best = best_move_in_block(
                    duration, before, behind, sequence, opening, place, low, high, best, move, trial, due, stack
                )
            o = before[sequence[low]]
        if best >= makespan:
            break
        move_operation(sequence, place, move[0], move[1])
        makespan = measure(duration, before, behind, sequence, opening, place, head, due, stack)
        moves += 1
    return moves


INTS, LONGS = types.int32[::1], types.int64[::1]
SIGNATURE = types.int64(
    LONGS, INTS, INTS, INTS, types.boolean[::1], INTS, LONGS, LONGS, INTS, INTS, types.int64
)  # fmt: skip
