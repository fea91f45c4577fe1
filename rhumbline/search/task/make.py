"""How a task is made: instances are collated and encoded, and may start from given plans."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from rhumbline.decoding import Ask, EngineName, choose_engine
from rhumbline.policies import Policy
from rhumbline.problems import Plan, Problem
from rhumbline.problems.symmetry import symmetric_copies
from rhumbline.search.plan_sets.similarity import pad_actions
from rhumbline.search.task.task import Task


def make_task(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    instances: Sequence[Any],
    *,
    seed: int = 0,
    device: torch.device | None = None,
    engine: EngineName = "auto",
    augment: int = 1,
) -> Task:
    """Collate instances of one shape, in `augment` symmetric copies each, and encode them.

    Raises before any work if the engine cannot be used.
    """
    began = time.monotonic()
    device = device or torch.device("cpu")
    batch = symmetric_copies(problem.collate(instances), augment).to(device)
    size = problem.action_count(batch)
    chosen = choose_engine(engine, Ask(problem, device, size, policy.architecture))
    policy = policy.to(device)
    with torch.no_grad():
        memory = policy.encode(batch)
    starts = problem.starts(batch)
    task = Task(problem, policy, instances, batch, memory, starts, seed, engine, copies=augment)
    task.engines[engine, False, False, False] = chosen
    if device.type == "cpu":
        task.preparation_seconds = time.monotonic() - began
    return task


def set_warm_start(task: Task, plans: Sequence[Plan | None]) -> None:
    """Make given plans the incumbents of their instances, before the first rollout.

    The solutions of the search are then no worse than these plans.
    """
    problem = task.problem
    tools = task.plan_tools("a warm start")
    horizon = problem.horizon(task.batch)
    rows = list[list[int]]()
    costs = list[float]()
    for instance, plan in zip(task.instances, plans, strict=True):
        sequence = list[int]()
        cost = 0.0
        if plan is not None:
            sequence = tools.encode_plan(instance, plan)
            cost = plan.cost(instance)
        rows.append(pad_actions(sequence, horizon))
        costs.append(cost)

    device = task.device
    missing = [plan is None for plan in plans]
    if all(missing):
        return
    is_missing = torch.tensor(missing, device=device)
    actions = torch.tensor(rows, dtype=torch.int64, device=device)
    best = torch.tensor(costs, dtype=torch.float64, device=device)
    best = best / task.original_batch.scale
    given = missing.index(False)
    one = slice(given, given + 1)
    priced = problem.cost(task.original_batch[one], actions[one, None])
    best = best.to(priced.dtype)  # rollouts have costs of this type, too
    task.account.warm = plans
    task.account.best = best.masked_fill(is_missing, torch.inf)
    task.account.actions = actions.to(torch.int16)
