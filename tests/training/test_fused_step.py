"""A step as on a GPU, with kernels in Triton's interpreter: marked rollouts, and their scores."""

from functools import partial

import pytest
import torch

from rhumbline.decoding import engines
from rhumbline.kernels.triton import encoder_attention
from rhumbline.kernels.triton.rollout import tables as rollout_tables
from rhumbline.training import trainer as training
from rhumbline.training.config import Objective, TrainConfig
from rhumbline.training.trainer import Trainer

pytestmark = [
    # Triton 3.6 turns arrays of one element into scalars, which numpy 2.3 only announces to refuse.
    pytest.mark.filterwarnings(
        "ignore:Conversion of an array with ndim > 0 to a scalar:DeprecationWarning:triton.*"
    ),
]

LIKELY = 0.3  # random weights hardly ever give a high probability
CASES = [
    ("tsp", Objective("prefer", starts=5, certain=LIKELY)),
    ("tsp", Objective("prefer", latents=3, starts=2, samples=2, certain=LIKELY)),
    ("cvrp", Objective("prefer", starts=2, samples=2, certain=LIKELY, longest=11)),
    ("tsp", Objective("prefer", latents=3, starts=2, samples=2, copies=2, certain=LIKELY)),
    (
        "cvrp",
        Objective(
            "prefer", latents=3, starts=2, samples=2, trial="sample", copies=2, certain=LIKELY
        ),
    ),
    (
        "tsp",
        Objective(
            "prefer",
            latents=3,
            starts=2,
            samples=2,
            trial="sample",
            copies=2,
            shared=True,
            certain=LIKELY,
        ),
    ),
    ("cvrp", Objective("reinforce", latents=2, starts=3, certain=LIKELY)),
    ("cvrp", Objective("prefer", latents=3, starts=2, samples=2, certain=LIKELY, parts=2)),
    ("tsp", Objective("prefer", latents=3, starts=2, samples=2, copies=2, certain=LIKELY, parts=1)),
]


def gradient(
    config: TrainConfig, fused: bool
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    trainer = Trainer(config, torch.device("cpu"))
    if fused:
        trainer.policy.encoder.set_attention(encoder_attention.triton_attend)
    for weight in (trainer.policy.decoder.query_latent, trainer.policy.decoder.value_latent):
        weight.data.normal_(0.0, 0.01, generator=torch.Generator().manual_seed(1))
    rolled, targets, _ = trainer.gradient(0)
    return (
        rolled.actions,
        targets.actions,
        {n: p.grad for n, p in trainer.parameters.items() if p.grad is not None},
    )


def triton_rollouts(scores: engines.Engine, _: str, ask: engines.Ask) -> engines.Engine:
    """Choose Triton for rollouts, and a given engine for scores."""
    return scores if ask.gradients else engines.ENGINES["triton"]


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_a_cold_step_is_the_same_by_both_kernels(monkeypatch, problem: str) -> None:
    """At temperature 0.3 the scores have a larger clip, which is the temperature of rollouts."""
    objective = Objective("reinforce", latents=4, starts=3, temperature=0.3)
    policy = {"layers": 1, "hidden": 32, "latent": 2}
    config = TrainConfig(problem=problem, size=7, batch=2, policy=policy, objective=objective)
    monkeypatch.setattr(
        rollout_tables,
        "build_triton_tables",
        partial(rollout_tables.build_triton_tables, dtype=torch.float32),
    )
    found = {}
    for engine in ("fused", "torch"):
        scores = engines.ENGINES["triton" if engine == "fused" else "torch"]
        monkeypatch.setattr(engines, "choose_engine", partial(triton_rollouts, scores))
        _, _, found[engine] = gradient(config, engine == "fused")
    largest = max(value.abs().max() for value in found["torch"].values())
    assert largest > 1e-4
    for name, value in found["torch"].items():
        assert (found["fused"][name] - value).abs().max() <= 1e-4 * largest, name


@pytest.mark.parametrize(("problem", "objective"), CASES)
def test_fused_and_plain_kernels_give_the_same_step(
    monkeypatch, problem: str, objective: Objective
) -> None:
    """From the same marked rollouts both engines give the same gradient of every weight."""
    monkeypatch.setattr(
        rollout_tables,
        "build_triton_tables",
        partial(rollout_tables.build_triton_tables, dtype=torch.float32),
    )
    policy = {"layers": 1, "hidden": 32, "latent": 2}
    config = TrainConfig(problem=problem, size=7, batch=2, policy=policy, objective=objective)
    found = {}
    for engine in ("fused", "torch"):
        scores = engines.ENGINES["triton" if engine == "fused" else "torch"]
        monkeypatch.setattr(engines, "choose_engine", partial(triton_rollouts, scores))
        found[engine] = gradient(config, engine == "fused")
    (rolled, chosen, fused), (again, _, plain) = found["fused"], found["torch"]
    assert torch.equal(rolled, again)
    assert (
        0.05 < (rolled[..., 1:] < 0).float().mean() < 0.95
    )  # some decisions are marked, and some are not
    assert (chosen < 0).any()
    assert fused.keys() == plain.keys()
    largest = max(value.abs().max() for value in plain.values())
    assert largest > 1e-4
    for name, value in plain.items():
        assert (fused[name] - value).abs().max() <= 1e-4 * largest, name
        if name != "decoder.key":  # its gradient is small by design, a difference of large numbers
            assert (fused[name] - value).abs().max() <= 1e-2 * value.abs().max(), name


def test_what_is_imitated_is_not_marked(monkeypatch) -> None:
    """Imitated plans are priced and improved, so their actions have no marks."""
    asked: list[float] = []
    real = training.rollout

    def spy(*arguments, mark: float, **options):
        asked.append(mark)
        return real(*arguments, **options)

    monkeypatch.setattr(training, "rollout", spy)
    for objective in (
        Objective("imitate", starts=2, certain=0.9),
        Objective("prefer", starts=2, certain=0.9),
    ):
        Trainer(
            TrainConfig(size=5, batch=2, policy={"layers": 1}, objective=objective),
            torch.device("cpu"),
        ).gradient(0)
    assert asked == [0.0, 0.9]
