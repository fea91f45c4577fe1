"""The contracts of an engine: the choices of plain torch, except at near ties."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rhumbline import noise
from rhumbline.decoding import BELOW_ONE, Rollouts, choose, rollout
from rhumbline.problems import Problem
from rhumbline.testing.contracts import expect, group_by_shape, is_close


@dataclass(frozen=True)
class Parity:
    """How far the choices of an engine may be from those of torch, and what is tried."""

    near_tie: float = 1e-5  # of the total weight, or of a logit: float32 sums in another order
    max_different: float = 0.002  # of all decisions, so that not all of them are near ties
    seed: int = (5 << 32) + 17  # more than 32 bits
    attempt: int = 6  # number of the first latent
    latents: int = 4  # of each instance
    temperatures: tuple[float, ...] = (0.0, 0.3, 1.0)


def check_engine(
    engine: Any,
    rules: Problem[Any, Any],
    policy: Any,
    instances: Sequence[Any],
    *,
    device: str = "cpu",
    parity: Parity = Parity(),  # noqa: B008 (frozen, so safe to share)
) -> None:
    """Check that an engine, or the engine of a name, makes the rollouts that torch makes.

    Raises `AssertionError` with the contract that is broken, and `InputError` or `MissingExtra` if
    the engine refuses the problem or the policy.
    """
    rng = torch.Generator().manual_seed(0)
    policy = policy.to(device)
    for group in group_by_shape(instances):
        batch = rules.collate(group).to(device)
        tried = policy.space.sample((len(group), parity.latents), rng).to(device)
        starts = rules.starts(batch)
        for temperature in parity.temperatures:
            rolled = rollout(
                rules,
                policy,
                batch,
                tried,
                starts,
                seed=parity.seed,
                attempt=parity.attempt,
                temperature=temperature,
                engine=engine,
            )
            check_rollouts(rules, batch, group, starts, rolled)
            decoder = Decoder(rules, policy, batch, tried)
            check_choices(decoder, rolled, temperature, parity)


def check_rollouts(
    rules: Any, batch: Any, instances: Sequence[Any], starts: Tensor, rolled: Rollouts
) -> None:
    """Check that rollouts begin at their starts and are feasible plans at their cost."""
    actions = rolled.actions.long()
    first = starts[:, None].expand(actions.shape[:3])
    expect(torch.equal(actions[..., 0], first), "a rollout begins with its start")
    costs = rules.cost(batch, actions.flatten(1, 2))
    costs = costs.view_as(rolled.cost)
    expect(is_close(rolled.cost, costs), "an engine's costs are those of the rules")
    for row, instance in enumerate(instances):
        sequences = actions[row].flatten(0, 1)
        for sequence in sequences.tolist():
            plan = rules.decode(instance, sequence)
            plan.check(instance)


@dataclass(frozen=True)
class Decoder:
    """What rollouts are made from."""

    rules: Problem[Any, Any]
    policy: Any
    batch: Any
    latents: Tensor

    def scores(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits before each decision of some rollouts, and what was allowed."""
        _, _, starts, length = actions.shape
        each = starts * (length - 1)
        batch = self.batch
        memory = self.policy.encode(batch)
        sequences = actions.flatten(1, 2)
        state = self.rules.replay(batch, sequences)
        bias = self.policy.condition(memory, self.latents)
        bias = bias.map(lambda x: x.repeat_interleave(each, dim=1))
        allowed = self.rules.mask(state)
        logits = self.policy.logits(memory, bias, state, allowed)
        return logits, allowed


@torch.no_grad()
def check_choices(decoder: Decoder, rolled: Rollouts, temperature: float, parity: Parity) -> None:
    """Check that each action, given those before it, is what the same uniform selects in torch.

    Near ties may be decided otherwise.
    """
    _, tried, starts, length = rolled.actions.shape
    if length < 2:
        return
    actions = rolled.actions.long()
    logits, allowed = decoder.scores(actions)
    attempts = parity.attempt + torch.arange(tried, device=logits.device)
    keys = decoder.batch.key
    uniforms = noise.decoding_uniforms(parity.seed, keys, attempts, starts, length)
    uniform = uniforms[..., 1:].flatten(1)
    taken = actions[..., 1:].flatten(1)
    is_different = taken != choose(logits, allowed, uniform, temperature)
    logits = logits.double().masked_fill(~allowed, -torch.inf)
    distance = distance_from_tie(logits, taken, uniform, temperature)
    expect(
        (distance[is_different] < parity.near_tie).all(),
        f"at temperature {temperature} an action is not the one that the uniform selects",
    )
    expect(
        is_different.double().mean() <= parity.max_different,
        f"at temperature {temperature} too many actions differ from those of torch",
    )


def distance_from_tie(logits: Tensor, taken: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """Return how far each decision was from another one: in logits, or in probability."""
    if temperature == 0:
        highest = logits.amax(-1)
        chosen = logits.gather(-1, taken[..., None])
        return highest - chosen[..., 0]
    probabilities = (logits / temperature).softmax(-1)
    sums = probabilities.cumsum(-1)
    position = uniform[..., None] * BELOW_ONE
    return (sums - position).abs().amin(-1)
