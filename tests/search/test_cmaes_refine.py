"""Plans of which a part is built anew, and the search that does so: what is kept, what is found,
what it costs.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fleets import vehicles

from rhumbline.decoding.neighbourhoods import (
    MAX_FREE_NODES,
    MIN_FREE_NODES,
    neighbourhood_prefixes,
    route_prefixes,
    tour_prefixes,
)
from rhumbline.errors import InputError
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPInstance, Routes
from rhumbline.problems.tsp import TSP, Tour
from rhumbline.search import task as tasks
from rhumbline.search.driver import Budget, search
from rhumbline.search.plan_sets.elite import EliteSet
from rhumbline.search.strategies.cmaes_elite import CMAESElite
from rhumbline.search.strategies.cmaes_refine import CMAESRefine, best_latent, random_views
from rhumbline.search.strategies.sgbs import Beam
from rhumbline.search.strategy import warm_up_run_of
from rhumbline.search.task import Spent, Task, make_task, set_warm_start

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
    """What is kept of the corners' plan when the routes near a customer are left out."""
    batch, where = CVRP().collate([instance]), torch.tensor([[(customer - 0.5) / 10]])
    given = route_prefixes(batch.xy, torch.tensor([CORNERS]), where, torch.tensor([[gone]]))
    assert given.actions.shape == (1, 1, 20)
    return given.actions[0, 0, : given.length[0, 0]].tolist()


def test_routes_near_a_customer_are_left_out(corners: CVRPInstance) -> None:
    """Two at least, more if more customers are to be free, each whole; the others stay in their
    order, at home.
    """
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
    ]  # its own route and the one on its way
    assert cut(corners, 8, 4.0) == [1, 2, 0, 5, 6, 0, 9, 10, 0]
    assert cut(corners, 3, 5.0) == [1, 2, 0, 5, 6, 0]  # three routes make six, the nearest enough


def test_one_route_is_always_kept(corners: CVRPInstance) -> None:
    """However many are to be free: the farthest is the beginning."""
    assert cut(corners, 1, 100.0) == [7, 8, 0]


def test_a_stretch_of_a_tour_is_left_out() -> None:
    """The rest begins behind it and goes round in either direction."""
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
    """Of two latents and then of parts of the best plan: with the same attempts far better than
    generations alone.
    """
    instances = vehicles(8, 30)  # of six seeds 0.948 to 0.967
    whole, _ = search(CMAESElite(population=2), make_task(CVRP(), driver, instances), Budget(96))
    parts, _ = search(
        CMAESRefine(population=2, rebuilt=8.0), make_task(CVRP(), driver, instances), Budget(96)
    )
    assert sum(s.cost for s in parts) < 0.97 * sum(s.cost for s in whole)


def test_a_warm_start_is_built_upon(driver: CVRPPolicy) -> None:
    """The plan that was given is the best so far, so it is its neighbourhoods that are planned
    again.
    """
    (instance,) = vehicles(1, 40)
    rings = Routes(tuple(tuple(range(k, k + 5)) for k in range(1, 41, 5)))
    task, strategy = (
        make_task(CVRP(), driver, [instance]),
        CMAESRefine(population=2, rebuilt=4.0, beam=0, plans=1),
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
    """After 4 latents from 40 starts half as many completions, sixteen of each neighbourhood;
    then a beam.
    """
    task, strategy = (
        make_task(CVRP(), driver, vehicles(2, 40)),
        CMAESRefine(population=4, rebuilt=0.5, beam=1, starts=1.0),
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
    assert free.max() <= MAX_FREE_NODES
    assert isinstance(state.beam, Beam)
    assert task.account.attempts == 4 + 2
    state, _, _ = strategy.step(task, state)
    assert (state.beam.depth, made[1].length.unique().tolist()) == (2, [2])


def test_instances_do_not_depend_on_their_company(driver: CVRPPolicy, monkeypatch) -> None:
    """Alone or beside others, in pieces of whatever size, the same neighbourhoods are drawn and
    planned alike.
    """
    instances, strategy = (
        vehicles(3, 20),
        CMAESRefine(population=4, rebuilt=4.0, beam=0, rate=0.001),
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
    small = replace(tasks.TUNING, piece_elements_cpu=1, untimed_piece_factor=1)
    monkeypatch.setattr(tasks, "TUNING", small)
    many, same = alone()
    assert many > 2 * few
    assert together[1].plan == plan == same


def test_a_beam_leaves_the_noise_alone(driver: CVRPPolicy) -> None:
    """It samples nothing: the generation after it sees the noise that it would have seen
    without.
    """
    task, strategy = (
        make_task(CVRP(), driver, vehicles(2, 12)),
        CMAESRefine(population=4, rebuilt=0.0, beam=1),
    )
    task.account.limit = 1000
    state, _, _ = strategy.step(task, strategy.init(task))
    tried_count = task.tried_count
    while state.beam:
        before = state.beam.depth
        state, _, _ = strategy.step(task, state)
        if state.beam.depth < before:
            break  # a new one, after a generation
        assert task.tried_count == tried_count
    assert task.tried_count == tried_count + 4


def test_plans_of_one_or_two_routes_lose_their_ends(corners: CVRPInstance) -> None:
    """No other routes could be kept: the last customers are planned again, or, driven backwards,
    the first.
    """
    batch = CVRP().collate([replace(corners, capacity=10)] * 2)
    plan = torch.tensor([[*range(1, 11), *[0] * 10], [1, 2, 3, 4, 0, *range(5, 11), *[0] * 9]])
    given = route_prefixes(
        batch.xy, plan, torch.tensor([[0.4, 0.6]] * 2), torch.tensor([[4.0, 7.9]] * 2)
    )
    assert given.actions[0, :, :10].tolist() == [list(range(1, 11)), list(range(10, 0, -1))]
    assert given.actions[1, 1, :11].tolist() == [10, 9, 8, 7, 6, 5, 0, 4, 3, 2, 1]
    assert given.length.tolist() == [[6, 3], [7, 4]]


def test_tours_too(policy, make_instances) -> None:
    """Stretches of tours: what is found is a tour, no longer than what generations alone find."""
    instances = make_instances(3, 40)  # of three seeds 0.943 to 0.953
    whole, _ = search(CMAESElite(population=2), make_task(TSP(), policy, instances), Budget(32))
    parts, _ = search(
        CMAESRefine(population=2, rebuilt=8.0), make_task(TSP(), policy, instances), Budget(32)
    )
    for solution in parts:
        assert isinstance(solution.plan, Tour)
        solution.plan.check(solution.instance)
    assert sum(s.cost for s in parts) < sum(s.cost for s in whole)


def cycle(order: list[int]) -> tuple[int, ...]:
    """A tour whatever its beginning and direction: from its least number on, towards the lesser
    neighbour.
    """
    at = order.index(min(order))
    way = (*order[at:], *order[:at])
    return min(way, (way[0], *way[:0:-1]))


def test_a_tour_is_learnt_from_wherever_it_begins(policy, make_instances) -> None:
    """The same tours, from other cities and either way round, differently each time; alone as in
    company.
    """
    torch.manual_seed(0)
    size, instances = 12, make_instances(2, 12)
    task, alone = (make_task(TSP(), policy, some, seed=5) for some in (instances, instances[:1]))
    elite_set = EliteSet(
        torch.rand(2, 40),
        torch.stack([torch.randperm(size) for _ in range(80)]).view(2, 40, size).short(),
    )
    seen = random_views(task, elite_set)
    tours, views = (x.actions.flatten(0, 1).tolist() for x in (elite_set, seen))
    assert [cycle(view) for view in views] == [cycle(tour) for tour in tours]
    assert (
        seen.actions.dtype == elite_set.actions.dtype
    )  # else a GPU's kernels for scores would be compiled once more
    assert torch.equal(seen.cost, elite_set.cost)
    assert torch.equal(random_views(alone, elite_set[:1]).actions, seen.actions[:1])
    places = [tour.index(view[0]) for tour, view in zip(tours, views, strict=True)]
    ahead = [
        tour[(at + 1) % size] == view[1]
        for tour, at, view in zip(tours, places, views, strict=True)
    ]
    assert len(set(places)) == size
    assert 24 < sum(ahead) < 56  # of 80; half of them, give or take three deviations
    task.tried_count += 1
    assert not torch.equal(random_views(task, elite_set).actions, seen.actions)


def test_routes_are_learnt_in_the_order_they_were_built_in(
    driver: CVRPPolicy, corners: CVRPInstance
) -> None:
    """That order is something a policy for vehicles knows."""
    elite_set = EliteSet(torch.ones(1, 1), torch.arange(8).view(1, 1, 8))
    assert random_views(make_task(CVRP(), driver, [corners]), elite_set) is elite_set


def test_the_latent_of_the_cheapest_rollout(policy) -> None:
    """Over all starts."""
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
        {"rebuilt": -1.0},
        {"beam": -1},
        {"width": 0},
        {"branch": 1},
        {"elite": 0},
        {"plans": 0},
        {"stock": -1},
    ],
)
def test_impossible_settings_are_refused(settings) -> None:
    """When they are written down."""
    with pytest.raises(InputError, match="at least"):
        CMAESRefine(**settings)


def test_sizes_of_neighbourhoods() -> None:
    """Enough to change something, and few beside a hundred nodes."""
    assert 4 < MIN_FREE_NODES < MAX_FREE_NODES < 100


@pytest.mark.parametrize(
    "settings", [{}, {"population": 40}, {"rebuilt": 0.5}, {"population": 5, "rebuilt": 3.0}]
)
def test_a_rehearsal_uses_every_kernel(
    driver: CVRPPolicy, monkeypatch, settings: dict[str, float]
) -> None:
    """Parts are sampled and a beam is completed greedily within its few attempts, long before
    the first usual beam.
    """
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
    """For each whole plan three of which a part is new; greedily one of each neighbourhood,
    since all are the same.
    """
    task, made = make_task(CVRP(), driver, vehicles(1, 20)), []
    task.account.limit, complete = 1000, task.complete
    task.complete = lambda latents, given, memory, heat, samples: (
        made.append(given.length.shape[1] * samples)
        or complete(latents, given, memory, heat, samples)
    )
    strategy = CMAESRefine(
        population=4, rebuilt=3.0, temperature=temperature, starts=1.0, plans=4, beam=0
    )
    strategy.step(task, strategy.init(task))
    # Three for each of 4 x 20 whole ones: 16 samples of 15 neighbourhoods, that is of four of each
    # plan; or 60 of each.
    assert sum(made) == (16 * 4 * 4 if temperature else 60 * 4)


def test_large_instances_are_mostly_refined(policy, make_instances, monkeypatch) -> None:
    """Beyond 300 cities a CPU builds a part for every tenth of a city and whole tour; up to
    there and on a GPU two.
    """
    small, large = (make_task(TSP(), policy, make_instances(1, nodes)) for nodes in (300, 400))
    assert [
        CMAESRefine().default_parts_per_rollout(task) for task in (small, large)
    ] == pytest.approx([2.0, 40.0])
    assert CMAESRefine(rebuilt=3.0).default_parts_per_rollout(large) == 3.0
    monkeypatch.setattr(Task, "device", torch.device("cuda"))
    assert CMAESRefine().default_parts_per_rollout(large) == 2.0


def test_parts_of_large_instances_are_sampled_at_a_temperature_of_their_own(
    policy, make_instances, monkeypatch
) -> None:
    """Whole tours of 302 cities at 0.2, parts, which are a few dozen decisions, at 0.5; or as a
    user says.
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
    warmths = [
        CMAESRefine().part_temperature(make_task(TSP(), policy, make_instances(1, nodes)))
        for nodes in (300, 501, 502)
    ]
    assert warmths == [0.5, 0.5, 0.1]  # up to 300 that of what learns


def test_larger_plans_need_more_attempts_each(policy, make_instances) -> None:
    """One plan for every 150 attempts up to 300 cities, for every 300 at 400."""
    found = list[int]()
    for nodes in (100, 300, 400):
        task = make_task(TSP(), policy, make_instances(1, nodes))
        task.account.limit, task.account.attempts = 900, 90
        found.append(CMAESRefine().default_plans(task))
    assert found == [6, 6, 3]


def test_beams_are_for_cpus(driver: CVRPPolicy, monkeypatch) -> None:
    """Unless they are asked for."""
    task = make_task(CVRP(), driver, vehicles(1, 4))
    assert [CMAESRefine(beam=beam).default_beam(task) for beam in (None, 0, 3)] == [8, 0, 3]
    large = make_task(CVRP(), driver, vehicles(1, 301))
    assert [CMAESRefine(beam=beam).default_beam(large) for beam in (None, 3)] == [0, 3]
    monkeypatch.setattr(Task, "device", property(lambda task: torch.device("cuda")))
    assert [CMAESRefine(beam=beam).default_beam(task) for beam in (None, 0, 3)] == [0, 0, 3]
    assert CMAESRefine().rehearsal[0].default_beam(task) == 0


def test_neighbourhoods_build_upon_one_another(driver: CVRPPolicy) -> None:
    """After every few of them the best plan of then is the one that is taken apart."""
    task = make_task(CVRP(), driver, vehicles(1, 40))
    strategy = CMAESRefine(population=4, rebuilt=4.0, plans=1, abreast=2)
    task.account.limit, kept, complete = 1000, [], task.complete
    task.complete = lambda latents, given, *more: (
        kept.append((given.length.shape[1], task.incumbents.clone()))
        or complete(latents, given, *more)
    )
    strategy.step(task, strategy.init(task))
    assert {count for count, _ in kept} == {2}
    assert len({tuple(plan[0].tolist()) for _, plan in kept}) > 1
    assert [CMAESRefine(abreast=n).neighbourhoods_at_once(task, 50) for n in (None, 7)] == [5, 7]


def test_tours_may_be_cut_the_way_they_were_built_only() -> None:
    """Then what is left of a tour is a stretch of it as it stands, whatever the luck; vehicles
    are cut as ever.
    """
    plan, luck = (
        torch.tensor([[3, 1, 4, 0, 2]]),
        torch.tensor([[[0.1, 0.0], [0.6, 0.0], [0.99, 0.0]]]),
    )
    xy = torch.rand(1, 5, 2, generator=torch.Generator().manual_seed(1))
    one = neighbourhood_prefixes(tour_prefixes, xy, plan, luck, both=False).actions[0].tolist()
    assert one == [[3, 1, 4, 0, 2], [0, 2, 3, 1, 4], [2, 3, 1, 4, 0]]
    assert neighbourhood_prefixes(tour_prefixes, xy, plan, luck).actions[0].tolist()[2] == [
        2,
        0,
        4,
        1,
        3,
    ]
    routes = torch.tensor([[1, 2, 0, 3, 0, 4, 0, 0]])
    same = (
        neighbourhood_prefixes(route_prefixes, xy, routes, luck, both=both)
        for both in (True, False)
    )
    assert torch.equal(*(x.actions for x in same))
