"""The contrast between latents: its gradient, the targets it adds, and what it does to a policy."""

from dataclasses import replace

import pytest
import torch
from small import small_config

from rhumbline.decoding import Rollouts, log_prob
from rhumbline.errors import InputError
from rhumbline.problems.tsp import TSP
from rhumbline.training.config import Objective
from rhumbline.training.objectives.reinforce import add_rivals, contrast_weight, winner_targets
from rhumbline.training.objectives.targets import find_winners
from rhumbline.training.trainer import Trainer

CPU = torch.device("cpu")


def test_contrast_weights_are_the_gradient_of_the_cross_entropy() -> None:
    """They are the gradient of -log softmax of the winner, and 0 where nothing is reinforced."""
    rng = torch.Generator().manual_seed(1)
    scores = torch.randn(2, 12, generator=rng, requires_grad=True)
    weight = torch.zeros(2, 12)
    weight[:, ::4] = torch.tensor([[-0.5, 0.3, -2.0], [0.0, -1.0, -0.1]])
    groups = scores.unflatten(1, (3, 4))
    is_reinforced = weight[:, ::4] < 0
    loss = -(groups.log_softmax(2)[..., 0] * is_reinforced).sum()
    loss.backward()
    found = contrast_weight(weight, scores.detach(), 4)
    assert torch.allclose(found, scores.grad, atol=1e-6)
    by_group = found.unflatten(1, (3, 4))
    assert not by_group[~is_reinforced].any()
    assert torch.allclose(by_group.sum(2), torch.zeros(2, 3), atol=1e-6)


def test_rivals_are_other_latents_with_the_winners_plan() -> None:
    """A group is the winner and its plan under other latents, each once; REINFORCE is unchanged."""
    rng = torch.Generator().manual_seed(2)
    cost = torch.rand(3, 7, 4, generator=rng)
    actions = torch.randint(0, 9, (3, 7, 4, 5), generator=rng)
    latents = torch.arange(21.0).view(3, 7, 1)
    rolled = Rollouts(cost, actions)
    plain = winner_targets(rolled, latents)
    winner, _ = find_winners(cost)
    for count in (1, 3, 6):
        found = add_rivals(plain, latents, winner, count)
        groups = found.latents[..., 0].unflatten(1, (4, count + 1))
        assert torch.equal(groups[..., 0], plain.latents[..., 0])
        for instance in range(3):
            of_instance = set(latents[instance, :, 0].tolist())
            for start in range(4):
                group = groups[instance, start].tolist()
                assert len(set(group)) == count + 1
                assert set(group) <= of_instance
        plans = found.actions.unflatten(1, (4, count + 1))
        assert torch.equal(plans, plain.actions[:, :, None].expand_as(plans))
        weights = found.weight_or_cost.unflatten(1, (4, count + 1))
        assert torch.equal(weights[..., 0], plain.weight_or_cost)
        assert not weights[..., 1:].any()
        assert torch.equal(found.count, plain.count)


def test_a_small_step_separates_latents() -> None:
    """A step against the gradient makes winners likelier among their rivals.

    The contrast is so large that REINFORCE does not count.
    """
    objective = Objective("reinforce", latents=5, starts=3, contrast=1000.0, rivals=4)
    trainer = Trainer(replace(small_config(), objective=objective, batch=16), CPU)
    rng = torch.Generator().manual_seed(3)
    for name, weights in trainer.policy.named_parameters():
        if name.endswith("_latent"):
            weights.data.normal_(0.0, 0.003, generator=rng)
    drawn = trainer.rng.get_state()
    batch, _, _ = trainer.sample()
    trainer.rng.set_state(drawn)
    _, targets, _ = trainer.gradient(0)

    def cross_entropy() -> float:
        given = (batch, targets.latents, targets.actions)
        with torch.no_grad():
            scores = log_prob(TSP(), trainer.policy, *given).unflatten(1, (3, 5))
        is_reinforced = targets.weight_or_cost.unflatten(1, (3, 5))[..., 0] < 0.0
        return float(-scores.log_softmax(2)[..., 0][is_reinforced].mean())

    before = cross_entropy()
    gradients = {n: p.grad for n, p in trainer.policy.named_parameters() if p.grad is not None}
    norm = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
    for name, weights in trainer.policy.named_parameters():
        if name in gradients:
            weights.data -= 1e-3 * gradients[name] / norm
    assert cross_entropy() < before - 0.01


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"latents": 4, "rivals": 4, "contrast": 0.1}, "needs more latents than rivals"),
        ({"latents": 8, "certain": 0.9, "contrast": 0.1}, "with objective.contrast it must be 1"),
        ({"loss": "prefer", "contrast": 0.1}, "objective.contrast is for loss 'reinforce', not"),
        ({"contrast": -0.1, "latents": 8}, "contrast is -0.1; expected at least 0"),
        ({"rivals": 0, "latents": 8}, "rivals is 0; expected at least 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object], words: str) -> None:
    """A contrast needs rivals to contrast with, and scores of all decisions."""
    with pytest.raises(InputError, match=words):
        Objective(**settings)  # pyright: ignore[reportArgumentType]
