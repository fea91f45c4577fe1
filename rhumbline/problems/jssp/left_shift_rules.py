"""Rules of the JSSP for L2D (Zhang et al. 2020): any unfinished job may be dispatched next.

An operation takes the earliest gap on its machine in which it fits, even before operations that
were dispatched earlier. A placed operation never moves. An action is a job, as in the standard
rules. Those only append operations, so the same actions may give another schedule there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.problems.jssp.instance import JSSPInstance, Schedule
from rhumbline.problems.jssp.rules import (
    BEYOND_HORIZON,
    JobShopRules,
    JSSPBatch,
    allow_unfinished,
    stack_fields,
    take_cells,
    take_operations,
)
from rhumbline.problems.kernel_traits import GraphUse, RolloutKernel
from rhumbline.record import PER_INSTANCE, Record


@dataclass(frozen=True)
class LeftShiftState(Record):
    """Partial schedules. An operation is a cell of the J x C table of its instance.

    A machine has G places for its operations, in their order; empty places hold J * C.
    """

    next: Int[Tensor, "B R J"]  # index of each job's next operation
    job: Int[Tensor, "B R J"]  # when each job is free
    end: Int[Tensor, "B R J C"]  # when each dispatched operation ends; 0 for others
    sequence: Int[Tensor, "B R W G"]  # the operations of each machine, in order
    durations: Int[Tensor, "B 1 J C"] = field(metadata=PER_INSTANCE)
    machines: Int[Tensor, "B 1 J C"] = field(metadata=PER_INSTANCE)
    tails: Int[Tensor, "B 1 J C"] = field(metadata=PER_INSTANCE)
    count: int  # decisions made so far, the same in all rollouts
    steps: int

    @property
    def is_dispatched(self) -> Bool[Tensor, "B R J C"]:
        """Return True for operations that are placed."""
        step = torch.arange(self.end.shape[3], device=self.end.device)
        return step < self.next[..., None]

    @property
    def completion_bound(self) -> Int[Tensor, "B R J C"]:
        """Return a lower bound of each completion time; it is exact for placed operations.

        The bound ignores machines: the next operations of a job start as soon as it is free.
        """
        before_next = take_operations(self.tails, self.next)
        free = self.job + before_next
        behind = self.tails - self.durations
        return torch.where(self.is_dispatched, self.end, free[..., None] - behind)

    @property
    def predecessor(self) -> Int[Tensor, "B R N"]:
        """Return the predecessor of each operation on its machine.

        It is J * C for the first operation of a machine and for those that are not placed.
        """
        cells = self.durations[0].numel()
        following = self.sequence[..., 1:]
        earlier = self.sequence[..., :-1]
        count, rollouts, _ = self.next.shape
        none = earlier.new_full((count, rollouts, cells + 1), cells)
        found = none.scatter(
            2,
            following.flatten(2),
            earlier.flatten(2),
        )
        return found[..., :-1]


@dataclass(frozen=True)
class Placement(Record):
    """Where an operation goes on its machine."""

    position: Int[Tensor, "B R 1"]  # among the operations of the machine
    start: Int[Tensor, "B R 1"]


def find_gap(
    state: LeftShiftState,
    row: Int[Tensor, "B R G"],
    ready: Int[Tensor, "B R 1"],
    duration: Int[Tensor, "B R 1"],
) -> Placement:
    """Return the earliest gap in which an operation fits, or the place after the last operation.

    `row` has the operations of the machine. The job of the operation is free from `ready` on.
    """
    cells = state.durations[0].numel()
    is_taken = row < cells
    index = row.clamp(max=cells - 1)
    rollouts = row.shape[1]
    durations = state.durations.flatten(2)
    durations = durations.expand(-1, rollouts, -1)
    ends = state.end.flatten(2)
    end = ends.gather(2, index)
    begin = end - durations.gather(2, index)
    begin = begin.masked_fill(~is_taken, BEYOND_HORIZON)
    end = end.masked_fill(~is_taken, 0)
    end_before = end[..., :-1]
    free = F.pad(end_before, (1, 0))
    start = torch.maximum(ready, free)
    fits = start + duration <= begin
    position = fits.to(torch.uint8).argmax(2, keepdim=True)
    return Placement(position, start.gather(2, position))


def insert_at(
    row: Int[Tensor, "B R G"], position: Int[Tensor, "B R 1"], cell: Int[Tensor, "B R 1"]
) -> Int[Tensor, "B R G"]:
    """Put an operation into a machine's order; those from `position` on move up by one place."""
    count = row.shape[2]
    place = torch.arange(count, device=row.device)
    all_but_last = row[..., :-1]
    moved = F.pad(all_but_last, (1, 0))
    is_new = place == position
    inserted = torch.where(is_new, cell, moved)
    is_before = place < position
    return torch.where(is_before, row, inserted)


class JSSPLeftShift(JobShopRules):
    """The rules for policies that dispatch jobs. Every method is pure.

    An action is a job. The first action is imposed, is always 0 and places nothing.
    """

    name = "jssp-l2d"
    rollout_kernel: RolloutKernel | None = None
    cuda_graph: GraphUse | None = "auto"

    def action_count(self, batch: JSSPBatch) -> int:
        """Return the number of jobs."""
        return batch.duration.shape[1]

    def reset(self, batch: JSSPBatch, starts: Int[Tensor, "B R"]) -> LeftShiftState:
        """Return the empty schedule in each rollout."""
        count, rollouts = starts.shape
        _, jobs, columns = batch.duration.shape
        machines = batch.load.shape[1]
        zeros = batch.duration.new_zeros
        places = (count, rollouts, machines, batch.max_per_machine)
        return LeftShiftState(
            next=zeros(count, rollouts, jobs),
            job=zeros(count, rollouts, jobs),
            end=zeros(count, rollouts, jobs, columns),
            sequence=batch.duration.new_full(places, jobs * columns),
            durations=batch.duration[:, None],
            machines=batch.machine[:, None],
            tails=batch.tail[:, None],
            count=0,
            steps=batch.steps,
        )

    def mask(self, state: LeftShiftState) -> Bool[Tensor, "B R J"]:
        """Return True for unfinished jobs.

        In a finished rollout the first job is allowed; it changes nothing.
        """
        machine = take_operations(state.machines, state.next)
        no_machine = state.sequence.shape[2] - 1
        return allow_unfinished(machine == no_machine)

    def step(self, state: LeftShiftState, action: Int[Tensor, "B R"]) -> LeftShiftState:
        """Return the state with the next operation of job `action` placed on its machine."""
        if self.finished(state):
            return state
        job = action[..., None]
        operation = state.next.gather(2, job)
        cell = job * state.durations.shape[3] + operation
        duration = take_cells(state.durations, cell)
        machine = take_cells(state.machines, cell)
        ready = state.job.gather(2, job)
        places = state.sequence.shape[3]
        index = machine[..., None]
        index = index.expand(-1, -1, -1, places)
        row = state.sequence.gather(2, index)
        row = row[:, :, 0]
        found = find_gap(state, row, ready, duration)
        is_real = machine < state.sequence.shape[2] - 1
        finish = torch.where(is_real, found.start + duration, ready)
        inserted = insert_at(row, found.position, cell)
        row = torch.where(is_real, inserted, row)
        end = state.end.flatten(2).scatter(2, cell, finish * is_real)
        return replace(
            state,
            next=state.next.scatter(2, job, operation + is_real),
            job=state.job.scatter(2, job, finish),
            end=end.view(state.end.shape),
            sequence=state.sequence.scatter(2, index, row[:, :, None]),
            count=state.count + 1,
        )

    def finished(self, state: LeftShiftState) -> bool:
        """Return whether every operation of every rollout is placed."""
        return state.count >= state.steps

    def horizon(self, batch: JSSPBatch) -> int:
        """Return the length of an action sequence, the imposed first action included."""
        return batch.steps + 1

    def replay(self, batch: JSSPBatch, actions: Int[Tensor, "B R T"]) -> LeftShiftState:
        """Return the states before decisions 1..T-1, steps flattened into the rollout axis."""
        state = self.reset(batch, actions[..., 0])
        states: list[LeftShiftState] = []
        for action in actions[..., 1:].unbind(2):
            states.append(state)
            state = self.step(state, action)
        moving = stack_fields(states, ("next", "job", "end", "sequence"))
        return replace(state, **moving, count=0)

    def outcome(
        self, batch: JSSPBatch, state: LeftShiftState, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """Return the makespan from the last state."""
        return state.job.amax(2).to(torch.float32)

    def decode(self, instance: JSSPInstance, actions: Sequence[int]) -> Schedule:
        """Return the schedule of an action sequence; actions after the last operation are ignored.

        An action for a finished job is skipped. The schedule is then incomplete; its check fails.
        """
        starts: list[list[int]] = [[] for _ in instance.durations]
        job_free = [0] * instance.job_count
        work: list[list[tuple[int, int]]] = [[] for _ in range(instance.machine_count)]
        for job in actions[1 : instance.size + 1]:
            step = len(starts[job])
            durations = instance.durations[job]
            if step == len(durations):
                continue
            machine = instance.machines[job][step]
            duration = durations[step]
            ready = job_free[job]
            start = place_in_gap(work[machine], ready, duration)
            starts[job].append(start)
            job_free[job] = start + duration
        return Schedule(tuple(map(tuple, starts)))


def place_in_gap(work: list[tuple[int, int]], ready: int, duration: int) -> int:
    """Return the start in the earliest gap, and insert it into a machine's starts and ends."""
    start = ready
    for position, (begin, end) in enumerate(work):
        if start + duration <= begin:
            work.insert(position, (start, start + duration))
            return start
        start = max(start, end)
    work.append((start, start + duration))
    return start
