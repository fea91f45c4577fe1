"""The trainer: the moving parts of a run, and one update of the weights; `loop` repeats it.

An update consists of mini-steps. Each samples instances, rolls out all latents and starts without
gradient, and chooses the sequences to learn from (`objectives`). It differentiates only the
teacher-forced log-probability of these sequences.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rhumbline.decoding import (
    Ask,
    CompletionRequest,
    Prefixes,
    Rollouts,
    choose_engine,
    complete,
    log_prob,
    rollout,
    score_decisions,
)
from rhumbline.decoding.engines import why_not_fused
from rhumbline.errors import RhumbError
from rhumbline.policies.attention.encoder import limit_attention_ranges
from rhumbline.policies.attention.pointer import PointerDecoder
from rhumbline.training import parallel
from rhumbline.training.config import TrainConfig
from rhumbline.training.critic import CriticLearner
from rhumbline.training.data.files import FileInstances
from rhumbline.training.data.random import InstanceSource, RandomInstances, Size
from rhumbline.training.initial_policy import initial_policy
from rhumbline.training.objectives.objective import TrainingStep
from rhumbline.training.objectives.symmetric_copies import make_symmetric_copies
from rhumbline.training.objectives.targets import (
    Targets,
    random_subset,
    repeat_starts,
    truncate_targets,
)
from rhumbline.training.optimiser import learning_rate, make_optimiser
from rhumbline.training.recorded_step import CUDAGraphCache


@dataclass(frozen=True)
class TrainerTuning:
    """How often a trainer looks at its state, and how much it works on at once."""

    updates_between_attention_limits: int = 100
    # Random instances on which the range of attention logits is measured.
    attention_probe_instances: int = 16
    # On a GPU, looking at the flags of finiteness waits for the device.
    updates_between_finite_checks: int = 50
    # Validation instances that are rolled out at once.
    validation_instances: int = 250
    # The attempt number of re-sampled neighbourhoods in the noise, far from the numbers of latents.
    neighbourhood_attempt: int = 1 << 20


TUNING = TrainerTuning()


class Diverged(RhumbError):
    """A number that is not finite appeared; the last checkpoint is intact."""


@dataclass(frozen=True)
class MiniStep:
    """The instances of a mini-step, what the policy has encoded of them, and its number."""

    batch: Any
    memory: Any
    number: int = 0  # within the update


class Trainer:
    """The moving parts of a run; `train` drives them."""

    def __init__(self, config: TrainConfig, device: torch.device):
        self.config = config
        self.device = device
        self.update = 0
        self.best_cost = float("inf")
        self.best_update: int | None = None  # the update that had the best cost, if it is known
        self.rate = 0.0
        self.problem = config.family.rules
        self.objective = config.objective.build()
        self.source: InstanceSource = self.make_source()
        self.policy = initial_policy(config, device)
        self.objective.check_policy(self.policy)
        self.average = initial_policy(config, device).requires_grad_(False)
        self.average.load_state_dict(self.policy.state_dict())
        self.rng = torch.Generator(device).manual_seed(config.seed)
        is_recorded = config.graph and device.type == "cuda" and parallel.world_size() == 1
        if is_recorded:
            self.require_kernels()
        self.optimiser = make_optimiser(self.policy, config, device, is_recorded)
        self.critic = CriticLearner(config, device) if self.objective.has_critic else None
        # The seed of the update's noise, where a recorded graph can read it.
        self.seed_tensor = torch.zeros((), dtype=torch.int64, device=device)
        self.recorded = CUDAGraphCache(self.update_weights, self.rng) if is_recorded else None
        self.parameters = dict(self.policy.named_parameters())
        if self.uses_attention_kernel():
            from rhumbline.kernels.triton.encoder_attention import triton_attend

            self.policy.encoder.set_attention(triton_attend)
        if config.compile and device.type == "cuda":
            self.compile_layers()

    def make_source(self) -> FileInstances | RandomInstances:
        """Return the user's instances if the recipe names data, and random ones otherwise."""
        if self.config.data:
            return FileInstances(self.config, self.problem, self.device)
        return RandomInstances(self.config, self.problem)

    def compile_layers(self) -> None:
        """Let torch.compile fuse the operations between kernels: encoder and decoder tables.

        The tables of a population stay as they are.
        """
        self.policy.encoder.compile(dynamic=False)
        decoder = self.policy.decoder
        if isinstance(decoder, PointerDecoder):
            decoder.tables = torch.compile(decoder.tables, dynamic=False)

    def require_kernels(self) -> None:
        """Refuse to record a step that plain torch would run: it reads back from the device."""
        ask = self.ask_for_scores()
        choose_engine("fused", ask)

    def uses_attention_kernel(self) -> bool:
        """Return whether our attention kernel serves: on a GPU, in bfloat16, for routing."""
        config = self.config
        has_attention = config.traits.supports_attention_limit
        is_wanted = config.attention == "auto" and config.autocast and has_attention
        if not is_wanted or self.device.type != "cuda":
            return False
        reason = why_not_fused(self.ask_for_scores())
        return reason is None

    def ask_for_scores(self) -> Ask:
        """Describe the scores of the largest instances, for the choice of kernels."""
        size = self.source.max_action_count
        architecture = self.policy.architecture
        return Ask(self.problem, self.device, size, architecture, gradients=True)

    def mini_step_index(self, mini: int) -> int:
        """Return the number of one of this update's mini-steps, counted from the first update."""
        first = self.update * self.config.accumulate
        return first + mini

    def instance_size(self, mini: int = 0) -> Size:
        """Return the size of the instances of one of this update's mini-steps."""
        index = self.mini_step_index(mini)
        return self.source.size_at(index)

    def instance_count(self, size: Size) -> int:
        """Return the instances of a mini-step, over all processes; symmetric copies count.

        For the recipe's own `size` the number is `batch`. For other sizes the user cannot choose
        the number, so it is rounded up to a multiple that the processes can share.
        """
        count = self.config.batch_for(size)
        if count == self.config.batch:
            return count
        divisor = self.objective.copies_per_instance * parallel.world_size()
        multiple = -(-count // divisor)  # rounded up
        return multiple * divisor

    def sample(self, mini: int = 0) -> tuple[Any, Tensor, Tensor]:
        """Sample instances, latents and starts of one mini-step.

        With several processes, all draw the joint batch, and each keeps its own share.
        """
        copies = self.objective.copies_per_instance
        size = self.instance_size(mini)
        count = self.instance_count(size)
        batch = self.source.sample(count // copies, size, self.rng)
        latents = self.sample_latents(count)
        starts = self.sample_starts(batch)
        own_starts = parallel.share(starts)
        own_starts = repeat_starts(own_starts, self.objective.rollouts_per_start)
        own_starts = own_starts.repeat_interleave(copies, 0)
        batch = parallel.share(batch)
        batch = make_symmetric_copies(batch, copies, self.config.traits.is_reversible)
        return batch, parallel.share(latents), own_starts

    def sample_latents(self, count: int) -> Float[Tensor, "B K Z"]:
        """Sample the latents of `count` instances; a single policy has the centre of its space."""
        objective = self.objective
        rows = count // objective.copies_per_instance if objective.shares_latents else count
        shape = (rows, objective.latents)
        space = self.policy.space
        if objective.latents == 1:
            latents = space.centre(shape, self.device)
        else:
            latents = space.sample(shape, self.rng)
        return latents.repeat_interleave(count // rows, 0)

    def sample_starts(self, batch: Any) -> Int[Tensor, "B S"]:
        """Sample `count` starts of each instance: distinct ones for a single policy.

        If the problem has a single start, repeat it `count` times. Several latents share their
        starts, which are drawn with replacement.
        """
        count = self.objective.starts
        allowed = self.problem.starts(batch)
        instances, choices = allowed.shape
        pick = torch.randint(
            choices,
            (instances, count),
            generator=self.rng,
            device=self.device,
        )
        if self.objective.latents == 1 and choices > 1:
            return random_subset(allowed, count, self.rng)
        return allowed.gather(1, pick)

    def autocast(self, wanted: bool = True) -> AbstractContextManager[Any]:
        """Return a context with bfloat16 matrix products, if the recipe and the device have them.

        Each use has a context of its own: casts of weights that were cached without gradient must
        not serve with gradient. A recorded graph must not read casts that were made before it.
        """
        is_cuda = self.device.type == "cuda"
        is_on = wanted and self.config.autocast and is_cuda
        if not is_on:
            return nullcontext()
        cache = self.recorded is None
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=cache)

    def gradient(self, mini: int) -> tuple[Rollouts, Targets, dict[str, Tensor]]:
        """Add one mini-step's gradient; return its rollouts, its targets and values to check.

        The values are tensors by name, which have to be finite.
        """
        batch, latents, starts = self.sample(mini)
        with self.autocast():
            memory = self.policy.encode(batch)
        step = MiniStep(batch, memory, mini)
        temperature = self.objective.rollout_temperature
        rollouts = self.sample_rollouts(step, latents, starts, temperature=temperature)
        targets = self.choose_targets(step, latents, starts, rollouts)
        targets = self.truncate(batch, targets)
        if self.critic is None:
            scores, loss = self.policy_loss(step, targets)
        else:
            scores, loss = self.actor_critic_loss(step, targets, self.critic)
        loss.backward()
        values = {"cost": rollouts.cost, "log-probability": scores.detach(), "loss": loss.detach()}
        return rollouts, targets, values

    def policy_loss(
        self, step: MiniStep, targets: Targets
    ) -> tuple[Float[Tensor, "B V"], Float[Tensor, ""]]:
        """Return the log-probabilities of the targets, and the loss of a mini-step."""
        scores = self.score(step, targets)
        weights = self.objective.loss_weights(targets, scores)
        weighted = weights * scores
        return scores, weighted.sum() / self.joint_count(targets.count)

    def actor_critic_loss(
        self, step: MiniStep, targets: Targets, critic: CriticLearner
    ) -> tuple[Float[Tensor, "B V"], Float[Tensor, ""]]:
        """Return the log-probabilities of the targets, and the sum of both losses."""
        with self.autocast(self.policy.half_steps):
            decisions = score_decisions(
                self.problem,
                self.policy,
                step.batch,
                targets.latents,
                targets.actions,
                step.memory,
            )
            losses = critic.losses(step.batch, targets, decisions)
        policy_loss = losses.policy / self.joint_count(targets.count)
        critic_loss = losses.critic / self.joint_count(losses.decisions)
        return losses.scores, policy_loss + critic_loss

    def joint_count(self, count: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Return a number over all processes and mini-steps of an update, 1 at least each."""
        joint = parallel.sum_over_processes(count).clamp(min=1.0)
        return joint * self.config.accumulate

    def sample_rollouts(
        self, step: MiniStep, latents: Tensor, starts: Tensor, **options: Any
    ) -> Rollouts:
        """Roll out a mini-step; mark near-deterministic decisions where that saves work."""
        objective = self.objective
        marks = objective.certain < 1.0 and objective.marks_rollouts
        with self.autocast(self.policy.half_steps):
            return rollout(
                self.problem,
                self.policy,
                step.batch,
                latents,
                starts,
                seed=self.noise_seed(step.number),
                memory=step.memory,
                engine=self.config.engine,
                mark=objective.certain if marks else 0.0,
                **options,
            )

    def score(self, step: MiniStep, targets: Targets) -> Float[Tensor, "B V"]:
        """Return the teacher-forced log-probabilities of the targets, with gradient."""
        with self.autocast(self.policy.half_steps):
            return log_prob(
                self.problem,
                self.policy,
                step.batch,
                targets.latents,
                targets.actions,
                memory=step.memory,
                certain=self.objective.certain,
                temperature=self.objective.scored_temperature,
            )

    @property
    def seed(self) -> int:
        """The seed of the noise of this update's first mini-step."""
        first = self.config.seed << 32
        index = self.mini_step_index(0)
        return first + index

    def noise_seed(self, mini: int) -> int | Tensor:
        """Return the seed of a mini-step's noise; a tensor if a recorded graph reads it."""
        first = self.seed_tensor if self.recorded else self.seed
        return first + mini

    @torch.no_grad()
    def choose_targets(
        self,
        step: MiniStep,
        latents: Float[Tensor, "B K Z"],
        starts: Int[Tensor, "B R"],
        rollouts: Rollouts,
    ) -> Targets:
        """Choose the sequences that this mini-step learns from, before truncation to `longest`."""
        seen = TrainingStep(
            self.config.domain,
            self.problem,
            step.batch,
            latents,
            starts,
            rollouts,
            self.rng,
            roll_out=partial(self.sample_rollouts, step),
            complete=partial(self.complete_prefixes, step),
        )
        return self.objective.targets(seen)

    def complete_prefixes(
        self, step: MiniStep, latent: Float[Tensor, "B 1 Z"], prefixes: Prefixes, samples: int
    ) -> Rollouts:
        """Complete each prefix of a mini-step `samples` times, under its instance's latent."""
        with self.autocast(self.policy.half_steps):
            request = CompletionRequest(
                self.problem,
                self.policy,
                step.batch,
                latent,
                prefixes.map(lambda x: x.repeat_interleave(samples, 1)),
                step.memory,
                seed=self.noise_seed(step.number),
                attempt=TUNING.neighbourhood_attempt,
                temperature=1.0,
                samples=samples,
            )
            return complete(request, self.config.engine)

    def truncate(self, batch: Any, targets: Targets) -> Targets:
        """Cut sequences to the recipe's longest, if it has one."""
        if not self.config.objective.longest:
            return targets
        customers = self.problem.action_count(batch) - 1
        longest = self.config.longest_for(customers)
        return truncate_targets(targets, longest)

    def update_gradient(self) -> tuple[Rollouts, Targets, dict[str, Tensor]]:
        """Compute the gradient of one update, over all mini-steps and processes.

        Returns rollouts, targets and values to check of the last mini-step. The values include the
        gradients: each recorded graph writes gradients of its own, and the weights point to one
        graph's only.
        """
        config = self.config
        self.optimiser.zero_grad(set_to_none=True)
        if self.critic is not None:
            self.critic.optimiser.zero_grad(set_to_none=True)
        rollouts, targets, values = self.gradient(0)
        for mini in range(1, config.accumulate):
            rollouts, targets, values = self.gradient(mini)
        parallel.add_gradients(self.parameters.values())
        if config.optimiser.clip:
            norm = config.optimiser.clip
            nn.utils.clip_grad_norm_(self.parameters.values(), norm, foreach=True)
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                values[f"gradient of {name}"] = parameter.grad
        if self.critic is not None:
            values |= self.critic.finish_gradient(config.optimiser.clip)
        return rollouts, targets, values

    def update_weights(self) -> tuple[Rollouts, Targets, dict[str, Tensor]]:
        """Compute the gradient and let the optimiser use it: what a graph records."""
        findings = self.update_gradient()
        self.optimiser.step()
        return findings

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next update; a recorded graph reads it from a tensor."""
        self.rate = rate
        for group in self.optimiser.param_groups:
            if self.recorded:
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        if self.critic is not None:
            self.critic.set_rate(rate)

    def step(self, done: float) -> tuple[Rollouts, Targets]:
        """Update the weights and their average. `done` is the completed fraction of the run."""
        self.set_rate(learning_rate(self.config, self.update, done))
        limits = self.update % TUNING.updates_between_attention_limits == 0
        if self.config.optimiser.spread and limits:
            self.limit_attention_logits()
        is_due = self.update % TUNING.updates_between_finite_checks == 0
        checks = self.device.type == "cpu" or is_due
        if self.recorded:
            self.seed_tensor.fill_(self.seed)
            mini_steps = range(self.config.accumulate)
            sizes = tuple(self.instance_size(mini) for mini in mini_steps)
            rollouts, targets, values = self.recorded(sizes)
            if checks:
                self.check_finite(values)
        else:
            rollouts, targets, values = self.update_gradient()
            if checks:
                self.check_finite(values)
            self.optimiser.step()
            if self.critic is not None:
                self.critic.optimiser.step()
        self.update += 1
        self.update_average()
        return rollouts, targets

    def limit_attention_logits(self) -> None:
        """Keep the encoder's attention logits in the recipe's range.

        All processes measure the range on the same random instances.
        """
        seed = self.config.validation.seed
        rng = torch.Generator(self.device).manual_seed(seed)
        count = TUNING.attention_probe_instances
        probe = self.problem.sample(count, self.config.size, rng)
        limit = self.config.optimiser.spread
        with self.autocast():
            features = self.policy.features(probe)
            limit_attention_ranges(self.policy.encoder, features, limit)

    def update_average(self) -> None:
        """Move the average towards the weights, faster at the beginning of a run."""
        early = (1 + self.update) / (10 + self.update)
        pace = min(self.config.optimiser.average, early)
        averages: list[Tensor] = []
        for average in self.average.parameters():
            averages.append(average.data)
        weights: list[Tensor] = []
        for weight in self.parameters.values():
            weights.append(weight.data)
        # One launch for all weights.
        torch._foreach_lerp_(averages, weights, 1.0 - pace)  # pyright: ignore[reportPrivateUsage]

    def check_finite(self, values: dict[str, Tensor]) -> None:
        """Raise at the first value that is not finite, and name it."""
        flags = [torch.isfinite(x).all() for x in values.values()]
        stacked = torch.stack(flags)  # read back at once
        for name, is_finite in zip(values, stacked.tolist(), strict=True):
            if not is_finite:
                raise Diverged(
                    f"update {self.update}: the {name} is not finite; the last checkpoint is intact"
                )

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return mean costs of the averaged weights on the validation instances.

        "greedy" is the best greedy plan at the centre of the latent space, "latent" the best plan
        over sampled latents.
        """
        seed = self.config.validation.seed
        rng = torch.Generator().manual_seed(seed)
        groups: list[Tensor] = []
        for batch, unit in self.source.validation(rng):
            batch = batch.to(self.device)
            unit = unit.to(self.device)
            costs = self.validate_group(batch, rng)
            groups.append(costs / unit)
        means = torch.cat(groups, dim=1).mean(1)
        greedy, latent = means.tolist()
        return {"greedy": greedy, "latent": latent}

    def validate_group(self, batch: Any, rng: torch.Generator) -> Float[Tensor, "2 B"]:
        """Return the greedy costs of instances of one size, and their best costs over latents."""
        validation = self.config.validation
        space = self.policy.space
        count = len(batch.key)
        tries = validation.latents if space.size or validation.temperature else 0
        latents = space.sample((count, tries), rng).to(self.device)
        centre = space.centre((count, 1), self.device)
        greedy = self.best_validation_costs(batch, centre, 0.0)
        if not tries:
            return torch.stack([greedy, greedy])
        best = self.best_validation_costs(batch, latents, validation.temperature)
        return torch.stack([greedy, best])

    def best_validation_costs(
        self, batch: Any, latents: Float[Tensor, "B K Z"], temperature: float
    ) -> Float[Tensor, "B"]:
        """Return each instance's cheapest rollout with these latents and the averaged weights."""
        best: list[Tensor] = []
        instances = torch.arange(len(latents), device=self.device)
        for rows in instances.split(TUNING.validation_instances):
            part = batch[rows]
            part_latents = latents[rows]
            starts = self.problem.starts(part)
            rollouts = rollout(
                self.problem,
                self.average,
                part,
                part_latents,
                starts,
                seed=0,
                temperature=temperature,
            )
            best.append(rollouts.cost.flatten(1).amin(1))
        return torch.cat(best)
