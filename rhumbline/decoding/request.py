"""What an engine is asked for, what it returns, and the rule that draws an action."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline import noise
from rhumbline.policies import Policy
from rhumbline.problems import Problem
from rhumbline.record import Record

# "auto", "torch", "fused", or the name of an engine that a package adds.
EngineName = str

# The drawn position is u * total. This factor keeps it below the total under any rounding.
BELOW_ONE = 1.0 - 2.0**-22


def never_stop() -> None:
    """Do nothing: there is no time limit."""


@dataclass(frozen=True)
class TimeLimit:
    """When rollouts have to end, whatever is lost with them."""

    # Plain torch calls it before each step. It raises what ends the rollouts.
    check: Callable[[], None] = never_stop
    # When a kernel of the CPU ends early, by `time.monotonic`; then `check` has to raise.
    deadline: float | None = None


NO_LIMIT = TimeLimit()


@dataclass(frozen=True)
class Rollouts(Record):
    """Complete solutions and their costs, for each instance, latent and start."""

    cost: Float[Tensor, "B K S"]
    actions: Int[Tensor, "B K S T"]


@dataclass(frozen=True)
class Prefixes(Record):
    """Partial solutions: the first `length` actions of each sequence are imposed, one at least."""

    actions: Int[Tensor, "B R T"]
    length: Int[Tensor, "B R"]


@dataclass(frozen=True)
class RolloutRequest:
    """Rollouts to construct: one for each instance, latent and start."""

    problem: Problem[Any, Any]
    policy: Policy[Any, Any, Any]
    batch: Any
    memory: Any
    latents: Float[Tensor, "B K Z"]
    starts: Int[Tensor, "B S"]
    seed: int | Tensor  # a tensor only for fused engines on a GPU, so that a CUDA graph can replay
    attempt: int  # number of the first latent; it continues the noise
    temperature: float
    prefixes: Prefixes | None = None  # if more than the first action of each rollout is imposed
    mark: float = 0.0  # store drawn actions of at least this probability as complements; 0: never
    limit: TimeLimit = NO_LIMIT

    @property
    def host_seed(self) -> int:
        """Return the seed as a number, for engines that run on the host."""
        assert isinstance(self.seed, int), "only the fused engine of a GPU reads its seed there"
        return self.seed

    @property
    def latent_bias(self) -> Any:
        """Compute what each latent adds to the policy's tables, [B, K, ...]."""
        policy = self.policy
        return policy.condition(self.memory, self.latents)

    @property
    def rollout_bias(self) -> Any:
        """Repeat the bias of a latent for each of its rollouts, [B, K * S, ...]."""
        starts = self.starts.shape[1]
        bias = self.latent_bias

        def for_each_start(x: Tensor) -> Tensor:
            return x.repeat_interleave(starts, dim=1)

        return bias.map(for_each_start)

    @property
    def first_actions(self) -> Int[Tensor, "B R"]:
        """Return the imposed first action of each rollout."""
        if self.prefixes is not None:
            return self.prefixes.actions[..., 0]
        tried = self.latents.shape[1]
        of_latent = self.starts[:, None].expand(-1, tried, -1)
        return of_latent.flatten(1)

    def decide(
        self, bias: Any, state: Any, uniform: Float[Tensor, "B R"] | None
    ) -> Int[Tensor, "B R"]:
        """Choose the next action of each rollout."""
        allowed = self.problem.mask(state)
        logits = self.policy.logits(
            self.memory,
            bias,
            state,
            allowed,
        )
        return choose(logits, allowed, uniform, self.temperature)

    def part(self, rows: slice, tried: slice) -> "RolloutRequest":
        """Return the request for some instances and some latents; latents keep their numbers."""
        assert self.prefixes is None, "prefixes are completed in one part"
        every_row = rows == slice(0, len(self.starts))
        return replace(
            self,
            batch=self.batch[rows],
            memory=self.memory if every_row else self.memory[rows],  # the same object hits caches
            latents=self.latents[rows, tried],
            starts=self.starts[rows],
            attempt=self.attempt + tried.start,
        )

    def uniforms(self, horizon: int) -> Float[Tensor, "B R T"]:
        """Draw the uniform behind every decision, up to `horizon` steps."""
        device = self.starts.device
        tried = self.latents.shape[1]
        starts = self.starts.shape[1]
        attempts = self.attempt + torch.arange(tried, device=device)
        drawn = noise.decoding_uniforms(self.host_seed, self.batch.key, attempts, starts, horizon)
        return drawn.flatten(1, 2)


def choose(
    logits: Float[Tensor, "*R A"],
    allowed: Bool[Tensor, "*R A"],
    uniform: Float[Tensor, "*R"] | None,
    temperature: float,
) -> Int[Tensor, "*R"]:
    """Choose the action that `uniform` selects by inversion of the cumulative weights.

    Without a uniform, or at temperature 0, choose the action with the highest logit.
    """
    logits = logits.masked_fill(~allowed, -torch.inf)
    if uniform is None or temperature == 0.0:
        return logits.argmax(-1)
    highest = logits.amax(-1, keepdim=True)
    below = logits - highest
    weight = torch.exp(below / temperature)
    # A parallel scan may round the sum at a forbidden action above those of its neighbours.
    # Such a sum must neither be hit nor count towards the total.
    cumulative = weight.cumsum(-1)
    cumulative.masked_fill_(~allowed, 0.0)
    total = cumulative.amax(-1, keepdim=True)
    limit = uniform[..., None] * (total * BELOW_ONE)
    passed = cumulative > limit
    passed = passed.to(torch.uint8)
    return passed.argmax(-1)


def split_rollouts(
    cost: Float[Tensor, "B R"], actions: Int[Tensor, "B R T"], tried: int
) -> Rollouts:
    """Split the rollout axis into `tried` latents and their starts."""
    count, rollouts = cost.shape
    starts = rollouts // tried
    return Rollouts(
        cost=cost.view(count, tried, starts),
        actions=actions.to(torch.int16).view(count, tried, starts, -1),
    )


def reprice(
    problem: Problem[Any, Any],
    batch: Any,
    cost: Float[Tensor, "B K S"],
    actions: Int[Tensor, "B K S T"],
) -> Rollouts:
    """Return a kernel's rollouts, priced by the problem unless distances are straight lines.

    Kernels measure straight lines only; other metrics and limits need the actions.
    """
    if batch.has_euclidean_cost:
        return Rollouts(cost, actions)
    sequence = actions.flatten(1, 2).long()
    tried = actions.shape[1]
    price = problem.cost(batch, sequence)
    return split_rollouts(price, sequence, tried)


def noise_counters(request: RolloutRequest) -> Int[Tensor, "2"]:
    """Put seed and first attempt on the device.

    Nothing is copied from the host, so that a CUDA graph may record it.
    """
    device = request.starts.device
    counters = torch.full((2,), request.attempt, dtype=torch.int64, device=device)
    counters[0] = request.seed
    return counters
