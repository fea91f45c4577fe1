"""What decoding reads: the tables of an instance, and the biases of a latent."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor

from rhumbline.record import Record


@dataclass(frozen=True)
class ResidualLayer(Record):
    """A residual layer on the glimpse, one per instance (EAS-Lay, Hottung et al. 2022).

    With zeros in `out` and `out_bias` it changes nothing.
    """

    into: Float[Tensor, "B D D"]
    into_bias: Float[Tensor, "B 1 D"]
    out: Float[Tensor, "B D D"]
    out_bias: Float[Tensor, "B 1 D"]

    def __call__(self, glimpse: Float[Tensor, "B R D"]) -> Float[Tensor, "B R D"]:
        """Return the glimpse and what the layer adds to it."""
        hidden = torch.baddbmm(self.into_bias, glimpse, self.into)
        hidden = F.relu(hidden)
        change = torch.baddbmm(self.out_bias, hidden, self.out)
        return glimpse + change


@dataclass(frozen=True)
class Memory(Record):
    """Everything that decoding reads of an instance; decoding touches no weight."""

    query_fixed: Float[Tensor, "B 1 D"]  # mean embedding, projected, plus bias
    query_last: Float[Tensor, "B N D"]  # each node as the current node, projected
    query_first: Float[Tensor, "B N D"] | None  # each node as the first node, if the context has it
    key: Float[Tensor, "B N D"]
    value: Float[Tensor, "B N D"]
    pointer: Float[Tensor, "B N D"]  # embeddings times the output projection, over sqrt(D)
    bias: Float[Tensor, "B 1 N"]  # score of each node before any glimpse
    embedding: Float[Tensor, "B N D"]
    query_load: Float[Tensor, "B 1 D"] | None = None  # CVRP: per unit of capacity left
    glimpse: Float[Tensor, "B 1 D"] | None = None  # of a population's member: `LatentBias.glimpse`
    preference: Float[Tensor, "B 1 N"] | None = None  # of a member: its `LatentBias.pointer`
    layer: ResidualLayer | None = None  # is not linear, so no table can hold it


@dataclass(frozen=True)
class LatentBias(Record):
    """All that a latent changes."""

    query: Float[Tensor, "B K D"]  # fixed part of the query and the latent's bias
    glimpse: Float[Tensor, "B K D"]  # added to the glimpse
    pointer: Float[Tensor, "B K N"]  # the glimpse's part of each node's score, and the node's bias
