"""Attention encoder, and a pointer decoder folded into per-instance tables (spec 2.1 to 2.4).

After `encode`, a decoding step reads only `Memory`: no weight is touched again. A latent is one bias of the query and
one of the glimpse (`Shift`), because its part in the keys cancels in the softmax and its part in the values adds a
constant to the glimpse. Keys and values are therefore shared by all rollouts of an instance.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rhumbline.errors import InputError
from rhumbline.policies.space import Box, Members
from rhumbline.record import Record

P = TypeVar("P", bound="RoutingPolicy")
Attend = Callable[[Tensor, int], Tensor]  # queries, keys and values [B, N, 3 D] and the number of heads to [B, N, D]

CLIP = 10.0  # logits are CLIP * tanh(.)
USUAL_NODES = 100  # that policies are trained with


def check_sizes(sizes: Any) -> None:
    """Refuse a network, of any architecture, that cannot be built."""
    if min(sizes.width, sizes.heads, sizes.layers, sizes.hidden) < 1 or sizes.latent < 0 or sizes.width % sizes.heads:
        raise InputError(f"{sizes}: sizes must be positive (latent may be 0), and heads must divide width")


@dataclass(frozen=True)
class Architecture:
    """Sizes of the network; stored in the checkpoint."""

    width: int = 128
    heads: int = 8
    layers: int = 6
    hidden: int = 512
    latent: int = 16
    amplify: float = 100.0
    members: int = 0  # decoders that share the encoder (a population); 0 is one decoder with a latent space
    growth: float = 1 / 3  # attention scores grow as (nodes / 100) to this power; 0 as published

    def __post_init__(self) -> None:
        if self.members < 0 or (self.members and self.latent):
            raise InputError(f"{self}: a population has no latent space; set latent or members to 0")
        check_sizes(self)


@dataclass(frozen=True)
class Layer(Record):
    """A residual layer on the glimpse, its own for each instance; at first it changes nothing (EAS-Lay, spec 4.4)."""

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
    query_first: Float[Tensor, "B N D"] | None  # each node as the first node, projected, where the context has one
    key: Float[Tensor, "B N D"]
    value: Float[Tensor, "B N D"]
    pointer: Float[Tensor, "B N D"]  # embeddings times the output projection, over sqrt(D)
    bias: Float[Tensor, "B 1 N"]  # score of each node before any glimpse
    embedding: Float[Tensor, "B N D"]
    query_load: Float[Tensor, "B 1 D"] | None = None  # per unit of capacity left, where vehicles have one
    glimpse: Float[Tensor, "B 1 D"] | None = None  # of a population's member: its `Shift.glimpse`
    preference: Float[Tensor, "B 1 N"] | None = None  # and its `Shift.pointer`
    layer: Layer | None = None  # not linear, so no table can hold it


@dataclass(frozen=True)
class Shift(Record):
    """All that a latent changes."""

    query: Float[Tensor, "B K D"]  # fixed part of the query and the latent's bias
    glimpse: Float[Tensor, "B K D"]  # added to the glimpse
    pointer: Float[Tensor, "B K N"]  # what that adds to each node's score before the tanh, and the node's bias


def heads_of(qkv: Float[Tensor, "B N E"], heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [B, H, N, C].

    The softmax does not see what all keys of an instance have in common, but rounding does: in bfloat16, gradients
    along that direction are noise. The weights there grew until scores reached 10^6 and a layer was lost, and with it
    the gradients of all layers below (docs/training.md, "What broke the encoder"). So keys are centred.
    """
    q, k, v = qkv.view(len(qkv), qkv.shape[1], 3, heads, -1).permute(2, 0, 3, 1, 4)
    common = k.mean(2, keepdim=True, dtype=torch.promote_types(k.dtype, torch.float32))
    return q, (k - common).to(k.dtype), v


def attend(qkv: Float[Tensor, "B N E"], heads: int) -> Float[Tensor, "B N D"]:
    """Attention of all nodes to all nodes; E is three times D."""
    return F.scaled_dot_product_attention(*heads_of(qkv, heads)).transpose(1, 2).flatten(2)


class EncoderLayer(nn.Module):
    """Post-norm transformer layer without dropout."""

    def __init__(self, width: int, heads: int, hidden: int):
        super().__init__()
        self.heads = heads
        self.attend: Attend = attend
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.norm_attention, self.norm_hidden = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Float[Tensor, "B N D"], sharpness: float = 1.0) -> Float[Tensor, "B N D"]:
        """Attention among all nodes, its scores times `sharpness`, then a hidden layer, each with a residual."""
        x = self.norm_attention(x + self.out(self.attend(self.projected(x, sharpness), self.heads)))
        return self.norm_hidden(x + self.down(F.relu(self.up(x))))

    def projected(self, x: Float[Tensor, "B N D"], sharpness: float) -> Float[Tensor, "B N E"]:
        """Queries, times `sharpness`, keys and values. The weights are multiplied: they are fewer than the nodes."""
        if sharpness == 1.0:
            return self.qkv(x)
        queries, others = self.qkv.weight.split([self.out.in_features, 2 * self.out.in_features])
        return F.linear(x, torch.cat([queries * sharpness, others]))


class Encoder(nn.Module):
    """Node features to node embeddings."""

    def __init__(self, embed: nn.Module, width: int, heads: int, layers: int, hidden: int):
        super().__init__()
        self.embed = embed
        self.layers = nn.ModuleList(EncoderLayer(width, heads, hidden) for _ in range(layers))

    def attend_by(self, attend: Attend) -> None:
        """Let all layers attend by another function that does the same."""
        for layer in self.layers:
            assert isinstance(layer, EncoderLayer)
            layer.attend = attend

    def forward(self, features: Float[Tensor, "B N F"], sharpness: float = 1.0) -> Float[Tensor, "B N D"]:
        """Embeddings of all nodes."""
        x = self.embed(features)
        for layer in self.layers:
            x = layer(x, sharpness)
        return x


def shares(capacity: Int[Tensor, "B"] | None) -> Int[Tensor, "B 1 1"]:
    """Capacities that a vector over channels can be divided by."""
    assert capacity is not None, "a decoder whose context is the load needs capacities"
    return capacity[:, None, None]


def square(width: int) -> nn.Parameter:
    """A projection matrix with torch's usual initial values."""
    bound = width**-0.5
    return nn.Parameter(torch.empty(width, width).uniform_(-bound, bound))


def spreads(layer: EncoderLayer, x: Float[Tensor, "B N D"]) -> Float[Tensor, "H"]:
    """How far a row of attention scores spreads, on average, in each head."""
    q, k, _ = heads_of(layer.qkv(x), layer.heads)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (scores.amax(-1) - scores.amin(-1)).mean((0, 2))


@torch.no_grad()
def attention_ranges(encoder: Encoder, features: Float[Tensor, "B N F"]) -> list[list[float]]:
    """The spreads of all heads, layer by layer: healthy ones are 5 to 100, thousands are one-hot and grow."""
    x, found = encoder.embed(features), list[list[float]]()
    for layer in encoder.layers:
        assert isinstance(layer, EncoderLayer)
        found.append(spreads(layer, x).tolist())
        x = layer(x)
    return found


@torch.no_grad()
def limit_spreads(encoder: Encoder, features: Float[Tensor, "B N F"], most: float) -> None:
    """Scale down, in place, the queries and keys of heads whose scores spread farther than `most`.

    A head that attends to one node gets next to no gradient, and what it gets is rounding; an optimiser that divides by
    the gradient's size makes steps of it, and the scores grow without end (docs/training.md). Nothing is lost by this:
    attention is as good as one-hot long before.
    """
    x = encoder.embed(features)
    for layer in encoder.layers:
        assert isinstance(layer, EncoderLayer)
        factor = (most / spreads(layer, x)).clamp(max=1.0).sqrt()  # half of it for queries, half for keys
        layer.qkv.weight.view(3, layer.heads, -1)[:2] *= factor[:, None]
        x = layer(x)


class PointerDecoder(nn.Module):
    """Projections of the decoder, kept as matrices so that they can be folded into `Memory`.

    The context of a decision is the mean embedding, the current node, and either the first node or the load. The latent
    rows start at zero: a freshly widened decoder is the one it came from, for every latent.
    """

    def __init__(self, context: Literal["first", "load"], width: int, heads: int, latent: int, amplify: float):
        super().__init__()
        self.width, self.heads = width, heads
        self.query_mean, self.query_last = (square(width) for _ in range(2))
        self.query_first = square(width) if context == "first" else None
        self.query_load = nn.Parameter(torch.zeros(width)) if context == "load" else None
        self.key, self.value, self.output = (square(width) for _ in range(3))
        self.query_bias, self.value_bias, self.output_bias = (nn.Parameter(torch.zeros(width)) for _ in range(3))
        self.query_latent, self.value_latent = (nn.Parameter(torch.zeros(latent, width)) for _ in range(2))
        self.amplify: Tensor
        self.register_buffer("amplify", torch.tensor(float(amplify)))

    def tables(
        self, embedding: Float[Tensor, "B N D"], capacity: Int[Tensor, "B"] | None = None, sharpness: float = 1.0
    ) -> Memory:
        """Fold the projections into per-instance tables. The load enters as a fraction of the capacity."""
        mean = embedding.mean(1, keepdim=True, dtype=torch.promote_types(embedding.dtype, torch.float32))
        return Memory(
            **self.pointers(embedding),
            query_fixed=mean @ self.query_mean + self.query_bias,
            query_last=embedding @ self.query_last,
            query_first=None if self.query_first is None else embedding @ self.query_first,
            key=embedding @ (self.key * sharpness),
            value=embedding @ self.value,
            query_load=None if self.query_load is None else self.query_load / shares(capacity),
        )

    def pointed(self, memory: Memory, embedding: Float[Tensor, "B N D"]) -> Memory:
        """The same tables with other embeddings in the final product only; glimpse and context keep theirs."""
        return replace(memory, **self.pointers(embedding))

    def pointers(self, embedding: Float[Tensor, "B N D"]) -> dict[str, Any]:
        """The tables of the final product, which every engine reads; the biases in float32 whatever the embeddings."""
        exact, scale = torch.promote_types(embedding.dtype, torch.float32), math.sqrt(self.width)
        return {
            "embedding": embedding,
            "pointer": embedding @ self.output.T / scale,
            "bias": (embedding.to(exact) @ self.output_bias)[:, None] / scale,
        }

    def condition(self, memory: Memory, latents: Float[Tensor, "B K Z"]) -> Shift:
        """What each latent adds; with a latent of size 0, the constants of the single policy."""
        z = latents * self.amplify
        query = memory.query_fixed + z @ self.query_latent
        glimpse = (z @ self.value_latent + self.value_bias).expand(query.shape)
        return Shift(query, glimpse, glimpse @ memory.pointer.transpose(1, 2).to(glimpse.dtype) + memory.bias)

    def logits(
        self, memory: Memory, shift: Shift, query: Float[Tensor, "B R D"], allowed: Bool[Tensor, "B R N"]
    ) -> Float[Tensor, "B R N"]:
        """Scores of all nodes from the queries; the glimpse attends to allowed nodes only."""
        split = self.split_heads
        bias = torch.zeros_like(allowed, dtype=query.dtype).masked_fill_(~allowed, -torch.inf)
        glimpse = F.scaled_dot_product_attention(
            split(query), split(memory.key), split(memory.value), attn_mask=bias[:, None]
        )
        glimpse = glimpse.transpose(1, 2).reshape(query.shape)
        glimpse = glimpse if memory.layer is None else memory.layer(glimpse)
        return CLIP * torch.tanh(torch.baddbmm(shift.pointer, glimpse, memory.pointer.transpose(1, 2)))

    def layered(self, memory: Memory, shift: Shift, glimpse: Float[Tensor, "B R D"]) -> Float[Tensor, "B R N"]:
        """The same from glimpses that somebody else has made, before the layer; row r belongs to latent r // (R / K).

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
    """What the policies of all routing problems share: an encoder and a pointer decoder with a latent space."""

    encoder: Encoder
    decoder: Any  # a `PointerDecoder`, or the `Decoders` of a population
    half_steps = False  # the kernels have a precision of their own

    def __init__(self, architecture: Architecture):
        super().__init__()
        self.architecture = architecture

    @property
    def space(self) -> Box | Members:
        """The latents this policy understands; of size 0 for a single policy."""
        return Members(self.architecture.members) if self.architecture.members else Box(self.architecture.latent)

    def sharpness(self, nodes: int) -> float:
        """What attention scores are multiplied by. Of more nodes each has nearer neighbours and more of the others.

        Without it, a policy of 100 nodes spreads its attention thin on 300 (docs/training.md).
        """
        return (nodes / USUAL_NODES) ** self.architecture.growth

    def folded(self, features: Float[Tensor, "B N F"], nodes: int, capacity: Int[Tensor, "B"] | None = None) -> Any:
        """Tables for all later decoding, from what the encoder sees of each node; `nodes` without a depot."""
        sharp = self.sharpness(nodes)
        # Compiled, the encoder must not see a number that it could take for a variable.
        embedding = self.encoder(features) if sharp == 1.0 else self.encoder(features, sharp)
        return self.decoder.tables(embedding, capacity, sharp)

    def footprint(self, width: int, steps: int) -> int:
        """About how many numbers one rollout keeps at once: its actions, or the scores of the nodes."""
        return steps

    def condition(self, memory: Memory, latents: Float[Tensor, "B K Z"]) -> Shift:
        """What each latent changes."""
        return self.decoder.condition(memory, latents)

    def adjustable(self, memory: Memory) -> Float[Tensor, "B N D"]:
        """What a search may adjust to an instance: the embeddings in the final product."""
        return memory.embedding

    def adjusted(self, memory: Memory, embedding: Float[Tensor, "B N D"]) -> Memory:
        """The same tables with other embeddings in the final product only."""
        return self.decoder.pointed(memory, embedding)

    def widened(self: P, latent: int, amplify: float = 100.0) -> P:
        """The same policy with a latent space whose every point behaves exactly alike (spec 2.4)."""
        if self.architecture.members:
            raise InputError("a population has no latent space and cannot be given one; start from a single policy")
        wide = type(self)(replace(self.architecture, latent=latent, amplify=amplify))
        own = {n: x for n, x in self.state_dict().items() if not n.endswith(("_latent", "amplify"))}
        wide.load_state_dict(own, strict=False)
        return wide.to(next(self.parameters()).device)
