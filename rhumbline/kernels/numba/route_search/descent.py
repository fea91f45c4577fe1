"""numba: local search around changed customers, until none of them has an improving move."""

from rhumbline.kernels.numba.legs import njit_function, njit_large_function
from rhumbline.kernels.numba.route_search.moves import REVERSE, best_move
from rhumbline.kernels.numba.route_search.records import BEFORE, BEHIND, DEPOT, NEXT, SAVED, WAITING
from rhumbline.kernels.numba.route_search.routes import read_route, save_route, write_route


@njit_function
def wait(queue, c):
    """Let a customer wait at the end of the queue, unless it already waits or is the depot."""
    if c == DEPOT or queue.is_waiting[c]:
        return
    queue.is_waiting[c] = True
    end = queue.state[NEXT] + queue.state[WAITING]
    if end >= len(queue.customers):
        end -= len(queue.customers)
    queue.customers[end] = c
    queue.state[WAITING] += 1


@njit_function
def take_next(queue):
    """Take the first customer from the queue."""
    at = queue.state[NEXT]
    c = queue.customers[at]
    queue.is_waiting[c] = False
    queue.state[NEXT] = at + 1 if at + 1 < len(queue.customers) else 0
    queue.state[WAITING] -= 1
    return c


@njit_function
def clear(queue):
    """Let no customer wait."""
    while queue.state[WAITING] > 0:
        take_next(queue)


@njit_function
def wait_at_ends(queue, nodes, begin, end, low, count):
    """Let the customers wait that are at both ends of a segment of nodes[begin:end], inside and outside."""
    for first in (low - 1, low + count - 1):
        for i in range(max(0, first), min(end - begin, first + 2)):
            wait(queue, nodes[begin + i])


@njit_function
def copy_segment(source, begin, end, is_reversed, target, at):
    """Copy source[begin:end], perhaps reversed, to `target` from `at` on; return where it ends."""
    for k in range(end - begin):
        target[at + k] = source[end - 1 - k] if is_reversed else source[begin + k]
    return at + end - begin


@njit_function
def make_reversal(customers, plan, queue, scratch):
    """Reverse places of a route."""
    move, old, new = scratch.move, scratch.old, scratch.new
    r, low, high = move[1], move[2], move[3] + 1
    end = read_route(plan, r, old, 0)
    copy_segment(old, 0, low, False, new, 0)
    copy_segment(old, low, high, True, new, low)
    copy_segment(old, high, end, False, new, high)
    write_route(customers, plan, r, new, 0, end)
    wait_at_ends(queue, old, 0, end, low, high - low)


@njit_function
def exchange_within(customers, plan, queue, scratch):
    """Exchange two segments of one route."""
    move, old, new = scratch.move, scratch.old, scratch.new
    r, i, a, turn_a, j, b, turn_b = move[1], move[2], move[3], move[4], move[6], move[7], move[8]
    end = read_route(plan, r, old, 0)
    wait_at_ends(queue, old, 0, end, i, a)
    wait_at_ends(queue, old, 0, end, j, b)
    if j < i:
        i, a, turn_a, j, b, turn_b = j, b, turn_b, i, a, turn_a
    at = copy_segment(old, 0, i, False, new, 0)
    at = copy_segment(old, j, j + b, turn_b, new, at)
    at = copy_segment(old, i + a, j, False, new, at)
    at = copy_segment(old, i, i + a, turn_a, new, at)
    at = copy_segment(old, j + b, end, False, new, at)
    write_route(customers, plan, r, new, 0, at)


@njit_function
def exchange_between(customers, plan, queue, scratch):
    """Exchange segments of two routes."""
    move, old, new = scratch.move, scratch.old, scratch.new
    r, i, a, turn_a, s, j, b, turn_b = move[1], move[2], move[3], move[4], move[5], move[6], move[7], move[8]
    middle = read_route(plan, r, old, 0)
    end = read_route(plan, s, old, middle)
    wait_at_ends(queue, old, 0, middle, i, a)
    wait_at_ends(queue, old, middle, end, j, b)
    j += middle
    at = copy_segment(old, 0, i, False, new, 0)
    at = copy_segment(old, j, j + b, turn_b, new, at)
    at = copy_segment(old, i + a, middle, False, new, at)
    write_route(customers, plan, r, new, 0, at)
    at = copy_segment(old, middle, j, False, new, 0)
    at = copy_segment(old, i, i + a, turn_a, new, at)
    at = copy_segment(old, j + b, end, False, new, at)
    write_route(customers, plan, s, new, 0, at)


@njit_function
def make_move(customers, plan, log, queue, scratch):
    """Make the described move; customers with changed legs wait."""
    move = scratch.move
    save_route(plan, log, move[1])
    if move[0] == REVERSE:
        make_reversal(customers, plan, queue, scratch)
    elif move[1] == move[5]:
        exchange_within(customers, plan, queue, scratch)
    else:
        save_route(plan, log, move[5])
        exchange_between(customers, plan, queue, scratch)


@njit_large_function
def descend(customers, plan, log, queue, scratch, price, tolerance):
    """Make the best move of each waiting customer until no customer waits; return the change of length."""
    total = 0.0
    while queue.state[WAITING] > 0:
        u = take_next(queue)
        if best_move(customers, plan, price, u, -tolerance, scratch) < -tolerance:
            total += scratch.change[0]
            make_move(customers, plan, log, queue, scratch)
            wait(queue, u)
    return total


@njit_function
def find_overload(customers, plan, log, queue):
    """Return by how much changed routes are overloaded in all; all customers of such routes wait."""
    overload = 0
    for k in range(log.counts[SAVED]):
        r = log.routes[k]
        excess = plan.load[r] - customers.capacity
        if excess <= 0:
            continue
        overload += excess
        c = plan.ends[BEFORE, r]
        while c != DEPOT:
            wait(queue, c)
            c = plan.link[BEHIND, c]
    return overload
