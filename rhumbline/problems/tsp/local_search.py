"""2-opt and Or-opt on batches of tours in plain PyTorch: the best move of each tour per round.

All N^2 moves of a kind are evaluated at once from coordinates in tour order, so a round is a
handful of tensor operations whatever the batch. Training sharpens imitation targets with it. Costs
are straight-line distances.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class LocalSearchTuning:
    """Limits of the local search."""

    max_segment: int = 3  # cities that an Or-opt move takes along
    max_change: float = -1e-6  # a move must shorten the tour by more, in the unit square
    min_cities: int = 5  # Or-opt needs a segment and an edge that does not touch it


TUNING = LocalSearchTuning()


def improve_tours(
    xy: Float[Tensor, "B N 2"], tour: Int[Tensor, "B N"], rounds: int
) -> Int[Tensor, "B N"]:
    """Return tours after up to `rounds` best moves each; they are never longer than before."""
    size = tour.shape[1]
    if size < TUNING.min_cities:
        return tour
    for _ in range(rounds):
        index = tour[..., None].expand(-1, -1, 2)
        points = xy.gather(1, index)
        change, kind, place = best_move(points)
        order = new_positions(kind, place, size).argsort(dim=1)
        is_shorter = change < TUNING.max_change
        moved = tour.gather(1, order)
        tour = torch.where(is_shorter[:, None], moved, tour)
    return tour


def best_move(
    points: Float[Tensor, "B N 2"],
) -> tuple[Float[Tensor, "B"], Int[Tensor, "B"], Int[Tensor, "B"]]:
    """Return change in length, kind and place (i * N + j) of the best move of each tour.

    `points` are in tour order. Kind 0 reverses i+1..j; kind 2L-1 moves the L cities from i on
    between j and j+1; kind 2L does so reversed.
    """
    size = points.shape[1]
    from_i = points.unsqueeze(2)
    difference = from_i - points.unsqueeze(1)
    distance = difference.square().sum(-1).sqrt()  # [B, N, N]
    to_next = distance.roll(-1, 2)
    edge = pairwise_diagonal(to_next)  # from city i to the next
    index = torch.arange(size, device=points.device)
    i = index[:, None]
    j = index[None]
    reversal = reversal_changes(distance, edge)
    changes = [torch.where(i < j, reversal, 0.0)]
    steps_to_j = (j - i) % size
    is_not_before = steps_to_j < size - 1
    for length in range(1, TUNING.max_segment + 1):
        is_behind = steps_to_j >= length
        is_possible = is_behind & is_not_before
        for change in insertion_changes(distance, edge, length):
            changes.append(torch.where(is_possible, change, 0.0))
    table = torch.stack([change.flatten(1) for change in changes], 1)
    best_of_kind, place_of_kind = table.min(2)  # [B, kinds]
    best, kind = best_of_kind.min(1)
    place = place_of_kind.gather(1, kind[:, None])
    return best, kind, place[:, 0]


def reversal_changes(
    distance: Float[Tensor, "B N N"], edge: Float[Tensor, "B N"]
) -> Float[Tensor, "B N N"]:
    """Return the change in length if i+1..j is reversed."""
    between_next = distance.roll(
        shifts=(-1, -1),
        dims=(1, 2),
    )
    added = distance + between_next
    removed_i = edge.unsqueeze(2)
    removed_j = edge.unsqueeze(1)
    return added - removed_i - removed_j


def insertion_changes(
    distance: Float[Tensor, "B N N"], edge: Float[Tensor, "B N"], length: int
) -> tuple[Float[Tensor, "B N N"], Float[Tensor, "B N N"]]:
    """Return the changes in length if `length` cities from i on go between j and j+1.

    The second is for the segment reversed.
    """
    last = 1 - length  # offset from the segment's last city to its first
    from_end = distance.roll(last, 1)  # from the segment's last city to j
    # From the city before the segment to the city behind it.
    around = distance.roll(
        shifts=(1, -length),
        dims=(1, 2),
    )
    edge_before = edge.roll(1, 1)
    edge_behind = edge.roll(last, 1)
    removal = pairwise_diagonal(around) - edge_before - edge_behind
    base = removal.unsqueeze(2) - edge.unsqueeze(1)
    forwards = distance + from_end.roll(-1, 2)
    backwards = from_end + distance.roll(-1, 2)
    return base + forwards, base + backwards


def pairwise_diagonal(matrix: Float[Tensor, "B N N"]) -> Float[Tensor, "B N"]:
    """Return the diagonal of each matrix."""
    return torch.diagonal(matrix, dim1=1, dim2=2)


def new_positions(
    kind: Int[Tensor, "B"], place: Int[Tensor, "B"], size: int
) -> Float[Tensor, "B N"]:
    """Return sort keys that carry out a move on each tour."""
    place = place[:, None]
    kind = kind[:, None]
    i = place // size
    j = place % size
    here = torch.arange(size, device=place.device)[None]
    is_inside = (here > i) & (here <= j)
    reversed_keys = torch.where(is_inside, i + 1 + j - here, here)
    length = (kind + 1) // 2
    offset = (here - i) % size  # in the segment
    forwards = offset + 1
    backwards = length - offset
    rank = torch.where(kind % 2 == 0, backwards, forwards)
    behind_j = j + rank / (length + 1)
    moved_keys = torch.where(offset < length, behind_j, here)
    is_reversal = kind == 0
    return torch.where(is_reversal, reversed_keys, moved_keys)
