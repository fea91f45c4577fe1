"""numba: the best move that joins one customer to a near one.

A move of customer u joins it to a customer v and removes a leg of each. The one of u goes in
direction x to `a`, and the one of v in direction y to `b`. Only moves whose new leg u-v is shorter
than the removed leg u-a are examined. Every improving move without changes of load has such a leg
at one of its ends (the gain criterion of Lin and Kernighan 1973).

- A segment of up to three customers from u on, away from a, goes between v and b (relocate, Or-opt),
  or changes places with a segment of up to two customers from b on (swap).
- On different routes, the part of u's route without a is joined to the part of v's without b (2-opt*).
- On one route, if x is y, everything between is reversed (2-opt).
- A customer or the rest of its route gets a route of its own.

Loads above the capacity cost `price` for each unit.
"""

from rhumbline.kernels.numba.legs import leg, njit_function, njit_large_function
from rhumbline.kernels.numba.route_search.records import (
    BEFORE,
    BEHIND,
    DEPOT,
    MAX_SEGMENT,
    MAX_SWAPPED,
    NO_ROUTE,
)
from rhumbline.kernels.numba.route_search.routes import spare_route

EXCHANGE, REVERSE = 0, 1  # kinds of moves
NEAR_DEPOT = 10  # near customers that are examined where the removed leg goes to the depot, and so may be long


@njit_function
def excess_change(one, other, moved, capacity):
    """Return by how much the excess of two loads grows if a load moves from the first to the second."""
    before = max(0, one - capacity) + max(0, other - capacity)
    return max(0, one - moved - capacity) + max(0, other + moved - capacity) - before


@njit_function
def note_exchange(scratch, r, i, a, reverse_a, s, j, b, reverse_b):
    """Describe a move: a customers of route r from place i and b of route s from j change places, reversed or not."""
    move = scratch.move
    move[0], move[1], move[2], move[3], move[4] = EXCHANGE, r, i, a, reverse_a
    move[5], move[6], move[7], move[8] = s, j, b, reverse_b


@njit_function
def list_segments(customers, plan, segments, u, x):
    """List the segments from u on, away from its neighbour in direction x; return how many there are."""
    a, end, carried = plan.link[x, u], u, 0
    for m in range(MAX_SEGMENT):
        carried += customers.demand[end]
        beyond = plan.link[1 - x, end]
        segments.end[m], segments.beyond[m], segments.load[m] = end, beyond, carried
        segments.far_leg[m] = plan.leg_to[1 - x, end]
        segments.saved[m] = segments.far_leg[m] - leg(customers.legs, a, beyond)
        if beyond == DEPOT:
            return m + 1
        end = beyond
    return MAX_SEGMENT


@njit_function
def try_relocations(customers, plan, price, u, x, v, y, gain, segments, count, best, scratch):
    """Try to move a segment from u on next to v; return the least change of cost so far.

    `gain` is what the removed legs at u and v exceed the new one by; `best` is the least change before.
    """
    r, s, b = plan.route[u], plan.route[v], plan.link[y, v]
    extra = 0.0
    for m in range(count):
        end = segments.end[m]
        if end == v:
            break
        length = -gain - segments.saved[m]
        if length >= best or end == b:
            continue
        if r != s:
            extra = price * excess_change(plan.load[r], plan.load[s], segments.load[m], customers.capacity)
            if length + extra >= best:
                continue
        length += leg(customers.legs, end, b)
        if length + extra < best:
            best, scratch.change[0] = length + extra, length
            low = plan.place[u] if x == BEFORE else plan.place[u] - m
            gap = plan.place[v] + y
            note_exchange(scratch, r, low, m + 1, x == y, s, gap, 0, 0)
    return best


@njit_function
def try_swaps(customers, plan, price, u, x, v, y, gain, segments, count, best, scratch):
    """Try to swap a segment from u on with one behind v; as `try_relocations`."""
    legs, r, s, a, b = customers.legs, plan.route[u], plan.route[v], plan.link[x, u], plan.link[y, v]
    c, carried, extra = b, 0, 0.0
    for k in range(MAX_SWAPPED):
        if k > 0:
            c = plan.link[y, c]
        if c == DEPOT or (r == s and c in (a, u)):
            break
        carried += customers.demand[c]
        for m in range(min(count, MAX_SWAPPED)):
            end, beyond = segments.end[m], segments.beyond[m]
            if end == v or (r == s and c in (beyond, end)):
                break
            length = -gain - plan.leg_to[y, c] - segments.far_leg[m]
            if length >= best:
                continue
            if r != s:
                moved = segments.load[m] - carried
                extra = price * excess_change(plan.load[r], plan.load[s], moved, customers.capacity)
                if length + extra >= best:
                    continue
            length += leg(legs, end, plan.link[y, c])
            if length + extra >= best:
                continue
            straight = length + leg(legs, a, b) + leg(legs, c, beyond)
            turned = straight if k == 0 else length + leg(legs, a, c) + leg(legs, b, beyond)
            length = min(straight, turned)
            if length + extra < best:
                best, scratch.change[0] = length + extra, length
                low = plan.place[u] if x == BEFORE else plan.place[u] - m
                other_low = plan.place[v] + 1 if y == BEHIND else plan.place[v] - k - 1
                turn = (x == y) != (turned < straight)
                note_exchange(scratch, r, low, m + 1, x == y, s, other_low, k + 1, turn)
    return best


@njit_function
def part_load(plan, c, way):
    """Return the load of the part of a route up to customer c that loses its leg in direction `way`."""
    if way == BEHIND:
        return plan.head[c]
    a, load = plan.link[BEFORE, c], plan.load[plan.route[c]]
    return load if a == DEPOT else load - plan.head[a]


@njit_function
def try_tails(customers, plan, price, u, x, v, y, gain, best, scratch):
    """Try to join the part of u's route without a to the part of v's without b; as `try_relocations`."""
    r, s = plan.route[u], plan.route[v]
    moved = plan.load[r] - part_load(plan, u, x) - part_load(plan, v, y)
    extra = price * excess_change(plan.load[r], plan.load[s], moved, customers.capacity)
    if extra - gain >= best:
        return best
    length = leg(customers.legs, plan.link[x, u], plan.link[y, v]) - gain
    if length + extra >= best:
        return best
    scratch.change[0] = length
    i, j = plan.place[u], plan.place[v]
    tail, other_tail = plan.size[r] - i, plan.size[s] - j
    if x == BEHIND and y == BEFORE:
        note_exchange(scratch, r, i + 1, tail - 1, 0, s, j, other_tail, 0)
    elif x == BEFORE and y == BEHIND:
        note_exchange(scratch, r, i, tail, 0, s, j + 1, other_tail - 1, 0)
    elif x == BEHIND:
        note_exchange(scratch, r, i + 1, tail - 1, 1, s, 0, j + 1, 1)
    else:
        note_exchange(scratch, r, 0, i, 1, s, j, other_tail, 1)
    return length + extra


@njit_function
def try_reversal(customers, plan, u, x, v, gain, best, scratch):
    """Try to reverse the part of a route between u and v; as `try_relocations`."""
    if -gain >= best:
        return best
    length = leg(customers.legs, plan.link[x, u], plan.link[x, v]) - gain
    if length >= best:
        return best
    low, high = min(plan.place[u], plan.place[v]), max(plan.place[u], plan.place[v])
    scratch.change[0] = length
    scratch.move[0], scratch.move[1] = REVERSE, plan.route[u]
    scratch.move[2] = low + 1 if x == BEHIND else low
    scratch.move[3] = high if x == BEHIND else high - 1
    return length


@njit_function
def try_new_route(customers, plan, price, u, best, scratch):
    """Try to give u, or u and all behind it, a route of its own; as `try_relocations`."""
    r, spare = plan.route[u], spare_route(plan)
    if spare == NO_ROUTE or plan.size[r] < 2:
        return best
    a, b, place, away = plan.link[BEFORE, u], plan.link[BEHIND, u], plan.place[u], leg(customers.legs, u, DEPOT)
    if a != DEPOT:
        length = away + leg(customers.legs, a, DEPOT) - plan.leg_to[BEFORE, u]
        extra = price * excess_change(plan.load[r], 0, part_load(plan, u, BEFORE), customers.capacity)
        if length + extra < best:
            best, scratch.change[0] = length + extra, length
            note_exchange(scratch, r, place, plan.size[r] - place, 0, spare, 0, 0, 0)
    length = 2.0 * away + leg(customers.legs, a, b) - plan.leg_to[BEFORE, u] - plan.leg_to[BEHIND, u]
    extra = price * excess_change(plan.load[r], 0, customers.demand[u], customers.capacity)
    if length + extra < best:
        best, scratch.change[0] = length + extra, length
        note_exchange(scratch, r, place, 1, 0, spare, 0, 0, 0)
    return best


@njit_large_function
def best_move(customers, plan, price, u, best, scratch):
    """Find the best move of customer u whose change of cost is below `best`, and describe it in `scratch`."""
    r, segments = plan.route[u], scratch.segments
    relief = price * max(0, plan.load[r] - customers.capacity)  # a longer leg may be worth it
    for x in range(2):
        a, old_leg = plan.link[x, u], plan.leg_to[x, u]
        count = list_segments(customers, plan, segments, u, x)
        examined = customers.near.shape[1]
        if a == DEPOT:
            examined = min(examined, NEAR_DEPOT)
        for k in range(examined):
            new_leg = customers.near_leg[u, k]
            if new_leg >= old_leg + relief:
                break
            v = customers.near[u, k]
            if v == a:
                continue
            for y in range(2):
                if plan.link[y, v] == u:
                    continue
                gain = old_leg + plan.leg_to[y, v] - new_leg
                if plan.route[v] != r:
                    best = try_tails(customers, plan, price, u, x, v, y, gain, best, scratch)
                elif x == y:
                    best = try_reversal(customers, plan, u, x, v, gain, best, scratch)
                best = try_relocations(customers, plan, price, u, x, v, y, gain, segments, count, best, scratch)
                best = try_swaps(customers, plan, price, u, x, v, y, gain, segments, count, best, scratch)
    return try_new_route(customers, plan, price, u, best, scratch)
