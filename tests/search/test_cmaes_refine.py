"""Large-neighbourhood search on the best plans: what is kept, what is found, what it costs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fleets import vehicles

from rhumbline.decoding.neighbourhoods import (
    TUNING,
    neighbourhood_prefixes,
    route_prefixes,
    tour_prefixes,
)
from rhumbline.errors import InputError
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPInstance, Routes
from rhumbline.problems.tsp import TSP, Tour
from rhumbline.search.driver import Budget, search
from rhumbline.search.plan_sets.elite import EliteSet
from rhumbline.search.strategies.cmaes_elite import CMAESElite
from rhumbline.search.strategies.cmaes_refine import CMAESRefine, best_latent, draw_views
from rhumbline.search.strategies.sgbs import Beam
from rhumbline.search.strategy import warm_up_run_of
from rhumbline.search.task import Spent, Task, make_task, pacing, set_warm_start
from rhumbline.search.task import task as tasks

# A depot in the middle, two customers in each corner and two more on the way to the first.
XY = [
    (0.5, 0.5),
    (0.1, 0.1),
    (0.1, 0.2),
    (0.9, 0.1),
    (0.9, 0.2),
    (0.1, 0.9),
    (0.1, 0.8),
    (0.9, 0.9),
    (0.9, 0.8),
    (0.3, 0.3),
    (0.2, 0.3),
]
CORNERS = [1, 2, 0, 3, 4, 0, 5, 6, 0, 7, 8, 0, 9, 10, 0, 0, 0, 0, 0, 0]


@pytest.fixture
def corners() -> CVRPInstance:
    return CVRPInstance("corners", "EXACT_2D", (0, *[1] * 10), 2, xy=np.array(XY))


def cut(instance: CVRPInstance, customer: int, gone: float) -> list[int]:
    """Return what is kept of the corners' plan when the routes near a customer are removed."""
    batch, where = CVRP().collate([instance]), torch.tensor([[(customer - 0.5) / 10]])
    given = route_prefixes(batch.xy, torch.tensor([CORNERS]), where, torch.tensor([[gone]]))
    assert given.actions.shape == (1, 1, 20)
    return given.actions[0, 0, : given.length[0, 0]].tolist()


def test_routes_near_a_customer_are_left_out(corners: CVRPInstance) -> None:
    """At least two whole routes are removed, and more if more customers are to be free.

    The others stay in their order.
    """
    # Its own route and the one on its way.
    assert cut(corners, 1, 1.0) == [
        3,
        4,
        0,
        5,
        6,
        0,
        7,
        8,
        0,
    ]
    assert cut(corners, 8, 4.0) == [1, 2, 0, 5, 6, 0, 9, 10, 0]
    assert cut(corners, 3, 5.0) == [1, 2, 0, 5, 6, 0]  # three routes have six customers


def test_one_route_is_always_kept(corners: CVRPInstance) -> None:
    """The farthest route is the prefix, however many customers are to be free."""
    assert cut(corners, 1, 100.0) == [7, 8, 0]


def test_a_stretch_of_a_tour_is_left_out() -> None:
    """The rest begins behind the removed stretch and goes round in either direction."""
    plan, where = torch.tensor([[4, 2, 0, 1, 3]]), torch.tensor([[0.0, 0.15, 0.5, 0.65]])
    given = tour_prefixes(torch.zeros(1, 5, 2), plan, where, torch.tensor([[2.0, 2.9, 3.0, 9.0]]))
    assert given.actions[0].tolist() == [
        [4, 2, 0, 1, 3],
        [2, 0, 1, 3, 4],
        [4, 3, 1, 0, 2],
        [2, 4, 3, 1, 0],
    ]
    assert given.length.tolist() == [[3, 3, 2, 1]]


def test_rebuilding_improves_a_poor_plan(driver: CVRPPolicy) -> None:
    """With two latents, LNS finds far better plans than generations of as many attempts."""
    instances = vehicles(8, 30)  # six seeds give 0.948 to 0.967
    whole, _ = search(CMAESElite(population=2), make_task(CVRP(), driver, instances), Budget(96))
    parts, _ = search(
        CMAESRefine(population=2, parts_per_rollout=8.0),
        make_task(CVRP(), driver, instances),
        Budget(96),
    )
    assert sum(s.cost for s in parts) < 0.97 * sum(s.cost for s in whole)


def test_a_warm_start_is_built_upon(driver: CVRPPolicy) -> None:
    """A given plan is the best so far, so its neighbourhoods are re-sampled."""
    (instance,) = vehicles(1, 40)
    rings = Routes(tuple(tuple(range(k, k + 5)) for k in range(1, 41, 5)))
    task, strategy = (
        make_task(CVRP(), driver, [instance]),
        CMAESRefine(population=2, parts_per_rollout=4.0, beam=0, plans=1),
    )
    set_warm_start(task, [rings])
    task.account.limit = 1000
    task.account.best = task.account.best * 0 + 1e-3  # nothing is better
    kept, complete = [], task.complete
    task.complete = lambda latents, given, *more: (
        kept.append(given) or complete(latents, given, *more)
    )
    strategy.step(task, strategy.init(task))
    begun = {tuple(x[:5]) for x in kept[0].actions[0].tolist()}
    assert begun <= {tuple(route) for route in rings.routes}
    assert len(begun) > 1


def test_neighbourhoods_come_in_the_shares_that_were_asked_for(driver: CVRPPolicy) -> None:
    """After 4 latents from 40 starts there are half as many completions, then a beam.

    Each neighbourhood is completed sixteen times.
    """
    task, strategy = (
        make_task(CVRP(), driver, vehicles(2, 40)),
        CMAESRefine(population=4, parts_per_rollout=0.5, beam=1, starts=1.0),
    )
    task.account.limit = 1000
    made, real = [], task.complete

    def counting(latents, given, *more):
        made.append(given)
        return real(latents, given, *more)

    task.complete = counting
    state, _, _ = strategy.step(task, strategy.init(task))
    assert made[0].length.shape == (2, 5)
    assert len(made[0].actions[0].unique(dim=0)) > 1
    free = 40 - (made[0].actions * (torch.arange(80) < made[0].length[..., None]) != 0).sum(2)
    assert free.min() >= 10  # two routes
    assert free.max() <= TUNING.max_free_nodes
    assert isinstance(state.beam, Beam)
    assert task.account.attempts == 4 + 2
    state, _, _ = strategy.step(task, state)
    assert (state.beam.depth, made[1].length.unique().tolist()) == (2, [2])


def test_instances_do_not_depend_on_the_batch(driver: CVRPPolicy, monkeypatch) -> None:
    """An instance gets the same neighbourhoods in any batch and with any piece size."""
    instances, strategy = (
        vehicles(3, 20),
        CMAESRefine(population=4, parts_per_rollout=4.0, beam=0, rate=0.001),
    )
    calls, real = [], tasks.complete
    monkeypatch.setattr(
        tasks, "complete", lambda *given, **more: calls.append(1) or real(*given, **more)
    )

    def alone() -> tuple[int, Routes]:
        calls.clear()
        found, _ = search(strategy, make_task(CVRP(), driver, instances[1:2]), Budget(40))
        return len(calls), found[0].plan

    together, _ = search(strategy, make_task(CVRP(), driver, instances), Budget(40))
    few, plan = alone()
    small = replace(pacing.TUNING, piece_elements_cpu=1, untimed_piece_factor=1)
    monkeypatch.setattr(pacing, "TUNING", small)
    many, same = alone()
    assert many > 2 * few
    assert together[1].plan == plan == same


def test_a_beam_leaves_the_noise_alone(driver: CVRPPolicy) -> None:
    """A beam samples nothing: the generation after it has the noise it would have without."""
    task, strategy = (
        make_task(CVRP(), driver, vehicles(2, 12)),
        CMAESRefine(population=4, parts_per_rollout=0.0, beam=1),
    )
    task.account.limit = 1000
    state, _, _ = strategy.step(task, strategy.init(task))
    tried_count = task.tried_count
    while state.beam:
        before = state.beam.depth
        state, _, _ = strategy.step(task, state)
        if state.beam.depth < before:
            break  # a new beam, after a generation
        assert task.tried_count == tried_count
    assert task.tried_count == tried_count + 4


def test_plans_of_one_or_two_routes_lose_their_ends(corners: CVRPInstance) -> None:
    """If no other route could be kept, the first or the last customers are re-sampled."""
    batch = CVRP().collate([replace(corners, capacity=10)] * 2)
    plan = torch.tensor([[*range(1, 11), *[0] * 10], [1, 2, 3, 4, 0, *range(5, 11), *[0] * 9]])
    given = route_prefixes(
        batch.xy, plan, torch.tensor([[0.4, 0.6]] * 2), torch.tensor([[4.0, 7.9]] * 2)
    )
    assert given.actions[0, :, :10].tolist() == [list(range(1, 11)), list(range(10, 0, -1))]
    assert given.actions[1, 1, :11].tolist() == [10, 9, 8, 7, 6, 5, 0, 4, 3, 2, 1]
    assert given.length.tolist() == [[6, 3], [7, 4]]


def test_tours_too(policy, make_instances) -> None:
    """For tours it re-samples stretches, and finds tours no longer than generations alone."""
    instances = make_instances(3, 40)  # three seeds give 0.943 to 0.953
    whole, _ = search(CMAESElite(population=2), make_task(TSP(), policy, instances), Budget(32))
    parts, _ = search(
        CMAESRefine(population=2, parts_per_rollout=8.0),
        make_task(TSP(), policy, instances),
        Budget(32),
    )
    for solution in parts:
        assert isinstance(solution.plan, Tour)
        solution.plan.check(solution.instance)
    assert sum(s.cost for s in parts) < sum(s.cost for s in whole)


def cycle(order: list[int]) -> tuple[int, ...]:
    """Return a tour from its least city on, towards the lesser neighbour."""
    at = order.index(min(order))
    way = (*order[at:], *order[:at])
    return min(way, (way[0], *way[:0:-1]))


def test_a_tour_is_learnt_from_wherever_it_begins(policy, make_instances) -> None:
    """Views are the same tours from other cities in either direction.

    They differ each time, and do not depend on the batch.
    """
    torch.manual_seed(0)
    size, instances = 12, make_instances(2, 12)
    task, alone = (make_task(TSP(), policy, some, seed=5) for some in (instances, instances[:1]))
    elite_set = EliteSet(
        torch.rand(2, 40),
        torch.stack([torch.randperm(size) for _ in range(80)]).view(2, 40, size).short(),
    )
    seen = draw_views(task, elite_set)
    tours, views = (x.actions.flatten(0, 1).tolist() for x in (elite_set, seen))
    assert [cycle(view) for view in views] == [cycle(tour) for tour in tours]
    # Otherwise a GPU would compile its kernels for scores again.
    assert seen.actions.dtype == elite_set.actions.dtype
    assert torch.equal(seen.cost, elite_set.cost)
    assert torch.equal(draw_views(alone, elite_set[:1]).actions, seen.actions[:1])
    places = [tour.index(view[0]) for tour, view in zip(tours, views, strict=True)]
    ahead = [
        tour[(at + 1) % size] == view[1]
        for tour, at, view in zip(tours, places, views, strict=True)
    ]
    assert len(set(places)) == size
    assert 24 < sum(ahead) < 56  # half of 80, up to three deviations
    task.tried_count += 1
    assert not torch.equal(draw_views(task, elite_set).actions, seen.actions)


def test_routes_are_learnt_in_the_order_they_were_built_in(
    driver: CVRPPolicy, corners: CVRPInstance
) -> None:
    """A CVRP policy relies on the order of routes, so views leave it alone."""
    elite_set = EliteSet(torch.ones(1, 1), torch.arange(8).view(1, 1, 8))
    assert draw_views(make_task(CVRP(), driver, [corners]), elite_set) is elite_set


def test_the_latent_of_the_cheapest_rollout(policy) -> None:
    """The best latent has the cheapest rollout over all starts."""
    from rhumbline.decoding import Rollouts

    rolled = Rollouts(
        torch.tensor([[[5.0, 4.0], [9.0, 1.0], [3.0, 3.0]]]),
        torch.zeros(1, 3, 2, 2, dtype=torch.int16),
    )
    assert best_latent(torch.tensor([[[0.1], [0.2], [0.3]]]), rolled).tolist() == pytest.approx(
        np.array([[[0.2]]])
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"parts_per_rollout": -1.0},
        {"beam": -1},
        {"width": 0},
        {"branch": 1},
        {"elite": 0},
        {"plans": 0},
        {"route_pool": -1},
    ],
)
def test_impossible_settings_are_refused(settings) -> None:
    """Settings that cannot work are refused at construction."""
    with pytest.raises(InputError, match="at least"):
        CMAESRefine(**settings)


def test_sizes_of_neighbourhoods() -> None:
    """Neighbourhoods are large enough to change something, and small beside 100 nodes."""
    assert 4 < TUNING.min_free_nodes < TUNING.max_free_nodes < 100


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"population": 40},
        {"parts_per_rollout": 0.5},
        {"population": 5, "parts_per_rollout": 3.0},
    ],
)
def test_a_warm_up_run_uses_every_kernel(
    driver: CVRPPolicy, monkeypatch, settings: dict[str, float]
) -> None:
    """A warm-up run samples parts and completes a beam within its few attempts."""
    task, used = make_task(CVRP(), driver, vehicles(1, 12)), []
    with monkeypatch.context() as patched:
        patched.setattr(Task, "device", property(lambda task: torch.device("cuda")))
        strategy, attempts = warm_up_run_of(CMAESRefine(beam=8, **settings), task)
    task.complete = lambda latents, given, memory, temperature=0.0, *more: (
        used.append(temperature > 0)
        or Task.complete(task, latents, given, memory, temperature, *more)
    )
    search(strategy, task, Budget(attempts))
    assert attempts < 8 * strategy.population
    assert used[0]
    assert not used[-1]


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_as_many_parts_as_were_asked_for(driver: CVRPPolicy, temperature: float) -> None:
    """Each whole rollout comes with three parts; at temperature 0 each neighbourhood with one."""
    task, made = make_task(CVRP(), driver, vehicles(1, 20)), []
    task.account.limit, complete = 1000, task.complete
    task.complete = lambda latents, given, memory, heat, samples: (
        made.append(given.length.shape[1] * samples)
        or complete(latents, given, memory, heat, samples)
    )
    strategy = CMAESRefine(
        population=4, parts_per_rollout=3.0, temperature=temperature, starts=1.0, plans=4, beam=0
    )
    strategy.step(task, strategy.init(task))
    # Three parts for each of 4 x 20 rollouts: 16 samples of 15 neighbourhoods, which are four of
    # each plan, or 60 of each.
    assert sum(made) == (16 * 4 * 4 if temperature else 60 * 4)


def test_large_instances_are_mostly_refined(policy, make_instances, monkeypatch) -> None:
    """Beyond 300 cities a CPU builds a part per tour and ten cities; otherwise there are two."""
    small, large = (make_task(TSP(), policy, make_instances(1, nodes)) for nodes in (300, 400))
    assert [
        CMAESRefine().default_parts_per_rollout(task) for task in (small, large)
    ] == pytest.approx([2.0, 40.0])
    assert CMAESRefine(parts_per_rollout=3.0).default_parts_per_rollout(large) == 3.0
    monkeypatch.setattr(Task, "device", torch.device("cuda"))
    assert CMAESRefine().default_parts_per_rollout(large) == 2.0


def test_parts_of_large_instances_are_sampled_at_a_temperature_of_their_own(
    policy, make_instances, monkeypatch
) -> None:
    """Parts of 302 cities are sampled at 0.5 where whole tours are at 0.2.

    A part is a few dozen decisions. A temperature that a user sets is used for both.
    """
    told = dict[str, list[float]](whole=[], part=[])

    def stop(kind: str, temperature: float) -> None:
        told[kind].append(temperature)
        raise Spent

    whole = Task.rollout
    task = make_task(TSP(), policy, make_instances(1, 302))
    for settings in ({}, {"temperature": 0.9}):
        monkeypatch.setattr(
            Task, "rollout", lambda self, latents, t, *rest, **more: stop("whole", t)
        )
        strategy = CMAESRefine(population=2, **settings)
        with pytest.raises(Spent):
            strategy.step(task, strategy.init(task))
        monkeypatch.setattr(Task, "rollout", whole)
        monkeypatch.setattr(
            Task, "complete", lambda self, latents, given, memory, t, samples: stop("part", t)
        )
        with pytest.raises(Spent):
            strategy.step(task, strategy.init(task))
    assert told == {"whole": [0.2, 0.9], "part": [0.5, 0.9]}
    temperatures = [
        CMAESRefine().sample_temperature(make_task(TSP(), policy, make_instances(1, nodes)))
        for nodes in (300, 501, 502)
    ]
    assert temperatures == [0.5, 0.5, 0.1]  # up to 300 nodes that of the learner


def test_larger_plans_need_more_attempts_each(policy, make_instances) -> None:
    """One plan is refined for every 150 attempts up to 300 cities, for every 300 at 400."""
    found = list[int]()
    for nodes in (100, 300, 400):
        task = make_task(TSP(), policy, make_instances(1, nodes))
        task.account.limit, task.account.attempts = 900, 90
        found.append(CMAESRefine().default_plans(task))
    assert found == [6, 6, 3]


def test_beams_are_for_cpus(driver: CVRPPolicy, monkeypatch) -> None:
    """On a GPU there is no beam unless a user asks for it."""
    task = make_task(CVRP(), driver, vehicles(1, 4))
    assert [CMAESRefine(beam=beam).default_beam(task) for beam in (None, 0, 3)] == [8, 0, 3]
    large = make_task(CVRP(), driver, vehicles(1, 301))
    assert [CMAESRefine(beam=beam).default_beam(large) for beam in (None, 3)] == [0, 3]
    monkeypatch.setattr(Task, "device", property(lambda task: torch.device("cuda")))
    assert [CMAESRefine(beam=beam).default_beam(task) for beam in (None, 0, 3)] == [0, 0, 3]
    assert CMAESRefine().warm_up(task).strategy.default_beam(task) == 0


def test_neighbourhoods_build_upon_one_another(driver: CVRPPolicy) -> None:
    """After every few neighbourhoods, the best plan so far is the next to be cut."""
    task = make_task(CVRP(), driver, vehicles(1, 40))
    strategy = CMAESRefine(population=4, parts_per_rollout=4.0, plans=1, neighbourhoods_at_once=2)
    task.account.limit, kept, complete = 1000, [], task.complete
    task.complete = lambda latents, given, *more: (
        kept.append((given.length.shape[1], task.incumbents.clone()))
        or complete(latents, given, *more)
    )
    strategy.step(task, strategy.init(task))
    assert {count for count, _ in kept} == {2}
    assert len({tuple(plan[0].tolist()) for _, plan in kept}) > 1
    assert [
        CMAESRefine(neighbourhoods_at_once=n).default_neighbourhoods_at_once(task, 50)
        for n in (None, 7)
    ] == [5, 7]


def test_tours_may_be_cut_the_way_they_were_built_only() -> None:
    """On request, what is left of a tour is a stretch in its own direction.

    The uniforms do not change that, and CVRP plans are cut as before.
    """
    plan, uniforms = (
        torch.tensor([[3, 1, 4, 0, 2]]),
        torch.tensor([[[0.1, 0.0], [0.6, 0.0], [0.99, 0.0]]]),
    )
    xy = torch.rand(1, 5, 2, generator=torch.Generator().manual_seed(1))
    one = neighbourhood_prefixes(tour_prefixes, xy, plan, uniforms, both=False).actions[0].tolist()
    assert one == [[3, 1, 4, 0, 2], [0, 2, 3, 1, 4], [2, 3, 1, 4, 0]]
    assert neighbourhood_prefixes(tour_prefixes, xy, plan, uniforms).actions[0].tolist()[2] == [
        2,
        0,
        4,
        1,
        3,
    ]
    routes = torch.tensor([[1, 2, 0, 3, 0, 4, 0, 0]])
    same = (
        neighbourhood_prefixes(route_prefixes, xy, routes, uniforms, both=both)
        for both in (True, False)
    )
    assert torch.equal(*(x.actions for x in same))
