"""numba: steps of ruin, recreate and local search, accepted by simulated annealing.

A step reads and changes only a few neighbouring routes, so its time does not grow with the
instance. A step that is rejected restores them.
"""

import math

from numba import types

from rhumbline.kernels.numba.legs import njit_function, njit_large_function
from rhumbline.kernels.numba.route_search.descent import clear, descend, find_overload, wait
from rhumbline.kernels.numba.route_search.records import (
    BEFORE,
    BEHIND,
    BEST_PLAN,
    CUSTOMERS,
    FLOATS,
    QUEUE,
    ROUTE_LOG,
    ROUTE_PLAN,
    SAVED,
    SCRATCH,
    SETTINGS,
)  # fmt: skip
from rhumbline.kernels.numba.route_search.routes import (
    begin_step,
    copy_to_best,
    mark_stale,
    plan_length,
    restore_routes,
    update_route,
)  # fmt: skip
from rhumbline.kernels.numba.route_search.ruin import (
    draw_uniform,
    insert_customer,
    ruin,
    sort_removed,
)

CURRENT, BEST, PRICE = range(3)  # indices of `costs`: of the current and the best plan, of a unit of overload
PRICE_FACTOR = 10.0  # factor of the price of overload, when local search leaves some ...
MAX_PRICE_RISES = 3  # ... and how often it rises before the step is rejected


@njit_large_function
def recreate(customers, plan, log, queue, scratch, count, price, random):
    """Insert all removed customers; they and their new neighbours wait. Returns the change of length."""
    change = 0.0
    for i in range(count):
        change += insert_customer(customers, plan, log, price, scratch.removed[i], random)
    for k in range(log.counts[SAVED]):
        update_route(customers, plan, log.routes[k])
    for i in range(count):
        c = scratch.removed[i]
        wait(queue, c)
        wait(queue, plan.link[BEFORE, c])
        wait(queue, plan.link[BEHIND, c])
    return change


@njit_large_function
def repair(customers, plan, log, queue, scratch, settings, price, limit, change):
    """Remove overload by local search at rising prices; return the change of length, infinite if the step is hopeless.

    The step is a local optimum at `price`, so to remove a unit of overload costs at least about that much. A step that
    would then be rejected is hopeless, and so is one that stays overloaded.
    """
    for _ in range(MAX_PRICE_RISES):
        overload = find_overload(customers, plan, log, queue)
        if overload == 0:
            return change
        if change + price * overload >= limit:
            break
        price *= PRICE_FACTOR
        change += descend(customers, plan, log, queue, scratch, price, settings.tolerance)
    is_overloaded = find_overload(customers, plan, log, queue) > 0
    clear(queue)
    return math.inf if is_overloaded else change


@njit_large_function
def make_step(customers, plan, log, queue, scratch, settings, price, limit, random):
    """Ruin and recreate, then local search; return the change of length, infinite if a route stays overloaded.

    A change of `limit` or more is rejected, so such a step need not be finished.
    """
    begin_step(log)
    count, change = ruin(customers, plan, log, queue, scratch, settings, random)
    sort_removed(customers, scratch, count, random)
    change += recreate(customers, plan, log, queue, scratch, count, price, random)
    if abs(change) <= settings.tolerance:  # nearly always the same plan, which is a local optimum
        clear(queue)
    else:
        change += descend(customers, plan, log, queue, scratch, price, settings.tolerance)
    return repair(customers, plan, log, queue, scratch, settings, price, limit, change)


@njit_function
def make_steps(customers, plan, log, best, queue, scratch, settings, random, costs, count):
    """Make steps; as `search_routes`."""
    is_better = False
    for k in range(plan.used[0]):
        update_route(customers, plan, plan.order[k])
    costs[CURRENT] = plan_length(customers, plan)
    for _ in range(count):
        limit = -settings.temperature * math.log(draw_uniform(random))
        change = make_step(customers, plan, log, queue, scratch, settings, costs[PRICE], limit, random)
        if change >= limit:
            restore_routes(customers, plan, log)
            continue
        costs[CURRENT] += change
        mark_stale(log, best)
        if costs[CURRENT] < costs[BEST] - settings.tolerance:
            costs[BEST], is_better = costs[CURRENT], True
            copy_to_best(plan, best)
    return is_better


def search_routes(customers, plan, log, best, queue, scratch, settings, random, costs, count):
    """Make `count` steps from a plan at one temperature; return whether the best plan has changed.

    `costs` has the lengths of the current and of the best plan, and the price of a unit of overload. The plan may
    differ from the best one in stale routes only. A plan is better only if it is shorter by more than the tolerance.
    """
    return make_steps(customers, plan, log, best, queue, scratch, settings, random, costs, count)


SIGNATURE = types.boolean(
    CUSTOMERS, ROUTE_PLAN, ROUTE_LOG, BEST_PLAN, QUEUE, SCRATCH, SETTINGS, types.uint64[::1], FLOATS, types.int64
)
