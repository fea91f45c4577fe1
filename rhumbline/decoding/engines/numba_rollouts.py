"""The fused engine of a CPU for routing problems: rollouts in one call of compiled code."""

from typing import Any

from torch import Tensor

from rhumbline import kernels
from rhumbline.decoding.engines.base import Ask, note_missing_numba
from rhumbline.decoding.request import RolloutRequest, Rollouts, reprice
from rhumbline.kernels.threads import worker_threads
from rhumbline.problems import Problem
from rhumbline.problems.kernel_traits import rollout_kernel


def construct_numba(request: RolloutRequest) -> Rollouts:
    """Construct rollouts by the numba kernel, with as many threads as the user wants."""
    from rhumbline.kernels.numba.rollout import launch as numba_rollout

    batch = request.batch
    prefixes = request.prefixes
    threads = worker_threads()
    with numba_rollout.limit_torch_to_one_thread():
        try:
            cost, actions = numba_rollout.run_rollouts(
                numba_rollout.build_numba_tables(request.memory, request.latent_bias),
                batch.xy,
                request.starts,
                batch.key,
                request.host_seed,
                request.attempt,
                vehicles=vehicles_of(batch, request.memory),
                temperature=request.temperature,
                threads=threads,
                given=None if prefixes is None else (prefixes.actions, prefixes.length),
                deadline=request.limit.deadline,
            )
        except TimeoutError:
            request.limit.check()
            raise
        return reprice(request.problem, batch, cost, actions)


def vehicles_of(batch: Any, memory: Any) -> tuple[Tensor, Tensor] | None:
    """Return what the kernel reads of vehicles: demands and capacity; None if tours are built."""
    if memory.query_load is None:
        return None
    return batch.demand, batch.capacity


class NumbaEngine:
    """Compiled rollouts on a CPU."""

    name = "numba"
    fused = True

    def why_not(self, ask: Ask) -> str | None:
        """Return why numba cannot serve: it constructs tours and routes, and scores nothing."""
        if ask.on_gpu or not ask.is_routing:
            return ask.no_kernel
        reason = kernels.why_not_layer(ask.device, ask.nodes) if ask.layer else None
        if reason is None and ask.gradients:
            reason = ask.no_kernel
        if reason is None:
            reason = kernels.why_not_heads(ask.architecture)
        if reason is not None:
            return reason
        missing = kernels.why_not_numba()  # last: the answer takes a second
        if missing is None:
            return None
        return note_missing_numba(missing)

    def load(self, rules: Problem[Any, Any]) -> None:
        """Load the kernel from the cache on disk, or compile it."""
        from rhumbline.kernels.numba.rollout.cache import load_rollout_kernel

        kernel = rollout_kernel(rules)
        if kernel is not None:
            load_rollout_kernel(kernel)

    def rollout(self, request: RolloutRequest) -> Rollouts:
        """Construct rollouts in one call of compiled code."""
        return construct_numba(request)


NUMBA = NumbaEngine()
