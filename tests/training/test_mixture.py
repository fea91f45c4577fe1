"""The mixture of latents: its gradient, the plans it learns, and what it does to a policy."""

from dataclasses import replace

import pytest
import torch
from small import small_config

from rhumbline.decoding import log_prob
from rhumbline.errors import InputError
from rhumbline.problems.tsp import TSP
from rhumbline.training.config import Objective
from rhumbline.training.objectives.mixture import mixture_weight
from rhumbline.training.trainer import Trainer

CPU = torch.device("cpu")
LATENTS, STARTS, TOP, RIVALS = 6, 5, 2, 3
OBJECTIVE = Objective("mixture", latents=LATENTS, starts=STARTS, top=TOP, rivals=RIVALS)


def make_trainer() -> Trainer:
    """Return a trainer whose policy's latents differ."""
    trainer = Trainer(replace(small_config(), objective=OBJECTIVE, batch=8), CPU)
    rng = torch.Generator().manual_seed(3)
    for name, weights in trainer.policy.named_parameters():
        if name.endswith("_latent"):
            weights.data.normal_(0.0, 0.01, generator=rng)
    return trainer


def test_weights_are_the_gradient_of_the_mixture_likelihood() -> None:
    """They are the gradient of minus the log-sum-exp of each group that counts."""
    rng = torch.Generator().manual_seed(1)
    scores = torch.randn(2, 12, generator=rng, requires_grad=True)
    weight = torch.zeros(2, 12)
    weight[:, ::4] = torch.tensor([[-1.0, 0.0, -1.0], [-1.0, -1.0, 0.0]])
    groups = scores.unflatten(1, (3, 4))
    loss = (groups.logsumexp(2) * weight[:, ::4]).sum()
    loss.backward()
    found = mixture_weight(weight, scores.detach(), 4)
    assert scores.grad is not None
    assert torch.allclose(found, scores.grad, atol=1e-6)


def test_the_best_plans_are_scored_under_their_winner_and_rivals() -> None:
    """Each group repeats a plan of the cheapest starts; its first latent found it."""
    trainer = make_trainer()
    rollouts, targets, _ = trainer.gradient(0)
    cost, actions = rollouts.cost, rollouts.actions
    groups = targets.actions.unflatten(1, (TOP, 1 + RIVALS))
    latents = targets.latents.unflatten(1, (TOP, 1 + RIVALS))
    for instance in range(len(cost)):
        best_starts = cost[instance].amin(0).argsort()[:TOP].tolist()
        for group, start in enumerate(best_starts):
            finder = int(cost[instance, :, start].argmin())
            plan = actions[instance, finder, start].long()
            assert all(torch.equal(plan, copy.long()) for copy in groups[instance, group])
            scored = {tuple(latent.tolist()) for latent in latents[instance, group]}
            assert len(scored) == 1 + RIVALS


def test_a_small_step_makes_good_plans_likelier_under_the_mixture() -> None:
    """A step against the gradient lowers minus the log-likelihood of the plans."""
    trainer = make_trainer()
    drawn = trainer.rng.get_state()
    batch, _, _ = trainer.sample()
    trainer.rng.set_state(drawn)
    _, targets, _ = trainer.gradient(0)

    def loss() -> float:
        with torch.no_grad():
            scores = log_prob(TSP(), trainer.policy, batch, targets.latents, targets.actions)
        groups = scores.unflatten(1, (TOP, 1 + RIVALS)).logsumexp(2)
        weight = targets.weight_or_cost[:, :: 1 + RIVALS]
        return float((weight * groups).sum() / targets.count)

    before = loss()
    gradients = {n: p.grad for n, p in trainer.policy.named_parameters() if p.grad is not None}
    norm = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
    step = 1e-3
    for name, weights in trainer.policy.named_parameters():
        if name in gradients:
            weights.data -= step * gradients[name] / norm
    # To first order the loss falls by the step times the norm of its gradient.
    assert loss() - before == pytest.approx(-step * float(norm), rel=0.1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"latents": 4, "rivals": 4}, "needs more latents than rivals"),
        ({"latents": 8, "certain": 0.9}, "with loss 'mixture' it must be 1"),
        ({"latents": 8, "temperature": 0.1}, "expected at least 0.25 with loss 'mixture'"),
        ({"latents": 8, "starts": 2, "top": 3}, "has one plan for each of 2 starts"),
        ({"latents": 8, "contrast": 0.1}, "objective.contrast is for loss 'reinforce', not"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object], words: str) -> None:
    """A mixture needs other latents to score plans under, and scores of all decisions."""
    with pytest.raises(InputError, match=words):
        Objective("mixture", **settings)  # pyright: ignore[reportArgumentType]
