"""What decoding reads of an encoded instance, and what a latent adds to it."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor

from rhumbline.record import Record


@dataclass(frozen=True)
class ResidualLayer(Record):
    """A residual layer on the glimpse, its own for each instance; at first it changes nothing
    (EAS-Lay, spec 4.4).
    """

    into: Float[Tensor, "B D D"]
    into_bias: Float[Tensor, "B 1 D"]
    out: Float[Tensor, "B D D"]
    out_bias: Float[Tensor, "B 1 D"]

    def __call__(self, glimpse: Float[Tensor, "B R D"]) -> Float[Tensor, "B R D"]:
        """The glimpse and what the layer adds to it."""
        hidden = F.relu(torch.baddbmm(self.into_bias, glimpse, self.into))
        return glimpse + torch.baddbmm(self.out_bias, hidden, self.out)


@dataclass(frozen=True)
class Memory(Record):
    """Everything that decoding reads of an instance."""

    query_fixed: Float[Tensor, "B 1 D"]  # mean embedding, projected, plus bias
    query_last: Float[Tensor, "B N D"]  # each node as the current node, projected
    query_first: (
        Float[Tensor, "B N D"] | None
    )  # each node as the first node, projected, where the context has one
    key: Float[Tensor, "B N D"]
    value: Float[Tensor, "B N D"]
    pointer: Float[Tensor, "B N D"]  # embeddings times the output projection, over sqrt(D)
    bias: Float[Tensor, "B 1 N"]  # score of each node before any glimpse
    embedding: Float[Tensor, "B N D"]
    query_load: Float[Tensor, "B 1 D"] | None = (
        None  # per unit of capacity left, where vehicles have one
    )
    glimpse: Float[Tensor, "B 1 D"] | None = None  # of a population's member: its `Shift.glimpse`
    preference: Float[Tensor, "B 1 N"] | None = None  # and its `Shift.pointer`
    layer: ResidualLayer | None = None  # not linear, so no table can hold it


@dataclass(frozen=True)
class LatentBias(Record):
    """All that a latent changes."""

    query: Float[Tensor, "B K D"]  # fixed part of the query and the latent's bias
    glimpse: Float[Tensor, "B K D"]  # added to the glimpse
    pointer: Float[
        Tensor, "B K N"
    ]  # what that adds to each node's score before the tanh, and the node's bias
