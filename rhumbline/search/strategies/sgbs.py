"""Simulation-guided beam search, alone and in turns with active search (spec 4.6).

A node of the beam is the beginning of a sequence together with a known end. At each depth the
likeliest other actions of every node are completed greedily, and the nodes with the cheapest known
ends go on. Every completion counts as one trajectory, although part of it was given; as many as
there are starts make an attempt. The published search forgets the ends of the first nodes and tries
their likeliest action again; here they are kept, and one more action is tried.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from rhumbline.decoding import Prefixes, Rollouts, next_logits
from rhumbline.errors import InputError
from rhumbline.search.strategies.eas import Adaptation, EASLay, EASRates
from rhumbline.search.strategy import require_single_decoder
from rhumbline.search.task import Task


@dataclass(frozen=True)
class Beam:
    """Nodes of all rows; `depth` actions of each sequence are settled. A node of infinite cost
    is a gap.
    """

    cost: Float[Tensor, "R W"]
    actions: Int[Tensor, "R W T"]
    state: Any  # after the settled actions
    latents: Float[Tensor, "R 1 Z"]
    memory: Any
    width: int
    depth: int = 1

    @property
    def finished(self) -> bool:
        """Whether nothing is left to decide."""
        return self.depth >= self.actions.shape[2]


@dataclass(frozen=True)
class BeamSettings:
    """Settings that both searches share."""

    USUAL: ClassVar[dict[str, tuple[int, int]]] = {"tsp": (10, 10), "cvrp": (4, 4)}  # as published

    width: int | None = None  # nodes in the beam; None: 10 (tsp) or 4 (cvrp)
    branch: int | None = (
        None  # actions of each node, the one already known included; None: the same numbers
    )

    def __post_init__(self) -> None:
        if not (self.width is None or self.width >= 1) or not (
            self.branch is None or self.branch >= 2
        ):
            raise InputError("a beam needs a width of at least 1 and a branch of at least 2")

    def sizes(self, task: Task) -> tuple[int, int]:
        """Width and branch, or what is usual for the problem."""
        require_single_decoder(task)
        width, branch = self.USUAL.get(task.problem.name, self.USUAL["cvrp"])
        return self.width or width, self.branch or branch


@dataclass(frozen=True)
class SGBS(BeamSettings):
    """Beam search at the centre of the latent space. With budget left it begins again with twice
    the nodes.
    """

    def init(self, task: Task) -> int | Beam:
        """The width of the first beam."""
        return self.sizes(task)[0]

    def step(
        self, task: Task, state: int | Beam
    ) -> tuple[int | Beam, Float[Tensor, "B K Z"], Rollouts]:
        """One depth of the beam, or the greedy rollouts with which it begins."""
        deeper = deepen_beam(task, state, self.sizes(task)[1]) if isinstance(state, Beam) else None
        if deeper:
            return deeper
        width = 2 * state.width if isinstance(state, Beam) else state
        latents = task.policy.space.centre((len(task.starts), 1), task.device)
        rolled = task.rollout_each_copy(latents, 0.0)
        return (
            start_beam(task, rolled, latents, task.memory, width),
            latents[:: task.copies],
            task.best_of_copies(rolled),
        )


@dataclass(frozen=True)
class SGBSEASState:
    """State of the combined search."""

    adaptation: Adaptation
    beam: Beam | None = None


@dataclass(frozen=True)
class SGBSEAS(BeamSettings):
    """In turns: one update of active search with a layer, then a beam from the best starts of
    what it sampled.
    """

    layered: ClassVar[bool] = EASLay.layered

    rate: float | None = None  # None: 0.000815 (tsp) or 0.00041 (cvrp)
    imitation: float | None = None  # None: 0.006 (tsp) or 0.01 (cvrp)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.learning  # which refuses wrong settings

    @property
    def learning(self) -> "CombinedEASLay":
        """The active search."""
        return CombinedEASLay(passes=1, rate=self.rate, imitation=self.imitation)

    def init(self, task: Task) -> SGBSEASState:
        """A layer that changes nothing, and no beam."""
        self.sizes(task)
        return SGBSEASState(self.learning.init(task))

    def step(
        self, task: Task, state: SGBSEASState
    ) -> tuple[SGBSEASState, Float[Tensor, "B K Z"], Rollouts]:
        """One depth of the beam, or one update."""
        width, branch = self.sizes(task)
        deeper = deepen_beam(task, state.beam, branch) if state.beam else None
        if deeper:
            return replace(state, beam=deeper[0]), deeper[1], deeper[2]
        latents, rolled = self.learning.sample_and_update(task, state.adaptation)
        memory = self.learning.tables(
            task, task.memory, tuple(p.detach() for p in state.adaptation.parameters)
        )
        beam = start_beam(task, rolled, latents[:, :1], memory, width)
        return replace(state, beam=beam), latents[:: task.copies], task.best_of_copies(rolled)


@dataclass(frozen=True)
class CombinedEASLay(EASLay):
    """Active search with the constants of the combination; rates are a tenth of the published
    ones, as in `EASLay`.
    """

    USUAL: ClassVar[dict[str, EASRates]] = {
        "tsp": EASRates(0.000815, 0.006),
        "cvrp": EASRates(0.00041, 0.01),
    }


def start_beam(
    task: Task, rolled: Rollouts, latents: Float[Tensor, "R 1 Z"], memory: Any, width: int
) -> Beam:
    """The nodes of the cheapest rollouts; beside a single one a gap, lest its state look like
    what nodes share.
    """
    cost, order = (x[:, :width] for x in rolled.cost.flatten(1).sort(dim=1, stable=True))
    if cost.shape[1] < min(width, 2):
        cost = torch.cat([cost, torch.full_like(cost, torch.inf)], dim=1)
        order = order.repeat(1, 2)
    actions = gather_nodes(rolled.actions.flatten(1, 2), order)
    state = task.problem.reset(task.batch, actions[..., 0].long())
    return Beam(cost, actions, state, latents, memory, width)


def gather_nodes(
    x: Shaped[Tensor, "R W *rest"], order: Int[Tensor, "R w"]
) -> Shaped[Tensor, "R w *rest"]:
    """Rows in another order."""
    index = order.view(*order.shape, *[1] * (x.ndim - 2)).expand(-1, -1, *x.shape[2:])
    return x.gather(1, index)


def advance_nodes(
    task: Task, state: Any, order: Int[Tensor, "R w"], action: Int[Tensor, "R w"]
) -> Any:
    """The states of some nodes after one more action; what all nodes of a row have in common
    stays as it is.
    """
    return task.problem.step(
        state.map(lambda x: x if x.shape[1] == 1 else gather_nodes(x, order)), action.long()
    )


def deepen_beam(
    task: Task, beam: Beam, branch: int
) -> tuple[Beam, Float[Tensor, "B K Z"], Rollouts] | None:
    """The beam after the next depth at which a node has a choice; None if there is none any
    more.
    """
    while not beam.finished and not task.problem.finished(beam.state):
        action, valid = child_actions(task, beam, branch)
        if valid.any():
            cost, actions = task.complete(beam.latents, child_prefixes(beam, action), beam.memory)
            deeper = select_nodes(
                task, beam, cost.masked_fill(~valid.flatten(1), torch.inf), actions
            )
            return (
                deeper,
                beam.latents[:: task.copies],
                task.best_of_copies(Rollouts(cost[:, None], actions[:, None])),
            )
        state = task.problem.step(beam.state, beam.actions[..., beam.depth].long())
        beam = replace(beam, state=state, depth=beam.depth + 1)
    return None


def child_actions(
    task: Task, beam: Beam, branch: int
) -> tuple[Int[Tensor, "R W G"], Bool[Tensor, "R W G"]]:
    """The likeliest actions of each node besides that of its known end, and which of them are
    real.
    """
    known = beam.actions[..., beam.depth].long()[..., None]
    logits = next_logits(task.problem, task.policy, beam.latents, beam.state, beam.memory)
    score, action = logits.scatter(2, known, -torch.inf).sort(dim=2, descending=True, stable=True)
    valid = score.isfinite() & beam.cost.isfinite()[..., None]
    most = min(branch - 1, int(valid.sum(2).max()))
    return torch.where(valid, action, known)[..., :most], valid[..., :most]


def child_prefixes(beam: Beam, action: Int[Tensor, "R W G"]) -> Prefixes:
    """Every node with every one of its actions."""
    sequences = beam.actions.long().repeat_interleave(action.shape[2], dim=1)
    sequences[..., beam.depth] = action.flatten(1)
    return Prefixes(sequences, torch.full_like(sequences[..., 0], beam.depth + 1))


def select_nodes(
    task: Task, beam: Beam, cost: Float[Tensor, "R C"], actions: Int[Tensor, "R C T"]
) -> Beam:
    """The cheapest of the nodes, carried on along their known ends, and of their children."""
    nodes = beam.cost.shape[1]
    each = cost.shape[1] // beam.cost.shape[1]
    best, order = torch.cat([beam.cost, cost], dim=1).sort(dim=1, stable=True)
    best = best[:, : beam.width]
    order = order[:, : beam.width]
    kept = gather_nodes(torch.cat([beam.actions, actions.to(beam.actions.dtype)], dim=1), order)
    parent = torch.where(order < nodes, order, (order - nodes) // each)
    state = advance_nodes(task, beam.state, parent, kept[..., beam.depth])
    return replace(beam, cost=best, actions=kept, state=state, depth=beam.depth + 1)
