"""What a training consists of, and one step of it; `run` goes on with it until the end.

A step samples instances where they are needed, rolls out all latents and starts without gradient,
picks the sequences to learn from (`targets`), and differentiates only their teacher-forced
log-probability.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rhumbline import kernels
from rhumbline.decoding import Rollouts, complete, log_prob, rollout
from rhumbline.decoding.neighbourhoods import neighbourhood_prefixes
from rhumbline.errors import InputError, RhumbError
from rhumbline.policies.attention.encoder import limit_attention_ranges
from rhumbline.policies.attention.pointer import PointerDecoder
from rhumbline.problems import PROBLEMS
from rhumbline.training import parallel
from rhumbline.training.config import TrainConfig
from rhumbline.training.data.files import FileInstances
from rhumbline.training.data.random import InstanceSource, RandomInstances, Size
from rhumbline.training.initial_policy import initial_policy
from rhumbline.training.objectives import (
    Targets,
    find_winners,
    random_subset,
    repeat_starts,
    truncate_targets,
)
from rhumbline.training.objectives.imitate import select_cheapest
from rhumbline.training.objectives.neighbourhoods import append_neighbourhoods, select_best_plans
from rhumbline.training.objectives.prefer import preference_targets, resample_winners
from rhumbline.training.objectives.reinforce import pomo_targets, winner_targets
from rhumbline.training.objectives.symmetric_copies import (
    SymmetricTarget,
    find_symmetric_target,
    make_symmetric_copies,
)
from rhumbline.training.optimiser import learning_rate, make_optimiser
from rhumbline.training.recorded_step import CUDAGraphCache

LIMIT_EVERY = 100  # updates between looks at the spread of attention scores
PARTS = 1 << 20  # the first attempt of parts, for noise: far from those of latents
CHECK_EVERY = 50  # updates between looks at the device's finite flags: a look waits for the device


class Diverged(RhumbError):
    """A number that is not finite appeared; the last checkpoint is intact."""


class Trainer:
    """The moving parts of a run; `train` drives them."""

    def __init__(self, config: TrainConfig, device: torch.device):
        if config.problem not in PROBLEMS:
            raise InputError(
                f"problem '{config.problem}' is not known; known: {', '.join(PROBLEMS)}"
            )
        self.config, self.device, self.update, self.best = config, device, 0, float("inf")
        self.rate = 0.0
        self.problem = PROBLEMS[config.problem]
        self.source: InstanceSource = (
            FileInstances(config, self.problem, device)
            if config.data
            else RandomInstances(config, self.problem)
        )
        self.policy = initial_policy(config, device)
        if config.objective.parts and self.policy.architecture.members:
            raise InputError(
                "objective.parts is for a single decoder, and this policy is a population; set parts to 0"
            )
        self.average = initial_policy(config, device).requires_grad_(False)
        self.average.load_state_dict(self.policy.state_dict())
        self.rng = torch.Generator(device).manual_seed(config.seed)
        recorded = config.graph and device.type == "cuda" and parallel.world_size() == 1
        if recorded:
            self.require_kernels()
        self.optimiser = make_optimiser(self.policy, config, device, recorded)
        self.noise = torch.zeros(
            (), dtype=torch.int64, device=device
        )  # seed of the step, where a graph can read it
        self.recorded = CUDAGraphCache(self.update_weights, self.rng) if recorded else None
        self.names = dict(self.policy.named_parameters())
        if self.uses_attention_kernel():
            from rhumbline.kernels.triton.encoder_attention import triton_attend

            self.policy.encoder.set_attention(triton_attend)
        if config.compile and device.type == "cuda":
            self.compile()

    def compile(self) -> None:
        """Fuse what lies between the kernels of the encoder, and between those of the tables of
        a single decoder.
        """
        self.policy.encoder.compile(dynamic=False)
        if isinstance(self.policy.decoder, PointerDecoder):
            self.policy.decoder.tables = torch.compile(self.policy.decoder.tables, dynamic=False)

    def require_kernels(self) -> None:
        """Refuse to record a step that plain torch would run: it reads back from the device."""
        kernels.resolve_log_prob(
            "fused", self.config.problem, self.device, self.source.width, self.policy.architecture
        )

    def uses_attention_kernel(self) -> bool:
        """Whether the encoder's attention is one kernel of ours: on a GPU, in bfloat16, for
        routing.
        """
        c = self.config
        wanted = c.attention == "auto" and c.autocast and c.problem in kernels.GPU_PROBLEMS
        if not wanted or self.device.type != "cuda":
            return False
        work = (c.problem, self.device, self.source.width, self.policy.architecture)
        return kernels.why_not(*work, kernels.MAX_TILE_NODES) is None

    def size(self, mini: int = 0) -> Size:
        """Of the instances of one of this update's mini-steps."""
        return self.source.size_at(self.update * self.config.accumulate + mini)

    def sample(self, mini: int = 0) -> tuple[Any, Tensor, Tensor]:
        """Instances, latents and starts of one mini-step; with several processes, this process's
        share of them.
        """
        o = self.config.objective
        size = self.size(mini)
        count = self.config.batch_for(size)
        if (
            count != self.config.batch
        ):  # nobody can choose the others so that processes can share them
            count = (
                -(-count // (o.copies * parallel.world_size())) * o.copies * parallel.world_size()
            )
        batch = self.source.sample(count // o.copies, size, self.rng)
        space = self.policy.space
        single = o.latents == 1
        own = (count // o.copies if o.shared else count, o.latents)
        latents = space.centre(own, self.device) if single else space.sample(own, self.rng)
        allowed = self.problem.starts(batch)
        pick = torch.randint(
            allowed.shape[1], (len(allowed), o.starts), generator=self.rng, device=self.device
        )
        # Where there is one start only, it is sampled as often as others are started elsewhere.
        distinct = single and allowed.shape[1] > 1
        starts = random_subset(allowed, o.starts, self.rng) if distinct else allowed.gather(1, pick)
        starts = repeat_starts(
            parallel.share(starts), o.samples if o.trial == "all" else 1
        ).repeat_interleave(o.copies, 0)
        batch = make_symmetric_copies(parallel.share(batch), o.copies, self.problem.name == "tsp")
        return batch, parallel.share(latents.repeat_interleave(count // own[0], 0)), starts

    def autocast(self, wanted: bool = True) -> AbstractContextManager[Any]:
        """Products in bfloat16, if the recipe and the device have it.

        Each use has a context of its own: casts of weights that were made without gradient must not
        serve with it.
        """
        able = wanted and self.config.autocast and self.device.type == "cuda"
        cache = self.recorded is None  # a graph must not read casts that were made before it
        return (
            torch.autocast("cuda", torch.bfloat16, cache_enabled=cache) if able else nullcontext()
        )

    def gradient(self, mini: int) -> tuple[Rollouts, Targets, dict[str, Tensor]]:
        """Add one mini-step's gradient; return what was rolled out, what it learnt from, and
        flags of finiteness.
        """
        c = self.config
        o = self.config.objective
        batch, latents, starts = self.sample(mini)
        with self.autocast():
            memory = self.policy.encode(batch)
        roll = partial(self.rolled, batch, memory, mini)
        rolled = roll(latents, starts, temperature=0.0 if o.trial == "greedy" else o.temperature)
        lesson = find_symmetric_target(rolled, starts, o, self.problem.name == "tsp")
        if o.trial == "all":
            found = self.targets(batch, rolled, latents, lesson)
        else:
            found = resample_winners(roll, rolled, latents, starts, o, lesson)
        targets = self.truncate(
            batch,
            self.add_neighbourhoods(batch, memory, mini, rolled, latents, found)
            if o.parts
            else found,
        )
        with self.autocast(self.policy.half_steps):
            scores = log_prob(
                self.problem,
                self.policy,
                batch,
                targets.latents,
                targets.actions,
                memory=memory,
                certain=o.certain,
            )
        count = parallel.sum_over_processes(targets.count).clamp(min=1.0) * c.accumulate
        loss = (targets.weights(scores, o.sharpness) * scores).sum() / count
        loss.backward()
        return (
            rolled,
            targets,
            {"cost": rolled.cost, "log-probability": scores.detach(), "loss": loss.detach()},
        )

    def rolled(
        self, batch: Any, memory: Any, mini: int, latents: Tensor, starts: Tensor, **options: Any
    ) -> Rollouts:
        """Rollouts of a mini-step, whose actions that were all but certain are marked where that
        saves work.
        """
        c = self.config
        o = self.config.objective
        mark = o.certain if o.certain < 1.0 and o.loss != "imitate" else 0.0
        with self.autocast(self.policy.half_steps):
            return rollout(
                self.problem,
                self.policy,
                batch,
                latents,
                starts,
                seed=self.noise_seed(mini),
                memory=memory,
                engine=c.engine,
                mark=mark,
                **options,
            )

    @property
    def seed(self) -> int:
        """Of the noise of this update's first mini-step."""
        return (self.config.seed << 32) + self.update * self.config.accumulate

    def noise_seed(self, mini: int) -> int | Tensor:
        """Of the noise of a mini-step, where whoever needs it can read it."""
        return (self.noise if self.recorded else self.seed) + mini

    @torch.no_grad()
    def targets(
        self,
        batch: Any,
        rolled: Rollouts,
        latents: Float[Tensor, "B K Z"],
        lesson: SymmetricTarget | None = None,
    ) -> Targets:
        """The sequences of whole plans that this step learns from, as long as they are."""
        o = self.config.objective
        if o.loss == "imitate":
            return self.imitation_targets(batch, rolled, latents)
        if o.loss == "prefer":
            return preference_targets(rolled, latents, o.samples, lesson)
        return (
            pomo_targets(rolled, latents)
            if o.latents == 1
            else winner_targets(rolled, latents, o.baseline)
        )

    @torch.no_grad()
    def add_neighbourhoods(
        self,
        batch: Any,
        memory: Any,
        mini: int,
        rolled: Rollouts,
        latents: Float[Tensor, "B K Z"],
        found: Targets,
    ) -> Targets:
        """What was found, and neighbourhoods of the best plans, planned again under the latents
        that found these.
        """
        o, (plan, latent) = self.config.objective, select_best_plans(rolled, latents)
        joint = len(plan) * parallel.world_size()  # as in `imitated`
        luck = parallel.share(torch.rand(joint, o.parts, 2, generator=self.rng, device=self.device))
        given = neighbourhood_prefixes(self.problem.name, batch.xy, plan.long(), luck, both=False)
        again = given.map(lambda x: x.repeat_interleave(o.samples, 1))
        with self.autocast(self.policy.half_steps):
            built = complete(
                self.problem,
                self.policy,
                batch,
                latent,
                again,
                memory,
                seed=self.noise_seed(mini),
                attempt=PARTS,
                temperature=o.temperature,
                samples=o.samples,
                engine=self.config.engine,
            )
        return append_neighbourhoods(
            found, latent, given.length, built.map(lambda x: x[:, 0].unflatten(1, (-1, o.samples)))
        )

    def truncate(self, batch: Any, found: Targets) -> Targets:
        """Without what is beyond the recipe's longest sequence, if it has one."""
        if not self.config.objective.longest:
            return found
        return truncate_targets(
            found, self.config.longest_for(self.problem.action_count(batch) - 1)
        )

    def imitation_targets(
        self, batch: Any, rolled: Rollouts, latents: Float[Tensor, "B K Z"]
    ) -> Targets:
        """The best plan of each instance, locally improved, in several views, under the latent
        that found it.
        """
        o = self.config.objective
        index, latent, cost = select_cheapest(rolled.cost, o.top)
        steps = rolled.actions.shape[3]
        actions = (
            rolled.actions.flatten(1, 2).gather(1, index[..., None].expand(-1, -1, steps)).long()
        )
        if o.improve:
            actions = self.problem.improve(batch, actions, o.improve)
            cost = self.problem.cost(batch, actions)
        best = cost.argmin(1, keepdim=True)  # [B, 1]
        plan = actions.gather(1, best[..., None].expand(-1, -1, steps))[:, 0]
        chosen = latents.gather(
            1, latent.gather(1, best)[..., None].expand(-1, -1, latents.shape[2])
        )
        # Drawn for the joint batch, as in `sample`, so that several processes do what one would
        # have done.
        joint = len(plan) * parallel.world_size()
        uniforms = torch.rand(joint, o.views, 2, generator=self.rng, device=self.device)
        views = self.problem.views(plan, parallel.share(uniforms))
        _, alone = find_winners(
            rolled.cost.amin(2, keepdim=True)
        )  # a tie between latents teaches nobody
        weight = -alone.float().expand(-1, o.views) / steps
        return Targets(chosen, views, weight, alone.sum() * float(o.views))

    def update_gradient(self) -> tuple[Rollouts, Targets, dict[str, Tensor]]:
        """The gradient of one update, over all mini-steps and processes; returns the last
        mini-step's findings.

        Among them are the gradients: of several recorded graphs each writes its own, whatever the
        weights point to.
        """
        c = self.config
        self.optimiser.zero_grad(set_to_none=True)
        rolled, targets, seen = self.gradient(0)
        for mini in range(1, c.accumulate):
            rolled, targets, seen = self.gradient(mini)
        parallel.add_gradients(self.names.values())
        if c.optimiser.clip:
            nn.utils.clip_grad_norm_(self.names.values(), c.optimiser.clip, foreach=True)
        return (
            rolled,
            targets,
            seen
            | {f"gradient of {n}": p.grad for n, p in self.names.items() if p.grad is not None},
        )

    def update_weights(self) -> tuple[Rollouts, Targets, dict[str, Tensor]]:
        """Gradient and optimiser in one: what a graph records."""
        findings = self.update_gradient()
        self.optimiser.step()
        return findings

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next update; a graph reads it from a tensor."""
        self.rate = rate
        for group in self.optimiser.param_groups:
            if self.recorded:
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def step(self, done: float) -> tuple[Rollouts, Targets]:
        """One update of the weights and of their average. `done` is the fraction of the run
        behind us.
        """
        self.set_rate(learning_rate(self.config, self.update, done))
        if self.config.optimiser.spread and self.update % LIMIT_EVERY == 0:
            self.limit_attention_logits()
        look = self.device.type == "cpu" or self.update % CHECK_EVERY == 0
        if self.recorded:
            self.noise.fill_(self.seed)
            sizes = tuple(self.size(mini) for mini in range(self.config.accumulate))
            rolled, targets, seen = self.recorded(sizes)
            if look:
                self.check_finite(seen)
        else:
            rolled, targets, seen = self.update_gradient()
            if look:
                self.check_finite(seen)
            self.optimiser.step()
        self.update += 1
        self.update_average()
        return rolled, targets

    def limit_attention_logits(self) -> None:
        """Keep heads of the encoder from growing without end; all processes look at the same
        instances.
        """
        rng = torch.Generator(self.device).manual_seed(self.config.validation.seed)
        probe = self.problem.sample(16, self.config.size, rng)
        with self.autocast():
            limit_attention_ranges(
                self.policy.encoder, self.policy.features(probe), self.config.optimiser.spread
            )

    def update_average(self) -> None:
        """Move the average towards the weights."""
        pace = min(self.config.optimiser.average, (1 + self.update) / (10 + self.update))
        pairs = zip(self.average.parameters(), self.names.values(), strict=True)
        averages, weights = (
            list(x) for x in zip(*[(a.data, w.data) for a, w in pairs], strict=True)
        )
        torch._foreach_lerp_(averages, weights, 1.0 - pace)  # pyright: ignore[reportPrivateUsage] (one launch for all)

    def check_finite(self, seen: dict[str, Tensor]) -> None:
        """Stop at the first thing that is not finite, and say which it was."""
        finite = torch.stack([torch.isfinite(x).all() for x in seen.values()]).tolist()
        for name, fine in zip(seen, finite, strict=True):
            if not fine:
                raise Diverged(
                    f"update {self.update}: the {name} is not finite; the last checkpoint is intact"
                )

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Mean best cost of the averaged weights on validation instances: greedy at the centre,
        and over latents.
        """
        rng = torch.Generator().manual_seed(self.config.validation.seed)
        given = self.source.validation(rng)
        groups = [
            self.validate_group(batch.to(self.device), rng) / unit.to(self.device)
            for batch, unit in given
        ]
        greedy, latent = torch.cat(groups, dim=1).mean(1).tolist()
        return {"greedy": greedy, "latent": latent}

    def validate_group(self, batch: Any, rng: torch.Generator) -> Float[Tensor, "2 B"]:
        """Greedy costs of instances of one size, and their best over latents."""
        v = self.config.validation
        space = self.policy.space
        count = len(batch.key)
        many = space.sample((count, v.latents if space.size or v.temperature else 0), rng).to(
            self.device
        )
        greedy = self.best_validation_costs(batch, space.centre((count, 1), self.device), 0.0)
        return torch.stack(
            [
                greedy,
                self.best_validation_costs(batch, many, v.temperature) if many.shape[1] else greedy,
            ]
        )

    def best_validation_costs(
        self, batch: Any, latents: Float[Tensor, "B K Z"], temperature: float
    ) -> Float[Tensor, "B"]:
        """The cheapest rollout of each instance with some latents and the averaged weights."""
        best: list[Tensor] = []
        for rows in torch.arange(len(latents), device=self.device).split(250):
            some = batch[rows]
            tried = latents[rows]
            starts = self.problem.starts(some)
            rolled = rollout(
                self.problem, self.average, some, tried, starts, seed=0, temperature=temperature
            )
            best.append(rolled.cost.flatten(1).amin(1))
        return torch.cat(best)
