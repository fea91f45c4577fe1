"""How a task is made: instances are collated and encoded, and may start from given plans."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from rhumbline.decoding import Ask, EngineName, Rollouts, choose_engine
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
    device = task.device
    missing = [plan is None for plan in plans]
    if all(missing):
        return
    costs = [
        0.0 if plan is None else plan.cost(instance)
        for instance, plan in zip(task.instances, plans, strict=True)
    ]
    is_missing = torch.tensor(missing, device=device)
    actions = encode_plans(task, plans)
    best = torch.tensor(costs, dtype=torch.float64, device=device)
    best = best / task.original_batch.scale
    given = missing.index(False)
    one = slice(given, given + 1)
    priced = problem.cost(task.original_batch[one], actions[one, None])
    best = best.to(priced.dtype)  # rollouts have costs of this type, too
    task.account.warm = plans
    task.account.given = [plan is not None for plan in plans]
    task.account.best = best.masked_fill(is_missing, torch.inf)
    task.account.actions = actions.to(torch.int16)


def encode_plans(task: Task, plans: Sequence[Plan | None]) -> Int[Tensor, "B T"]:
    """Return the action sequences of plans, as long as rollouts; zeros where a plan is None."""
    tools = task.plan_tools("a warm start")
    horizon = task.problem.horizon(task.batch)
    rows = list[list[int]]()
    for instance, plan in zip(task.instances, plans, strict=True):
        sequence = list[int]()
        if plan is not None:
            sequence = tools.encode_plan(instance, plan)
        rows.append(pad_actions(sequence, horizon))
    return torch.tensor(rows, dtype=torch.int64, device=task.device)


def enter_plans(task: Task, plans: Sequence[Plan | None]) -> list[Plan | None]:
    """Enter feasible plans of some instances into the account, between two steps of a search.

    The plans cost no attempt. A plan that costs less on the device becomes the incumbent of its
    instance, which strategies read. The diverse set takes plans like rollouts. Returns each plan as
    decoded from its action sequence.
    """
    account = task.account
    incumbents = task.incumbents
    cost = account.best
    assert cost is not None, "incumbents have costs"
    given = [plan is not None for plan in plans]
    is_given = torch.tensor(given, device=task.device)
    # Instances without a plan get their incumbent again, which changes nothing.
    actions = torch.where(
        is_given[:, None],
        encode_plans(task, plans),
        incumbents.long(),
    )
    priced = task.problem.cost(task.original_batch, actions[:, None])
    priced = priced.to(cost.dtype)
    cost = torch.where(is_given[:, None], priced, cost[:, None])
    as_rolled = actions.to(incumbents.dtype)
    rolled = Rollouts(cost[:, None], as_rolled[:, None, None])
    account.enter(rolled, 0)
    before = account.given or [False] * len(plans)
    pairs = zip(before, given, strict=True)
    account.given = [earlier or now for earlier, now in pairs]
    decoded = list[Plan | None]()
    rows = zip(task.instances, given, actions.tolist(), strict=True)
    for instance, has_plan, sequence in rows:
        plan = task.problem.decode(instance, sequence) if has_plan else None
        decoded.append(plan)
    return decoded
