"""numba: near cities of each city, found in the order of the cities from left to right.

In a cluster that is far from the others, all nearest cities of a city belong to the cluster. So each city also has
the nearest one in each of the four quadrants around it.
"""

import numpy as np
from numba import types

from rhumbline.kernels.numba.legs import LEGS, leg, njit_function

QUADRANTS = 4


@njit_function
def insert(cities, keys, count, city, key):
    """Insert a city into the first `count` places, which are sorted by key and then by number, if it belongs there."""
    k = count - 1
    if key > keys[k] or (key == keys[k] and city >= cities[k]):
        return
    while k > 0 and (key < keys[k - 1] or (key == keys[k - 1] and city < cities[k - 1])):
        cities[k], keys[k] = cities[k - 1], keys[k - 1]
        k -= 1
    cities[k], keys[k] = city, key


@njit_function
def scan(points, by_x, position, step, nearest, cities, keys):
    """Insert the near cities on one side of a city: the `nearest` ones, and behind them one for each quadrant."""
    here = by_x[position]
    above, below = (nearest, nearest + 1) if step == 1 else (nearest + 2, nearest + 3)
    position += step
    while 0 <= position < len(by_x):
        other = by_x[position]
        dx, dy = points[other, 0] - points[here, 0], points[other, 1] - points[here, 1]
        if dx * dx > max(keys[nearest - 1], keys[above], keys[below]):
            return
        key = dx * dx + dy * dy
        insert(cities, keys, nearest, other, key)
        quadrant = above if dy >= 0.0 else below
        if 0.0 < key < keys[quadrant]:
            cities[quadrant], keys[quadrant] = other, key
        position += step


@njit_function
def sort_row(legs, here, cities, keys, row, row_leg):
    """Write the different cities of a list by their distance in the instance's metric; the rest is infinitely far."""
    filled = 0
    for k in range(len(cities)):
        city = cities[k]
        is_new = keys[k] < np.inf
        for m in range(k):
            is_new = is_new and cities[m] != city
        if is_new:
            length, m = leg(legs, here, city), filled
            while m > 0 and (length < row_leg[m - 1] or (length == row_leg[m - 1] and city < row[m - 1])):
                row[m], row_leg[m] = row[m - 1], row_leg[m - 1]
                m -= 1
            row[m], row_leg[m] = city, length
            filled += 1
    for m in range(filled, len(row)):
        row[m], row_leg[m] = here, np.inf


def find_near(legs, plane, by_x, cities, keys, near, near_leg):
    """Fill `near` and `near_leg` [N, nearest + 4] from positions in the plane; return the number of cities.

    `by_x` are the cities from left to right; `cities` and `keys` have room for one row.
    """
    nearest = len(cities) - QUADRANTS
    for position in range(len(by_x)):
        here = by_x[position]
        for k in range(len(cities)):
            cities[k], keys[k] = len(by_x), np.inf
        scan(plane, by_x, position, 1, nearest, cities, keys)
        scan(plane, by_x, position, -1, nearest, cities, keys)
        sort_row(legs, here, cities, keys, near[here], near_leg[here])
    return len(by_x)


SIGNATURE = types.int64(
    LEGS, types.float64[:, ::1], types.int32[::1], types.int32[::1], types.float64[::1], types.int32[:, ::1],
    types.float64[:, ::1],
)  # fmt: skip
