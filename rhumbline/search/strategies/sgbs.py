"""Simulation-guided beam search (Choo et al. 2022), alone and in turns with active search.

A node of the beam is the prefix of a sequence together with a known completion. At each depth the
likeliest other actions of every node are completed greedily. The nodes with the cheapest
completions remain. Every completion counts as one trajectory, although its prefix was given; an
attempt has as many trajectories as the instance has starts.

The published search forgets the completions of the first nodes and tries their likeliest action
again. Here they are kept, and one more action is tried.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Prefixes, Rollouts, next_logits
from rhumbline.domain import ActiveSearchRates, SearchDefaults
from rhumbline.errors import InputError
from rhumbline.record import gather_rollouts
from rhumbline.search.strategies.eas import Adaptation, EASLay
from rhumbline.search.strategy import Needs, Step, Strategy
from rhumbline.search.task import Task


@dataclass(frozen=True)
class Beam:
    """The nodes of all rows, with `depth` actions of each sequence fixed.

    A node of infinite cost is a gap.
    """

    cost: Float[Tensor, "R W"]
    actions: Int[Tensor, "R W T"]
    state: Any  # after the fixed actions
    latents: Float[Tensor, "R 1 Z"]
    memory: Any
    width: int
    depth: int = 1

    @property
    def finished(self) -> bool:
        """Return whether nothing is left to decide."""
        length = self.actions.shape[2]
        return self.depth >= length


@dataclass(frozen=True)
class BeamSettings:
    """Settings that both searches share. None takes the default of the problem's domain."""

    width: int | None = None  # nodes in the beam; None: 10 (TSP) or 4 (CVRP), as published
    branch: int | None = None  # actions of each node, the known one included; None: as `width`

    def __post_init__(self) -> None:
        has_width = self.width is None or self.width >= 1
        has_branch = self.branch is None or self.branch >= 2
        if not has_width or not has_branch:
            raise InputError("a beam needs a width of at least 1 and a branch of at least 2")

    def sizes(self, task: Task) -> tuple[int, int]:
        """Return width and branch, or the defaults of the problem."""
        width, branch = task.domain.search.beam
        return self.width or width, self.branch or branch


@dataclass(frozen=True)
class SGBS(BeamSettings, Strategy[int | Beam]):
    """Beam search at the centre of the latent space, with twice the nodes at each repetition."""

    needs: ClassVar[Needs] = Needs(single_decoder=True)

    def init(self, task: Task) -> int | Beam:
        """Return the width of the first beam."""
        width, _ = self.sizes(task)
        return width

    def step(self, task: Task, state: int | Beam) -> Step:
        """Search one depth of the beam, or make the greedy rollouts with which it starts."""
        _, branch = self.sizes(task)
        if isinstance(state, Beam):
            deeper = deepen_beam(task, state, branch)
            if deeper:
                return Step(*deeper)
            width = 2 * state.width
        else:
            width = state
        size = (len(task.starts), 1)
        latents = task.policy.space.centre(size, task.device)
        rolled = task.rollout_each_copy(latents, 0.0)
        beam = start_beam(
            task,
            rolled,
            latents,
            task.memory,
            width,
        )
        return Step(beam, latents[:: task.copies], task.best_of_copies(rolled))


@dataclass(frozen=True)
class SGBSEASState:
    """The state of active search, and the beam under way."""

    adaptation: Adaptation
    beam: Beam | None = None


@dataclass(frozen=True)
class SGBSEAS(BeamSettings, Strategy[SGBSEASState]):
    """In turns: one update of active search with a layer, then a beam from its best samples."""

    needs: ClassVar[Needs] = EASLay.needs

    rate: float | None = None  # None: 0.000815 (TSP) or 0.00041 (CVRP)
    imitation: float | None = None  # None: 0.006 (TSP) or 0.01 (CVRP)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.learning  # refuses wrong settings

    @property
    def learning(self) -> "CombinedEASLay":
        """Return the active search."""
        return CombinedEASLay(passes=1, rate=self.rate, imitation=self.imitation)

    def init(self, task: Task) -> SGBSEASState:
        """Return a layer that changes nothing, and no beam."""
        adaptation = self.learning.init(task)
        return SGBSEASState(adaptation)

    def step(self, task: Task, state: SGBSEASState) -> Step:
        """Search one depth of the beam, or make one update."""
        width, branch = self.sizes(task)
        if state.beam:
            deeper = deepen_beam(task, state.beam, branch)
            if deeper:
                beam, latents, rolled = deeper
                return Step(replace(state, beam=beam), latents, rolled)
        adaptation = state.adaptation
        latents, rolled = self.learning.sample_and_update(task, adaptation)
        parameters = tuple(p.detach() for p in adaptation.parameters)
        memory = self.learning.tables(task, task.memory, parameters)
        beam = start_beam(
            task,
            rolled,
            latents[:, :1],
            memory,
            width,
        )
        following = replace(state, beam=beam)
        original = latents[:: task.copies]
        return Step(following, original, task.best_of_copies(rolled))


@dataclass(frozen=True)
class CombinedEASLay(EASLay):
    """Active search with the constants of the combination.

    The rates are a tenth of the published ones, as in `EASLay`.
    """

    def default_rates(self, defaults: SearchDefaults) -> ActiveSearchRates:
        """Return those of `sgbs-eas`."""
        return defaults.sgbs_eas


def start_beam(
    task: Task, rolled: Rollouts, latents: Float[Tensor, "R 1 Z"], memory: Any, width: int
) -> Beam:
    """Return the nodes of the cheapest rollouts.

    A single node gets a gap beside it, whose children are tried as well. Published results of
    problems with one start were made that way.
    """
    cost = rolled.cost.flatten(1)
    cost, order = cost.sort(dim=1, stable=True)
    cost = cost[:, :width]
    order = order[:, :width]
    if cost.shape[1] < min(width, 2):
        gap = torch.full_like(cost, torch.inf)
        cost = torch.cat([cost, gap], dim=1)
        order = order.repeat(1, 2)
    actions = gather_rollouts(rolled.actions.flatten(1, 2), order)
    first = actions[..., 0].long()
    return Beam(
        cost=cost,
        actions=actions,
        state=task.problem.reset(task.batch, first),
        latents=latents,
        memory=memory,
        width=width,
    )


def deepen_beam(
    task: Task, beam: Beam, branch: int
) -> tuple[Beam, Float[Tensor, "B K Z"], Rollouts] | None:
    """Search the next depth at which a node has a choice; return None if there is none left."""
    problem = task.problem
    while not beam.finished and not problem.finished(beam.state):
        task.check_deadline()
        action, valid = child_actions(task, beam, branch)
        if valid.any():
            return complete_children(task, beam, action, valid)
        known = beam.actions[..., beam.depth].long()
        beam = replace(
            beam,
            state=problem.step(beam.state, known),
            depth=beam.depth + 1,
        )
    return None


def complete_children(
    task: Task, beam: Beam, action: Int[Tensor, "R W G"], valid: Bool[Tensor, "R W G"]
) -> tuple[Beam, Float[Tensor, "B K Z"], Rollouts]:
    """Complete every child greedily, and return the next nodes and what was tried."""
    prefixes = child_prefixes(beam, action)
    cost, actions = task.complete(beam.latents, prefixes, beam.memory)
    is_gap = ~valid.flatten(1)
    known_cost = cost.masked_fill(is_gap, torch.inf)
    deeper = select_nodes(
        task,
        beam,
        known_cost,
        actions,
    )
    rolled = Rollouts(cost[:, None], actions[:, None])
    original = beam.latents[:: task.copies]
    best = task.best_of_copies(rolled)
    return deeper, original, best


def child_actions(
    task: Task, beam: Beam, branch: int
) -> tuple[Int[Tensor, "R W G"], Bool[Tensor, "R W G"]]:
    """Return the likeliest actions of each node besides the known one, and which are real."""
    known = beam.actions[..., beam.depth, None].long()
    logits = next_logits(
        task.problem,
        task.policy,
        beam.latents,
        beam.state,
        beam.memory,
    )
    others = logits.scatter(2, known, -torch.inf)
    score, action = others.sort(
        dim=2,
        descending=True,
        stable=True,
    )
    is_node = beam.cost.isfinite()[..., None]
    valid = score.isfinite() & is_node
    available = int(valid.sum(2).max())
    most = min(branch - 1, available)
    action = torch.where(valid, action, known)
    return action[..., :most], valid[..., :most]


def child_prefixes(beam: Beam, action: Int[Tensor, "R W G"]) -> Prefixes:
    """Return the prefix of every node, followed by each of its actions."""
    children = action.shape[2]
    sequences = beam.actions.long()
    sequences = sequences.repeat_interleave(children, dim=1)
    sequences[..., beam.depth] = action.flatten(1)
    length = torch.full_like(
        sequences[..., 0],
        beam.depth + 1,
    )
    return Prefixes(sequences, length)


def select_nodes(
    task: Task, beam: Beam, cost: Float[Tensor, "R C"], actions: Int[Tensor, "R C T"]
) -> Beam:
    """Return the cheapest of the nodes, one step further along their completions, and children."""
    nodes = beam.cost.shape[1]
    children_each = cost.shape[1] // nodes
    costs = torch.cat([beam.cost, cost], dim=1)
    best, order = costs.sort(dim=1, stable=True)
    best = best[:, : beam.width]
    order = order[:, : beam.width]
    children = actions.to(beam.actions.dtype)
    candidates = torch.cat([beam.actions, children], dim=1)
    kept = gather_rollouts(candidates, order)
    parent = torch.where(
        order < nodes,
        order,
        (order - nodes) // children_each,
    )
    action = kept[..., beam.depth]
    return replace(
        beam,
        cost=best,
        actions=kept,
        state=task.problem.step(beam.state.select(parent), action.long()),
        depth=beam.depth + 1,
    )
