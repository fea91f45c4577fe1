"""The symmetric travelling salesman problem: exact instances on the host, batches and rollouts
on the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.problems.metrics import longer_side, scale_to_unit_square
from rhumbline.problems.nodes import take_nodes
from rhumbline.problems.tsp.instance import MAX_CITIES, Tour, TSPInstance
from rhumbline.problems.tsp.local_search import improve_tours
from rhumbline.record import Record


@dataclass(frozen=True)
class TSPBatch(Record):
    """Instances of one size on a device."""

    xy: Float[Tensor, "B N 2"]  # in the unit square, one scale for both axes
    key: Int[
        Tensor, "B"
    ]  # names the instance to the decoding noise, whatever its place in the batch
    scale: Float[Tensor, "B"]  # costs times this are in the instance's own units
    distance: Float[Tensor, "B N N"] | None = (
        None  # the file's metric; None means straight lines between `xy`
    )

    @property
    def has_euclidean_cost(self) -> bool:
        """Whether a cost is the length of straight lines, as kernels have it."""
        return self.distance is None


@dataclass(frozen=True)
class TSPState(Record):
    """Rollouts in progress."""

    first: Int[Tensor, "B R"]
    last: Int[Tensor, "B R"]
    visited: Bool[Tensor, "B R N"]
    count: int  # cities visited so far, the same in all rollouts


class TSP:
    """The problem as the rollout engines see it. Every method is pure."""

    name = solves = "tsp"
    nouns: tuple[str, str] = ("city", "cities")
    size_unit = "cities"
    max_size = MAX_CITIES
    default_size: int | str = 100
    every_city_starts = 200  # up to this size an attempt has one tour from each city
    most_starts = 100  # beyond it, this many

    def sample(self, count: int, size: int, rng: torch.Generator) -> TSPBatch:
        """Uniform random cities in the unit square, on the generator's device."""
        xy = torch.rand(count, size, 2, generator=rng, device=rng.device)
        return TSPBatch(
            xy, torch.arange(count, device=rng.device), torch.ones(count, device=rng.device)
        )

    def collate(self, instances: Sequence[TSPInstance]) -> TSPBatch:
        """Instances of one size as a batch on the CPU, scaled for the policy."""
        xy = np.stack([scale_to_unit_square(i.planar_xy) for i in instances]).astype(np.float32)
        key = torch.tensor(
            [crc32(np.ascontiguousarray(x).tobytes()) for x in xy], dtype=torch.int64
        )
        if all(i.metric == "EXACT_2D" for i in instances):
            scale = torch.tensor([longer_side(i.planar_xy) for i in instances])
            return TSPBatch(torch.from_numpy(xy), key, scale)
        distance = torch.from_numpy(np.stack([i.distances for i in instances]))
        return TSPBatch(torch.from_numpy(xy), key, torch.ones(len(instances)), distance)

    def item_count(self, instance: TSPInstance) -> int:
        """How many there are to visit."""
        return instance.size

    def action_count(self, batch: TSPBatch) -> int:
        """How many nodes there are."""
        return batch.xy.shape[1]

    def starts(self, batch: TSPBatch) -> Int[Tensor, "B S"]:
        """Every city; in large instances `most_starts` of them, spread evenly over the file's
        order.
        """
        count, size = batch.xy.shape[:2]
        chosen = size if size <= self.every_city_starts else self.most_starts
        index = torch.arange(chosen, device=batch.xy.device) * size // chosen
        return index.expand(count, chosen)

    def reset(self, batch: TSPBatch, starts: Int[Tensor, "B R"]) -> TSPState:
        """Each rollout stands in its start city."""
        count, size = batch.xy.shape[:2]
        visited = torch.zeros(count, starts.shape[1], size, dtype=torch.bool, device=starts.device)
        return TSPState(starts, starts, visited.scatter_(2, starts[..., None], True), 1)

    def mask(self, state: TSPState) -> Bool[Tensor, "B R N"]:
        """True where a city may be visited next."""
        return ~state.visited

    def step(self, state: TSPState, action: Int[Tensor, "B R"]) -> TSPState:
        """The state after moving to `action`; a finished tour stays as it is."""
        if self.finished(state):
            return state
        visited = state.visited.scatter(2, action[..., None], True)
        return replace(state, last=action, visited=visited, count=state.count + 1)

    def finished(self, state: TSPState) -> bool:
        """Whether every rollout is complete."""
        return state.count >= state.visited.shape[2]

    def horizon(self, batch: TSPBatch) -> int:
        """Length of an action sequence, the start included."""
        return batch.xy.shape[1]

    def replay(self, batch: TSPBatch, actions: Int[Tensor, "B R T"]) -> TSPState:
        """The states before decisions 1..T-1 of given tours, all steps at once as a batch of B x
        R(T-1).
        """
        count, rollouts, size = actions.shape
        order = torch.arange(size, device=actions.device)
        position = torch.empty_like(actions).scatter_(2, actions, order.expand_as(actions))
        visited = position[:, :, None, :] < order[1:, None]  # [B, R, T-1, N]
        first = actions[:, :, :1].expand(-1, -1, size - 1)
        flat = (count, rollouts * (size - 1))
        return TSPState(
            first.reshape(flat), actions[:, :, :-1].reshape(flat), visited.reshape(*flat, size), 0
        )

    def cost(self, batch: TSPBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """Length of each closed tour: in the file's metric if the batch knows it, else in the
        unit square.
        """
        following = actions.roll(-1, dims=2)
        if batch.distance is None:
            return (
                (take_nodes(batch.xy, actions) - take_nodes(batch.xy, following))
                .norm(dim=-1)
                .sum(-1)
            )
        size = batch.distance.shape[1]
        edges = batch.distance.flatten(1).gather(1, (actions * size + following).flatten(1))
        return edges.view(actions.shape).sum(-1)

    def outcome(
        self, batch: TSPBatch, state: TSPState, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """The same; the last state does not know it."""
        return self.cost(batch, actions)

    def views(
        self, actions: Int[Tensor, "B T"], uniforms: Float[Tensor, "B V 2"]
    ) -> Int[Tensor, "B V T"]:
        """The same tours from other start cities and in either direction, as the uniforms say."""
        size = actions.shape[1]
        offset = (uniforms[..., :1] * size).long().clamp(max=size - 1)
        direction = 2 * (uniforms[..., 1:] < 0.5).long() - 1
        index = (offset + direction * torch.arange(size, device=actions.device)) % size
        return actions[:, None].expand(-1, uniforms.shape[1], -1).gather(2, index)

    def improve(
        self, batch: TSPBatch, actions: Int[Tensor, "B R T"], rounds: int
    ) -> Int[Tensor, "B R T"]:
        """Tours after up to `rounds` moves of 2-opt or Or-opt each, measured in the unit square."""
        many = batch.xy.repeat_interleave(actions.shape[1], dim=0)
        return improve_tours(many, actions.flatten(0, 1), rounds).view(actions.shape)

    def decode(self, instance: TSPInstance, actions: Sequence[int]) -> Tour:
        """The tour that an action sequence spells."""
        return Tour(tuple(int(a) for a in actions))
