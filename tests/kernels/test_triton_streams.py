"""Rollouts beyond the largest tile, in Triton's interpreter, float32: forced on small instances, in
small parts.
"""

from dataclasses import replace

import pytest
import test_triton_cvrp
import test_triton_tsp
import torch
from asking import chosen, chosen_for_scores
from triton.runtime.interpreter import InterpretedFunction

from rhumbline.decoding import rollout
from rhumbline.errors import MissingExtra
from rhumbline.kernels.triton.rollout import launch as triton_rollout
from rhumbline.kernels.triton.rollout import tables as rollout_tables
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.tsp import TSP

assert isinstance(triton_rollout.tsp_stream_kernel, InterpretedFunction), (
    "the kernels were imported before conftest.py was read"
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Conversion of an array with ndim > 0:DeprecationWarning"
)

wide, vehicles = (
    test_triton_tsp.wide,
    test_triton_cvrp.policy,
)  # fixtures: policies of the sizes that the kernels are made for


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use parts of 16 nodes at every size, and one more than needed."""
    monkeypatch.setattr(triton_rollout, "MAX_TILE_NODES", 0)
    monkeypatch.setattr(rollout_tables, "padded_columns", lambda nodes: -(-nodes // 16) * 16 + 16)
    tuning = replace(triton_rollout.TUNING, stream_columns=16)
    monkeypatch.setattr(triton_rollout, "TUNING", tuning)


@pytest.mark.parametrize(
    ("nodes", "count", "tried", "starts", "temperature"),
    [(3, 3, 2, 3, 1.0), (13, 1, 3, 7, 0.1), (12, 1, 2, 5, 0.0), (20, 1, 1, 3, 1.0)],
)
@pytest.mark.usefixtures("small_parts")
def test_tours_are_those_of_torch(
    wide, nodes: int, count: int, tried: int, starts: int, temperature: float
) -> None:
    """Choices are the plain engine's except for near ties; costs agree to 1e-5, also with empty
    parts and further tiles.
    """
    batch, latents, first = test_triton_tsp.problem_of(nodes, count, tried, starts, wide)
    cost, actions = test_triton_tsp.by_kernel(
        wide, batch, latents, first, temperature, shape=test_triton_tsp.SMALL_TILE
    )
    assert torch.equal(actions[..., 0].long(), first[:, None].expand(-1, tried, -1))
    test_triton_tsp.assert_choices_of_torch(wide, batch, latents, actions, temperature)
    priced = TSP().cost(batch, actions.flatten(1, 2).long()).view_as(cost)
    assert torch.allclose(cost, priced, rtol=1e-5)


@pytest.mark.parametrize(
    ("customers", "capacity", "temperature", "tried", "starts"),
    [
        (1, 9, 1.0, 2, 1),
        (6, 9, 0.0, 2, 4),
        (6, 20, 0.3, 3, 6),
    ],  # more nodes than a part: test_beginnings.py
)
@pytest.mark.usefixtures("small_parts")
def test_routes_are_those_of_torch(
    vehicles: CVRPPolicy, customers: int, capacity: int, temperature: float, tried: int, starts: int
) -> None:
    """Routes, padding and costs agree for the same counters; these seeds have no near tie."""
    batch, problem = test_triton_cvrp.tight(customers, capacity), test_triton_cvrp.PROBLEM
    latents = vehicles.space.sample((2, tried), torch.Generator().manual_seed(1))
    first = problem.starts(batch)[:, :starts]
    cost, actions = test_triton_cvrp.by_kernel(vehicles, batch, latents, first, temperature)
    options = {
        "seed": test_triton_cvrp.SEED,
        "attempt": test_triton_cvrp.ATTEMPT,
        "temperature": temperature,
    }
    plain = rollout(problem, vehicles, batch, latents, first, engine="torch", **options)
    assert torch.equal(actions, plain.actions)
    assert torch.allclose(cost, plain.cost, rtol=1e-5)


def test_large_instances_are_streamed_but_not_scored() -> None:
    """Rollouts have kernels up to 1,024 nodes, scores up to 256."""
    device = torch.device("cuda")
    assert chosen("auto", "tsp", device, 257) == "fused"
    assert chosen("auto", "cvrp", device, 1001) == "fused"
    assert chosen("auto", "tsp", device, 1025) == "torch"
    with pytest.raises(MissingExtra, match="up to 1024 nodes, and there are 1025"):
        chosen("fused", "tsp", device, 1025)
    assert chosen_for_scores("auto", "tsp", device, 256) == "fused"
    assert chosen_for_scores("auto", "tsp", device, 257) == "torch"
    with pytest.raises(MissingExtra, match="up to 256 nodes, and there are 257"):
        chosen_for_scores("fused", "tsp", device, 257)
