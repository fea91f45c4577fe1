"""Rules of the JSSP with a clock: at each tick every free machine takes a job or waits.

Chalumeau et al. 2023 use this environment, from Jumanji; see docs/internals/method.md, "Job-shop
policies". Here, waits without an alternative are skipped: the clock jumps to the next moment at
which some machine can take a job. A machine that can take none has a single action, so neither
schedules nor probabilities change. Machines choose independently of one another: their choices are
made one after the other, all from the state at the beginning of the tick.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.problems.jssp.instance import JSSPInstance, Schedule
from rhumbline.problems.jssp.rules import (
    BEYOND_HORIZON,
    JobShopRules,
    JSSPBatch,
    stack_fields,
)
from rhumbline.problems.kernel_traits import GraphUse, RolloutKernel
from rhumbline.record import PER_INSTANCE, Record


@dataclass(frozen=True)
class MachinesState(Record):
    """Job shops at a tick, in absolute times.

    Waiting and the jobs are A = J + 1 columns, as in an action. Waiting is a job that can always be
    taken, by a machine behind all others, whose turn comes when nothing else is left. There are
    V = M + 2 machines: number 0 is never free, and finished jobs wait for it; then the M machines;
    then the one for waiting.
    """

    cell: Int[Tensor, "B R A"]  # each job's next operation: its row in `operations`
    ahead: Int[Tensor, "B R A 2"]  # that row: machine and duration
    start: Int[Tensor, "B R A"]  # when that operation can begin
    # BEYOND_HORIZON for jobs taken at this tick, which begin when the tick is over; else 0.
    taken: Int[Tensor, "B R A"]
    machine: Int[Tensor, "B R V"]  # when each machine is free
    clock: Int[Tensor, "B R"]
    last: Int[Tensor, "B R"]  # the last machine that decided at this tick; 0 without one
    count: Int[Tensor, "B R"]  # decisions made so far
    # Of all instances: C rows for each job as in the batch, and one row for waiting.
    operations: Int[Tensor, "1 1 X 2"] = field(metadata=PER_INSTANCE)
    # The action that takes each job; none takes waiting.
    actions: Int[Tensor, "1 1 A"] = field(metadata=PER_INSTANCE)
    max_waiting_count: int  # decisions after which machines no longer wait

    @property
    def beyond_horizon(self) -> Int[Tensor, "B R 1"]:
        """Return BEYOND_HORIZON as an existing tensor; a number would cost another launch."""
        return self.machine[..., :1]

    @property
    def needed_machine(self) -> Int[Tensor, "B R A"]:
        """Return the machine that each job needs next."""
        return self.ahead[..., 0]

    @property
    def busy(self) -> Int[Tensor, "B R M"]:
        """Return how long each machine still works."""
        free = self.machine[..., 1:-1]
        now = self.clock.unsqueeze(2)
        remaining = free - now
        return remaining.clamp(min=0)

    @cached_property
    def is_available(self) -> Bool[Tensor, "B R A"]:
        """Return True for jobs that a machine which has not decided yet can take."""
        now = self.clock[..., None]
        last = self.last[..., None]
        can_begin = self.start <= now
        undecided = self.needed_machine > last
        return can_begin & undecided

    @cached_property
    def taker(self) -> Int[Tensor, "B R A"]:
        """Return the machine that can take each job; beyond all machines if none can."""
        return torch.where(self.is_available, self.needed_machine, self.beyond_horizon)

    @cached_property
    def turn(self) -> Int[Tensor, "B R"]:
        """Return the machine that decides now; in a finished rollout the one for waiting."""
        return self.taker.amin(2)

    @cached_property
    def is_for_turn(self) -> Bool[Tensor, "B R A"]:
        """Return True for jobs that the deciding machine can take."""
        return self.taker == self.turn[..., None]

    @cached_property
    def others_follow(self) -> Bool[Tensor, "B R"]:
        """Return whether other machines decide after this one at this tick."""
        for_others = self.is_available ^ self.is_for_turn
        jobs = for_others[..., 1:]
        return jobs.any(2)

    @property
    def done(self) -> Bool[Tensor, "B R"]:
        """Return whether all operations have been taken."""
        return self.clock >= BEYOND_HORIZON


def operation_table(batch: JSSPBatch) -> Int[Tensor, "1 1 X 2"]:
    """Return machine and duration of all operations, and behind them of waiting.

    Machines are numbered as in the state.
    """
    machines = batch.load.shape[1]
    numbers = (batch.machine + 1) % machines
    numbers = numbers.flatten()
    machine = F.pad(numbers, (0, 1), value=machines)
    durations = batch.duration.flatten()
    duration = F.pad(durations, (0, 1))
    table = torch.stack([machine, duration], dim=-1)
    return table[None, None]


def first_cells(batch: JSSPBatch) -> Int[Tensor, "B 1 A"]:
    """Return where the rows of waiting and of each job begin."""
    duration = batch.duration
    count, jobs, columns = duration.shape
    index = torch.arange(count * jobs, device=duration.device)
    job = index.view(count, 1, jobs)
    first = job * columns
    waiting = duration.numel()
    return F.pad(first, (1, 0), value=waiting)


def read_next_operations(
    cell: Int[Tensor, "B R A"], operations: Int[Tensor, "1 1 X 2"], machine: Int[Tensor, "B R V"]
) -> tuple[Int[Tensor, "B R A 2"], Int[Tensor, "B R A"]]:
    """Return machine and duration of each job's next operation, and when that machine is free."""
    table = operations[0, 0]
    ahead = F.embedding(cell, table)
    needed = ahead[..., 0]
    return ahead, machine.gather(2, needed)


class JSSPMachines(JobShopRules):
    """The rules for policies that decide for each machine. Action 0 waits, j + 1 takes job j."""

    name = "jssp-machines"
    rollout_kernel: RolloutKernel | None = None
    cuda_graph: GraphUse | None = "by name"
    # Decisions per operation after which machines no longer wait, so that every rollout ends.
    waiting_decisions = 10

    def action_count(self, batch: JSSPBatch) -> int:
        """Return the number of jobs, plus one for waiting."""
        jobs = batch.duration.shape[1]
        return jobs + 1

    def reset(self, batch: JSSPBatch, starts: Int[Tensor, "B R"]) -> MachinesState:
        """Return the state at time 0, with all machines free."""
        operations = operation_table(batch)
        cell = first_cells(batch).repeat(1, starts.shape[1], 1)
        machine = cell.new_zeros(*starts.shape, batch.load.shape[1] + 1)
        machine[..., 0] = BEYOND_HORIZON
        ahead, start = read_next_operations(cell, operations, machine)
        actions = torch.arange(cell.shape[2], device=cell.device)
        return MachinesState(
            cell=cell,
            ahead=ahead,
            start=start,
            taken=torch.zeros_like(cell),
            machine=machine,
            clock=torch.zeros_like(starts),
            last=torch.zeros_like(starts),
            count=torch.zeros_like(starts),
            operations=operations,
            actions=actions.masked_fill(actions == 0, -1)[None, None],
            max_waiting_count=self.waiting_decisions * batch.steps,
        )

    def mask(self, state: MachinesState) -> Bool[Tensor, "B R A"]:
        """Return True for jobs that the deciding machine can take, and for waiting if it may.

        The published environment ends an episode with a large penalty when nothing runs and all
        machines wait. Here the last machine that could take a job then has to.
        """
        machines_free = state.machine[..., 1:].amax(2)
        busy_until = torch.maximum(machines_free, state.taken.amax(2))
        is_busy = busy_until > state.clock
        time_passes = state.others_follow | is_busy
        within_limit = state.count < state.max_waiting_count
        may_wait = time_passes & within_limit
        allowed = state.is_for_turn.clone()
        allowed[..., 0].logical_or_(may_wait)
        return allowed

    def step(self, state: MachinesState, action: Int[Tensor, "B R"]) -> MachinesState:
        """Return the state after one machine's choice.

        After the last choice of a tick all jobs taken begin, and time passes until there is a
        choice again: at least one tick.
        """
        # Without a branch: until the tick is over no job begins, so times and clock stay.
        chosen = state.actions == action[..., None]
        taken = torch.where(chosen, state.beyond_horizon, state.taken)
        still_taken = taken * state.others_follow[..., None]
        begins = taken > still_taken
        duration = state.ahead[..., 1]
        end = state.clock[..., None] + duration
        finish = end * begins
        machine = state.machine.scatter_reduce(2, state.needed_machine, finish, "amax")
        cell = state.cell + begins
        ahead, free = read_next_operations(cell, state.operations, machine)
        start = torch.maximum(torch.maximum(state.start, finish), free)
        next_tick = state.clock + ~state.others_follow
        earliest = start[..., 1:].amin(2)
        clock = torch.maximum(next_tick, earliest).clamp(max=BEYOND_HORIZON)
        return replace(
            state,
            cell=cell,
            ahead=ahead,
            start=start,
            taken=still_taken,
            machine=machine,
            clock=clock,
            last=state.turn * state.others_follow,
            count=state.count + (state.clock < BEYOND_HORIZON),
        )

    def finished(self, state: MachinesState) -> bool:
        """Return whether every operation of every rollout has been taken."""
        return bool(state.done.all())

    def horizon(self, batch: JSSPBatch) -> int:
        """Return the longest action sequence.

        At worst machines wait as long as they may, and then take one operation at each decision.
        """
        return (self.waiting_decisions + 1) * batch.steps + 1

    def replay(self, batch: JSSPBatch, actions: Int[Tensor, "B R T"]) -> MachinesState:
        """Return the states before decisions 1..T-1, steps flattened into the rollout axis."""
        first = actions[..., 0]
        state = self.reset(batch, first)
        states: list[MachinesState] = []
        for action in actions[..., 1:].unbind(2):
            states.append(state)
            state = self.step(state, action)
        moving = ("cell", "ahead", "start", "taken", "machine", "clock", "last", "count")
        return replace(state, **stack_fields(states, moving))

    def outcome(
        self, batch: JSSPBatch, state: MachinesState, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """Return the makespan from the last state."""
        free = state.machine[..., 1:]
        makespan = free.amax(2)
        return makespan.to(torch.float32)

    def decode(self, instance: JSSPInstance, actions: Sequence[int]) -> Schedule:
        """Return the schedule of an action sequence: operations begin when the clock moves on."""
        starts: list[list[int]] = [[] for _ in instance.durations]
        batch = self.collate([instance])
        first = torch.zeros(1, 1, dtype=torch.int64)
        state = self.reset(batch, first)
        for action in actions[1:]:
            clock = int(state.clock)
            before = state.cell
            state = self.step(state, torch.tensor([[action]]))
            begun = state.cell - before
            jobs = begun[0, 0, 1:].nonzero()
            for job in jobs.flatten().tolist():
                starts[job].append(clock)
        return Schedule(tuple(map(tuple, starts)))
