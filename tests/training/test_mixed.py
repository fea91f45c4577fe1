"""Training on routing problems of several sizes and distributions: turns, batches, resuming."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small import small_config

from rhumbline.checkpoint import read_tensor_file
from rhumbline.decoding import rollout
from rhumbline.domains import find_policy_family
from rhumbline.training import parallel, recorded_step
from rhumbline.training.config import Objective, Optimiser, TrainConfig, Validation
from rhumbline.training.loop import train
from rhumbline.training.trainer import Trainer

CPU = torch.device("cpu")
ROUTING = ("tsp", "cvrp")


def mixed(problem: str = "tsp", objective: str = "winner", **changes: Any) -> TrainConfig:
    return small_config(
        objective,
        **{"problem": problem, "sizes": (5, 7, 9), "variety": 0.7, "report": 3600.0} | changes,
    )


@pytest.mark.parametrize(
    ("size", "batch"),
    [(100, 256), (50, 1024), (80, 400), (128, 160), (160, 104), (200, 64), (1000, 3), (20, 1024)],
)
def test_batches_by_hand(size: int, batch: int) -> None:
    """256 x (100/n)^2, rounded to multiples of 8 (156.25 and 100 are 19.5 and 12.5 of them).

    2.56 instances are 3. Small instances would be too many, so four times 256 is the limit.
    """
    assert TrainConfig(size=100, batch=256).batch_for(size) == batch


def test_the_batch_of_the_recipe_is_kept() -> None:
    """At `size` it need not be a multiple of 8, and job shop has it at every size."""
    assert TrainConfig(batch=3).batch_for(100) == 3
    assert TrainConfig(problem="jssp", size="6x6", batch=3).batch_for("20x15") == 3


@pytest.mark.parametrize(("size", "longest"), [(100, 136), (50, 68), (80, 109), (200, 272)])
def test_longest_by_hand(size: int, longest: int) -> None:
    """136 actions for 100 customers, in proportion, rounded up."""
    assert (
        TrainConfig(problem="cvrp", objective=Objective(longest=136)).longest_for(size) == longest
    )


def test_sequences_are_cut_for_their_size() -> None:
    """10 of 14 actions for 7 customers are 8 of 10 for 5, and 13 of 18 for 9."""
    config = mixed("cvrp", objective="pomo", optimiser=Optimiser(lr=0.0))
    trainer = Trainer(replace(config, objective=replace(config.objective, longest=10)), CPU)
    assert [trainer.step(0.0)[1].actions.shape[2] for _ in range(3)] == [8, 10, 13]


@pytest.mark.parametrize("problem", ROUTING)
def test_sizes_take_turns(problem: str) -> None:
    """Mini-steps go through the sizes in order, across updates, each with its own batch."""
    trainer = Trainer(mixed(problem, accumulate=2, batch=8), CPU)
    shapes = []
    for trainer.update in (0, 1, 2):
        for mini in range(2):
            batch, latents, starts = trainer.sample(mini)
            assert len(latents) == len(starts) == len(batch.xy)
            shapes.append((len(batch.xy), len(batch.xy[0]) - (problem == "cvrp")))
    assert shapes == [(16, 5), (8, 7), (5, 9)] * 2


def test_processes_can_share_batches_of_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users choose `batch`, not the five instances of nine cities that follow from it."""
    monkeypatch.setattr(parallel, "world_size", lambda: 4)
    monkeypatch.setattr(parallel, "share", lambda whole: whole)
    trainer = Trainer(mixed(batch=8), CPU)
    assert [len(trainer.sample(mini)[2]) for mini in range(3)] == [16, 8, 8]


def test_kernels_are_asked_for_the_largest_size() -> None:
    """Nine customers and the depot."""
    assert Trainer(mixed("cvrp"), CPU).source.max_action_count == 10


@pytest.mark.parametrize("problem", ROUTING)
def test_without_variety_nothing_changes(problem: str) -> None:
    """Instances, latents and starts are the first numbers of the generator, in this order."""
    trainer = Trainer(small_config(problem=problem), CPU)
    rng = torch.Generator().manual_seed(0)
    rules = find_policy_family(problem)[1].rules
    instances = rules.sample(4, 7, rng)
    latents = trainer.policy.space.sample((4, 5), rng)
    starts = rules.starts(instances).gather(1, torch.randint(7, (4, 3), generator=rng))
    batch, own, begun = trainer.sample()
    assert all(torch.equal(x, vars(batch)[n]) for n, x in vars(instances).items() if x is not None)
    assert torch.equal(own, latents)
    assert torch.equal(begun, starts)
    assert torch.equal(trainer.rng.get_state(), rng.get_state())


@pytest.mark.parametrize("problem", ROUTING)
def test_variety_is_the_share_that_differs(problem: str) -> None:
    """The same uniform instances are sampled_costs first; half of them stay at variety 0.5."""
    plain, varied = (
        Trainer(small_config(problem=problem, batch=400, variety=v), CPU).sample()[0]
        for v in (0.0, 0.5)
    )
    kept = (plain.xy == varied.xy).all(2).all(1).float().mean()
    assert 0.4 < kept < 0.64  # 0.5, and mutations that leave an instance unchanged


def test_validation_has_its_size_and_variety(monkeypatch) -> None:
    """Every report validates on the same instances of `size`, with the recipe's variety."""
    seen = []
    monkeypatch.setattr(
        Trainer,
        "best_validation_costs",
        lambda _, batch, *rest: seen.append(batch.xy) or torch.zeros(len(batch.xy)),
    )
    for variety in (0.7, 0.7, 0.0):
        trainer = Trainer(mixed(variety=variety, validation=Validation(count=6, latents=0)), CPU)
        trainer.update = len(seen)
        trainer.validate()
    assert [tuple(xy.shape) for xy in seen] == [(6, 7, 2)] * 3
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])


@pytest.mark.parametrize(
    ("problem", "objective"), [("tsp", "winner"), ("tsp", "imitate"), ("cvrp", "pomo")]
)
def test_stopped_and_resumed_is_uninterrupted(tmp_path: Path, problem: str, objective: str) -> None:
    """Seven updates equal four and, from the files, three more, bit for bit: sizes continue."""
    config = mixed(problem, objective, updates=7, optimiser=Optimiser(lr=3e-3, warmup=3))
    list(train(config, device=CPU, out=tmp_path / "whole"))
    list(train(replace(config, updates=4), device=CPU, out=tmp_path / "parts"))
    list(train(config, device=CPU, out=tmp_path / "parts", resume=tmp_path / "parts"))
    files = sorted((tmp_path / "whole").glob("resume-*.safetensors"))
    assert len(files) == 2
    for file in files:
        parts = read_tensor_file(tmp_path / "parts" / file.name)[0]
        for name, x in read_tensor_file(file)[0].items():
            assert torch.equal(x, parts[name]), name


def sampled_costs(trainer: Trainer) -> list[float]:
    """Return the mean cost of sampled_costs plans for fixed instances, for each size."""
    costs = []
    for size in trainer.config.sizes:
        batch = trainer.source.sample(100, size, torch.Generator().manual_seed(9))
        latents, starts = trainer.policy.space.centre((100, 1), CPU), trainer.problem.starts(batch)
        rolled = rollout(
            trainer.problem, trainer.policy, batch, latents, starts, seed=0, temperature=1.0
        )
        costs.append(rolled.cost.mean().item())
    return costs


@pytest.mark.parametrize("problem", ROUTING)
def test_mixed_training_learns(problem: str) -> None:
    """Forty updates with alternating sizes shorten sampled_costs plans of every size by a tenth."""
    trainer = Trainer(mixed(problem, "pomo", size=10, sizes=(8, 10, 12), batch=16), CPU)
    before = sampled_costs(trainer)
    for _ in range(40):
        trainer.step(0.0)
    assert all(
        late < 0.9 * early for late, early in zip(sampled_costs(trainer), before, strict=True)
    ), (
        sampled_costs(trainer),
        before,
    )


# --- several recorded graphs


class FakeGraph:
    """Counts replays, and knows the generator of its random numbers."""

    def __init__(self) -> None:
        self.replays, self.generators = 0, list[Any]()

    def register_generator_state(self, rng: Any) -> None:
        self.generators.append(rng)

    def replay(self) -> None:
        self.replays += 1


@pytest.fixture
def fake_cuda(monkeypatch) -> list[Any]:
    """Replace what `CUDAGraphCache` uses of CUDA; return the memory pools of the recordings."""
    pools = []

    class Stream:
        def wait_stream(self, other: Any) -> None:
            pass

    @contextmanager
    def nothing(*_: Any):
        yield

    @contextmanager
    def record(made: FakeGraph, pool: Any, stream: Any):
        assert made.generators, "a graph must know the generator before it is recorded"
        pools.append(pool)
        yield

    for name, value in {
        "CUDAGraph": FakeGraph,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": nothing,
        "graph": record,
        "graph_pool_handle": object,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return pools


def test_each_size_is_warmed_up_and_recorded(fake_cuda) -> None:
    """The work of a key is done three times, recorded the fourth time and then only replayed.

    Calls with other keys in between do not matter.
    """
    size, worked = ["a"], []
    rng = torch.Generator()

    def work() -> tuple[str, int]:
        worked.append(size[0])
        return size[0], len(worked)

    recorded = recorded_step.CUDAGraphCache(work, rng)
    results = []
    for number in range(12):
        size[0] = "aab"[number % 3]
        results.append(recorded(size[0]))
    assert worked == ["a", "a", "b", "a", "a", "b", "b", "b"]
    assert [r for r in results if r[0] == "a"][3:] == [("a", 5)] * 5
    assert [r for r in results if r[0] == "b"] == [("b", 3), ("b", 6), ("b", 7), ("b", 8)]
    graphs = {key: made for key, (made, _) in recorded.recordings.items()}
    assert {key: made.replays for key, made in graphs.items()} == {"a": 5, "b": 1}
    assert all(made.generators == [rng] for made in graphs.values())
    assert len(fake_cuda) == 2
    assert fake_cuda[0] is fake_cuda[1]


def test_graphs_are_cached_by_sizes(monkeypatch) -> None:
    """The key of an update is the sizes of all its mini-steps: three graphs for three sizes."""
    trainer, keys = Trainer(mixed(accumulate=2), CPU), []
    findings = trainer.update_gradient()

    def recorded(key: Any) -> Any:
        keys.append(key)
        return findings

    monkeypatch.setattr(trainer, "set_rate", lambda rate: None)
    monkeypatch.setattr(trainer, "recorded", recorded)
    for _ in range(4):
        trainer.step(0.0)
    assert keys == [(5, 7), (9, 5), (7, 9), (5, 7)]
