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
    if tour.shape[1] < TUNING.min_cities:
        return tour
    for _ in range(rounds):
        points = xy.gather(1, tour[..., None].expand(-1, -1, 2))
        change, move, place = best_move(points)
        order = new_positions(move, place, tour.shape[1]).argsort(dim=1)
        tour = torch.where((change < TUNING.max_change)[:, None], tour.gather(1, order), tour)
    return tour


def best_move(
    points: Float[Tensor, "B N 2"],
) -> tuple[Float[Tensor, "B"], Int[Tensor, "B"], Int[Tensor, "B"]]:
    """Return change in length, kind and place (i * N + j) of the best move of each tour.

    `points` are in tour order. Kind 0 reverses i+1..j; kind 2L-1 moves the L cities from i on
    between j and j+1; kind 2L does so reversed.
    """
    size = points.shape[1]
    distance = (points[:, :, None] - points[:, None]).square().sum(-1).sqrt()  # [B, N, N]
    edge = torch.diagonal(distance.roll(-1, 2), dim1=1, dim2=2)  # city i to the next
    i = torch.arange(size, device=points.device)[:, None]
    j = torch.arange(size, device=points.device)[None]
    added = distance + distance.roll((-1, -1), (1, 2))
    reverse = added - edge[:, :, None] - edge[:, None, :]
    moves = [torch.where(i < j, reverse, 0.0)]
    steps_to_j = (j - i) % size
    for length in range(1, TUNING.max_segment + 1):
        from_end = distance.roll(1 - length, 1)  # from the segment's last city to j
        # From the city before the segment to the city behind it.
        closing = torch.diagonal(distance.roll((1, -length), (1, 2)), dim1=1, dim2=2)
        removal = closing - edge.roll(1, 1) - edge.roll(1 - length, 1)
        outside = (steps_to_j >= length) & (steps_to_j < size - 1)
        forwards = distance + from_end.roll(-1, 2)
        backwards = from_end + distance.roll(-1, 2)
        for insertion in (forwards, backwards):
            change = removal[:, :, None] - edge[:, None, :] + insertion
            moves.append(torch.where(outside, change, 0.0))
    best, place = torch.stack([move.flatten(1) for move in moves], 1).min(2)  # [B, kinds]
    change, kind = best.min(1)
    return change, kind, place.gather(1, kind[:, None])[:, 0]


def new_positions(
    kind: Int[Tensor, "B"], place: Int[Tensor, "B"], size: int
) -> Float[Tensor, "B N"]:
    """Return sort keys that carry out a move on each tour."""
    i = (place // size)[:, None]
    j = (place % size)[:, None]
    here = torch.arange(size, device=place.device)[None]
    reversed_keys = torch.where((here > i) & (here <= j), i + 1 + j - here, here)
    length = ((kind + 1) // 2)[:, None]
    backwards = (kind % 2 == 0)[:, None]
    offset = (here - i) % size  # in the segment
    rank = torch.where(backwards, length - offset, offset + 1)
    moved_keys = torch.where(offset < length, j + rank / (length + 1), here)
    return torch.where(kind[:, None] == 0, reversed_keys, moved_keys)
