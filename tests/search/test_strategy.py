"""The base class of strategies: hooks, needs, and plain objects in its place."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch

from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.policies.jssp_machines import JSSPMachinesPolicy, MachinesArchitecture
from rhumbline.problems.tsp import TSP
from rhumbline.search.driver import Budget, search, stream
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.strategies.greedy_sampling import Greedy, Sampling
from rhumbline.search.strategy import (
    Needs,
    Step,
    Strategy,
    as_strategy,
    check_strategy_needs,
    unmet_need,
    warm_up_run_of,
)
from rhumbline.search.task import make_task


class PlainSampling:
    """An object that knows nothing of the base class."""

    def init(self, task: Any) -> str:
        return "nothing yet"

    def step(self, task: Any, state: str) -> Any:
        latents = task.policy.space.centre((task.count, 16), task.device)
        return state, latents, task.rollout(latents, 1.0)


@dataclass(frozen=True)
class Recorder(Strategy[int]):
    """Writes down which hooks are called, and with what state."""

    needs: ClassVar[Needs] = Needs(single_decoder=True)
    calls: list[Any] = field(default_factory=list)

    def compile(self, task: Any) -> None:
        self.calls.append("compile")

    def init(self, task: Any) -> int:
        self.calls.append("init")
        return 0

    def step(self, task: Any, state: int) -> Step:
        self.calls.append(("step", state))
        latents = task.policy.space.centre((task.count, 2), task.device)
        return Step(state + 1, latents, task.rollout(latents, 1.0))

    def finish(self, task: Any, state: int) -> None:
        self.calls.append(("finish", state))


def test_hooks_are_called_in_order(policy, make_instances) -> None:
    """`compile` comes before `init`, and `finish` gets the state of the last whole step."""
    recorder = Recorder()
    search(recorder, make_task(TSP(), policy, make_instances(1, 5)), Budget(5))
    assert recorder.calls == [
        "compile",
        "init",
        *[("step", k) for k in range(3)],
        ("finish", 2),
    ]


def test_plain_objects_are_strategies(policy, make_instances) -> None:
    """An object with `init` and `step` that returns a plain tuple does what a strategy does."""
    instances = make_instances(2, 6)
    found, expected = (
        search(one, make_task(TSP(), policy, instances), Budget(32))[0]
        for one in (PlainSampling(), Sampling(population=16))
    )
    assert [s.cost for s in found] == [s.cost for s in expected]


@pytest.mark.parametrize("wrong", [Sampling, "cmaes", 3, None], ids=str)
def test_other_objects_are_refused(wrong: Any) -> None:
    """A class, a name or a number is no strategy."""
    with pytest.raises(InputError, match="expected a name such as 'cmaes' or an object"):
        as_strategy(wrong)


def test_needs_are_checked_before_any_work(make_policy, make_instances) -> None:
    """A task that lacks something is refused before a kernel is compiled or a state is made."""
    population = make_policy(latent=0, members=3)
    task = make_task(TSP(), population, make_instances(1, 5))
    recorder = Recorder()
    with pytest.raises(InputError, match="a population, and this search is for one decoder"):
        next(stream(recorder, task, Budget(5)))
    assert recorder.calls == []
    with pytest.raises(InputError, match="a population, without a latent space"):
        check_strategy_needs(CMAES(), task)
    check_strategy_needs(PlainSampling(), task)  # states no needs


NEEDED = {
    "latent_space": "no latent space to search",
    "population": "not a population of decoders",
    "neighbourhoods": "no neighbourhoods in plans of jssp-machines",
    "tables": "tables that the policy for jssp-machines has not",
    "layer": "a layer that the policy for jssp-machines has no place for",
}


@pytest.mark.parametrize("need", sorted(NEEDED))
def test_every_need_has_a_sentence(need: str) -> None:
    """The published network for job shops has nothing but rollouts."""
    tiny = MachinesArchitecture(width=16, heads=2, hidden=16, latent=0)
    bare = JSSPMachinesPolicy(tiny)
    domain = DOMAINS["jssp"]
    assert unmet_need(Needs(single_decoder=True), bare, domain) is None
    reason = unmet_need(Needs(**{need: True}), bare, domain)
    assert reason is not None
    assert NEEDED[need] in reason
    assert need == "population" or "; use --search " in reason


def test_a_warm_up_is_two_steps_by_default(policy, make_instances, monkeypatch) -> None:
    """A GPU gets two steps of every copy; a CPU needs one attempt to load its kernels."""
    task = make_task(TSP(), policy, make_instances(1, 5), augment=2)
    assert warm_up_run_of(Greedy(), task) == (Greedy(), 1)
    cuda = property(lambda task: torch.device("cuda"))
    monkeypatch.setattr(type(task), "device", cuda)
    assert warm_up_run_of(Greedy(), task) == (Greedy(), 2 * 16 * 2)
