"""Poppy: a population of decoders that share one encoder (spec 3.3). A latent is the number of a
member.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rhumbline.errors import InputError
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.attention.memory import LatentBias, Memory
from rhumbline.policies.attention.pointer import PointerDecoder, RoutingPolicy
from rhumbline.record import Record


@dataclass(frozen=True)
class PopulationMemory(Record):
    """The tables of every member."""

    members: tuple[Memory, ...]

    def map(self, change: Callable[[Tensor], Tensor]) -> "PopulationMemory":
        """A copy in which every tensor of every member went through `change`."""
        return PopulationMemory(tuple(member.map(change) for member in self.members))

    def pick(self, which: Int[Tensor, "B"]) -> Memory:
        """The tables of one member for each instance."""
        wanted = which.tolist()
        if len(set(wanted)) == 1:
            return self.members[wanted[0]]
        rows = torch.arange(len(which), device=which.device)
        first = self.members[0]
        tables = [f.name for f in fields(first) if isinstance(getattr(first, f.name), Tensor)]
        return replace(
            first,
            **{n: torch.stack([getattr(m, n) for m in self.members])[which, rows] for n in tables},
        )


class Decoders(nn.ModuleList):
    """The members' decoders, with the interface of one. A member's tables hold all of it: no
    weight is read later.
    """

    def __init__(self, context: Literal["first", "load"], a: Architecture):
        super().__init__(
            PointerDecoder(context, a.width, a.heads, 0, a.amplify) for _ in range(a.members)
        )

    @property
    def each(self) -> list[PointerDecoder]:
        """The decoders one by one."""
        return [cast(PointerDecoder, decoder) for decoder in self]

    def tables(
        self,
        embedding: Float[Tensor, "B N D"],
        capacity: Int[Tensor, "B"] | None = None,
        sharpness: float = 1.0,
    ) -> PopulationMemory:
        """Tables of every member for the embeddings they share."""
        return PopulationMemory(
            tuple(member_tables(decoder, embedding, capacity, sharpness) for decoder in self.each)
        )

    def condition(self, memory: Memory, latents: Float[Tensor, "B K 1"]) -> LatentBias:
        """The constants of the members whose tables these are; `Crowd.pick` has gone by the
        latents already.
        """
        assert memory.glimpse is not None
        assert memory.preference is not None
        each = (memory.query_fixed, memory.glimpse, memory.preference)
        return LatentBias(*(x.expand(-1, latents.shape[1], -1) for x in each))

    def logits(
        self,
        memory: Memory,
        shift: LatentBias,
        query: Float[Tensor, "B R D"],
        allowed: Bool[Tensor, "B R N"],
    ) -> Float[Tensor, "B R N"]:
        """Scores of all nodes from the queries."""
        return self.each[0].logits(memory, shift, query, allowed)

    def with_embeddings(self, memory: Memory, embedding: Float[Tensor, "B N D"]) -> Memory:
        """Not for populations: which member should adapt?"""
        raise InputError(
            "a population cannot be adapted to an instance; take a policy with one decoder"
        )


def member_tables(
    decoder: PointerDecoder,
    embedding: Float[Tensor, "B N D"],
    capacity: Int[Tensor, "B"] | None,
    sharpness: float,
) -> Memory:
    """A member's tables with its constants; these in float32, as they are for a policy with
    latents.
    """
    memory = decoder.tables(embedding, capacity, sharpness)
    kind = embedding.device.type
    with torch.autocast(kind, enabled=False):
        none = torch.zeros(len(embedding), 1, 0, device=embedding.device)
        shift = decoder.condition(memory, none)
        return replace(memory, glimpse=shift.glimpse, preference=shift.pointer)


def make_decoder(context: Literal["first", "load"], a: Architecture) -> PointerDecoder | Decoders:
    """One decoder with a latent space, or a population of them."""
    return (
        Decoders(context, a)
        if a.members
        else PointerDecoder(context, a.width, a.heads, a.latent, a.amplify)
    )


def make_population(policy: RoutingPolicy, members: int) -> RoutingPolicy:
    """A population whose every member is the decoder of a single policy, or of the centre of a
    latent space.
    """
    a = policy.architecture
    if a.members:
        raise InputError(
            f"this is a population of {a.members} already; start from a policy with one decoder"
        )
    many = type(policy)(replace(a, members=members, latent=0, amplify=Architecture.amplify))
    state = {name: x for name, x in policy.state_dict().items() if name.startswith("encoder.")}
    for name, x in policy.decoder.state_dict().items():
        if not name.endswith(("_latent", "amplify")):
            state |= {f"decoder.{member}.{name}": x for member in range(members)}
    own = {
        name: x for name, x in many.state_dict().items() if name.endswith(("_latent", "amplify"))
    }  # empty, or fixed
    many.load_state_dict(own | state)
    return many.to(next(policy.parameters()).device)
