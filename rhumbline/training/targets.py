"""What a training step learns from: sequences, and the weight of each one's log-probability in the loss.

Every objective is `sum(weight * log_prob) / count` over chosen sequences; they differ in which and with what weight.
The weights carry no gradient; a positive one makes a sequence less likely. Most come from costs alone; those of
preferences (`compared`) also from the present log-probabilities, so such targets carry costs until they are scored.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts, unmarked
from rhumbline.problems.symmetry import is_mirrored
from rhumbline.record import Record
from rhumbline.training.config import Objective

TIE = 1e-6  # relative; the same tour the other way round may differ in the last bit (spec 9.2)


@dataclass(frozen=True)
class Targets(Record):
    """Sequences to score with gradient. `count` is what the weighted sum is divided by, over all processes."""

    latents: Float[Tensor, "B K Z"]  # K divides V: sequence v belongs to latent v // (V / K)
    actions: Int[Tensor, "B V T"]
    weight: Float[Tensor, "B V"]  # or costs to be compared; nan is compared with nobody
    count: Float[Tensor, ""]
    compared: int = 0  # this many sequences after one another are compared, and get their weights by that
    lesson: float = 0.0  # above 0: after them comes a lesson, which is to become likelier by so much

    def weights(self, scores: Float[Tensor, "B V"], sharpness: float) -> Float[Tensor, "B V"]:
        """The weight of each sequence in the loss, given their log-probabilities."""
        if not self.compared:
            return self.weight
        groups = (len(scores), -1, self.compared + (self.lesson > 0.0))
        cost, scores = self.weight.view(groups), scores.detach().view(groups)
        own = preference_weight(cost[..., : self.compared], scores[..., : self.compared], sharpness)
        return torch.cat([own, -self.lesson * (~cost[..., self.compared :].isnan()).float()], 2).flatten(1)


@dataclass(frozen=True)
class Lesson(Record):
    """A plan for each start that is worth learning, wherever it comes from.

    It is made likelier by itself, not compared: the policy would hardly ever have drawn it, and to put it before its
    own samples would first of all make these unlikely, and nothing else likelier.
    """

    cost: Float[Tensor, "B S 1"]
    actions: Int[Tensor, "B S 1 T"]
    weight: float
    learner: Int[Tensor, "B S"] | None = None  # the latent that found it, if that is to learn; else whoever wins


def pomo_weight(cost: Float[Tensor, "B S"]) -> Float[Tensor, "B S"]:
    """REINFORCE with the mean over starts as baseline (spec 3.2)."""
    return cost - cost.mean(1, keepdim=True)


def preference_weight(
    cost: Float[Tensor, "... S"], scores: Float[Tensor, "... S"], sharpness: float
) -> Float[Tensor, "... S"]:
    """The gradient of -log sigmoid(sharpness * (score of the cheaper - score of the dearer)), summed over pairs.

    Divided by the sharpness and by the number of others. By how much one is cheaper does not count, so a rare disaster
    does not drown the rest; and a pair that is ordered rightly by far no longer pulls.
    """
    lead = sharpness * (scores[..., :, None] - scores[..., None, :])
    pull = (cost[..., :, None] < cost[..., None, :]) * torch.sigmoid(-lead)
    return (pull.sum(-2) - pull.sum(-1)) / max(1, cost.shape[-1] - 1)


def winners(cost: Float[Tensor, "B K S"]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """The cheapest latent of each (instance, start), and whether no other latent ties with it (spec 3.4)."""
    best, winner = cost.min(1)
    tied = (cost <= best[:, None] * (1.0 + TIE)).sum(1) > 1
    alone = ~tied if cost.shape[1] > 1 else torch.ones_like(tied)
    return winner, alone


def winner_weight(
    cost: Float[Tensor, "B K S"], winner: Int[Tensor, "B S"], alone: Bool[Tensor, "B S"]
) -> Float[Tensor, "B S"]:
    """REINFORCE on the winners; eq. 1 of the paper. The baseline is the winning latent's own mean over starts.

    With one start there is no baseline. Ties train nobody (appendix F).
    """
    own = cost.gather(1, winner[:, None])[:, 0]
    baseline = cost.mean(2).gather(1, winner) if cost.shape[2] > 1 else torch.zeros_like(own)
    return (own - baseline) * alone


def lead_weight(cost: Float[Tensor, "B K S"]) -> Float[Tensor, "B S"]:
    """REINFORCE on the winners with the second best as baseline: Poppy's own (spec 3.3). A tie weighs nothing."""
    best = cost.topk(2, dim=1, largest=False).values
    return best[:, 0] - best[:, 1]


def all_starts(rolled: Rollouts, latents: Float[Tensor, "B K Z"]) -> Targets:
    """Single policy: every sampled sequence."""
    cost = rolled.cost.flatten(1)
    count = torch.full((), float(cost.numel()), device=cost.device)
    return Targets(latents, rolled.actions.flatten(1, 2), pomo_weight(cost), count)


def best_latents(
    rolled: Rollouts, latents: Float[Tensor, "B K Z"], baseline: Literal["starts", "second"] = "starts"
) -> Targets:
    """Latent space and population, as published: the winner of each (instance, start) learns by REINFORCE.

    The baseline is the winner's own mean over starts, and ties train nobody; or the second best of the same start, and
    then every start counts in the mean.
    """
    winner, alone = winners(rolled.cost)
    steps = rolled.actions.shape[3]
    actions = rolled.actions.gather(1, winner[:, None, :, None].expand(-1, 1, -1, steps))[:, 0]
    chosen = latents.gather(1, winner[..., None].expand(-1, -1, latents.shape[2]))
    if baseline == "second":
        weight = lead_weight(rolled.cost)
        return Targets(chosen, actions, weight, torch.full((), float(weight.numel()), device=weight.device))
    return Targets(chosen, actions, winner_weight(rolled.cost, winner, alone), alone.sum().float())


def rivals(rolled: Rollouts, latents: Float[Tensor, "B K Z"], samples: int, lesson: Lesson | None = None) -> Targets:
    """Sequences that are compared: for each start, the rollouts of the latent that found the best of them.

    Rollouts `samples` after one another share their start. With one sample of each start, all starts are compared: the
    published form for a single policy. It gives up on starts that lose to others (docs/training.md).
    """
    _, width, total = rolled.cost.shape
    if samples == 1:  # nobody competes
        actions, cost = rolled.actions.flatten(1, 2), rolled.cost.flatten(1)
        return Targets(latents, actions, cost, torch.full((), float(cost.numel()), device=cost.device), total)
    own, chosen, alone = of_winners(rolled, latents, samples, lesson)
    return rivals_of_winners(chosen if width > 1 else latents, alone, own, lesson)


def of_winners(
    rolled: Rollouts, latents: Float[Tensor, "B K Z"], samples: int, lesson: Lesson | None = None
) -> tuple[Rollouts, Float[Tensor, "B S Z"], Bool[Tensor, "B S"]]:
    """For each start the rollouts [B, S, samples] of the latent that found the best, it, and whether no other ties.

    If a lesson has learners, these have won. Of all copies together the best is often found by several; which of them
    comes first is chance, and does no harm.
    """
    # Actions are a strided view on a GPU: cut, not viewed anew.
    cost, actions = (x.unflatten(2, (-1, samples)) for x in (rolled.cost, rolled.actions))
    winner, alone = winners(cost.amin(3))
    if lesson is not None and lesson.learner is not None:
        winner, alone = lesson.learner, torch.ones_like(alone)
    at = winner[:, None, :, None]
    own = cost.gather(1, at.expand(-1, 1, -1, samples))[:, 0]
    plans = actions.gather(1, at[..., None].expand(-1, 1, -1, *actions.shape[3:]))[:, 0]
    return Rollouts(own, plans), latents.gather(1, winner[..., None].expand(-1, -1, latents.shape[2])), alone


def random_subset(starts: Int[Tensor, "B S"], count: int, rng: torch.Generator) -> Int[Tensor, "B C"]:
    """`count` different starts of each instance, all of them if there are no more."""
    order = torch.rand(starts.shape, generator=rng, device=starts.device).argsort(1)[:, :count]
    return starts.gather(1, order)


def repeated(starts: Int[Tensor, "B S"], times: int) -> Int[Tensor, "B R"]:
    """Each start so many times after one another."""
    return starts[..., None].expand(-1, -1, times).flatten(1)


def contested(
    roll: Callable[..., Rollouts],
    rolled: Rollouts,
    latents: Float[Tensor, "B K Z"],
    starts: Int[Tensor, "B S"],
    o: Objective,
    lesson: Lesson | None = None,
) -> Targets:
    """Of many latents that were tried once, the winner of each start is sampled again, and learns from that.

    Its winning rollout counts among them, unless it was greedy; then ties do no harm either: which of the latents with
    one and the same solution comes first is chance.
    """
    first, chosen, alone = of_winners(rolled, latents, 1, lesson)
    more = o.samples if o.trial == "greedy" else o.samples - 1
    found = own_starts(roll(chosen, repeated(starts, more), temperature=o.temperature, attempt=o.latents), more)
    if o.trial == "greedy":
        return rivals_of_winners(chosen, torch.ones_like(alone), found, lesson)
    both = (torch.cat(x, 2) for x in ((first.cost, found.cost), (first.actions, found.actions)))
    return rivals_of_winners(chosen, alone, Rollouts(*both), lesson)


def own_starts(again: Rollouts, samples: int) -> Rollouts:
    """Of the winners of S starts, tried again from all of them, `samples` times each: those of their own start."""
    starts = again.cost.shape[1]
    cost, actions = (x.unflatten(2, (starts, samples)).diagonal(0, 1, 2) for x in (again.cost, again.actions))
    return Rollouts(cost.movedim(-1, 1), actions.movedim(-1, 1))


def rivals_of_winners(
    latents: Float[Tensor, "B K Z"], alone: Bool[Tensor, "B S"], rolled: Rollouts, lesson: Lesson | None = None
) -> Targets:
    """Rollouts [B, S, samples] of the winner of each start, or of the only latent; they are compared but for ties.

    A lesson is learnt where it is better than all of them, ties or not.
    """
    cost, samples = rolled.cost.masked_fill(~alone[..., None], torch.nan), rolled.cost.shape[2]
    count = alone.sum() * float(samples)
    if lesson is None:
        return Targets(latents, rolled.actions.flatten(1, 2), cost.flatten(1), count, samples)
    better = lesson.cost < rolled.cost.amin(2, keepdim=True) * (1.0 - TIE)
    cost = torch.cat([cost, lesson.cost.masked_fill(~better, torch.nan)], 2)
    actions = torch.cat([rolled.actions, lesson.actions], 2)
    return Targets(latents, actions.flatten(1, 2), cost.flatten(1), count + better.sum(), samples, lesson.weight)


@torch.no_grad()
def lesson_of_copies(rolled: Rollouts, starts: Int[Tensor, "B R"], o: Objective, anywhere: bool) -> Lesson | None:
    """The best plan of all copies of an instance, which lie next to one another, for each start of each: [B, S, 1].

    A tour can be begun `anywhere`, so it is the best from any start, the way round that the policy goes; routes cannot,
    so for each start it is the best of those that begin with it.
    """
    if o.copies == 1:
        return None
    samples, latents = o.samples if o.trial == "all" else 1, rolled.cost.shape[1]
    cost = rolled.cost.unflatten(0, (-1, o.copies)).unflatten(3, (-1, samples)).movedim(3, 1)  # [I, S, C, K, samples]
    least, at = (cost.flatten(1)[:, None] if anywhere else cost.flatten(2)).min(2)
    each = o.copies * latents * samples  # of one start
    start = at // each if anywhere else torch.arange(at.shape[1], device=at.device).expand_as(at)
    finder = at % each // (latents * samples)
    row = torch.arange(len(at), device=at.device)[:, None] * o.copies + finder
    latent = at // samples % latents
    plan, _ = unmarked(rolled.actions[row, latent, start * samples + at % samples])
    least, plan, latent = (x.repeat_interleave(o.copies, 0) for x in (least, plan, latent))
    if anywhere:
        first = starts[:, ::samples]
        plan = begun_at(reversed_for(plan[:, 0], finder, o.copies), first)
        least, latent = least.expand_as(first), latent.expand_as(first)
    return Lesson(least[..., None], plan[:, :, None], o.lesson, latent if o.shared else None)


def reversed_for(tour: Int[Tensor, "B T"], finder: Int[Tensor, "I 1"], copies: int) -> Int[Tensor, "B T"]:
    """Tours that another copy has found, the other way round where one of both is mirrored."""
    own = torch.arange(copies, device=tour.device)
    other_hand = (is_mirrored(finder) != is_mirrored(own)).flatten()[:, None]
    return torch.where(other_hand, tour.flip(1), tour)


def begun_at(tour: Int[Tensor, "B T"], starts: Int[Tensor, "B S"]) -> Int[Tensor, "B S T"]:
    """The same tour from other cities on."""
    where = (tour[:, None] == starts[..., None]).int().argmax(2, keepdim=True)
    place = (where + torch.arange(tour.shape[1], device=tour.device)) % tour.shape[1]
    return tour[:, None].expand(-1, starts.shape[1], -1).gather(2, place)


def best_plans(rolled: Rollouts, latents: Float[Tensor, "B K Z"]) -> tuple[Int[Tensor, "B T"], Float[Tensor, "B 1 Z"]]:
    """The cheapest rollout of each instance, and the latent that found it."""
    row, at = torch.arange(len(latents), device=latents.device), rolled.cost.flatten(1).argmin(1)
    latent, start = at // rolled.cost.shape[2], at % rolled.cost.shape[2]
    return unmarked(rolled.actions[row, latent, start])[0], latents[row, latent][:, None]


def with_parts(
    targets: Targets, latent: Float[Tensor, "B 1 Z"], length: Int[Tensor, "B A"], built: Rollouts
) -> Targets:
    """Targets that are compared, and beside them parts of plans, [B, A, samples], of which a `length` was given.

    What was given is marked like what is certain: nobody decided it. So are depots behind the end, which are forced.
    Where others have lessons, parts have none: a sequence of nothing but marks takes the place.
    """
    cost, steps = built.cost, torch.arange(built.actions.shape[3], device=length.device)
    last = torch.where(built.actions != 0, steps, 0).amax(3, keepdim=True)
    decided = (steps >= length[..., None, None]) & (steps <= last)
    actions = torch.where(decided, built.actions, ~built.actions)
    if targets.lesson:
        cost = torch.nn.functional.pad(cost, (0, 1), value=torch.nan)
        actions = torch.cat([actions, ~built.actions[:, :, :1]], 2)
    groups = targets.actions.shape[1] // actions.shape[2]
    own = targets.latents.expand(-1, groups, -1)  # one for each, or one for all
    return replace(
        targets,
        latents=torch.cat([own, latent.expand(-1, length.shape[1], -1)], 1),
        actions=torch.cat([targets.actions, actions.flatten(1, 2).to(targets.actions.dtype)], 1),
        weight=torch.cat([targets.weight, cost.flatten(1)], 1),
        count=targets.count + float(built.cost.numel()),
    )


def shortened(targets: Targets, longest: int) -> Targets:
    """Sequences cut to some length, which is less to score; one that goes on beyond it teaches nothing.

    Vehicle routing allows 2n actions, but plans that return to the depot after every customer are rare: those of 100
    customers take about 112. What is over after the end is the depot, 0.
    """
    over = unmarked(targets.actions[:, :, longest:])[0].ne(0).any(-1)
    nothing = torch.nan if targets.compared else 0.0
    return replace(targets, actions=targets.actions[:, :, :longest], weight=targets.weight.masked_fill(over, nothing))


def cheapest(
    cost: Float[Tensor, "B K S"], count: int
) -> tuple[Int[Tensor, "B V"], Int[Tensor, "B V"], Float[Tensor, "B V"]]:
    """Rollout index, latent index and cost of the `count` cheapest rollouts of each instance."""
    values, index = cost.flatten(1).topk(count, dim=1, largest=False)
    return index, index // cost.shape[2], values
