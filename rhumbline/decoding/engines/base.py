"""What an engine is asked, and what it answers."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch

from rhumbline.decoding.request import RolloutRequest, Rollouts
from rhumbline.policies import Policy
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.attention.memory import Memory
from rhumbline.policies.population import PopulationMemory
from rhumbline.problems import Problem
from rhumbline.problems.kernel_traits import GraphUse, RolloutKernel, cuda_graph, rollout_kernel

NO_PREFIXES = "the GPU kernels for job shops cannot continue a sequence that has begun"


@dataclass(frozen=True)
class Ask:
    """All that an engine needs to know to say whether it can serve."""

    rules: Problem[Any, Any]
    device: torch.device
    nodes: int  # actions that a decision selects from
    architecture: Any = None  # of the policy; None: the default one
    layer: bool = False  # whether the tables have a residual layer after the attention read-out
    prefixes: bool = False  # whether more than the first action of a sequence is imposed
    gradients: bool = False  # whether scores of given actions are wanted, instead of rollouts
    by_name: bool = False  # whether the user asked for the fused engine, not for any

    @property
    def on_gpu(self) -> bool:
        """Whether the tensors are on an NVIDIA GPU."""
        return self.device.type == "cuda"

    @cached_property
    def kernel(self) -> RolloutKernel | None:
        """What compiled rollouts construct under these rules, if there are any."""
        return rollout_kernel(self.rules)

    @property
    def is_routing(self) -> bool:
        """Whether kernels for tours or routes serve these rules, and networks of this kind."""
        is_attention = self.architecture is None or isinstance(self.architecture, Architecture)
        return is_attention and self.kernel in ("tours", "routes")

    @property
    def graph_use(self) -> GraphUse | None:
        """When the steps of plain torch may be recorded as a CUDA graph."""
        return cuda_graph(self.rules)

    @property
    def no_kernel(self) -> str:
        """The reason of an engine for other rules or other devices."""
        if self.gradients and not self.on_gpu:
            return "fused scoring needs an NVIDIA GPU with Triton, and this runs on the CPU"
        place = "" if self.on_gpu else " on a CPU"
        return f"there is no fused kernel for {self.rules.name}{place}"


@runtime_checkable
class Engine(Protocol):
    """One way to construct rollouts. All ways construct the same ones, except at near ties."""

    name: str
    fused: bool  # whether `--engine fused` may stand for it

    def why_not(self, ask: Ask) -> str | None:
        """Return why this engine cannot serve, or None if it can.

        An engine for other rules or devices returns `ask.no_kernel`. Only `triton` and
        `numba_job_shop` have scores; other engines have a reason against every ask with
        `gradients`.
        """
        ...

    def rollout(self, request: RolloutRequest) -> Rollouts:
        """Construct one solution for each instance, latent and start."""
        ...


@runtime_checkable
class CompiledEngine(Engine, Protocol):
    """An engine with kernels that can be loaded or compiled before a clock runs."""

    def load(self, rules: Problem[Any, Any]) -> None:
        """Load the kernels for some rules; the first rollouts would do it otherwise."""
        ...


@dataclass(frozen=True)
class Pace:
    """What is known of an engine's speed before any rollout has been timed."""

    tile: int  # rollouts that take as long as one
    relative_speed: int = 1  # tensor elements per second, compared with the kernel for tours


@runtime_checkable
class PacedEngine(Engine, Protocol):
    """An engine that says how fast it is."""

    pace: Pace


class NotedReason(str):
    """A reason that users are told if a slower engine takes over: `note` says so."""

    note: str

    def __new__(cls, reason: str, consequence: str) -> "NotedReason":
        """Attach the consequence, which comes before the reason in the note."""
        noted = super().__new__(cls, reason)
        noted.note = f"{consequence}: {reason}"
        return noted


def note_missing_numba(reason: str) -> NotedReason:
    """Return why numba cannot serve, with a note for users: they may wonder about the speed."""
    return NotedReason(reason, "engine auto takes plain torch, which is several times slower")


def make_ask(
    rules: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    memory: Any,
    *,
    prefixes: bool = False,
    gradients: bool = False,
) -> Ask:
    """Describe rollouts, completions or scores of a batch."""
    return Ask(
        rules,
        batch.key.device,
        rules.action_count(batch),
        policy.architecture,
        layer=has_layer(memory),
        prefixes=prefixes,
        gradients=gradients,
    )


def has_layer(memory: Any) -> bool:
    """Return whether tables have a residual layer after the attention read-out."""
    if isinstance(memory, PopulationMemory):
        return any(has_layer(member) for member in memory.members)
    return isinstance(memory, Memory) and memory.layer is not None
