"""Training settings small enough for a second."""

from dataclasses import replace
from typing import Any

from rhumbline.training.config import Objective, Optimiser, TrainConfig, Validation

POLICY = {"width": 32, "heads": 2, "layers": 1, "hidden": 32, "latent": 4}
OBJECTIVES = {
    "pomo": Objective("reinforce", latents=1, starts=4),
    "winner": Objective("reinforce", latents=5, starts=3),
    "poppy": Objective("reinforce", latents=3, starts=4, baseline="second"),
    "parts": Objective("prefer", latents=3, starts=2, samples=3, copies=2, certain=0.99, parts=2),
    "imitate": Objective(
        "imitate", latents=4, starts=3, top=3, improve=2, views=2, temperature=0.8
    ),
}


def small_config(objective: str = "winner", **changes: Any) -> TrainConfig:
    config = TrainConfig(
        size=7,
        batch=4,
        updates=20,
        report=0.0,
        policy=POLICY,
        objective=OBJECTIVES[objective],
        optimiser=Optimiser(lr=3e-3, warmup=3, clip=1.0, decay=0.5),
        validation=Validation(count=6, latents=3),
    )
    return replace(config, **changes)
