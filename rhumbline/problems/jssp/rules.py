"""Rules of the JSSP: a decision places the next operation of one job, as early as it fits.

Candidates are the conflict set of Giffler & Thompson (1960): on the machine where some operation
could end first, all operations that could begin before that. Action sequences then encode the
active schedules, among which there is an optimal one; half of the decisions have a single
candidate. Times are whole numbers on every device, so comparisons and makespans are exact.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.problems.jssp.instance import LIMITS, JSSPInstance, Schedule
from rhumbline.problems.kernel_traits import GraphUse, RolloutKernel
from rhumbline.problems.stepwise import StepwiseRules
from rhumbline.record import PER_INSTANCE, Record

BEYOND_HORIZON = 2**31  # later than any time, so that a time and a load fit into one integer


@dataclass(frozen=True)
class JSSPBatch(Record):
    """Instances of one shape on a device.

    The tables have C = O + 1 columns for O operations. Behind a job's last operation they hold
    duration 0 on machine M, which does not exist: a finished job needs no special case, and
    dispatching it changes nothing.
    """

    duration: Int[Tensor, "B J C"]
    machine: Int[Tensor, "B J C"]
    tail: Int[Tensor, "B J C"]  # work left in the job, this operation included
    load: Int[Tensor, "B W"]  # total work of each machine; W = M + 1
    key: Int[Tensor, "B"]  # instance id: selects its random numbers, whatever its place
    scale: Float[Tensor, "B"]  # ones: costs are in the instance's own units
    steps: int  # most operations of an instance
    max_per_machine: int  # most operations on one machine of an instance


@dataclass(frozen=True)
class JSSPState(Record):
    """Partial schedules. All rollouts of an instance share its tables."""

    next: Int[Tensor, "B R J"]  # index of each job's next operation
    job: Int[Tensor, "B R J"]  # when each job is free
    machine: Int[Tensor, "B R W"]  # when each machine is free
    left: Int[Tensor, "B R W"]  # work left on each machine
    durations: Int[Tensor, "B 1 J C"] = field(metadata=PER_INSTANCE)
    machines: Int[Tensor, "B 1 J C"] = field(metadata=PER_INSTANCE)
    tails: Int[Tensor, "B 1 J C"] = field(metadata=PER_INSTANCE)
    count: int  # decisions made so far, the same in all rollouts
    steps: int

    @cached_property
    def next_operations(self) -> "NextOperations":
        """Return each job's next operation; the rules and the policy share it."""
        return gather_next_operations(self)


@dataclass(frozen=True)
class NextOperations(Record):
    """Each job's next operation in a state."""

    duration: Int[Tensor, "B R J"]
    machine: Int[Tensor, "B R J"]
    tail: Int[Tensor, "B R J"]
    free: Int[Tensor, "B R J"]  # when its machine is free
    load: Int[Tensor, "B R J"]  # work left on its machine
    start: Int[Tensor, "B R J"]  # as early as it fits
    finish: Int[Tensor, "B R J"]
    done: Bool[Tensor, "B R J"]  # no operation is left


def gather_next_operations(state: JSSPState) -> NextOperations:
    """Return each job's next operation in a state."""
    duration = take_operations(state.durations, state.next)
    machine = take_operations(state.machines, state.next)
    tail = take_operations(state.tails, state.next)
    free = state.machine.gather(2, machine)
    start = torch.maximum(state.job, free)
    no_machine = state.machine.shape[2] - 1
    return NextOperations(
        duration=duration,
        machine=machine,
        tail=tail,
        free=free,
        load=state.left.gather(2, machine),
        start=start,
        finish=start + duration,
        done=machine == no_machine,
    )


def take_operations(
    table: Int[Tensor, "B 1 J C"], operation: Int[Tensor, "B R J"]
) -> Int[Tensor, "B R J"]:
    """Return the entries of one operation of each job."""
    rollouts = operation.shape[1]
    shared = table.expand(-1, rollouts, -1, -1)
    index = operation.unsqueeze(3)
    entries = shared.gather(3, index)
    return entries.squeeze(3)


def take_cells(table: Int[Tensor, "B 1 J C"], cell: Int[Tensor, "B R 1"]) -> Int[Tensor, "B R 1"]:
    """Return the entries at one place of each rollout's table; places count row after row."""
    rollouts = cell.shape[1]
    flat = table.flatten(2)
    shared = flat.expand(-1, rollouts, -1)
    return shared.gather(2, cell)


def conflict_set(operations: NextOperations) -> Bool[Tensor, "B R J"]:
    """Return the conflict set, which gives every active schedule by one sequence up to ties.

    Of operations that end first together, those with a duration decide, then those on the machine
    with more work left: neither the order of jobs nor the numbers of machines matter. An operation
    of duration 0 is in the set only if it ends first. A finished rollout has its first job alone.
    """
    # One integer that orders by end, then by duration 0, then by work left on the machine.
    has_no_duration = operations.duration == 0
    end = 2 * operations.finish + has_no_duration
    rank = end * BEYOND_HORIZON - operations.load
    never = 2 * BEYOND_HORIZON * BEYOND_HORIZON - 1
    rank = rank.masked_fill(operations.done, never)
    first = rank.argmin(2, keepdim=True)
    machine = operations.machine.gather(2, first)
    finish = operations.finish.gather(2, first)
    on_machine = operations.machine == machine
    is_early = operations.start < finish
    candidates = on_machine & is_early & ~operations.done
    return candidates.scatter(2, first, True)


def unfinished_jobs(operations: NextOperations) -> Bool[Tensor, "B R J"]:
    """Return all jobs with work left, which give every semi-active schedule many times over.

    A finished rollout has its first job alone.
    """
    return allow_unfinished(operations.done)


def allow_unfinished(done: Bool[Tensor, "B R J"]) -> Bool[Tensor, "B R J"]:
    """Return True for jobs that are not done; if all are, for the first one."""
    allowed = ~done
    allowed[..., 0] |= done.all(2)
    return allowed


class JobShopRules(StepwiseRules):
    """What all rules for job shops share: instances, and a single start."""

    solves = "jssp"
    nouns: tuple[str, str] = ("operation", "operations")
    size_unit = "jobs x machines"
    max_size = LIMITS.max_cells
    default_size: int | str = "10x10"
    max_random_duration = 98  # of the field's random instances (Zhang et al. 2020)

    def sample(self, count: int, size: int | str, rng: torch.Generator) -> JSSPBatch:
        """Return the field's random instances.

        Durations are uniform in 1..98, and each job visits all machines in a random order.
        """
        jobs, machines = parse_size(size)
        shape = (count, jobs, machines)
        limit = self.max_random_duration + 1
        device = rng.device
        duration = torch.randint(1, limit, shape, generator=rng, device=device)
        order = torch.rand(shape, generator=rng, device=device)
        return batch_from_tables(
            duration,
            order.argsort(2),
            machines,
            torch.arange(count, device=device),
            steps=jobs * machines,
            max_per_machine=jobs,
        )

    def collate(self, instances: Sequence[JSSPInstance]) -> JSSPBatch:
        """Return instances of one shape (jobs, longest job, machines) as a batch on the CPU."""
        jobs, operations, machines = instances[0].shape
        duration = np.zeros((len(instances), jobs, operations), dtype=np.int64)
        machine = np.full_like(duration, machines)
        for row, instance in enumerate(instances):
            for operation in instance.operations:
                cell = (row, operation.job, operation.step)
                duration[cell] = operation.duration
                machine[cell] = operation.machine
        keys: list[int] = []
        for durations, machine_numbers in zip(duration, machine, strict=True):
            duration_sum = crc32(durations.tobytes())
            keys.append(crc32(machine_numbers.tobytes(), duration_sum))
        steps = max(instance.size for instance in instances)
        max_per_machine = max(most_on_one_machine(table, machines) for table in machine)
        return batch_from_tables(
            torch.from_numpy(duration),
            torch.from_numpy(machine),
            machines,
            torch.tensor(keys),
            steps=steps,
            max_per_machine=max_per_machine,
        )

    def item_count(self, instance: JSSPInstance) -> int:
        """Return the number of operations."""
        return instance.size

    def starts(self, batch: JSSPBatch) -> Int[Tensor, "B S"]:
        """Return the single start, the empty schedule."""
        return torch.zeros(len(batch.key), 1, dtype=torch.int64, device=batch.key.device)

    def cost(self, batch: JSSPBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """Return the makespan of each sequence."""
        first = actions[..., 0]
        state = self.reset(batch, first)
        for action in actions[..., 1:].unbind(2):
            state = self.step(state, action)
        return self.outcome(batch, state, actions)


class JSSP(JobShopRules):
    """The rules for the rollout engines. Every method is pure.

    An action is a job. The first action is imposed, is always 0 and places nothing.
    """

    name = "jssp"
    rollout_kernel: RolloutKernel | None = "schedules"
    cuda_graph: GraphUse | None = "auto"

    def __init__(self, candidates: Literal["active", "any"] = "active"):
        rules = {"active": conflict_set, "any": unfinished_jobs}
        self.candidates = rules[candidates]
        self.active = candidates == "active"

    def action_count(self, batch: JSSPBatch) -> int:
        """Return the number of jobs."""
        return batch.duration.shape[1]

    def reset(self, batch: JSSPBatch, starts: Int[Tensor, "B R"]) -> JSSPState:
        """Return the empty schedule in each rollout."""
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
        """Return True where a job may be dispatched next.

        In a finished rollout that is the first job, which changes nothing.
        """
        return self.candidates(state.next_operations)

    def step(self, state: JSSPState, action: Int[Tensor, "B R"]) -> JSSPState:
        """Return the state after the next operation of job `action` went to its machine."""
        if self.finished(state):
            return state
        job = action[..., None]
        operation = state.next.gather(2, job)
        columns = state.durations.shape[3]
        cell = job * columns + operation
        duration = take_cells(state.durations, cell)
        machine = take_cells(state.machines, cell)
        job_free = state.job.gather(2, job)
        machine_free = state.machine.gather(2, machine)
        start = torch.maximum(job_free, machine_free)
        end = start + duration
        no_machine = state.machine.shape[2] - 1
        is_real = machine < no_machine
        following = operation + is_real
        return replace(
            state,
            next=state.next.scatter(2, job, following),
            job=state.job.scatter(2, job, end),
            machine=state.machine.scatter(2, machine, end * is_real),
            left=state.left.scatter_add(2, machine, -duration),
            count=state.count + 1,
        )

    def finished(self, state: JSSPState) -> bool:
        """Return whether every operation of every rollout is placed."""
        return state.count >= state.steps

    def horizon(self, batch: JSSPBatch) -> int:
        """Return the length of an action sequence, the imposed first action included."""
        return batch.steps + 1

    def replay(self, batch: JSSPBatch, actions: Int[Tensor, "B R T"]) -> JSSPState:
        """Return the states before decisions 1..T-1, steps flattened into the rollout axis.

        Times follow from one another, so this steps through the sequences. A step is a dozen small
        tensor operations and needs no network.
        """
        state = self.reset(batch, actions[..., 0])
        states: list[JSSPState] = []
        for action in actions[..., 1:].unbind(2):
            states.append(state)
            state = self.step(state, action)
        moving = stack_fields(states, ("next", "job", "machine", "left"))
        return replace(state, **moving, count=0)

    def outcome(
        self, batch: JSSPBatch, state: JSSPState, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """Return the makespan from the last state."""
        return state.job.amax(2).to(torch.float32)

    def decode(self, instance: JSSPInstance, actions: Sequence[int]) -> Schedule:
        """Return the schedule of an action sequence; actions behind the last operation are ignored.

        An action for a finished job is skipped: the check of the incomplete schedule reports it.
        """
        starts: list[list[int]] = [[] for _ in instance.durations]
        job_free = [0] * instance.job_count
        machine_free = [0] * instance.machine_count
        for job in actions[1 : instance.size + 1]:
            step = len(starts[job])
            if step == len(instance.durations[job]):
                continue
            machine = instance.machines[job][step]
            start = max(job_free[job], machine_free[machine])
            end = start + instance.durations[job][step]
            starts[job].append(start)
            job_free[job] = end
            machine_free[machine] = end
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
    """Return a batch from tables; missing operations have duration 0 on machine `machines`."""
    count = len(key)
    duration = F.pad(duration, (0, 1))
    machine = F.pad(machine, (0, 1), value=machines)
    from_end = duration.flip(2).cumsum(2)
    load = duration.new_zeros(count, machines + 1)
    load.scatter_add_(1, machine.flatten(1), duration.flatten(1))
    return JSSPBatch(
        duration=duration,
        machine=machine,
        tail=from_end.flip(2),
        load=load,
        key=key,
        scale=torch.ones(count, device=key.device),
        steps=steps,
        max_per_machine=max_per_machine,
    )


def stack_fields(states: Sequence[Record], names: Sequence[str]) -> dict[str, Tensor]:
    """Return fields of successive states, steps flattened into the rollout axis."""
    stacked: dict[str, Tensor] = {}
    for name in names:
        steps = [getattr(state, name) for state in states]
        stacked[name] = torch.stack(steps, dim=2).flatten(1, 2)
    return stacked


def most_on_one_machine(table: Int[np.ndarray, "J O"], machines: int) -> int:
    """Return the most operations on one machine of an instance; machine `machines` is none."""
    is_real = table < machines
    existing = table[is_real]
    counts = np.bincount(existing)
    return int(counts.max())


def parse_size(size: int | str) -> tuple[int, int]:
    """Return jobs and machines of a size such as "20x15"; a number n means n x n."""
    jobs = machines = 0
    match = re.fullmatch(r"(\d+)(?:x(\d+))?", str(size))
    if match:
        jobs = int(match[1])
        machines = int(match[2] or match[1])
    max_jobs = LIMITS.max_jobs
    max_machines = LIMITS.max_machines
    max_cells = LIMITS.max_cells
    in_range = 1 <= jobs <= max_jobs and 1 <= machines <= max_machines
    if not in_range or jobs * machines > max_cells:
        expected = "expected jobs x machines such as 20x15"
        limits = f"at most {max_jobs} x {max_machines} and {max_cells:,} for the product"
        raise InputError(f"size is {size!r}; {expected}, {limits}")
    return jobs, machines
