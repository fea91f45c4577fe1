"""The TSP policy: coordinates in, context of current and first city."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from rhumbline.policies.attention.encoder import Architecture, Encoder
from rhumbline.policies.attention.memory import LatentBias, Memory
from rhumbline.policies.attention.pointer import RoutingPolicy
from rhumbline.policies.population import PopulationMemory, make_decoder
from rhumbline.problems.nodes import take_nodes
from rhumbline.problems.tsp import TSP, TSPBatch, TSPState


class TSPPolicy(RoutingPolicy):
    """Encodes once; then each step scores the cities from tables."""

    problem = TSP.name

    def __init__(self, architecture: Architecture = Architecture()):  # noqa: B008 (frozen, so safe to share)
        super().__init__(architecture)
        a = architecture
        self.encoder = Encoder(
            nn.Linear(2, a.width),
            a.width,
            a.heads,
            a.layers,
            a.hidden,
        )
        self.decoder = make_decoder("first", a)

    def encode(self, batch: TSPBatch) -> Memory | PopulationMemory:
        """Return the tables for all later decoding."""
        return self.fold_tables(self.features(batch), batch.xy.shape[1])

    def features(self, batch: TSPBatch) -> Float[Tensor, "B N 2"]:
        """Return the encoder's features of each city."""
        return batch.xy

    def logits(
        self, memory: Memory, shift: LatentBias, state: TSPState, allowed: Bool[Tensor, "B R N"]
    ) -> Float[Tensor, "B R N"]:
        """Return the scores of the next city, before masking."""
        assert memory.query_first is not None
        query = (
            shift.query
            + take_nodes(memory.query_last, state.last)
            + take_nodes(memory.query_first, state.first)
        )
        return self.decoder.logits(memory, shift, query, allowed)
