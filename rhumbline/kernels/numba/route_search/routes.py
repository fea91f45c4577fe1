"""numba: changes of linked routes, and the log that restores them."""

from rhumbline.kernels.numba.legs import leg, njit_function
from rhumbline.kernels.numba.route_search.records import (
    BEFORE,
    BEHIND,
    DEPOT,
    NO_ROUTE,
    SAVED,
    STEP,
)


@njit_function
def list_route(plan, r):
    """List route r among the used ones exactly if it has customers."""
    at = plan.slot[r]
    is_used = at < plan.used[0]
    if is_used == (plan.size[r] > 0):
        return
    to = plan.used[0] - 1 if is_used else plan.used[0]
    plan.used[0] += -1 if is_used else 1
    other = plan.order[to]
    plan.order[to], plan.order[at] = r, other
    plan.slot[other], plan.slot[r] = at, to


@njit_function
def spare_route(plan):
    """Return an empty route, or NO_ROUTE if there is none."""
    used = plan.used[0]
    return plan.order[used] if used < len(plan.order) else NO_ROUTE


@njit_function
def join(plan, r, a, b):
    """Make b follow a on route r; one of them may be the depot."""
    if a == DEPOT:
        plan.ends[BEFORE, r] = b
    else:
        plan.link[BEHIND, a] = b
    if b == DEPOT:
        plan.ends[BEHIND, r] = a
    else:
        plan.link[BEFORE, b] = a


@njit_function
def take_out(customers, plan, c):
    """Take customer c out of its route, which `update_route` completes; return the change of length."""
    r, a, b = plan.route[c], plan.link[BEFORE, c], plan.link[BEHIND, c]
    join(plan, r, a, b)
    plan.route[c] = NO_ROUTE
    plan.size[r] -= 1
    plan.load[r] -= customers.demand[c]
    list_route(plan, r)
    return leg(customers.legs, a, b) - leg(customers.legs, a, c) - leg(customers.legs, c, b)


@njit_function
def put_between(customers, plan, r, a, b, c):
    """Put customer c between a and b of route r, which `update_route` completes."""
    join(plan, r, a, c)
    join(plan, r, c, b)
    plan.route[c] = r
    plan.size[r] += 1
    plan.load[r] += customers.demand[c]
    list_route(plan, r)


@njit_function
def update_route(customers, plan, r):
    """Set place, load so far and distances of each customer of a route whose links are right."""
    last, place, carried = DEPOT, 0, 0
    c = plan.ends[BEFORE, r]
    while c != DEPOT:
        away = leg(customers.legs, last, c)
        plan.leg_to[BEFORE, c] = away
        if last != DEPOT:
            plan.leg_to[BEHIND, last] = away
        carried += customers.demand[c]
        plan.route[c], plan.place[c], plan.head[c] = r, place, carried
        place += 1
        last, c = c, plan.link[BEHIND, c]
    if last != DEPOT:
        plan.leg_to[BEHIND, last] = leg(customers.legs, last, DEPOT)
    plan.size[r], plan.load[r] = place, carried
    list_route(plan, r)


@njit_function
def write_route(customers, plan, r, source, begin, end):
    """Make source[begin:end] route r."""
    last = DEPOT
    for i in range(begin, end):
        join(plan, r, last, source[i])
        last = source[i]
    join(plan, r, last, DEPOT)
    update_route(customers, plan, r)


@njit_function
def read_route(plan, r, target, begin):
    """Copy route r to `target` from `begin` on; return where it ends."""
    c = plan.ends[BEFORE, r]
    while c != DEPOT:
        target[begin] = c
        begin += 1
        c = plan.link[BEHIND, c]
    return begin


@njit_function
def plan_length(customers, plan):
    """Return the length of all routes."""
    total = 0.0
    for k in range(plan.used[0]):
        last, c = DEPOT, plan.ends[BEFORE, plan.order[k]]
        while c != DEPOT:
            total += leg(customers.legs, last, c)
            last, c = c, plan.link[BEHIND, c]
        total += leg(customers.legs, last, DEPOT)
    return total


@njit_function
def begin_step(log):
    """Forget all saved routes."""
    log.counts[SAVED] = 0
    log.counts[STEP] += 1


@njit_function
def is_saved(log, r):
    """Return whether the current step has saved route r."""
    return log.stamp[r] == log.counts[STEP]


@njit_function
def save_route(plan, log, r):
    """Save route r, unless the current step has already done so."""
    if is_saved(log, r):
        return
    k = log.counts[SAVED]
    log.stamp[r], log.routes[k] = log.counts[STEP], r
    log.begin[k + 1] = read_route(plan, r, log.customers, log.begin[k])
    log.counts[SAVED] = k + 1


@njit_function
def restore_routes(customers, plan, log):
    """Restore every saved route."""
    for k in range(log.counts[SAVED]):
        write_route(customers, plan, log.routes[k], log.customers, log.begin[k], log.begin[k + 1])


@njit_function
def mark_stale(log, best):
    """Note that the saved routes differ from those of the best plan."""
    for k in range(log.counts[SAVED]):
        r = log.routes[k]
        if not best.is_stale[r]:
            best.is_stale[r] = True
            best.stale[best.counts[0]] = r
            best.counts[0] += 1


@njit_function
def copy_to_best(plan, best):
    """Copy the routes that have changed to the best plan; the others are equal."""
    for k in range(best.counts[0]):
        r = best.stale[k]
        best.is_stale[r] = False
        c = plan.ends[BEFORE, r]
        best.first[r] = c
        while c != DEPOT:
            best.behind[c] = plan.link[BEHIND, c]
            c = plan.link[BEHIND, c]
    best.counts[0] = 0
