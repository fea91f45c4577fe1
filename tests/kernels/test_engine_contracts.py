"""The engines of a CPU keep the contract of `rhumbline.testing`, which finds broken ones."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from problem_cases import CASES, Case

from rhumbline.decoding import Rollouts
from rhumbline.errors import MissingExtra
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.testing import check_engine, engines

WIDE = Architecture(128, 8, 1, 64, latent=4)  # what fused engines are made for


def wide_policy(case: Case) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kind = {CASES[0]: TSPPolicy, CASES[1]: CVRPPolicy}[case]
        return kind(WIDE).requires_grad_(False)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_plain_torch(case: Case) -> None:
    """The definition agrees with itself."""
    check_engine("torch", case.rules, case.policy, case.instances())


@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_fused_engines_of_a_cpu(case: Case) -> None:
    """Compiled rollouts are those of torch."""
    pytest.importorskip("numba")
    check_engine("fused", case.rules, wide_policy(case), case.instances(3, 13))


def test_an_engine_that_does_not_serve() -> None:
    """An engine that refuses a problem says so by a `MissingExtra`."""
    with pytest.raises(MissingExtra, match="fused"):
        check_engine("fused", CASES[2].rules, CASES[2].policy, CASES[2].instances())


def other_seed(rolled: Any, options: dict[str, Any]) -> Rollouts:
    return rolled(seed=options["seed"] + 1)


def half_cost(rolled: Any, options: dict[str, Any]) -> Rollouts:
    whole = rolled()
    return Rollouts(0.5 * whole.cost, whole.actions)


def other_start(rolled: Any, options: dict[str, Any]) -> Rollouts:
    whole = rolled()
    return Rollouts(whole.cost, whole.actions.flip(-1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_seed, "an action is not the one that the uniform selects"),
        (half_cost, "costs are those of the rules"),
        (other_start, "begins with its start"),
    ],
)
def test_broken_engines_are_named(
    monkeypatch: pytest.MonkeyPatch, change: Callable[..., Rollouts], words: str
) -> None:
    """Each broken contract is an error whose sentence states it."""
    real = engines.rollout

    def broken(*arguments: Any, **options: Any) -> Rollouts:
        return change(lambda **other: real(*arguments, **options | other), options)

    monkeypatch.setattr(engines, "rollout", broken)
    with pytest.raises(AssertionError, match=words):
        check_engine("torch", CASES[0].rules, CASES[0].policy, CASES[0].instances())
