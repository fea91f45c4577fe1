"""numba: ruin and recreate on the routes of one plan; `local_search.route_ruin_recreate` calls it.

Strings of consecutive customers are removed from a few neighbouring routes, and the customers are
inserted one by one where they cost least (SISR of Christiaens and Vanden Berghe 2020). Simulated
annealing accepts the result if it costs less, or not much more.

There are four differences from the paper. A new route is also opened if that costs less than every
insertion into the others, as the distances of a file need not be Euclidean. Fleets are not reduced:
a plan is given, and a removal is undone if a customer does not fit anywhere. Routes are ruined
around the nearest customers only. Temperatures are in mean legs of the plan.

A plan is a tuple (rows, length, load, route, place, from_previous, home). Row r of `rows` has the
customers of route r, and there may be as many routes as rows; `length`, `load` and `home` (distance
from the last customer to the depot) are those of each route. `route`, `place` and `from_previous`
(distance from its predecessor) are those of each customer. Routes are saved before they change, so
that they can be restored.
"""

import math

from numba import njit, types

from rhumbline.kernels.numba.local_search.tour_moves import draw, njit_function

MEAN_REMOVED = 10.0  # mean number of customers removed at a time
MAX_STRING_LENGTH = 10.0  # customers
SPLIT_ODDS = 2  # one string in SPLIT_ODDS preserves customers in its middle ...
SPLIT_GROWTH_ODDS = 100  # ... and one draw in SPLIT_GROWTH_ODDS preserves one more, repeatedly
BLINK_ODDS = 100  # one better position in BLINK_ODDS is skipped
INSERTION_ORDERS = 11  # 4 random, 4 by demand, 2 farthest first and 1 nearest first
CURRENT, BEST = range(2)  # indices of `costs`: of the current plan, of the best
NO_ROUTE = -1

njit_inline = njit(inline="always", error_model="numpy")  # 1.5 times as fast, and takes no longer to compile


@njit_function
def draw_uniform(random):
    """Return a random number between 0 and 1, both excluded."""
    return (draw(random, 1 << 30) + 0.5) / (1 << 30)


@njit_inline
def update_route(distance, demand, plan, r):
    """Update route, position and predecessor distance of each customer of route r.

    Updates the route's load and return distance, too.
    """
    rows, length, load, route, place, from_previous, home = plan
    last, carried = 0, 0
    for i in range(length[r]):
        c = rows[r, i]
        route[c], place[c], from_previous[c] = r, i, distance[last, c]
        carried += demand[c]
        last = c
    load[r], home[r] = carried, distance[last, 0]


@njit_function
def row_cost(plan, r):
    """Return the length of route r; that of an empty one is 0, as its return distance is 0."""
    rows, length, _, _, _, from_previous, home = plan
    cost = home[r]
    for i in range(length[r]):
        cost += from_previous[rows[r, i]]
    return cost


@njit_function
def update_all_routes(distance, demand, plan):
    """Update every route and return the total length."""
    cost = 0.0
    for r in range(len(plan[1])):
        update_route(distance, demand, plan, r)
        cost += row_cost(plan, r)
    return cost


@njit_function
def is_saved(saved_routes, saved_count, r):
    """Return whether route r is among the saved ones."""
    known = False
    for k in range(saved_count):
        known |= saved_routes[k] == r
    return known


@njit_inline
def save_route(plan, saved, saved_count, r):
    """Save route r, unless it is already; return the number of saved routes."""
    saved_routes, rows, length, cost = saved
    if is_saved(saved_routes, saved_count, r):
        return saved_count
    saved_routes[saved_count], length[saved_count], cost[saved_count] = r, plan[1][r], row_cost(plan, r)
    for i in range(length[saved_count]):
        rows[saved_count, i] = plan[0][r, i]
    return saved_count + 1


@njit_function
def restore_routes(distance, demand, plan, saved, saved_count):
    """Restore all saved routes."""
    saved_routes, rows, length, _ = saved
    for k in range(saved_count):
        r = saved_routes[k]
        plan[1][r] = length[k]
        for i in range(length[k]):
            plan[0][r, i] = rows[k, i]
        update_route(distance, demand, plan, r)


@njit_function
def draw_string(length, at, longest, random):
    """Draw a string that contains position `at` of a route with `length` customers.

    Returns begin, end, and the begin and end of the preserved range, whose customers stay; it is empty unless the
    string is split. All ends are exclusive.
    """
    size = int(1.0 + draw_uniform(random) * min(float(length), longest))
    preserved = 0
    if 1 < size < length and draw(random, SPLIT_ODDS) == 0:
        preserved = 1
        while size + preserved < length and draw(random, SPLIT_GROWTH_ODDS) == 0:
            preserved += 1
    span = size + preserved
    low, high = max(0, at - span + 1), min(at, length - span)
    begin = low + draw(random, high - low + 1)
    hole = begin + 1 + draw(random, size - 1) if preserved > 0 else begin + span
    return begin, begin + span, hole, hole + preserved


@njit_function
def remove_string(distance, demand, plan, r, string, removed, removed_count):
    """Remove a string from route r except its preserved range; return the number of all removed customers."""
    rows, length, _, route, _, _, _ = plan
    begin, end, hole, hole_end = string
    filled = begin
    for i in range(begin, length[r]):
        c = rows[r, i]
        if i < end and not hole <= i < hole_end:
            removed[removed_count], route[c] = c, NO_ROUTE
            removed_count += 1
        else:
            rows[r, filled] = c
            filled += 1
    length[r] = filled
    update_route(distance, demand, plan, r)
    return removed_count


@njit_function
def count_used_routes(length):
    """Return the number of routes with customers."""
    used = 0
    for r in range(len(length)):
        used += length[r] > 0
    return used


@njit_function
def ruin(distance, near, demand, plan, saved, removed, random):
    """Remove strings from routes around a random customer; return how many routes are saved and customers removed."""
    _, length, _, route, place, _, _ = plan
    customers, saved_count, removed_count = len(demand) - 1, 0, 0
    longest = min(MAX_STRING_LENGTH, customers / count_used_routes(length))
    strings = int(1.0 + draw_uniform(random) * (4.0 * MEAN_REMOVED / (1.0 + longest) - 1.0))
    seed = 1 + draw(random, customers)
    for k in range(-1, near.shape[1]):
        c = seed if k < 0 else near[seed, k]
        r = route[c]
        if saved_count == strings:
            break
        if r == NO_ROUTE or is_saved(saved[0], saved_count, r):
            continue
        saved_count = save_route(plan, saved, saved_count, r)
        string = draw_string(length[r], place[c], longest, random)
        removed_count = remove_string(distance, demand, plan, r, string, removed, removed_count)
    return saved_count, removed_count


@njit_function
def sort_removed(distance, demand, removed, removed_count, key, random):
    """Sort the removed customers into a random one of the insertion orders."""
    kind = draw(random, INSERTION_ORDERS)
    for i in range(removed_count):
        c = removed[i]
        if kind < 4:
            key[i] = draw_uniform(random)
        elif kind < 8:
            key[i] = -demand[c]
        else:
            key[i] = -distance[0, c] if kind < 10 else distance[0, c]
    for i in range(1, removed_count):
        value, c, j = key[i], removed[i], i - 1
        while j >= 0 and key[j] > value:
            key[j + 1], removed[j + 1] = key[j], removed[j]
            j -= 1
        key[j + 1], removed[j + 1] = value, c


@njit_inline
def best_insertion(distance, demand, capacity, plan, c, random):
    """Return the route and the position where customer c costs least.

    That is an empty route if it costs less or is the only one with room; (NO_ROUTE, 0) if the customer fits nowhere.
    """
    rows, length, load, _, _, from_previous, home = plan
    away, room = distance[c], capacity - demand[c]  # distances are symmetric
    least, row, at, empty = math.inf, NO_ROUTE, 0, NO_ROUTE
    for r in range(len(length)):
        if length[r] == 0:
            empty = r
        elif load[r] <= room:
            before = away[0]
            for i in range(length[r]):
                behind = away[rows[r, i]]
                change = before + behind - from_previous[rows[r, i]]
                if change < least and draw(random, BLINK_ODDS) > 0:
                    least, row, at = change, r, i
                before = behind
            change = before + away[0] - home[r]
            if change < least and draw(random, BLINK_ODDS) > 0:
                least, row, at = change, r, length[r]
    if empty != NO_ROUTE and 2.0 * away[0] < least:
        return empty, 0
    return row, at


@njit_inline
def insert_customer(distance, demand, plan, r, at, c):
    """Insert customer c at position `at` of route r."""
    rows, length = plan[0], plan[1]
    for i in range(length[r], at, -1):
        rows[r, i] = rows[r, i - 1]
    rows[r, at] = c
    length[r] += 1
    update_route(distance, demand, plan, r)


@njit_function
def recreate(distance, demand, capacity, plan, saved, saved_count, removed, removed_count, random):
    """Insert all removed customers; return the number of saved routes, and whether every customer had room."""
    for i in range(removed_count):
        c = removed[i]
        r, at = best_insertion(distance, demand, capacity, plan, c, random)
        if r == NO_ROUTE:
            return saved_count, False
        saved_count = save_route(plan, saved, saved_count, r)
        insert_customer(distance, demand, plan, r, at, c)
    return saved_count, True


@njit_function
def cost_change(plan, saved, saved_count):
    """Return by how much the saved routes have become longer."""
    change = 0.0
    for k in range(saved_count):
        change += row_cost(plan, saved[0][k]) - saved[3][k]
    return change


@njit_function
def copy_to_best(plan, best):
    """Copy the plan to `best`."""
    rows, length = best
    length[:] = plan[1]
    for r in range(len(length)):
        for i in range(length[r]):
            rows[r, i] = plan[0][r, i]


def search_routes(
    distance, near, demand, capacity, plan, saved, best, scratch, random, costs, temperature, tolerance, most
):  # fmt: skip
    """Ruin and recreate up to `most` times at a temperature; return whether the best plan has changed.

    `plan` is described above, and everything but rows and lengths is set here. `saved` is scratch for saved routes,
    `best` the best plan so far, `costs` the lengths of both plans, `near` the nearest customers of each customer. A
    plan counts as better only if it is shorter by more than `tolerance`.
    """
    removed, key = scratch
    better, costs[CURRENT] = False, update_all_routes(distance, demand, plan)
    for _ in range(most):
        saved_count, removed_count = ruin(distance, near, demand, plan, saved, removed, random)
        sort_removed(distance, demand, removed, removed_count, key, random)
        saved_count, fits = recreate(distance, demand, capacity, plan, saved, saved_count, removed, removed_count, random)
        change = cost_change(plan, saved, saved_count)
        if not fits or change >= -temperature * math.log(draw_uniform(random)):
            restore_routes(distance, demand, plan, saved, saved_count)
            continue
        costs[CURRENT] += change
        if costs[CURRENT] < costs[BEST] - tolerance:
            costs[BEST], better = costs[CURRENT], True
            copy_to_best(plan, best)
    return better


ROWS, INTS, LONGS, FLOATS = types.int32[:, ::1], types.int32[::1], types.int64[::1], types.float64[::1]
SIGNATURE = types.boolean(
    types.float64[:, ::1], ROWS, LONGS, types.int64,
    types.Tuple((ROWS, INTS, LONGS, INTS, INTS, FLOATS, FLOATS)), types.Tuple((INTS, ROWS, INTS, FLOATS)),
    types.Tuple((ROWS, INTS)), types.Tuple((INTS, FLOATS)), types.uint64[::1], FLOATS, types.float64,
    types.float64, types.int64,
)  # fmt: skip
