"""The problems: one stateless object of rules each. Nothing here depends on a network.

The protocols below are the contracts that a problem of an outside package must keep, too;
`rhumbline.testing.check_problem` checks them. What the types do not say:

- A batch is a `Record`. The first axis of each of its tensors is the instance, so that a row stands
  for itself: `batch[2:3]` is the batch of the third instance alone. It has two fields that the
  package reads: `key` [B], int64, and `scale` [B], positive. If instances lie in the plane, `xy`
  [B, N, 2] in the unit square lets `augment` make symmetric copies of them; the costs of the copies
  must be those of the original.
- `key` selects an instance's random numbers. It is a checksum of the contents, the same in any
  batch, so that a file gives the same plan alone and among others.
- A state is a `Record` whose tensors are [B, R, ...]. What all rollouts of an instance share is
  marked by `field(metadata=PER_INSTANCE)`, whatever its shape: beam search selects rollouts.
- Costs are minimised and may have either sign: what collects prizes costs the negative of them.
  Times `scale`, the cost of a sequence is that of its plan on the host. Costs of complete plans are
  finite; an infinite one stands for "no plan". Code that compares costs uses absolute differences,
  or a share of their size (`costs.shift_cost`).
- Rules are pure and know no randomness besides the generator of `sample`.
- Nothing may depend on the other instances of a batch.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

InstanceBatch = TypeVar("InstanceBatch")
RolloutState = TypeVar("RolloutState")


@runtime_checkable
class Instance(Protocol):
    """One instance on the host, exact."""

    problem: str  # the name of its domain
    name: str
    best_known: float | None

    @property
    def size(self) -> int:
        """Return the number of nodes or operations."""
        ...

    @property
    def has_integer_costs(self) -> bool:
        """Return whether all costs are whole numbers, and shown as such."""
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
    """A solution on the host in plain integers. It checks and prices itself without a policy.

    A lower cost is better. Costs may be negative.
    """

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
    costs into the instance's own units. Costs are minimised and may be negative.
    `stepwise.StepwiseRules` has `replay`, `outcome`, `views` and `improve` for rules that do
    without faster ones of their own.
    """

    name: str
    solves: str  # `problem` of its instances; several sets of rules may solve one problem
    max_size: int  # of an instance that policies take
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
        """Return the first actions of one attempt, one at least.

        An attempt is a rollout from each of them. Without a choice to begin with, it is one 0.
        """
        ...

    def reset(self, batch: InstanceBatch, starts: Int[Tensor, "B R"]) -> RolloutState:
        """Return the state after the imposed first action, a `Record`.

        Its tensors are [B, R, ...]. Fields that all rollouts of an instance share are marked with
        `field(metadata=PER_INSTANCE)`, whatever their shape.
        """
        ...

    def mask(self, state: RolloutState) -> Bool[Tensor, "B R A"]:
        """Return True where an action is allowed: one at least, also in a finished rollout."""
        ...

    def step(self, state: RolloutState, action: Int[Tensor, "B R"]) -> RolloutState:
        """Return the state after an action. Pure; finished rollouts are fixed points."""
        ...

    def finished(self, state: RolloutState) -> bool:
        """Return whether all rollouts are complete."""
        ...

    def horizon(self, batch: InstanceBatch) -> int:
        """Return an upper bound on the length of an action sequence, the first included."""
        ...

    def replay(self, batch: InstanceBatch, actions: Int[Tensor, "B R T"]) -> RolloutState:
        """Return the states before decisions 1..T-1, steps flattened into the rollout axis."""
        ...

    def cost(self, batch: InstanceBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """Return the cost of complete sequences, from the actions alone.

        Lower is better, of either sign. Times the batch's `scale` it is in the instance's own
        units. Sequences may be padded by what `step` ignores in a finished rollout.
        """
        ...

    def outcome(
        self, batch: InstanceBatch, state: RolloutState, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """Return what `cost` does, given the last state, which may already hold it."""
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
        """Return the plan of an action sequence, which may be padded."""
        ...
