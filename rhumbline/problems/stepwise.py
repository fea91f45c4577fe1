"""Parts of the rules that follow from the others, for problems that need none of their own."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.record import PER_INSTANCE


class StepwiseRules:
    """Parent of rules that define the steps and the cost; replay, outcome and views follow.

    A problem may define each of them itself, which is faster.
    """

    name: str
    reset: Callable[[Any, Tensor], Any]
    step: Callable[[Any, Tensor], Any]
    cost: Callable[[Any, Tensor], Tensor]

    def replay(self, batch: Any, actions: Int[Tensor, "B R T"]) -> Any:
        """Return the states before decisions 1..T-1 by making all steps, one after another."""
        first, *later = actions.unbind(2)
        state = self.reset(batch, first)
        states = [state]
        for action in later:
            state = self.step(state, action)
            states.append(state)
        return stack_states(states)

    def outcome(
        self, batch: Any, state: Any, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """Return the cost of sequences; their last state does not have it."""
        return self.cost(batch, actions)

    def views(
        self, actions: Int[Tensor, "B T"], uniforms: Float[Tensor, "B V 2"]
    ) -> Int[Tensor, "B V T"]:
        """Return the same sequences: no others are known for the plans."""
        views = uniforms.shape[1]
        sequences = actions.unsqueeze(1)
        return sequences.expand(-1, views, -1)

    def improve(
        self, batch: Any, actions: Int[Tensor, "B R T"], rounds: int
    ) -> Int[Tensor, "B R T"]:
        """Raise: there is no batched local search."""
        message = f"there is no local improvement for {self.name} yet; set it to 0"
        raise InputError(f"objective.improve: {message}")


class NodeRules(StepwiseRules):
    """Parent of rules whose actions are the nodes of a batch with coordinates `xy` [B, N, 2].

    A sequence has no more actions than there are nodes.
    """

    def action_count(self, batch: Any) -> int:
        """Return the number of nodes."""
        return batch.xy.shape[1]

    def horizon(self, batch: Any) -> int:
        """Return the number of nodes."""
        return batch.xy.shape[1]

    def item_count(self, instance: Any) -> int:
        """Return the number of nodes."""
        return instance.size


def stack_states(states: Sequence[Any]) -> Any:
    """Return all states but the last as one, with the steps flattened into the rollout axis.

    Fields that are marked with `PER_INSTANCE` stay as they are.
    """
    first = states[0]
    steps = len(states) - 1
    stacked: dict[str, Tensor] = {}
    for field in fields(first):
        values = [getattr(state, field.name) for state in states]
        is_shared = PER_INSTANCE.items() <= field.metadata.items()
        if isinstance(values[0], Tensor) and not is_shared:
            by_step = torch.stack(values, dim=2)
            stacked[field.name] = by_step[:, :, :steps].flatten(1, 2)
    return replace(first, **stacked)
