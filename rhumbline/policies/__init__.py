"""Networks. A policy encodes an instance once, then scores actions from its memory of it."""

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from rhumbline.policies.latent_space import Box as Box
from rhumbline.policies.latent_space import Members as Members

BatchT_contra = TypeVar("BatchT_contra", contravariant=True)
StateT_contra = TypeVar("StateT_contra", contravariant=True)
MemoryT = TypeVar("MemoryT")


@runtime_checkable
class Policy(Protocol[BatchT_contra, StateT_contra, MemoryT]):
    """What rollouts, training and search need of a network, which is an `nn.Module`.

    A policy whose decoding reads tables may be an `AdjustablePolicy` too,
    one with a place for a residual layer a `LayeredPolicy`.
    """

    problem: str
    architecture: Any
    half_steps: bool  # training may compute decisions in bfloat16, too, not only the encoding

    @property
    def space(self) -> Box | Members:
        """Return the latents the policy understands."""
        ...

    def footprint(self, action_count: int, steps: int) -> int:
        """Return about how many tensor elements one rollout keeps at once.

        Each of its `steps` decisions chooses among `action_count` actions.
        """
        ...

    def encode(self, batch: BatchT_contra) -> MemoryT:
        """Return everything decoding reads, once per instance."""
        ...

    def condition(self, memory: MemoryT, latents: Float[Tensor, "B K Z"]) -> Any:
        """Return what each latent changes, once per latent."""
        ...

    def logits(
        self, memory: MemoryT, shift: Any, state: StateT_contra, allowed: Bool[Tensor, "B R A"]
    ) -> Float[Tensor, "B R A"]:
        """Return the scores of the actions, once per step; they are not masked."""
        ...

    def widened(
        self, latent: int, amplify: float = 100.0
    ) -> "Policy[BatchT_contra, StateT_contra, MemoryT]":
        """Return the policy with a latent space whose every point behaves like the original."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Do as `nn.Module` does."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Do as `nn.Module` does."""
        ...

    def to(self, device: torch.device | str) -> Any:
        """Do as `nn.Module` does."""
        ...


@runtime_checkable
class AdjustablePolicy(Protocol):
    """A policy with a table that searches can adjust to an instance, which learning ones need."""

    def adjustable(self, memory: Any) -> Tensor:
        """Return the table that a search may change, one per row of the memory."""
        ...

    def adjusted(self, memory: Any, table: Tensor) -> Any:
        """Return the memory with another table in its place."""
        ...


@runtime_checkable
class LayeredPolicy(Protocol):
    """A policy with a place for a residual layer that searches learn on an instance."""

    def with_layer(self, memory: Any, layer: Any) -> Any:
        """Return the memory with a `ResidualLayer` of the architecture's width in its place."""
        ...


@runtime_checkable
class Critic(Protocol):
    """A network that training may learn beside a policy: an `nn.Module` that predicts costs."""

    def encode(self, batch: Any) -> Any:
        """Return everything that `values` reads, once per instance, with gradients."""
        ...

    def values(
        self,
        memory: Any,
        latents: Float[Tensor, "B R Z"],
        state: Any,
        allowed: Bool[Tensor, "B R A"],
    ) -> Float[Tensor, "B R"]:
        """Return the cost at the end that is expected in each state.

        Where a single action is allowed, any number serves.
        """
        ...
