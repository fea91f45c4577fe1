"""The contracts of a policy, checked on a few instances."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from typing import Any

import torch

from rhumbline.decoding import log_prob, rollout
from rhumbline.policies import Box, Members, Policy
from rhumbline.policies.population import PopulationMemory
from rhumbline.problems import Problem
from rhumbline.testing.contracts import Walk, expect, group_by_shape, is_close, random_walk


@dataclass(frozen=True)
class PolicyTrials:
    """What a policy is tried with."""

    seed: int = 3
    latents: int = 3  # of each instance
    weight_noise: float = 1e-3  # moves new weights that begin at zero


TRIALS = PolicyTrials()


def check_policy(
    policy: Policy[Any, Any, Any], rules: Problem[Any, Any], instances: Sequence[Any]
) -> None:
    """Check a policy for a problem, in plain torch on the CPU.

    `instances` are some of the problem, with few nodes. Weights are left as they are. Raises
    `AssertionError` with the contract that is broken.
    """
    check_policy_traits(policy, rules)
    rng = torch.Generator().manual_seed(TRIALS.seed)
    for group in group_by_shape(instances):
        batch = rules.collate(group)
        walk = random_walk(rules, batch, rng)
        latents = policy.space.sample((len(group), TRIALS.latents), rng)
        check_policy_rollouts(policy, rules, batch, group, latents)
        check_neighbours(policy, rules, batch, latents)
        if walk.actions.shape[2] > 1:  # something is decided
            check_scores(policy, rules, batch, latents, walk)
            check_adjustment(policy, rules, batch, latents, walk)
    largest = max(instances, key=lambda instance: instance.size)
    check_gradients(policy, rules, rules.collate([largest]), rng)
    check_copies_of_policy(policy, rules, rules.collate([largest]))


def check_policy_traits(policy: Any, rules: Any) -> None:
    """Check what a policy says about itself."""
    kind = type(policy).__name__
    expect(
        isinstance(policy, Policy),
        f"{kind} has all methods and values of rhumbline.policies.Policy",
    )
    expect(
        policy.problem == rules.name,
        f"`problem` of {kind} is the name of its rules, '{rules.name}', not '{policy.problem}'",
    )
    expect(isinstance(policy.space, Box | Members), "`space` is a Box or Members of a population")
    expect(is_dataclass(policy.architecture), "`architecture` is a frozen dataclass of sizes")
    json.dumps(asdict(policy.architecture))  # a checkpoint stores it
    expect(policy.footprint(10, 10) >= 1, "footprint is a positive number")


def check_policy_rollouts(
    policy: Any, rules: Any, batch: Any, instances: Sequence[Any], latents: torch.Tensor
) -> None:
    """Check that rollouts are feasible plans, which only seed and temperature change."""
    starts = rules.starts(batch)
    rolled = rollout(rules, policy, batch, latents, starts, seed=TRIALS.seed, engine="torch")
    again = rollout(
        rules, policy, batch, latents, starts, seed=TRIALS.seed, engine="torch", chunk=1
    )
    expect(
        torch.equal(rolled.actions, again.actions),
        "rollouts depend on the seed alone, not on how many are made at once",
    )
    for row, instance in enumerate(instances):
        for actions in rolled.actions[row].flatten(0, 1).tolist():
            rules.decode(instance, actions).check(instance)


def check_neighbours(policy: Any, rules: Any, batch: Any, latents: torch.Tensor) -> None:
    """Check that an instance is decoded alike alone and among others."""
    starts = rules.starts(batch)
    whole = log_prob_of_rollouts(policy, rules, batch, latents, starts)
    count = len(starts)
    for row in range(count):
        one = slice(row, row + 1)
        alone = log_prob_of_rollouts(policy, rules, batch[one], latents[one], starts[one])
        expect(
            is_close(alone, whole[one], 1e-3),
            "scores of an instance do not depend on the rest of its batch",
        )


@torch.no_grad()
def log_prob_of_rollouts(
    policy: Any, rules: Any, batch: Any, latents: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """Return the scores of greedy rollouts."""
    rolled = rollout(
        rules, policy, batch, latents, starts, seed=TRIALS.seed, temperature=0.0, engine="torch"
    )
    actions = rolled.actions.flatten(1, 2)
    return log_prob(rules, policy, batch, latents, actions, engine="torch")


@torch.no_grad()
def check_scores(policy: Any, rules: Any, batch: Any, latents: torch.Tensor, walk: Walk) -> None:
    """Check that scoring whole sequences is scoring them step by step."""
    one = latents[:, :1]
    memory = memory_of(policy, batch, one)
    count, rollouts, _ = walk.actions.shape
    bias = policy.condition(memory, one)
    bias = bias.map(lambda x: x.repeat_interleave(rollouts, dim=1))
    total = torch.zeros(count, rollouts)
    shape = (count, rollouts, rules.action_count(batch))
    for step, state in enumerate(walk.states[:-1], 1):
        allowed = rules.mask(state)
        logits = policy.logits(
            memory,
            bias,
            state,
            allowed,
        )
        expect(
            tuple(logits.shape) == shape,
            f"logits have the shape of the mask, {list(shape)}, not {list(logits.shape)}",
        )
        expect(logits[allowed].isfinite().all(), "logits of allowed actions are finite")
        masked = logits.masked_fill(~allowed, -torch.inf)
        scores = masked.log_softmax(-1)
        chosen = walk.actions[..., step, None]
        score = scores.gather(-1, chosen)
        total += score[..., 0]
    at_once = log_prob(rules, policy, batch, one, walk.actions, engine="torch")
    expect(is_close(at_once, total, 1e-3), "log_prob is the sum of the scores of all steps")


def memory_of(policy: Any, batch: Any, latents: torch.Tensor) -> Any:
    """Return the memory of a batch; of a population, that of the members its latents name."""
    memory = policy.encode(batch)
    if isinstance(memory, PopulationMemory):
        members = latents[:, 0, 0].long()
        return memory.pick(members)
    return memory


@torch.no_grad()
def check_adjustment(
    policy: Any, rules: Any, batch: Any, latents: torch.Tensor, walk: Walk
) -> None:
    """Check that putting back the table that searches may change changes nothing."""
    is_population = isinstance(policy.space, Members)
    if is_population or not hasattr(policy, "adjustable"):
        return
    memory = policy.encode(batch)
    table = policy.adjustable(memory)
    adjusted = policy.adjusted(memory, table)
    one = latents[:, :1]
    score = partial(log_prob, rules, policy, batch, one, walk.actions, engine="torch")
    before = score(memory=memory)
    after = score(memory=adjusted)
    expect(is_close(before, after), "`adjusted` with the table of `adjustable` changes no score")


def check_gradients(policy: Any, rules: Any, batch: Any, rng: torch.Generator) -> None:
    """Check that scores have gradients with respect to weights."""
    copy = copy_policy(policy, TRIALS.weight_noise).requires_grad_(True)
    latents = copy.space.sample((1, TRIALS.latents), rng)
    starts = rules.starts(batch)
    rolled = rollout(
        rules,
        copy,
        batch,
        latents,
        starts,
        seed=TRIALS.seed,
        engine="torch",
    )
    actions = rolled.actions.flatten(1, 2)
    score = log_prob(rules, copy, batch, latents, actions, engine="torch")
    score.sum().backward()
    gradients = [weight.grad for weight in copy.parameters()]
    known = [gradient for gradient in gradients if gradient is not None]
    is_learning = any(gradient.any() for gradient in known)
    expect(is_learning, "the scores of rollouts have gradients with respect to weights")
    is_finite = all(gradient.isfinite().all() for gradient in known)
    expect(is_finite, "gradients of scores are finite")


def copy_policy(policy: Any, noise: float = 0.0) -> Any:
    """Return a new policy of the same sizes with the same weights, and perhaps some noise."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(TRIALS.seed)
        copy = type(policy)(policy.architecture)
        copy.load_state_dict(policy.state_dict())
        for weight in copy.parameters():
            change = noise * torch.randn_like(weight)
            weight.data.add_(change)
    return copy


def check_copies_of_policy(policy: Any, rules: Any, batch: Any) -> None:
    """Check that sizes and weights are all there is of a policy, and that it can be widened."""
    starts = rules.starts(batch)
    cpu = torch.device("cpu")
    centre = policy.space.centre((1, 1), cpu)
    expected = log_prob_of_rollouts(policy, rules, batch, centre, starts)
    copy = copy_policy(policy)
    same = log_prob_of_rollouts(copy, rules, batch, centre, starts)
    expect(torch.equal(same, expected), "a policy of the same architecture and weights is the same")
    if policy.space != Box(0):
        return
    wide = policy.widened(2)
    expect(wide.space == Box(2), "`widened` returns a policy with a latent space of the given size")
    rng = torch.Generator().manual_seed(TRIALS.seed)
    anywhere = wide.space.sample((1, 1), rng)
    same = log_prob_of_rollouts(wide, rules, batch, anywhere, starts)
    expect(is_close(same, expected), "every latent of a widened policy behaves like the original")
