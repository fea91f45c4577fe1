"""The job shop as published (spec 1.3): at each tick of a clock every free machine takes a job or
waits.

Waits that nobody chose are skipped: the clock jumps to the next moment at which some machine has
something to take. A machine with nothing to take has one action, so nothing is lost, neither in
schedules nor in probabilities. Machines choose independently of one another, so their choices are
made one after the other, all from what was seen at that time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.problems.jssp.instance import JSSPInstance, Schedule
from rhumbline.problems.jssp.rules import BEYOND_HORIZON, JobShopRules, JSSPBatch
from rhumbline.record import Record

PATIENCE = (
    10  # decisions per operation after which machines no longer wait, so that every rollout ends
)


@dataclass(frozen=True)
class MachinesState(Record):
    """Shops at a tick, in absolute times.

    Waiting and the jobs are A = J + 1 columns, as in an action: waiting is a job that is always
    open, to a machine behind all others, which so has its turn when nothing else is left. There are
    V = M + 2 machines: number 0 is never free, exhausted jobs wait for it; then the M machines;
    then the one for waiting.
    """

    cell: Int[Tensor, "B R A"]  # each job's next operation: its row in `operations`
    ahead: Int[Tensor, "B R A 2"]  # what that row says: machine and duration
    start: Int[Tensor, "B R A"]  # when that operation can begin
    held: Int[
        Tensor, "B R A"
    ]  # LATE for jobs that were taken at this tick, which begin when it is over; else 0
    machine: Int[Tensor, "B R V"]  # when each machine is free
    clock: Int[Tensor, "B R"]
    last: Int[Tensor, "B R"]  # the machine that was the last to decide at this tick; 0 if none has
    count: Int[Tensor, "B R"]  # decisions made so far
    operations: Int[
        Tensor, "1 1 X 2"
    ]  # of all instances, C rows for each job as in the batch, and one for waiting
    actions: Int[Tensor, "1 1 A"]  # the action that takes each job; none takes waiting
    patience: int

    @property
    def late(self) -> Int[Tensor, "B R 1"]:
        """LATE as a tensor at hand: where it stands for a number, a number would be another
        launch.
        """
        return self.machine[..., :1]

    @property
    def wanted(self) -> Int[Tensor, "B R A"]:
        """The machine that each job needs next."""
        return self.ahead[..., 0]

    @property
    def busy(self) -> Int[Tensor, "B R M"]:
        """How long each machine still works."""
        return (self.machine[..., 1:-1] - self.clock[..., None]).clamp(min=0)

    @cached_property
    def open(self) -> Bool[Tensor, "B R A"]:
        """Jobs that a machine which has not decided yet can take."""
        return (self.start <= self.clock[..., None]) & (self.wanted > self.last[..., None])

    @cached_property
    def asker(self) -> Int[Tensor, "B R A"]:
        """The machine that can take each job; a number beyond all machines for jobs that are not
        open.
        """
        return torch.where(self.open, self.wanted, self.late)

    @cached_property
    def turn(self) -> Int[Tensor, "B R"]:
        """The machine that decides now; in a finished rollout the one for waiting."""
        return self.asker.amin(2)

    @cached_property
    def mine(self) -> Bool[Tensor, "B R A"]:
        """Jobs that this machine can take."""
        return self.asker == self.turn[..., None]

    @cached_property
    def more(self) -> Bool[Tensor, "B R"]:
        """Whether others decide after it, at this tick."""
        return (self.open ^ self.mine)[..., 1:].any(2)

    @property
    def done(self) -> Bool[Tensor, "B R"]:
        """Whether all operations have been taken."""
        return self.clock >= BEYOND_HORIZON


MOVING = ("cell", "ahead", "start", "held", "machine", "clock", "last", "count")


def operation_table(batch: JSSPBatch) -> Int[Tensor, "1 1 X 2"]:
    """Machine and duration of all operations, and behind them of waiting; machines are numbered
    as in the state.
    """
    machines = batch.load.shape[1]
    machine = F.pad(((batch.machine + 1) % machines).flatten(), (0, 1), value=machines)
    return torch.stack([machine, F.pad(batch.duration.flatten(), (0, 1))], dim=-1)[None, None]


def first_cells(batch: JSSPBatch) -> Int[Tensor, "B 1 A"]:
    """Where the rows of waiting and of each job begin."""
    (count, jobs, columns), device = batch.duration.shape, batch.duration.device
    cells = torch.arange(count * jobs, device=device).view(count, 1, jobs) * columns
    return F.pad(cells, (1, 0), value=batch.duration.numel())


def read_next_operations(
    cell: Int[Tensor, "B R A"], operations: Int[Tensor, "1 1 X 2"], machine: Int[Tensor, "B R V"]
) -> tuple[Int[Tensor, "B R A 2"], Int[Tensor, "B R A"]]:
    """What each job's next operation is, and when its machine is free."""
    ahead = F.embedding(cell, operations[0, 0])
    return ahead, machine.gather(2, ahead[..., 0])


class JSSPMachines(JobShopRules):
    """The rules for policies that decide for each machine. Action 0 is to wait, j + 1 to take
    job j.
    """

    name = "jssp-machines"

    def action_count(self, batch: JSSPBatch) -> int:
        """The jobs, and waiting."""
        return batch.duration.shape[1] + 1

    def reset(self, batch: JSSPBatch, starts: Int[Tensor, "B R"]) -> MachinesState:
        """Time 0, all machines free."""
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
            held=torch.zeros_like(cell),
            machine=machine,
            clock=torch.zeros_like(starts),
            last=torch.zeros_like(starts),
            count=torch.zeros_like(starts),
            operations=operations,
            actions=actions.masked_fill(actions == 0, -1)[None, None],
            patience=PATIENCE * batch.steps,
        )

    def mask(self, state: MachinesState) -> Bool[Tensor, "B R A"]:
        """Jobs that the machine whose turn it is can take; and waiting, unless time would stand
        still.

        The published environment ends an episode with a large penalty when nothing runs and
        everybody waits; here the last machine that could take something then has to.
        """
        until = torch.maximum(state.machine[..., 1:].amax(2), state.held.amax(2))
        waiting = (state.more | (until > state.clock)) & (state.count < state.patience)
        allowed = state.mine.clone()
        allowed[..., 0].logical_or_(waiting)
        return allowed

    def step(self, state: MachinesState, action: Int[Tensor, "B R"]) -> MachinesState:
        """The state after one machine's choice.

        After the last one's, all that was taken begins, and time passes until there is something to
        choose: a tick at least.
        """
        # No branch: until the tick is over nothing begins, all that follows from it stays, and so
        # does the clock.
        held = torch.where(state.actions == action[..., None], state.late, state.held)
        still = held * state.more[..., None]
        begun = held > still
        finish = (state.clock[..., None] + state.ahead[..., 1]) * begun
        machine = state.machine.scatter_reduce(2, state.wanted, finish, "amax")
        cell = state.cell + begun
        ahead, free = read_next_operations(cell, state.operations, machine)
        start = torch.maximum(torch.maximum(state.start, finish), free)
        clock = torch.maximum(state.clock + ~state.more, start[..., 1:].amin(2)).clamp(
            max=BEYOND_HORIZON
        )
        return replace(
            state,
            cell=cell,
            ahead=ahead,
            start=start,
            held=still,
            machine=machine,
            clock=clock,
            last=state.turn * state.more,
            count=state.count + (state.clock < BEYOND_HORIZON),
        )

    def finished(self, state: MachinesState) -> bool:
        """Whether every operation of every rollout has been taken."""
        return bool(state.done.all())

    def horizon(self, batch: JSSPBatch) -> int:
        """At worst machines wait until their patience ends, and then take one operation at each
        decision.
        """
        return (PATIENCE + 1) * batch.steps + 1

    def replay(self, batch: JSSPBatch, actions: Int[Tensor, "B R T"]) -> MachinesState:
        """The states before decisions 1..T-1 of given sequences, steps flattened into the
        rollout axis.
        """
        state = self.reset(batch, actions[..., 0])
        passed = list[MachinesState]()
        for action in actions[..., 1:].unbind(2):
            passed.append(state)
            state = self.step(state, action)
        stacked = {
            n: torch.stack([getattr(s, n) for s in passed], dim=2).flatten(1, 2) for n in MOVING
        }
        return replace(state, **stacked)

    def cost(self, batch: JSSPBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """The makespan of each sequence."""
        state = self.reset(batch, actions[..., 0])
        for action in actions[..., 1:].unbind(2):
            state = self.step(state, action)
        return self.outcome(batch, state, actions)

    def outcome(
        self, batch: JSSPBatch, state: MachinesState, actions: Int[Tensor, "B R T"]
    ) -> Float[Tensor, "B R"]:
        """The makespan."""
        return state.machine[..., 1:].amax(2).to(torch.float32)

    def decode(self, instance: JSSPInstance, actions: Sequence[int]) -> Schedule:
        """The schedule that an action sequence spells: operations begin when the clock moves on."""
        starts: list[list[int]] = [[] for _ in instance.durations]
        state = self.reset(self.collate([instance]), torch.zeros(1, 1, dtype=torch.int64))
        for action in actions[1:]:
            after = self.step(state, torch.tensor([[action]]))
            for job in (after.cell - state.cell)[0, 0, 1:].nonzero()[:, 0].tolist():
                starts[job].append(int(state.clock))
            state = after
        return Schedule(tuple(map(tuple, starts)))
