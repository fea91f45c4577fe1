"""2-opt and Or-opt on whole batches of tours in plain torch: best improvement, one move per tour
and round.

All N^2 moves of a kind are priced at once from coordinates in tour order, so a round is a handful
of tensor operations whatever the batch. Used to sharpen the targets of self-imitation; costs are
those of straight lines between points.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

LONGEST_SEGMENT = 3
NO_GAIN = -1e-6


def improve_tours(
    xy: Float[Tensor, "B N 2"], tour: Int[Tensor, "B N"], rounds: int
) -> Int[Tensor, "B N"]:
    """Tours after up to `rounds` best moves each; never longer than before."""
    if tour.shape[1] < 5:  # Or-opt needs a segment and an edge that does not touch it
        return tour
    for _ in range(rounds):
        points = xy.gather(1, tour[..., None].expand(-1, -1, 2))
        gain, move, place = best_move(points)
        order = new_positions(move, place, tour.shape[1]).argsort(dim=1)
        tour = torch.where((gain < NO_GAIN)[:, None], tour.gather(1, order), tour)
    return tour


def best_move(
    points: Float[Tensor, "B N 2"],
) -> tuple[Float[Tensor, "B"], Int[Tensor, "B"], Int[Tensor, "B"]]:
    """Change in length, kind and place (i * N + j) of the best move of each tour.

    Kind 0 reverses i+1..j; kind 2L-1 moves the L cities from i on between j and j+1; kind 2L does
    so reversed.
    """
    size = points.shape[1]
    between = (points[:, :, None] - points[:, None]).square().sum(-1).sqrt()  # [B, N, N]
    edge = torch.diagonal(between.roll(-1, 2), dim1=1, dim2=2)  # city i to the next
    i = torch.arange(size, device=points.device)[:, None]
    j = torch.arange(size, device=points.device)[None]
    reverse = between + between.roll((-1, -1), (1, 2)) - edge[:, :, None] - edge[:, None, :]
    moves = [torch.where(i < j, reverse, 0.0)]
    ahead = (j - i) % size
    for length in range(1, LONGEST_SEGMENT + 1):
        end = between.roll(1 - length, 1)  # distance of the segment's last city to j
        closing = torch.diagonal(
            between.roll((1, -length), (1, 2)), dim1=1, dim2=2
        )  # before the segment to behind it
        leaving = closing - edge.roll(1, 1) - edge.roll(1 - length, 1)
        outside = (ahead >= length) & (ahead < size - 1)
        for joined in (between + end.roll(-1, 2), end + between.roll(-1, 2)):
            moves.append(torch.where(outside, leaving[:, :, None] - edge[:, None, :] + joined, 0.0))
    best, place = torch.stack([m.flatten(1) for m in moves], 1).min(2)  # [B, kinds]
    gain, kind = best.min(1)
    return gain, kind, place.gather(1, kind[:, None])[:, 0]


def new_positions(
    kind: Int[Tensor, "B"], place: Int[Tensor, "B"], size: int
) -> Float[Tensor, "B N"]:
    """Sort keys that carry out a move on each tour."""
    i = (place // size)[:, None]
    j = (place % size)[:, None]
    here = torch.arange(size, device=place.device)[None]
    reversed_ = torch.where((here > i) & (here <= j), i + 1 + j - here, here)
    length = ((kind + 1) // 2)[:, None]
    backwards = (kind % 2 == 0)[:, None]
    within = (here - i) % size
    rank = torch.where(backwards, length - within, within + 1)
    moved = torch.where(within < length, j + rank / (length + 1), here)
    return torch.where(kind[:, None] == 0, reversed_, moved)
