"""Records: which rollouts of a state are selected, and what rollouts share."""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.jssp import JSSP, JSSPLeftShift, JSSPMachines
from rhumbline.problems.tsp import TSP
from rhumbline.record import PER_INSTANCE, Record


@dataclass(frozen=True)
class Inner(Record):
    clock: Tensor


@dataclass(frozen=True)
class Outer(Record):
    place: Tensor
    inner: Inner
    table: Tensor = field(metadata=PER_INSTANCE)
    count: int = 3


@dataclass(frozen=True)
class Unmarked(Record):
    place: Tensor
    table: Tensor


def test_select_takes_rollouts_of_each_instance() -> None:
    """Marked fields stay whatever their shape, nested records follow, numbers stay."""
    place = torch.arange(12).view(2, 3, 2)
    outer = Outer(place, Inner(place[..., 0]), table=torch.arange(14).view(2, 7))
    found = outer.select(torch.tensor([[2, 2, 0, 1], [1, 0, 0, 0]]))
    assert torch.equal(found.place[0], place[0, [2, 2, 0, 1]])
    assert torch.equal(found.place[1], place[1, [1, 0, 0, 0]])
    assert torch.equal(found.inner.clock, found.place[..., 0])
    assert found.table is outer.table
    assert found.count == 3


@pytest.mark.parametrize("shape", [(2, 1, 5), (2, 7), (2,)])
def test_a_missing_mark_is_an_error(shape: tuple[int, ...]) -> None:
    """A shared field is not taken for one of rollouts, and the message says what to do."""
    unmarked = Unmarked(torch.zeros(2, 3), torch.zeros(shape))
    with pytest.raises(TypeError, match=r"Unmarked\.\w+ has a different .* mark what all"):
        unmarked.select(torch.zeros(2, 1, dtype=torch.int64))


@pytest.mark.parametrize(
    ("rules", "size"),
    [(TSP(), 6), (CVRP(), 6), (JSSP(), "3x2"), (JSSPMachines(), "3x2"), (JSSPLeftShift(), "3x2")],
    ids=lambda rules: getattr(rules, "name", rules),
)
@pytest.mark.parametrize("rollouts", [1, 3])
def test_states_of_all_problems_select(rules, size, rollouts: int) -> None:
    """Selected states go on as those they came from: one rollout is no shared field."""
    batch = rules.sample(2, size, torch.Generator().manual_seed(0))
    starts = rules.starts(batch)[:, :1].expand(-1, rollouts)
    state = rules.reset(batch, starts)
    last = torch.full((2, 2), rollouts - 1)
    twice = state.select(last)
    allowed = rules.mask(twice)
    assert allowed.shape[1] == 2
    assert torch.equal(allowed, rules.mask(state).gather(1, last[..., None].expand_as(allowed)))
    action = allowed.int().argmax(2)
    assert rules.mask(rules.step(twice, action)).shape == allowed.shape
