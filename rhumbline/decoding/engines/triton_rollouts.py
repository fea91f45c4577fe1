"""The fused engine of a GPU for routing problems: a whole rollout in one kernel launch."""

from typing import Any

from torch import Tensor

from rhumbline import kernels
from rhumbline.decoding.engines.base import Ask
from rhumbline.decoding.request import RolloutRequest, Rollouts, noise_counters, reprice


def construct_triton(request: RolloutRequest) -> Rollouts:
    """Construct rollouts by one launch of a Triton kernel."""
    from rhumbline.kernels.triton.rollout import tables as rollout_tables

    prefixes = request.prefixes
    batch = request.batch
    tables = rollout_tables.build_triton_tables(request.memory, request.latent_bias)
    # Where costs are measured from the actions, these must not be complements.
    mark = request.mark if batch.has_euclidean_cost else 0.0
    given = None if prefixes is None else (prefixes.actions, prefixes.length)
    launch = launch_tours if request.memory.query_load is None else launch_routes
    cost, actions = launch(
        tables,
        batch,
        request.starts,
        noise_counters(request),
        temperature=request.temperature,
        mark=mark,
        given=given,
    )
    return reprice(request.problem, batch, cost, actions)


def launch_tours(
    tables: Any, batch: Any, starts: Tensor, counters: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """Launch the kernel on what it reads of a TSP batch."""
    from rhumbline.kernels.triton.rollout import launch as triton_rollout

    return triton_rollout.tsp_rollout(tables, batch.xy, starts, batch.key, counters, **options)


def launch_routes(
    tables: Any, batch: Any, starts: Tensor, counters: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """Launch the kernel on what it reads of a CVRP batch."""
    from rhumbline.kernels.triton.rollout import launch as triton_rollout

    return triton_rollout.cvrp_rollout(
        tables,
        batch.xy,
        batch.demand,
        batch.capacity,
        starts,
        batch.key,
        counters,
        **options,
    )


class TritonEngine:
    """Compiled rollouts and scores on a GPU."""

    name = "triton"
    fused = True

    def why_not(self, ask: Ask) -> str | None:
        """Return why the kernels cannot serve: they construct and score tours and routes."""
        if not ask.on_gpu or not ask.is_routing:
            return ask.no_kernel
        largest = kernels.MAX_TILE_NODES if ask.gradients else kernels.MAX_STREAM_NODES
        reason = kernels.why_not_layer(ask.device, ask.nodes) if ask.layer else None
        reason = reason or kernels.why_not_triton(ask.nodes, largest)
        return reason or kernels.why_not_heads(ask.architecture)

    def rollout(self, request: RolloutRequest) -> Rollouts:
        """Construct rollouts in one kernel launch."""
        return construct_triton(request)


TRITON = TritonEngine()
