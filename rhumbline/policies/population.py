"""A population of decoders that share one encoder (Poppy, Grinsztajn et al. 2023).

A latent is the number of a member.
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
from rhumbline.policies.latent_space import weights_without_latents
from rhumbline.record import Record


@dataclass(frozen=True)
class PopulationMemory(Record):
    """The tables of every member."""

    members: tuple[Memory, ...]

    def map(self, change: Callable[[Tensor], Tensor]) -> "PopulationMemory":
        """Return a copy in which `change` was applied to every tensor of every member."""
        members = (member.map(change) for member in self.members)
        return PopulationMemory(tuple(members))

    def pick(self, which: Int[Tensor, "B"]) -> Memory:
        """Return the tables of one member for each instance."""
        wanted = which.tolist()
        if len(set(wanted)) == 1:
            return self.members[wanted[0]]
        rows = torch.arange(len(which), device=which.device)
        first = self.members[0]
        chosen = dict[str, Tensor]()
        for field in fields(first):
            name = field.name
            if isinstance(getattr(first, name), Tensor):
                tables = [getattr(member, name) for member in self.members]
                table = torch.stack(tables)
                chosen[name] = table[which, rows]
        return replace(first, **chosen)


class Decoders(nn.ModuleList):
    """The members' decoders, with the interface of a single one.

    The tables of a member hold all of its decoder: decoding reads no weight.
    """

    def __init__(self, context: Literal["first", "load"], a: Architecture):
        super().__init__(
            PointerDecoder(context, a.width, a.heads, 0, a.amplify) for _ in range(a.members)
        )

    @property
    def each(self) -> list[PointerDecoder]:
        """Return the decoders one by one."""
        return [cast(PointerDecoder, decoder) for decoder in self]

    def tables(
        self,
        embedding: Float[Tensor, "B N D"],
        capacity: Int[Tensor, "B"] | None = None,
        sharpness: float = 1.0,
    ) -> PopulationMemory:
        """Return the tables of every member for the embeddings they share."""
        members = list[Memory]()
        for decoder in self.each:
            memory = member_tables(
                decoder,
                embedding,
                capacity,
                sharpness,
            )
            members.append(memory)
        return PopulationMemory(tuple(members))

    def condition(self, memory: Memory, latents: Float[Tensor, "B K 1"]) -> LatentBias:
        """Return the constants of the members whose tables these are.

        `PopulationMemory.pick` has selected the members by the latents already.
        """
        count = latents.shape[1]
        assert memory.glimpse is not None
        assert memory.preference is not None
        return LatentBias(
            query=memory.query_fixed.expand(-1, count, -1),
            glimpse=memory.glimpse.expand(-1, count, -1),
            pointer=memory.preference.expand(-1, count, -1),
        )

    def logits(
        self,
        memory: Memory,
        shift: LatentBias,
        query: Float[Tensor, "B R D"],
        allowed: Bool[Tensor, "B R N"],
    ) -> Float[Tensor, "B R N"]:
        """Return the scores of all nodes from the queries."""
        return self.each[0].logits(memory, shift, query, allowed)

    def with_embeddings(self, memory: Memory, embedding: Float[Tensor, "B N D"]) -> Memory:
        """Refuse: it is not defined which member would adapt."""
        raise InputError(
            "a population cannot be adapted to an instance; take a policy with one decoder"
        )


def member_tables(
    decoder: PointerDecoder,
    embedding: Float[Tensor, "B N D"],
    capacity: Int[Tensor, "B"] | None,
    sharpness: float,
) -> Memory:
    """Return a member's tables with its constants.

    The constants are in float32, as they are for a policy with latents.
    """
    memory = decoder.tables(embedding, capacity, sharpness)
    device = embedding.device
    with torch.autocast(device.type, enabled=False):
        empty = torch.zeros(len(embedding), 1, 0, device=device)
        shift = decoder.condition(memory, empty)
        return replace(
            memory,
            glimpse=shift.glimpse,
            preference=shift.pointer,
        )


def make_decoder(context: Literal["first", "load"], a: Architecture) -> PointerDecoder | Decoders:
    """Return one decoder with a latent space, or a population of them."""
    if a.members:
        return Decoders(context, a)
    return PointerDecoder(context, a.width, a.heads, a.latent, a.amplify)


def make_population(policy: RoutingPolicy, members: int) -> RoutingPolicy:
    """Return a population whose members all are the decoder of a single policy.

    Of a policy with a latent space, it is the decoder at the centre.
    """
    a = policy.architecture
    if a.members:
        known = f"this is a population of {a.members} already"
        raise InputError(f"{known}; start from a policy with one decoder")
    population = type(policy)(replace(a, members=members, latent=0, amplify=Architecture.amplify))
    state = population.state_dict()  # its weights that depend on latents are empty or fixed
    for name, weight in policy.state_dict().items():
        if name.startswith("encoder."):
            state[name] = weight
    for name, weight in weights_without_latents(policy.decoder).items():
        for member in range(members):
            state[f"decoder.{member}.{name}"] = weight
    population.load_state_dict(state)
    return population.to(next(policy.parameters()).device)
