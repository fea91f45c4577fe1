"""The choice of an engine: the first that serves, an outside one, and once per task."""

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from asking import RULES, ask, chosen, why_not

from rhumbline.decoding import ENGINES, Ask, RolloutRequest, Rollouts, choose_engine, engines
from rhumbline.errors import InputError, MissingExtra
from rhumbline.policies.jssp import JSSPArchitecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.kernel_traits import cuda_graph, rollout_kernel
from rhumbline.problems.tsp import TSP
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies.cmaes_refine import CMAESRefine
from rhumbline.search.task import make, make_task
from rhumbline.search.task import task as tasks

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


class Slate:
    """An engine of an outside package, for the rules that our kernels do not know."""

    name = "slate"
    fused = True

    def why_not(self, question: Ask) -> str | None:
        """Serve one kind of rules."""
        if question.rules.name != "knapsack":
            return question.no_kernel
        return "a slate has room for 100 nodes" if question.nodes > 100 else None

    def rollout(self, request: RolloutRequest) -> Rollouts:
        """Let plain torch do it."""
        return ENGINES["torch"].rollout(request)


SLATE = Slate()


@pytest.fixture
def slate(monkeypatch: pytest.MonkeyPatch) -> Slate:
    """Install the outside engine."""
    point = EntryPoint("slate", f"{__name__}:SLATE", "rhumbline.engines")
    monkeypatch.setitem(ENGINES.__dict__, "outside", {"slate": point})
    monkeypatch.setattr(ENGINES, "loaded", dict(ENGINES.loaded))
    monkeypatch.setattr(ENGINES, "load", lambda name: SLATE if name == "slate" else None)
    for name in ENGINES.table:
        ENGINES[name]
    return SLATE


@pytest.mark.parametrize(
    ("problem", "device", "name"),
    [
        ("tsp", CPU, "numba"),
        ("cvrp", CPU, "numba"),
        ("jssp", CPU, "numba_job_shop"),
        ("jssp-machines", CPU, "torch"),
        ("jssp-l2d", CPU, "torch"),
        ("knapsack", CPU, "torch"),
        ("tsp", CUDA, "triton"),
        ("cvrp", CUDA, "triton"),
        ("jssp", CUDA, "job_shop"),
        ("jssp-machines", CUDA, "torch"),  # its CUDA graph is taken by name only
        ("jssp-l2d", CUDA, "cuda_graph"),
        ("knapsack", CUDA, "torch"),
    ],
)
def test_what_auto_takes(problem: str, device: torch.device, name: str) -> None:
    """The first engine in the table that serves, and torch otherwise."""
    shape = JSSPArchitecture() if problem.startswith("jssp") else None
    assert choose_engine("auto", ask(problem, device, 10, shape)).name == name


def test_engines_by_their_own_names() -> None:
    """An engine that cannot serve is refused with its reason, and an unknown name with others."""
    assert choose_engine("numba", ask("tsp", CPU, 10)).name == "numba"
    graph = choose_engine("fused", ask("jssp-machines", CUDA, 10, JSSPArchitecture()))
    assert graph is choose_engine("cuda_graph", ask("jssp-machines", CUDA, 10))
    with pytest.raises(MissingExtra, match=r"no fused kernel for tsp on a CPU\. Use engine torch"):
        choose_engine("triton", ask("tsp", CPU, 10))
    with pytest.raises(InputError, match=r"engine 'trition' is not known \(did you mean 'triton'"):
        choose_engine("trition", ask("tsp", CPU, 10))


@dataclass(frozen=True)
class OtherArchitecture:
    """The sizes of a network that is not ours."""

    layers: int = 2


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_networks_of_another_kind_run_in_torch(device: torch.device) -> None:
    """Kernels read the tables of attention networks; a policy of an outside package has others."""
    question = ask("tsp", device, 20, OtherArchitecture())
    assert choose_engine("auto", question).name == "torch"
    with pytest.raises(MissingExtra, match="no fused kernel for tsp"):
        choose_engine("fused", question)


def test_job_shops_are_not_scored_by_kernels() -> None:
    """The reason names the rules, not the device."""
    with pytest.raises(MissingExtra, match="no fused scoring for jssp"):
        chosen("fused", "jssp", CUDA, 10, JSSPArchitecture(), gradients=True)


def test_an_outside_engine_comes_before_torch(slate: Slate) -> None:
    """It serves where ours cannot, and its reason is told where it cannot either."""
    assert choose_engine("auto", ask("knapsack", CPU, 100)) is slate
    assert choose_engine("slate", ask("knapsack", CPU, 100)) is slate
    assert choose_engine("auto", ask("tsp", CPU, 100)).name == "numba"
    assert chosen("auto", "knapsack", CPU, 101) == "torch"
    assert why_not("knapsack", CPU, 101) == "a slate has room for 100 nodes"


def test_traits_belong_to_a_name() -> None:
    """Rules of another name may be other rules: they do not inherit what kernels may do."""
    assert rollout_kernel(RULES["knapsack"]) is None
    assert cuda_graph(RULES["jssp"]) == "auto"

    class Traced(TSP):
        """The same rules under the same name."""

    assert rollout_kernel(Traced()) == "tours"
    assert rollout_kernel(object()) is None


def test_a_task_chooses_once(
    policy: TSPPolicy, make_instances: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for rollouts, scores and completions each, however many of them it makes."""
    questions: list[Ask] = []
    real = engines.choose_engine

    def spy(wanted: str, question: Ask) -> engines.Engine:
        questions.append(question)
        return real(wanted, question)

    monkeypatch.setattr(engines, "choose_engine", spy)
    monkeypatch.setattr(make, "choose_engine", spy)
    monkeypatch.setattr(tasks, "choose_engine", spy)
    task = make_task(TSP(), policy, make_instances(2, 30))
    search(CMAESRefine(), task, Budget(200))
    uses = [(question.prefixes, question.gradients) for question in questions]
    assert uses == [(False, False), (False, True), (True, False)]
