"""The eight symmetries of the square: other coordinates of the same routing instance (spec 4.3)."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.errors import InputError

SYMMETRY_COUNT = 8
ROTATIONS = (
    0,
    3,
    5,
    6,
)  # those among them that mirror nothing: by 0, 180, 90 and 270 degrees (see `is_mirrored`)


def symmetries(
    xy: Float[Tensor, "B N 2"], copies: int = SYMMETRY_COUNT
) -> Float[Tensor, "B C N 2"]:
    """The first so many of (x,y), (1-x,y), (x,1-y), (1-x,1-y), (y,x), (1-y,x), (y,1-x),
    (1-y,1-x).
    """
    x, y = xy.unbind(-1)
    pairs = [
        (a, b)
        for first, second in ((x, y), (y, x))
        for b in (second, 1 - second)
        for a in (first, 1 - first)
    ]
    return torch.stack([torch.stack(pair, dim=-1) for pair in pairs[:copies]], dim=1)


def symmetric_copies(batch: Any, copies: int) -> Any:
    """Every instance of a routing batch in so many symmetric copies, next to one another; all else
    is repeated.

    Copies keep the instance's key: they see the same noise, so that they differ by the policy's
    view alone.
    """
    if not 1 <= copies <= SYMMETRY_COUNT:
        raise InputError(f"augment is {copies}; a square has 1 to {SYMMETRY_COUNT} symmetries")
    if copies == 1:
        return batch
    if getattr(batch, "xy", None) is None:
        raise InputError("augment needs positions in the plane; this problem has none")
    return with_coordinates(batch, symmetries(batch.xy, copies))


def is_mirrored(symmetry: Int[Tensor, "*s"]) -> Bool[Tensor, "*s"]:
    """Whether what goes round clockwise goes round the other way there: each bit of its number
    is one reflection.
    """
    return ((symmetry ^ symmetry >> 1 ^ symmetry >> 2) & 1).bool()


def rotated_copies(batch: Any, copies: int) -> Any:
    """The same in up to four copies that are turned, not mirrored."""
    sides = symmetries(batch.xy).unbind(
        1
    )  # not by an index, which a recorded graph cannot bring along
    return with_coordinates(batch, torch.stack([sides[turn] for turn in ROTATIONS[:copies]], dim=1))


def with_coordinates(batch: Any, views: Float[Tensor, "B C N 2"]) -> Any:
    """Instances with the coordinates of all their views, next to one another; all else is
    repeated.
    """
    many = batch.map(lambda x: x.repeat_interleave(views.shape[1], dim=0))
    return replace(many, xy=views.flatten(0, 1))
