"""The CVRP policy: positions and demands in, context of the current node and the load."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from rhumbline.policies.attention.encoder import Architecture, Encoder
from rhumbline.policies.attention.memory import LatentBias, Memory
from rhumbline.policies.attention.pointer import RoutingPolicy
from rhumbline.policies.population import PopulationMemory, make_decoder
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRPBatch, CVRPState
from rhumbline.problems.nodes import take_nodes


class DepotAndCustomers(nn.Module):
    """Input projections: one for the depot, one for all customers."""

    def __init__(self, width: int):
        super().__init__()
        self.depot, self.customer = nn.Linear(3, width), nn.Linear(3, width)

    def forward(self, features: Float[Tensor, "B N 3"]) -> Float[Tensor, "B N D"]:
        """Embeddings before the first layer."""
        return torch.cat([self.depot(features[:, :1]), self.customer(features[:, 1:])], dim=1)


class CVRPPolicy(RoutingPolicy):
    """Encodes once; then each step scores the customers and the depot from tables."""

    problem = "cvrp"

    def __init__(self, architecture: Architecture = Architecture()):  # noqa: B008 (frozen, so safe to share)
        super().__init__(architecture)
        a = architecture
        self.encoder = Encoder(DepotAndCustomers(a.width), a.width, a.heads, a.layers, a.hidden)
        self.decoder = make_decoder("load", a)

    @classmethod
    def after(cls, tsp: TSPPolicy) -> "CVRPPolicy":
        """A policy that starts out with what a salesman has learnt of geometry; demand and load
        count for nothing.

        Untrained, it samples plans of cost 23 where new weights give 65 (uniform, 100 customers,
        best known 15.6).
        """
        policy = cls(tsp.architecture)
        own = tsp.encoder.embed
        mine = policy.state_dict()
        policy.load_state_dict(
            {n: x for n, x in tsp.state_dict().items() if n in mine}, strict=False
        )
        assert isinstance(own, nn.Linear)
        assert isinstance(policy.encoder.embed, DepotAndCustomers)
        for projection in (policy.encoder.embed.depot, policy.encoder.embed.customer):
            projection.weight.data.zero_()[:, :2] = own.weight.data
            projection.bias.data.copy_(own.bias.data)
        return policy.to(own.weight.device)

    def encode(self, batch: CVRPBatch) -> Memory | PopulationMemory:
        """Tables for all later decoding. Demands are fractions of the capacity, so other
        capacities look familiar.
        """
        return self.fold_tables(self.features(batch), batch.xy.shape[1] - 1, batch.capacity)

    def features(self, batch: CVRPBatch) -> Float[Tensor, "B N 3"]:
        """What the encoder sees of each node."""
        share = batch.demand / batch.capacity[:, None]
        return torch.cat([batch.xy, share[..., None]], dim=-1)

    def logits(
        self, memory: Memory, shift: LatentBias, state: CVRPState, allowed: Bool[Tensor, "B R N"]
    ) -> Float[Tensor, "B R N"]:
        """Scores of the next node, before masking."""
        assert memory.query_load is not None
        query = (
            shift.query
            + take_nodes(memory.query_last, state.last)
            + state.left[..., None] * memory.query_load
        )
        return self.decoder.logits(memory, shift, query, allowed)
