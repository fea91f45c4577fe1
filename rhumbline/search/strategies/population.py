"""Search with a population of decoders, as Poppy does: every member, again and again."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.policies import Members
from rhumbline.search.strategy import Needs, Step, Strategy, check_settings
from rhumbline.search.task import Task


@dataclass(frozen=True)
class PopulationState:
    """The members that are tried next, and the starts of each if they are restricted."""

    latents: Float[Tensor, "B K 1"]
    starts: Int[Tensor, "B K S"] | None = None


@dataclass(frozen=True)
class Population(Strategy[PopulationState]):
    """All members from all starts. With `pairs`, later passes use the best (member, start) pairs.

    There are as many pairs as members. Each pair is sampled once for every start of the instance,
    so that a pass takes the same number of attempts either way.
    """

    needs: ClassVar[Needs] = Needs(population=True)

    pairs: bool = False  # only the best pairs of member and start continue after the first pass
    temperature: float = 1.0  # of the sampling

    def __post_init__(self) -> None:
        check_settings(1, self.temperature)

    def init(self, task: Task) -> PopulationState:
        """Return the state in which all members are tried from all starts."""
        space = task.policy.space
        assert isinstance(space, Members)
        first = space.centre((task.count, space.count), task.device)
        numbers = first.new_tensor(range(space.count))
        return PopulationState(first + numbers[:, None])

    def step(self, task: Task, state: PopulationState) -> Step:
        """Try every member, or every pair, once."""
        rolled = task.rollout(
            state.latents,
            self.temperature,
            state.starts,
        )
        following = state
        if self.pairs and state.starts is None:
            following = best_pairs(task, rolled)
        return Step(following, state.latents, rolled)


def best_pairs(task: Task, rolled: Rollouts) -> PopulationState:
    """Return the cheapest (member, start) pairs of a pass over all of them."""
    members, starts = rolled.cost.shape[1:]
    cost = rolled.cost.flatten(1)
    best = cost.topk(
        members,
        dim=1,
        largest=False,
        sorted=True,
    )
    index = best.indices
    original_starts = task.starts[:: task.copies]
    start = original_starts.gather(1, index % starts)
    member = (index // starts).float()
    return PopulationState(
        latents=member[..., None],
        starts=start[..., None].expand(-1, -1, starts),
    )
