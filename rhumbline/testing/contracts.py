"""What all checks share: failing with a sentence, random rollouts, and comparing records."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

TOLERANCE = 1e-5  # relative: sums of float32 in another order


def expect(condition: object, contract: str) -> None:
    """Raise `AssertionError` with the contract that is broken unless a condition holds."""
    if not condition:
        raise AssertionError(contract)


def is_close(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Return whether two tensors of costs or scores agree but for rounding."""
    if a.shape != b.shape:
        return False
    return torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance)


def group_by_shape(instances: Sequence[Any]) -> list[list[Any]]:
    """Return the instances in groups that fit into one batch each."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for instance in instances:
        group = groups[instance.shape]
        group.append(instance)
    return list(groups.values())


def tensor_fields(record: Any) -> dict[str, Tensor]:
    """Return the tensors of a record by name."""
    tensors: dict[str, Tensor] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Tensor):
            tensors[field.name] = value
    return tensors


def expect_same(one: Any, other: Any, contract: str) -> None:
    """Raise unless all tensors of two records are equal, field by field."""
    others = tensor_fields(other)
    for name, value in tensor_fields(one).items():
        is_same = torch.equal(value, others[name])
        expect(is_same, f"{contract}; the field '{name}' differs")


@dataclass(frozen=True)
class Walk:
    """Rollouts of a uniformly random policy: their actions, and the states around each step."""

    actions: Tensor  # [B, R, T]
    states: list[Any]  # the first after the imposed action, the last at the end


def random_walk(rules: Any, batch: Any, rng: torch.Generator) -> Walk:
    """Roll out uniformly random decisions from all starts; check masks and length on the way."""
    start = rules.starts(batch)
    state = rules.reset(batch, start)
    actions = [start]
    states = [state]
    shape = (*start.shape, rules.action_count(batch))
    while not rules.finished(state):
        allowed = rules.mask(state)
        is_mask = tuple(allowed.shape) == shape and allowed.dtype == torch.bool
        expect(
            is_mask,
            f"mask returns booleans of shape {list(shape)} (instances, rollouts, actions), "
            f"not {allowed.dtype} {list(allowed.shape)}",
        )
        expect(
            allowed.any(-1).all(),
            "mask allows some action in every rollout until all are finished, "
            "also in those that are finished before others",
        )
        expect(
            len(actions) < rules.horizon(batch),
            f"rollouts finish within the horizon of {rules.horizon(batch)} actions",
        )
        chance = torch.rand(allowed.shape, generator=rng)
        action = chance.masked_fill(~allowed, -1.0).argmax(-1)
        actions.append(action)
        state = rules.step(state, action)
        states.append(state)
    return Walk(torch.stack(actions, -1), states)
