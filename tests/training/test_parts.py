"""Re-sampled neighbourhoods of good plans in training: what is given, compared and learnt."""

from dataclasses import replace

import pytest
import torch
from small import POLICY

from rhumbline.decoding import CompletionRequest, Rollouts, log_prob, unmark_actions
from rhumbline.domains import find_policy_family
from rhumbline.errors import InputError
from rhumbline.training import trainer as training
from rhumbline.training.config import Objective, TrainConfig
from rhumbline.training.objectives.neighbourhoods import append_neighbourhoods, select_best_plans
from rhumbline.training.objectives.targets import Targets
from rhumbline.training.trainer import MiniStep, Trainer

CPU = torch.device("cpu")
SIZE = 40  # fewer than 60, so that some neighbourhoods are whole plans from a start on
OBJECTIVES = {
    "one latent": Objective("prefer", starts=2, samples=3, certain=0.99, parts=2),
    "latents": Objective("prefer", latents=3, starts=2, samples=3, certain=0.99, parts=2),
    "tried once": Objective(
        "prefer", latents=3, starts=2, samples=3, trial="sample", certain=0.99, parts=2
    ),
    "copies": Objective("prefer", latents=3, starts=2, samples=3, copies=2, certain=0.99, parts=2),
}


def test_the_best_plan_and_its_latent_by_hand() -> None:
    """The second latent's first rollout is the cheapest, and its plan has no marks."""
    cost = torch.tensor([[[3.0, 2.0], [1.0, 4.0]]])
    actions = torch.arange(12).view(1, 2, 2, 3)
    actions[0, 1, 0, 2] = ~actions[0, 1, 0, 2]
    plan, latent = select_best_plans(Rollouts(cost, actions), torch.tensor([[[0.1], [0.2]]]))
    assert plan.tolist() == [[6, 7, 8]]
    assert latent.tolist() == [[[pytest.approx(0.2)]]]


@pytest.mark.parametrize("lesson", [0.0, 0.5])
def test_neighbourhoods_are_groups_of_their_own(lesson: float) -> None:
    """A neighbourhood with two given actions follows the start's group; the given ones are marked.

    Its imitation target has no weight.
    """
    each = 2 + bool(lesson)
    whole = Targets(
        torch.tensor([[[1.0]]]),
        torch.zeros(1, each, 3, dtype=torch.int16),
        torch.full((1, each), 5.0),
        torch.tensor(2.0),
        2,
        lesson,
    )
    built = Rollouts(torch.tensor([[[7.0, 6.0]]]), torch.tensor([[[[4, 5, 6], [4, 5, 7]]]]))
    assert select_best_plans(built, torch.zeros(1, 1, 1))[0].tolist() == [[4, 5, 7]]
    found = append_neighbourhoods(whole, torch.tensor([[[2.0]]]), torch.tensor([[2]]), built)
    assert found.latents.tolist() == [[[1.0], [2.0]]]
    assert found.actions[0, each : each + 2].tolist() == [[~4, ~5, 6], [~4, ~5, 7]]
    assert found.weight_or_cost[0, each : each + 2].tolist() == [7.0, 6.0]
    assert found.count == 4
    scores = torch.zeros(1, 2 * each)
    weights = found.loss_weights(scores, 0.05)[0]
    assert weights[each + 1] < 0.0 < weights[each]  # the cheaper sequence becomes likelier
    if lesson:
        assert found.actions[0, -1].tolist() == [~4, ~5, ~6]
        assert weights[-1] == 0.0


def gradient_targets(problem: str, objective: Objective) -> tuple[Trainer, Targets]:
    config = TrainConfig(problem=problem, size=SIZE, batch=4, policy=POLICY, objective=objective)
    trainer = Trainer(config, CPU)
    return trainer, trainer.gradient(0)[1]


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_samples_of_a_neighbourhood_share_their_prefix(problem: str, objective: str) -> None:
    """Samples of a neighbourhood have the same marked prefix, and each visits every node once."""
    o = OBJECTIVES[objective]
    _, targets = gradient_targets(problem, o)
    each = o.samples + (o.copies > 1)
    parts = targets.actions.unflatten(1, (-1, each))[:, -o.parts :, : o.samples]
    costs = targets.weight_or_cost.unflatten(1, (-1, each))[:, -o.parts :, : o.samples]
    plans, marks = unmark_actions(parts)
    assert marks[..., 0].all()
    begun = marks.int().cummin(-1).values.bool()
    assert (plans[marks & ~begun] == 0).all()  # marks are a prefix, and depots after the end
    given = begun.all(2)[:, :, None].expand_as(plans)
    assert torch.equal(
        plans.masked_fill(~given, -1)[:, :, :1].expand_as(plans)[given], plans[given]
    )
    assert (plans[:, :, :1] != plans).any()  # there are different completions
    first = 0 if problem == "tsp" else 1
    for plan in plans.flatten(0, 2).tolist():
        assert sorted(node for node in plan if node >= first) == list(range(first, SIZE + first))
    assert costs.isfinite().all()
    assert (plans[:, 0] != plans[:, 1]).any()  # there are different neighbourhoods
    assert targets.latents.shape[1] * each == targets.actions.shape[1]


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_only_what_was_decided_is_scored(problem: str) -> None:
    """The score of a neighbourhood is the whole plan's score minus that of its prefix."""
    trainer, targets = gradient_targets(problem, OBJECTIVES["latents"])
    rules = find_policy_family(problem)[1].rules
    batch = rules.sample(4, SIZE, torch.Generator().manual_seed(0))
    actions, latents = targets.actions[:, -6:], targets.latents[:, -2:]
    if problem == "cvrp":
        batch = replace(
            batch, capacity=torch.full_like(batch.capacity, 10**6)
        )  # any sequence of customers is feasible
    plans, marks = unmark_actions(actions)
    others = torch.where(marks, plans, ~plans)
    with torch.no_grad():
        part, whole, beginning = (
            log_prob(rules, trainer.policy, batch, latents, x, engine="torch", certain=0.99999)
            for x in (actions, plans, others)
        )
    assert torch.allclose(part + beginning, whole, atol=1e-4)
    assert (part > whole).any()


def test_learning_makes_better_completions_likelier() -> None:
    """After some updates, cheaper completions have gained on those that cost more."""
    trainer, _ = gradient_targets("cvrp", OBJECTIVES["one latent"])
    batch, latents, starts = trainer.sample()
    memory = trainer.policy.encode(batch)
    rolled = trainer.sample_rollouts(MiniStep(batch, memory), latents, starts)
    targets = trainer.choose_targets(MiniStep(batch, memory), latents, starts, rolled)
    actions, cost = targets.actions[:, -6:], targets.weight_or_cost[:, -6:].unflatten(1, (2, 3))

    def leads() -> torch.Tensor:
        scores = log_prob(
            trainer.problem, trainer.policy, batch, latents, actions, engine="torch", certain=0.99
        )
        scores = scores.unflatten(1, (2, 3))
        better = cost[..., :, None] < cost[..., None, :]
        return ((scores[..., :, None] - scores[..., None, :]) * better).sum()

    before, optimiser = leads().item(), torch.optim.SGD(trainer.policy.parameters(), lr=0.01)
    for _ in range(5):
        optimiser.zero_grad()
        scores = log_prob(
            trainer.problem, trainer.policy, batch, targets.latents, targets.actions, certain=0.99
        )
        (targets.loss_weights(scores, 0.05) * scores).sum().backward()
        optimiser.step()
    assert leads().item() > before + 0.01


def test_neighbourhoods_have_their_latent_and_random_numbers(monkeypatch) -> None:
    """Neighbourhoods use the latent that found the plan and an attempt number that no latent has.

    Each mini-step has another seed.
    """
    seen: list[CompletionRequest] = []
    real = training.complete

    def spy(request: CompletionRequest, engine: str) -> Rollouts:
        seen.append(request)
        return real(request, engine)

    monkeypatch.setattr(training, "complete", spy)
    trainer = Trainer(
        TrainConfig(
            problem="cvrp", size=SIZE, batch=4, policy=POLICY, objective=OBJECTIVES["latents"]
        ),
        CPU,
    )
    found = [trainer.gradient(mini)[1] for mini in (0, 1)]
    for request, targets in zip(seen, found, strict=True):
        assert torch.equal(request.latents.expand(-1, 2, -1), targets.latents[:, -2:])
        assert (request.samples, request.temperature) == (3, 1.0)
        assert request.attempt >= 100
    first, second = seen
    assert first.seed != second.seed


def test_too_long_sequences_have_no_weight() -> None:
    """Neighbourhoods are cut like whole plans, and longer ones lose their cost."""
    o = replace(OBJECTIVES["latents"], longest=45)
    config = TrainConfig(problem="cvrp", size=SIZE, batch=4, policy=POLICY, objective=o)
    targets = Trainer(config, CPU).gradient(0)[1]
    whole = Trainer(replace(config, objective=replace(o, longest=0)), CPU).gradient(0)[1]
    most = config.longest_for(SIZE)
    assert targets.actions.shape[2] == most < whole.actions.shape[2]
    ends = torch.where(
        unmark_actions(whole.actions)[0] != 0, torch.arange(whole.actions.shape[2]), 0
    ).amax(2)
    assert torch.equal(
        targets.weight_or_cost.isnan(), (ends >= most) | whole.weight_or_cost.isnan()
    )


def test_a_population_has_no_neighbourhoods() -> None:
    """It is refused before the first step, with the reason."""
    many = {"width": 32, "heads": 2, "layers": 1, "hidden": 32, "latent": 0, "members": 3}
    config = TrainConfig(
        problem="tsp", size=7, batch=2, policy=many, objective=OBJECTIVES["latents"]
    )
    with pytest.raises(InputError, match="parts is for a single decoder"):
        Trainer(config, CPU)
