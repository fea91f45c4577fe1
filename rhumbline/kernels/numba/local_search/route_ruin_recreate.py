"""numba: ruin and recreate on the routes of one plan; `local_search.route_ruin_recreate` calls it.

Strings of neighbouring customers are removed from a few neighbouring routes and inserted one by one
where they cost least (SISR of Christiaens and Vanden Berghe 2020). Simulated annealing accepts the
result if it costs less, or not much more.

There are four differences from the paper. A route is also opened if that costs less than any place
in the others, as the distances of a file need not be those of a plane. Fleets are not reduced: a
plan is given, and a removal is undone if a customer finds no room. Routes are ruined around the
nearest customers only. Temperatures are in legs of the plan.

A route is a row of customers; there may be as many as there are rows. Rows are saved before they
change, so that they can be restored.
"""

import math

from numba import njit, types

from rhumbline.kernels.numba.local_search.tour_moves import draw, step

REMOVED = 10.0  # customers at a time, on average
LONGEST = 10.0  # string of them
SPLITS = 2  # one in SPLITS strings leaves customers in its middle where they are ...
LARGER = 100  # ... one more of them each time, in one of LARGER draws
BLINK = 100  # one in BLINK better places is skipped
ORDERS = 11  # of these four are random, four by demand, two the farthest first and one the nearest
NOW, BEST = range(2)  # in `costs`
NOWHERE = -1

part = njit(inline="always", error_model="numpy")  # inlined: 1.5 times as fast, and compiled no slower


@step
def unit(random):
    """A number between 0 and 1, neither of them."""
    return (draw(random, 1 << 30) + 0.5) / (1 << 30)


@part
def link(distance, demand, plan, r):
    """Note of each customer of a row where it is and how far from the one before; of the row its load and way home."""
    rows, length, load, route, place, ahead, home = plan
    last, carried = 0, 0
    for i in range(length[r]):
        c = rows[r, i]
        route[c], place[c], ahead[c] = r, i, distance[last, c]
        carried += demand[c]
        last = c
    load[r], home[r] = carried, distance[last, 0]


@step
def row_cost(plan, r):
    """The length of a route; of an empty one its way home is 0."""
    rows, length, _, _, _, ahead, home = plan
    cost = home[r]
    for i in range(length[r]):
        cost += ahead[rows[r, i]]
    return cost


@step
def linked(distance, demand, plan):
    """The length of all routes, after what `link` does."""
    cost = 0.0
    for r in range(len(plan[1])):
        link(distance, demand, plan, r)
        cost += row_cost(plan, r)
    return cost


@step
def is_kept(kept, count, r):
    """Whether a row was written down."""
    known = False
    for k in range(count):
        known |= kept[k] == r
    return known


@part
def keep(plan, saved, count, r):
    """Write a row down, unless it was; how many are."""
    kept, rows, length, cost = saved
    if is_kept(kept, count, r):
        return count
    kept[count], length[count], cost[count] = r, plan[1][r], row_cost(plan, r)
    for i in range(length[count]):
        rows[count, i] = plan[0][r, i]
    return count + 1


@step
def restore(distance, demand, plan, saved, count):
    """All rows as they were written down."""
    kept, rows, length, _ = saved
    for k in range(count):
        r = kept[k]
        plan[1][r] = length[k]
        for i in range(length[k]):
            plan[0][r, i] = rows[k, i]
        link(distance, demand, plan, r)


@step
def string_of(length, at, longest, random):
    """Where a string begins that holds a place of a row, where it ends, and what in its middle stays: [hole, end)."""
    size = int(1.0 + unit(random) * min(float(length), longest))
    left = 0
    if 1 < size < length and draw(random, SPLITS) == 0:
        left = 1
        while size + left < length and draw(random, LARGER) == 0:
            left += 1
    span = size + left
    low, high = max(0, at - span + 1), min(at, length - span)
    begin = low + draw(random, high - low + 1)
    hole = begin + 1 + draw(random, size - 1) if left > 0 else begin + span
    return begin, begin + span, hole, hole + left


@step
def take_out(distance, demand, plan, r, string, removed, gone):
    """Take a string out of a row, but for its hole; how many customers are removed then."""
    rows, length, _, route, _, _, _ = plan
    begin, end, hole, hole_end = string
    filled = begin
    for i in range(begin, length[r]):
        c = rows[r, i]
        if i < end and not hole <= i < hole_end:
            removed[gone], route[c] = c, NOWHERE
            gone += 1
        else:
            rows[r, filled] = c
            filled += 1
    length[r] = filled
    link(distance, demand, plan, r)
    return gone


@step
def routes_of(length):
    """How many rows have customers."""
    used = 0
    for r in range(len(length)):
        used += length[r] > 0
    return used


@step
def ruin(distance, near, demand, plan, saved, removed, random):
    """Take strings out of routes round a random customer; how many rows were written down, and customers removed."""
    _, length, _, route, place, _, _ = plan
    customers, count, gone = len(demand) - 1, 0, 0
    longest = min(LONGEST, customers / routes_of(length))
    strings = int(1.0 + unit(random) * (4.0 * REMOVED / (1.0 + longest) - 1.0))
    seed = 1 + draw(random, customers)
    for k in range(-1, near.shape[1]):
        c = seed if k < 0 else near[seed, k]
        r = route[c]
        if count == strings:
            break
        if r == NOWHERE or is_kept(saved[0], count, r):
            continue
        count = keep(plan, saved, count, r)
        string = string_of(length[r], place[c], longest, random)
        gone = take_out(distance, demand, plan, r, string, removed, gone)
    return count, gone


@step
def sort(distance, demand, removed, gone, key, random):
    """Put removed customers into the order in which they go back."""
    kind = draw(random, ORDERS)
    for i in range(gone):
        c = removed[i]
        if kind < 4:
            key[i] = unit(random)
        elif kind < 8:
            key[i] = -demand[c]
        else:
            key[i] = -distance[0, c] if kind < 10 else distance[0, c]
    for i in range(1, gone):
        value, c, j = key[i], removed[i], i - 1
        while j >= 0 and key[j] > value:
            key[j + 1], removed[j + 1] = key[j], removed[j]
            j -= 1
        key[j + 1], removed[j + 1] = value, c


@part
def best_place(distance, demand, capacity, plan, c, random):
    """The row and the place in it where a customer costs least; a row of its own if that is less, or nothing else."""
    rows, length, load, _, _, ahead, home = plan
    away, room = distance[c], capacity - demand[c]  # as far there as back
    least, row, at, empty = math.inf, NOWHERE, 0, NOWHERE
    for r in range(len(length)):
        if length[r] == 0:
            empty = r
        elif load[r] <= room:
            before = away[0]
            for i in range(length[r]):
                behind = away[rows[r, i]]
                change = before + behind - ahead[rows[r, i]]
                if change < least and draw(random, BLINK) > 0:
                    least, row, at = change, r, i
                before = behind
            change = before + away[0] - home[r]
            if change < least and draw(random, BLINK) > 0:
                least, row, at = change, r, length[r]
    if empty != NOWHERE and 2.0 * away[0] < least:
        return empty, 0
    return row, at


@part
def put(distance, demand, plan, r, at, c):
    """Put a customer into a row."""
    rows, length = plan[0], plan[1]
    for i in range(length[r], at, -1):
        rows[r, i] = rows[r, i - 1]
    rows[r, at] = c
    length[r] += 1
    link(distance, demand, plan, r)


@step
def recreate(distance, demand, capacity, plan, saved, count, removed, gone, random):
    """Put all removed customers back; how many rows are written down then, and whether there was room for all."""
    for i in range(gone):
        c = removed[i]
        r, at = best_place(distance, demand, capacity, plan, c, random)
        if r == NOWHERE:
            return count, False
        count = keep(plan, saved, count, r)
        put(distance, demand, plan, r, at, c)
    return count, True


@step
def change_of(plan, saved, count):
    """By how much rows that were written down have become longer."""
    change = 0.0
    for k in range(count):
        change += row_cost(plan, saved[0][k]) - saved[3][k]
    return change


@step
def note_best(plan, best):
    """Take a plan for the best."""
    rows, length = best
    length[:] = plan[1]
    for r in range(len(length)):
        for i in range(length[r]):
            rows[r, i] = plan[0][r, i]


def search_routes(
    distance, near, demand, capacity, plan, saved, best, scratch, random, costs, temperature, tolerance, most
):  # fmt: skip
    """Ruin and recreate up to `most` times at a temperature; return whether the best plan has changed.

    `plan` are rows and their lengths, and what `link` notes of them. `saved` is room for rows, `best` the best plan so
    far, `costs` those of both, `near` the customers nearest to each. Less than `tolerance` below the best is no better.
    """
    removed, key = scratch
    better, costs[NOW] = False, linked(distance, demand, plan)
    for _ in range(most):
        count, gone = ruin(distance, near, demand, plan, saved, removed, random)
        sort(distance, demand, removed, gone, key, random)
        count, fits = recreate(distance, demand, capacity, plan, saved, count, removed, gone, random)
        change = change_of(plan, saved, count)
        if not fits or change >= -temperature * math.log(unit(random)):
            restore(distance, demand, plan, saved, count)
            continue
        costs[NOW] += change
        if costs[NOW] < costs[BEST] - tolerance:
            costs[BEST], better = costs[NOW], True
            note_best(plan, best)
    return better


ROWS, INTS, LONGS, FLOATS = types.int32[:, ::1], types.int32[::1], types.int64[::1], types.float64[::1]
SIGNATURE = types.boolean(
    types.float64[:, ::1], ROWS, LONGS, types.int64,
    types.Tuple((ROWS, INTS, LONGS, INTS, INTS, FLOATS, FLOATS)), types.Tuple((INTS, ROWS, INTS, FLOATS)),
    types.Tuple((ROWS, INTS)), types.Tuple((INTS, FLOATS)), types.uint64[::1], FLOATS, types.float64,
    types.float64, types.int64,
)  # fmt: skip
