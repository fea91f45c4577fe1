"""Attention encoder, and a pointer decoder folded into per-instance tables (spec 2.1 to 2.4).

After `encode`, a decoding step reads only `Memory`: no weight is touched again. A latent is one
bias of the query and one of the glimpse (`LatentBias`), because its part in the keys cancels in the
softmax and its part in the values adds a constant to the glimpse. Keys and values are therefore
shared by all rollouts of an instance.
"""

import math
from dataclasses import replace
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rhumbline.errors import InputError
from rhumbline.policies.attention.encoder import TRAINING_NODES, Architecture, Encoder
from rhumbline.policies.attention.memory import LatentBias, Memory
from rhumbline.policies.latent_space import Box, Members

P = TypeVar("P", bound="RoutingPolicy")

CLIP = 10.0  # logits are CLIP * tanh(.)


def capacity_column(capacity: Int[Tensor, "B"] | None) -> Int[Tensor, "B 1 1"]:
    """Capacities that a vector over channels can be divided by."""
    assert capacity is not None, "a decoder whose context is the load needs capacities"
    return capacity[:, None, None]


def projection_matrix(width: int) -> nn.Parameter:
    """A projection matrix with torch's usual initial values."""
    bound = width**-0.5
    return nn.Parameter(torch.empty(width, width).uniform_(-bound, bound))


class PointerDecoder(nn.Module):
    """Projections of the decoder, kept as matrices so that they can be folded into `Memory`.

    The context of a decision is the mean embedding, the current node, and either the first node or
    the load. The latent rows start at zero: a freshly widened decoder is the one it came from, for
    every latent.
    """

    def __init__(
        self, context: Literal["first", "load"], width: int, heads: int, latent: int, amplify: float
    ):
        super().__init__()
        self.width = width
        self.heads = heads
        self.query_mean, self.query_last = (projection_matrix(width) for _ in range(2))
        self.query_first = projection_matrix(width) if context == "first" else None
        self.query_load = nn.Parameter(torch.zeros(width)) if context == "load" else None
        self.key, self.value, self.output = (projection_matrix(width) for _ in range(3))
        self.query_bias, self.value_bias, self.output_bias = (
            nn.Parameter(torch.zeros(width)) for _ in range(3)
        )
        self.query_latent, self.value_latent = (
            nn.Parameter(torch.zeros(latent, width)) for _ in range(2)
        )
        self.amplify: Tensor
        self.register_buffer("amplify", torch.tensor(float(amplify)))

    def tables(
        self,
        embedding: Float[Tensor, "B N D"],
        capacity: Int[Tensor, "B"] | None = None,
        sharpness: float = 1.0,
    ) -> Memory:
        """Fold the projections into per-instance tables. The load enters as a fraction of the
        capacity.
        """
        mean = embedding.mean(
            1, keepdim=True, dtype=torch.promote_types(embedding.dtype, torch.float32)
        )
        return Memory(
            **self.pointers(embedding),
            query_fixed=mean @ self.query_mean + self.query_bias,
            query_last=embedding @ self.query_last,
            query_first=None if self.query_first is None else embedding @ self.query_first,
            key=embedding @ (self.key * sharpness),
            value=embedding @ self.value,
            query_load=None
            if self.query_load is None
            else self.query_load / capacity_column(capacity),
        )

    def with_embeddings(self, memory: Memory, embedding: Float[Tensor, "B N D"]) -> Memory:
        """The same tables with other embeddings in the final product only; glimpse and context
        keep theirs.
        """
        return replace(memory, **self.pointers(embedding))

    def pointers(self, embedding: Float[Tensor, "B N D"]) -> dict[str, Any]:
        """The tables of the final product, which every engine reads; the biases in float32
        whatever the embeddings.
        """
        exact = torch.promote_types(embedding.dtype, torch.float32)
        scale = math.sqrt(self.width)
        return {
            "embedding": embedding,
            "pointer": embedding @ self.output.T / scale,
            "bias": (embedding.to(exact) @ self.output_bias)[:, None] / scale,
        }

    def condition(self, memory: Memory, latents: Float[Tensor, "B K Z"]) -> LatentBias:
        """What each latent adds; with a latent of size 0, the constants of the single policy."""
        z = latents * self.amplify
        query = memory.query_fixed + z @ self.query_latent
        glimpse = (z @ self.value_latent + self.value_bias).expand(query.shape)
        return LatentBias(
            query, glimpse, glimpse @ memory.pointer.transpose(1, 2).to(glimpse.dtype) + memory.bias
        )

    def logits(
        self,
        memory: Memory,
        shift: LatentBias,
        query: Float[Tensor, "B R D"],
        allowed: Bool[Tensor, "B R N"],
    ) -> Float[Tensor, "B R N"]:
        """Scores of all nodes from the queries; the glimpse attends to allowed nodes only."""
        split = self.split_heads
        bias = torch.zeros_like(allowed, dtype=query.dtype).masked_fill_(~allowed, -torch.inf)
        glimpse = F.scaled_dot_product_attention(
            split(query), split(memory.key), split(memory.value), attn_mask=bias[:, None]
        )
        glimpse = glimpse.transpose(1, 2).reshape(query.shape)
        glimpse = glimpse if memory.layer is None else memory.layer(glimpse)
        return CLIP * torch.tanh(
            torch.baddbmm(shift.pointer, glimpse, memory.pointer.transpose(1, 2))
        )

    def layered(
        self, memory: Memory, shift: LatentBias, glimpse: Float[Tensor, "B R D"]
    ) -> Float[Tensor, "B R N"]:
        """The same from glimpses that somebody else has made, before the layer; row r belongs to
        latent r // (R / K).

        Products may be in 16 bits; what follows is not.
        """
        assert memory.layer is not None
        points = (memory.layer(glimpse) @ memory.pointer.transpose(1, 2)).float()
        points = points.unflatten(1, (shift.pointer.shape[1], -1)) + shift.pointer[:, :, None]
        return CLIP * torch.tanh(points).flatten(1, 2)

    def split_heads(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B H N C"]:
        """Channels cut into heads."""
        return x.view(len(x), x.shape[1], self.heads, -1).transpose(1, 2)


class RoutingPolicy(nn.Module):
    """What the policies of all routing problems share: an encoder and a pointer decoder with a
    latent space.
    """

    encoder: Encoder
    decoder: Any  # a `PointerDecoder`, or the `Decoders` of a population
    half_steps = False  # the kernels have a precision of their own

    def __init__(self, architecture: Architecture):
        super().__init__()
        self.architecture = architecture

    @property
    def space(self) -> Box | Members:
        """The latents this policy understands; of size 0 for a single policy."""
        return (
            Members(self.architecture.members)
            if self.architecture.members
            else Box(self.architecture.latent)
        )

    def sharpness(self, nodes: int) -> float:
        """What attention scores are multiplied by. Of more nodes each has nearer neighbours and
        more of the others.

        Without it, a policy of 100 nodes spreads its attention thin on 300 (docs/training.md).
        """
        return (nodes / TRAINING_NODES) ** self.architecture.growth

    def fold_tables(
        self, features: Float[Tensor, "B N F"], nodes: int, capacity: Int[Tensor, "B"] | None = None
    ) -> Any:
        """Tables for all later decoding, from what the encoder sees of each node; `nodes`
        without a depot.
        """
        sharp = self.sharpness(nodes)
        # Compiled, the encoder must not see a number that it could take for a variable.
        embedding = self.encoder(features) if sharp == 1.0 else self.encoder(features, sharp)
        return self.decoder.tables(embedding, capacity, sharp)

    def footprint(self, width: int, steps: int) -> int:
        """About how many numbers one rollout keeps at once: its actions, or the scores of the
        nodes.
        """
        return steps

    def condition(self, memory: Memory, latents: Float[Tensor, "B K Z"]) -> LatentBias:
        """What each latent changes."""
        return self.decoder.condition(memory, latents)

    def adjustable(self, memory: Memory) -> Float[Tensor, "B N D"]:
        """What a search may adjust to an instance: the embeddings in the final product."""
        return memory.embedding

    def adjusted(self, memory: Memory, embedding: Float[Tensor, "B N D"]) -> Memory:
        """The same tables with other embeddings in the final product only."""
        return self.decoder.with_embeddings(memory, embedding)

    def widened(self: P, latent: int, amplify: float = 100.0) -> P:
        """The same policy with a latent space whose every point behaves exactly alike (spec
        2.4).
        """
        if self.architecture.members:
            raise InputError(
                "a population has no latent space and cannot be given one; start from a single policy"
            )
        wide = type(self)(replace(self.architecture, latent=latent, amplify=amplify))
        own = {n: x for n, x in self.state_dict().items() if not n.endswith(("_latent", "amplify"))}
        wide.load_state_dict(own, strict=False)
        return wide.to(next(self.parameters()).device)
