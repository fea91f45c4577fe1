"""The driver of every search: it owns the clock, the budget and the incumbent. Strategies only propose latents."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline import kernels, noise
from rhumbline.decoding import Engine, Rollouts, rollout
from rhumbline.errors import InputError, Unreached
from rhumbline.policies import Policy
from rhumbline.problems import Plan, Problem
from rhumbline.problems.cvrp import CVRPBatch
from rhumbline.search.crafts import craft_of, padded
from rhumbline.search.pool import Pool

X = TypeVar("X")

# Numbers of a rollout x its steps, for all rollouts between two looks at the clock: about half a second of torch on
# two cores, and a quarter of a second of the fused kernel.
PIECE = {"cpu": 16_000_000, "cuda": 20_000_000_000}


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many attempts on each instance, or so many seconds, whichever comes first."""

    attempts: int | None = None
    seconds: int | float | None = None

    def __post_init__(self) -> None:
        if self.attempts is None and self.seconds is None:
            raise InputError("a budget needs attempts, seconds or both")
        if self.attempts is not None and self.attempts < 1:
            raise InputError(f"attempts must be at least 1, not {self.attempts}")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"seconds must be more than 0, not {self.seconds}")


@dataclass(frozen=True)
class Progress:
    """Where a search stands after a step."""

    attempts: int  # spent on each instance
    seconds: float
    best: Float[Tensor, "B"]  # cheapest cost so far, in the instances' own units
    latest: Float[Tensor, "B"]  # cheapest cost of the latest step
    latents: Float[Tensor, "B K Z"] | None  # what the latest step tried
    phase: str = "search"  # then "polish", or the name of a classical solver


class Spent(Exception):
    """The budget is used up; raised through a strategy's step, caught by `stream`."""


@dataclass
class Ledger:
    """What has been spent and found. Only `Task.rollout` and `stream` write here."""

    attempts: int = 0
    limit: int | None = None
    deadline: float | None = None
    best: Tensor | None = None  # [B]
    actions: Tensor | None = None  # [B, T]
    pool: Pool | None = None  # of the best different plans, if they are wanted
    warm: Sequence[Plan | None] = ()  # plans to start from, one for each instance or None

    def room(self, wanted: int) -> int:
        """How many of the wanted attempts the budget still allows; raises `Spent` if none."""
        late = self.deadline is not None and self.attempts > 0 and time.monotonic() >= self.deadline
        left = wanted if self.limit is None else min(wanted, self.limit - self.attempts)
        if late or left <= 0:
            raise Spent
        return left

    def enter(self, rolled: Rollouts) -> None:
        """Count attempts and keep the cheapest solution of each instance."""
        cost, where = rolled.cost.flatten(1).min(1)
        rows = torch.arange(len(cost), device=cost.device)
        actions = rolled.actions.flatten(1, 2)[rows, where]
        if self.best is None or self.actions is None:
            self.best, self.actions = cost, actions
        better = cost < self.best
        self.best = torch.where(better, cost, self.best)
        self.actions = torch.where(better[:, None], actions, self.actions)
        if self.pool:
            self.pool.enter(rolled)
        self.attempts += rolled.cost.shape[1]


@dataclass
class Task:
    """Instances of one shape with everything needed to try latents on them."""

    problem: Problem[Any, Any]
    policy: Policy[Any, Any, Any]
    instances: Sequence[Any]
    batch: Any
    memory: Any
    starts: Int[Tensor, "B S"]
    seed: int
    engine: Engine
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def count(self) -> int:
        """Number of instances."""
        return len(self.starts)

    @property
    def device(self) -> torch.device:
        """Where the search runs."""
        return self.starts.device

    @property
    def taken_engine(self) -> str:
        """The engine that really runs."""
        width, architecture = self.problem.width(self.batch), self.policy.architecture
        return kernels.resolve(self.engine, self.problem.name, self.device, width, architecture)

    def uniforms(self, count: int) -> Float[Tensor, "B K Z 2"]:
        """Noise for the next `count` latents of each instance; the same whatever else is in the batch."""
        attempt = self.ledger.attempts + torch.arange(count, device=self.device)
        return noise.latents(self.seed, self.batch.key, attempt, self.policy.space.size)

    def rollout(self, latents: Float[Tensor, "B K Z"], temperature: float) -> Rollouts:
        """One attempt with each latent on each instance: the only way to spend budget, and it cannot be overspent."""
        wanted = latents.shape[1]
        allowed, parts = self.ledger.room(wanted), list[Rollouts]()
        steps = self.problem.horizon(self.batch)
        work = self.starts.numel() * steps * self.policy.footprint(self.problem.width(self.batch), steps)
        for piece in latents[:, :allowed].split(max(1, PIECE[self.device.type] // work), dim=1):
            if parts:
                self.ledger.room(1)
            parts.append(self._try(piece, temperature))
            self.ledger.enter(parts[-1])
        if allowed < wanted:
            raise Spent
        return Rollouts(torch.cat([p.cost for p in parts], 1), torch.cat([p.actions for p in parts], 1))

    def _try(self, latents: Float[Tensor, "B K Z"], temperature: float) -> Rollouts:
        return rollout(
            self.problem, self.policy, self.batch, latents, self.starts, seed=self.seed, attempt=self.ledger.attempts,
            temperature=temperature, memory=self.memory, engine=self.engine,
        )  # fmt: skip


def usual_temperature(task: "Task") -> float:
    """1 up to 100 nodes, 0.3 up to 150, 0.1 beyond: near the best of 0, 0.1, 0.3, 0.6 and 1 on validation instances.

    The longer a tour, the more decisions noise can spoil (the paper: 1 at 100 cities, 0.1 beyond; docs/training.md).
    """
    nodes = task.problem.width(task.batch)
    return 1.0 if nodes <= 101 else 0.3 if nodes <= 151 else 0.1  # a depot does not count


def check_settings(population: int, temperature: float | None) -> None:
    """Refuse settings that no strategy can work with."""
    if population < 1:
        raise InputError(f"population must be at least 1, not {population}")
    if temperature is not None and not 0.0 <= temperature < float("inf"):
        raise InputError(f"temperature must be 0 (greedy) or more, not {temperature}")


@runtime_checkable
class Strategy(Protocol[X]):
    """A way to search: a frozen dataclass of settings. `init` makes its state, `step` tries some latents."""

    def init(self, task: Task) -> X:
        """The state before the first step."""
        ...

    def step(self, task: Task, state: X) -> tuple[X | None, Float[Tensor, "B K Z"], Rollouts]:
        """Try some latents through `task.rollout`. A state of None ends the search."""
        ...


def make_task(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    instances: Sequence[Any],
    *,
    seed: int = 0,
    device: torch.device | None = None,
    engine: Engine = "auto",
) -> Task:
    """A task for instances of one shape: moved to the device and encoded."""
    device = device or torch.device("cpu")
    batch = problem.collate(instances).to(device)
    kernels.resolve(engine, problem.name, device, problem.width(batch), policy.architecture)  # refuse before any work
    policy = policy.to(device)
    with torch.no_grad():
        memory = policy.encode(batch)
    return Task(problem, policy, instances, batch, memory, problem.starts(batch), seed, engine)


def warm_up(task: Task, plans: Sequence[Plan | None]) -> None:
    """Make given plans the incumbents of their instances, before anything is tried; `harvest` returns nothing worse."""
    spell, horizon = craft_of(task.problem.name, "a warm start").spell, task.problem.horizon(task.batch)
    pairs = list(zip(task.instances, plans, strict=True))
    rows = [padded(spell(instance, plan) if plan else [], horizon) for instance, plan in pairs]
    actions = torch.tensor(rows, dtype=torch.int64)
    unknown = torch.tensor([plan is None for plan in plans], device=task.device)
    task.ledger.warm = plans
    cost = [plan.cost(instance) if plan else 0.0 for instance, plan in pairs]
    scale = task.batch.scale.view(len(plans), -1)[:, 0]
    best = torch.tensor(cost, dtype=torch.float64, device=task.device) / scale
    task.ledger.best = best.to(cost_type(task)).masked_fill(unknown, torch.inf)
    task.ledger.actions = actions.to(task.device, torch.int16)


def cost_type(task: Task) -> torch.dtype:
    """The type of costs on the device: that of the file's distances where the batch has them."""
    distance = getattr(task.batch, "distance", None)
    return torch.float32 if distance is None else distance.dtype


def stream(strategy: Strategy[Any], task: Task, budget: Budget) -> Iterator[Progress]:
    """Search until the budget is spent, yielding after every step; `task.ledger` holds the incumbents."""
    began = time.monotonic()
    task.ledger.limit = budget.attempts
    task.ledger.deadline = began + budget.seconds if budget.seconds else None
    state = strategy.init(task)
    while state is not None:
        before, tried, latest = task.ledger.attempts, None, None
        try:
            state, tried, rolled = strategy.step(task, state)
            latest = rolled.cost.flatten(1).amin(1)
        except Spent:
            state = None
        best = task.ledger.best
        if best is not None and task.ledger.attempts > before:
            best, latest = shown(task.batch, best), shown(task.batch, best if latest is None else latest)
            yield Progress(task.ledger.attempts, time.monotonic() - began, best, latest, tried)


def shown(batch: Any, cost: Float[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Costs of a search as users see them: in the instances' own units, without surcharges for vehicles."""
    return (batch.plain(cost) if isinstance(batch, CVRPBatch) else cost) * batch.scale


@dataclass(frozen=True)
class Change:
    """The best cost before and after a phase, and what went wrong in it, if anything did."""

    before: int | float
    after: int | float
    trouble: str = ""


@dataclass(frozen=True)
class Candidate:
    """A verified plan, its cost in the instance's own metric, and the phase that found it."""

    plan: Plan
    cost: int | float
    phase: str


@dataclass(frozen=True, repr=False)
class Solution:
    """A verified plan. `cost` was recomputed on the host in the instance's own metric.

    `unmet` says which limit of the instance the best plan does not keep; `solve` raises it, the command line prints it.
    """

    instance: Any
    plan: Plan
    cost: int | float
    attempts: int
    seconds: float
    trace: tuple[tuple[int, float, float], ...] = ()  # attempts, seconds, best cost after each step
    phase: str = "search"  # what found the plan: "warm start", "search", "polish", or the name of a classical solver
    polish: Change | None = None
    then: Change | None = None
    others: tuple[Candidate, ...] = ()  # the next best different plans, cheapest first
    unmet: str | None = None

    @property
    def gap(self) -> float | None:
        """Distance to the best known cost as a fraction of it, if one is known."""
        known = self.instance.best_known
        return None if not known else (self.cost - known) / known

    def __repr__(self) -> str:
        gap = "" if self.gap is None else f", gap {self.gap:.2%}"
        spent = f"{self.attempts:,} attempts, {self.seconds:.1f} s"
        return f"<Solution of {self.instance.name}: cost {self.cost:g}{gap}, {spent}>"


def harvest(task: Task, seconds: float, trace: Sequence[Progress]) -> list[Solution]:
    """The incumbents of a task, decoded, checked and priced on the host."""
    warm = task.ledger.warm or [None] * len(task.instances)
    if task.ledger.actions is None or (not task.ledger.attempts and None in warm):
        return []
    found: list[Solution] = []
    bests = [p.best.tolist() for p in trace]
    rows = zip(task.instances, task.ledger.actions.tolist(), warm, strict=True)
    for row, (instance, actions, given) in enumerate(rows):
        best, unmet = incumbent(instance, task.problem.decode(instance, actions), given, task.ledger.attempts)
        steps = tuple((p.attempts, p.seconds, costs[row]) for p, costs in zip(trace, bests, strict=True))
        facts = (task.ledger.attempts, seconds, steps, best.phase)
        found.append(Solution(instance, best.plan, best.cost, *facts, unmet=unmet))
    return found


def incumbent(instance: Any, plan: Plan, warm: Plan | None, attempts: int) -> tuple[Candidate, str | None]:
    """The plan that a search has found, or the one that it was given, if that is no worse in the file's own metric.

    The other half says which limit of the instance the plan does not keep.
    """
    unmet = unmet_limit(plan, instance, attempts)
    cost = plan.cost(instance)
    if warm is not None and (unmet or warm.cost(instance) <= cost):
        return Candidate(warm, warm.cost(instance), "warm start"), None
    return Candidate(plan, cost, "search"), unmet


def unmet_limit(plan: Plan, instance: Any, attempts: int) -> str | None:
    """Check a plan; what to say if it breaks no rule but a limit of its instance."""
    try:
        plan.check(instance)
    except Unreached as error:
        tried = f"{attempts:,} attempt" if attempts == 1 else f"{attempts:,} attempts"
        return f"{error}; {tried} found none within the limit: search longer, or allow more"
    return None


def search(
    strategy: Strategy[Any], task: Task, budget: Budget, watch: Callable[[Progress], None] | None = None
) -> tuple[list[Solution], bool]:
    """Run a search to its end, or until Ctrl-C; the incumbents either way, and whether it was interrupted."""
    trace, began, interrupted = list[Progress](), time.monotonic(), False
    try:
        for progress in stream(strategy, task, budget):
            trace.append(progress)
            if watch:
                watch(progress)
    except KeyboardInterrupt:
        interrupted = True
    return harvest(task, time.monotonic() - began, trace), interrupted
