"""The strategy that is used if none is named."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rhumbline import solve
from rhumbline.errors import InputError
from rhumbline.pipeline import choose_default
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
from rhumbline.policies.jssp_machines import JSSPMachinesPolicy, MachinesArchitecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPInstance
from rhumbline.problems.jssp import JSSP, jssp_from_arrays
from rhumbline.problems.tsp import TSP
from rhumbline.search.strategies import (
    STRATEGIES,
    all_defaults,
    default_strategy,
    default_strategy_for_task,
    possible_defaults,
)
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.strategies.greedy_sampling import Sampling
from rhumbline.search.task import Task, make_task

SMALL = Architecture(width=16, heads=2, layers=1, hidden=16, latent=0)


def test_the_policy_decides(policy) -> None:
    """A latent space is searched by CMA-ES, with learning where that helps.

    Other policies are sampled.
    """
    assert default_strategy(policy) == "cmaes"
    assert default_strategy(CVRPPolicy(replace(SMALL, latent=2))) == "cmaes-elite"
    assert default_strategy(TSPPolicy(SMALL)) == "sampling"
    assert (
        default_strategy(
            JSSPPolicy(JSSPArchitecture(width=16, heads=2, layers=1, hidden=16, latent=2))
        )
        == "sampling-elite"
    )


def test_the_default_is_one_that_the_policy_can_serve() -> None:
    """The published network has no tables to learn, so its latents are searched by CMA-ES."""
    tiny = MachinesArchitecture(width=16, heads=2, hidden=16, latent=2)
    assert default_strategy(JSSPMachinesPolicy(tiny)) == "cmaes"
    assert possible_defaults(JSSPMachinesPolicy(tiny)) == ("cmaes",)


def test_all_defaults_are_strategies() -> None:
    """The refining ones first, then those of the domains, then those without a latent space."""
    assert all_defaults()[:3] == ("cmaes-refine", "cmaes", "cmaes-elite")
    assert set(all_defaults()) <= set(STRATEGIES)
    assert {"sampling-elite", "population", "sampling"} <= set(all_defaults())


def test_kernels_make_refinement_the_default(policy, make_instances, monkeypatch) -> None:
    """For routing problems of any size, on a CPU and on a GPU."""
    driver = CVRPPolicy(replace(SMALL, latent=2))
    instance = CVRPInstance("two", "EXACT_2D", (0, 1, 1), 1, xy=np.eye(3, 2))
    tours = [make_task(TSP(), policy, make_instances(1, cities)) for cities in (5, 126, 257)]
    tasks = [make_task(CVRP(), driver, [instance]), *tours]
    assert [default_strategy_for_task(task) for task in tasks] == [
        "cmaes-elite",
        *["cmaes"] * 3,
    ]  # policies that no kernel serves
    for device in ("cpu", "cuda"):
        monkeypatch.setattr(
            Task, "device", property(lambda task, device=device: torch.device(device))
        )
        monkeypatch.setattr(Task, "resolved_engine", "torch")
        assert [default_strategy_for_task(task) for task in tasks] == [
            "cmaes-elite",
            *["cmaes"] * 3,
        ]
        monkeypatch.setattr(Task, "resolved_engine", "fused")
        assert [default_strategy_for_task(task) for task in tasks] == ["cmaes-refine"] * 4


def test_settings_choose_a_strategy_that_has_them(policy, make_instances, monkeypatch) -> None:
    """Without settings it is the default for the task."""
    task = make_task(TSP(), policy, make_instances(1, 126))
    monkeypatch.setattr(Task, "resolved_engine", "fused")
    assert choose_default((), task)[0] == "cmaes-refine"
    assert choose_default(("top=4",), task) == ("cmaes", CMAES(top=4))


def test_what_settings_choose_among(policy) -> None:
    """For routing problems: the strategies that search a latent space by CMA-ES."""
    driver = CVRPPolicy(replace(SMALL, latent=2))
    assert (
        set(possible_defaults(driver))
        == set(possible_defaults(policy))
        == {"cmaes", "cmaes-elite", "cmaes-refine"}
    )
    assert possible_defaults(TSPPolicy(SMALL)) == ("sampling",)


def test_scores_of_large_instances_have_no_kernel(make_instances, monkeypatch) -> None:
    """Rollouts of 257 cities have a kernel, but their scores are computed in plain torch."""
    asked = list[str]()
    served = TSPPolicy(Architecture(layers=1, hidden=16, latent=4))
    monkeypatch.setattr(Task, "device", property(lambda task: torch.device("cuda")))
    scores = torch.zeros(1, 1)
    monkeypatch.setattr(
        "rhumbline.search.task.task.log_prob",
        lambda *given, engine, **options: asked.append(engine.name) or scores,
    )
    for cities in (256, 257):
        task = replace(make_task(TSP(), served, make_instances(1, cities)), engine="fused")
        assert task.resolved_engine == "fused"
        task.score(
            slice(None), torch.zeros(1, 1, 4), torch.zeros(1, 1, cities, dtype=torch.int64), None
        )
    assert asked == ["triton", "torch"]


def test_a_policy_without_a_latent_space_needs_no_strategy() -> None:
    """`solve` samples it. Asking for CMA-ES by name is still an error."""
    xy = np.random.default_rng(0).random((6, 2))
    (found,) = solve(xy, policy=TSPPolicy(SMALL), attempts=3)
    assert found.attempts == 3
    with pytest.raises(InputError, match="no latent space"):
        solve(xy, policy=TSPPolicy(SMALL), strategy="cmaes", attempts=3)


@torch.no_grad()
def test_single_rollouts_come_in_larger_steps() -> None:
    """An attempt on a JSSP is one schedule, so a step makes 256 of them instead of 16 attempts."""
    shop = jssp_from_arrays([[3, 2], [2, 4]], [[0, 1], [0, 1]], "shop")
    tiny = JSSPArchitecture(width=16, heads=2, layers=1, hidden=16, latent=0)
    task = make_task(JSSP(), JSSPPolicy(tiny), [shop])
    strategy = Sampling()
    _, latents, rolled = strategy.step(task, strategy.init(task))
    assert latents.shape[1] == rolled.cost.shape[1] == 256
    _, latents, _ = Sampling(population=5).step(task, strategy.init(task))
    assert latents.shape[1] == 5


def test_settings_go_to_the_strategy_that_the_policy_gets() -> None:
    """Without a name, settings belong to the default strategy."""
    shop = jssp_from_arrays([[3, 2], [2, 4]], [[0, 1], [0, 1]], "shop")
    tiny = JSSPArchitecture(width=16, heads=2, layers=1, hidden=16, latent=0)
    task = make_task(JSSP(), JSSPPolicy(tiny), [shop])
    expected = ("sampling", Sampling(temperature=0.5))
    assert choose_default(("temperature=0.5",), task) == expected
