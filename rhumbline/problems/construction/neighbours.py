"""The nearest nodes of each node, exactly, without a table of all distances.

Points are split into boxes of equal number (the leaves of a k-d tree, Bentley 1975). The nearest
ones of a point are sought in the boxes around its own; the few points whose search may have ended
too early are compared with all others.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from rhumbline.problems.metrics import MetricInstance, geo_radians


@dataclass(frozen=True)
class NeighbourTuning:
    """Sizes of the search for near points."""

    leaf_points: int = 16  # at most, of a box
    # Points of the boxes that are searched first, for each neighbour that is wanted. With 12 of
    # them fewer than one point in twenty needs another look.
    searched_points: int = 12
    piece_elements: int = 1 << 21  # distances that are computed at once


TUNING = NeighbourTuning()


def near_nodes(
    instance: MetricInstance, count: int, among: Int[np.ndarray, "M"] | None = None
) -> Int[np.ndarray, "M K"]:
    """Return the nearest nodes of each node, in order; `among` restricts both to some nodes.

    There are `count` of them, or all others if these are fewer. Nodes at places that coincide, or
    at distances that rounding makes equal, may be in any order.
    """
    nodes = np.arange(instance.size) if among is None else among
    count = min(count, len(nodes) - 1)
    if count < 1:
        return np.zeros((len(nodes), 0), dtype=np.int64)
    if instance.matrix is not None:
        near = nearest_by_table(instance.legs(nodes[:, None], nodes), count)
    else:
        near = nearest_points(metric_points(instance)[nodes], count)
    return nodes[near]


def metric_points(instance: MetricInstance) -> Float[np.ndarray, "N D"]:
    """Return points whose straight distances have the order of the metric: on a sphere for GEO."""
    assert instance.xy is not None
    if instance.metric != "GEO":
        return np.asarray(instance.xy, dtype=np.float64)
    latitude, longitude = geo_radians(instance.xy).T
    x = np.cos(latitude) * np.cos(longitude)
    y = np.cos(latitude) * np.sin(longitude)
    return np.stack([x, y, np.sin(latitude)], axis=1)


def nearest_by_table(table: Float[np.ndarray, "N N"], count: int) -> Int[np.ndarray, "N K"]:
    """Return the nearest others of each row of a table, in order."""
    others = table.copy()
    np.fill_diagonal(others, np.inf)
    return smallest_in_rows(others, count)


def smallest_in_rows(values: Float[np.ndarray, "*B C"], count: int) -> Int[np.ndarray, "*B K"]:
    """Return the places of the smallest numbers of each row, in order."""
    last = count - 1
    partition = np.argpartition(values, last)
    places = partition[..., :count]
    kept = take_from_rows(values, places)
    order = kept.argsort(kind="stable")
    return take_from_rows(places, order)


def take_from_rows(table: np.ndarray, places: Int[np.ndarray, "*B K"]) -> np.ndarray:
    """Return the entries of each row at its own places."""
    return np.take_along_axis(table, places, axis=-1)


def nearest_points(points: Float[np.ndarray, "N D"], count: int) -> Int[np.ndarray, "N K"]:
    """Return the `count` nearest other points of each point, in order; there are as many."""
    leaves = split_into_leaves(points)
    found = np.zeros((len(points), count), dtype=np.int64)
    is_complete = np.zeros(len(points), dtype=bool)
    wanted_points = TUNING.searched_points * (count + 1)
    boxes = 2 + wanted_points // TUNING.leaf_points
    boxes = min(boxes, len(leaves))
    distances_of_box = boxes * leaves.shape[1] ** 2
    for some in pieces(leaves, distances_of_box):
        search_boxes(points, leaves, some, boxes, (found, is_complete))
    doubtful = np.flatnonzero(~is_complete)
    for rows in pieces(doubtful, len(points)):
        search_all(points, rows, found)
    return found


def pieces(rows: np.ndarray, elements: int) -> Iterator[np.ndarray]:
    """Yield pieces of an array that memory has room for; a row has this many elements."""
    size = max(1, TUNING.piece_elements // elements)
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def search_all(
    points: Float[np.ndarray, "N D"], rows: Int[np.ndarray, "R"], found: Int[np.ndarray, "N K"]
) -> None:
    """Find the nearest others of some points among all points; write them to `found`."""
    here = points[rows][:, None]
    squared = squared_lengths(here, points)
    place = np.arange(len(rows))
    squared[place, rows] = np.inf
    count = found.shape[1]
    found[rows] = smallest_in_rows(squared, count)


def split_into_leaves(points: Float[np.ndarray, "N D"]) -> Int[np.ndarray, "L P"]:
    """Return the indices of the points of each box, -1 where a box has fewer than others.

    A box is cut in the middle of its points, across its longest side, until it is small enough.
    """
    waiting = [np.arange(len(points))]
    leaves = list[np.ndarray]()
    while waiting:
        box = waiting.pop()
        if len(box) <= TUNING.leaf_points:
            leaves.append(box)
            continue
        inside = points[box]
        axis = np.ptp(inside, axis=0).argmax()
        half = len(box) // 2
        order = np.argpartition(inside[:, axis], half)
        waiting += [box[order[half:]], box[order[:half]]]
    table = np.full((len(leaves), max(map(len, leaves))), -1)
    for row, box in enumerate(leaves):
        table[row, : len(box)] = box
    return table


def search_boxes(
    points: Float[np.ndarray, "N D"],
    leaves: Int[np.ndarray, "L P"],
    some: Int[np.ndarray, "S P"],
    boxes: int,
    result: tuple[Int[np.ndarray, "N K"], Bool[np.ndarray, "N"]],
) -> None:
    """Find the nearest others of the points in some boxes, in as many boxes around each of them.

    The result is written: the nearest points, and whether no box beyond can have nearer ones.
    """
    found, is_complete = result
    gaps = squared_gaps(points, some, leaves)
    ranked = gaps.argsort(axis=1, kind="stable")
    nearest_boxes = ranked[:, :boxes]
    searched = leaves[nearest_boxes]
    candidates = searched.reshape(len(some), 1, -1)
    squared = lengths_to_others(points, some, candidates)
    near = smallest_in_rows(squared, found.shape[1])
    every_candidate = np.broadcast_to(candidates, squared.shape)
    nearest = take_from_rows(every_candidate, near)
    is_point = some >= 0
    rows = some[is_point]
    found[rows] = nearest[is_point]
    lengths = take_from_rows(squared, near)
    farthest = lengths[..., -1]
    sorted_gaps = take_from_rows(gaps, ranked)
    beyond = np.full((len(some), 1), np.inf)
    if boxes < len(leaves):
        beyond = sorted_gaps[:, boxes : boxes + 1]
    is_safe = np.isfinite(farthest) & (farthest <= beyond)
    is_complete[rows] = is_safe[is_point]


def lengths_to_others(
    points: Float[np.ndarray, "N D"],
    some: Int[np.ndarray, "S P"],
    candidates: Int[np.ndarray, "S 1 C"],
) -> Float[np.ndarray, "S P C"]:
    """Return squared distances to candidates: infinite to a point itself, and to padding."""
    here = points[some][:, :, None]
    squared = squared_lengths(here, points[candidates])
    is_same = candidates == some[:, :, None]
    is_padding = candidates < 0
    return np.where(is_same | is_padding, np.inf, squared)


def squared_gaps(
    points: Float[np.ndarray, "N D"], some: Int[np.ndarray, "S P"], leaves: Int[np.ndarray, "L P"]
) -> Float[np.ndarray, "S L"]:
    """Return the squared gaps between boxes: no two of their points are nearer."""
    low, high = box_corners(points, some)
    other_low, other_high = box_corners(points, leaves)
    above = other_low - high[:, None]
    below = low[:, None] - other_high
    gap = np.maximum(above, below)
    gap = np.maximum(0.0, gap)  # boxes that overlap have none
    return (gap**2).sum(-1)


def box_corners(
    points: Float[np.ndarray, "N D"], leaves: Int[np.ndarray, "L P"]
) -> tuple[Float[np.ndarray, "L D"], Float[np.ndarray, "L D"]]:
    """Return the lowest and the highest coordinates of the points of each box."""
    filled = np.where(leaves >= 0, leaves, leaves[:, :1])
    inside = points[filled]
    return inside.min(axis=1), inside.max(axis=1)


def squared_lengths(
    here: Float[np.ndarray, "*L D"], there: Float[np.ndarray, "*M D"]
) -> Float[np.ndarray, "*K"]:
    """Return squared straight distances; shapes are broadcast."""
    difference = here - there
    return np.einsum("...d,...d->...", difference, difference)
