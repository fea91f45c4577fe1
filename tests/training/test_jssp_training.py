"""Training on the job shop: alternating sizes, samples instead of starts, resuming, learning."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rhumbline.checkpoint import read_tensor_file
from rhumbline.problems.jssp import JSSP
from rhumbline.training.config import Objective, Optimiser, TrainConfig, Validation
from rhumbline.training.loop import train
from rhumbline.training.trainer import Trainer

CPU = torch.device("cpu")
OBJECTIVES = {
    "imitate": Objective("imitate", latents=1, starts=6, views=1),
    "imitate under latents": Objective("imitate", latents=6, starts=1, views=1),
    "winner": Objective("reinforce", latents=4, starts=2),
}


def config(objective: str = "imitate", **changes: Any) -> TrainConfig:
    whole = TrainConfig(
        problem="jssp",
        size="4x3",
        sizes=("4x3", "3x2"),
        batch=6,
        updates=4,
        report=3600.0,
        policy={"width": 16, "heads": 2, "layers": 1, "hidden": 16, "latent": 3},
        objective=OBJECTIVES[objective],
        optimiser=Optimiser(lr=3e-3, warmup=3, clip=1.0),
        validation=Validation(count=8, latents=4, temperature=1.0),
    )
    return replace(whole, **changes)


def test_sizes_take_turns() -> None:
    """Mini-steps go through the sizes in order, across updates."""
    trainer = Trainer(config(accumulate=3), CPU)
    shapes = []
    for update in (0, 1):
        trainer.update = update
        shapes += [tuple(trainer.sample(mini)[0].duration.shape) for mini in range(3)]
    assert shapes == [(6, 4, 4), (6, 3, 3)] * 3


def test_samples_of_an_instance_differ() -> None:
    """The only start is sampled as often as the recipe has starts, always differently."""
    trainer = Trainer(config(objective="imitate", size="6x6", sizes=()), CPU)
    rolled, targets, _ = trainer.gradient(0)
    assert tuple(rolled.cost.shape) == (6, 1, 6)
    assert all(len(set(map(tuple, row))) > 1 for row in rolled.actions[:, 0].tolist())
    best = JSSP().cost(trainer_batch(trainer), targets.actions)
    assert torch.equal(best[:, 0], rolled.cost.flatten(1).amin(1))


def trainer_batch(trainer: Trainer) -> Any:
    """Return the instances that a new trainer samples first."""
    return Trainer(trainer.config, CPU).sample()[0]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_stopped_and_resumed_is_uninterrupted(tmp_path: Path, objective: str) -> None:
    """Four updates equal two and, from the files, two more, bit for bit.

    This holds for weights, moments and random state.
    """
    list(train(config(objective), device=CPU, out=tmp_path / "whole"))
    list(train(config(objective, updates=2), device=CPU, out=tmp_path / "halves"))
    list(train(config(objective), device=CPU, out=tmp_path / "halves", resume=tmp_path / "halves"))
    files = sorted((tmp_path / "whole").glob("resume-*.safetensors"))
    assert len(files) == 2
    for file in files:
        other = read_tensor_file(tmp_path / "halves" / file.name)[0]
        for name, x in read_tensor_file(file)[0].items():
            assert torch.equal(x, other[name]), name


def test_imitation_learns() -> None:
    """A dozen updates on 5 x 4 shorten sampled schedules by far more than chance."""
    start = replace(
        config(size="5x4", sizes=(), batch=16), objective=Objective("imitate", starts=16, views=1)
    )
    trainer = Trainer(replace(start, optimiser=Optimiser(lr=1e-2, warmup=2, clip=1.0)), CPU)
    costs = [trainer.step(0.0)[0].cost.mean().item() for _ in range(12)]
    assert sum(costs[-3:]) / 3 < 0.93 * sum(costs[:2]) / 2


def test_a_latent_space_starts_from_the_single_policy(tmp_path: Path) -> None:
    """The recipe for latents widens the single policy; at first both validate alike, greedily."""
    single = config(policy={"width": 16, "heads": 2, "layers": 1, "hidden": 16, "latent": 0})
    *_, last = train(single, device=CPU, out=tmp_path)
    wide = Trainer(config("imitate under latents", init=str(tmp_path / "policy.safetensors")), CPU)
    assert wide.validate()["greedy"] == pytest.approx(last.greedy)
    assert last.latent < last.greedy * 1.2
    _, targets = wide.step(0.0)
    assert targets.latents.shape[2] == 3
    assert wide.parameters["decoder.hidden_latent"].any()
