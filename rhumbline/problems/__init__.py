"""What is being solved. One stateless object per problem; nothing here knows a network.

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

I_ = TypeVar("I_")  # batch of instances
S_ = TypeVar("S_")  # state of rollouts


@runtime_checkable
class Instance(Protocol):
    """One instance on the host, exact."""

    problem: str  # the name of its problem in `PROBLEMS`
    name: str
    best_known: float | None

    @property
    def size(self) -> int:
        """Number of nodes or operations."""
        ...

    @property
    def details(self) -> str:
        """What people should know besides the size: the metric, or the numbers of jobs and
        machines.
        """
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """What instances must share to be solved together."""
        ...


@runtime_checkable
class Plan(Protocol):
    """A solution on the host, plain integers. It can check and price itself without any policy."""

    def check(self, instance: Any) -> None:
        """Raise `Infeasible`, with the reason, unless the plan obeys the problem's rules."""
        ...

    def cost(self, instance: Any) -> int | float:
        """Cost in the file's own metric and rounding: lower is better, of either sign."""
        ...

    def to_file_numbers(self, instance: Any) -> list[Any]:
        """The plan in the numbers its file uses."""
        ...


@runtime_checkable
class Problem(Protocol[I_, S_]):
    """Rules of a problem over a batch B of instances and R rollouts each."""

    name: str
    solves: (
        str  # the problem of the instances it is for: there may be several sets of rules for one
    )
    max_size: int  # biggest instance accepted
    nouns: tuple[str, str]  # what is visited, one and many, for people
    size_unit: str  # what sizes are numbers of, for people
    default_size: int | str  # of random instances; also shows the form that sizes have

    def sample(self, count: int, size: Any, rng: torch.Generator) -> I_:
        """Random instances of the training distribution, on the generator's device.

        A size is the number of cities or customers, or jobs x machines as in "20x15".
        """
        ...

    def collate(self, instances: Sequence[Any]) -> I_:
        """Host instances of one shape as a batch, scaled for the policy."""
        ...

    def item_count(self, instance: Any) -> int:
        """How many there are to visit or to place."""
        ...

    def action_count(self, batch: I_) -> int:
        """How many actions a decision chooses among."""
        ...

    def starts(self, batch: I_) -> Int[Tensor, "B S"]:
        """First actions of one attempt."""
        ...

    def reset(self, batch: I_, starts: Int[Tensor, "B R"]) -> S_:
        """The state after the imposed first action."""
        ...

    def mask(self, state: S_) -> Bool[Tensor, "B R A"]:
        """True where an action is allowed."""
        ...

    def step(self, state: S_, action: Int[Tensor, "B R"]) -> S_:
        """The state after an action. Pure; finished rollouts are fixed points."""
        ...

    def finished(self, state: S_) -> bool:
        """Whether all rollouts are complete."""
        ...

    def horizon(self, batch: I_) -> int:
        """Upper bound on the length of an action sequence."""
        ...

    def replay(self, batch: I_, actions: Int[Tensor, "B R T"]) -> S_:
        """The states before every decision of given sequences, steps flattened into the rollout
        axis.
        """
        ...

    def cost(self, batch: I_, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """Cost of complete sequences, from the actions alone: lower is better, of either sign.

        Times the batch's `scale` it is in the instance's own units.
        """
        ...

    def outcome(self, batch: I_, state: S_, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """The same for sequences whose last state is at hand, which may know it."""
        ...

    def views(
        self, actions: Int[Tensor, "B T"], uniforms: Float[Tensor, "B V 2"]
    ) -> Int[Tensor, "B V T"]:
        """Other sequences that spell the same plans; which, is decided by the uniforms."""
        ...

    def improve(
        self, batch: I_, actions: Int[Tensor, "B R T"], rounds: int
    ) -> Int[Tensor, "B R T"]:
        """Plans after some local improvement, never worse."""
        ...

    def decode(self, instance: Any, actions: Sequence[int]) -> Plan:
        """The plan that an action sequence spells."""
        ...


PROBLEMS: dict[str, Problem[Any, Any]] = {
    "tsp": TSP(),
    "cvrp": CVRP(),
    "jssp": JSSP(),
    "jssp-machines": JSSPMachines(),
}
