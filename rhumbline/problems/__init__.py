"""The problems: one stateless object of rules each. Nothing here depends on a network.

Contract of costs: lower is better, and costs may have either sign, so a profit to maximise is a
negative cost. They are finite for complete plans; an infinite cost stands for "no plan". Code that
compares costs uses absolute differences, or a share of their size (`costs.shift_cost`).
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.jssp import JSSP, JSSPMachines
from rhumbline.problems.tsp import TSP

InstanceBatch = TypeVar("InstanceBatch")
RolloutState = TypeVar("RolloutState")


@runtime_checkable
class Instance(Protocol):
    """One instance on the host, exact."""

    problem: str  # a name in `PROBLEMS`
    name: str
    best_known: float | None

    @property
    def size(self) -> int:
        """Return the number of nodes or operations."""
        ...

    @property
    def details(self) -> str:
        """Return what users want to know besides the size.

        It is the metric, or the numbers of jobs and machines.
        """
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Return what the instances of one batch must share."""
        ...


@runtime_checkable
class Plan(Protocol):
    """A solution on the host in plain integers. It checks and prices itself without a policy."""

    def check(self, instance: Any) -> None:
        """Raise `Infeasible`, with the reason, unless the plan is feasible for the instance."""
        ...

    def cost(self, instance: Any) -> int | float:
        """Return the cost in the file's metric and rounding, of either sign; lower is better."""
        ...

    def to_file_numbers(self, instance: Any) -> list[Any]:
        """Return the plan in the numbers of its file."""
        ...


@runtime_checkable
class Problem(Protocol[InstanceBatch, RolloutState]):
    """Rules of a problem over a batch of B instances and R rollouts each.

    A batch has `key` [B], which selects an instance's random numbers, and `scale` [B], which turns
    costs into the instance's own units. Costs are minimised.
    """

    name: str
    solves: str  # `problem` of its instances; several sets of rules may solve one problem
    max_size: int  # of an instance
    nouns: tuple[str, str]  # what is visited or placed, singular and plural, for users
    size_unit: str  # what a size counts, for users
    default_size: int | str  # of random instances; its form is that of all sizes

    def sample(self, count: int, size: Any, rng: torch.Generator) -> InstanceBatch:
        """Return random instances of the training distribution, on the generator's device.

        A size is the number of cities or customers, or jobs x machines as in "20x15".
        """
        ...

    def collate(self, instances: Sequence[Any]) -> InstanceBatch:
        """Return host instances of one shape as a batch, scaled for the policy."""
        ...

    def item_count(self, instance: Any) -> int:
        """Return the number of cities, customers or operations."""
        ...

    def action_count(self, batch: InstanceBatch) -> int:
        """Return the number of actions A that a decision selects from."""
        ...

    def starts(self, batch: InstanceBatch) -> Int[Tensor, "B S"]:
        """Return the first actions of one attempt."""
        ...

    def reset(self, batch: InstanceBatch, starts: Int[Tensor, "B R"]) -> RolloutState:
        """Return the state after the imposed first action."""
        ...

    def mask(self, state: RolloutState) -> Bool[Tensor, "B R A"]:
        """Return True where an action is allowed."""
        ...

    def step(self, state: RolloutState, action: Int[Tensor, "B R"]) -> RolloutState:
        """Return the state after an action. Pure; finished rollouts are fixed points."""
        ...

    def finished(self, state: RolloutState) -> bool:
        """Return whether all rollouts are complete."""
        ...

    def horizon(self, batch: InstanceBatch) -> int:
        """Return an upper bound on the length of an action sequence."""
        ...

    def replay(self, batch: InstanceBatch, actions: Int[Tensor, "B R T"]) -> RolloutState:
        """Return the states before decisions 1..T-1, steps flattened into the rollout axis."""
        ...

    def cost(self, batch: InstanceBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """Return the cost of complete sequences, from the actions alone.

        Lower is better, of either sign. Times the batch's `scale` it is in the instance's own
        units.
        """
        ...

    def outcome(
        self, batch: InstanceBatch, state: RolloutState, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """Return the same cost, given the last state, which may already hold it."""
        ...

    def views(
        self, actions: Int[Tensor, "B T"], uniforms: Float[Tensor, "B V 2"]
    ) -> Int[Tensor, "B V T"]:
        """Return other sequences of the same plans; the uniforms select which."""
        ...

    def improve(
        self, batch: InstanceBatch, actions: Int[Tensor, "B R T"], rounds: int
    ) -> Int[Tensor, "B R T"]:
        """Return plans after local search of up to `rounds` moves; they never cost more."""
        ...

    def decode(self, instance: Any, actions: Sequence[int]) -> Plan:
        """Return the plan of an action sequence."""
        ...


PROBLEMS: dict[str, Problem[Any, Any]] = {
    "tsp": TSP(),
    "cvrp": CVRP(),
    "jssp": JSSP(),
    "jssp-machines": JSSPMachines(),
}
