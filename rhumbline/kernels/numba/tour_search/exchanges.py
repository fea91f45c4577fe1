"""numba: iterated local search on one tour by sequential edge exchanges; `launch` calls it.

The local search is that of Lin and Kernighan in the form of Helsgaun (2000). A chain begins at a city, removes an edge
of the tour, adds one to a near city, removes an edge there, and so on. The gain stays positive. If the chain can be
closed to one tour that is shorter than those of all other chains from that city, it is made. Cities wait in a queue
(don't-look bits): a city is examined again only after one of its edges has changed.

A kick is a double bridge of three neighbouring segments, which changes the tour in one place. A log of
what a kick and its repair have written undoes them, so the time of a kick depends only on what it changes.

`order` holds the cities of the tour, and `place` the position of each city in it.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import types

from rhumbline.kernels.numba.legs import LEGS, leg, njit_function
from rhumbline.kernels.numba.local_search.tour_moves import draw, wrap

MAX_EDGES = 5  # that an exchange removes
HEAD, WAITING, STAMP, LOGGED = range(4)  # indices of `counts`
UNLIMITED = 2**62
DRAWS = 1 << 30  # different random numbers


class TourArrays(NamedTuple):
    """A tour and what its local search works on; N is the number of cities."""

    order: np.ndarray  # [N]
    place: np.ndarray  # [N]
    near: np.ndarray  # [N, K] near cities of each city, nearest first
    near_leg: np.ndarray  # [N, K] distances to them
    queue: np.ndarray  # [N] cities to examine, a ring
    is_waiting: np.ndarray  # [N] whether a city is in the queue
    counts: np.ndarray  # [4] head and length of the queue, number of the kick, length of the log
    stamp: np.ndarray  # [N] the kick that was the last to write each position
    log_position: np.ndarray  # [N] positions that this kick has written
    log_city: np.ndarray  # [N] what was there before
    scratch: np.ndarray  # [N] cities that are moved
    best: np.ndarray  # [N] the shortest tour so far
    breadth: np.ndarray  # [MAX_EDGES] near cities that a chain of 0, 1, ... edges tries
    random: np.ndarray  # [1] state of the random generator


class Chain(NamedTuple):
    """A chain of removed edges. Edge i joins cities 2 i and 2 i + 1; the added ones join 2 i + 1 and 2 i + 2."""

    city: np.ndarray  # [2 MAX_EDGES]
    left: np.ndarray  # [MAX_EDGES] position of each removed edge: that of its end which comes first in the tour
    is_ahead: np.ndarray  # [MAX_EDGES] whether city 2 i + 1 follows city 2 i
    best_city: np.ndarray  # the same of the best chain
    best_left: np.ndarray
    best_is_ahead: np.ndarray
    gain: np.ndarray  # [MAX_EDGES + 1] removed minus added length of a chain of 0, 1, ... edges, before it is closed
    choice: np.ndarray  # [MAX_EDGES + 1] the next candidate there: a near city and one of its two edges
    choices: np.ndarray  # [MAX_EDGES + 1] the number of candidates there
    rank: np.ndarray  # [MAX_EDGES] rank of each edge by position
    cut: np.ndarray  # [MAX_EDGES + 1] positions of the edges in order
    link: np.ndarray  # [2 MAX_EDGES] which ends of segments the added edges join


INTS = types.int32[::1]
BOOLEANS = types.boolean[::1]
TOUR = types.NamedTuple(
    [
        INTS, INTS, types.int32[:, ::1], types.float64[:, ::1], INTS, BOOLEANS, types.int64[::1], types.int64[::1],
        INTS, INTS, INTS, INTS, INTS, types.uint64[::1],
    ],
    TourArrays,
)  # fmt: skip
CHAIN = types.NamedTuple(
    [INTS, INTS, BOOLEANS, INTS, INTS, BOOLEANS, types.float64[::1], INTS, INTS, INTS, INTS, INTS],
    Chain,
)


# --- writing and undoing


@njit_function
def write_city(tour, position, city):
    """Put a city at a position, and log what was there unless this kick has done so."""
    before = tour.order[position]
    if before == city:
        return
    counts = tour.counts
    if tour.stamp[position] != counts[STAMP]:
        tour.stamp[position] = counts[STAMP]
        tour.log_position[counts[LOGGED]] = position
        tour.log_city[counts[LOGGED]] = before
        counts[LOGGED] += 1
    tour.order[position] = city
    tour.place[city] = position


@njit_function
def begin_log(tour):
    """Empty the log: `undo` returns to the tour as it is now."""
    tour.counts[STAMP] += 1
    tour.counts[LOGGED] = 0


@njit_function
def undo(tour):
    """Restore the tour as it was when the log began."""
    for k in range(tour.counts[LOGGED]):
        position, city = tour.log_position[k], tour.log_city[k]
        tour.order[position] = city
        tour.place[city] = position
    begin_log(tour)


@njit_function
def keep_best(tour):
    """Copy the tour to `best`."""
    for k in range(len(tour.order)):
        tour.best[k] = tour.order[k]


@njit_function
def wake(tour, city):
    """Append a city to the queue unless it is there."""
    if not tour.is_waiting[city]:
        tour.is_waiting[city] = True
        counts = tour.counts
        tour.queue[wrap(counts[HEAD] + counts[WAITING], len(tour.queue))] = city
        counts[WAITING] += 1


# --- exchanges


@njit_function
def is_one_tour(chain, edges):
    """Return whether one tour is left if the first edges of a chain are removed and it is closed; fill `cut` and `link`.

    The tour without the removed edges consists of segments, numbered by position. Segment r begins at end 2 r and
    ends at end 2 r + 1.
    """
    left, rank, link = chain.left, chain.rank, chain.link
    ends = 2 * edges
    for i in range(edges):
        rank[i] = 0
        for j in range(edges):
            rank[i] += left[j] < left[i]
        chain.cut[rank[i]] = left[i]
    for i in range(edges):
        j = i + 1 if i + 1 < edges else 0
        here = 2 * rank[i] if chain.is_ahead[i] else wrap(2 * rank[i] - 1, ends)
        there = wrap(2 * rank[j] - 1, ends) if chain.is_ahead[j] else 2 * rank[j]
        link[here] = there
        link[there] = here
    end, visited = 0, 0
    while True:
        end = link[end ^ 1]
        visited += 1
        if end == 0 or visited == edges:
            return end == 0 and visited == edges


@njit_function
def make_exchange(tour, chain, edges):
    """Change the tour as `cut` and `link` say; the longest segment stays where it is."""
    order, cut, link = tour.order, chain.cut, chain.link
    size = len(order)
    cut[edges] = cut[0] + size
    longest = 0
    for r in range(1, edges):
        if cut[r + 1] - cut[r] > cut[longest + 1] - cut[longest]:
            longest = r
    filled = 0
    end = link[2 * longest + 1]
    while end >> 1 != longest:
        r = end >> 1
        step = 1 if end & 1 == 0 else -1
        position = wrap(cut[r] + 1 if step == 1 else cut[r + 1], size)
        for _ in range(cut[r + 1] - cut[r]):
            tour.scratch[filled] = order[position]
            filled += 1
            position = wrap(position + step, size)
        end = link[end ^ 1]
    position = wrap(cut[longest + 1] + 1, size)
    for k in range(filled):
        write_city(tour, position, tour.scratch[k])
        position = wrap(position + 1, size)


@njit_function
def remove_edge(tour, chain, edges, city, is_ahead):
    """Append the edge from a city to the next or the previous one to a chain of `edges`; return whether it is new."""
    size, position = len(tour.order), tour.place[city]
    other = wrap(position + 1, size) if is_ahead else wrap(position - 1, size)
    left = position if is_ahead else other
    for i in range(edges):
        if chain.left[i] == left:
            return False
    chain.city[2 * edges] = city
    chain.city[2 * edges + 1] = tour.order[other]
    chain.left[edges] = left
    chain.is_ahead[edges] = is_ahead
    return True


@njit_function
def keep_chain(chain, edges):
    """Copy the chain to the best one."""
    for i in range(edges):
        chain.best_city[2 * i] = chain.city[2 * i]
        chain.best_city[2 * i + 1] = chain.city[2 * i + 1]
        chain.best_left[i] = chain.left[i]
        chain.best_is_ahead[i] = chain.is_ahead[i]


@njit_function
def recall_chain(chain, edges):
    """Make the best chain the current one, with its cuts and links."""
    for i in range(edges):
        chain.city[2 * i] = chain.best_city[2 * i]
        chain.city[2 * i + 1] = chain.best_city[2 * i + 1]
        chain.left[i] = chain.best_left[i]
        chain.is_ahead[i] = chain.best_is_ahead[i]
    is_one_tour(chain, edges)


@njit_function
def extend_chain(tour, chain, edges, gain):
    """Let a chain with this number of edges try its candidates, from the first on."""
    chain.gain[edges] = gain
    chain.choice[edges] = 0
    chain.choices[edges] = 2 * min(tour.breadth[edges], tour.near.shape[1])


@njit_function
def find_exchange(legs, tour, chain, first, is_ahead, tolerance):
    """Find the best exchange that removes the edge from a city to the next or the previous one.

    Returns its number of edges, 0 if none gains more than `tolerance`. `chain` gets it, and its gain is `gain[0]`.
    """
    city, choice, choices = chain.city, chain.choice, chain.choices
    size, width = len(tour.order), tour.near.shape[1]
    remove_edge(tour, chain, 0, first, is_ahead)
    extend_chain(tour, chain, 1, leg(legs, city[0], city[1]))
    edges, best, best_edges = 1, tolerance, 0
    while edges > 0:
        candidate = choice[edges]
        end = city[2 * edges - 1]
        choice[edges] += 1
        if candidate >= choices[edges] or chain.gain[edges] - tour.near_leg[end, candidate >> 1] <= tolerance:
            edges -= 1
            continue
        joined = tour.near[end, candidate >> 1]
        gap = abs(tour.place[joined] - tour.place[end])
        if gap == 1 or gap == size - 1:  # an edge of the tour is no candidate
            choice[edges] += 1
            choices[edges] = min(choices[edges] + 2, 2 * width)
            continue
        if not remove_edge(tour, chain, edges, joined, candidate & 1 == 0):
            continue
        last = city[2 * edges + 1]
        gain = chain.gain[edges] - tour.near_leg[end, candidate >> 1] + leg(legs, joined, last)
        edges += 1
        closed = gain - leg(legs, last, first)
        if closed > best and is_one_tour(chain, edges):
            best, best_edges = closed, edges
            keep_chain(chain, edges)
        if edges == MAX_EDGES or tour.breadth[edges] == 0:
            edges -= 1
        else:
            extend_chain(tour, chain, edges, gain)
    if best_edges > 0:
        recall_chain(chain, best_edges)
        chain.gain[0] = best
    return best_edges


@njit_function
def repair(legs, tour, chain, tolerance, most):
    """Shorten the tour until no waiting city begins an exchange, or by `most` exchanges; return by how much."""
    total, made = 0.0, 0
    counts = tour.counts
    while counts[WAITING] > 0 and made < most:
        first = tour.queue[counts[HEAD]]
        edges = find_exchange(legs, tour, chain, first, True, tolerance)
        if edges == 0:
            edges = find_exchange(legs, tour, chain, first, False, tolerance)
        if edges == 0:
            counts[HEAD] = wrap(counts[HEAD] + 1, len(tour.queue))
            counts[WAITING] -= 1
            tour.is_waiting[first] = False
            continue
        total += chain.gain[0]
        made += 1
        make_exchange(tour, chain, edges)
        for k in range(2 * edges):
            wake(tour, chain.city[k])
    return total


# --- kicks


@njit_function
def bridge_length(legs, tour, start, a, b, c, wakes):
    """Return the length of the four edges around three neighbouring segments; wake their ends if asked to."""
    total, size = 0.0, len(tour.order)
    for offset in (0, a, a + b, a + b + c):
        p, q = tour.order[wrap(start + offset - 1, size)], tour.order[wrap(start + offset, size)]
        total += leg(legs, p, q)
        if wakes:
            wake(tour, p)
            wake(tour, q)
    return total


@njit_function
def kick(legs, tour, longest):
    """Make a double bridge: exchange the first and the last of three neighbouring segments of random lengths.

    Returns by how much the tour gets shorter. The cities at the ends of its edges wake.
    """
    order, scratch = tour.order, tour.scratch
    size = len(order)
    start = draw(tour.random, size)
    a, b, c = 1 + draw(tour.random, longest), 1 + draw(tour.random, longest), 1 + draw(tour.random, longest)
    gain = bridge_length(legs, tour, start, a, b, c, True)
    for k in range(a + b + c):
        if k < c:
            source = a + b + k
        elif k < c + b:
            source = a + k - c
        else:
            source = k - c - b
        scratch[k] = order[wrap(start + source, size)]
    for k in range(a + b + c):
        write_city(tour, wrap(start + k, size), scratch[k])
    return gain - bridge_length(legs, tour, start, c, b, a, False)


@njit_function
def is_accepted(tour, gain, temperature):
    """Return whether simulated annealing keeps a tour that is shorter by `gain`, which may be negative."""
    if gain >= 0.0:
        return True
    if temperature <= 0.0:
        return False
    chance = (1.0 + draw(tour.random, DRAWS)) / DRAWS
    return gain >= temperature * math.log(chance)


@njit_function
def run_kicks(legs, tour, chain, tolerance, longest, temperature, surplus, kicks):
    """Kick a locally optimal tour `kicks` times; return what `search_tour` does."""
    shorter = 0.0
    for _ in range(kicks):
        begin_log(tour)
        gain = kick(legs, tour, longest) + repair(legs, tour, chain, tolerance, UNLIMITED)
        if not is_accepted(tour, gain, temperature):
            undo(tour)
            continue
        surplus -= gain
        if surplus < -tolerance:
            shorter -= surplus
            surplus = 0.0
            keep_best(tour)
    return surplus, shorter


@njit_function
def run_repair(legs, tour, chain, tolerance, surplus, most):
    """Make at most `most` exchanges that the waiting cities begin; return what `search_tour` does."""
    begin_log(tour)
    surplus -= repair(legs, tour, chain, tolerance, most)
    if surplus >= -tolerance:
        return surplus, 0.0
    keep_best(tour)
    return 0.0, -surplus


def search_tour(legs, tour, chain, tolerance, longest, temperature, surplus, most):
    """Make at most `most` exchanges while cities wait; if none do, kick the tour `most` times.

    `surplus` is by how much the tour is longer than `best`, and `longest` the most cities of a segment that a kick
    moves. Returns the surplus after that, and by how much `best` has become shorter.
    """
    if tour.counts[WAITING] > 0:
        return run_repair(legs, tour, chain, tolerance, surplus, most)
    return run_kicks(legs, tour, chain, tolerance, longest, temperature, surplus, most)


SIGNATURE = types.UniTuple(types.float64, 2)(
    LEGS, TOUR, CHAIN, types.float64, types.int64, types.float64, types.float64, types.int64
)  # fmt: skip
