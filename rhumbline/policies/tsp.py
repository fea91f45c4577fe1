"""The TSP policy: coordinates in, context of current and first city."""

from dataclasses import dataclass, replace

from jaxtyping import Bool, Float
from torch import Tensor, nn

from rhumbline.policies.attention import Encoder, Memory, PointerDecoder, Shift
from rhumbline.policies.space import Box
from rhumbline.problems.tsp import TSPBatch, TSPState, take_nodes


@dataclass(frozen=True)
class Architecture:
    """Sizes of the network; stored in the checkpoint."""

    width: int = 128
    heads: int = 8
    layers: int = 6
    hidden: int = 512
    latent: int = 16
    amplify: float = 100.0


class TSPPolicy(nn.Module):
    """Encodes once; then each step scores the cities from tables."""

    problem = "tsp"

    def __init__(self, architecture: Architecture = Architecture()):  # noqa: B008 (frozen, so safe to share)
        super().__init__()
        a = self.architecture = architecture
        self.encoder = Encoder(2, a.width, a.heads, a.layers, a.hidden)
        self.decoder = PointerDecoder(a.width, a.heads, a.latent, a.amplify)

    @property
    def space(self) -> Box:
        """The latents this policy understands; of size 0 for a single policy."""
        return Box(self.architecture.latent)

    def encode(self, batch: TSPBatch) -> Memory:
        """Tables for all later decoding."""
        return self.decoder.tables(self.encoder(batch.xy))

    def condition(self, memory: Memory, latents: Float[Tensor, "B K Z"]) -> Shift:
        """What each latent changes."""
        return self.decoder.condition(memory, latents)

    def logits(
        self, memory: Memory, shift: Shift, state: TSPState, allowed: Bool[Tensor, "B R N"]
    ) -> Float[Tensor, "B R N"]:
        """Scores of the next city, before masking."""
        query = shift.query + take_nodes(memory.query_last, state.last) + take_nodes(memory.query_first, state.first)
        return self.decoder.logits(memory, shift, query, allowed)

    def widened(self, latent: int, amplify: float = 100.0) -> "TSPPolicy":
        """The same policy with a latent space whose every point behaves exactly alike (spec 2.4)."""
        wide = TSPPolicy(replace(self.architecture, latent=latent, amplify=amplify))
        own = {n: x for n, x in self.state_dict().items() if not n.endswith(("_latent", "amplify"))}
        wide.load_state_dict(own, strict=False)
        return wide.to(next(self.parameters()).device)
