"""Instances and trips on the host, and the rules over a batch of instances and rollouts.

Action 0 ends a trip. It is allowed only when no other customer can be reached in time: no prize is
negative, so some best trip is among those.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from rhumbline.errors import Infeasible
from rhumbline.problems.metrics import euclidean_distances, scale_to_unit_square
from rhumbline.problems.stepwise import NodeRules
from rhumbline.record import PER_INSTANCE, Record

SLACK = 1e-12  # of the limit, for sums of distances
HOST_SLACK = 1e-9  # what is feasible on the device is feasible on the host
MAX_PRIZE, LIMIT = 100, 2.0  # of random instances in the unit square (Kool et al. 2019)


@dataclass(frozen=True, eq=False)
class OPInstance:
    """Places with prizes, the depot first, and the greatest length of a trip."""

    problem = "op"
    has_integer_costs = True

    name: str
    xy: np.ndarray  # [N, 2]
    prizes: tuple[int, ...]  # of each node; 0 for the depot
    limit: float
    best_known: float | None = None  # the negative prize

    @property
    def size(self) -> int:
        return len(self.xy)

    @property
    def details(self) -> str:
        return f"trips of at most {self.limit:g}"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @cached_property
    def distances(self) -> np.ndarray:
        return euclidean_distances(self.xy)


@dataclass(frozen=True)
class Trip:
    """Customers 1..N-1 in visiting order; the trip begins and ends at the depot."""

    customers: tuple[int, ...]

    def check(self, instance: OPInstance) -> None:
        unknown = set(self.customers) - set(range(1, instance.size))
        if unknown or len(set(self.customers)) < len(self.customers):
            raise Infeasible(f"{instance.name}: a customer is unknown or visited twice")
        walk = [0, *self.customers, 0]
        length = instance.distances[walk[:-1], walk[1:]].sum()
        if length > instance.limit * (1 + HOST_SLACK):
            found = f"the trip has length {length:g}, the limit is {instance.limit:g}"
            raise Infeasible(f"{instance.name}: {found}")

    def cost(self, instance: OPInstance) -> int:
        """Return the negative prize: lower is better."""
        return -sum(instance.prizes[customer] for customer in self.customers)

    def to_file_numbers(self, instance: OPInstance) -> list[int]:
        return list(self.customers)


@dataclass(frozen=True)
class OPBatch(Record):
    xy: Tensor  # [B, N, 2], in the unit square
    legs: Tensor  # [B, N, N], distances as shares of the limit, float64
    prize: Tensor  # [B, N], as shares of the largest one
    key: Tensor  # [B]
    scale: Tensor  # [B], the largest prize
    limit: Tensor  # [B], in the instance's own units


@dataclass(frozen=True)
class OPState(Record):
    last: Tensor  # [B, R]
    left: Tensor  # [B, R], share of the limit
    visited: Tensor  # [B, R, N]
    legs: Tensor = field(metadata=PER_INSTANCE)  # [B, N, N]


class Orienteering(NodeRules):
    name = solves = "op"
    nouns = ("place", "places")
    size_unit = "places"
    max_size = 1000
    default_size = 21

    def sample(self, count: int, size: int, rng: torch.Generator) -> OPBatch:
        xy = torch.rand(count, size, 2, generator=rng, device=rng.device)
        prize = torch.randint(1, MAX_PRIZE + 1, xy.shape[:2], generator=rng, device=rng.device)
        prize[:, 0] = 0
        scale = prize.amax(1).clamp(min=1).float()
        key = torch.arange(count, device=rng.device)
        legs = torch.cdist(xy.double(), xy.double()) / LIMIT
        return OPBatch(xy, legs, prize / scale[:, None], key, scale, torch.full_like(scale, LIMIT))

    def collate(self, instances: Sequence[OPInstance]) -> OPBatch:
        squares = [scale_to_unit_square(i.xy).astype(np.float32) for i in instances]
        prizes = torch.tensor([i.prizes for i in instances])
        scale = prizes.amax(1).clamp(min=1).float()
        contents = [repr((i.xy.tolist(), i.prizes, i.limit)) for i in instances]
        return OPBatch(
            xy=torch.from_numpy(np.stack(squares)),
            legs=torch.from_numpy(np.stack([i.distances / i.limit for i in instances])),
            prize=prizes / scale[:, None],
            key=torch.tensor([crc32(text.encode()) for text in contents]),
            scale=scale,
            limit=torch.tensor([i.limit for i in instances]),
        )

    def starts(self, batch: OPBatch) -> Tensor:
        """Return every customer that can be reached, repeated to one for each customer."""
        reachable = 2 * batch.legs[:, 0] <= 1 + SLACK
        reachable[:, 0] = False
        order = reachable.int().argsort(dim=1, descending=True, stable=True)
        count = reachable.sum(1, keepdim=True)
        place = torch.arange(max(1, batch.xy.shape[1] - 1), device=count.device)
        starts = order.gather(1, place % count.clamp(min=1))
        return torch.where(count > 0, starts, 0)

    def reset(self, batch: OPBatch, starts: Tensor) -> OPState:
        shape = (*starts.shape, batch.xy.shape[1])
        unvisited = torch.zeros(shape, dtype=torch.bool, device=starts.device)
        visited = unvisited.scatter(2, starts[..., None], True)
        left = 1.0 - batch.legs[:, 0].gather(1, starts)
        return OPState(starts, left, visited, batch.legs)

    def distances(self, state: OPState) -> Tensor:
        """Return the distance from each rollout's node to all others, [B, R, N]."""
        index = state.last[..., None].expand(state.visited.shape)
        return state.legs.gather(1, index)

    def mask(self, state: OPState) -> Tensor:
        onwards = self.distances(state) + state.legs[:, :1]
        allowed = ~state.visited & (onwards <= state.left[..., None] + SLACK)
        allowed &= (state.last > 0)[..., None]
        allowed[..., 0] = ~allowed[..., 1:].any(-1)
        return allowed

    def step(self, state: OPState, action: Tensor) -> OPState:
        is_open = state.last > 0  # at the depot a trip is over
        action = action * is_open
        leg = self.distances(state).gather(2, action[..., None])[..., 0]
        visited = state.visited.scatter(2, action[..., None], True)
        visited = torch.where(is_open[..., None], visited, state.visited)
        return replace(state, last=action, left=state.left - leg, visited=visited)

    def finished(self, state: OPState) -> bool:
        return not bool(state.last.any())

    def cost(self, batch: OPBatch, actions: Tensor) -> Tensor:
        prizes = batch.prize[:, None].expand(-1, actions.shape[1], -1)
        return -prizes.gather(2, actions).sum(-1)

    def decode(self, instance: OPInstance, actions: Sequence[int]) -> Trip:
        return Trip(tuple(int(action) for action in actions if action))
