"""The contracts of the rules of a problem, checked on random rollouts."""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch

from rhumbline.errors import Infeasible, InputError, LimitExceeded
from rhumbline.problems import Instance, Plan, Problem
from rhumbline.record import PER_INSTANCE, Record
from rhumbline.testing.contracts import (
    TOLERANCE,
    Walk,
    expect,
    expect_same,
    group_by_shape,
    is_close,
    random_walk,
    tensor_fields,
)
from rhumbline.testing.policies import check_policy


def check_problem(
    rules: Problem[Any, Any],
    instances: Sequence[Any],
    policy: Any = None,
    *,
    sizes: Sequence[Any] = (1, 2, 3, 7),
    same_plan: Callable[[list[int]], object] | None = None,
    construct: Callable[[Any], Plan] | None = None,
) -> None:
    """Check the rules of a problem, and a policy for it if one is given.

    `instances` are some of the problem, with few nodes. `sizes` are those of random instances.
    `same_plan` maps the actions of a plan to a value that all sequences of the plan share; without
    it, sequences of one plan are only known by their equal costs. `construct` is that of the
    domain, if it has one. Raises `AssertionError` with the
    contract that is broken.
    """
    check_traits(rules)
    rng = torch.Generator().manual_seed(0)
    for instance in instances:
        check_instance(rules, instance)
    for group in group_by_shape(instances):
        batch = rules.collate(group)
        check_batch(rules, batch, group)
        walk = check_walk(rules, batch, rng)
        check_plans(rules, batch, group, walk)
    if construct is not None:
        check_construction(construct, instances)
    for size in sizes:
        check_samples(rules, size)
        batch = rules.sample(3, size, rng)
        walk = check_walk(rules, batch, rng)
        check_views(rules, batch, walk, rng, same_plan)
        check_improvement(rules, batch, walk)
    if policy is not None:
        check_policy(policy, rules, instances)


def check_traits(rules: Any) -> None:
    """Check what the rules say about themselves."""
    expect(
        isinstance(rules, Problem),
        f"{type(rules).__name__} has all methods and values of rhumbline.problems.Problem",
    )
    expect(rules.name, "rules have a name")
    expect(rules.solves, "rules name the problem of their instances in `solves`")
    expect(len(rules.nouns) == 2, "`nouns` are what is visited, in the singular and in the plural")
    expect(rules.max_size >= 1, "`max_size` is the size of the largest instance")
    rules.sample(1, rules.default_size, torch.Generator())


def check_instance(rules: Any, instance: Any) -> None:
    """Check what the package reads of an instance."""
    kind = type(instance).__name__
    expect(
        isinstance(instance, Instance),
        f"{kind} has all values of rhumbline.problems.Instance",
    )
    expect(
        instance.problem == rules.solves,
        f"instances have the problem '{rules.solves}', which the rules solve, "
        f"not '{instance.problem}'",
    )
    expect(isinstance(instance.details, str), f"`details` of {kind} is a text")
    expect(isinstance(instance.has_integer_costs, bool), f"`has_integer_costs` of {kind} is a bool")
    hash(instance.shape)
    expect(
        1 <= instance.size <= rules.max_size, f"a size is from 1 to max_size, not {instance.size}"
    )
    expect(rules.item_count(instance) >= 0, "item_count is 0 or more")


# --- batches


def check_batch(rules: Any, batch: Any, instances: Sequence[Any]) -> None:
    """Check what a batch must have: keys, scales, and rows that stand for themselves."""
    check_batch_fields(batch, len(instances))
    key = batch.key
    for row, instance in enumerate(instances):
        alone = rules.collate([instance])
        expect(
            alone.key[0] == key[row],
            "an instance has the same key in any batch: it selects its random numbers",
        )
        expect_same(
            batch[row : row + 1].map(torch.clone),
            alone,
            "a row of a batch equals the batch of that instance alone",
        )


def check_batch_fields(batch: Any, count: int) -> None:
    """Check the fields of a batch of `count` instances."""
    expect(isinstance(batch, Record), "a batch is a rhumbline.record.Record, a frozen dataclass")
    names = tensor_fields(batch)
    for name in ("key", "scale"):
        expect(
            name in names and names[name].shape == (count,),
            f"a batch has the field '{name}', one number for each of its {count} instances",
        )
    expect(batch.key.dtype == torch.int64, "keys are int64")
    expect(batch.scale.is_floating_point(), "scales are floating-point numbers")
    expect((batch.scale > 0).all(), "scales are positive: they turn costs into own units")
    for name, value in names.items():
        expect(
            len(value) == count,
            f"the first axis of every tensor of a batch is the instance; that of '{name}' has "
            f"{len(value)} rows for {count} instances",
        )


def check_samples(rules: Any, size: Any) -> None:
    """Check that random instances depend on the generator alone."""
    one = rules.sample(4, size, torch.Generator().manual_seed(5))
    check_batch_fields(one, 4)
    rng = torch.Generator().manual_seed(5)
    expect_same(rules.sample(4, size, rng), one, "equal generators give equal instances")
    following = tensor_fields(rules.sample(4, size, rng))
    changed: list[str] = []
    for name, value in tensor_fields(one).items():
        if not torch.equal(value, following[name]):
            changed.append(name)
    expect(changed, "the next draw of a generator gives other instances")
    keys = set(one.key.tolist())
    expect(len(keys) == 4, "the instances of a sample have different keys")


# --- steps


def check_walk(rules: Any, batch: Any, rng: torch.Generator) -> Walk:
    """Roll out random decisions, check every step, and return the rollouts."""
    actions = rules.action_count(batch)
    starts = rules.starts(batch)
    has_shape = starts.ndim == 2 and starts.shape[0] == len(batch.key) and starts.shape[1] >= 1
    expect(has_shape, "starts are [instances, starts], one start at least")
    is_int64 = starts.dtype == torch.int64
    is_action = int(starts.min()) >= 0 and int(starts.max()) < actions
    expect(is_int64 and is_action, f"starts are int64 and from 0 to {actions - 1}")
    check_purity(rules, batch)
    walk = random_walk(rules, batch, rng)
    check_state(walk)
    check_end(rules, walk)
    check_costs(rules, batch, walk)
    check_replay(rules, batch, walk)
    return walk


def check_purity(rules: Any, batch: Any) -> None:
    """Check that a step leaves the state that it is made from."""
    state = rules.reset(batch, rules.starts(batch))
    copy = state.map(torch.clone)
    action = rules.mask(state).to(torch.uint8).argmax(-1)
    rules.step(state, action)
    expect_same(state, copy, "step is pure: it leaves the state that it is given")


def check_state(walk: Walk) -> None:
    """Check that fields of states are per rollout or per instance."""
    count, rollouts, _ = walk.actions.shape
    for state in (walk.states[0], walk.states[-1]):
        expect(isinstance(state, Record), "a state is a rhumbline.record.Record")
        shared = {one.name for one in fields(state) if PER_INSTANCE.items() <= one.metadata.items()}
        for name, value in tensor_fields(state).items():
            shape = list(value.shape)
            expect(
                name in shared or shape[:2] == [count, rollouts],
                f"a field of a state is [B, R, ...], or marked by field(metadata=PER_INSTANCE); "
                f"'{name}' is {shape} (B = {count}, R = {rollouts})",
            )


def check_end(rules: Any, walk: Walk) -> None:
    """Check that finished rollouts stay as they are."""
    last = walk.states[-1]
    after = rules.step(last, torch.zeros_like(walk.actions[..., 0]))
    contract = "a finished state is a fixed point of step"
    expect(rules.finished(after), contract)
    expect_same(after, last, contract)


def check_costs(rules: Any, batch: Any, walk: Walk) -> None:
    """Check shapes, signs and independence of costs."""
    actions = walk.actions
    cost = rules.cost(batch, actions)
    expect(
        cost.shape == actions.shape[:2] and cost.is_floating_point(),
        "costs are floating-point numbers [instances, rollouts]",
    )
    expect(
        cost.isfinite().all(), "costs are finite; they may be negative, and lower ones are better"
    )
    outcome = rules.outcome(batch, walk.states[-1], actions)
    expect(is_close(outcome, cost), "outcome returns the same costs as cost")
    for row in range(len(actions)):
        alone = rules.cost(batch[row : row + 1], actions[row : row + 1])
        expect(is_close(alone, cost[row : row + 1]), "costs do not depend on the rest of a batch")


def check_replay(rules: Any, batch: Any, walk: Walk) -> None:
    """Check that replay returns the states that stepping went through, field by field."""
    count, rollouts, length = walk.actions.shape
    steps = length - 1
    if not steps:
        return
    replayed = rules.replay(batch, walk.actions)
    firsts = steps * torch.arange(rollouts)
    expect(not rules.finished(replayed), "replay returns states in which decisions are open")
    constants = unchanging_fields(walk.states)
    for step, state in enumerate(walk.states[:-1]):
        positions = firsts + step
        part = replayed.select(positions.expand(count, -1))
        contract = f"replay returns the state before every decision; that of step {step + 1} is not"
        expect_same(part, state, contract)
        for name in constants:
            expect(getattr(part, name) == getattr(state, name), f"{contract}: '{name}' differs")
        expect(torch.equal(rules.mask(part), rules.mask(state)), f"{contract}: its mask differs")


def unchanging_fields(states: Sequence[Any]) -> list[str]:
    """Return the names of fields that are no tensors and that steps do not change."""
    first = states[0]
    tensors = tensor_fields(first)
    others = [field.name for field in fields(first) if field.name not in tensors]
    last = states[-1]
    return [name for name in others if getattr(first, name) == getattr(last, name)]


# --- plans


def check_plans(rules: Any, batch: Any, instances: Sequence[Any], walk: Walk) -> None:
    """Check that every rollout is a feasible plan, at the cost of the device times the scale."""
    costs = rules.cost(batch, walk.actions) * batch.scale[:, None]
    sequences = walk.actions.tolist()
    for instance, rows, priced in zip(instances, sequences, costs.tolist(), strict=True):
        for actions, cost in zip(rows, priced, strict=True):
            plan = rules.decode(instance, actions)
            expect(isinstance(plan, Plan), f"{type(plan).__name__} is a rhumbline.problems.Plan")
            plan.check(instance)
            own = plan.cost(instance)
            tolerance = TOLERANCE * max(1.0, abs(own))
            expect(
                abs(own - cost) <= tolerance,
                f"cost times scale is the plan's own cost; it is {cost}, the plan's is {own}",
            )
            json.dumps(plan.to_file_numbers(instance))


def check_construction(construct: Callable[[Any], Any], instances: Sequence[Any]) -> None:
    """Check that constructed plans are feasible, and the same each time."""
    for instance in instances:
        plan = construct(instance)
        kind = type(plan).__name__
        expect(isinstance(plan, Plan), f"construct returns a rhumbline.problems.Plan, not {kind}")
        try:
            plan.check(instance)
        except LimitExceeded:  # a limit may be hard to meet; such a plan is reported as such
            pass
        except Infeasible as error:
            expect(False, f"construct returns a feasible plan; this one is not: {error}")
        expect(construct(instance) == plan, "construct returns the same plan each time")


def check_views(
    rules: Any,
    batch: Any,
    walk: Walk,
    rng: torch.Generator,
    same_plan: Callable[[list[int]], object] | None,
) -> None:
    """Check that views are sequences of the same plans, from starts, at the same cost."""
    count = 40  # of each plan
    plans = walk.actions[:, -1]
    uniforms = torch.rand(len(plans), count, 2, generator=rng)
    views = rules.views(plans, uniforms)
    expect(
        views.shape == (len(plans), count, plans.shape[1]),
        "views are [instances, views, actions], as long as the sequences they are made from",
    )
    cost = rules.cost(batch, plans[:, None]).expand(-1, count)
    expect(is_close(rules.cost(batch, views), cost), "views of a plan cost as much as the plan")
    starts = rules.starts(batch)
    is_start = views[:, :, :1] == starts[:, None]
    expect(is_start.any(-1).all(), "the first action of a view is a start")
    if same_plan is None:
        return
    for plan, seen in zip(plans.tolist(), views.tolist(), strict=True):
        values = {same_plan(view) for view in seen}
        expect(values == {same_plan(plan)}, "views of a plan are sequences of the same plan")


def check_improvement(rules: Any, batch: Any, walk: Walk) -> None:
    """Check that a local search, if there is one, never makes a plan cost more."""
    before = rules.cost(batch, walk.actions)
    try:
        improved = rules.improve(batch, walk.actions, 2)
    except InputError:
        return
    after = rules.cost(batch, improved)
    room = TOLERANCE * before.abs().clamp(min=1.0)
    expect((after <= before + room).all(), "improve never returns a plan that costs more")
