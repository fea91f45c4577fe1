"""L2D (Zhang et al. 2020): a graph network that chooses the next operation to dispatch.

An operation has an arc from its predecessor in the job. Once both are dispatched, it also has one
from its predecessor on the machine. The graph changes at each decision, so the network runs at each
decision, and nothing can be computed once per instance.

Features are normalised over the operations of a single graph. The published code does so at test
time; this one does so in training too. A decision depends on no other instance and no running mean.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rhumbline.errors import InputError
from rhumbline.policies.attention.memory import ResidualLayer
from rhumbline.policies.latent_space import Box, weights_without_latents
from rhumbline.problems.jssp import JSSPBatch, JSSPLeftShift
from rhumbline.problems.jssp.left_shift_rules import LeftShiftState
from rhumbline.record import Record


@dataclass(frozen=True)
class L2DTuning:
    """Constants of the published network."""

    time_unit: float = 1000.0  # bounds of completion times are divided by it
    variance_floor: float = 1e-5  # added to variances, which are 0 in a graph of one operation
    cost_unit: float = 100.0  # of the critic's output


TUNING = L2DTuning()


@dataclass(frozen=True)
class L2DArchitecture:
    """Sizes of the network; stored in the checkpoint. The published ones by default."""

    width: int = 64
    layers: int = 2
    hidden: int = 32  # of the network that scores a job
    latent: int = 0
    amplify: float = 100.0

    def __post_init__(self) -> None:
        sizes = (self.width, self.layers, self.hidden)
        if min(sizes) < 1 or self.latent < 0:
            raise InputError(f"{self}: sizes must be positive (latent may be 0)")


@dataclass(frozen=True)
class L2DMemory(Record):
    """What searches may adapt, and which operations exist: all else is in the state."""

    share: Float[Tensor, "B 1 N"]  # 1 / n for the n operations of an instance, 0 for missing ones
    offset: Float[Tensor, "B N D"]  # added to embeddings before they are scored; zeros
    layer: ResidualLayer | None = None  # on embeddings before they are scored


@dataclass(frozen=True)
class L2DLatentBias(Record):
    """What a latent changes: a bias of the hidden layer that scores jobs."""

    hidden: Float[Tensor, "B K H"]


class Graphs(NamedTuple):
    """The graphs of X states, with N = J * O operations each."""

    jobs: int
    before: Int[Tensor, "XN"]  # rows of predecessors on machines, in all graphs
    has_before: Float[Tensor, "X N 1"]  # 1, or 0 where there is none
    share: Float[Tensor, "X 1 N"]  # weights of a mean over the operations

    def aggregate(self, x: Float[Tensor, "X N D"]) -> Float[Tensor, "X N D"]:
        """Add to each operation its predecessors in its job and on its machine."""
        by_job = x.unflatten(1, (self.jobs, -1))
        earlier = by_job[:, :, :-1]
        earlier = F.pad(earlier, (0, 0, 1, 0))
        in_job = by_job + earlier
        in_job = in_job.flatten(1, 2)
        all_operations = x.flatten(0, 1)
        on_machine = all_operations.index_select(0, self.before)
        on_machine = on_machine.view(x.shape)
        return torch.addcmul(in_job, on_machine, self.has_before)

    def mean(self, x: Float[Tensor, "X N D"]) -> Float[Tensor, "X 1 D"]:
        """Return the mean over the operations of each graph."""
        return self.share @ x


def operation_share(batch: JSSPBatch) -> Float[Tensor, "B 1 N"]:
    """Return the weights of a mean over the operations that exist."""
    machines = batch.load.shape[1] - 1
    is_real = batch.machine[..., :-1] < machines
    is_real = is_real.flatten(1)
    share = is_real / is_real.sum(1, keepdim=True)
    return share[:, None]


def make_graphs(share: Float[Tensor, "B 1 N"], state: LeftShiftState) -> Graphs:
    """Return the graphs of all rollouts, without the column after the last operations."""
    _, rollouts, jobs, columns = state.end.shape
    cell = state.predecessor.unflatten(2, (jobs, columns))
    cell = cell[..., :-1].flatten(0, 1).flatten(1)
    graphs, nodes = cell.shape
    has_before = cell < jobs * columns
    node = cell - cell // columns  # a job has one cell more than nodes
    # An operation without a predecessor points to itself. If all pointed to the same operation,
    # the GPU would add up the gradient of that one serially.
    own = torch.arange(nodes, device=cell.device)
    node = torch.where(has_before, node, own)
    first = nodes * torch.arange(graphs, device=cell.device)
    before = first[:, None] + node
    share = share.repeat_interleave(rollouts, dim=0)
    return Graphs(
        jobs=jobs,
        before=before.flatten(),
        has_before=has_before[..., None].to(share.dtype),
        share=share,
    )


def graph_features(state: LeftShiftState) -> Float[Tensor, "X N 2"]:
    """Return the bound of each operation's completion time, and whether it is dispatched."""
    bound = state.completion_bound / TUNING.time_unit
    is_dispatched = state.is_dispatched.to(bound.dtype)
    features = torch.stack([bound, is_dispatched], dim=-1)
    features = features[..., :-1, :]
    return features.flatten(0, 1).flatten(1, 2)


class GraphNorm(nn.Module):
    """Normalises each channel over the operations of a graph."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Float[Tensor, "X N D"], graphs: Graphs) -> Float[Tensor, "X N D"]:
        """Return `x` with mean 0 and variance 1, scaled and shifted."""
        centred = x - graphs.mean(x)
        variance = graphs.mean(centred * centred)
        deviation = (variance + TUNING.variance_floor).sqrt()
        scale = self.weight / deviation
        return torch.addcmul(self.bias, centred, scale)


class GraphLayer(nn.Module):
    """A layer of a graph isomorphism network (Xu et al. 2019) with sums over neighbours."""

    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.up = nn.Linear(inputs, width)
        self.norm_hidden = GraphNorm(width)
        self.down = nn.Linear(width, width)
        self.norm = GraphNorm(width)

    def forward(self, x: Float[Tensor, "X N I"], graphs: Graphs) -> Float[Tensor, "X N D"]:
        """Return the embeddings of operations, given those of the layer before."""
        total = self.up(graphs.aggregate(x))
        hidden = F.relu(self.norm_hidden(total, graphs))
        embedding = self.norm(self.down(hidden), graphs)
        return F.relu(embedding)


class GraphEncoder(nn.Module):
    """Turns the features of a graph into embeddings of its operations."""

    def __init__(self, a: L2DArchitecture):
        super().__init__()
        self.layers = nn.ModuleList()
        inputs = 2
        for _ in range(a.layers):
            layer = GraphLayer(inputs, a.width)
            self.layers.append(layer)
            inputs = a.width

    def forward(self, x: Float[Tensor, "X N 2"], graphs: Graphs) -> Float[Tensor, "X N D"]:
        """Return the embeddings of all operations."""
        for layer in self.layers:
            x = layer(x, graphs)
        return x


class JobScorer(nn.Module):
    """Scores jobs by their next operation and the whole graph; weights of latents start at zero."""

    def __init__(self, a: L2DArchitecture):
        super().__init__()
        self.operation = nn.Linear(a.width, a.hidden)
        self.graph = nn.Linear(a.width, a.hidden, bias=False)
        self.score = nn.Linear(a.hidden, 1)
        hidden_latent = torch.zeros(a.latent, a.hidden)
        self.hidden_latent = nn.Parameter(hidden_latent)
        amplify = torch.tensor(float(a.amplify))
        self.amplify: Tensor
        self.register_buffer("amplify", amplify)

    def condition(self, latents: Float[Tensor, "B K Z"]) -> L2DLatentBias:
        """Return what each latent adds to the hidden layer."""
        z = latents * self.amplify
        return L2DLatentBias(z @ self.hidden_latent)

    def forward(
        self,
        operations: Float[Tensor, "X J D"],
        graph: Float[Tensor, "X 1 D"],
        shift: Float[Tensor, "X H"],
    ) -> Float[Tensor, "X J"]:
        """Return the score of each job, given its next operation and the mean over the graph."""
        common = self.graph(graph) + shift[:, None]
        hidden = self.operation(operations) + common
        hidden = torch.tanh(hidden)
        score = self.score(hidden)
        return score[..., 0].float()


class L2DPolicy(nn.Module):
    """Runs its graph network at each decision."""

    problem = JSSPLeftShift.name
    half_steps = False  # variances of a graph need float32

    def __init__(self, architecture: L2DArchitecture = L2DArchitecture()):  # noqa: B008 (frozen)
        super().__init__()
        self.architecture = architecture
        self.encoder = GraphEncoder(architecture)
        self.decoder = JobScorer(architecture)

    @property
    def space(self) -> Box:
        """Return the latents this policy understands; of size 0 for a single policy."""
        return Box(self.architecture.latent)

    def footprint(self, action_count: int, steps: int) -> int:
        """Return about how many tensor elements one rollout keeps: three embeddings at once."""
        return 3 * steps * self.architecture.width

    def encode(self, batch: JSSPBatch) -> L2DMemory:
        """Return which operations exist, and an offset of zeros."""
        share = operation_share(batch)
        count, _, nodes = share.shape
        width = self.architecture.width
        return L2DMemory(
            share=share,
            offset=share.new_zeros(count, nodes, width),
        )

    def condition(self, memory: L2DMemory, latents: Float[Tensor, "B K Z"]) -> L2DLatentBias:
        """Return what each latent changes."""
        return self.decoder.condition(latents)

    def adjustable(self, memory: L2DMemory) -> Float[Tensor, "B N D"]:
        """Return what a search may adjust to an instance: an offset of each embedding."""
        return memory.offset

    def adjusted(self, memory: L2DMemory, table: Float[Tensor, "B N D"]) -> L2DMemory:
        """Return the memory with another offset."""
        return replace(memory, offset=table)

    def with_layer(self, memory: L2DMemory, layer: ResidualLayer) -> L2DMemory:
        """Return the memory with a residual layer on the embeddings that are scored."""
        return replace(memory, layer=layer)

    def logits(
        self,
        memory: L2DMemory,
        shift: L2DLatentBias,
        state: LeftShiftState,
        allowed: Bool[Tensor, "B R J"],
    ) -> Float[Tensor, "B R J"]:
        """Return the scores of the jobs, before masking."""
        graphs = make_graphs(memory.share, state)
        embedding = self.encoder(graph_features(state), graphs)
        operations = self.next_operations(memory, state, embedding)
        scores = self.decoder(
            operations,
            graphs.mean(embedding),
            shift.hidden.flatten(0, 1),
        )
        return scores.view(allowed.shape)

    def next_operations(
        self, memory: L2DMemory, state: LeftShiftState, embedding: Float[Tensor, "X N D"]
    ) -> Float[Tensor, "X J D"]:
        """Return the embedding of each job's next operation, as a search has adapted it.

        Finished jobs, which are masked, get the embedding of their last column.
        """
        count, rollouts, jobs, columns = state.end.shape
        width = embedding.shape[2]
        longest = columns - 1
        step = state.next.clamp(max=longest - 1)
        first = longest * torch.arange(jobs, device=step.device)
        node = first + step
        index = node.flatten(1)[..., None]
        index = index.expand(-1, -1, width)
        by_state = index.view(-1, jobs, width)
        chosen = embedding.gather(1, by_state)
        chosen = chosen.view(count, rollouts * jobs, width)
        chosen = chosen + memory.offset.gather(1, index)
        if memory.layer is not None:
            chosen = memory.layer(chosen)
        return chosen.view(-1, jobs, width)

    def widened(self, latent: int, amplify: float = 100.0) -> "L2DPolicy":
        """Return the policy with a latent space whose every point behaves exactly alike."""
        architecture = replace(
            self.architecture,
            latent=latent,
            amplify=amplify,
        )
        wide = L2DPolicy(architecture)
        weights = weights_without_latents(self)
        wide.load_state_dict(weights, strict=False)
        device = next(self.parameters()).device
        return wide.to(device)


class L2DCritic(nn.Module):
    """Predicts the makespan from the mean over the graph, as published.

    It shares no weights with the policy.
    """

    def __init__(self, architecture: L2DArchitecture):
        super().__init__()
        self.encoder = GraphEncoder(architecture)
        self.hidden = nn.Linear(architecture.width + architecture.latent, architecture.hidden)
        self.value = nn.Linear(architecture.hidden, 1)

    def encode(self, batch: JSSPBatch) -> Float[Tensor, "B 1 N"]:
        """Return the weights of a mean over the operations; all else is in the state."""
        return operation_share(batch)

    def values(
        self,
        memory: Float[Tensor, "B 1 N"],
        latents: Float[Tensor, "B R Z"],
        state: LeftShiftState,
        allowed: Bool[Tensor, "B R J"],
    ) -> Float[Tensor, "B R"]:
        """Return the expected makespan of each state: its lower bound plus a learned increase."""
        graphs = make_graphs(memory, state)
        embedding = self.encoder(graph_features(state), graphs)
        mean = graphs.mean(embedding)
        mean = mean.view(*latents.shape[:2], -1)
        inputs = torch.cat([mean, latents], dim=2)
        hidden = torch.tanh(self.hidden(inputs))
        increase = self.value(hidden)
        bounds = state.completion_bound.flatten(2)
        bound = bounds.amax(2)
        return bound + TUNING.cost_unit * increase[..., 0]
