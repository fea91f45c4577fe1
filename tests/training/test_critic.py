"""The critic: losses by hand, values, what it learns, and that only the state of a run has it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rhumbline.checkpoint import read_tensor_file
from rhumbline.decoding import rollout, score_decisions
from rhumbline.errors import InputError
from rhumbline.policies.jssp_l2d import L2DArchitecture, L2DCritic
from rhumbline.policies.jssp_machines import (
    JSSPMachinesPolicy,
    MachinesArchitecture,
    MachinesCritic,
)
from rhumbline.problems.jssp import JSSPLeftShift, JSSPMachines
from rhumbline.training.config import Objective, Optimiser, TrainConfig, Validation, read_recipe
from rhumbline.training.critic import actor_critic_losses
from rhumbline.training.data.random import RandomInstances
from rhumbline.training.loop import train
from rhumbline.training.run_folder import RUN_FILES
from rhumbline.training.trainer import Trainer

CPU = torch.device("cpu")
SIZES: dict[str, dict[str, int]] = {
    "jssp-l2d": {"width": 16, "hidden": 8},
    "jssp-machines": {"width": 16, "heads": 2, "hidden": 16},
}


def config(problem: str = "jssp-l2d", latents: int = 1, **changes: Any) -> TrainConfig:
    whole = TrainConfig(
        problem=problem,
        size="3x3",
        batch=4,
        updates=2,
        report=3600.0,
        policy=SIZES[problem] | {"latent": 2 if latents > 1 else 0},
        objective=Objective("reinforce", latents=latents, starts=2, baseline="critic"),
        optimiser=Optimiser(lr=3e-3, warmup=0, clip=1.0),
        validation=Validation(count=2, latents=2, temperature=1.0),
    )
    return replace(whole, **changes)


# --- losses


def test_losses_by_hand() -> None:
    """A decision weighs what its sequence costs above its value.

    Ties (nan) and decisions without a choice have no weight. Errors count in hundreds.
    """
    chosen = torch.tensor([[[-1.0, -2.0], [-3.0, -4.0], [-5.0, -6.0]]])
    values = torch.tensor([[[200.0, 100.0], [400.0, 0.0], [7.0, 7.0]]])
    cost = torch.tensor([[300.0, 200.0, torch.nan]])
    has_choice = torch.tensor([[[True, True], [True, False], [True, True]]])
    losses = actor_critic_losses(chosen, values, cost, has_choice)
    assert losses.policy == 100 * -1 + 200 * -2 + -200 * -3
    assert losses.critic == 1 + 4 + 4
    assert losses.decisions == 3
    assert losses.scores.tolist() == [[-3.0, -7.0, -11.0]]


def test_both_losses_have_gradients_of_their_own() -> None:
    """The policy's loss moves no value, the critic's no probability."""
    chosen = torch.full((1, 1, 2), -1.0, requires_grad=True)
    values = torch.full((1, 1, 2), 50.0, requires_grad=True)
    losses = actor_critic_losses(
        chosen, values, torch.tensor([[250.0]]), torch.ones(1, 1, 2, dtype=torch.bool)
    )
    (losses.policy + losses.critic).backward()
    assert chosen.grad is not None
    assert values.grad is not None
    assert chosen.grad.tolist() == [[[200.0, 200.0]]]
    assert torch.allclose(values.grad, torch.full((1, 1, 2), -0.04))


class ConstantCost(JSSPLeftShift):
    """Shops without durations, all of which cost 250."""

    def sample(self, count: int, size: int | str, rng: torch.Generator) -> Any:
        batch = super().sample(count, size, rng)
        return replace(
            batch,
            duration=torch.zeros_like(batch.duration),
            tail=torch.zeros_like(batch.tail),
            load=torch.zeros_like(batch.load),
        )

    def outcome(self, batch: Any, state: Any, actions: Tensor) -> Tensor:
        return torch.full(actions.shape[:2], 250.0)


def mean_advantage(trainer: Trainer) -> float:
    """Return the mean size of the advantages on new instances."""
    rules, critic, batch = trainer.problem, trainer.critic, trainer.sample()[0]
    assert critic is not None
    latents = torch.zeros(len(batch.key), 1, 0)
    with torch.no_grad():
        rolled = rollout(rules, trainer.policy, batch, latents, rules.starts(batch), seed=5)
        actions = rolled.actions[:, 0]
        memory = trainer.policy.encode(batch)
        decisions = score_decisions(rules, trainer.policy, batch, latents, actions, memory)
        network: Any = critic.network
        values = network.values(
            network.encode(batch),
            torch.zeros(*decisions.allowed.shape[:2], 0),
            decisions.state,
            decisions.allowed,
        )
    return (rolled.cost.flatten(1) - values).abs().mean().item()


def test_a_constant_cost_has_no_advantage() -> None:
    """The critic learns the constant, so nothing is left for the policy."""
    trainer = Trainer(config(optimiser=Optimiser(lr=0.03, warmup=0)), CPU)
    trainer.problem = ConstantCost()
    trainer.source = RandomInstances(trainer.config, trainer.problem)
    assert mean_advantage(trainer) > 200.0
    for _ in range(30):
        trainer.step(0.0)
    assert mean_advantage(trainer) < 50.0  # 24 here, and 5 after 45 updates


# --- networks


def test_the_critic_sees_the_tokens_that_the_policy_scores() -> None:
    """All tokens contain those of the deciding machine, of waiting and of the jobs."""
    torch.manual_seed(0)
    policy = JSSPMachinesPolicy(MachinesArchitecture(16, 2, 16, latent=0)).requires_grad_(False)
    rules = JSSPMachines()
    batch = rules.sample(3, "3x2", torch.Generator().manual_seed(0))
    state = rules.reset(batch, rules.starts(batch))
    memory = policy.encode(batch)
    cell, turn = state.cell[:, 0, 1:], state.turn[:, 0]
    left = memory.left.flatten(0, 1)[cell]
    read = (policy.operations(memory, cell), left)
    busy = state.busy[:, 0].float()
    some = policy.encoder(memory.folded, busy, turn, *read)
    every = policy.encoder.all_tokens(memory.folded, busy, *read)
    row = torch.arange(3)
    assert torch.allclose(some[:, 0], every[row, turn], atol=1e-5)
    assert torch.allclose(some[:, 1], every[:, 0], atol=1e-5)
    assert torch.allclose(some[:, 2:], every[:, 3:], atol=1e-5)


@pytest.mark.parametrize(
    ("rules", "critic"),
    [
        (JSSPLeftShift(), L2DCritic(L2DArchitecture(16, hidden=8, latent=2))),
        (JSSPMachines(), MachinesCritic(MachinesArchitecture(16, 2, 16, latent=2))),
    ],
    ids=["l2d", "machines"],
)
def test_values_belong_to_an_instance_and_a_latent(rules: Any, critic: Any) -> None:
    """An instance has the same value alone and among others; latents change it."""
    batch = rules.sample(3, "3x2", torch.Generator().manual_seed(0))
    latents = torch.rand(3, 4, 2, generator=torch.Generator().manual_seed(0))

    def values(rows: slice) -> Tensor:
        part = batch[rows]
        state = rules.reset(part, rules.starts(part).expand(-1, 4))
        with torch.no_grad():
            memory = critic.encode(part)
            return critic.values(memory, latents[rows], state, rules.mask(state))

    whole = values(slice(None))
    assert torch.allclose(values(slice(1, 2)), whole[1:2], atol=1e-2)
    assert whole.std(1).min() > 1e-3


# --- runs


@pytest.mark.parametrize(
    ("problem", "latents"), [("jssp-l2d", 1), ("jssp-l2d", 3), ("jssp-machines", 3)]
)
def test_stopped_and_resumed_is_uninterrupted(tmp_path: Path, problem: str, latents: int) -> None:
    """Two updates equal one and, from the files, one more, bit for bit, the critic included.

    The policy's own files do not hold it.
    """
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    run = config(problem, latents)
    list(train(run, device=CPU, out=whole))
    list(train(replace(run, updates=1), device=CPU, out=halves))
    list(train(run, device=CPU, out=halves, resume=halves))
    files = sorted(whole.glob("resume-*.safetensors"))
    assert len(files) == 2
    for file in files:
        other = read_tensor_file(halves / file.name)[0]
        tensors = read_tensor_file(file)[0]
        assert any(name.startswith(RUN_FILES.critic_prefix) for name in tensors)
        assert tensors.keys() == other.keys()
        for name, x in tensors.items():
            assert torch.equal(x, other[name]), name
    policy = read_tensor_file(whole / "policy.safetensors")[0]
    assert not any("critic" in name for name in policy)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (['problem="jssp"'], "is for jssp-machines and jssp-l2d; the policy of jssp has no critic"),
        (["objective.certain=0.9"], "leave out contrast, certain and temperature"),
        (["objective.temperature=0.5"], "leave out contrast, certain and temperature"),
    ],
)
def test_what_a_critic_cannot_serve_is_refused(changes: list[str], words: str) -> None:
    """A sentence says which policies have a critic, and which settings do not go with it."""
    with pytest.raises(InputError, match=words):
        read_recipe("recipes/jssp-l2d.toml", ['objective.baseline="critic"', *changes])
