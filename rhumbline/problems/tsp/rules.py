"""Rules of the TSP: batches of instances and rollouts in progress on the device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.problems.kernel_traits import GraphUse, RolloutKernel
from rhumbline.problems.metrics import longer_side, scale_to_unit_square
from rhumbline.problems.nodes import take_nodes
from rhumbline.problems.tsp.instance import Tour, TSPInstance
from rhumbline.problems.tsp.local_search import improve_tours
from rhumbline.record import Record


@dataclass(frozen=True)
class TSPBatch(Record):
    """Instances of one size on a device."""

    xy: Float[Tensor, "B N 2"]  # in the unit square, one scale for both axes
    key: Int[Tensor, "B"]  # instance id: selects its random numbers, whatever its place
    scale: Float[Tensor, "B"]  # costs times this are in the instance's own units
    distance: Float[Tensor, "B N N"] | None = None  # the file's metric; None: Euclidean from `xy`

    @property
    def has_euclidean_cost(self) -> bool:
        """Return whether a cost is the Euclidean length in `xy`, which all kernels support."""
        return self.distance is None


@dataclass(frozen=True)
class TSPState(Record):
    """Rollouts in progress."""

    first: Int[Tensor, "B R"]
    last: Int[Tensor, "B R"]
    visited: Bool[Tensor, "B R N"]
    count: int  # cities visited so far, the same in all rollouts


class TSP:
    """The rules of the TSP for the rollout engines. Every method is pure."""

    name = solves = "tsp"
    rollout_kernel: RolloutKernel | None = "tours"
    cuda_graph: GraphUse | None = None
    nouns: tuple[str, str] = ("city", "cities")
    size_unit = "cities"
    max_size = 1000
    default_size: int | str = 100
    all_starts_size = 200  # up to this size an attempt starts one tour in each city
    max_starts = 100  # starts of an attempt in larger instances

    def sample(self, count: int, size: int, rng: torch.Generator) -> TSPBatch:
        """Return instances with uniform random cities, on the generator's device."""
        device = rng.device
        xy = torch.rand(count, size, 2, generator=rng, device=device)
        key = torch.arange(count, device=device)
        scale = torch.ones(count, device=device)
        return TSPBatch(xy, key, scale)

    def collate(self, instances: Sequence[TSPInstance]) -> TSPBatch:
        """Return instances of one size as a batch on the CPU, scaled for the policy."""
        squares: list[np.ndarray] = []
        keys: list[int] = []
        for instance in instances:
            square = scale_to_unit_square(instance.planar_xy).astype(np.float32)
            squares.append(square)
            keys.append(crc32(np.ascontiguousarray(square).tobytes()))
        xy = torch.from_numpy(np.stack(squares))
        key = torch.tensor(keys, dtype=torch.int64)
        if all(instance.metric == "EXACT_2D" for instance in instances):
            sides = [longer_side(instance.planar_xy) for instance in instances]
            return TSPBatch(xy, key, scale=torch.tensor(sides))
        distances = [instance.distances for instance in instances]
        distance = torch.from_numpy(np.stack(distances))
        scale = torch.ones(len(instances))
        return TSPBatch(xy, key, scale, distance)

    def item_count(self, instance: TSPInstance) -> int:
        """Return the number of cities."""
        return instance.size

    def action_count(self, batch: TSPBatch) -> int:
        """Return the number of nodes."""
        return batch.xy.shape[1]

    def starts(self, batch: TSPBatch) -> Int[Tensor, "B S"]:
        """Return every city; in large instances `max_starts`, evenly over the file's order."""
        count, size = batch.xy.shape[:2]
        starts = self.max_starts
        if size <= self.all_starts_size:
            starts = size
        index = torch.arange(starts, device=batch.xy.device)
        scaled = index * size
        city = scaled // starts
        return city.expand(count, starts)

    def reset(self, batch: TSPBatch, starts: Int[Tensor, "B R"]) -> TSPState:
        """Return the state in which each rollout is in its start city."""
        size = batch.xy.shape[1]
        visited = torch.zeros(
            *starts.shape,
            size,
            dtype=torch.bool,
            device=starts.device,
        )
        visited.scatter_(2, starts[..., None], True)
        return TSPState(first=starts, last=starts, visited=visited, count=1)

    def mask(self, state: TSPState) -> Bool[Tensor, "B R N"]:
        """Return True where a city may be visited next."""
        return ~state.visited

    def step(self, state: TSPState, action: Int[Tensor, "B R"]) -> TSPState:
        """Return the state after moving to `action`; a finished tour stays as it is."""
        if self.finished(state):
            return state
        city = action[..., None]
        visited = state.visited.scatter(2, city, True)
        count = state.count + 1
        return replace(state, last=action, visited=visited, count=count)

    def finished(self, state: TSPState) -> bool:
        """Return whether every rollout is complete."""
        size = state.visited.shape[2]
        return state.count >= size

    def horizon(self, batch: TSPBatch) -> int:
        """Return the length of an action sequence, the start included."""
        return batch.xy.shape[1]

    def replay(self, batch: TSPBatch, actions: Int[Tensor, "B R T"]) -> TSPState:
        """Return the states before decisions 1..T-1 of tours, as a batch of B x R(T-1) rollouts."""
        count, rollouts, size = actions.shape
        decisions = size - 1
        order = torch.arange(size, device=actions.device)
        position = torch.empty_like(actions)
        position.scatter_(2, actions, order.expand_as(actions))
        visited = position.unsqueeze(2) < order[1:, None]  # [B, R, T-1, N]
        first = actions[..., :1].expand(-1, -1, decisions)
        last = actions[..., :-1]
        flat = (count, rollouts * decisions)
        return TSPState(
            first=first.reshape(flat),
            last=last.reshape(flat),
            visited=visited.reshape(*flat, size),
            count=0,
        )

    def cost(self, batch: TSPBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """Return the length of each closed tour.

        It is in the file's metric if the batch has it, else in the unit square.
        """
        following = actions.roll(-1, dims=2)
        if batch.distance is None:
            here = take_nodes(batch.xy, actions)
            there = take_nodes(batch.xy, following)
            lengths = (here - there).norm(dim=-1)
            return lengths.sum(-1)
        size = batch.distance.shape[1]
        edge = actions * size + following
        distances = batch.distance.flatten(1)
        lengths = distances.gather(1, edge.flatten(1))
        return lengths.view(actions.shape).sum(-1)

    def outcome(
        self, batch: TSPBatch, state: TSPState, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """Return the cost of sequences; their last state does not have it."""
        return self.cost(batch, actions)

    def views(
        self, actions: Int[Tensor, "B T"], uniforms: Float[Tensor, "B V 2"]
    ) -> Int[Tensor, "B V T"]:
        """Return the same tours from other start cities and in either direction.

        The uniforms select both.
        """
        size = actions.shape[1]
        views = uniforms.shape[1]
        start, orientation = uniforms.split(1, dim=2)
        last = size - 1
        offset = (start * size).long().clamp(max=last)
        is_forwards = orientation < 0.5
        direction = 2 * is_forwards.long() - 1
        steps = torch.arange(size, device=actions.device)
        index = (offset + direction * steps) % size
        tours = actions[:, None].expand(-1, views, -1)
        return tours.gather(2, index)

    def improve(
        self, batch: TSPBatch, actions: Int[Tensor, "B R T"], rounds: int
    ) -> Int[Tensor, "B R T"]:
        """Return tours after up to `rounds` moves of 2-opt or Or-opt each, in the unit square."""
        rollouts = actions.shape[1]
        repeated_xy = batch.xy.repeat_interleave(rollouts, dim=0)
        tours = actions.flatten(0, 1)
        improved = improve_tours(repeated_xy, tours, rounds)
        return improved.view(actions.shape)

    def decode(self, instance: TSPInstance, actions: Sequence[int]) -> Tour:
        """Return the tour of an action sequence."""
        return Tour(tuple(int(action) for action in actions))
