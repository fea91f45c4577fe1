"""The job shop as published (spec 1.3): at each tick of a clock every free machine takes a job or waits.

Waits that nobody chose are skipped: the clock jumps to the next moment at which some machine has something to take. A
machine with nothing to take has one action, so nothing is lost, neither in schedules nor in probabilities. Machines
choose independently of one another, so their choices are made one after the other, all from what was seen at that time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.problems.jssp import LATE, JSSPBatch, Shop
from rhumbline.problems.schedule import JSSPInstance, Schedule
from rhumbline.record import Record

PATIENCE = 10  # decisions per operation after which machines no longer wait, so that every rollout ends
UNDECIDED = -1


@dataclass(frozen=True)
class MachinesState(Record):
    """Shops at a tick. `W` counts a machine that does not exist, on which exhausted jobs wait (see `JSSPBatch`)."""

    next: Int[Tensor, "B R J"]  # each job's next operation
    job: Int[Tensor, "B R J"]  # time that each job is still being worked on
    machine: Int[Tensor, "B R W"]  # time that each machine is still busy
    chosen: Int[Tensor, "B R W"]  # what machines have taken at this tick: 0 nothing, j + 1 job j
    clock: Int[Tensor, "B R"]
    end: Int[Tensor, "B R"]  # when everything taken so far will be over
    count: Int[Tensor, "B R"]  # decisions made so far
    durations: Int[Tensor, "B 1 J C"]
    machines: Int[Tensor, "B 1 J C"]
    patience: int

    def ahead(self, table: Int[Tensor, "B 1 J C"]) -> Int[Tensor, "B R J"]:
        """What a table says of each job's next operation."""
        return table.expand(-1, self.next.shape[1], -1, -1).gather(3, self.next[..., None])[..., 0]

    @cached_property
    def wanted(self) -> Int[Tensor, "B R J"]:
        """The machine that each job needs next."""
        return self.ahead(self.machines)

    @cached_property
    def wait(self) -> Int[Tensor, "B R J"]:
        """How long until each job's next operation can begin; exhausted jobs wait for ever."""
        longer = torch.maximum(self.job, self.machine.gather(2, self.wanted))
        return longer.masked_fill(self.wanted == self.machine.shape[2] - 1, LATE)

    @cached_property
    def asked(self) -> Bool[Tensor, "B R W"]:
        """Machines that have something to take and have not decided yet."""
        ready = torch.zeros_like(self.machine).scatter_add(2, self.wanted, (self.wait == 0).long())
        return (ready > 0) & (self.chosen == UNDECIDED)

    @cached_property
    def turn(self) -> Int[Tensor, "B R"]:
        """The machine that decides now."""
        return self.asked.to(torch.uint8).argmax(2)

    @cached_property
    def done(self) -> Bool[Tensor, "B R"]:
        """Whether all operations have been taken."""
        return (self.wait == LATE).all(2)


MOVING = ("next", "job", "machine", "chosen", "clock", "end", "count")


def merged(condition: Bool[Tensor, "B R"], one: MachinesState, other: MachinesState) -> MachinesState:
    """Rollouts of one state where the condition holds, of the other elsewhere."""
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in MOVING}
    return replace(one, **{
        name: torch.where(condition if a.ndim == 2 else condition[..., None], a, b) for name, (a, b) in pairs.items()
    })  # fmt: skip


class JSSPMachines(Shop):
    """The rules for policies that decide for each machine. Action 0 is to wait, j + 1 to take job j."""

    name = "jssp-machines"

    def width(self, batch: JSSPBatch) -> int:
        """The jobs, and waiting."""
        return batch.duration.shape[1] + 1

    def reset(self, batch: JSSPBatch, starts: Int[Tensor, "B R"]) -> MachinesState:
        """Time 0, all machines free."""
        zeros = batch.duration.new_zeros
        jobs, machines = (*starts.shape, batch.duration.shape[1]), (*starts.shape, batch.load.shape[1])
        return MachinesState(
            next=zeros(jobs),
            job=zeros(jobs),
            machine=zeros(machines),
            chosen=zeros(machines) + UNDECIDED,
            clock=zeros(starts.shape),
            end=zeros(starts.shape),
            count=zeros(starts.shape),
            durations=batch.duration[:, None],
            machines=batch.machine[:, None],
            patience=PATIENCE * batch.steps,
        )

    def mask(self, state: MachinesState) -> Bool[Tensor, "B R A"]:
        """Jobs that the machine whose turn it is can take; and waiting, unless time would stand still.

        The published environment ends an episode with a large penalty when nothing runs and everybody waits; here the
        last machine that could take something then has to.
        """
        take = (state.wanted == state.turn[..., None]) & (state.wait == 0)
        runs = (state.machine > 0).any(2) | (state.chosen > 0).any(2)
        waiting = (runs | (state.asked.sum(2) > 1)) & (state.count < state.patience)
        return torch.cat([(waiting | state.done)[..., None], take], dim=2)

    def step(self, state: MachinesState, action: Int[Tensor, "B R"]) -> MachinesState:
        """The state after one machine's choice; after the last one's, all begin and the clock moves on."""
        chosen = state.chosen.scatter(2, state.turn[..., None], action[..., None])
        decided = replace(state, chosen=chosen, count=state.count + 1)
        after = merged(decided.asked.any(2), decided, self.advance(decided))
        return merged(state.done, state, after)

    def advance(self, state: MachinesState) -> MachinesState:
        """All choices come into effect, and time passes until there is something to choose: a tick at least."""
        jobs = torch.arange(state.next.shape[2], device=state.next.device) + 1
        taken = state.chosen.gather(2, state.wanted) == jobs  # a job's next operation names one machine
        work = state.ahead(state.durations) * taken
        busy = state.machine.scatter_add(2, state.wanted, work)
        loaded = replace(state, next=state.next + taken, job=state.job + work, machine=busy)
        passed = loaded.wait.amin(2).clamp(min=1)
        finish = (state.clock[..., None] + work).masked_fill(~taken, 0).amax(2)
        return replace(
            loaded,
            job=(loaded.job - passed[..., None]).clamp(min=0),
            machine=(busy - passed[..., None]).clamp(min=0),
            chosen=torch.full_like(state.chosen, UNDECIDED),
            clock=state.clock + passed,
            end=torch.maximum(state.end, finish),
        )

    def finished(self, state: MachinesState) -> bool:
        """Whether every operation of every rollout has been taken."""
        return bool(state.done.all())

    def horizon(self, batch: JSSPBatch) -> int:
        """At worst machines wait until their patience ends, and then take one operation at each decision."""
        return (PATIENCE + 1) * batch.steps + 1

    def replay(self, batch: JSSPBatch, actions: Int[Tensor, "B R T"]) -> MachinesState:
        """The states before decisions 1..T-1 of given sequences, steps flattened into the rollout axis."""
        state, passed = self.reset(batch, actions[..., 0]), list[MachinesState]()
        for action in actions[..., 1:].unbind(2):
            passed.append(state)
            state = self.step(state, action)
        stacked = {n: torch.stack([getattr(s, n) for s in passed], dim=2).flatten(1, 2) for n in MOVING}
        return replace(state, **stacked)

    def cost(self, batch: JSSPBatch, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """The makespan of each sequence."""
        state = self.reset(batch, actions[..., 0])
        for action in actions[..., 1:].unbind(2):
            state = self.step(state, action)
        return self.outcome(batch, state, actions)

    def outcome(self, batch: JSSPBatch, state: MachinesState, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
        """The makespan."""
        return state.end.to(torch.float32)

    def decode(self, instance: JSSPInstance, actions: Sequence[int]) -> Schedule:
        """The schedule that an action sequence spells: operations begin when the clock moves on."""
        starts: list[list[int]] = [[] for _ in instance.durations]
        state = self.reset(self.collate([instance]), torch.zeros(1, 1, dtype=torch.int64))
        for action in actions[1:]:
            after = self.step(state, torch.tensor([[action]]))
            for job in (after.next - state.next)[0, 0].nonzero()[:, 0].tolist():
                starts[job].append(int(state.clock))
            state = after
        return Schedule(tuple(map(tuple, starts)))
