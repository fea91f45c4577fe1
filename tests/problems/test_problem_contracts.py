"""All problems and policies keep the contracts of `rhumbline.testing`, and it finds broken ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from problem_cases import CASES, SMALL, Case

from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.jssp import JSSP
from rhumbline.problems.stepwise import StepwiseRules
from rhumbline.problems.tsp import TSP, Tour, TSPState
from rhumbline.testing import check_policy, check_problem


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def test_every_problem_is_checked() -> None:
    """No rules are left out."""
    families = [name for domain in DOMAINS.values() for name in domain.policies]
    assert {case.rules.name for case in CASES} == set(families)


def test_rules(case: Case) -> None:
    """Random rollouts of any size keep all contracts."""
    instances = [*case.instances(), *case.instances(2, 4)]
    check_problem(
        case.rules,
        instances,
        sizes=(1, 2, 3, 6, 7),
        same_plan=case.same_plan,
        construct=DOMAINS[case.rules.solves].construct,
    )


def test_views_of_routing_plans_differ() -> None:
    """Some views of tours and routes are other sequences; job shops have one of each plan."""
    rng = torch.Generator().manual_seed(0)
    for rules in (TSP(), CVRP()):
        batch = rules.sample(3, 7, rng)
        plans = torch.arange(1, 7).expand(3, -1)
        views = rules.views(plans, torch.rand(3, 40, 2, generator=rng))
        assert all(len({tuple(view) for view in seen}) > 1 for seen in views.tolist())
        assert batch.key.tolist() == [0, 1, 2]


def test_policies(case: Case) -> None:
    """Policies with a latent space keep all contracts."""
    check_policy(case.policy, case.rules, case.instances())


def test_single_policies(case: Case) -> None:
    """So do those without one, and the widened ones behave like them."""
    single = type(case.policy)(replace(case.policy.architecture, latent=0))
    check_policy(single, case.rules, case.instances(2))


@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_populations(case: Case) -> None:
    """So do populations of decoders."""
    sizes = replace(case.policy.architecture, latent=0, members=2)
    check_policy(type(case.policy)(sizes), case.rules, case.instances(2))


# --- broken contracts are named


class Stepwise(JSSP):
    """Job shops whose replay follows from the steps."""

    def replay(self, batch: Any, actions: torch.Tensor) -> Any:
        return replace(StepwiseRules.replay(self, batch, actions), count=0)


def test_replay_follows_from_steps() -> None:
    """The default parts of rules keep the contracts, here with fields per instance."""
    check_problem(Stepwise(), CASES[2].instances(2))


class WithNegativeCosts(TSP):
    """A problem whose plans all cost less than nothing, as where prizes are collected."""

    def cost(self, batch: Any, actions: torch.Tensor) -> torch.Tensor:
        return super().cost(batch, actions) - 100.0

    def decode(self, instance: Any, actions: Sequence[int]) -> Any:
        tour = super().decode(instance, actions)
        side = float(np.ptp(instance.xy, axis=0).max())

        class Prized(type(tour)):  # type: ignore[misc]
            def cost(self, instance: Any) -> float:
                return tour.cost(instance) - 100.0 * side

        return Prized(tour.order)


def test_costs_may_be_negative() -> None:
    """Contracts hold for costs of either sign."""
    check_problem(WithNegativeCosts(), CASES[0].instances())


class Leaving(TSP):
    def mask(self, state: Any) -> torch.Tensor:
        return super().mask(state) & (state.count < 3)


class Impure(TSP):
    def step(self, state: Any, action: torch.Tensor) -> Any:
        state.visited.scatter_(2, action[..., None], True)
        return super().step(state, action)


class Restless(TSP):
    def step(self, state: Any, action: torch.Tensor) -> Any:
        return replace(super().step(state, action), last=action)


class Forgetful(TSP):
    def replay(self, batch: Any, actions: torch.Tensor) -> Any:
        state = super().replay(batch, actions)
        return replace(state, last=state.first)


class Cheating(TSP):
    def cost(self, batch: Any, actions: torch.Tensor) -> torch.Tensor:
        return 0.5 * super().cost(batch, actions)


class Sociable(TSP):
    def cost(self, batch: Any, actions: torch.Tensor) -> torch.Tensor:
        return super().cost(batch, actions) + 0.1 * len(actions)


class Keyless(TSP):
    def collate(self, instances: Sequence[Any]) -> Any:
        batch = super().collate(instances)
        return replace(batch, key=torch.arange(len(instances)))


class Fixed(TSP):
    def sample(self, count: int, size: Any, rng: torch.Generator) -> Any:
        return super().sample(count, size, torch.Generator().manual_seed(0))


class Confused(TSP):
    def views(self, actions: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        return super().views(actions, uniforms).sort(-1).values


class Worsening(TSP):
    def improve(self, batch: Any, actions: torch.Tensor, rounds: int) -> torch.Tensor:
        return actions.sort(-1).values


@dataclass(frozen=True)
class StateWithNodes(TSPState):
    xy: torch.Tensor | None = None


class Misplaced(TSP):
    def reset(self, batch: Any, starts: torch.Tensor) -> Any:
        state = super().reset(batch, starts)
        return StateWithNodes(*vars(state).values(), xy=batch.xy[:, :5])


class Anonymous(TSP):
    solves = "tour"


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (Leaving(), "mask allows some action in every rollout until all are finished"),
        (Impure(), "step is pure"),
        (Restless(), "a finished state is a fixed point of step; the field 'last' differs"),
        (Forgetful(), "replay returns the state before every decision; .*'last' differs"),
        (Cheating(), "cost times scale is the plan's own cost"),
        (Sociable(), "costs do not depend on the rest of a batch"),
        (Keyless(), "an instance has the same key in any batch"),
        (Fixed(), "the next draw of a generator gives other instances"),
        (Confused(), "views of a plan"),
        (Worsening(), "improve never returns a plan that costs more"),
        (Misplaced(), r"marked by field\(metadata=PER_INSTANCE\); 'xy'"),
        (Anonymous(), "instances have the problem 'tour', which the rules solve"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, TSP) else "",
)
def test_broken_rules_are_named(rules: Any, words: str) -> None:
    """Each broken contract is an error whose sentence states it."""
    with pytest.raises(AssertionError, match=words):
        check_problem(rules, CASES[0].instances())


def test_a_broken_construction_is_named() -> None:
    """A tour that visits one city twice is refused with the reason."""
    words = "construct returns a feasible plan; this one is not: .* visits city 1 2 times"
    with pytest.raises(AssertionError, match=words):
        check_problem(TSP(), CASES[0].instances(), construct=lambda _: Tour((0, 0)))


class Nosy(TSPPolicy):
    """Adds the mean of the whole batch to its features."""

    def features(self, batch: Any) -> torch.Tensor:
        return batch.xy + batch.xy.mean((0, 1)) * len(batch.xy)


class Deaf(TSPPolicy):
    """Has no gradients."""

    def logits(self, *words: Any) -> torch.Tensor:
        return super().logits(*words).detach().requires_grad_(True)


class Masking(TSPPolicy):
    """Gives an allowed action no score."""

    def logits(self, memory: Any, shift: Any, state: Any, allowed: torch.Tensor) -> torch.Tensor:
        logits = super().logits(memory, shift, state, allowed)
        return logits.masked_fill(allowed & (allowed.cumsum(-1) == 2), -torch.inf)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Nosy, "do not depend on the rest"),
        (Deaf, "have gradients"),
        (Masking, "logits of allowed actions are finite"),
    ],
)
def test_broken_policies_are_named(kind: type[Any], words: str) -> None:
    """Each broken contract is an error whose sentence states it."""
    torch.manual_seed(0)
    with pytest.raises(AssertionError, match=words):
        check_policy(kind(Architecture(**SMALL, latent=3)), TSP(), CASES[0].instances())


def test_no_local_improvement_is_a_refusal() -> None:
    """Rules without a local search say so."""
    with pytest.raises(InputError, match="no local improvement for jssp"):
        Stepwise().improve(None, torch.zeros(1, 1, 1), 1)
