"""numba: the cheapest set of routes that serves every customer once.

`local_search.launch` calls it.

Choosing such routes is a set partitioning problem. The prices of customers come first (Lagrange
multipliers): the value of a route is its cost minus the prices of its customers. Then a beam search
adds routes one by one, always for the customer with the smallest number of compatible routes, so that dead ends
show early. Served customers are bits of words, so that a few instructions compare two routes.
Routes come in order of value, so the search for a place of the beam can stop early.

Route r serves `members[begin[r]:begin[r + 1]]`. A beam is a tuple: the bitset of served customers
of each place, the sum of values, the code (the sum of its routes' codes, the same for equal sets of
customers), and the number of unserved customers.
"""

import numpy as np
from numba import njit, types

LOG2_BITS = 6  # a word has 2 ** 6 bits
NO_CUSTOMER = -1
TINY = 1e-6

njit_function = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@njit_function
def fill_array(array, entry):
    """Set every entry of an array."""
    for i in range(len(array)):
        array[i] = entry


@njit_function
def copy_array(one, other):
    """Copy an array to another one."""
    for i in range(len(one)):
        other[i] = one[i]


@njit_function
def initial_prices(begin, members, cost, best, price, plans):
    """Set each customer's price to his share of his route's cost, the mean over all known best plans.

    The routes of these plans are marked in `best`; `plans` is scratch.
    """
    fill_array(price, 0.0)
    fill_array(plans, 0.0)
    for r in range(len(cost)):
        if best[r]:
            share = cost[r] / (begin[r + 1] - begin[r])
            for k in range(begin[r], begin[r + 1]):
                price[members[k]] += share
                plans[members[k]] += 1.0
    for c in range(len(price)):
        price[c] /= max(plans[c], 1.0)


@njit_function
def compute_values(begin, members, cost, price, value):
    """Compute the values of all routes at given prices."""
    for r in range(len(cost)):
        value[r] = cost[r]
        for k in range(begin[r], begin[r + 1]):
            value[r] -= price[members[k]]


@njit_function
def total_price(price):
    """Return the sum of all prices."""
    total = 0.0
    for c in range(len(price)):
        total += price[c]
    return total


@njit_function
def negative_sum(value):
    """Return the sum of all negative values, which is a lower bound of the sum of values of any plan."""
    total = 0.0
    for r in range(len(value)):
        total += min(value[r], 0.0)
    return total


@njit_function
def raise_prices(begin, members, cost, rounds, pace, momentum, patience, price, value, direction, slope, kept):
    """Maximise the Lagrangian lower bound of all plans by subgradient ascent on the prices.

    Costs are in units of the best known plan. `price` and `value` get the prices with the best bound and the values
    there.
    """
    bound, idle = -np.inf, 0
    fill_array(direction, 0.0)
    for _ in range(rounds):
        compute_values(begin, members, cost, price, value)
        dual_value = total_price(price) + negative_sum(value)
        fill_array(slope, 1.0)
        for r in range(len(cost)):
            if value[r] < 0.0:
                for k in range(begin[r], begin[r + 1]):
                    slope[members[k]] -= 1.0
        idle += 1
        if dual_value > bound:
            bound, idle = dual_value, 0
            copy_array(price, kept)
        elif idle > patience:
            pace, idle = 0.5 * pace, 0
        norm = TINY
        for c in range(len(price)):
            direction[c] = momentum * direction[c] + slope[c]
            norm += direction[c] * direction[c]
        stride = pace * max(1.0 - dual_value, 0.0) / norm
        for c in range(len(price)):
            price[c] += stride * direction[c]
    copy_array(kept, price)
    compute_values(begin, members, cost, price, value)


@njit_function
def contains(words, row, c):
    """Return 1 if a customer is in the bitset of a row, else 0."""
    return (words[row, c >> LOG2_BITS] >> np.uint64(c & ((1 << LOG2_BITS) - 1))) & np.uint64(1)


@njit_function
def write_bitsets(begin, members, words):
    """Write the customers of all routes as bitsets."""
    for r in range(len(begin) - 1):
        for k in range(begin[r], begin[r + 1]):
            words[r, members[k] >> LOG2_BITS] |= np.uint64(1) << np.uint64(members[k] & ((1 << LOG2_BITS) - 1))


@njit_function
def list_free(words, count, cover, p, free):
    """List those of the first `count` routes that share no customer with place p of the beam; return their number.

    Every route is written, and the position advances only if it is one of them. This avoids branches, which a processor
    would mispredict too often.
    """
    free_count = 0
    for r in range(count):
        common = np.uint64(0)
        for w in range(words.shape[1]):
            common |= words[r, w] & cover[p, w]
        free[free_count] = r
        free_count += common == 0
    return free_count


@njit_function
def next_customer(routes, value, cover, p, room, free, choices):
    """Find the unserved customer with the smallest number of compatible routes; NO_CUSTOMER if one has no route left.

    Only routes of a value below `room` count. They are written to `free`; their number is returned, too.
    """
    begin, members, words = routes
    customer, count = NO_CUSTOMER, list_free(words, np.searchsorted(value, room), cover, p, free)
    fill_array(choices, 0)
    for i in range(count):
        for k in range(begin[free[i]], begin[free[i] + 1]):
            choices[members[k]] += 1
    for c in range(len(choices)):
        if not contains(cover, p, c) and (customer == NO_CUSTOMER or choices[c] < choices[customer]):
            customer = c
    return (customer if choices[customer] > 0 else NO_CUSTOMER), count


@njit_function
def swap(listed, i, j):
    """Swap two candidates."""
    sums, places, added = listed
    sums[i], sums[j] = sums[j], sums[i]
    places[i], places[j] = places[j], places[i]
    added[i], added[j] = added[j], added[i]


@njit_function
def sift_down(listed, count):
    """Restore the heap after its first candidate has changed; the largest sum is on top."""
    i = 0
    while 2 * i + 1 < count:
        below = 2 * i + 1
        if below + 1 < count and listed[0][below + 1] > listed[0][below]:
            below += 1
        if listed[0][below] <= listed[0][i]:
            break
        swap(listed, i, below)
        i = below


@njit_function
def add_candidate(listed, count, total, p, r):
    """Add a candidate to the heap, and return their number.

    If the heap is full, it replaces the candidate with the largest sum, unless its own is not smaller.
    """
    sums, places, added = listed
    if count == len(sums):
        if total < sums[0]:
            sums[0], places[0], added[0] = total, p, r
            sift_down(listed, count)
        return count
    i = count
    sums[i], places[i], added[i] = total, p, r
    while i > 0 and sums[(i - 1) // 2] < sums[i]:
        swap(listed, i, (i - 1) // 2)
        i = (i - 1) // 2
    return count + 1


@njit_function
def sort_candidates(listed, count):
    """Sort the listed candidates by their sums, the smallest first."""
    for last in range(count - 1, 0, -1):
        swap(listed, 0, last)
        sift_down(listed, last)


@njit_function
def list_candidates(routes, value, beam, alive, goal, slack, listed, free, choices, whole):
    """List the best additions to places of the beam; return their number and the sum of the best complete plan.

    If that is below the goal, `whole` gets the place and the route that make the plan. Sums of incomplete plans may
    exceed the goal by less than `slack`, which routes of negative values may still make good.
    """
    begin, _, words = routes
    cover, score, _, left = beam
    count = 0
    for p in range(alive):
        customer, free_count = next_customer(routes, value, cover, p, goal + slack - score[p], free, choices)
        for k in range(free_count if customer != NO_CUSTOMER else 0):
            r = free[k]
            total = score[p] + value[r]
            if not contains(words, r, customer):
                continue
            if begin[r + 1] - begin[r] < left[p]:
                count = add_candidate(listed, count, total, p, r)
            elif total < goal:  # all customers are served
                goal, whole[0], whole[1] = total, p, r
    sort_candidates(listed, count)
    return count, goal


@njit_function
def is_new(seen, code):
    """Return whether a code is not in the hash table yet, and insert it.

    The table has a power of two of entries, 0 for free ones, and uses linear probing from the code's last bits.
    """
    at = code & (len(seen) - 1)
    while seen[at] != 0 and seen[at] != code:
        at = (at + 1) & (len(seen) - 1)
    new = seen[at] == 0
    seen[at] = code
    return new


@njit_function
def advance_beam(routes, code, beam, onward, most, listed, count, seen, parent, added, depth):
    """Make the best candidates the places of the beam `onward`; return their number.

    No two of them serve the same customers.
    """
    begin, _, words = routes
    (cover, _, codes, left), (covered, score, coded, rest) = beam, onward
    alive = 0
    fill_array(seen, 0)
    for k in range(count):
        p, r = listed[1][k], listed[2][k]
        if alive == len(score) or listed[0][k] >= most:
            break
        if not is_new(seen, codes[p] + code[r]):
            continue
        parent[depth, alive], added[depth, alive] = p, r
        score[alive], coded[alive] = listed[0][k], codes[p] + code[r]
        rest[alive] = left[p] - (begin[r + 1] - begin[r])
        for w in range(words.shape[1]):
            covered[alive, w] = cover[p, w] | words[r, w]
        alive += 1
    return alive


@njit_function
def trace_back(parent, added, depth, whole, chosen):
    """Write the routes that lead to the last one of a complete plan to `chosen`."""
    p, chosen[depth] = whole[0], whole[1]
    for d in range(depth - 1, -1, -1):
        chosen[d] = added[d, p]
        p = parent[d, p]


@njit_function
def beam_search(routes, value, code, goal, beam, onward, listed, free, choices, whole, seen, parent, added, chosen):
    """Run the beam search; write the routes of the best plan to `chosen` and return their number, 0 for none."""
    found, alive, slack = 0, 1, -negative_sum(value)
    for depth in range(len(parent)):
        made, least = list_candidates(routes, value, beam, alive, goal, slack, listed, free, choices, whole)
        if least < goal:
            goal, found = least, depth + 1
            trace_back(parent, added, depth, whole, chosen)
        alive = advance_beam(routes, code, beam, onward, goal + slack, listed, made, seen, parent, added, depth)
        beam, onward = onward, beam
        if alive == 0:
            break
    return found


def values_at_prices(begin, members, cost, best, rounds, pace, momentum, patience, prices, value):
    """Write the values of routes at the best prices found to `value`; return the sum of these prices.

    Costs are relative to the best plan, whose routes are marked in `best`. Here and below, scratch arrays are
    arguments: an array that compiled code allocates takes the compiler time.
    """
    price, direction, slope, kept = prices
    initial_prices(begin, members, cost, best, price, slope)
    raise_prices(begin, members, cost, rounds, pace, momentum, patience, price, value, direction, slope, kept)
    return total_price(price)


def cheapest_partition(
    begin, members, value, code, goal,
    words, beam, onward, listed, free, choices, whole, seen, parent, added, chosen,
):  # fmt: skip
    """Write the routes of the cheapest plan that the beam search finds to `chosen`; return their number, 0 for none.

    Routes come in order of their values. Only plans with a sum of values below `goal` are searched for.
    """
    write_bitsets(begin, members, words)
    return beam_search(
        (begin, members, words), value, code, goal, beam, onward, listed, free, choices, whole, seen, parent, added,
        chosen,
    )  # fmt: skip


INTS, LONGS, FLOATS, WORDS = types.int32[::1], types.int64[::1], types.float64[::1], types.uint64[:, ::1]
PLACES, ROWS = types.Tuple((WORDS, FLOATS, LONGS, LONGS)), types.int32[:, ::1]
PRICES_SIGNATURE = types.float64(
    LONGS, INTS, FLOATS, types.boolean[::1], types.int64, types.float64, types.float64, types.int64,
    types.UniTuple(FLOATS, 4), FLOATS,
)  # fmt: skip
SIGNATURE = types.int64(
    LONGS, INTS, FLOATS, LONGS, types.float64,
    WORDS, PLACES, PLACES, types.Tuple((FLOATS, INTS, INTS)), INTS, INTS, INTS, LONGS, ROWS, ROWS, INTS,
)  # fmt: skip
