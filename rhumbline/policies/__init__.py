"""Networks. A policy encodes an instance once and then scores actions from what it remembers."""

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
from rhumbline.policies.jssp_machines import JSSPMachinesPolicy, MachinesArchitecture
from rhumbline.policies.latent_space import Box as Box
from rhumbline.policies.latent_space import Members as Members
from rhumbline.policies.tsp import TSPPolicy

I_ = TypeVar("I_", contravariant=True)  # batch
S_ = TypeVar("S_", contravariant=True)  # state
M_ = TypeVar("M_")  # memory


@runtime_checkable
class Policy(Protocol[I_, S_, M_]):
    """What rollouts, training and search need of a network; an `nn.Module` besides.

    One whose decoding reads tables may have `adjustable(memory)`, the numbers of them that a search
    may change for an instance, and `adjusted(memory, numbers)`, the tables with others in their
    place: searches that learn need both.
    """

    problem: str
    architecture: Any
    half_steps: bool  # whether training may compute decisions in bfloat16, not only the encoding

    @property
    def space(self) -> Box | Members:
        """Latents the policy understands."""
        ...

    def footprint(self, width: int, steps: int) -> int:
        """About how many numbers one rollout keeps at once, for so many actions to choose among
        and steps.
        """
        ...

    def encode(self, batch: I_) -> M_:
        """Everything decoding will read, once per instance."""
        ...

    def condition(self, memory: M_, latents: Float[Tensor, "B K Z"]) -> Any:
        """What each latent changes, once per latent."""
        ...

    def logits(
        self, memory: M_, shift: Any, state: S_, allowed: Bool[Tensor, "B R A"]
    ) -> Float[Tensor, "B R A"]:
        """Scores of the actions, once per step; not masked."""
        ...

    def widened(self, latent: int, amplify: float = 100.0) -> "Policy[I_, S_, M_]":
        """The same policy with a latent space in which every point behaves like the original."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """As in `nn.Module`."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """As in `nn.Module`."""
        ...

    def to(self, device: torch.device | str) -> Any:
        """As in `nn.Module`."""
        ...


POLICIES: dict[str, tuple[type[Any], type[Any]]] = {
    "tsp": (TSPPolicy, Architecture),
    "cvrp": (CVRPPolicy, Architecture),
    "jssp": (JSSPPolicy, JSSPArchitecture),
    "jssp-machines": (JSSPMachinesPolicy, MachinesArchitecture),
}
