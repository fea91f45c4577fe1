"""numba: remove strings of customers, and insert them again (SISR of Christiaens and Vanden Berghe 2020).

Three things differ from the paper. A customer is inserted next to near customers only, so a step
takes the same time at any size. A route may be overloaded at a price, because local search follows.
A new route is also opened if that costs less than every insertion; distances need not be Euclidean.
"""

import math

from rhumbline.kernels.numba.legs import leg, njit_function, njit_large_function
from rhumbline.kernels.numba.local_search.tour_moves import draw
from rhumbline.kernels.numba.route_search.descent import wait
from rhumbline.kernels.numba.route_search.records import BEFORE, BEHIND, DEPOT, NO_ROUTE
from rhumbline.kernels.numba.route_search.routes import (
    is_saved,
    put_between,
    save_route,
    spare_route,
    take_out,
)

SPLIT_ODDS = 2  # one string in SPLIT_ODDS preserves customers in its middle ...
SPLIT_GROWTH_ODDS = 100  # ... and one draw in SPLIT_GROWTH_ODDS preserves one more, repeatedly
BLINK_ODDS = 100  # one better position in BLINK_ODDS is skipped
INSERTION_ORDERS = 11  # 4 random, 4 by demand, 2 farthest first and 1 nearest first


@njit_function
def draw_uniform(random):
    """Return a random number between 0 and 1, both excluded."""
    return (draw(random, 1 << 30) + 0.5) / (1 << 30)


@njit_function
def draw_string(size, longest, random):
    """Draw a string of a route with `size` customers: its span, where its preserved part begins, and how long that is.

    Both ends of the span are removed. The preserved part is empty unless the string is split.
    """
    length = int(1.0 + draw_uniform(random) * min(float(size), longest))
    preserved = 0
    if 1 < length < size and draw(random, SPLIT_ODDS) == 0:
        preserved = 1
        while length + preserved < size and draw(random, SPLIT_GROWTH_ODDS) == 0:
            preserved += 1
    hole = 1 + draw(random, length - 1) if preserved > 0 else length
    return length + preserved, hole, preserved


@njit_function
def step_back(plan, c, steps, span):
    """Return the first customer of a span that begins up to `steps` before c and lies within the route."""
    place = plan.place[c]
    last_begin = plan.size[plan.route[c]] - span
    begin = max(0, min(place - steps, last_begin))
    for _ in range(place - begin):
        c = plan.link[BEFORE, c]
    return c


@njit_large_function
def ruin(customers, plan, log, queue, scratch, settings, random):
    """Remove strings from routes around a random customer.

    Returns how many customers were removed, and the change of length. Those who stay beside them wait.
    """
    size = len(customers.demand) - 1
    longest = min(settings.longest_string, size / plan.used[0])
    strings = int(1.0 + draw_uniform(random) * (4.0 * settings.mean_removed / (1.0 + longest) - 1.0))
    seed = 1 + draw(random, size)
    count, change = 0, 0.0
    for k in range(-1, customers.near.shape[1]):
        c = seed if k < 0 else customers.near[seed, k]
        r = plan.route[c]
        if strings == 0:
            break
        if r == NO_ROUTE or is_saved(log, r):
            continue
        strings -= 1
        save_route(plan, log, r)
        span, hole, preserved = draw_string(plan.size[r], longest, random)
        c = step_back(plan, c, draw(random, span), span)
        wait(queue, plan.link[BEFORE, c])
        for i in range(span):
            behind = plan.link[BEHIND, c]
            if hole <= i < hole + preserved:
                wait(queue, c)
            else:
                change += take_out(customers, plan, c)
                scratch.removed[count] = c
                count += 1
            c = behind
        wait(queue, c)
    return count, change


@njit_function
def sort_removed(customers, scratch, count, random):
    """Sort the removed customers into a random one of the insertion orders."""
    removed, key = scratch.removed, scratch.key
    kind = draw(random, INSERTION_ORDERS)
    for i in range(count):
        c = removed[i]
        if kind < 4:
            key[i] = draw_uniform(random)
        elif kind < 8:
            key[i] = -customers.demand[c]
        else:
            away = leg(customers.legs, DEPOT, c)
            key[i] = -away if kind < 10 else away
    for i in range(1, count):
        value, c, j = key[i], removed[i], i - 1
        while j >= 0 and key[j] > value:
            key[j + 1], removed[j + 1] = key[j], removed[j]
            j -= 1
        key[j + 1], removed[j + 1] = value, c


@njit_function
def insert_customer(customers, plan, log, price, c, random):
    """Insert customer c next to a near one where it costs least, or alone; return the change of length."""
    legs, demand = customers.legs, customers.demand[c]
    least, length, beside, way = math.inf, 0.0, DEPOT, BEFORE
    for k in range(customers.near.shape[1]):
        v = customers.near[c, k]
        if plan.route[v] == NO_ROUTE:
            continue
        room = customers.capacity - plan.load[plan.route[v]]
        extra = price * (max(0, demand - room) - max(0, -room))
        if extra >= least:
            continue
        for y in range(2):
            b = plan.link[y, v]
            change = customers.near_leg[c, k] + leg(legs, c, b) - leg(legs, v, b)
            if change + extra < least and draw(random, BLINK_ODDS) > 0:
                least, length, beside, way = change + extra, change, v, y
    r, a, b = spare_route(plan), DEPOT, DEPOT
    alone = 2.0 * leg(legs, DEPOT, c)
    if beside == DEPOT and r == NO_ROUTE:  # all near customers have been removed, too
        r = plan.order[draw(random, plan.used[0])]
        a = plan.ends[BEHIND, r]
        length = leg(legs, a, c) + leg(legs, c, DEPOT) - leg(legs, a, DEPOT)
    elif r != NO_ROUTE and alone < least:
        length = alone
    else:
        r, b = plan.route[beside], plan.link[way, beside]
        a = b if way == BEFORE else beside
        b = beside if way == BEFORE else b
    save_route(plan, log, r)
    put_between(customers, plan, r, a, b, c)
    return length
