"""What a strategy works on: instances of one shape, and the only ways to spend a budget on them."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline import kernels, noise
from rhumbline.decoding import EngineName, Prefixes, Rollouts, complete, log_prob, rollout
from rhumbline.errors import InputError
from rhumbline.policies import Policy
from rhumbline.problems import Plan, Problem
from rhumbline.problems.symmetry import symmetric_copies
from rhumbline.search.overrides import Overrides, concatenate_rollouts, starts_of_latents
from rhumbline.search.plan_sets.diverse import DiverseSet
from rhumbline.search.plan_sets.similarity import pad_actions, plan_tools_for

# Numbers of a rollout x its steps, for all rollouts between two looks at the clock: about half a
# second of torch on two cores, and a quarter of a second of the fused kernel.
PIECE = {"cpu": 16_000_000, "cuda": 20_000_000_000}
FEWEST = 16  # completions of a piece: a tile of the CPU's kernel
PATIENT = 8  # pieces in one, where there is no time limit
# seconds between two looks, at most, where time allows and larger pieces are faster: in torch on a
# CPU
PATIENCE = 3.0


class Spent(Exception):
    """The budget is used up; raised through a strategy's step, caught by `stream`."""


@dataclass
class Account:
    """What has been spent and found. Only `SetResults` and `stream` write here, and who makes
    plans without an attempt.
    """

    attempts: int = 0
    limit: int | None = None
    deadline: float | None = None
    best: Tensor | None = None  # [B]
    actions: Tensor | None = None  # [B, T]
    pool: DiverseSet | None = None  # of the best different plans, if they are wanted
    warm: Sequence[Plan | None] = ()  # plans to start from, one for each instance or None

    @property
    def late(self) -> bool:
        """Whether time is up."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def room(self, wanted: int) -> int:
        """How many of the wanted attempts the budget still allows; raises `Spent` if none. The
        first is always made.
        """
        left = wanted if self.limit is None else min(wanted, self.limit - self.attempts)
        if (self.late and self.attempts > 0) or left <= 0:
            raise Spent
        return left

    def enter(self, rolled: Rollouts, attempts: int) -> None:
        """Count attempts and keep the cheapest solution of each instance."""
        cost, where = rolled.cost.flatten(1).min(1)
        rows = torch.arange(len(cost), device=cost.device)
        actions = rolled.actions.flatten(1, 2)[rows, where]
        if self.best is None or self.actions is None:
            self.best = cost
            self.actions = actions
        better = cost < self.best
        self.best = torch.where(better, cost, self.best)
        self.actions = torch.where(better[:, None], actions, self.actions)
        if self.pool:
            self.pool.enter(rolled)
        self.attempts += attempts


@dataclass
class Task:
    """Instances of one shape with everything needed to try latents on them.

    With symmetric copies, the rows R of batch, memory and starts are the copies of the first
    instance, of the second, and so on. An attempt is one trajectory per start, of any one copy.
    """

    problem: Problem[Any, Any]
    policy: Policy[Any, Any, Any]
    instances: Sequence[Any]
    batch: Any
    memory: Any
    starts: Int[Tensor, "R S"]
    seed: int
    engine: EngineName
    account: Account = field(default_factory=Account)
    copies: int = 1
    start_time: float = 0.0
    spare_trajectories: int = 0  # trajectories of each instance that are paid for and not made
    max_scored_sequences: float = (
        math.inf
    )  # sequences whose scores the device's memory holds, once it was found too small
    pace: float = 0.0  # seconds of the last piece for each unit of `_work`; 0 before the first
    tried_count: int = (
        0  # latents of each instance so far: the noise goes by their numbers, whatever they cost
    )

    @property
    def count(self) -> int:
        """Number of instances."""
        return len(self.starts) // self.copies

    @property
    def original_batch(self) -> Any:
        """The batch of the instances as they were given: the first copy of each is itself."""
        return self.batch if self.copies == 1 else self.batch[:: self.copies]

    @property
    def device(self) -> torch.device:
        """Where the search runs."""
        return self.starts.device

    @property
    def resolved_engine(self) -> str:
        """The engine that really runs."""
        width = self.problem.action_count(self.batch)
        architecture = self.policy.architecture
        return kernels.resolve(self.engine, self.problem.name, self.device, width, architecture)

    @property
    def spent_share(self) -> float:
        """The part of the budget behind us, by attempts or by the clock, whichever is larger."""
        account = self.account
        tried_count = account.attempts / account.limit if account.limit else 0.0
        waited = (
            0.0
            if account.deadline is None
            else (time.monotonic() - self.start_time) / (account.deadline - self.start_time)
        )
        return max(tried_count, waited)

    @property
    def incumbents(self) -> Int[Tensor, "B T"]:
        """The cheapest sequence of each instance so far."""
        assert self.account.actions is not None, "nothing has been tried"
        return self.account.actions

    def forget(self) -> None:
        """As if nothing had been tried: a search that follows sees the noise of the first."""
        self.account = Account()
        self.spare_trajectories = 0
        self.tried_count = 0

    def uniforms(self, count: int) -> Float[Tensor, "B K Z 2"]:
        """Noise for the next `count` latents of each instance; the same whatever else is in the
        batch.

        It goes by their numbers, so a second call before the next rollout returns the same.
        """
        attempt = self.tried_count + torch.arange(count, device=self.device)
        return noise.latent_uniforms(
            self.seed, self.batch.key[:: self.copies], attempt, self.policy.space.size
        )

    def repeat_for_copies(self, each: Tensor) -> Tensor:
        """What is given for each instance, for each of its copies."""
        return each.repeat_interleave(self.copies, dim=0)

    def best_of_copies(self, rolled: Rollouts) -> Rollouts:
        """The cheapest copy of each (instance, latent, start)."""
        if self.copies == 1:
            return rolled
        cost, best = rolled.cost.unflatten(0, (self.count, self.copies)).min(1)
        actions = rolled.actions.unflatten(0, (self.count, self.copies))
        where = best[:, None, ..., None].expand(-1, -1, -1, -1, actions.shape[-1])
        return Rollouts(cost, actions.gather(1, where)[:, 0])

    def rollout(
        self,
        latents: Float[Tensor, "B K Z"],
        temperature: float,
        starts: Int[Tensor, "B *K C"] | None = None,
        memory: Any = None,
    ) -> Rollouts:
        """Each latent on each instance, on all copies: what is returned is the best copy of each
        start.

        `starts` takes the place of the usual ones: the same for all latents, or [B, K, C] with each
        latent's own. `memory` are other tables, of every copy.
        """
        self.check_latents(latents, self.count)
        own = {} if starts is None else {"starts": self.repeat_for_copies(starts)}
        return self.best_of_copies(
            self.rollout_each_copy(
                self.repeat_for_copies(latents), temperature, memory=memory, **own
            )
        )

    def rollout_each_copy(
        self,
        latents: Float[Tensor, "R K Z"],
        temperature: float,
        *,
        memory: Any = None,
        starts: Int[Tensor, "R *K C"] | None = None,
    ) -> Rollouts:
        """The same with every copy apart and, if wanted, other tables. Cannot be overspent:
        raises `Spent` instead.
        """
        self.check_latents(latents, len(self.starts))
        each = (self.starts if starts is None else starts).shape[-1]
        parts = list[Rollouts]()
        at = 0
        while at < latents.shape[1]:
            some = slice(at, min(at + self._most(len(latents) * each), latents.shape[1]))
            start_time = time.monotonic()
            at = some.stop
            parts.append(
                self._piece(
                    latents[:, some],
                    temperature,
                    each,
                    Overrides(memory, starts_of_latents(starts, some)),
                )
            )
            self.pace = (time.monotonic() - start_time) / self._work(
                len(latents) * each * (some.stop - some.start)
            )
        return concatenate_rollouts(parts, 1)

    def check_latents(self, latents: Tensor, rows: int) -> None:
        """Refuse latents of a strategy that no rollout could be made of; nobody waits for a GPU
        to see their values.
        """
        size = self.policy.space.size
        shape = tuple(latents.shape)
        fits = (
            len(shape) == 3
            and shape[::2] == (rows, size)
            and shape[1] > 0
            and latents.dtype == torch.float32
        )
        if not fits:
            wanted = f"float32 and of shape [{rows}, 1 or more, {size}]"
            raise InputError(
                f"latents of a strategy have to be {wanted}; these are {latents.dtype} {list(shape)}"
            )

    def check_deadline(self) -> None:
        """Raise `Spent` if time is up: between parts of long work that makes no solutions."""
        if self.account.late:
            raise Spent

    def complete(
        self,
        latents: Float[Tensor, "R 1 Z"],
        given: Prefixes,
        memory: Any = None,
        temperature: float = 0.0,
        samples: int = 1,
    ) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C T"]]:
        """Beginnings carried on, `samples` times each. Each counts as one trajectory, however much
        of it was given.

        What is sampled of a beginning is an attempt to the noise, which so does not depend on the
        pieces.
        """
        parts, at, (count, ways), number = list[Rollouts](), 0, given.length.shape, self.tried_count
        carry_on = self._carrier(latents, self.memory if memory is None else memory, temperature)
        self.tried_count += ways if temperature else 0
        while at < ways:
            some = min(ways - at, max(-(-FEWEST // samples), self._most(count * samples)))
            made = self._granted(some * samples, self.copies)
            if made:
                whole, rest = divmod(self._filled(made, some * samples), samples)
                ranges = (
                    (at, whole, samples),
                    (at + whole, 1, rest),
                )  # the last may be granted in part
                built = [
                    carry_on(given[:, i : i + n], each, number + i)
                    for i, n, each in ranges
                    if n * each
                ]
                parts.append(
                    concatenate_rollouts(built, 2).map(
                        partial(torch.narrow, dim=2, start=0, length=made)
                    )
                )
                self._enter(parts[-1], made * self.copies)
            if made < some * samples:
                rows, copies = self._last_copies(1)
                last = slice(at + made // samples, at + made // samples + 1)
                self._enter(carry_on(given[rows, last], 1, self.tried_count, rows), copies)
                raise Spent
            at += some
        found = concatenate_rollouts(parts, 2)
        return found.cost[:, 0], found.actions[:, 0]

    def _carrier(
        self, latents: Float[Tensor, "R 1 Z"], memory: Any, temperature: float
    ) -> Callable[..., Rollouts]:
        """What carries on beginnings, so many times each, with the noise from an attempt on, for
        all rows or some.
        """

        def carry_on(
            given: Prefixes, each: int, attempt: int, rows: Tensor | None = None
        ) -> Rollouts:
            batch = self.batch
            shifts = latents
            tables = memory
            if rows is not None:
                batch = batch[rows]
                shifts = latents[rows]
                tables = memory[rows]
            several = given.map(partial(torch.repeat_interleave, repeats=each, dim=1))
            usual: dict[str, Any] = {
                "seed": self.seed,
                "engine": self.engine,
                "temperature": temperature,
            }
            usual |= {"attempt": attempt, "samples": each if temperature else 0}
            return complete(self.problem, self.policy, batch, shifts, several, tables, **usual)

        return carry_on

    def score(
        self,
        rows: slice,
        latents: Float[Tensor, "R K Z"],
        actions: Int[Tensor, "R V T"],
        memory: Any,
    ) -> Float[Tensor, "R V"]:
        """Log-probabilities of sequences for some rows, with gradients; it makes no solutions
        and costs no attempts.
        """
        engine = (
            self.engine if self.device.type == "cuda" else "torch"
        )  # the CPU's kernels are for rollouts only
        unscored = (
            self.problem.name in kernels.CUDA_GRAPH_PROBLEMS
            or self.problem.action_count(self.batch) > kernels.MAX_TILE_NODES
        )
        if engine == "fused" and unscored:
            engine = "auto"  # rollouts of such instances have kernels, scores have none
        return log_prob(
            self.problem,
            self.policy,
            self.batch[rows],
            latents,
            actions,
            memory=memory,
            engine=engine,
        )

    def _most(self, rollouts: int) -> int:
        """How many times so many rollouts may be made between two looks at the clock; at least
        once.

        Plain torch on a CPU makes more of them in the same time when there are many at once. What
        the last piece took tells how many will be done in half of the time left, since a machine
        may get busier; without a limit nobody looks, and pieces must not depend on the clock.
        """
        work = self._work(rollouts)
        deadline = self.account.deadline
        usual = max(1, PIECE[self.device.type] // work)
        if self.device.type == "cuda" or self.resolved_engine != "torch":
            return usual
        if deadline is None:
            return PATIENT * usual
        left = min(PATIENCE, 0.5 * (deadline - time.monotonic()))
        return max(usual, int(left / (self.pace * work))) if self.pace else usual

    def rollouts_within(self, share: float) -> float:
        """How many rollouts of each copy a share of the time left is enough for; none before the
        first told the pace.

        Without a time limit any number.
        """
        if self.account.deadline is None:
            return math.inf
        seconds = self.pace * self._work(len(self.starts))
        return (
            share * max(0.0, self.account.deadline - time.monotonic()) / seconds if seconds else 0.0
        )

    def _work(self, rollouts: int) -> int:
        """Numbers of so many rollouts x their steps."""
        steps = self.problem.horizon(self.batch)
        return (
            rollouts * steps * self.policy.footprint(self.problem.action_count(self.batch), steps)
        )

    def _granted(self, wanted: int, size: int) -> int:
        """How many of `wanted` things, of `size` trajectories per instance each, the budget
        still allows.
        """
        per = self.starts.shape[1]
        short = -(-(wanted * size - self.spare_trajectories) // per)
        if short <= 0:
            self.check_deadline()
        allowed = self.account.room(short) if short > 0 else 0
        return min(wanted, (self.spare_trajectories + allowed * per) // size)

    def _filled(self, made: int, wanted: int) -> int:
        """How many to build where `made` are paid for, and the others thrown away: on a GPU as many
        as usual.

        A smaller batch may have a kernel of its own, for which the very end of a search would wait
        half a minute.
        """
        return wanted if self.device.type == "cuda" else made

    def _enter(self, rolled: Rollouts, trajectories: int) -> None:
        """Keep what is good and pay, in whole attempts; what an attempt has left over is used up
        next.
        """
        per = self.starts.shape[1]
        attempts = max(0, -(-(trajectories - self.spare_trajectories) // per))
        self.spare_trajectories += attempts * per - trajectories
        together = rolled.map(lambda x: x.unflatten(0, (self.count, -1)).flatten(1, 2))
        self.account.enter(together, attempts)

    def _piece(
        self, latents: Float[Tensor, "R K Z"], temperature: float, each: int, changes: Overrides
    ) -> Rollouts:
        """Rollouts between two looks at the clock; where the budget ends, as many of them as it
        allows.
        """
        wanted = latents.shape[1]
        made = self._granted(wanted, each * self.copies)
        if made:
            tried_count = slice(self._filled(made, wanted))
            rolled = self._try(latents[:, tried_count], temperature, *changes.part(tried_count))
            rolled = rolled.map(partial(torch.narrow, dim=1, start=0, length=made))
            self._enter(rolled, made * each * self.copies)
            self.tried_count += made
            if made == wanted:
                return rolled
        rows, copies = self._last_copies(each)
        last = slice(made, made + 1)
        self._enter(
            self._try(latents[rows, last], temperature, *changes.part(last, rows)), copies * each
        )
        raise Spent

    def _last_copies(self, each: int) -> tuple[Int[Tensor, "r"], int]:
        """Rows of the first copies, as many as the end of the budget is enough for; raises
        `Spent` if for none.
        """
        copies = self._granted(self.copies - 1, each) if self.copies > 1 else 0
        if not copies:
            raise Spent
        return torch.arange(len(self.starts), device=self.device).view(-1, self.copies)[
            :, :copies
        ].flatten(), copies

    def _try(
        self, latents: Float[Tensor, "r K Z"], temperature: float, *changed: Overrides
    ) -> Rollouts:
        """Rollouts of all rows or of some. Latents with starts of their own are rolled out one
        after the other.
        """
        memory = self.memory
        batch = self.batch
        starts = self.starts
        number = self.tried_count
        for changes in changed:
            memory = memory if changes.memory is None else changes.memory
            starts = starts if changes.starts is None else changes.starts
            if changes.rows is not None:
                batch = batch[changes.rows]
                memory = memory[changes.rows]
                starts = starts[changes.rows]
        usual: dict[str, Any] = {
            "seed": self.seed,
            "temperature": temperature,
            "engine": self.engine,
        }
        roll = partial(rollout, self.problem, self.policy, batch, memory=memory, **usual)
        if starts.ndim == 2:
            return roll(latents, starts, attempt=number)
        each = range(latents.shape[1])
        return concatenate_rollouts(
            [roll(latents[:, k : k + 1], starts[:, k], attempt=number + k) for k in each], 1
        )


def make_task(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    instances: Sequence[Any],
    *,
    seed: int = 0,
    device: torch.device | None = None,
    engine: EngineName = "auto",
    augment: int = 1,
) -> Task:
    """A task for instances of one shape: in so many symmetric copies, moved to the device and
    encoded.
    """
    device = device or torch.device("cpu")
    batch = symmetric_copies(problem.collate(instances), augment).to(device)
    kernels.resolve(
        engine, problem.name, device, problem.action_count(batch), policy.architecture
    )  # refuse before any work
    policy = policy.to(device)
    with torch.no_grad():
        memory = policy.encode(batch)
    return Task(
        problem,
        policy,
        instances,
        batch,
        memory,
        problem.starts(batch),
        seed,
        engine,
        copies=augment,
    )


def set_warm_start(task: Task, plans: Sequence[Plan | None]) -> None:
    """Make given plans the incumbents of their instances, before anything is tried; `harvest`
    returns nothing worse.
    """
    encode_plan = plan_tools_for(task.problem.name, "a warm start").encode_plan
    horizon = task.problem.horizon(task.batch)
    pairs = list(zip(task.instances, plans, strict=True))
    rows = [
        pad_actions(encode_plan(instance, plan) if plan else [], horizon)
        for instance, plan in pairs
    ]
    actions = torch.tensor(rows, dtype=torch.int64)
    unknown = torch.tensor([plan is None for plan in plans], device=task.device)
    task.account.warm = plans
    cost = [plan.cost(instance) if plan else 0.0 for instance, plan in pairs]
    best = torch.tensor(cost, dtype=torch.float64, device=task.device) / task.original_batch.scale
    task.account.best = best.to(cost_type(task)).masked_fill(unknown, torch.inf)
    task.account.actions = actions.to(task.device, torch.int16)


def cost_type(task: Task) -> torch.dtype:
    """The type of costs on the device: that of the file's distances where the batch has them."""
    distance = getattr(task.batch, "distance", None)
    return torch.float32 if distance is None else distance.dtype
