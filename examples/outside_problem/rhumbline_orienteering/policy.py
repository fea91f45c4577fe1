"""The policy: positions, prizes and distances to the depot in; context of place and time left."""

import torch
from torch import Tensor, nn

from rhumbline.policies.attention.encoder import Architecture, Encoder
from rhumbline.policies.attention.pointer import RoutingPolicy
from rhumbline.policies.population import make_decoder
from rhumbline.problems.nodes import take_nodes
from rhumbline_orienteering.rules import OPBatch, OPState


class OPPolicy(RoutingPolicy):
    problem = "op"

    def __init__(self, architecture: Architecture = Architecture()):  # noqa: B008
        super().__init__(architecture)
        a = architecture
        self.encoder = Encoder(nn.Linear(5, a.width), a.width, a.heads, a.layers, a.hidden)
        self.decoder = make_decoder("load", a)

    def encode(self, batch: OPBatch):
        to_depot = batch.legs[:, 0].float()
        is_depot = torch.zeros_like(to_depot)
        is_depot[:, 0] = 1.0
        columns = torch.stack([batch.prize, to_depot, is_depot], dim=-1)
        features = torch.cat([batch.xy, columns], dim=-1)
        full = torch.ones_like(batch.key)  # what is left is a share of the limit
        return self.fold_tables(features, batch.xy.shape[1], full)

    def logits(self, memory, shift, state: OPState, allowed: Tensor) -> Tensor:
        here = take_nodes(memory.query_last, state.last)
        left = state.left[..., None].to(here.dtype) * memory.query_load
        return self.decoder.logits(memory, shift, shift.query + here + left, allowed)
