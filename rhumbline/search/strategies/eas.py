"""Efficient active search (Hottung et al. 2022): an instance learns from its own rollouts.

A step samples `passes` attempts. One update of Adam then raises the likelihood of sequences that
are cheaper than the mean over their starts, and of the incumbent. Where an attempt is a single
rollout, as for job shops, the mean is over the attempts of the step. The parameters belong to one
row, which is an instance or a symmetric copy, and losses are summed over rows. A row therefore
learns the same alone or among thousands. Scoring makes no solutions and costs no attempts.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.decoding.rollouts import TUNING as ROLLOUT_TUNING
from rhumbline.domain import ActiveSearchRates, SearchDefaults
from rhumbline.errors import InputError, note_once
from rhumbline.policies.attention.memory import ResidualLayer
from rhumbline.search.strategy import Needs, Step, Strategy
from rhumbline.search.task import Task


@dataclass
class Adam:
    """Adam (Kingma and Ba 2015) with the published constants.

    Torch's own loads the compiler at its first use, which takes 1.6 s of a search.
    """

    parameters: tuple[Tensor, ...]
    rate: float
    moments: list[tuple[Tensor, Tensor]] = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self.moments = []
        for parameter in self.parameters:
            mean = torch.zeros_like(parameter)
            square = torch.zeros_like(parameter)
            self.moments.append((mean, square))

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters against their gradients."""
        self.steps += 1
        # Both moments start at zero; these factors correct the bias.
        first = 1.0 - 0.9**self.steps
        second = 1.0 - 0.999**self.steps
        for parameter, moments in zip(self.parameters, self.moments, strict=True):
            mean, square = moments
            gradient = parameter.grad
            assert gradient is not None
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999)
            square.addcmul_(gradient, gradient, value=0.001)
            deviation = square.sqrt()
            deviation.div_(second**0.5).add_(1e-8)
            parameter.addcdiv_(
                mean,
                deviation,
                value=-self.rate / first,
            )


@dataclass(frozen=True)
class Adaptation:
    """The parameters that are learnt, and the latents of the rollouts that teach them."""

    latents: Float[Tensor, "R L Z"]
    parameters: tuple[Tensor, ...]
    optimiser: Adam


# Latents, sequences and their weights.
ImitationTarget = tuple[Float[Tensor, "R K Z"], Int[Tensor, "R K S T"], Float[Tensor, "R K S"]]


@dataclass(frozen=True)
class ActiveSearch(Strategy[Adaptation]):
    """Settings that both variants share. None takes the default of the problem's domain."""

    # Attempts on an instance between two updates, over all its copies. None: 8, or 32 where an
    # attempt is a single rollout.
    passes: int | None = None
    rate: float | None = None  # of Adam; None: by problem
    imitation: float | None = None  # weight of imitating the incumbent; None: by problem

    def __post_init__(self) -> None:
        is_rate = self.rate is None or self.rate >= 0
        is_number = self.passes is None or self.passes >= 1
        if not is_number or not is_rate:
            least = "passes of at least 1 and a rate of at least 0"
            raise InputError(f"active search needs {least}")
        is_weight = self.imitation is None or self.imitation >= 0
        if not is_weight:
            raise InputError(f"imitation must be at least 0, not {self.imitation}")

    def default_rates(self, defaults: SearchDefaults) -> ActiveSearchRates:
        """Return the rates of a problem for this variant."""
        raise NotImplementedError

    def rates(self, task: Task) -> ActiveSearchRates:
        """Return the settings, or the defaults of the problem."""
        default = self.default_rates(task.domain.search)
        return ActiveSearchRates(
            rate=default.rate if self.rate is None else self.rate,
            imitation=default.imitation if self.imitation is None else self.imitation,
        )

    def parameters(self, task: Task) -> tuple[Tensor, ...]:
        """Return what is learnt, for every row; its first values change nothing."""
        raise NotImplementedError

    def tables(self, task: Task, memory: Any, parameters: tuple[Tensor, ...]) -> Any:
        """Return the tables of some rows with their parameters in place."""
        raise NotImplementedError

    def init(self, task: Task) -> Adaptation:
        """Start at the centre of the latent space."""
        return self.init_at_centre(task)

    def init_at_centre(self, task: Task) -> Adaptation:
        """Start with nothing learnt, under the latent at the centre, on any problem."""
        space = task.policy.space
        centre = space.centre((task.count, 1), task.device)
        return self.init_from_latents(task, centre)

    def init_from_latents(self, task: Task, latents: Float[Tensor, "B L Z"]) -> Adaptation:
        """Start under given latents, which take turns."""
        parameters = self.parameters(task)
        for parameter in parameters:
            parameter.requires_grad_(True)
        optimiser = Adam(parameters, self.rates(task).rate)
        return Adaptation(
            latents=task.repeat_for_copies(latents),
            parameters=parameters,
            optimiser=optimiser,
        )

    def step(self, task: Task, state: Adaptation) -> Step:
        """Sample solutions, then learn from them."""
        latents, rolled = self.sample_and_update(task, state)
        original = latents[:: task.copies]
        best = task.best_of_copies(rolled)
        return Step(state, original, best)

    def sample_and_update(
        self, task: Task, state: Adaptation
    ) -> tuple[Float[Tensor, "R K Z"], Rollouts]:
        """Make one step, and return what every copy sampled before the update."""
        passes = self.passes or default_passes(task)
        count = max(1, passes // task.copies)
        used = state.latents.shape[1]
        repeats = -(-count // used)
        latents = state.latents.repeat(1, repeats, 1)
        latents = latents[:, :count]
        with torch.no_grad():
            memory = self.tables(task, task.memory, state.parameters)
        rolled = task.rollout_each_copy(latents, 1.0, memory=memory)
        self.learn(task, state, latents, rolled)
        return latents, rolled

    def learn(
        self, task: Task, state: Adaptation, latents: Float[Tensor, "R K Z"], rolled: Rollouts
    ) -> None:
        """Make one update: REINFORCE on the samples, and imitation of the incumbent."""
        targets = sample_targets(
            task,
            state,
            latents,
            rolled,
            self.rates(task).imitation,
        )
        self.update(task, state, targets)

    def update(self, task: Task, state: Adaptation, targets: Iterable[ImitationTarget]) -> None:
        """Make one update from weighted sequences."""
        for parameter in state.parameters:
            parameter.grad = torch.zeros_like(parameter)
        for target in targets:
            _, actions, _ = target
            if actions.shape[3] < 2:
                return  # a sequence without a decision teaches nothing
            self.add_gradient(task, state, target)
        state.optimiser.step()

    def add_gradient(self, task: Task, state: Adaptation, target: ImitationTarget) -> None:
        """Add the gradient of the weighted sum of log-probabilities to the parameters alone.

        A chunk that is too large for a GPU's memory is halved, and all later ones are as small.
        """
        _, actions, _ = target
        waiting = list(score_chunks(task, actions))[::-1]
        while waiting:
            most = task.scores_per_piece()
            chunk = waiting.pop()
            parts = None
            count = chunk.count(actions)
            if count > most:
                waiting.extend(reversed(chunk.halves(actions)))
                continue
            began = time.monotonic()
            try:
                parts = self.gradient(task, state, chunk, target)
            except torch.OutOfMemoryError as error:
                if count == 1:
                    words = "the scores of one sequence need more memory than the GPU has left"
                    raise InputError(f"{words}; use --search cmaes or --device cpu") from error
            if parts is None:
                # The error holds its tensors until here: only now can their memory be freed.
                torch.cuda.empty_cache()
                note_once(
                    "the GPU's memory is too small for these chunks of scores; they are halved"
                )
                task.max_scored_sequences = -(-count // 2)
                waiting.append(chunk)
                continue
            for parameter, part in zip(state.parameters, parts, strict=True):
                assert parameter.grad is not None
                parameter.grad[chunk.rows].add_(part)  # `+=` would copy the sum once more
            task.scoring_pacer.record(count, time.monotonic() - began)

    def gradient(
        self, task: Task, state: Adaptation, chunk: "ScoreChunk", target: ImitationTarget
    ) -> tuple[Tensor, ...]:
        """Return the gradient of one chunk with respect to the parameters of its rows."""
        latents, actions, weight = target
        rows = chunk.rows
        part = (rows, chunk.latents, chunk.starts)
        with torch.enable_grad():
            parameters = tuple(p[rows] for p in state.parameters)
            memory = self.tables(task, task.memory[rows], parameters)
            scores = task.score(
                rows,
                latents[rows, chunk.latents],
                actions[part].flatten(1, 2),
                memory,
            )
            weighted = weight[part].flatten(1) * scores
            loss = weighted.sum()
        return torch.autograd.grad(loss, parameters)


def default_passes(task: Task) -> int:
    """Return the attempts between two updates: more of them where each is a single rollout."""
    starts = task.starts.shape[1]
    is_single = starts == 1
    return 32 if is_single else 8


def advantages(task: Task, rolled: Rollouts) -> Float[Tensor, "R K S"]:
    """Return the cost above the mean over starts, over the number of rollouts of a row.

    With a single start, the mean is over latents, which are samples of the same policy.

    Costs of routing are in lengths of the unit square, whatever metric the file has, and without
    surcharges for vehicles; imitation of the incumbent favours plans with fewer routes.
    """
    cost = rolled.cost
    learning_cost = task.domain.search.learning_cost
    if learning_cost is not None:
        cost = learning_cost(task.problem, task.batch, cost, rolled.actions)
    latents = cost.shape[1]
    starts = cost.shape[2]
    compared = 2 if starts > 1 else 1
    mean = cost.mean(compared, keepdim=True)
    above_mean = cost - mean
    rollouts = latents * starts
    return above_mean / rollouts


def sample_targets(
    task: Task,
    state: Adaptation,
    latents: Float[Tensor, "R K Z"],
    rolled: Rollouts,
    imitation: float,
) -> Iterator[ImitationTarget]:
    """Return the samples, and the incumbent under each latent in use.

    The first of the latents that were tried are those in use. Unless fewer were tried than are in
    use, the incumbent is one more start of each. A second batch, of one sequence per latent, would
    cost as many launches as all samples do.
    """
    tried = latents.shape[1]
    used = state.latents.shape[1]
    incumbents = task.repeat_for_copies(task.incumbents)
    best = incumbents[:, None, None]
    latent_count = max(tried, used)
    best = best.expand(-1, latent_count, -1, -1)
    even = torch.full(
        best.shape[:3],
        -imitation / used,
        device=task.device,
    )
    even[:, used:] = 0.0  # the same latents once more
    weight = advantages(task, rolled)
    if used <= tried:
        actions = torch.cat([rolled.actions, best], 2)
        weights = torch.cat([weight, even], 2)
        yield latents, actions, weights
    else:
        yield latents, rolled.actions, weight
        yield state.latents, best, even


@dataclass(frozen=True)
class ScoreChunk:
    """Sequences that are scored together: ranges of rows, latents and starts."""

    rows: slice
    latents: slice
    starts: slice

    def sizes(self, actions: Int[Tensor, "R K S T"]) -> tuple[int, ...]:
        """Return the number of rows, latents and starts."""
        ranges = (self.rows, self.latents, self.starts)
        sizes = list[int]()
        for some, count in zip(ranges, actions.shape, strict=False):
            covered = range(*some.indices(count))
            sizes.append(len(covered))
        return tuple(sizes)

    def count(self, actions: Int[Tensor, "R K S T"]) -> int:
        """Return the number of sequences."""
        sizes = self.sizes(actions)
        return math.prod(sizes)

    def halves(self, actions: Int[Tensor, "R K S T"]) -> "tuple[ScoreChunk, ScoreChunk]":
        """Cut the chunk in two along the first axis of more than one entry."""
        sizes = self.sizes(actions)
        axis = next(i for i, size in enumerate(sizes) if size > 1)
        name = ("rows", "latents", "starts")[axis]
        whole = getattr(self, name)
        begin, end, _ = whole.indices(actions.shape[axis])
        middle = (begin + end) // 2
        first = slice(begin, middle)
        second = slice(middle, end)
        return (
            replace(self, **{name: first}),
            replace(self, **{name: second}),
        )


def score_chunks(task: Task, actions: Int[Tensor, "R K S T"]) -> Iterator[ScoreChunk]:
    """Yield sequences whose scores fit into memory together.

    A chunk holds several whole rows, a part of one row's latents if each has a single sequence, or
    else a part of one latent's starts.
    """
    rows, latents, starts, steps = actions.shape
    size = max_chunk_size(task, steps)
    every = slice(None)
    if size >= latents * starts:
        for some in slices(rows, size // (latents * starts)):
            yield ScoreChunk(some, every, every)
        return
    for row in slices(rows, 1):
        if starts == 1:
            for some in slices(latents, size):
                yield ScoreChunk(row, some, every)
            continue
        for latent in slices(latents, 1):
            for some in slices(starts, size):
                yield ScoreChunk(row, latent, some)


def slices(count: int, size: int) -> Iterator[slice]:
    """Cut a range into slices of one size."""
    for first in range(0, count, size):
        end = first + size
        yield slice(first, end)


def max_chunk_size(task: Task, steps: int) -> int:
    """Return how many sequences of a length may be scored together."""
    device = task.device.type
    elements = ROLLOUT_TUNING.chunk_elements[device]
    if device == "cpu":
        elements *= 4
    actions = task.problem.action_count(task.batch)
    footprint = task.policy.footprint(actions, steps)
    sequence_elements = steps * footprint
    return max(1, elements // sequence_elements)


@dataclass(frozen=True)
class EASEmb(ActiveSearch):
    """Learns the tables that the policy lets a search adjust, which fused engines can read.

    For routing these are the embeddings in the final product (`PointerDecoder.pointer_tables`),
    nodes x width; glimpse and context keep theirs. For job shops it is the first hidden layer's
    share of each operation, or with L2D an offset of each operation's embedding.
    """

    needs: ClassVar[Needs] = Needs(tables=True)

    def default_rates(self, defaults: SearchDefaults) -> ActiveSearchRates:
        """Return those of `eas-emb`."""
        return defaults.eas_emb

    def parameters(self, task: Task) -> tuple[Tensor, ...]:
        """Return a copy of the tables that the policy lets a search adjust."""
        policy: Any = task.policy
        table = policy.adjustable(task.memory)
        own_table = table.detach().clone()
        return (own_table,)

    def tables(self, task: Task, memory: Any, parameters: tuple[Tensor, ...]) -> Any:
        """Return the tables with the copy in place."""
        policy: Any = task.policy
        (own_table,) = parameters
        return policy.adjusted(memory, own_table)


@dataclass(frozen=True)
class EASLay(ActiveSearch):
    """Learns a residual layer on the glimpse, before its output projection.

    The policy folds the value biases out of the glimpse, so the layer does not see them. This is a
    layer with another bias. The rates are a tenth of the published ones, whose first update ruins
    the shipped policy (research/notebooks/experiments.md).
    """

    needs: ClassVar[Needs] = Needs(layer=True)

    def default_rates(self, defaults: SearchDefaults) -> ActiveSearchRates:
        """Return those of `eas-lay`."""
        return defaults.eas_lay

    def parameters(self, task: Task) -> tuple[Tensor, ...]:
        """Return random weights into the layer (Xavier, by the seed) and zeros out of it."""
        rows = len(task.starts)
        width = task.policy.architecture.width
        bound = (3.0 / width) ** 0.5
        rng = torch.Generator()
        rng.manual_seed(task.seed)
        uniforms = torch.rand(width + 1, width, generator=rng)
        into = bound * (2.0 * uniforms - 1.0).to(task.device)
        into = into.expand(rows, -1, -1)
        out = torch.zeros(rows, width + 1, width, device=task.device)
        return (
            into[:, :-1].clone(),
            into[:, -1:].clone(),
            out[:, :-1].clone(),
            out[:, -1:].clone(),
        )

    def tables(self, task: Task, memory: Any, parameters: tuple[Tensor, ...]) -> Any:
        """Return the same tables with the layer."""
        policy: Any = task.policy
        layer = ResidualLayer(*parameters)
        return policy.with_layer(memory, layer)
