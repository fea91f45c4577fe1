"""The two functions in the middle: `rollout` samples solutions, `log_prob` scores given ones with gradients.

Plain torch over the Problem and Policy protocols is the definition. The fused kernels are optimisations of it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline import kernels, noise
from rhumbline.policies import Policy
from rhumbline.policies.attention import CLIP
from rhumbline.policies.population import Crowd
from rhumbline.problems import Problem
from rhumbline.record import Record

Engine = Literal["auto", "torch", "fused"]

# A sampled position is compared with u * total; this keeps the product below the total whatever the rounding.
BELOW_ONE = 1.0 - 2.0**-22

# Elements of a [rollouts, nodes] tensor worked on at once: a few cache-sized tensors on a CPU, gigabytes on a GPU.
CHUNK_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 28}


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
    seed: int
    attempt: int  # number of the first latent
    temperature: float
    given: Int[Tensor, "B R L"] | None = None  # how the rollouts begin, where more than the first action is imposed

    @property
    def shift(self) -> Any:
        """What the latents change."""
        return self.policy.condition(self.memory, self.latents)

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
        return noise.decoding(self.seed, self.batch.key, attempts, self.starts.shape[1], horizon).flatten(1, 2)


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
    seed: int,
    attempt: int = 0,
    temperature: float = 1.0,
    memory: Any = None,
    chunk: int | None = None,
    engine: Engine = "auto",
) -> Rollouts:
    """One solution per (instance, latent, start).

    `attempt` numbers the first latent among all that were ever tried on these instances: it continues the noise.
    `chunk` bounds the rollouts worked on at once; it changes memory, never results.
    """
    memory = policy.encode(batch) if memory is None else memory
    if isinstance(memory, Crowd):
        options = {"seed": seed, "temperature": temperature, "chunk": chunk, "engine": engine}
        return _by_member(problem, policy, batch, latents, starts, memory, attempt, **options)
    construct = _engine(engine, problem, policy, batch, memory)
    work = Work(problem, policy, batch, memory, latents, starts, seed, attempt, temperature)
    chunk = chunk or max(1, CHUNK_ELEMENTS[starts.device.type] // problem.horizon(batch))
    (count, tried, _), per = latents.shape, starts.shape[1]
    parts = [
        _joined([construct(work.part(rows, ks)) for ks in _slices(tried, max(1, chunk // per))], 1)
        for rows in _slices(count, max(1, chunk // (tried * per)))
    ]
    return _joined(parts, 0)


def _by_member(
    problem: Problem[Any, Any], policy: Policy[Any, Any, Any], batch: Any, latents: Float[Tensor, "B K 1"],
    starts: Int[Tensor, "B S"], crowd: Crowd, attempt: int, **options: Any,
) -> Rollouts:  # fmt: skip
    """A population's rollouts, latent by latent: each instance has one member's tables at a time."""
    parts = [
        rollout(
            problem, policy, batch, one, starts, memory=crowd.pick(one[:, 0, 0].long()), attempt=attempt + k, **options
        )
        for k, one in enumerate(latents.split(1, dim=1))
    ]
    return _joined(parts, 1)


def _slices(length: int, step: int) -> Iterator[slice]:
    """Consecutive slices that cover a length."""
    return (slice(at, min(at + step, length)) for at in range(0, length, step))


def _joined(parts: list[Rollouts], axis: int) -> Rollouts:
    """Parts of one result put together along an axis."""
    if len(parts) == 1:
        return parts[0]
    return Rollouts(torch.cat([p.cost for p in parts], axis), torch.cat([p.actions for p in parts], axis))


def _engine(
    engine: Engine, problem: Problem[Any, Any], policy: Policy[Any, Any, Any], batch: Any, memory: Any
) -> Callable[..., Rollouts]:
    """The function behind an engine's name; raises if it was asked for by name and cannot run."""
    device, nodes = batch.xy.device, batch.xy.shape[1]
    engine = _with_layer(engine, memory)
    if kernels.resolve(engine, problem.name, device, nodes, policy.architecture) == "torch":
        return _construct
    return _fused_gpu if device.type == "cuda" else _fused_tsp_cpu


def _with_layer(engine: Engine, memory: Any) -> Engine:
    """The engine, or plain torch where the tables come with a layer that no kernel knows."""
    if getattr(memory, "layer", None) is None:
        return engine
    kernels.settled(engine, "the fused engine reads tables only, and a layer on the glimpse is not linear")
    return "torch"


def _construct(work: Work) -> Rollouts:
    """Plain torch: the definition."""
    problem, batch, horizon = work.problem, work.batch, work.problem.horizon(work.batch)
    (count, tried, _), per = work.latents.shape, work.starts.shape[1]
    shift = work.shift.map(lambda x: x.repeat_interleave(per, dim=1))
    first = work.starts[:, None].expand(count, tried, per).reshape(count, -1)
    given = first[..., None] if work.given is None else work.given
    uniform = work.uniform(horizon) if work.temperature else None
    state, actions = _after(problem, batch, given), list(given.unbind(-1))
    while not problem.finished(state):
        allowed = problem.mask(state)
        logits = work.policy.logits(work.memory, shift, state, allowed)
        draw = None if uniform is None else uniform[..., len(actions)]
        action = choose(logits, allowed, draw, work.temperature)
        state = problem.step(state, action)
        actions.append(action)
    sequence = torch.stack(actions, dim=-1)
    # Finished rollouts stay at node 0; all results have the horizon's length, whatever the chunk they came from.
    sequence = torch.nn.functional.pad(sequence, (0, horizon - sequence.shape[-1]))
    return _priced(problem, batch, sequence, tried)


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


def _priced(problem: Problem[Any, Any], batch: Any, sequence: Int[Tensor, "B R T"], tried: int) -> Rollouts:
    """Sequences with their cost, the rollout axis cut into latents and starts."""
    cost = problem.cost(batch, sequence)
    count, per = len(cost), cost.shape[1] // tried
    return Rollouts(cost.view(count, tried, per), sequence.to(torch.int16).view(count, tried, per, -1))


def _fused_gpu(work: Work) -> Rollouts:
    """The whole rollout in one kernel launch."""
    from rhumbline.kernels import gpu

    tables = gpu.tables(work.memory, work.shift)
    counters = torch.tensor([work.seed, work.attempt], device=work.starts.device)
    found = _GPU[work.problem.name](tables, work.batch, work.starts, counters, work.temperature)
    return _remeasured(work.problem, work.batch, *found)


def _remeasured(
    problem: Problem[Any, Any], batch: Any, cost: Float[Tensor, "B K S"], actions: Int[Tensor, "B K S T"]
) -> Rollouts:
    """What a kernel found. It measures straight lines; the file's metric comes from its matrix."""
    if batch.distance is not None:
        return _priced(problem, batch, actions.flatten(1, 2).long(), actions.shape[1])
    return Rollouts(cost, actions)


def _gpu_tsp(tables: Any, batch: Any, starts: Tensor, counters: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    from rhumbline.kernels import gpu

    return gpu.tsp_rollout(tables, batch.xy, starts, batch.key, counters, temperature=temperature)


def _gpu_cvrp(tables: Any, batch: Any, starts: Tensor, counters: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    from rhumbline.kernels import gpu

    whole = (batch.demand, batch.capacity)
    return gpu.cvrp_rollout(tables, batch.xy, *whole, starts, batch.key, counters, temperature=temperature)


_GPU: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"tsp": _gpu_tsp, "cvrp": _gpu_cvrp}


def _fused_tsp_cpu(work: Work) -> Rollouts:
    """The whole rollout in one call, with as many threads as torch uses."""
    from rhumbline.kernels import cpu

    batch = work.batch
    with cpu.one_torch_thread():
        tables = cpu.tables(work.memory, work.shift)
    found = cpu.tsp_rollout(
        tables, batch.xy, work.starts, batch.key, work.seed, work.attempt, temperature=work.temperature
    )
    return _remeasured(work.problem, batch, *found)


def log_prob(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K Z"],
    actions: Int[Tensor, "B R T"],
    *,
    memory: Any = None,
    engine: Engine = "auto",
) -> Float[Tensor, "B R"]:
    """Log-probability at temperature 1 of given action sequences, with gradients; the first action is imposed.

    Teacher forcing: all steps at once. K divides R, and sequence r belongs to latent r // (R / K).
    """
    memory = policy.encode(batch) if memory is None else memory
    if isinstance(memory, Crowd):
        return _score_by_member(problem, policy, batch, latents, actions, memory, engine)
    engine = _with_layer(engine, memory)
    nodes, architecture = batch.xy.shape[1], policy.architecture
    if kernels.resolve_log_prob(engine, problem.name, actions.device, nodes, architecture) == "fused":
        return _fused_log_prob(batch, memory, policy.condition(memory, latents), actions)
    state, steps = problem.replay(batch, actions.long()), actions.shape[2] - 1
    rows = steps * (actions.shape[1] // latents.shape[1])
    shift = policy.condition(memory, latents).map(lambda x: x.repeat_interleave(rows, dim=1))
    allowed = problem.mask(state)
    logits = policy.logits(memory, shift, state, allowed).masked_fill(~allowed, -torch.inf)
    chosen = logits.log_softmax(-1).gather(-1, actions[:, :, 1:].long().flatten(1)[..., None])
    return chosen.view(*actions.shape[:2], steps).sum(-1)


def _score_by_member(
    problem: Problem[Any, Any], policy: Policy[Any, Any, Any], batch: Any, latents: Float[Tensor, "B K 1"],
    actions: Int[Tensor, "B R T"], crowd: Crowd, engine: Engine,
) -> Float[Tensor, "B R"]:  # fmt: skip
    """Scores under a population: each member takes its own sequences, filled up to the most it has of an instance."""
    owner = latents[..., 0].long().repeat_interleave(actions.shape[1] // latents.shape[1], dim=1)  # [B, R]
    scores = torch.zeros(owner.shape, device=actions.device)
    for number, memory in enumerate(crowd.members):
        mine = owner == number
        order = mine.int().argsort(dim=1, descending=True, stable=True)[:, : int(mine.sum(1).max())]
        if order.shape[1]:
            some = actions.gather(1, order[..., None].expand(-1, -1, actions.shape[2]))
            own = log_prob(problem, policy, batch, latents[:, :1], some, memory=memory, engine=engine)
            scores = scores.scatter_add(1, order, own * mine.gather(1, order))
    return scores


def _fused_log_prob(batch: Any, memory: Any, shift: Any, actions: Int[Tensor, "B R T"]) -> Float[Tensor, "B R"]:
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
        return fused.log_prob(tables, actions, clip=CLIP)
    mask = fused.cvrp_mask(actions, batch.demand, batch.capacity[:, None, None])
    return fused.log_prob(tables, actions, mask, clip=CLIP)
