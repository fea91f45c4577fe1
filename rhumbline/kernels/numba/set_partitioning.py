"""numba: the cheapest set of routes that serves every customer once.

`local_search.launch` calls it.

Choosing such routes is a set partitioning problem. Prices of customers come first (Lagrange
multipliers): a route earns what its customers pay, and its value is its cost minus that. Then a
beam adds routes one by one, always for the customer with the least choice, so that dead ends show early.
Served customers are bits of words, so that a few instructions compare two routes. Routes come in
order of value, so the search for a place can stop early.
"""

import numpy as np
from numba import njit, types

BITS = 6  # a word has 2 ** 6 of them
NO_CUSTOMER = -1
TINY = 1e-6

step = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@step
def fill(array, entry):
    """The same everywhere."""
    for i in range(len(array)):
        array[i] = entry


@step
def copy(one, other):
    """Write what is in an array to another one."""
    for i in range(len(one)):
        other[i] = one[i]


@step
def first_prices(begin, members, cost, best, price, plans):
    """Everybody pays his share of his route, the mean over all best plans that are known."""
    fill(price, 0.0)
    fill(plans, 0.0)
    for r in range(len(cost)):
        if best[r]:
            share = cost[r] / (begin[r + 1] - begin[r])
            for k in range(begin[r], begin[r + 1]):
                price[members[k]] += share
                plans[members[k]] += 1.0
    for c in range(len(price)):
        price[c] /= max(plans[c], 1.0)


@step
def valued(begin, members, cost, price, value):
    """The values of all routes at some prices."""
    for r in range(len(cost)):
        value[r] = cost[r]
        for k in range(begin[r], begin[r + 1]):
            value[r] -= price[members[k]]


@step
def paid(price):
    """By all customers together."""
    total = 0.0
    for c in range(len(price)):
        total += price[c]
    return total


@step
def below_zero(value):
    """What routes of values below 0 sum up to: no plan's values can sum up to less."""
    total = 0.0
    for r in range(len(value)):
        total += min(value[r], 0.0)
    return total


@step
def raise_prices(begin, members, cost, rounds, pace, momentum, patience, price, value, way, lack, kept):
    """Prices that make a lower bound of all plans high, where the best one that is known costs 1. By subgradients."""
    bound, vain = -np.inf, 0
    fill(way, 0.0)
    for _ in range(rounds):
        valued(begin, members, cost, price, value)
        low = paid(price) + below_zero(value)
        fill(lack, 1.0)
        for r in range(len(cost)):
            if value[r] < 0.0:
                for k in range(begin[r], begin[r + 1]):
                    lack[members[k]] -= 1.0
        vain += 1
        if low > bound:
            bound, vain = low, 0
            copy(price, kept)
        elif vain > patience:
            pace, vain = 0.5 * pace, 0
        norm = TINY
        for c in range(len(price)):
            way[c] = momentum * way[c] + lack[c]
            norm += way[c] * way[c]
        stride = pace * max(1.0 - low, 0.0) / norm
        for c in range(len(price)):
            price[c] += stride * way[c]
    copy(kept, price)
    valued(begin, members, cost, price, value)


@step
def holds(words, row, c):
    """Whether a customer is among those of a row of words."""
    return (words[row, c >> BITS] >> np.uint64(c & ((1 << BITS) - 1))) & np.uint64(1)


@step
def written(begin, members, words):
    """The customers of all routes as bits."""
    for r in range(len(begin) - 1):
        for k in range(begin[r], begin[r + 1]):
            words[r, members[k] >> BITS] |= np.uint64(1) << np.uint64(members[k] & ((1 << BITS) - 1))


@step
def list_free(words, count, cover, p, free):
    """List the first routes that share no customer with a place of the beam; return their number.

    Each is written, and counts if it is one of them: a processor guesses wrong too often which way a branch would go.
    """
    several = 0
    for r in range(count):
        common = np.uint64(0)
        for w in range(words.shape[1]):
            common |= words[r, w] & cover[p, w]
        free[several] = r
        several += common == 0
    return several


@step
def next_customer(routes, value, cover, p, room, free, choices):
    """Find the customer with the smallest number of routes, or none if one has no route; the routes go to `free`."""
    begin, members, words = routes
    who, count = NO_CUSTOMER, list_free(words, np.searchsorted(value, room), cover, p, free)
    fill(choices, 0)
    for i in range(count):
        for k in range(begin[free[i]], begin[free[i] + 1]):
            choices[members[k]] += 1
    for c in range(len(choices)):
        if not holds(cover, p, c) and (who == NO_CUSTOMER or choices[c] < choices[who]):
            who = c
    return (who if choices[who] > 0 else NO_CUSTOMER), count


@step
def swap(listed, i, j):
    """Two candidates change places."""
    sums, places, added = listed
    sums[i], sums[j] = sums[j], sums[i]
    places[i], places[j] = places[j], places[i]
    added[i], added[j] = added[j], added[i]


@step
def sink(listed, count):
    """The first candidate goes down to where it belongs: no candidate may be above one with a larger sum."""
    i = 0
    while 2 * i + 1 < count:
        below = 2 * i + 1
        if below + 1 < count and listed[0][below + 1] > listed[0][below]:
            below += 1
        if listed[0][below] <= listed[0][i]:
            break
        swap(listed, i, below)
        i = below


@step
def propose(listed, count, total, p, r):
    """List a candidate, in the place of that with the largest sum if there is no room; how many there are then."""
    sums, places, added = listed
    if count == len(sums):
        if total < sums[0]:
            sums[0], places[0], added[0] = total, p, r
            sink(listed, count)
        return count
    i = count
    sums[i], places[i], added[i] = total, p, r
    while i > 0 and sums[(i - 1) // 2] < sums[i]:
        swap(listed, i, (i - 1) // 2)
        i = (i - 1) // 2
    return count + 1


@step
def put_in_order(listed, count):
    """The listed candidates, those with the least sums first."""
    for last in range(count - 1, 0, -1):
        swap(listed, 0, last)
        sink(listed, last)


@step
def list_candidates(routes, value, beam, alive, goal, slack, listed, free, choices, whole):
    """The best of what can be added to places of the beam: how many are listed, and the sum of the best whole plan.

    Where that is below the goal, `whole` says which place it comes from and by which route. What is not whole may be as
    much above the goal as routes that are still to come can make good.
    """
    begin, _, words = routes
    cover, score, _, left = beam
    count = 0
    for p in range(alive):
        who, several = next_customer(routes, value, cover, p, goal + slack - score[p], free, choices)
        for k in range(several if who != NO_CUSTOMER else 0):
            r = free[k]
            total = score[p] + value[r]
            if not holds(words, r, who):
                continue
            if begin[r + 1] - begin[r] < left[p]:
                count = propose(listed, count, total, p, r)
            elif total < goal:  # everybody is served
                goal, whole[0], whole[1] = total, p, r
    put_in_order(listed, count)
    return count, goal


@step
def is_new(noted, code):
    """Whether a code was not yet noted; now it is. A code lies where its last bits say, or behind."""
    at = code & (len(noted) - 1)
    while noted[at] != 0 and noted[at] != code:
        at = (at + 1) & (len(noted) - 1)
    new = noted[at] == 0
    noted[at] = code
    return new


@step
def move_on(routes, code, beam, onward, most, listed, count, noted, parent, added, deep):
    """The best candidates become the places of the beam, no two with the same customers; how many there are."""
    begin, _, words = routes
    (cover, _, codes, left), (covered, score, coded, rest) = beam, onward
    alive = 0
    fill(noted, 0)
    for k in range(count):
        p, r = listed[1][k], listed[2][k]
        if alive == len(score) or listed[0][k] >= most:
            break
        if not is_new(noted, codes[p] + code[r]):
            continue
        parent[deep, alive], added[deep, alive] = p, r
        score[alive], coded[alive] = listed[0][k], codes[p] + code[r]
        rest[alive] = left[p] - (begin[r + 1] - begin[r])
        for w in range(words.shape[1]):
            covered[alive, w] = cover[p, w] | words[r, w]
        alive += 1
    return alive


@step
def retrace(parent, added, deep, whole, chosen):
    """The routes on the way to the last one of a whole plan."""
    p, chosen[deep] = whole[0], whole[1]
    for d in range(deep - 1, -1, -1):
        chosen[d] = added[d, p]
        p = parent[d, p]


@step
def search(routes, value, code, goal, beam, onward, listed, free, choices, whole, noted, parent, added, chosen):
    """The beam, from its first place on: how many routes the best plan has, which are `chosen`; 0 if there is none."""
    found, alive, slack = 0, 1, -below_zero(value)
    for deep in range(len(parent)):
        made, least = list_candidates(routes, value, beam, alive, goal, slack, listed, free, choices, whole)
        if least < goal:
            goal, found = least, deep + 1
            retrace(parent, added, deep, whole, chosen)
        alive = move_on(routes, code, beam, onward, goal + slack, listed, made, noted, parent, added, deep)
        beam, onward = onward, beam
        if alive == 0:
            break
    return found


def values_at_prices(begin, members, cost, best, rounds, pace, momentum, patience, prices, value):
    """What all customers pay together at the best prices that are found; the values of routes are written to `value`.

    Route r serves `members[begin[r]:begin[r + 1]]`. Costs are relative to the best plan, whose routes are marked.
    Here and below, arrays that the compiled code does not make take the compiler no time: they are given, as room.
    """
    price, way, lack, kept = prices
    first_prices(begin, members, cost, best, price, lack)
    raise_prices(begin, members, cost, rounds, pace, momentum, patience, price, value, way, lack, kept)
    return paid(price)


def cheapest_partition(
    begin, members, value, code, goal,
    words, beam, onward, listed, free, choices, whole, noted, parent, added, chosen,
):  # fmt: skip
    """The routes of the cheapest plan that the beam finds, written to `chosen`; how many, 0 if it finds none.

    Routes come in order of their values. Plans whose values sum up to `goal` or more are not looked for.
    """
    written(begin, members, words)
    return search(
        (begin, members, words), value, code, goal, beam, onward, listed, free, choices, whole, noted, parent, added,
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
