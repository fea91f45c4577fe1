"""The job shop on a device: a decision is which job's next operation is placed, as early as it fits
behind the others.

Candidates are the conflict set of Giffler and Thompson (1960): on the machine where some operation
could end first, all operations that could begin before that. Its sequences spell the active
schedules, and one of those is optimal; half of the decisions have a single candidate. Times are
whole numbers on every device, so comparisons and makespans are exact.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.problems.jssp.instance import (
    MAX_CELLS,
    MAX_JOBS,
    MAX_MACHINES,
    JSSPInstance,
    Schedule,
)
from rhumbline.record import Record

MAX_RANDOM_DURATION = 98  # of the field's random instances (Zhang et al. 2020)
BEYOND_HORIZON = 2**31  # later than any horizon, so that a time and a load fit into one number


@dataclass(frozen=True)
class JSSPBatch(Record):
    """Instances of one shape on a device.

    The tables have C = O + 1 columns for O operations. From a job's end on they hold nothing to do
    on a machine M that does not exist, so that an exhausted job looks like any other and
    dispatching it changes nothing.
    """

    duration: Int[Tensor, "B J C"]
    machine: Int[Tensor, "B J C"]
    tail: Int[Tensor, "B J C"]  # work left in the job, this operation included
    load: Int[Tensor, "B W"]  # total work of each machine; W = M + 1
    key: Int[
        Tensor, "B"
    ]  # names the instance to the decoding noise, whatever its place in the batch
    scale: Float[Tensor, "B"]  # costs are in the instance's own units already
    steps: int  # most operations of an instance
    max_per_machine: int  # most operations on one machine of an instance


@dataclass(frozen=True)
class JSSPState(Record):
    """Partial schedules. The tables of the instance are there once, for all rollouts."""

    next: Int[Tensor, "B R J"]  # each job's next operation
    job: Int[Tensor, "B R J"]  # when each job is free
    machine: Int[Tensor, "B R W"]  # when each machine is free
    left: Int[Tensor, "B R W"]  # work that each machine still has to do
    durations: Int[Tensor, "B 1 J C"]
    machines: Int[Tensor, "B 1 J C"]
    tails: Int[Tensor, "B 1 J C"]
    count: int  # decisions made so far, the same in all rollouts
    steps: int

    @cached_property
    def next_operations(self) -> "NextOperations":
        """Each job's next operation as things stand; the rules and the policy look at the same."""
        return gather_next_operations(self)


@dataclass(frozen=True)
class NextOperations(Record):
    """What one sees of each job's next operation."""

    duration: Int[Tensor, "B R J"]
    machine: Int[Tensor, "B R J"]
    tail: Int[Tensor, "B R J"]
    free: Int[Tensor, "B R J"]  # when its machine is free
    load: Int[Tensor, "B R J"]  # work left on its machine
    start: Int[Tensor, "B R J"]  # as early as it fits
    finish: Int[Tensor, "B R J"]
    done: Bool[Tensor, "B R J"]  # no operation is left


def gather_next_operations(state: JSSPState) -> NextOperations:
    """Each job's next operation as things stand."""
    index = state.next[..., None]
    jobs = (-1, state.next.shape[1], -1, -1)
    duration, machine, tail = (
        table.expand(jobs).gather(3, index)[..., 0]
        for table in (state.durations, state.machines, state.tails)
    )
    free = state.machine.gather(2, machine)
    load = state.left.gather(2, machine)
    start = torch.maximum(state.job, free)
    done = machine == state.machine.shape[2] - 1
    return NextOperations(duration, machine, tail, free, load, start, start + duration, done)


def conflict_set(view: NextOperations) -> Bool[Tensor, "B R J"]:
    """The conflict set: gives every active schedule, by one sequence up to ties.

    Of operations that end first together, those that take time count, and those on the machine with
    more work left: so neither the order of jobs nor the numbers of machines matter. What takes no
    time is in only if it ends first, and a finished rollout has its first job alone.
    """
    end = 2 * view.finish + (view.duration == 0)
    first = (
        (end * BEYOND_HORIZON - view.load)
        .masked_fill(view.done, 2 * BEYOND_HORIZON * BEYOND_HORIZON - 1)
        .argmin(2, keepdim=True)
    )
    here = view.machine == view.machine.gather(2, first)
    early = view.start < view.finish.gather(2, first)
    return (here & early & ~view.done).scatter(2, first, True)


def unfinished_jobs(view: NextOperations) -> Bool[Tensor, "B R J"]:
    """All jobs that have work left: gives every semi-active schedule, by very many sequences
    each.
    """
    allowed = ~view.done
    allowed[..., 0] |= view.done.all(2)
    return allowed


CANDIDATE_RULES = {"active": conflict_set, "any": unfinished_jobs}


class JobShopRules:
    """What all rules for job shops share: instances, and one start."""

    solves = "jssp"
    nouns: tuple[str, str] = ("operation", "operations")
    size_unit = "jobs x machines"
    max_size = MAX_CELLS
    default_size: int | str = "10x10"

    def sample(self, count: int, size: int | str, rng: torch.Generator) -> JSSPBatch:
        """The field's random instances: durations uniform in 1..98, each job visits all machines
        in a random order.
        """
        jobs, machines = parse_size(size)
        shape = (count, jobs, machines)
        duration = torch.randint(
            1, MAX_RANDOM_DURATION + 1, shape, generator=rng, device=rng.device
        )
        machine = torch.rand(shape, generator=rng, device=rng.device).argsort(2)
        key = torch.arange(count, device=rng.device)
        return batch_from_tables(
            duration, machine, machines, key, steps=jobs * machines, max_per_machine=jobs
        )

    def collate(self, instances: Sequence[JSSPInstance]) -> JSSPBatch:
        """Instances of one shape (jobs, longest job, machines) as a batch on the CPU."""
        jobs, operations, machines = instances[0].shape
        duration = np.zeros((len(instances), jobs, operations), dtype=np.int64)
        machine = np.full_like(duration, machines)
        for row, instance in enumerate(instances):
            for at in instance.operations:
                duration[row, at.job, at.step], machine[row, at.job, at.step] = (
                    at.duration,
                    at.machine,
                )
        key = [
            crc32(m.tobytes(), crc32(d.tobytes())) for d, m in zip(duration, machine, strict=True)
        ]
        max_per_machine = max(int(np.bincount(m[m < machines]).max()) for m in machine)
        return batch_from_tables(
            torch.from_numpy(duration),
            torch.from_numpy(machine),
            machines,
            torch.tensor(key),
            steps=max(i.size for i in instances),
            max_per_machine=max_per_machine,
        )

    def item_count(self, instance: JSSPInstance) -> int:
        """How many there are to place."""
        return instance.size

    def starts(self, batch: JSSPBatch) -> Int[Tensor, "B S"]:
        """One start, the empty schedule."""
        return torch.zeros(len(batch.key), 1, dtype=torch.int64, device=batch.key.device)

    def views(
        self, actions: Int[Tensor, "B T"], uniforms: Float[Tensor, "B V 2"]
    ) -> Int[Tensor, "B V T"]:
        """The same sequences again: an active schedule has one, up to ties."""
        return actions[:, None].expand(-1, uniforms.shape[1], -1)

    def improve(
        self, batch: JSSPBatch, actions: Int[Tensor, "B R T"], rounds: int
    ) -> Int[Tensor, "B R T"]:
        """There is no local improvement for schedules yet."""
        raise InputError(
            "objective.improve: there is no local improvement for jssp yet; set it to 0"
        )


class JSSP(JobShopRules):
    """The problem as the rollout engines see it. Every method is pure. The imposed first action,
    0, places nothing.
    """

    name = "jssp"

    def __init__(self, candidates: Literal["active", "any"] = "active"):
        self.candidates = CANDIDATE_RULES[candidates]
        self.active = candidates == "active"

    def action_count(self, batch: JSSPBatch) -> int:
        """How many jobs one chooses among."""
        return batch.duration.shape[1]

    def reset(self, batch: JSSPBatch, starts: Int[Tensor, "B R"]) -> JSSPState:
        """Nothing is placed."""
        count, rollouts = starts.shape
        zeros = batch.duration.new_zeros
        jobs = zeros(count, rollouts, batch.duration.shape[1])
        return JSSPState(
            next=jobs,
            job=jobs.clone(),
            machine=zeros(count, rollouts, batch.load.shape[1]),
            left=batch.load[:, None].repeat(1, rollouts, 1),
            durations=batch.duration[:, None],
            machines=batch.machine[:, None],
            tails=batch.tail[:, None],
            count=0,
            steps=batch.steps,
        )

    def mask(self, state: JSSPState) -> Bool[Tensor, "B R J"]:
        """True where a job may be dispatched next; in a finished rollout the first job, which
        changes nothing.
        """
        return self.candidates(state.next_operations)

    def step(self, state: JSSPState, action: Int[Tensor, "B R"]) -> JSSPState:
        """The state after the next operation of job `action` was appended to its machine."""
        if self.finished(state):
            return state
        job = action[..., None]
        operation = state.next.gather(2, job)
        cell = job * state.durations.shape[3] + operation
        cells = (-1, action.shape[1], -1)
        duration = state.durations.flatten(2).expand(cells).gather(2, cell)
        machine = state.machines.flatten(2).expand(cells).gather(2, cell)
        end = torch.maximum(state.job.gather(2, job), state.machine.gather(2, machine)) + duration
        real = machine < state.machine.shape[2] - 1
        return replace(
            state,
            next=state.next.scatter(2, job, operation + real),
            job=state.job.scatter(2, job, end),
            machine=state.machine.scatter(2, machine, end * real),
            left=state.left.scatter_add(2, machine, -duration),
            count=state.count + 1,
        )

    def finished(self, state: JSSPState) -> bool:
        """Whether every operation of every rollout is placed."""
        return state.count >= state.steps

    def horizon(self, batch: JSSPBatch) -> int:
        """Length of an action sequence, the imposed first action included."""
        return batch.steps + 1

    def replay(self, batch: JSSPBatch, actions: Int[Tensor, "B R T"]) -> JSSPState:
        """The states before decisions 1..T-1 of given sequences, steps flattened into the rollout
        axis.

        Times follow from one another, so this steps through; each step is a dozen small tensors and
        no network.
        """
        state = self.reset(batch, actions[..., 0])
        passed = list[JSSPState]()
        for action in actions[..., 1:].unbind(2):
            passed.append(state)
            state = self.step(state, action)
        moving = {
            name: torch.stack([getattr(s, name) for s in passed], dim=2).flatten(1, 2)
            for name in ("next", "job", "machine", "left")
        }
        return replace(state, **moving, count=0)

    def cost(self, batch: JSSPBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """The makespan of each sequence."""
        state = self.reset(batch, actions[..., 0])
        for action in actions[..., 1:].unbind(2):
            state = self.step(state, action)
        return self.outcome(batch, state, actions)

    def outcome(
        self, batch: JSSPBatch, state: JSSPState, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """The makespan, which the last state knows."""
        return state.job.amax(2).to(torch.float32)

    def decode(self, instance: JSSPInstance, actions: Sequence[int]) -> Schedule:
        """The schedule that an action sequence spells; what follows the last operation means
        nothing.
        """
        starts: list[list[int]] = [[] for _ in instance.durations]
        jobs = [0] * instance.job_count
        machines = [0] * instance.machine_count
        for job in actions[1 : instance.size + 1]:
            step = len(starts[job])
            if step == len(instance.durations[job]):
                continue  # not a schedule; its check will say so
            machine = instance.machines[job][step]
            starts[job].append(max(jobs[job], machines[machine]))
            jobs[job] = machines[machine] = starts[job][-1] + instance.durations[job][step]
        return Schedule(tuple(map(tuple, starts)))


def batch_from_tables(
    duration: Int[Tensor, "B J O"],
    machine: Int[Tensor, "B J O"],
    machines: int,
    key: Int[Tensor, "B"],
    *,
    steps: int,
    max_per_machine: int,
) -> JSSPBatch:
    """A batch from tables in which missing operations take no time on machine `machines`."""
    duration = F.pad(duration, (0, 1))
    machine = F.pad(machine, (0, 1), value=machines)
    tail = duration.flip(2).cumsum(2).flip(2)
    load = duration.new_zeros(len(key), machines + 1).scatter_add(
        1, machine.flatten(1), duration.flatten(1)
    )
    scale = torch.ones(len(key), device=key.device)
    return JSSPBatch(duration, machine, tail, load, key, scale, steps, max_per_machine)


def parse_size(size: int | str) -> tuple[int, int]:
    """Jobs and machines of a size such as "20x15"; a number n means n x n."""
    found = re.fullmatch(r"(\d+)(?:x(\d+))?", str(size))
    jobs, machines = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not (
        1 <= jobs <= MAX_JOBS and 1 <= machines <= MAX_MACHINES and jobs * machines <= MAX_CELLS
    ):
        limits = f"at most {MAX_JOBS} x {MAX_MACHINES} and {MAX_CELLS:,} for the product"
        raise InputError(f"size is {size!r}; expected jobs x machines such as 20x15, {limits}")
    return jobs, machines
