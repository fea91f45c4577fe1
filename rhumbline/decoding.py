"""The two functions in the middle: `rollout` samples solutions, `log_prob` scores given ones with gradients.

Plain torch over the Problem and Policy protocols is the definition. The fused kernels are optimisations of it.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline import kernels, noise
from rhumbline.errors import InputError
from rhumbline.policies import Policy
from rhumbline.policies.attention import CLIP
from rhumbline.policies.population import Crowd
from rhumbline.problems import Problem
from rhumbline.record import Record

Engine = Literal["auto", "torch", "fused"]

# A sampled position is compared with u * total; this keeps the product below the total whatever the rounding.
BELOW_ONE = 1.0 - 2.0**-22

# Numbers of all rollouts worked on at once: a few cache-sized tensors on a CPU, gigabytes on a GPU.
CHUNK_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 28}

# Instances x steps encoded at once, where `rollout` encodes: 20 KB each at the usual width.
ENCODED_STEPS = {"cpu": 1 << 16, "cuda": 1 << 17}


@dataclass(frozen=True)
class Rollouts(Record):
    """Complete solutions and what they cost."""

    cost: Float[Tensor, "B K S"]
    actions: Int[Tensor, "B K S T"]


@dataclass(frozen=True)
class Work:
    """Rollouts to build: one per (instance, latent, start)."""

    problem: Problem[Any, Any]
    policy: Policy[Any, Any, Any]
    batch: Any
    memory: Any
    latents: Float[Tensor, "B K Z"]
    starts: Int[Tensor, "B S"]
    seed: int | Tensor  # a tensor only for fused engines on a GPU, for replays of a graph
    attempt: int  # number of the first latent
    temperature: float
    given: Int[Tensor, "B R L"] | None = None  # how the rollouts begin, where more than the first action is imposed
    mark: float = 0.0  # probability from which on drawn actions are complemented; 0: never

    @property
    def host_seed(self) -> int:
        """The seed where only a number will do."""
        assert isinstance(self.seed, int), "only the fused engine of a GPU reads its seed from the device"
        return self.seed

    @property
    def shift(self) -> Any:
        """What the latents change."""
        return self.policy.condition(self.memory, self.latents)

    @property
    def shift_of_rollouts(self) -> Any:
        """The same for each rollout, latents and starts in one row."""
        return self.shift.map(lambda x: x.repeat_interleave(self.starts.shape[1], dim=1))

    @property
    def first(self) -> Int[Tensor, "B R"]:
        """The imposed first action of each rollout."""
        return self.starts[:, None].expand(-1, self.latents.shape[1], -1).flatten(1)

    def decide(self, shift: Any, state: Any, uniform: Float[Tensor, "B R"] | None) -> Int[Tensor, "B R"]:
        """The next action of each rollout."""
        allowed = self.problem.mask(state)
        logits = self.policy.logits(self.memory, shift, state, allowed)
        return choose(logits, allowed, uniform, self.temperature)

    def part(self, rows: slice, tried: slice) -> "Work":
        """The same for some instances and some latents; the latents keep their numbers."""
        return replace(
            self,
            batch=self.batch[rows],
            memory=self.memory[rows],
            latents=self.latents[rows, tried],
            starts=self.starts[rows],
            attempt=self.attempt + tried.start,
        )

    def uniform(self, horizon: int) -> Float[Tensor, "B R T"]:
        """The noise behind every decision."""
        attempts = self.attempt + torch.arange(self.latents.shape[1], device=self.starts.device)
        return noise.decoding(self.host_seed, self.batch.key, attempts, self.starts.shape[1], horizon).flatten(1, 2)


def choose(
    logits: Float[Tensor, "*R A"],
    allowed: Bool[Tensor, "*R A"],
    uniform: Float[Tensor, "*R"] | None,
    temperature: float,
) -> Int[Tensor, "*R"]:
    """The action that `uniform` selects: inverse of the cumulative weights. Temperature 0 takes the best."""
    logits = logits.masked_fill(~allowed, -torch.inf)
    if uniform is None or temperature == 0.0:
        return logits.argmax(-1)
    weight = torch.exp((logits - logits.amax(-1, keepdim=True)) / temperature)
    # A parallel scan may round a forbidden action above its neighbours: it must neither be hit nor count in the total.
    reach = weight.cumsum(-1).masked_fill_(~allowed, 0.0)
    limit = uniform[..., None] * (reach.amax(-1, keepdim=True) * BELOW_ONE)
    return (reach > limit).to(torch.uint8).argmax(-1)


@torch.no_grad()
def rollout(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K Z"],
    starts: Int[Tensor, "B S"],
    *,
    seed: int | Tensor,
    attempt: int = 0,
    temperature: float = 1.0,
    memory: Any = None,
    chunk: int | None = None,
    engine: Engine = "auto",
    mark: float = 0.0,
) -> Rollouts:
    """One solution per (instance, latent, start).

    `attempt` numbers the first latent among all that were ever tried on these instances: it continues the noise.
    `chunk` bounds the rollouts worked on at once; it changes memory, never results. With `mark`, an engine that knows
    complements (~a) the actions that had at least that probability, so that `log_prob` can leave them out.
    """
    most = max(1, ENCODED_STEPS[starts.device.type] // problem.horizon(batch))
    if memory is None and len(starts) > most:
        options = {"seed": seed, "temperature": temperature, "chunk": chunk, "engine": engine, "mark": mark}
        return _in_groups(problem, policy, batch, latents, starts, most, attempt=attempt, **options)
    memory = policy.encode(batch) if memory is None else memory
    if isinstance(memory, Crowd):
        options = {"seed": seed, "temperature": temperature, "chunk": chunk, "engine": engine, "mark": mark}
        return _by_member(problem, policy, batch, latents, starts, memory, attempt, **options)
    construct = _engine(engine, problem, policy, batch, memory)
    work = Work(problem, policy, batch, memory, latents, starts, seed, attempt, temperature, mark=mark)
    each = policy.footprint(problem.width(batch), problem.horizon(batch))
    chunk = chunk or max(1, CHUNK_ELEMENTS[starts.device.type] // each)
    return _gathered(_chunks(work, construct, chunk), *latents.shape[:2])


def _by_member(
    problem: Problem[Any, Any], policy: Policy[Any, Any, Any], batch: Any, latents: Float[Tensor, "B K 1"],
    starts: Int[Tensor, "B S"], crowd: Crowd, attempt: int, **options: Any,
) -> Rollouts:  # fmt: skip
    """A population's rollouts, latent by latent: each instance has one member's tables at a time."""
    parts = (
        rollout(
            problem, policy, batch, one, starts, memory=crowd.pick(one[:, 0, 0].long()), attempt=attempt + k, **options
        )
        for k, one in enumerate(latents.split(1, dim=1))
    )
    whole = slice(0, len(starts))
    return _gathered(((whole, slice(k, k + 1), part) for k, part in enumerate(parts)), *latents.shape[:2])


def _in_groups(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K Z"],
    starts: Int[Tensor, "B S"],
    most: int,
    **options: Any,
) -> Rollouts:
    """Rollouts of so many instances that they are encoded in groups, one after the other."""
    (count, tried, _), groups = latents.shape, (slice(at, at + most) for at in range(0, len(starts), most))
    parts = ((g, rollout(problem, policy, batch[g], latents[g], starts[g], **options)) for g in groups)
    return _gathered(((g, slice(0, tried), part) for g, part in parts), count, tried)


def _chunks(work: Work, construct: Callable[[Work], Rollouts], chunk: int) -> Iterator[tuple[slice, slice, Rollouts]]:
    """All rollouts, at most a chunk at a time, with their instances and latents.

    Where a chunk is too large for a GPU's memory, they go on in chunks of half its size.
    """
    (count, tried, _), per, done = work.latents.shape, work.starts.shape[1], 0
    most = max(1, chunk // per)
    while done < count * tried:
        rows, some = _block(done, count, tried, most)
        size, part = (rows.stop - rows.start) * (some.stop - some.start), None
        try:
            part = construct(work.part(rows, some))
        except torch.OutOfMemoryError as error:
            if size == 1:
                words = f"{per:,} rollouts of one instance need more memory than the GPU has left"
                raise InputError(f"{words}; use --device cpu") from error
        if part is None:  # only here has the error let go of the tensors that were in the way
            most = size // 2
            torch.cuda.empty_cache()
            kernels.report("the GPU's memory is too small for the usual chunks of rollouts; they are halved")
            continue
        yield rows, some, part
        done += size


def _block(done: int, count: int, tried: int, most: int) -> tuple[slice, slice]:
    """Instances and latents of the next chunk: several whole instances, or some latents of one."""
    row, at = divmod(done, tried)
    if at == 0 and most >= tried:
        return slice(row, min(row + most // tried, count)), slice(0, tried)
    return slice(row, row + 1), slice(at, min(at + most, tried))


def _gathered(parts: Iterable[tuple[slice, slice, Rollouts]], count: int, tried: int) -> Rollouts:
    """Parts of one result in their places, each let go as soon as it is there; a single one is the result itself."""
    whole = None
    for rows, some, part in parts:
        if part.cost.shape[:2] == (count, tried):
            return part
        if whole is None:
            whole = part.map(lambda x: x.new_empty(count, tried, *x.shape[2:]))
        whole.cost[rows, some], whole.actions[rows, some] = part.cost, part.actions
    assert whole is not None
    return whole


def _engine(
    engine: Engine, problem: Problem[Any, Any], policy: Policy[Any, Any, Any], batch: Any, memory: Any
) -> Callable[..., Rollouts]:
    """The function behind an engine's name; raises if it was asked for by name and cannot run."""
    device, engine = batch.key.device, _with_layer(engine, memory)
    if kernels.resolve(engine, problem.name, device, problem.width(batch), policy.architecture) == "torch":
        return _construct
    if problem.name in kernels.GRAPHED:
        return _graphed
    return _fused_gpu if device.type == "cuda" else _fused_cpu


def _with_layer(engine: Engine, memory: Any) -> Engine:
    """The engine, or plain torch where the tables come with a layer that no kernel knows."""
    if getattr(memory, "layer", None) is None:
        return engine
    kernels.settled(engine, "the fused engine reads tables only, and a layer on the glimpse is not linear")
    return "torch"


def _construct(work: Work) -> Rollouts:
    """Plain torch: the definition."""
    problem, batch, horizon, tried = work.problem, work.batch, work.problem.horizon(work.batch), work.latents.shape[1]
    shift, given = work.shift_of_rollouts, work.first[..., None] if work.given is None else work.given
    uniform = work.uniform(horizon) if work.temperature else None
    state, actions = _after(problem, batch, given), list(given.unbind(-1))
    while not problem.finished(state):
        draw = None if uniform is None else uniform[..., len(actions)]
        action = work.decide(shift, state, draw)
        state = problem.step(state, action)
        actions.append(action)
    sequence = torch.stack(actions, dim=-1)
    # Finished rollouts take action 0; all results have the horizon's length, whatever the chunk they came from.
    sequence = torch.nn.functional.pad(sequence, (0, horizon - sequence.shape[-1]))
    return _cut(problem.outcome(batch, state, sequence), sequence, tried)


def _after(problem: Problem[Any, Any], batch: Any, given: Int[Tensor, "B R L"]) -> Any:
    """The state after imposed actions."""
    state = problem.reset(batch, given[..., 0])
    for action in given[..., 1:].unbind(-1):
        state = problem.step(state, action)
    return state


def next_logits(
    problem: Problem[Any, Any], policy: Policy[Any, Any, Any], batch: Any, latents: Float[Tensor, "B 1 Z"],
    given: Int[Tensor, "B R L"], memory: Any,
) -> Float[Tensor, "B R A"]:  # fmt: skip
    """Scores of the action after given beginnings, -inf where it is forbidden."""
    state = _after(problem, batch, given)
    shift = policy.condition(memory, latents).map(lambda x: x.repeat_interleave(given.shape[1], dim=1))
    allowed = problem.mask(state)
    return policy.logits(memory, shift, state, allowed).masked_fill(~allowed, -torch.inf)


@torch.no_grad()
def complete(
    problem: Problem[Any, Any], policy: Policy[Any, Any, Any], batch: Any, latents: Float[Tensor, "B 1 Z"],
    given: Int[Tensor, "B R L"], memory: Any,
) -> Rollouts:  # fmt: skip
    """Given beginnings carried on greedily, in plain torch; results as of one latent and R starts."""
    return _construct(Work(problem, policy, batch, memory, latents, given[..., 0], 0, 0, 0.0, given))


def _cut(cost: Float[Tensor, "B R"], sequence: Int[Tensor, "B R T"], tried: int) -> Rollouts:
    """Sequences with their cost, the rollout axis cut into latents and starts."""
    count, per = len(cost), cost.shape[1] // tried
    return Rollouts(cost.view(count, tried, per), sequence.to(torch.int16).view(count, tried, per, -1))


def _graphed(work: Work) -> Rollouts:
    """Plain torch again, but a step is recorded once as a CUDA graph and then replayed; finished rollouts stay put."""
    from rhumbline.kernels import graph

    problem, steps, first, shift = work.problem, work.problem.horizon(work.batch), work.first, work.shift_of_rollouts
    uniform = work.uniform(steps) if work.temperature else None
    kept, at = problem.reset(work.batch, first), torch.ones(1, dtype=torch.int64, device=first.device)
    sequence = first.new_zeros(*first.shape, steps)
    sequence[..., 0] = first

    def step() -> None:
        draw = None if uniform is None else uniform.index_select(2, at)[..., 0]
        state = replace(kept)  # a new object, which has not looked at anything yet
        action = work.decide(shift, state, draw)
        kept.take(problem.step(state, action))
        sequence.index_copy_(2, at, action[..., None])
        at.add_(1)

    graph.repeat(step, steps - 1, first.device, lambda: problem.finished(replace(kept)))
    return _cut(problem.outcome(work.batch, kept, sequence), sequence, work.latents.shape[1])


def _fused_gpu(work: Work) -> Rollouts:
    """The whole rollout in one kernel launch."""
    from rhumbline.kernels import gpu

    tables = gpu.tables(work.memory, work.shift)
    counters = torch.full((2,), work.attempt, dtype=torch.int64, device=work.starts.device)
    counters[0] = work.seed  # filled on the device: nothing is copied from the host, so a graph may record it
    straight = work.batch.straight  # else costs are measured from the actions, which must be what they are
    options = {"temperature": work.temperature, "mark": work.mark if straight else 0.0}
    found = _GPU[work.problem.name](tables, work.batch, work.starts, counters, **options)
    return _remeasured(work.problem, work.batch, *found)


def _remeasured(
    problem: Problem[Any, Any], batch: Any, cost: Float[Tensor, "B K S"], actions: Int[Tensor, "B K S T"]
) -> Rollouts:
    """What a kernel found. It measures straight lines; other metrics and limits are priced from the actions."""
    if not batch.straight:
        sequence = actions.flatten(1, 2).long()
        return _cut(problem.cost(batch, sequence), sequence, actions.shape[1])
    return Rollouts(cost, actions)


def _gpu_tsp(tables: Any, batch: Any, starts: Tensor, counters: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    from rhumbline.kernels import gpu

    return gpu.tsp_rollout(tables, batch.xy, starts, batch.key, counters, **options)


def _gpu_cvrp(tables: Any, batch: Any, starts: Tensor, counters: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    from rhumbline.kernels import gpu

    return gpu.cvrp_rollout(tables, batch.xy, batch.demand, batch.capacity, starts, batch.key, counters, **options)


_GPU: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"tsp": _gpu_tsp, "cvrp": _gpu_cvrp}


def _fused_cpu(work: Work) -> Rollouts:
    """The whole rollout in one call, with as many threads as torch uses."""
    from rhumbline.kernels import cpu

    batch, threads = work.batch, torch.get_num_threads()
    with cpu.one_torch_thread():
        found = cpu.rollout(
            cpu.tables(work.memory, work.shift), batch.xy, work.starts, batch.key, work.host_seed, work.attempt,
            vehicles=_CPU[work.problem.name](batch), temperature=work.temperature, threads=threads,
        )  # fmt: skip
        return _remeasured(work.problem, batch, *found)


# What a problem gives the CPU kernel besides the policy's tables.
_CPU: dict[str, Callable[[Any], tuple[Tensor, Tensor] | None]] = {
    "tsp": lambda batch: None,
    "cvrp": lambda batch: (batch.demand, batch.capacity),
}


def log_prob(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K Z"],
    actions: Int[Tensor, "B R T"],
    *,
    memory: Any = None,
    engine: Engine = "auto",
    certain: float = 1.0,
) -> Float[Tensor, "B R"]:
    """Log-probability at temperature 1 of given action sequences, with gradients; the first action is imposed.

    Teacher forcing: all steps at once. K divides R, and sequence r belongs to latent r // (R / K). Decisions with a
    probability of at least `certain` count, but give no gradient; they have next to none, and kernels save the work.
    Below 1, actions may be marked by `rollout`: such a decision counts as certain.
    """
    memory = policy.encode(batch) if memory is None else memory
    if isinstance(memory, Crowd):
        return _score_by_member(problem, policy, batch, latents, actions, memory, engine, certain)
    actions, skip = unmarked(actions) if certain < 1.0 else (actions, None)
    engine, width, architecture = _with_layer(engine, memory), problem.width(batch), policy.architecture
    if kernels.resolve_log_prob(engine, problem.name, actions.device, width, architecture) == "fused":
        return _fused_log_prob(batch, memory, policy.condition(memory, latents), actions, certain, skip)
    state, steps = problem.replay(batch, actions.long()), actions.shape[2] - 1
    rows = steps * (actions.shape[1] // latents.shape[1])
    shift = policy.condition(memory, latents).map(lambda x: x.repeat_interleave(rows, dim=1))
    allowed = problem.mask(state)
    logits = policy.logits(memory, shift, state, allowed).masked_fill(~allowed, -torch.inf)
    chosen = logits.log_softmax(-1).gather(-1, actions[:, :, 1:].long().flatten(1)[..., None])
    chosen = chosen.view(*actions.shape[:2], steps)
    if skip is not None:
        chosen = torch.where(chosen >= math.log(certain), chosen.detach(), chosen).masked_fill(skip[..., 1:], 0.0)
    return chosen.sum(-1)


def unmarked(actions: Int[Tensor, "*S T"]) -> tuple[Int[Tensor, "*S T"], Bool[Tensor, "*S T"]]:
    """The actions themselves, and which were marked as certain."""
    marks = actions < 0
    return torch.where(marks, ~actions, actions), marks


def _score_by_member(
    problem: Problem[Any, Any], policy: Policy[Any, Any, Any], batch: Any, latents: Float[Tensor, "B K 1"],
    actions: Int[Tensor, "B R T"], crowd: Crowd, engine: Engine, certain: float,
) -> Float[Tensor, "B R"]:  # fmt: skip
    """Scores under a population: each member takes its own sequences, filled up to the most it has of an instance."""
    owner = latents[..., 0].long().repeat_interleave(actions.shape[1] // latents.shape[1], dim=1)  # [B, R]
    scores = torch.zeros(owner.shape, device=actions.device)
    for number, memory in enumerate(crowd.members):
        mine = owner == number
        order = mine.int().argsort(dim=1, descending=True, stable=True)[:, : int(mine.sum(1).max())]
        if order.shape[1]:
            some = actions.gather(1, order[..., None].expand(-1, -1, actions.shape[2]))
            own = log_prob(problem, policy, batch, latents[:, :1], some, memory=memory, engine=engine, certain=certain)
            scores = scores.scatter_add(1, order, own * mine.gather(1, order))
    return scores


def _fused_log_prob(
    batch: Any, memory: Any, shift: Any, actions: Int[Tensor, "B R T"], certain: float = 1.0, skip: Tensor | None = None
) -> Float[Tensor, "B R"]:
    """The same by Triton kernels, without any tensor of rows x nodes in memory."""
    from rhumbline.kernels import log_prob as fused

    tables = fused.Tables(
        key=memory.key,
        value=memory.value,
        pointer=memory.pointer,
        query_last=memory.query_last,
        query_first=memory.query_first,
        query_load=None if memory.query_load is None else memory.query_load[:, 0],
        query_constant=shift.query,
        pointer_constant=shift.pointer,
    )
    if memory.query_load is None:
        return fused.log_prob(tables, actions, clip=CLIP, certain=certain, skip=skip)
    mask = fused.cvrp_mask(actions, batch.demand, batch.capacity[:, None, None])
    return fused.log_prob(tables, actions, mask, clip=CLIP, certain=certain, skip=skip)
