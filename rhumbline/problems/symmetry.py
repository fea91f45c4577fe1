"""The eight symmetries of the square: other coordinates of the same routing instance."""

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.errors import InputError

SYMMETRY_COUNT = 8


@runtime_checkable
class PlanarBatch(Protocol):
    """A batch of instances in the plane, whose symmetric copies cost the same."""

    xy: Float[Tensor, "B N 2"]  # in the unit square


def symmetries(
    xy: Float[Tensor, "B N 2"], copies: int = SYMMETRY_COUNT
) -> Float[Tensor, "B C N 2"]:
    """Return the coordinates under the first `copies` symmetries.

    They are (x,y), (1-x,y), (x,1-y), (1-x,1-y), (y,x), (1-y,x), (y,1-x), (1-y,1-x).
    """
    x, y = xy.unbind(-1)
    orders = ((x, y), (y, x))
    pairs: list[tuple[Tensor, Tensor]] = []
    for first, second in orders:
        for b in (second, 1 - second):
            for a in (first, 1 - first):
                pairs.append((a, b))
    wanted = pairs[:copies]
    views = [torch.stack(pair, dim=-1) for pair in wanted]
    return torch.stack(views, dim=1)


def symmetric_copies(batch: Any, copies: int) -> Any:
    """Return a routing batch with `copies` symmetric copies of each instance, next to one another.

    Everything but the coordinates is repeated. Copies keep the key of the instance and so get the
    same random numbers: they differ only in how the policy sees them.
    """
    if not 1 <= copies <= SYMMETRY_COUNT:
        raise InputError(f"augment is {copies}; a square has 1 to {SYMMETRY_COUNT} symmetries")
    if copies == 1:
        return batch
    if not isinstance(batch, PlanarBatch):
        raise InputError("augment needs positions in the plane; this problem has none")
    return with_coordinates(batch, symmetries(batch.xy, copies))


def is_mirrored(symmetry: Int[Tensor, "*s"]) -> Bool[Tensor, "*s"]:
    """Return whether a symmetry reverses orientation.

    Each of the three bits of its number is one reflection, so an odd number of bits mirrors.
    """
    second = symmetry >> 1
    third = symmetry >> 2
    parity = (symmetry ^ second ^ third) & 1
    return parity.bool()


def rotated_copies(batch: Any, copies: int) -> Any:
    """Return a routing batch with up to four rotated copies of each instance, none mirrored."""
    # Not one index operation: a CUDA graph that is being recorded cannot copy the index.
    views = symmetries(batch.xy).unbind(1)
    rotations = (0, 3, 5, 6)  # by 0, 180, 90 and 270 degrees; the others mirror (see `is_mirrored`)
    rotated = [views[rotation] for rotation in rotations[:copies]]
    return with_coordinates(batch, torch.stack(rotated, dim=1))


def with_coordinates(batch: Any, views: Float[Tensor, "B C N 2"]) -> Any:
    """Return the batch with C copies of each instance that have these coordinates.

    Copies are next to one another; everything else is repeated.
    """
    copies = views.shape[1]
    repeated = batch.map(lambda x: x.repeat_interleave(copies, dim=0))
    xy = views.flatten(0, 1)
    return replace(repeated, xy=xy)
