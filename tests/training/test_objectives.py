"""Objectives: which settings each has, what it asks of a trainer, and what suits it."""

from dataclasses import fields, replace
from typing import get_args, get_type_hints

import pytest
import torch
from small import OBJECTIVES as TABLES
from small import small_config

from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.training.config import Objective, TrainConfig
from rhumbline.training.objectives import OBJECTIVES, make_objective
from rhumbline.training.objectives.objective import TrainingObjective
from rhumbline.training.trainer import Trainer

COMMON = {"latents", "starts", "certain"}


def setting_names(kind: type[TrainingObjective]) -> set[str]:
    return {field.name for field in fields(kind)} - COMMON


def test_every_loss_has_a_class() -> None:
    """The losses of recipes are those of the table; only the temperature belongs to two of them."""
    assert get_args(get_type_hints(Objective)["loss"]) == tuple(OBJECTIVES)
    known = {field.name for field in fields(Objective)}
    own = [setting_names(kind) for kind in OBJECTIVES.values()]
    shared = [name for name in set().union(*own) if sum(name in names for names in own) > 1]
    assert shared == ["temperature"]
    # What is scored of a sequence is the trainer's business.
    assert set().union(*own) | COMMON | {"loss", "longest"} == known
    for kind in OBJECTIVES.values():
        assert set(kind.refusals) <= setting_names(kind)


@pytest.mark.parametrize("name", TABLES)
def test_objectives_have_the_settings_of_their_table(name: str) -> None:
    """An objective has its own settings only, with the values of the recipe."""
    table = TABLES[name]
    objective = make_objective(table)
    assert type(objective) is OBJECTIVES[table.loss]
    for field in fields(objective):
        assert getattr(objective, field.name) == getattr(table, field.name)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss": "reinforce", "shared": True}, "objective.shared is for several latents"),
        ({"loss": "imitate", "trial": "sample"}, "objective.trial is for loss 'prefer', not 'imi"),
        ({"loss": "imitate", "parts": 1}, "objective.parts is for loss 'prefer' with samples of 2"),
        ({"loss": "prefer", "temperature": 0.5}, "must be 1 with loss 'prefer'"),
        ({"loss": "reinforce", "baseline": "second"}, "'second' needs latents of at least 2"),
    ],
)
def test_settings_of_other_objectives_are_refused(settings: dict[str, object], words: str) -> None:
    """The sentence names the setting and the loss that it is for."""
    with pytest.raises(InputError, match=words):
        Objective(**settings)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("name", "temperature", "repeats", "copies"),
    [("pomo", 1.0, 1, 1), ("imitate", 0.8, 1, 1), ("parts", 1.0, 3, 2)],
)
def test_what_a_trainer_asks(name: str, temperature: float, repeats: int, copies: int) -> None:
    """Temperatures, repeated starts and copies follow from the settings."""
    objective = make_objective(TABLES[name])
    assert objective.rollout_temperature == temperature
    assert objective.rollouts_per_start == repeats
    assert objective.copies_per_instance == copies
    batch, _, starts = Trainer(small_config(name), torch.device("cpu")).sample()
    assert len(batch.key) == 4
    assert starts.shape == (4, TABLES[name].starts * repeats)


def test_problems_are_named_by_their_traits() -> None:
    """A refusal lists the problems whose domain has the trait."""
    shop = {"problem": "jssp", "size": "6x6"}
    able = [name for name, domain in DOMAINS.items() if domain.training.has_neighbourhoods]
    table = replace(TABLES["parts"], copies=1)
    with pytest.raises(InputError, match=f"objective.parts is for {' and '.join(able)}, whose"):
        TrainConfig(**shop, objective=table)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="problem 'knapsack' is not known; known: tsp, cvrp, jssp"):
        TrainConfig(problem="knapsack")
