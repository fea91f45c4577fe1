"""The attention encoder: node features to node embeddings."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from rhumbline.errors import InputError

# Queries, keys and values [B, N, 3 D] and the number of heads to [B, N, D].
AttentionFunction = Callable[[Tensor, int], Tensor]

TRAINING_NODES = 100  # size of the instances that policies are usually trained with


def check_sizes(sizes: Any) -> None:
    """Refuse a network, of any architecture, that cannot be built."""
    positive = (
        sizes.width,
        sizes.heads,
        sizes.layers,
        sizes.hidden,
    )
    is_possible = min(positive) >= 1 and sizes.latent >= 0
    if not is_possible or sizes.width % sizes.heads:
        rule = "sizes must be positive (latent may be 0), and heads must divide width"
        raise InputError(f"{sizes}: {rule}")


@dataclass(frozen=True)
class Architecture:
    """Sizes of the network; stored in the checkpoint."""

    width: int = 128
    heads: int = 8
    layers: int = 6
    hidden: int = 512
    latent: int = 16
    amplify: float = 100.0
    members: int = 0  # decoders that share the encoder; 0 is one decoder with a latent space
    growth: float = 1 / 3  # attention scores grow as (nodes / 100) to this power; 0 as published

    def __post_init__(self) -> None:
        if self.members < 0 or (self.members and self.latent):
            rule = "a population has no latent space; set latent or members to 0"
            raise InputError(f"{self}: {rule}")
        check_sizes(self)


def split_qkv(qkv: Float[Tensor, "B N E"], heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, centred keys and values, each [B, H, N, C].

    The softmax ignores what all keys of an instance have in common, but rounding does not. In
    bfloat16, gradients along that direction are noise. The weights there grew until scores reached
    10^6. One layer was lost, and with it the gradients of all layers below it. Keys are therefore
    centred (research/notebooks/training.md, "What broke the encoder").
    """
    count, nodes, _ = qkv.shape
    parts = qkv.view(count, nodes, 3, heads, -1)
    q, k, v = parts.permute(2, 0, 3, 1, 4)
    exact = torch.promote_types(k.dtype, torch.float32)
    common = k.mean(
        2,
        keepdim=True,
        dtype=exact,
    )
    centred = k - common
    return q, centred.to(k.dtype), v


def torch_attention(qkv: Float[Tensor, "B N E"], heads: int) -> Float[Tensor, "B N D"]:
    """Let all nodes attend to all nodes; E is three times D."""
    q, k, v = split_qkv(qkv, heads)
    glimpse = F.scaled_dot_product_attention(q, k, v)
    glimpse = glimpse.transpose(1, 2)
    return glimpse.flatten(2)


class EncoderLayer(nn.Module):
    """Post-norm transformer layer without dropout."""

    def __init__(self, width: int, heads: int, hidden: int):
        super().__init__()
        self.heads = heads
        self.attend: AttentionFunction = torch_attention
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.norm_attention = nn.LayerNorm(width)
        self.norm_hidden = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Float[Tensor, "B N D"], sharpness: float = 1.0) -> Float[Tensor, "B N D"]:
        """Apply attention among all nodes, then a hidden layer, each with a residual.

        Attention scores are multiplied by `sharpness`.
        """
        qkv = self.project_qkv(x, sharpness)
        glimpse = self.attend(qkv, self.heads)
        change = self.out(glimpse)
        x = self.norm_attention(x + change)
        hidden = F.relu(self.up(x))
        change = self.down(hidden)
        return self.norm_hidden(x + change)

    def project_qkv(self, x: Float[Tensor, "B N D"], sharpness: float) -> Float[Tensor, "B N E"]:
        """Return queries times `sharpness`, keys and values.

        The weights are multiplied rather than the queries: they are fewer numbers.
        """
        if sharpness == 1.0:
            return self.qkv(x)
        width = self.out.in_features
        weight = self.qkv.weight
        sizes = [width, 2 * width]
        queries, others = weight.split(sizes)
        sharpened = queries * sharpness
        weight = torch.cat([sharpened, others])
        return F.linear(x, weight)


class Encoder(nn.Module):
    """Node features to node embeddings."""

    def __init__(self, embed: nn.Module, width: int, heads: int, layers: int, hidden: int):
        super().__init__()
        self.embed = embed
        self.layers = nn.ModuleList()
        for _ in range(layers):
            self.layers.append(EncoderLayer(width, heads, hidden))

    def set_attention(self, attend: AttentionFunction) -> None:
        """Make all layers attend by another function that computes the same."""
        for layer in self.layers:
            assert isinstance(layer, EncoderLayer)
            layer.attend = attend

    def forward(
        self, features: Float[Tensor, "B N F"], sharpness: float = 1.0
    ) -> Float[Tensor, "B N D"]:
        """Return the embeddings of all nodes."""
        x = self.embed(features)
        for layer in self.layers:
            x = layer(x, sharpness)
        return x


def head_ranges(layer: EncoderLayer, x: Float[Tensor, "B N D"]) -> Float[Tensor, "H"]:
    """Return the mean range of a row of attention logits, for each head."""
    qkv = layer.qkv(x)
    q, k, _ = split_qkv(qkv, layer.heads)
    width = q.shape[-1]
    scores = q @ k.transpose(-1, -2)
    scores = scores / math.sqrt(width)
    highest = scores.amax(-1)
    lowest = scores.amin(-1)
    ranges = highest - lowest
    return ranges.mean((0, 2))


@torch.no_grad()
def attention_ranges(encoder: Encoder, features: Float[Tensor, "B N F"]) -> list[list[float]]:
    """Return the ranges of attention logits of all heads, layer by layer.

    Healthy ranges are 5 to 100. Thousands are one-hot, and grow.
    """
    x = encoder.embed(features)
    ranges = list[list[float]]()
    for layer in encoder.layers:
        assert isinstance(layer, EncoderLayer)
        ranges.append(head_ranges(layer, x).tolist())
        x = layer(x)
    return ranges


@torch.no_grad()
def limit_attention_ranges(encoder: Encoder, features: Float[Tensor, "B N F"], most: float) -> None:
    """Scale down, in place, queries and keys of heads whose logits range farther than `most`.

    A head that attends to one node gets next to no gradient, and most of that is rounding. An
    optimiser that divides by the gradient's size makes steps of it, and the scores grow without
    end (research/notebooks/training.md). Nothing is lost, because attention is as good as one-hot
    far below the limit.
    """
    x = encoder.embed(features)
    for layer in encoder.layers:
        assert isinstance(layer, EncoderLayer)
        ranges = head_ranges(layer, x)
        factor = (most / ranges).clamp(max=1.0).sqrt()  # once for queries and once for keys
        layer.qkv.weight.view(3, layer.heads, -1)[:2] *= factor[:, None]
        x = layer(x)
