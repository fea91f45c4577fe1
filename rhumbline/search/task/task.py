"""What a strategy works on: instances of one shape, and the only ways to spend a budget on them."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline import noise
from rhumbline.decoding import (
    Ask,
    CompletionRequest,
    Engine,
    EngineName,
    Prefixes,
    Rollouts,
    TimeLimit,
    choose_engine,
    complete,
    log_prob,
    rollout,
)
from rhumbline.decoding.engines import Pace, PacedEngine, has_layer
from rhumbline.domain import Domain, PlanTools
from rhumbline.domains import domain_of, plan_tools
from rhumbline.errors import InputError
from rhumbline.kernels.threads import SHARED_CORES
from rhumbline.policies import Policy
from rhumbline.problems import Problem
from rhumbline.search.task.account import Account, Spent
from rhumbline.search.task.overrides import (
    Overrides,
    concatenate_rollouts,
    narrow_rollouts,
    starts_of_latents,
)
from rhumbline.search.task.pacing import TUNING as PACING_TUNING
from rhumbline.search.task.pacing import Pacer

# The name that the user gave, and whether there is a residual layer, prefixes, gradients.
EngineUse = tuple[str, bool, bool, bool]


@dataclass
class Task:
    """Instances of one shape with everything needed to try latents on them.

    With symmetric copies, the rows R of batch, memory and starts are the copies of the first
    instance, then those of the second, and so on. An attempt is one trajectory per start, of any
    one copy.
    """

    problem: Problem[Any, Any]
    policy: Policy[Any, Any, Any]
    instances: Sequence[Any]
    batch: Any
    memory: Any
    starts: Int[Tensor, "R S"]
    seed: int
    engine: EngineName  # the wish; `engine_to_use` returns the engine
    account: Account = field(default_factory=Account)
    copies: int = 1
    # The largest batch of sequences to score at once; reduced after an out-of-memory error.
    max_scored_sequences: float = math.inf
    # Latents tried on each instance so far. The next latent's random numbers depend on this number.
    tried_count: int = 0
    # That reading and encoding took on a CPU. A GPU compiles kernels meanwhile.
    preparation_seconds: float = 0.0
    engines: dict[EngineUse, Engine] = field(default_factory=dict[EngineUse, Engine])  # chosen

    @property
    def count(self) -> int:
        """Number of instances."""
        rows = len(self.starts)
        return rows // self.copies

    @property
    def original_batch(self) -> Any:
        """The batch of the instances as they were given: the first copy of each is the original."""
        if self.copies == 1:
            return self.batch
        return self.batch[:: self.copies]

    @property
    def device(self) -> torch.device:
        """Where the search runs."""
        return self.starts.device

    @property
    def domain(self) -> Domain:
        """Everything that is special about the problem."""
        return domain_of(self.problem)

    def plan_tools(self, what: str) -> PlanTools:
        """Return the functions on plans; refuse `what` if the problem has none."""
        return plan_tools(self.problem.name, what)

    @property
    def resolved_engine(self) -> str:
        """The engine that "auto" stands for here, in the words of `--engine`."""
        engine = self.engine_to_use()
        if self.engine not in ("auto", "torch", "fused"):
            return engine.name
        return "fused" if engine.fused else "torch"

    def engine_to_use(
        self, memory: Any = None, *, prefixes: bool = False, gradients: bool = False
    ) -> Engine:
        """Return the engine for rollouts, completions or scores with some tables.

        Each is chosen once per task. A fused engine that was asked for by name is needed for
        rollouts only: scores that have no kernels take torch.
        """
        wanted: str = self.engine
        if gradients and wanted != "torch":
            wanted = "auto"
        layer = has_layer(self.memory if memory is None else memory)
        use = (wanted, layer, prefixes, gradients)
        if use not in self.engines:
            ask = Ask(
                self.problem,
                self.device,
                self.problem.action_count(self.batch),
                self.policy.architecture,
                layer=layer,
                prefixes=prefixes,
                gradients=gradients,
            )
            self.engines[use] = choose_engine(wanted, ask)
        return self.engines[use]

    @property
    def spent_share(self) -> float:
        """The share of the budget that is spent, by attempts or time, whichever is larger."""
        return self.account.spent_share

    @property
    def start_time(self) -> float:
        """When the clock of the search was started."""
        return self.account.start_time

    @property
    def incumbents(self) -> Int[Tensor, "B T"]:
        """The cheapest sequence of each instance so far."""
        assert self.account.actions is not None, "nothing has been tried"
        return self.account.actions

    def forget(self) -> None:
        """Reset the account, so that the next search draws the same random numbers as this one."""
        self.account = Account()
        self.tried_count = 0

    def uniforms(self, count: int) -> Float[Tensor, "B K Z 2"]:
        """Return random numbers for the next `count` latents of each instance.

        They depend on the instance and on how many of its latents were tried, not on the rest of
        the batch. A second call before the next rollout returns the same numbers.
        """
        numbers = torch.arange(count, device=self.device)
        attempts = self.tried_count + numbers
        instance_ids = self.batch.key[:: self.copies]
        size = self.policy.space.size
        return noise.latent_uniforms(self.seed, instance_ids, attempts, size)

    def repeat_for_copies(self, each: Tensor) -> Tensor:
        """Repeat the rows of instances for each of their copies."""
        return each.repeat_interleave(self.copies, dim=0)

    def best_of_copies(self, rolled: Rollouts) -> Rollouts:
        """Return the cheapest copy of each (instance, latent, start)."""
        if self.copies == 1:
            return rolled
        shape = (self.count, self.copies)
        costs = rolled.cost.unflatten(0, shape)
        actions = rolled.actions.unflatten(0, shape)
        cost, best = costs.min(1)
        steps = actions.shape[-1]
        index = best[:, None, ..., None]
        index = index.expand(-1, -1, -1, -1, steps)
        best_actions = actions.gather(1, index)
        return Rollouts(cost, best_actions[:, 0])

    # --- the ways to spend

    def rollout(
        self,
        latents: Float[Tensor, "B K Z"],
        temperature: float,
        starts: Int[Tensor, "B *K C"] | None = None,
        memory: Any = None,
    ) -> Rollouts:
        """Try each latent on all copies of each instance; return the best copy of each start.

        `starts` replaces the task's own: the same for all latents, or [B, K, C] with starts for
        each latent. `memory` replaces the tables of every copy.
        """
        self.check_latents(latents, self.count)
        latents = self.repeat_for_copies(latents)
        own: dict[str, Tensor] = {}
        if starts is not None:
            own["starts"] = self.repeat_for_copies(starts)
        rolled = self.rollout_each_copy(latents, temperature, memory=memory, **own)
        return self.best_of_copies(rolled)

    def rollout_each_copy(
        self,
        latents: Float[Tensor, "R K Z"],
        temperature: float,
        *,
        memory: Any = None,
        starts: Int[Tensor, "R *K C"] | None = None,
    ) -> Rollouts:
        """Try the latents of each copy; return the rollouts of every copy.

        It cannot overspend: it raises `Spent` instead.
        """
        self.check_latents(latents, len(self.starts))
        each = self.starts.shape[-1] if starts is None else starts.shape[-1]
        rollouts = len(latents) * each  # of one latent, on all rows and from all starts
        count = latents.shape[1]
        parts = list[Rollouts]()
        first = 0
        while first < count:
            size = self._units_per_piece(self.pacer, rollouts)
            last = min(first + size, count)
            piece = slice(first, last)
            wanted = last - first
            overrides = Overrides(memory, starts_of_latents(starts, piece))
            piece_start = time.monotonic()
            made = self._count_affordable(wanted, each * self.copies)
            if made:
                computed = slice(self._padded_count(made, wanted))
                tried = latents[:, piece][:, computed]
                rolled = self._try(tried, temperature, *overrides.part(computed))
                rolled = narrow_rollouts(rolled, 1, made)
                self._record(rolled, made * each * self.copies)
                self.tried_count += made
                parts.append(rolled)
            if made < wanted:
                self._try_some_copies(latents[:, first + made], made, temperature, each, overrides)
                raise Spent
            seconds = time.monotonic() - piece_start
            self.pacer.record(rollouts * wanted, seconds)
            first = last
        return concatenate_rollouts(parts, 1)

    def complete(
        self,
        latents: Float[Tensor, "R 1 Z"],
        given: Prefixes,
        memory: Any = None,
        temperature: float = 0.0,
        samples: int = 1,
    ) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C T"]]:
        """Complete each prefix `samples` times.

        A completion counts as one trajectory, however many of its actions the prefix gives. Each
        prefix has an attempt number of its own, which selects its random numbers. Samples therefore
        do not depend on how many prefixes are completed at once.
        """
        row_count, prefixes = given.length.shape
        number = self.tried_count
        tables = self.memory if memory is None else memory
        complete_piece = self._make_completer(latents, tables, temperature)
        self.tried_count += prefixes if temperature else 0
        parts = list[Rollouts]()
        first = 0
        while first < prefixes:
            piece_start = time.monotonic()
            units = self._units_per_piece(self.completion_pacer, row_count * samples)
            size = self.pacer.prefixes_per_piece(units, samples)
            size = min(prefixes - first, size)
            wanted = size * samples
            made = self._count_affordable(wanted, self.copies)
            if made:
                count = self._padded_count(made, wanted)
                rolled = complete_range(complete_piece, given, first, count, samples, number)
                rolled = narrow_rollouts(rolled, 2, made)
                parts.append(rolled)
                self._record(rolled, made * self.copies)
                seconds = time.monotonic() - piece_start
                self.completion_pacer.record(made * row_count, seconds)
            if made < wanted:
                rows, copies = self._choose_copies(1)
                at = first + made // samples
                prefix = given[rows, at : at + 1]
                self._record(complete_piece(prefix, 1, self.tried_count, rows), copies)
                raise Spent
            first += size
        found = concatenate_rollouts(parts, 2)
        return found.cost[:, 0], found.actions[:, 0]

    def score(
        self,
        rows: slice,
        latents: Float[Tensor, "R K Z"],
        actions: Int[Tensor, "R V T"],
        memory: Any,
    ) -> Float[Tensor, "R V"]:
        """Return log-probabilities of sequences for some rows, with gradients.

        Scoring constructs no solutions, so it costs no attempts.
        """
        return log_prob(
            self.problem,
            self.policy,
            self.batch[rows],
            latents,
            actions,
            memory=memory,
            engine=self.engine_to_use(memory, gradients=True),
        )

    def check_latents(self, latents: Tensor, rows: int) -> None:
        """Refuse latents of a wrong shape or type; reading their values would make a GPU wait."""
        size = self.policy.space.size
        shape = tuple(latents.shape)
        fits = False
        if len(shape) == 3 and shape[1] > 0:
            fits = shape[::2] == (rows, size)
        if fits and latents.dtype == torch.float32:
            return
        wanted = f"float32 and of shape [{rows}, 1 or more, {size}]"
        given = f"{latents.dtype} {list(shape)}"
        words = f"latents of a strategy have to be {wanted}"
        raise InputError(f"{words}; these are {given}")

    def check_deadline(self) -> None:
        """Raise `Spent` if time is up; for long computations that construct no solutions.

        It also lets torch have fewer threads if other processes keep the cores busy.
        """
        if self.account.deadline is None:
            return
        self.account.check_deadline()
        SHARED_CORES.adapt()

    # --- pacing

    @cached_property
    def pacer(self) -> Pacer:
        """The rule for how much work to do between two readings of the clock."""
        problem = self.problem
        steps = problem.horizon(self.batch)
        size = problem.action_count(self.batch)
        per_step = self.policy.footprint(size, steps)
        engine = self.engine_to_use()
        if isinstance(engine, PacedEngine):
            pace = engine.pace
        else:
            pace = Pace(PACING_TUNING.min_completions if engine.fused else 1)
        elements = steps * per_step // pace.relative_speed
        return Pacer(elements, pace.tile)

    @cached_property
    def completion_pacer(self) -> Pacer:
        """The rule for completions, which are shorter than rollouts and timed by themselves."""
        whole = self.pacer
        return Pacer(whole.elements_per_rollout, whole.tile)

    def rollouts_within(self, share: float) -> float:
        """Return how many rollouts of each copy fit into a share of the time left.

        The result is 0 before the first piece has been timed, and infinite without a time limit.
        """
        rows = len(self.starts)
        return self.pacer.rollouts_within(rows, share, self.account.seconds_left)

    @cached_property
    def scoring_pacer(self) -> Pacer:
        """The rule for how many sequences to score between two readings of the clock."""
        return Pacer(self.pacer.elements_per_rollout)

    def scores_per_piece(self) -> float:
        """Return how many sequences to score at once: what fits into memory and a time limit.

        Raises `Spent` if time is up, or too short for one.
        """
        self.check_deadline()
        seconds_left = self.account.seconds_left
        is_untimed = seconds_left == math.inf or self.device.type == "cuda"
        if is_untimed:
            return float(self.max_scored_sequences)
        pacer = self.scoring_pacer
        pacer.check_fit(1, seconds_left)
        max_seconds = PACING_TUNING.max_piece_seconds
        affordable = pacer.units_within(1, seconds_left, max_seconds)
        return min(self.max_scored_sequences, float(affordable))

    def _units_per_piece(self, pacer: Pacer, rollouts: int) -> int:
        """Return how many units to process between two readings of the clock.

        A unit consists of `rollouts` rollouts.
        """
        is_cuda = self.device.type == "cuda"
        seconds_left = self.account.seconds_left
        if not is_cuda and not self.engine_to_use().fused:
            return pacer.units_per_torch_piece(rollouts, seconds_left)
        if not is_cuda and seconds_left != math.inf:
            pacer.check_fit(rollouts, seconds_left)
            return pacer.units_per_timed_piece(rollouts, seconds_left)
        return pacer.units_per_piece(rollouts, is_cuda)

    def _time_limit(self, pacer: Pacer, rollouts: int) -> TimeLimit:
        """Return what ends some rollouts at the deadline, if there is one."""
        is_risky = pacer.is_risky(rollouts, self.account.seconds_left)
        deadline = self.account.deadline if is_risky else None
        return TimeLimit(self.check_deadline, deadline)

    # --- paying

    def _count_affordable(self, wanted: int, trajectories: int) -> int:
        """Return how many of `wanted` latents, completions or copies the budget still covers.

        Each of them takes `trajectories` trajectories of every instance.
        """
        per_attempt = self.starts.shape[1]
        return self.account.count_affordable(wanted, trajectories, per_attempt)

    def _padded_count(self, made: int, wanted: int) -> int:
        """Return how many rollouts to compute where the budget covers `made` of `wanted`.

        On a GPU keep the batch shape; the caller discards the surplus. A smaller batch may need
        another kernel, whose compilation would delay the end of a search by half a minute.
        """
        is_cuda = self.device.type == "cuda"
        return wanted if is_cuda else made

    def _record(self, rolled: Rollouts, trajectories: int) -> None:
        """Enter rollouts into the account, and charge whole attempts for their trajectories.

        Trajectories of the last attempt that were not rolled out stay spare for the next call.
        """
        per_attempt = self.starts.shape[1]
        attempts = self.account.pay(trajectories, per_attempt)
        shape = (self.count, -1)

        def merge_copies(x: Tensor) -> Tensor:
            return x.unflatten(0, shape).flatten(1, 2)

        self.account.enter(rolled.map(merge_copies), attempts)

    def _choose_copies(self, trajectories: int) -> tuple[Int[Tensor, "r"], int]:
        """Return the rows of as many copies as the remaining budget covers, and their number.

        Raises `Spent` if the budget covers no copy.
        """
        copies = 0
        if self.copies > 1:
            wanted = self.copies - 1
            copies = self._count_affordable(wanted, trajectories)
        if not copies:
            raise Spent
        rows = torch.arange(len(self.starts), device=self.device)
        by_instance = rows.view(-1, self.copies)
        first_copies = by_instance[:, :copies]
        return first_copies.flatten(), copies

    # --- rollouts

    def _try_some_copies(
        self,
        latent: Float[Tensor, "R Z"],
        number: int,
        temperature: float,
        each: int,
        overrides: Overrides,
    ) -> None:
        """Roll out one more latent on as many copies of each instance as the budget covers.

        Raises `Spent` if it covers none. `number` is the latent's number in its piece.
        """
        rows, copies = self._choose_copies(each)
        own_latent = latent[rows].unsqueeze(1)
        one = slice(number, number + 1)
        own = overrides.part(one, rows)
        rolled = self._try(own_latent, temperature, *own)
        self._record(rolled, copies * each)

    def _try(
        self, latents: Float[Tensor, "r K Z"], temperature: float, *changed: Overrides
    ) -> Rollouts:
        """Roll out latents on all rows, or on the rows that the overrides name.

        If each latent has starts of its own, latents are rolled out one after the other.
        """
        memory = self.memory
        batch = self.batch
        starts = self.starts
        number = self.tried_count
        for overrides in changed:
            memory = memory if overrides.memory is None else overrides.memory
            starts = starts if overrides.starts is None else overrides.starts
            rows = overrides.rows
            if rows is not None:
                batch = batch[rows]
                memory = memory[rows]
                starts = starts[rows]
        rollouts = latents.shape[1] * starts.shape[-1] * len(starts)
        roll = partial(
            rollout,
            self.problem,
            self.policy,
            batch,
            memory=memory,
            seed=self.seed,
            temperature=temperature,
            engine=self.engine_to_use(memory),
            limit=self._time_limit(self.pacer, rollouts),
        )
        if starts.ndim == 2:
            return roll(latents, starts, attempt=number)
        parts = list[Rollouts]()
        for k in range(latents.shape[1]):
            parts.append(roll(latents[:, k : k + 1], starts[:, k], attempt=number + k))
        return concatenate_rollouts(parts, 1)

    def _make_completer(
        self, latents: Float[Tensor, "R 1 Z"], memory: Any, temperature: float
    ) -> Callable[..., Rollouts]:
        """Return a function that completes prefixes, for all rows or some.

        It takes the prefixes, the number of samples of each, and the number of the first attempt,
        which selects the random numbers.
        """
        engine = self.engine_to_use(memory, prefixes=True)

        def complete_piece(
            given: Prefixes, each: int, attempt: int, rows: Tensor | None = None
        ) -> Rollouts:
            batch = self.batch
            biases = latents
            tables = memory
            if rows is not None:
                batch = batch[rows]
                biases = latents[rows]
                tables = memory[rows]
            repeated = given.map(partial(torch.repeat_interleave, repeats=each, dim=1))
            request = CompletionRequest(
                self.problem,
                self.policy,
                batch,
                biases,
                repeated,
                tables,
                seed=self.seed,
                attempt=attempt,
                temperature=temperature,
                samples=each if temperature else 0,
                limit=self._time_limit(self.completion_pacer, repeated.length.numel()),
            )
            return complete(request, engine)

        return complete_piece


def complete_range(
    complete_piece: Callable[..., Rollouts],
    given: Prefixes,
    first: int,
    count: int,
    samples: int,
    number: int,
) -> Rollouts:
    """Complete the prefixes from index `first` on, `samples` times each, `count` times in all.

    The last prefix may get fewer samples. `number` is the attempt number of prefix 0.
    """
    whole, rest = divmod(count, samples)
    last = first + whole
    parts = list[Rollouts]()
    if whole:
        parts.append(complete_piece(given[:, first:last], samples, number + first))
    if rest:
        parts.append(complete_piece(given[:, last : last + 1], rest, number + last))
    return concatenate_rollouts(parts, 2)
