"""The CVRP policy: positions and demands in, context of the current node and the load."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from rhumbline.policies.attention.encoder import Architecture, Encoder
from rhumbline.policies.attention.memory import LatentBias, Memory
from rhumbline.policies.attention.pointer import RoutingPolicy
from rhumbline.policies.population import PopulationMemory, make_decoder
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPBatch, CVRPState
from rhumbline.problems.nodes import take_nodes


class DepotAndCustomers(nn.Module):
    """Input projections: one for the depot, one for all customers."""

    def __init__(self, width: int):
        super().__init__()
        self.depot = nn.Linear(3, width)
        self.customer = nn.Linear(3, width)

    def forward(self, features: Float[Tensor, "B N 3"]) -> Float[Tensor, "B N D"]:
        """Return the embeddings before the first layer."""
        depot = features[:, :1]
        customers = features[:, 1:]
        parts = [
            self.depot(depot),
            self.customer(customers),
        ]
        return torch.cat(parts, dim=1)


class CVRPPolicy(RoutingPolicy):
    """Encodes once; then each step scores the customers and the depot from tables."""

    problem = CVRP.name

    def __init__(self, architecture: Architecture = Architecture()):  # noqa: B008 (frozen, so safe to share)
        super().__init__(architecture)
        a = architecture
        self.encoder = Encoder(
            DepotAndCustomers(a.width),
            a.width,
            a.heads,
            a.layers,
            a.hidden,
        )
        self.decoder = make_decoder("load", a)

    @classmethod
    def from_tsp(cls, tsp: TSPPolicy) -> "CVRPPolicy":
        """Return a policy with the geometry that a TSP policy has learnt; it ignores the load.

        Untrained, it samples plans of cost 23 where new weights give 65 (uniform, 100 customers,
        best known 15.6). Demands have no influence either.
        """
        policy = cls(tsp.architecture)
        names = policy.state_dict()
        shared = {name: x for name, x in tsp.state_dict().items() if name in names}
        policy.load_state_dict(shared, strict=False)
        city = tsp.encoder.embed
        node = policy.encoder.embed
        assert isinstance(city, nn.Linear)
        assert isinstance(node, DepotAndCustomers)
        for projection in (node.depot, node.customer):
            projection.weight.data.zero_()[:, :2] = city.weight.data
            projection.bias.data.copy_(city.bias.data)
        return policy.to(city.weight.device)

    def encode(self, batch: CVRPBatch) -> Memory | PopulationMemory:
        """Return the tables for all later decoding.

        Demands are fractions of the capacity, so that other capacities look familiar.
        """
        features = self.features(batch)
        customers = batch.xy.shape[1] - 1
        return self.fold_tables(features, customers, batch.capacity)

    def features(self, batch: CVRPBatch) -> Float[Tensor, "B N 3"]:
        """Return the encoder's features of each node."""
        capacity = batch.capacity[:, None]
        share = batch.demand / capacity
        parts = [batch.xy, share[..., None]]
        return torch.cat(parts, dim=-1)

    def logits(
        self, memory: Memory, shift: LatentBias, state: CVRPState, allowed: Bool[Tensor, "B R N"]
    ) -> Float[Tensor, "B R N"]:
        """Return the scores of the next node, before masking."""
        assert memory.query_load is not None
        query = (
            shift.query
            + take_nodes(memory.query_last, state.last)
            + state.left[..., None] * memory.query_load
        )
        return self.decoder.logits(memory, shift, query, allowed)
