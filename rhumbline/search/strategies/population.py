"""Poppy's search: every member of a population, again and again (spec 4.2)."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.policies import Members
from rhumbline.search.strategy import check_settings
from rhumbline.search.task import Task


@dataclass(frozen=True)
class PopulationState:
    """Who is tried next: a member each, and its starts where it has its own."""

    latents: Float[Tensor, "B K 1"]
    starts: Int[Tensor, "B K S"] | None = None


@dataclass(frozen=True)
class Population:
    """All members from all starts. With `pairs`, after the first pass only the best (member, start)
    pairs go on.

    As many pairs as there are members are kept, each sampled once for every start there is: equal
    attempts.
    """

    pairs: bool = False
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_settings(1, self.temperature)

    def init(self, task: Task) -> PopulationState:
        """All members."""
        space = task.policy.space
        if not isinstance(space, Members):
            known = "tsp100-poppy is one for tours (--policy), and docs/search.md says how one is trained"
            raise InputError(f"this policy is not a population of decoders; {known}")
        members = space.centre((task.count, space.count), task.device)
        return PopulationState(members + members.new_tensor(range(space.count))[:, None])

    def step(
        self, task: Task, state: PopulationState
    ) -> tuple[PopulationState, Float[Tensor, "B K Z"], Rollouts]:
        """One pass."""
        rolled = task.rollout(state.latents, self.temperature, state.starts)
        following = best_pairs(task, rolled) if self.pairs and state.starts is None else state
        return following, state.latents, rolled


def best_pairs(task: Task, rolled: Rollouts) -> PopulationState:
    """The cheapest (member, start) pairs of a pass over all of them."""
    members, starts = rolled.cost.shape[1:]
    index = rolled.cost.flatten(1).topk(members, dim=1, largest=False, sorted=True).indices
    start = task.starts[:: task.copies].gather(1, index % starts)
    return PopulationState(
        (index // starts).float()[..., None], start[..., None].expand(-1, -1, starts)
    )
