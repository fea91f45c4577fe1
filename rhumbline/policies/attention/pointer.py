"""A pointer decoder folded into per-instance tables (Kool et al. 2019, Chalumeau et al. 2023).

After `encode`, a decoding step reads only `Memory`: no weight is touched again. A latent is one
bias of the query and one of the glimpse (`LatentBias`). Its part in the keys cancels in the
softmax, and its part in the values adds a constant to the glimpse. All rollouts of an instance
therefore share keys and values.
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
from rhumbline.policies.attention.memory import LatentBias, Memory, ResidualLayer
from rhumbline.policies.latent_space import Box, Members, weights_without_latents

PolicyT = TypeVar("PolicyT", bound="RoutingPolicy")

CLIP = 10.0  # logits are CLIP * tanh(.)


def capacity_column(capacity: Int[Tensor, "B"] | None) -> Int[Tensor, "B 1 1"]:
    """Return capacities in a shape by which a vector over channels can be divided."""
    assert capacity is not None, "a decoder whose context is the load needs capacities"
    return capacity[:, None, None]


def projection_matrix(width: int) -> nn.Parameter:
    """Return a square projection with torch's default initial values."""
    bound = width**-0.5
    weight = torch.empty(width, width)
    weight.uniform_(-bound, bound)
    return nn.Parameter(weight)


class PointerDecoder(nn.Module):
    """Projections of the decoder, kept as matrices so that they can be folded into `Memory`.

    The context of a decision is the mean embedding, the current node, and either the first node or
    the load. The latent rows start at zero: a freshly widened decoder behaves like the one it came
    from, for every latent.
    """

    def __init__(
        self,
        context: Literal["first", "load"],
        width: int,
        heads: int,
        latent: int,
        amplify: float,
    ):
        super().__init__()
        self.width = width
        self.heads = heads
        # Parameters are drawn in this order; another one would change the weights of a seed.
        self.query_mean = projection_matrix(width)
        self.query_last = projection_matrix(width)
        self.query_first = projection_matrix(width) if context == "first" else None
        self.query_load = nn.Parameter(torch.zeros(width)) if context == "load" else None
        self.key = projection_matrix(width)
        self.value = projection_matrix(width)
        self.output = projection_matrix(width)
        self.query_bias = nn.Parameter(torch.zeros(width))
        self.value_bias = nn.Parameter(torch.zeros(width))
        self.output_bias = nn.Parameter(torch.zeros(width))
        self.query_latent = nn.Parameter(torch.zeros(latent, width))
        self.value_latent = nn.Parameter(torch.zeros(latent, width))
        self.amplify: Tensor
        self.register_buffer("amplify", torch.tensor(float(amplify)))

    def tables(
        self,
        embedding: Float[Tensor, "B N D"],
        capacity: Int[Tensor, "B"] | None = None,
        sharpness: float = 1.0,
    ) -> Memory:
        """Fold the projections into per-instance tables.

        The load enters as a fraction of the capacity.
        """
        exact = torch.promote_types(embedding.dtype, torch.float32)
        mean = embedding.mean(1, keepdim=True, dtype=exact)
        first = self.query_first
        load = self.query_load
        return Memory(
            **self.pointer_tables(embedding),
            query_fixed=mean @ self.query_mean + self.query_bias,
            query_last=embedding @ self.query_last,
            query_first=None if first is None else embedding @ first,
            key=embedding @ (self.key * sharpness),
            value=embedding @ self.value,
            query_load=None if load is None else load / capacity_column(capacity),
        )

    def with_embeddings(self, memory: Memory, embedding: Float[Tensor, "B N D"]) -> Memory:
        """Return the tables with other embeddings in the final product only.

        Glimpse and context keep theirs.
        """
        tables = self.pointer_tables(embedding)
        return replace(memory, **tables)

    def pointer_tables(self, embedding: Float[Tensor, "B N D"]) -> dict[str, Any]:
        """Return the tables of the final product, which every engine reads.

        The biases are in float32, whatever type the embeddings have.
        """
        exact = torch.promote_types(embedding.dtype, torch.float32)
        scale = math.sqrt(self.width)
        return {
            "embedding": embedding,
            "pointer": embedding @ self.output.T / scale,
            "bias": (embedding.to(exact) @ self.output_bias)[:, None] / scale,
        }

    def condition(self, memory: Memory, latents: Float[Tensor, "B K Z"]) -> LatentBias:
        """Return what each latent adds; for latents of size 0, the constants of the policy."""
        z = latents * self.amplify
        query = memory.query_fixed + z @ self.query_latent
        glimpse = z @ self.value_latent + self.value_bias
        glimpse = glimpse.expand(query.shape)
        pointer = memory.pointer.transpose(1, 2)
        pointer = pointer.to(glimpse.dtype)
        return LatentBias(
            query=query,
            glimpse=glimpse,
            pointer=glimpse @ pointer + memory.bias,
        )

    def logits(
        self,
        memory: Memory,
        shift: LatentBias,
        query: Float[Tensor, "B R D"],
        allowed: Bool[Tensor, "B R N"],
    ) -> Float[Tensor, "B R N"]:
        """Return the scores of all nodes; the glimpse attends to allowed nodes only."""
        zeros = torch.zeros_like(allowed, dtype=query.dtype)
        bias = zeros.masked_fill_(~allowed, -torch.inf)
        glimpse = F.scaled_dot_product_attention(
            self.split_heads(query),
            self.split_heads(memory.key),
            self.split_heads(memory.value),
            attn_mask=bias[:, None],
        )
        glimpse = glimpse.transpose(1, 2)
        glimpse = glimpse.reshape(query.shape)
        if memory.layer is not None:
            glimpse = memory.layer(glimpse)
        pointer = memory.pointer.transpose(1, 2)
        points = torch.baddbmm(shift.pointer, glimpse, pointer)
        squashed = torch.tanh(points)
        return CLIP * squashed

    def score_through_layer(
        self, memory: Memory, shift: LatentBias, glimpse: Float[Tensor, "B R D"]
    ) -> Float[Tensor, "B R N"]:
        """Return the scores of glimpses as attention gives them, before the residual layer.

        Row r has latent r // (R / K). Products may be in 16 bits; what follows is not.
        """
        assert memory.layer is not None
        glimpse = memory.layer(glimpse)
        pointer = memory.pointer.transpose(1, 2)
        points = (glimpse @ pointer).float()
        latents = shift.pointer.shape[1]
        points = points.unflatten(1, (latents, -1))
        points = points + shift.pointer[:, :, None]
        logits = CLIP * torch.tanh(points)
        return logits.flatten(1, 2)

    def split_heads(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B H N C"]:
        """Cut the channels into heads."""
        count, nodes, _ = x.shape
        heads = x.view(count, nodes, self.heads, -1)
        return heads.transpose(1, 2)


class RoutingPolicy(nn.Module):
    """What the routing policies share: an encoder and a pointer decoder with a latent space."""

    encoder: Encoder
    decoder: Any  # a `PointerDecoder`, or the `Decoders` of a population
    half_steps = False  # the kernels have a precision of their own

    def __init__(self, architecture: Architecture):
        super().__init__()
        self.architecture = architecture

    @property
    def space(self) -> Box | Members:
        """Return the latents this policy understands; of size 0 for a single policy."""
        members = self.architecture.members
        return Members(members) if members else Box(self.architecture.latent)

    def sharpness(self, nodes: int) -> float:
        """Return the factor of attention scores, which grows with the number of nodes.

        A node of a larger instance has nearer neighbours, and more nodes that are none. Without the
        factor, a policy trained on 100 nodes spreads its attention thin on 300
        (research/notebooks/training.md).
        """
        relative_size = nodes / TRAINING_NODES
        return relative_size**self.architecture.growth

    def fold_tables(
        self,
        features: Float[Tensor, "B N F"],
        nodes: int,
        capacity: Int[Tensor, "B"] | None = None,
    ) -> Any:
        """Return the tables for all later decoding from node features; `nodes` counts no depot."""
        sharp = self.sharpness(nodes)
        # Pass no scalar if it is 1: torch.compile would make it a dynamic argument.
        factor = () if sharp == 1.0 else (sharp,)
        embedding = self.encoder(features, *factor)
        return self.decoder.tables(embedding, capacity, sharp)

    def footprint(self, action_count: int, steps: int) -> int:
        """Return about how many tensor elements one rollout keeps: its actions, or node scores."""
        return steps

    def condition(self, memory: Memory, latents: Float[Tensor, "B K Z"]) -> LatentBias:
        """Return what each latent changes."""
        return self.decoder.condition(memory, latents)

    def adjustable(self, memory: Memory) -> Float[Tensor, "B N D"]:
        """Return what a search may adjust to an instance: the final product's embeddings."""
        return memory.embedding

    def adjusted(self, memory: Memory, embedding: Float[Tensor, "B N D"]) -> Memory:
        """Return the tables with other embeddings in the final product only."""
        return self.decoder.with_embeddings(memory, embedding)

    def with_layer(self, memory: Memory, layer: ResidualLayer) -> Memory:
        """Return the tables with a residual layer after the attention read-out."""
        return replace(memory, layer=layer)

    def widened(self: PolicyT, latent: int, amplify: float = 100.0) -> PolicyT:
        """Return the policy with a latent space whose every point behaves exactly alike."""
        if self.architecture.members:
            rule = "a population has no latent space and cannot be given one"
            raise InputError(f"{rule}; start from a single policy")
        architecture = replace(
            self.architecture,
            latent=latent,
            amplify=amplify,
        )
        wide = type(self)(architecture)
        weights = weights_without_latents(self)
        wide.load_state_dict(weights, strict=False)
        device = next(self.parameters()).device
        return wide.to(device)
