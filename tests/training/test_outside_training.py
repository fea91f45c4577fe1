"""A problem of another package is trained on random instances and on files, without a change."""

from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch
from ring_problem import RULES, RingInstance
from small import OBJECTIVES, POLICY

from rhumbline.checkpoint import load_with_facts
from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.training.config import Objective, Optimiser, TrainConfig, Validation
from rhumbline.training.data.files import FileInstances, load_instances
from rhumbline.training.loop import train

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offer the problem as an entry point does."""
    point = EntryPoint("ring", "ring_problem:RING", "rhumbline.domains")
    monkeypatch.setitem(DOMAINS.outside, "ring", point)
    monkeypatch.setattr(DOMAINS, "loaded", dict(DOMAINS.loaded))


@pytest.fixture
def rings(tmp_path: Path) -> Path:
    """Write rings of five and six points, one of them twice."""
    folder = tmp_path / "rings"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(12):
        np.savetxt(folder / f"r{number}.ring", rng.random((5 + number % 2, 2)))
    np.savetxt(folder / "twin.ring", np.loadtxt(folder / "r0.ring"))
    return folder


def ring_config(objective: Objective = OBJECTIVES["winner"]) -> TrainConfig:
    return TrainConfig(
        problem="ring-net",
        size=6,
        batch=4,
        updates=3,
        report=0.0,
        policy=POLICY,
        objective=objective,
        optimiser=Optimiser(lr=1e-3, warmup=1),
        validation=Validation(count=3, latents=2),
    )


@pytest.mark.parametrize("name", ["pomo", "winner", "imitate"])
def test_random_instances_of_it_are_trained_on(tmp_path: Path, name: str) -> None:
    """Its policy learns by every objective that needs no more than rules."""
    reports = list(train(ring_config(OBJECTIVES[name]), device=CPU, out=tmp_path))
    assert reports[-1].update == 3
    _, facts = load_with_facts(tmp_path / "policy.safetensors")
    assert (facts.problem, facts.size) == ("ring-net", 6)


def test_its_files_are_trained_on(tmp_path: Path, rings: Path) -> None:
    """Files are batched by size; the copy of an instance is left out."""
    config = replace(ring_config(), data=(str(rings),))
    source = FileInstances(config, RULES, CPU)
    assert source.labels == [5, 6]
    assert "1 that are there twice left out" in source.summary
    rng = torch.Generator().manual_seed(0)
    for size, label in zip(source.sizes, source.labels, strict=True):
        assert source.sample(3, size, rng).xy.shape == (3, label, 2)
    reports = list(train(config, device=CPU, out=tmp_path / "run"))
    assert reports[-1].update == 3
    assert all(report.greedy < 6 * 2**0.5 for report in reports)  # in sides of the square


def test_instances_are_told_by_what_a_policy_sees(rings: Path) -> None:
    """Other names make no other instance."""
    found, _ = load_instances([str(rings)], RULES)
    assert len(found) == 12
    assert all(isinstance(instance, RingInstance) for instance in found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"variety": 0.5}, "variety moves the nodes of tsp and cvrp; ring has none"),
        ({"optimiser": Optimiser(spread=5.0)}, "the nodes of tsp and cvrp; ring has none"),
        ({"objective": OBJECTIVES["parts"]}, "objective.copies is for tsp and, up to 4, for cvrp"),
        ({"graph": True}, "graph = true needs fused kernels .*: tsp or cvrp, not loss"),
        ({"objective": Objective(starts=4, longest=9)}, "after their end: for cvrp, and not"),
    ],
)
def test_what_it_lacks_is_refused(changes: dict[str, object], words: str) -> None:
    """The sentence says which problems have what it lacks."""
    with pytest.raises(InputError, match=words):
        replace(ring_config(), **changes)  # pyright: ignore[reportArgumentType]
