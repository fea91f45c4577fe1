"""Search on the JSSP: every strategy, from instances to verified schedules."""

from itertools import permutations

import numpy as np
import pytest
import torch

import rhumbline
from rhumbline.errors import InputError
from rhumbline.pipeline import make_tasks
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
from rhumbline.policies.jssp_machines import JSSPMachinesPolicy, MachinesArchitecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.jssp import JSSP, JSSPInstance, JSSPMachines, jssp_from_arrays
from rhumbline.problems.tsp import tsp_from_array
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies import STRATEGIES
from rhumbline.search.strategies.sgbs import SGBS
from rhumbline.search.task import make_task

# They add a layer after the attention read-out, which the policy for job shops has not.
LAYERED = {"eas-lay", "sgbs-eas"}
SERVED = sorted(set(STRATEGIES.table) - LAYERED - {"population", "cmaes-refine"})


@pytest.fixture(scope="module")
def policy() -> JSSPPolicy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        policy = JSSPPolicy(JSSPArchitecture(width=16, heads=2, layers=1, hidden=16, latent=3))
        policy.decoder.hidden_latent.data.normal_(0, 0.02)
    return policy.requires_grad_(False)


def instances(count: int, jobs: int, machines: int, seed: int = 0) -> list[JSSPInstance]:
    rng = np.random.default_rng(seed)
    shape = (jobs, machines)
    return [
        jssp_from_arrays(rng.integers(1, 99, shape), rng.random(shape).argsort(1), f"random-{i}")
        for i in range(count)
    ]


def optimum(instance: JSSPInstance) -> int:
    """Return the shortest makespan of all semi-active schedules, by enumeration of all orders."""
    jobs = [o.job for o in instance.operations]
    return min(
        JSSP().decode(instance, [0, *order]).cost(instance) for order in set(permutations(jobs))
    )


@pytest.mark.parametrize("name", SERVED)
def test_strategies_return_verified_schedules(name: str, policy: JSSPPolicy) -> None:
    """Each strategy keeps its budget; trace and solution agree with the schedule's makespan."""
    given = instances(3, 5, 4)
    solutions = rhumbline.solve(given, policy=policy, strategy=STRATEGIES[name](), attempts=40)
    for instance, solution in zip(given, solutions, strict=True):
        solution.plan.check(instance)
        assert solution.cost == solution.plan.cost(instance) == solution.trace[-1][2]
        assert solution.cost >= instance.lower_bound
        assert solution.attempts == (1 if name == "greedy" else 40)


@pytest.mark.parametrize("name", ["sampling", "cmaes", "uniform"])
def test_a_few_attempts_find_the_optimum_of_tiny_instances(name: str, policy: JSSPPolicy) -> None:
    """Even an untrained policy finds the shortest schedules of 2 x 3 among its samples."""
    given = instances(2, 2, 3)
    solutions = rhumbline.solve(given, policy=policy, strategy=STRATEGIES[name](), attempts=64)
    assert [s.cost for s in solutions] == [optimum(i) for i in given]


REFUSED = dict.fromkeys(LAYERED, "a layer that the policy for jssp has no place for") | {
    "cmaes-refine": "no neighbourhoods in plans of jssp"
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_needs_a_layer_or_neighbourhoods_is_refused_before_any_attempt(
    name: str, policy: JSSPPolicy
) -> None:
    """A strategy that needs a layer or neighbourhoods is refused, and the error names others."""
    task = make_task(JSSP(), policy, instances(1, 3, 3))
    with pytest.raises(InputError, match=f"{REFUSED[name]}.*; use --search "):
        search(STRATEGIES[name](), task, Budget(40))
    assert task.account.attempts == 0


@pytest.mark.parametrize("name", ["sampling-elite", "cmaes-elite"])
def test_the_published_network_has_no_tables_to_adjust(name: str) -> None:
    """The published network encodes the shop at each step, so no table can be adjusted."""
    policy = JSSPMachinesPolicy(MachinesArchitecture(width=16, heads=2, hidden=16, latent=2))
    task = make_task(JSSPMachines(), policy.requires_grad_(False), instances(1, 3, 3))
    with pytest.raises(
        InputError,
        match="adjusts tables that the policy for jssp-machines has not; use --search cmaes",
    ):
        search(STRATEGIES[name](), task, Budget(8))
    assert task.account.attempts == 0


def test_symmetries_are_refused(policy: JSSPPolicy) -> None:
    """A JSSP instance has no positions to rotate; it is refused before others are solved."""
    with pytest.raises(InputError, match="augment needs positions"):
        rhumbline.solve(instances(1, 3, 3), policy=policy, attempts=8, augment=8)
    mixed = [tsp_from_array(np.random.default_rng(0).random((5, 2))), *instances(1, 3, 3)]
    tours = TSPPolicy(Architecture(width=16, heads=2, layers=1, hidden=16, latent=3))
    policies = {"tsp": tours, "jssp": policy}
    cpu = torch.device("cpu")
    with pytest.raises(InputError, match="augment needs positions"):
        next(make_tasks(mixed, policies, seed=0, device=cpu, engine="torch", augment=8))


def first_beam(policy: JSSPPolicy, given: list[JSSPInstance]) -> list[float]:
    """Return the makespans that one whole beam search finds, whatever it costs."""
    task, strategy = make_task(JSSP(), policy, given), SGBS()
    state = first, _, _ = strategy.step(task, strategy.init(task))
    while first.width == state[0].width:
        state = strategy.step(task, state[0])
    return task.account.best.tolist()


def test_a_beam_of_several_is_the_beam_of_each(policy: JSSPPolicy) -> None:
    """A beam over several instances finds what a beam over each finds.

    Together they pay for the choices of all, since most shops have no choice at most decisions.
    """
    given = instances(3, 4, 3)
    assert first_beam(policy, given) == [first_beam(policy, [instance])[0] for instance in given]


@pytest.mark.parametrize("name", sorted(set(SERVED) - {"sgbs"}))
def test_a_batch_equals_each_alone(name: str, policy: JSSPPolicy) -> None:
    """Instances solved together get the schedules they get alone."""
    given, strategy = instances(3, 4, 3), STRATEGIES[name]()
    together, _ = search(strategy, make_task(JSSP(), policy, given), Budget(32))
    for instance, solution in zip(given, together, strict=True):
        assert (
            search(strategy, make_task(JSSP(), policy, [instance]), Budget(32))[0][0].plan
            == solution.plan
        )


def test_shapes_are_solved_in_groups_and_returned_in_order(policy: JSSPPolicy) -> None:
    """Instances of any shape are solved, and solutions come in the order of the instances.

    The shapes are uneven jobs, one job, one machine and one operation.
    """
    odd = [
        JSSPInstance("uneven", ((2, 5, 1), (3,)), ((0, 1, 0), (1,)), 2),
        JSSPInstance("one job", ((2, 5, 1),), ((0, 1, 0),), 2),
        JSSPInstance("one machine", ((2,), (5,), (0,)), ((0,), (0,), (0,)), 1),
        JSSPInstance("one operation", ((7,),), ((0,),), 1),
    ]
    given = [odd[0], *instances(1, 4, 3), odd[1], odd[2], *instances(1, 4, 3, seed=1), odd[3]]
    solutions = rhumbline.solve(given, policy=policy, attempts=16)
    assert [s.instance for s in solutions] == given
    assert [s.cost for s in solutions if s.instance in odd] == [9, 8, 7, 7]
