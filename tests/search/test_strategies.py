"""A conformance suite over all strategies: budgets, incumbents, seeds, clocks and interruptions."""

from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rhumbline.decoding import ENGINES, Rollouts
from rhumbline.errors import Infeasible, InputError
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.tsp import TSP, Tour, TSPInstance
from rhumbline.problems.tsp.construct import construct_tour
from rhumbline.search import cma_es, driver
from rhumbline.search.driver import Budget, search, stream
from rhumbline.search.solution import Solution
from rhumbline.search.strategies import STRATEGIES
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.strategies.cmaes_eas import CMAESEAS
from rhumbline.search.strategies.cmaes_elite import CMAESElite
from rhumbline.search.strategies.cmaes_refine import CMAESRefine
from rhumbline.search.strategies.eas import EASEmb, EASLay
from rhumbline.search.strategies.greedy_sampling import Fixed, Greedy, Sampling, Uniform
from rhumbline.search.strategies.population import Population
from rhumbline.search.strategies.sgbs import SGBS, SGBSEAS
from rhumbline.search.task import account, make, make_task, pacing
from rhumbline.search.task import task as tasks

ALL: dict[str, Any] = {name: STRATEGIES[name]() for name in STRATEGIES.table} | {
    "cmaes+starts=0.5": CMAES(starts=0.5),  # what a CPU does with instances of more than 25 starts
    "cmaes+parallel": CMAES(parallel=True),
    "cmaes+restart": CMAES(restart=0.99),
    "cmaes-elite+starts=0.5": CMAESElite(starts=0.5),
    "population+pairs": Population(pairs=True),
}
ORDER = torch.arange(6).expand(2, 1, 1, 6)  # actions of two rollouts
REPEATING = sorted(name for name, strategy in ALL.items() if not strategy.finite)
SEEDED = sorted(set(REPEATING) - {"sgbs"})  # greedy decoding needs no noise


@pytest.fixture(params=sorted(ALL))
def strategy(request: pytest.FixtureRequest) -> Any:
    return ALL[request.param]


@pytest.fixture(params=REPEATING)
def repeating(request: pytest.FixtureRequest) -> Any:
    """Return a strategy whose steps go on as long as the budget does."""
    return ALL[request.param]


@pytest.fixture(params=SEEDED)
def seeded(request: pytest.FixtureRequest) -> Any:
    """Return a strategy whose attempts are random."""
    return ALL[request.param]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the trajectories that engines build for any caller."""
    seen: list[int] = []

    def counting(build, request):
        rolled = build(request)
        seen.append(rolled.cost.numel())
        return rolled

    for engine in ENGINES.values():
        monkeypatch.setattr(engine, "rollout", partial(counting, engine.rollout))
    return seen


def suited(strategy, policy):
    """Return the policy, or a population for the strategy that needs one."""
    if not isinstance(strategy, Population):
        return policy
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return TSPPolicy(replace(policy.architecture, latent=0, members=3)).requires_grad_(False)


def trace_of(
    strategy, policy, instances, attempts: int, seed: int = 0, augment: int = 1
) -> list[tuple[int, list[float], list[float]]]:
    task = make_task(TSP(), suited(strategy, policy), instances, seed=seed, augment=augment)
    return [
        (p.attempts, p.best.tolist(), p.latest.tolist())
        for p in stream(strategy, task, Budget(attempts))
    ]


@pytest.mark.parametrize("augment", [1, 8])
def test_costs_of_latents_are_those_of_the_step(policy, make_instances, augment) -> None:
    """They are in the units of the instances, whose coordinates go up to 1,000."""
    instances = make_instances(2, 8, scale=1000.0)
    task = make_task(TSP(), policy, instances, augment=augment)
    steps = list(stream(CMAES(), task, Budget(64 * augment)))
    whole_steps = [step for step in steps if step.latent_costs is not None]
    assert len(whole_steps) > 1
    for step in whole_steps:
        assert step.latent_costs.amin(1).tolist() == pytest.approx(step.latest.tolist())


def one_latent_per_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce a piece to one latent, or one prefix."""
    small = replace(
        pacing.TUNING,
        piece_elements_cpu=1,
        min_completions=1,
        first_piece_elements=1,
        max_piece_seconds=0.0,
        max_torch_piece_seconds=0.0,
        untimed_piece_factor=1,
    )
    monkeypatch.setattr(pacing, "TUNING", small)


@pytest.mark.parametrize(
    ("budget", "sizes"), [(Budget(seconds=10), [4, 9, 17, 21, 13, 4]), (Budget(64), [32, 32])]
)
def test_pieces_are_as_large_as_time_allows(
    policy, make_instances, monkeypatch, budget: Budget, sizes
) -> None:
    """A piece grows with the pace that was measured, within the limits of the clock.

    A piece takes a second, and 0.06 s for each latent, since torch is faster with many at once.
    The first piece has 4 and takes 1.24 s. At that pace 9 would fit into the maximum of 3 s, and
    take 1.54 s; then 17 do. From 4.8 s on half of the time left is less: 21, 13, then 4, which the
    deadline ends. Without a time limit a piece has eight times the default size, here 4.
    """
    now, asked = [0.0], []
    real = tasks.Task._try

    def slow(task, latents, *more):
        asked.append(latents.shape[1])
        now[0] += 1.0 + 0.06 * latents.shape[1]
        return real(task, latents, *more)

    clock = SimpleNamespace(monotonic=lambda: now[0])
    for module in (account, driver, make, tasks):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(tasks.Task, "_try", slow)
    task = make_task(TSP(), policy, make_instances(1, 6), engine="torch")
    elements = 24 * task.pacer.elements_per_rollout
    pieces = replace(pacing.TUNING, piece_elements_cpu=elements, first_piece_elements=elements)
    monkeypatch.setattr(pacing, "TUNING", pieces)
    search(Sampling(population=64), task, budget)
    assert asked == sizes


# --- budgets


@pytest.mark.parametrize("augment", [1, 8])
@pytest.mark.parametrize("attempts", [1, 16, 21])
def test_budget_is_spent_exactly(
    repeating, policy, make_instances, counted, attempts: int, augment: int
) -> None:
    """Exactly the attempts of the budget are made: each is a trajectory from each of 6 starts.

    Beam searches pay for whole attempts: with eight copies to complete at once, up to 7
    trajectories are left over.
    """
    task = make_task(TSP(), suited(repeating, policy), make_instances(2, 6), augment=augment)
    solutions, interrupted = search(repeating, task, Budget(attempts))
    unused = attempts * 6 - sum(counted) / 2
    assert 0 <= unused < (6 + augment if hasattr(repeating, "branch") else 1)
    assert [s.attempts for s in solutions] == [attempts] * 2
    assert solutions[0].trace[-1][0] == attempts
    assert not interrupted


def test_greedy_is_one_attempt(policy, make_instances, counted) -> None:
    """Greedy ends after its only attempt, whatever the budget."""
    solutions, _ = search(Greedy(), make_task(TSP(), policy, make_instances(2, 6)), Budget(37))
    # Another strategy that ends by itself needs a test of its own.
    assert sorted(ALL.keys() - set(REPEATING)) == ["greedy"]
    assert counted == [2 * 6]
    assert [s.attempts for s in solutions] == [1, 1]


def test_pieces_change_nothing(strategy, policy, make_instances, monkeypatch) -> None:
    """The size of pieces changes no step of the trace."""
    instances = make_instances(2, 7)
    whole = trace_of(strategy, policy, instances, 17)
    one_latent_per_piece(monkeypatch)
    assert trace_of(strategy, policy, instances, 17) == whole


@pytest.mark.parametrize(
    ("latents", "words"),
    [
        (
            torch.zeros(1, 5, 4),
            r"float32 and of shape \[2, 1 or more, 4\]; these are torch.float32 \[1, 5, 4\]",
        ),
        (torch.zeros(2, 0, 4), r"these are torch.float32 \[2, 0, 4\]"),
        (torch.zeros(2, 5, 3), r"these are torch.float32 \[2, 5, 3\]"),
        (torch.zeros(2, 5), r"these are torch.float32 \[2, 5\]"),
        (torch.zeros(2, 5, 4).double(), "these are torch.float64"),
    ],
    ids=["instances", "none", "size", "axes", "type"],
)
def test_latents_that_no_rollout_is_made_of(
    policy, make_instances, latents: torch.Tensor, words: str
) -> None:
    """The error for wrong latents names the expected shape and type."""
    task = make_task(TSP(), policy, make_instances(2, 6))
    task.check_latents(torch.zeros(2, 5, 4), 2)
    with pytest.raises(InputError, match=words):
        task.check_latents(latents, 2)


@pytest.mark.parametrize("name", ["rollout", "rollout_each_copy"])
def test_latents_are_looked_at_before_anything_is_tried(
    policy, make_instances, monkeypatch, name: str
) -> None:
    """Both ways to roll out check the latents first: of instances, and of all copies."""
    asked, task = [], make_task(TSP(), policy, make_instances(2, 6), augment=2)
    monkeypatch.setattr(
        tasks.Task, "check_latents", lambda task, latents, rows: asked.append((len(latents), rows))
    )
    rows = {"rollout": 2, "rollout_each_copy": 4}[name]
    getattr(task, name)(task.policy.space.centre((rows, 1), task.device), 0.0)
    assert asked == ([(2, 2), (4, 4)] if name == "rollout" else [(4, 4)])


def test_a_search_that_would_never_end(policy, make_instances, monkeypatch) -> None:
    """A search ends with an error if its steps try nothing, or if `init` returns None."""
    task, nothing = (
        make_task(TSP(), policy, make_instances(2, 6)),
        Rollouts(torch.ones(2, 1, 1), ORDER),
    )
    monkeypatch.setattr(Sampling, "step", lambda self, task, state: (state, None, nothing))
    with pytest.raises(InputError, match="made 100 steps without trying anything"):
        search(Sampling(), task, Budget(8))
    monkeypatch.setattr(Sampling, "init", lambda self, task: None)
    with pytest.raises(InputError, match="init returned None"):
        search(Sampling(), task, Budget(8))


def test_a_strategy_cannot_overspend(policy, make_instances, counted) -> None:
    """A strategy that asks for a thousand latents gets only those that are left."""
    solutions, _ = search(
        Sampling(population=1000), make_task(TSP(), policy, make_instances(1, 5)), Budget(23)
    )
    assert sum(counted) == 23 * 5
    assert solutions[0].attempts == 23


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({}, "attempts, seconds or both"),
        ({"attempts": 0}, "attempts must be at least 1, not 0"),
        ({"attempts": -3}, "not -3"),
        ({"seconds": 0.0}, "seconds must be more than 0"),
        ({"seconds": -1.0}, "more than 0, not -1.0"),
        ({"seconds": float("nan")}, "more than 0, not nan"),
        ({"seconds": float("inf")}, "seconds must be finite"),
        ({"attempts": True}, "whole number, not True"),
    ],
)
def test_impossible_budgets_are_refused(budget: dict[str, Any], words: str) -> None:
    """A budget that cannot be kept is refused at construction."""
    with pytest.raises(InputError, match=words):
        Budget(**budget)


# --- incumbents and seeds


def test_best_never_worsens(repeating, policy, make_instances) -> None:
    """The best cost never rises; it is the cheapest of all steps, and that of the returned plan."""
    instances = make_instances(3, 9)
    trace = trace_of(repeating, policy, instances, 24)
    for (_, before, _), (_, after, latest) in pairwise(trace):
        assert after == [min(pair) for pair in zip(before, latest, strict=True)]
    solutions, _ = search(
        repeating, make_task(TSP(), suited(repeating, policy), instances), Budget(24)
    )
    for row, (instance, solution) in enumerate(zip(instances, solutions, strict=True)):
        solution.plan.check(instance)
        assert solution.cost == solution.plan.cost(instance)
        assert solution.cost == pytest.approx(trace[-1][1][row], rel=1e-5)


def test_same_seed_same_trace(strategy, policy, make_instances) -> None:
    """The same seed gives the same search."""
    instances = make_instances(2, 8)
    assert trace_of(strategy, policy, instances, 24, seed=5) == trace_of(
        strategy, policy, instances, 24, seed=5
    )


@pytest.mark.parametrize("augment", [8])
def test_symmetric_copies_are_part_of_the_search(
    repeating, policy, make_instances, augment: int
) -> None:
    """With copies the best still falls, and the plan is one of the instance itself.

    The trace is the same in a second run.
    """
    instances = make_instances(2, 7, scale=100.0)
    trace = trace_of(repeating, policy, instances, 21, augment=augment)
    assert trace == trace_of(repeating, policy, instances, 21, augment=augment)
    assert trace != trace_of(repeating, policy, instances, 21)
    for (_, before, _), (_, after, _) in pairwise(trace):
        assert all(a <= b for a, b in zip(after, before, strict=True))
    task = make_task(TSP(), suited(repeating, policy), instances, augment=augment)
    for row, solution in enumerate(search(repeating, task, Budget(21))[0]):
        assert solution.cost == pytest.approx(trace[-1][1][row], rel=1e-5)


def test_other_seeds_differ(seeded, policy, make_instances) -> None:
    """Another seed gives another search."""
    instances = make_instances(3, 12)
    assert trace_of(seeded, policy, instances, 12, seed=5) != trace_of(
        seeded, policy, instances, 12, seed=6
    )


def test_greedy_needs_no_seed(policy, make_instances) -> None:
    """Greedy is the same for every seed."""
    instances = make_instances(2, 8)
    assert trace_of(Greedy(), policy, instances, 1, seed=5) == trace_of(
        Greedy(), policy, instances, 1, seed=6
    )


def test_a_batch_equals_each_alone(strategy, policy, make_instances) -> None:
    """Instances solved together take the steps they take alone, also after much learning."""
    instances = make_instances(3, 9)
    together = trace_of(strategy, policy, instances, 64)
    for place, instance in enumerate(instances):
        alone = trace_of(strategy, policy, [instance], 64)
        assert [attempts for attempts, _, _ in alone] == [attempts for attempts, _, _ in together]
        for kind in (1, 2):  # the best so far, and that of the latest step
            costs = [step[kind][place] for step in together]
            assert [step[kind][0] for step in alone] == pytest.approx(costs, rel=1e-6)


def test_incumbents_are_priced_in_the_file_metric(policy) -> None:
    """The search minimises a rounded metric; trace and solution agree exactly."""
    instance = TSPInstance("rounded", "EUC_2D", xy=np.random.default_rng(0).random((8, 2)) * 1000)
    solution = search(Sampling(), make_task(TSP(), policy, [instance]), Budget(32))[0][0]
    assert isinstance(solution.cost, int)
    assert solution.trace[-1][2] == solution.cost


def test_trace_speaks_the_unit_of_the_cost(policy, make_instances) -> None:
    """The last cost of the trace is that of the solution, also for coordinates in metres."""
    solution = search(
        Sampling(), make_task(TSP(), policy, make_instances(1, 8, scale=1000.0)), Budget(32)
    )[0][0]
    assert solution.trace[-1][2] == pytest.approx(solution.cost, rel=1e-5)


# --- clocks and interruptions


class Clock:
    """A clock that moves only with rollouts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds_per_piece: float):
        self.now, self.pieces = 100.0, 0

        def slow(real):
            def piece(*arguments, **options):
                self.now += seconds_per_piece
                self.pieces += 1
                return real(*arguments, **options)

            return piece

        for module in (account, driver, make, tasks):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(tasks.Task, "_try", slow(tasks.Task._try))
        monkeypatch.setattr(tasks, "complete", slow(tasks.complete))


def test_search_stops_within_one_piece_of_its_time(
    repeating, policy, make_instances, monkeypatch
) -> None:
    """The piece in progress when time runs out is the last one, also within a step."""
    one_latent_per_piece(monkeypatch)
    clock = Clock(monkeypatch, 0.3)
    task = make_task(TSP(), suited(repeating, policy), make_instances(2, 5))
    solutions, _ = search(repeating, task, Budget(seconds=6.1))
    assert clock.pieces == 21  # 20 pieces take 6.0 seconds; a 21st begins, and is ended
    # A prefix is completed sixteen times, from each start three or four.
    parts = isinstance(repeating, CMAESRefine)
    # A completion, and a latent from some starts.
    less = hasattr(repeating, "branch") or getattr(repeating, "starts", None)
    assert solutions[0].attempts == 20 or (
        less and solutions[0].attempts < 20 * (4 if parts else 1)
    )
    assert solutions[0].seconds == pytest.approx(6.3)


@pytest.mark.parametrize("augment", [1, 8])
def test_there_is_always_a_plan(
    repeating, policy, make_instances, monkeypatch, augment: int
) -> None:
    """A first piece that takes too long is ended, and constructed plans take its place."""
    one_latent_per_piece(monkeypatch)
    clock = Clock(monkeypatch, 50.0)
    task = make_task(TSP(), suited(repeating, policy), make_instances(2, 5), augment=augment)
    solutions, _ = search(repeating, task, Budget(seconds=0.001))
    assert clock.pieces == 1
    assert [(s.attempts, s.phase) for s in solutions] == [(0, "construction")] * 2


def test_whichever_comes_first(policy, make_instances, monkeypatch) -> None:
    """With attempts and seconds, the smaller budget ends the search."""
    one_latent_per_piece(monkeypatch)
    clock = Clock(monkeypatch, 1.0)
    task = make_task(TSP(), policy, make_instances(1, 5))
    assert search(Sampling(), task, Budget(attempts=5, seconds=50.0))[0][0].attempts == 5
    task = make_task(TSP(), policy, make_instances(1, 5))
    assert search(Sampling(), task, Budget(attempts=500, seconds=7.5))[0][0].attempts == 7
    assert clock.pieces == 13


def test_interruption_keeps_what_was_found(repeating, policy, make_instances, monkeypatch) -> None:
    """Ctrl-C in the third piece returns verified plans of the first two, with a note."""
    one_latent_per_piece(monkeypatch)
    calls = []

    def third_time(real):
        def piece(*arguments, **options):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return piece

    monkeypatch.setattr(tasks.Task, "_try", third_time(tasks.Task._try))
    monkeypatch.setattr(tasks, "complete", third_time(tasks.complete))
    instances = make_instances(2, 6)
    solutions, interrupted = search(
        repeating, make_task(TSP(), suited(repeating, policy), instances), Budget(100)
    )
    assert interrupted
    assert [s.attempts for s in solutions] == [2, 2]
    for instance, solution in zip(instances, solutions, strict=True):
        solution.plan.check(instance)
        assert solution.cost == solution.plan.cost(instance)


def test_interruption_before_anything_was_found(policy, make_instances, monkeypatch) -> None:
    """Ctrl-C before the first solution returns constructed ones."""

    def never(task, latents, temperature):  # no overrides are passed
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks.Task, "_try", never)
    instances = make_instances(2, 6)
    solutions, interrupted = search(Sampling(), make_task(TSP(), policy, instances), Budget(9))
    assert interrupted
    assert [solution.plan for solution in solutions] == [construct_tour(i) for i in instances]
    assert {(solution.phase, solution.attempts) for solution in solutions} == {("construction", 0)}


def test_watching_sees_every_step(policy, make_instances) -> None:
    """The watcher is called once per line of the trace, with the latents of the step."""
    seen: list[driver.Progress] = []
    task = make_task(TSP(), policy, make_instances(2, 6))
    solutions, _ = search(Uniform(), task, Budget(40), seen.append)
    assert [p.attempts for p in seen] == [16, 32, 40]
    assert [p.best[1].item() for p in seen] == [line[2] for line in solutions[1].trace]
    assert seen[0].latents.shape == (2, 16, 4)
    assert seen[0].latents.abs().max() <= 1.0


def test_a_broken_incumbent_is_never_returned(policy, make_instances, monkeypatch) -> None:
    """A plan that breaks the rules is an error, whatever engine it comes from."""
    real = tasks.rollout

    def broken(*arguments, **options):
        rolled = real(*arguments, **options)
        rolled.actions[..., 0] = rolled.actions[..., 1]
        return rolled

    monkeypatch.setattr(tasks, "rollout", broken)
    with pytest.raises(Infeasible, match="random-0: the tour visits city"):
        search(Sampling(), make_task(TSP(), policy, make_instances(1, 6)), Budget(3))


# --- quality


def optimum(instance: TSPInstance) -> float:
    return min(Tour((0, *rest)).cost(instance) for rest in permutations(range(1, instance.size)))


def test_exhaustive_search_is_never_beaten(strategy, policy, make_instances) -> None:
    """On 7 cities no tour is shorter than the shortest of all 720."""
    instances = make_instances(3, 7)
    solutions, _ = search(
        strategy, make_task(TSP(), suited(strategy, policy), instances), Budget(16)
    )
    for instance, solution in zip(instances, solutions, strict=True):
        assert solution.cost >= optimum(instance) * (1 - 1e-12)


@pytest.mark.parametrize(
    "strategy", [CMAES(temperature=1.0), Sampling()], ids=["cmaes", "sampling"]
)
def test_a_few_hundred_attempts_find_the_optimum(strategy, policy, make_instances) -> None:
    """Even an untrained policy finds the best of 720 tours in 320 attempts from 7 starts."""
    instances = make_instances(3, 7)
    solutions, _ = search(strategy, make_task(TSP(), policy, instances), Budget(320))
    assert [s.cost for s in solutions] == pytest.approx([optimum(i) for i in instances], rel=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_smallest_instances(strategy, policy, make_instances, size: int) -> None:
    """One, two and three cities have one tour, and it is found."""
    instance = make_instances(1, size)[0]
    solution = search(strategy, make_task(TSP(), suited(strategy, policy), [instance]), Budget(16))[
        0
    ][0]
    assert sorted(solution.plan.order) == list(range(size))
    assert solution.cost == pytest.approx(optimum(instance))


# --- CMA-ES


def test_components_take_turns(policy, make_instances) -> None:
    """Each generation moves exactly one component, in round-robin order, near its own centroid."""
    task, strategy = (
        make_task(TSP(), policy, make_instances(2, 6)),
        CMAES(components=3, population=4),
    )
    state = strategy.init(task)
    centroids = cma_es.centroids(3, 4).float()
    assert torch.equal(state.components.mean, centroids.expand(2, -1, -1))
    for generation in range(7):
        after, latents, _ = strategy.step(task, state)
        moved = (after.components.mean != state.components.mean).any(-1)  # [B, C]
        assert moved.tolist() == [[k == generation % 3 for k in range(3)]] * 2
        # The sample mean is within sigma of the component's own centroid, in each coordinate.
        if generation < 3:
            assert (latents.mean(1) - centroids[generation]).abs().max() < 2.0
        state = after
    assert state.generation == 7


def test_search_moves_towards_cheap_latents(policy, make_instances) -> None:
    """If the cost is the distance to a hidden latent, all components move towards it."""
    task = make_task(TSP(), policy, make_instances(2, 5))
    goal = torch.tensor([0.3, -0.6, 0.1, 0.8])
    nowhere = torch.zeros(2, 16, 1, 5, dtype=torch.int64)
    task.rollout = lambda z, *others: tasks.Rollouts((z - goal).norm(dim=-1)[..., None], nowhere)
    uniforms = iter(torch.rand(240, 2, 16, 4, 2, generator=torch.Generator().manual_seed(0)))
    task.uniforms = lambda count: next(uniforms)
    strategy = CMAES()
    state = strategy.init(task)
    for _ in range(150):
        state, _, _ = strategy.step(task, state)
    assert (state.components.mean - goal).norm(dim=-1).max() < 0.01


@pytest.mark.parametrize(
    "strategy", [CMAES(), Uniform(), Fixed(), CMAESEAS()], ids=lambda s: type(s).__name__
)
def test_latent_strategies_need_a_latent_space(strategy, make_policy, make_instances) -> None:
    """A single policy is refused, and the error names strategies that serve it."""
    with pytest.raises(InputError, match=r"no latent space.*sampling or greedy"):
        search(strategy, make_task(TSP(), make_policy(0), make_instances(1, 5)), Budget(3))


@pytest.mark.parametrize(
    "strategy",
    [Sampling(), Greedy(), EASEmb(), EASLay(), SGBS(), SGBSEAS()],
    ids=lambda s: type(s).__name__,
)
def test_other_strategies_do_not(strategy, make_policy, make_instances) -> None:
    """Sampling, greedy, active and beam search serve a single policy."""
    assert (
        search(strategy, make_task(TSP(), make_policy(0), make_instances(1, 5)), Budget(3))[0][
            0
        ].cost
        > 0
    )


@pytest.mark.parametrize("settings", [{"components": 0}, {"population": 1}])
def test_settings_that_cannot_search_are_refused(settings: dict[str, int]) -> None:
    """CMA-ES without components or with nothing to select from is refused at construction."""
    with pytest.raises(InputError, match=r"components of at least 1.*population of at least 2"):
        CMAES(**settings)


@pytest.mark.parametrize("kind", [Sampling, Uniform])
def test_empty_populations_are_refused(kind) -> None:
    """A strategy whose population is empty is refused at construction."""
    with pytest.raises(InputError, match="population"):
        kind(population=0)


# --- gaps


@pytest.mark.parametrize(
    ("cost", "known", "gap"),
    [(105, 100.0, 0.05), (100, 100.0, 0.0), (99.5, 100.0, -0.005), (7, None, None)],
)
def test_gap_is_a_fraction_of_the_best_known(
    cost: float, known: float | None, gap: float | None
) -> None:
    """The gap is (cost - known) / known, and None if no cost is known."""
    instance = TSPInstance("x", "EXACT_2D", xy=np.zeros((1, 2)), best_known=known)
    assert Solution(instance, Tour((0,)), cost, 1, 0.0).gap == (
        None if gap is None else pytest.approx(gap)
    )
