"""Efficient active search: a few parameters of each instance learn from its own rollouts (spec
4.4).

A step samples `passes` attempts, then one update of Adam raises the likelihood of sequences that
are cheaper than the mean over their starts, and of the incumbent. Parameters belong to one row
(instance or symmetric copy), and losses are summed over rows, so that a row learns the same alone
or among thousands. Scoring makes no solutions and costs no attempts.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import CHUNK_ELEMENTS, Rollouts
from rhumbline.errors import InputError
from rhumbline.kernels import note_once
from rhumbline.policies.attention.memory import Memory, ResidualLayer
from rhumbline.problems.cvrp import CVRPBatch
from rhumbline.search.strategy import require_single_decoder
from rhumbline.search.task import Task


@dataclass
class Adam:
    """Kingma and Ba (2015) with their constants. Torch's own first loads its compiler: 1.6 s of
    a search's time.
    """

    parameters: tuple[Tensor, ...]
    rate: float
    moments: list[tuple[Tensor, Tensor]] = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters against their gradients."""
        self.steps += 1
        first = 1.0 - 0.9**self.steps  # the moments began at zero
        second = 1.0 - 0.999**self.steps
        for parameter, (mean, square) in zip(self.parameters, self.moments, strict=True):
            assert parameter.grad is not None
            mean.lerp_(parameter.grad, 0.1)
            square.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
            repeat_for_copies = square.sqrt().div_(second**0.5).add_(1e-8)
            parameter.addcdiv_(mean, repeat_for_copies, value=-self.rate / first)


@dataclass(frozen=True)
class Adaptation:
    """What is learnt and under which latents."""

    latents: Float[Tensor, "R L Z"]
    parameters: tuple[Tensor, ...]
    optimiser: Adam


ImitationTarget = tuple[
    Float[Tensor, "R K Z"], Int[Tensor, "R K S T"], Float[Tensor, "R K S"]
]  # latents, sequences, weights


@dataclass(frozen=True)
class EASRates:
    """Constants of a problem: step size of Adam and the weight of the incumbent's likelihood."""

    rate: float
    imitation: float


@dataclass(frozen=True)
class ActiveSearch:
    """Settings that both variants share. None takes the published constant of the problem."""

    USUAL: ClassVar[dict[str, EASRates]] = {}

    passes: int = 8  # attempts on an instance between two updates, over all its copies
    rate: float | None = None
    imitation: float | None = None

    def __post_init__(self) -> None:
        if self.passes < 1 or not (self.rate is None or self.rate >= 0):
            raise InputError("active search needs passes of at least 1 and a rate of at least 0")
        if not (self.imitation is None or self.imitation >= 0):
            raise InputError(f"imitation must be at least 0, not {self.imitation}")

    def rates(self, task: Task) -> EASRates:
        """The settings, or what is usual for the problem."""
        usual = self.USUAL.get(task.problem.name, self.USUAL["tsp"])
        return EASRates(
            usual.rate if self.rate is None else self.rate,
            usual.imitation if self.imitation is None else self.imitation,
        )

    def parameters(self, task: Task) -> tuple[Tensor, ...]:
        """What will be learnt, for every row; at first it changes nothing."""
        raise NotImplementedError

    def tables(self, task: Task, memory: Any, parameters: tuple[Tensor, ...]) -> Any:
        """The tables of some rows with their parameters in place."""
        raise NotImplementedError

    def init(self, task: Task) -> Adaptation:
        """Begin at the centre of the latent space."""
        require_comparable_starts(task)
        return self.init_at_centre(task)

    def init_at_centre(self, task: Task) -> Adaptation:
        """Nothing learnt yet, under the latent in the middle."""
        return self.init_from_latents(task, task.policy.space.centre((task.count, 1), task.device))

    def init_from_latents(self, task: Task, latents: Float[Tensor, "B L Z"]) -> Adaptation:
        """Begin with given latents, which take turns."""
        require_adjustable(task)
        parameters = tuple(p.requires_grad_(True) for p in self.parameters(task))
        return Adaptation(
            task.repeat_for_copies(latents), parameters, Adam(parameters, self.rates(task).rate)
        )

    def step(
        self, task: Task, state: Adaptation
    ) -> tuple[Adaptation, Float[Tensor, "B K Z"], Rollouts]:
        """Sample, then learn from it."""
        latents, rolled = self.sample_and_update(task, state)
        return state, latents[:: task.copies], task.best_of_copies(rolled)

    def sample_and_update(
        self, task: Task, state: Adaptation
    ) -> tuple[Float[Tensor, "R K Z"], Rollouts]:
        """What was sampled before the update, of every copy."""
        tried = max(1, self.passes // task.copies)
        latents = state.latents.repeat(1, -(-tried // state.latents.shape[1]), 1)[:, :tried]
        with torch.no_grad():
            memory = self.tables(task, task.memory, state.parameters)
        rolled = task.rollout_each_copy(latents, 1.0, memory=memory)
        self.learn(task, state, latents, rolled)
        return latents, rolled

    def learn(
        self, task: Task, state: Adaptation, latents: Float[Tensor, "R K Z"], rolled: Rollouts
    ) -> None:
        """One update: REINFORCE on the samples, and the likelihood of the incumbent under the
        latents in use.
        """
        self.update(
            task, state, sample_targets(task, state, latents, rolled, self.rates(task).imitation)
        )

    def update(self, task: Task, state: Adaptation, taught: Iterable[ImitationTarget]) -> None:
        """One update from weighted sequences."""
        for parameter in state.parameters:
            parameter.grad = torch.zeros_like(parameter)
        for latents, actions, weight in taught:
            if actions.shape[3] < 2:
                return  # nothing was decided
            self.add_gradient(task, state, latents, actions, weight)
        state.optimiser.step()

    def add_gradient(
        self,
        task: Task,
        state: Adaptation,
        latents: Float[Tensor, "R K Z"],
        actions: Int[Tensor, "R K S T"],
        weight: Float[Tensor, "R K S"],
    ) -> None:
        """Of the weighted sum of log-probabilities, to the parameters and to nothing else.

        What is too large for a GPU's memory is done in halves, and whatever comes later in pieces
        as small.
        """
        waiting = list(score_chunks(task, actions))[::-1]
        while waiting:
            task.check_deadline()
            chunk = waiting.pop()
            parts = None
            count = chunk.count(actions)
            if count > task.max_scored_sequences:
                waiting.extend(reversed(chunk.halves(actions)))
                continue
            try:
                parts = self.gradient(task, state, chunk, latents, actions, weight)
            except torch.OutOfMemoryError as error:
                if count == 1:
                    words = "the scores of one sequence need more memory than the GPU has left"
                    raise InputError(f"{words}; use --search cmaes or --device cpu") from error
            if parts is None:  # only here has the error let go of the tensors that were in the way
                torch.cuda.empty_cache()
                note_once(
                    "the GPU's memory is too small for the usual chunks of scores; they are halved"
                )
                task.max_scored_sequences = -(-count // 2)
                waiting.append(chunk)
                continue
            for parameter, part in zip(state.parameters, parts, strict=True):
                assert parameter.grad is not None
                parameter.grad[chunk.rows].add_(part)  # `+=` would copy the sum once more

    def gradient(
        self,
        task: Task,
        state: Adaptation,
        chunk: "ScoreChunk",
        latents: Float[Tensor, "R K Z"],
        actions: Int[Tensor, "R K S T"],
        weight: Float[Tensor, "R K S"],
    ) -> tuple[Tensor, ...]:
        """Of one chunk, to the parameters of its rows."""
        rows = chunk.rows
        tried = chunk.tried
        starts = chunk.starts
        with torch.enable_grad():
            own = tuple(p[rows] for p in state.parameters)
            sequences = actions[rows, tried, starts].flatten(1, 2)
            scores = task.score(
                rows, latents[rows, tried], sequences, self.tables(task, task.memory[rows], own)
            )
            loss = (weight[rows, tried, starts].flatten(1) * scores).sum()
        return torch.autograd.grad(loss, own)


def require_adjustable(task: Task) -> None:
    """Refuse what has no tables of a single decoder, which could be adjusted to an instance."""
    require_single_decoder(task)
    if not hasattr(task.policy, "adjusted"):
        others = "use --search cmaes, sgbs or sampling"
        raise InputError(
            f"this search adjusts tables that the policy for {task.problem.name} has not; {others}"
        )


def require_comparable_starts(task: Task) -> None:
    """Refuse what has no starts whose costs active search could compare: all but routing,
    whatever the size.
    """
    require_single_decoder(task)
    if not isinstance(task.memory, Memory):
        why = f"active search compares the starts of an instance, and {task.problem.name} has none"
        raise InputError(f"{why}; use --search sampling-elite, cmaes-elite, sgbs or sampling")


def advantages(task: Task, rolled: Rollouts) -> Float[Tensor, "R K S"]:
    """Cost above the mean over starts, in lengths of the unit square whatever the file's metric;
    sums to a mean.

    Surcharges for vehicles would drown all else. What pulls towards fewer routes is the incumbent.
    """
    batch = task.batch
    cost = rolled.cost
    if isinstance(batch, CVRPBatch):
        batch, cost = replace(batch, vehicles=None, surcharge=None), batch.without_surcharge(cost)
    if getattr(batch, "distance", None) is not None:
        best = rolled.actions[:, 0, :1].long()
        straight = task.problem.cost(replace(batch, distance=None), best)
        cost = cost * (straight / cost[:, 0, :1].clamp(min=1e-9))[..., None]
    return (cost - cost.mean(2, keepdim=True)) / (cost.shape[1] * cost.shape[2])


def sample_targets(
    task: Task,
    state: Adaptation,
    latents: Float[Tensor, "R K Z"],
    rolled: Rollouts,
    imitation: float,
) -> Iterator[ImitationTarget]:
    """The samples, and the incumbent under each latent in use.

    Latents that were tried begin with those in use. Unless a step tries fewer than there are, the
    incumbent is one more start of each: a second batch, of one sequence per latent, would cost as
    many launches as all samples do.
    """
    (_, tried, _), used = latents.shape, state.latents.shape[1]
    best = task.repeat_for_copies(task.incumbents)[:, None, None].expand(
        -1, max(tried, used), -1, -1
    )
    even = torch.full(best.shape[:3], -imitation / used, device=task.device)
    even[:, used:] = 0.0  # the same latents once more
    if used <= tried:
        yield (
            latents,
            torch.cat([rolled.actions, best], 2),
            torch.cat([advantages(task, rolled), even], 2),
        )
    else:
        yield latents, rolled.actions, advantages(task, rolled)
        yield state.latents, best, even


@dataclass(frozen=True)
class ScoreChunk:
    """Sequences that are scored together: some rows, latents and starts of those there are."""

    rows: slice
    tried: slice
    starts: slice

    def sizes(self, actions: Int[Tensor, "R K S T"]) -> tuple[int, ...]:
        """How many rows, latents and starts."""
        ranges = zip((self.rows, self.tried, self.starts), actions.shape[:3], strict=True)
        return tuple(len(range(*some.indices(count))) for some, count in ranges)

    def count(self, actions: Int[Tensor, "R K S T"]) -> int:
        """How many sequences."""
        return math.prod(self.sizes(actions))

    def halves(self, actions: Int[Tensor, "R K S T"]) -> "tuple[ScoreChunk, ScoreChunk]":
        """The same in two parts, cut along the first axis that has more than one."""
        names = ("rows", "tried", "starts")
        axis = next(i for i, size in enumerate(self.sizes(actions)) if size > 1)
        begin, end, _ = getattr(self, names[axis]).indices(actions.shape[axis])
        middle = (begin + end) // 2
        return replace(self, **{names[axis]: slice(begin, middle)}), replace(
            self, **{names[axis]: slice(middle, end)}
        )


def score_chunks(task: Task, actions: Int[Tensor, "R K S T"]) -> Iterator[ScoreChunk]:
    """Sequences whose scores should fit into memory together.

    Those of several rows, part of one latent's starts, or of a row's latents if each has a single
    sequence.
    """
    rows, tried, starts, steps = actions.shape
    each = steps * task.policy.footprint(task.problem.action_count(task.batch), steps)
    room = max(
        1, CHUNK_ELEMENTS[task.device.type] * (4 if task.device.type == "cpu" else 1) // each
    )
    if room >= tried * starts:
        most = room // (tried * starts)
        return (
            ScoreChunk(slice(at, at + most), slice(None), slice(None))
            for at in range(0, rows, most)
        )
    if starts == 1:
        pairs = ((row, at) for row in range(rows) for at in range(0, tried, room))
        return (
            ScoreChunk(slice(row, row + 1), slice(at, at + room), slice(None)) for row, at in pairs
        )
    parts = (
        (row, k, at) for row in range(rows) for k in range(tried) for at in range(0, starts, room)
    )
    return (
        ScoreChunk(slice(row, row + 1), slice(k, k + 1), slice(at, at + room))
        for row, k, at in parts
    )


@dataclass(frozen=True)
class EASEmb(ActiveSearch):
    """Learns what the policy lets a search adjust, which is nothing but tables, so the fused
    engines serve it.

    For routing these are the embeddings in the final product (`PointerDecoder.pointers`), nodes x
    width; glimpse and context keep theirs. For job shops it is the first hidden layer's share of
    each operation.
    """

    USUAL: ClassVar[dict[str, EASRates]] = {
        "tsp": EASRates(0.0032, 0.0058),
        "cvrp": EASRates(0.0049, 0.0063),
    }

    def parameters(self, task: Task) -> tuple[Tensor, ...]:
        """A copy of what the policy lets a search adjust."""
        policy: Any = task.policy
        return (policy.adjustable(task.memory).detach().clone(),)

    def tables(self, task: Task, memory: Any, parameters: tuple[Tensor, ...]) -> Any:
        """Tables made of the copy."""
        policy: Any = task.policy
        return policy.adjusted(memory, parameters[0])


@dataclass(frozen=True)
class EASLay(ActiveSearch):
    """Learns a residual layer on the glimpse, before its output projection.

    The policy folds the value biases out of the glimpse, so the layer sees it without them: a layer
    with another bias. Rates are a tenth of the published ones, whose first update throws the
    shipped policy off (docs/experiments.md).
    """

    USUAL: ClassVar[dict[str, EASRates]] = {
        "tsp": EASRates(0.00032, 0.012),
        "cvrp": EASRates(0.00041, 0.013),
    }
    layered: ClassVar[bool] = True

    def parameters(self, task: Task) -> tuple[Tensor, ...]:
        """Random weights into the layer (Xavier, from the seed), zeros out of it."""
        rows = len(task.starts)
        width = task.policy.architecture.width
        bound = (3.0 / width) ** 0.5
        rng = torch.Generator().manual_seed(task.seed)
        into = bound * (2.0 * torch.rand(width + 1, width, generator=rng) - 1.0).to(task.device)
        into = into.expand(rows, -1, -1)
        zeros = torch.zeros(rows, width + 1, width, device=task.device)
        return (
            into[:, :-1].clone(),
            into[:, -1:].clone(),
            zeros[:, :-1].clone(),
            zeros[:, -1:].clone(),
        )

    def tables(self, task: Task, memory: Memory, parameters: tuple[Tensor, ...]) -> Memory:
        """The same tables and the layer."""
        return replace(memory, layer=ResidualLayer(*parameters))
