"""A CVRP policy that starts from a TSP policy."""

from dataclasses import replace

import torch

from rhumbline.decoding import log_prob
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.tsp import TSPBatch

SMALL = Architecture(width=32, heads=2, layers=2, hidden=32, latent=0)


def test_tables_are_the_salesmans_whatever_the_demands() -> None:
    """The same places give the same embeddings, keys and queries as the TSP policy.

    Demand and load change nothing before training.
    """
    torch.manual_seed(0)
    salesman = TSPPolicy(
        replace(SMALL, growth=0.0)
    )  # with growth it would count the depot as a city
    vehicles = CVRPPolicy.from_tsp(salesman)
    batch = CVRP().sample(2, 7, torch.Generator().manual_seed(1))
    ours, theirs = (
        vehicles.encode(batch),
        salesman.encode(TSPBatch(batch.xy, batch.key, batch.scale, None)),
    )
    for name in ("embedding", "key", "value", "pointer", "query_last", "query_fixed", "bias"):
        assert torch.allclose(getattr(ours, name), getattr(theirs, name), atol=1e-6), name
    assert ours.query_load is not None
    assert not ours.query_load.any()


def test_the_new_parts_can_learn() -> None:
    """Gradients reach the weights of demand and load, although these start at zero."""
    torch.manual_seed(0)
    policy, problem = CVRPPolicy.from_tsp(TSPPolicy(SMALL)), CVRP()
    batch = problem.sample(1, 3, torch.Generator().manual_seed(1))
    routes = torch.tensor([[[1, 2, 0, 3, 0, 0]]])
    log_prob(problem, policy, batch, torch.zeros(1, 1, 0), routes, engine="torch").sum().backward()
    demand = policy.encoder.embed.customer.weight.grad[:, 2]
    assert demand.abs().max() > 0
    assert policy.decoder.query_load.grad.abs().max() > 0
