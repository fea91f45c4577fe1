"""The elite set: which plans are kept, what replaces them, and what is learnt from them."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from fleets import vehicles
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.tsp import TSP
from rhumbline.search.plan_sets.elite import (
    EliteSet,
    cheapest_rollouts,
    incumbent_set,
    select_distinct,
)
from rhumbline.search.strategies.cmaes_elite import elite_target
from rhumbline.search.strategies.cmaes_refine import CMAESRefine, group_by_plan
from rhumbline.search.strategies.eas import Adaptation, EASEmb, ImitationTarget
from rhumbline.search.task import Task, make_task


def elite_of_costs(*costs: float) -> EliteSet:
    """Return plans of one instance that consist of their cost, as a whole number."""
    cost = torch.tensor([costs])
    return EliteSet(cost, cost.nan_to_num(posinf=99).to(torch.int16)[..., None])


def costs_and_actions(found: EliteSet) -> tuple[list[float], list[int]]:
    """Return the costs and the actions of the plans."""
    return found.cost[0].tolist(), found.actions[0, :, 0].tolist()


def test_the_cheapest_distinct_plans() -> None:
    """Equal costs, up to the last bits, are one plan. Gaps fill the set if plans are few."""
    some = elite_of_costs(7.0, 3.0, 3.0 * (1 + 5e-7), 5.0, 3.0)
    assert costs_and_actions(select_distinct(some.cost, some.actions, 2)) == ([3.0, 5.0], [3, 5])
    cost, actions = costs_and_actions(select_distinct(some.cost, some.actions, 4))
    assert (cost, actions[:3]) == ([3.0, 5.0, 7.0, float("inf")], [3, 5, 7])


def test_the_best_rollouts_of_a_generation() -> None:
    """The best plans count, from whatever latent and start."""
    cost = torch.tensor([[[4.0, 2.0], [2.0, 9.0]], [[8.0, 6.0], [5.0, 6.0]]])
    found = cheapest_rollouts(Rollouts(cost, cost.to(torch.int16)[..., None]), 2)
    assert found.cost.tolist() == [[2.0, 4.0], [5.0, 6.0]]
    assert found.actions[..., 0].tolist() == [[2, 4], [5, 6]]


def test_union_of_two_sets() -> None:
    """Plans of both sets count once; gaps of one set make room for plans of the other."""
    assert costs_and_actions(
        elite_of_costs(2.0, 6.0, float("inf")).merge(elite_of_costs(4.0, 2.0), 3)
    ) == (
        [2.0, 4.0, 6.0],
        [2, 4, 6],
    )


def test_each_plan_is_improved_independently() -> None:
    """The best plan made of it takes its place if it is better, and no other place."""
    made = torch.tensor([[[9.0, 1.0, 3.0], [2.0, 8.0, 7.0], [5.0, 6.0, 7.0]]])
    found = elite_of_costs(4.0, 2.0, float("inf")).improve_with(
        made, made.to(torch.int16)[..., None]
    )
    assert costs_and_actions(found) == ([1.0, 2.0, 5.0], [1, 2, 5])


def task_of(
    driver: CVRPPolicy, count: int = 2, augment: int = 1, some: slice = slice(None)
) -> Task:
    """Return a task of CVRP instances with a large budget."""
    task = make_task(CVRP(), driver, vehicles(count, 24)[some], augment=augment)
    task.account.limit = 10_000
    return task


def record_prefixes(task: Task) -> list[tuple[Tensor, Tensor]]:
    """Record the actions and lengths of the prefixes that are completed from now on."""
    seen, complete = list[tuple[Tensor, Tensor]](), task.complete
    task.complete = lambda latents, given, *more: (
        seen.append((given.actions, given.length)) or complete(latents, given, *more)
    )
    return seen


def customers_by_route(actions: list[int]) -> set[frozenset[int]]:
    """Return the customers of each route."""
    found, route = set[frozenset[int]](), set[int]()
    for action in [*actions, 0]:
        if action:
            route.add(action)
        elif route:
            found.add(frozenset(route))
            route = set()
    return found


@pytest.mark.parametrize("augment", [1, 2])
def test_resampled_regions_return_to_their_plan(driver: CVRPPolicy, augment: int) -> None:
    """What is kept of a plan are routes of the plan that the result may replace."""
    task, strategy = (
        task_of(driver, augment=augment),
        CMAESRefine(population=4, plans=3, beam=0, starts=1.0),
    )
    seen, plans = record_prefixes(task), []
    original = strategy.update_elite(task, None, task.rollout(torch.zeros(2, 2, 4), 1.0))
    improve_with = EliteSet.improve_with
    try:
        EliteSet.improve_with = lambda self, cost, actions: (
            plans.append((self, cost, actions)) or improve_with(self, cost, actions)
        )
        strategy.resample(task, torch.zeros(2, 1, 4), 96, task.memory, original)
    finally:
        EliteSet.improve_with = improve_with
    assert (
        len(seen) == len(plans) == 2
    )  # twelve neighbourhoods, of three plans each, two of each at a time
    for (given, length), (had, cost, made) in zip(seen, plans, strict=True):
        rows = len(given)
        assert (rows, had.cost.shape, cost.shape) == (2 * augment, (2, 3), (2, 3, augment * 2 * 16))
        for way in range(6):  # of each the first, then of each the second
            kept = given[0, way, : length[0, way]].tolist()
            assert customers_by_route(kept) <= customers_by_route(had.actions[0, way % 3].tolist())
        for plan in range(3):
            assert all(
                customers_by_route(x) & customers_by_route(had.actions[0, plan].tolist())
                for x in made[0, plan].tolist()
            )


def test_results_are_sorted_by_plan() -> None:
    """Two instances with two copies: ordered by region of each plan, then by sample."""

    class Two:
        count, copies = 2, 2

    numbers = torch.arange(4 * 2 * 3 * 5).view(4, 30)  # rows, ways x plans x samples
    found = group_by_plan(Two(), numbers, 2, 3)  # pyright: ignore[reportArgumentType]
    assert found.shape == (2, 3, 20)
    assert found[0, 1].tolist() == [*range(5, 10), *range(20, 25), *range(35, 40), *range(50, 55)]
    assert found[1, 2, 0] == 2 * 30 + 10


def test_the_budget_limits_the_plans(driver: CVRPPolicy) -> None:
    """One in a short search, and one more for every 150 expected attempts; or as requested."""
    task = task_of(driver)
    task.account.attempts = 48
    found = dict[int, int]()
    for limit in (60, 160, 600, 1600):
        task.account.limit = limit
        found[limit] = CMAESRefine().default_plans(task)
    assert found == {60: 1, 160: 1, 600: 4, 1600: 11}
    assert CMAESRefine(plans=2).default_plans(task) == 2
    task.account.limit, seen = 1600, record_prefixes(task)
    strategy = CMAESRefine(population=4, beam=0, starts=1.0, elite=6, neighbourhoods_at_once=1)
    strategy.step(task, strategy.init(task))
    assert seen[0][1].shape == (2, 6)  # no more than the elite


def test_it_learns_from_the_best_of_all_so_far(
    driver: CVRPPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each generation's own target.

    All plans differ, none costs more than before, and the incumbent is one of them.
    """
    task, strategy, targets = (
        task_of(driver),
        CMAESRefine(population=4, beam=0, elite=5),
        list[Tensor](),
    )
    update = EASEmb.update

    def keeping(self: EASEmb, task: Task, state: Adaptation, taught: list[ImitationTarget]) -> None:
        targets.append(taught[0][1].flatten(1, 2))
        update(self, task, state, taught)

    monkeypatch.setattr(EASEmb, "update", keeping)
    state = strategy.init(task)
    for _ in range(3):
        state, _, _ = strategy.step(task, state)
    costs = [task.problem.cost(task.batch, x.long()).sort(dim=1).values for x in targets]
    assert [x.shape for x in costs] == [(2, 5)] * 6
    assert all(
        (best <= generation + 1e-6).all()
        for generation, best in zip(costs[::2], costs[1::2], strict=True)
    )
    assert all((later <= before + 1e-6).all() for before, later in pairwise(costs[1::2]))
    assert (costs[-1].diff(dim=1) > 1e-6).all()
    assert torch.allclose(costs[-1][:, 0], incumbent_set(task).cost[:, 0])


def test_gaps_have_no_weight(driver: CVRPPolicy) -> None:
    """If there are fewer distinct plans than wanted, those that exist share the weight."""
    task = task_of(driver, count=1)
    rolled = task.rollout(torch.zeros(1, 1, 4), 0.0, task.starts[:, :2])
    plans = cheapest_rollouts(rolled, 2)
    double = EliteSet(
        torch.cat([plans.cost, plans.cost], 1), torch.cat([plans.actions, plans.actions], 1)
    )
    *_, weight = elite_target(
        task, torch.zeros(1, 1, 4), select_distinct(double.cost, double.actions, 4)
    )
    assert weight.flatten().tolist() == [-0.5, -0.5, 0.0, 0.0]


def test_neighbourhoods_do_not_depend_on_the_batch(driver: CVRPPolicy) -> None:
    """An instance alone has the same regions of the same plans re-sampled as in a batch."""
    found = list[list[tuple[Tensor, Tensor]]]()
    for some in (slice(None), slice(1, 2)):
        task, strategy = (
            task_of(driver, some=some),
            CMAESRefine(population=4, plans=3, beam=0, rate=0.0),
        )
        found.append(record_prefixes(task))
        state = strategy.init(task)
        for _ in range(2):
            state, _, _ = strategy.step(task, state)
    together, alone = found
    assert len(together) == len(alone) > 2
    for (given, length), (own, same) in zip(together, alone, strict=True):
        assert torch.equal(given[1], own[0])
        assert torch.equal(length[1], same[0])


def test_other_plans_stay_unchanged(driver: CVRPPolicy) -> None:
    """Only the best of four is re-sampled. The others keep their places."""
    task, strategy = (
        task_of(driver),
        CMAESRefine(population=4, plans=1, elite=4, beam=0, starts=1.0),
    )
    had = strategy.update_elite(task, None, task.rollout(torch.zeros(2, 2, 4), 1.0))
    found, _ = strategy.resample(task, torch.zeros(2, 1, 4), 96, task.memory, had)
    assert (found.cost[:, 0] < had.cost[:, 0]).all()
    assert torch.equal(found.cost[:, 1:], had.cost[:, 1:])
    assert torch.equal(found.actions[:, 1:], had.actions[:, 1:])


def test_equal_plans_count_once(
    policy: TSPPolicy, make_instances: Callable[..., list[Any]]
) -> None:
    """Tours of five cities: most plans soon become the shortest one, which counts once."""
    task, strategy = (
        make_task(TSP(), policy, make_instances(2, 5)),
        CMAESRefine(population=4, parts_per_rollout=8.0, beam=0),
    )
    task.account.limit, state = 10_000, strategy.init(task)
    for _ in range(3):
        state, _, _ = strategy.step(task, state)
    assert state.elite_set is not None
    for cost in state.elite_set.cost:
        real = cost[cost.isfinite()]
        assert (real.diff() > 1e-5).all()
    assert (
        state.elite_set.cost.isinf().any()
    )  # five cities have twelve tours, and a search finds few of them


def test_no_more_plans_than_the_elite() -> None:
    """More plans to improve than the elite has are refused."""
    with pytest.raises(InputError, match="plans=9"):
        CMAESRefine(plans=9)
