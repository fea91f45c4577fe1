"""JSSP: the edges of schedules, and schedules as action sequences of `JSSP`."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from rhumbline.problems.edges import neighbour_table
from rhumbline.problems.jssp.instance import JSSPInstance, Schedule


def schedule_edges(batch: Any, actions: Int[Tensor, "B R T"]) -> Int[Tensor, "B R N 2"]:
    """Return the operations before and after each operation on its machine.

    An operation after it has a negative number, because direction matters here.
    """
    jobs = actions[..., 1:].long()
    plans = jobs.shape[1]
    count, _, columns = batch.machine.shape
    cells = batch.machine[0].numel()
    step = occurrence_index(jobs)
    cell = jobs * columns + step
    cell = cell.clamp(max=cells - 1)
    machine = batch.machine.view(count, 1, -1)
    machine = machine.expand(-1, plans, -1)
    machine = machine.gather(2, cell)
    order = machine.argsort(dim=2, stable=True)
    operation = cell.gather(2, order)
    number = operation + 1
    machine = machine.gather(2, order)

    next_machine = machine[..., 1:]
    this_machine = machine[..., :-1]
    is_same = next_machine == this_machine
    earlier = number[..., :-1]
    earlier = earlier * is_same
    before = torch.nn.functional.pad(earlier, (1, 0))
    none_after = -cells - 1
    later = -number[..., 1:]
    after = torch.where(is_same, later, none_after)
    after = torch.nn.functional.pad(after, (0, 1), value=none_after)
    table = neighbour_table(operation, before, after, cells)
    by_job = table.unflatten(2, (-1, columns))
    by_job = by_job[..., :-1, :]  # the last column holds no operation
    return by_job.flatten(2, 3)


def occurrence_index(jobs: Int[Tensor, "B R T"]) -> Int[Tensor, "B R T"]:
    """Return how often each entry occurs earlier in its row."""
    steps = jobs.shape[2]
    order = jobs.argsort(dim=2, stable=True)
    ranked = jobs.gather(2, order)
    place = torch.arange(steps, device=jobs.device)
    place = place.expand_as(jobs)
    previous = ranked[..., :-1]
    is_first = ranked[..., 1:] != previous
    is_first = torch.nn.functional.pad(is_first, (1, 0), value=True)
    first = torch.where(is_first, place, 0)
    first, _ = first.cummax(2)
    index = torch.empty_like(jobs)
    return index.scatter_(2, order, place - first)


def encode_schedule(instance: JSSPInstance, schedule: Schedule) -> list[int]:
    """Return the jobs in the order in which their operations start.

    The first action is 0 and places nothing. Operations of no duration come first among equals.
    """
    keys = list[tuple[Any, bool, int, int]]()
    for operation in instance.operations:
        job = operation.job
        step = operation.step
        starts_of_job = schedule.starts[job]
        start = starts_of_job[step]
        takes_time = operation.duration > 0
        key = (start, takes_time, job, step)
        keys.append(key)
    keys.sort()
    jobs = [job for _, _, job, _ in keys]
    return [0, *jobs]
