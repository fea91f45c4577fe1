"""The fused engine of a GPU for routing problems: a whole rollout in one kernel launch."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from rhumbline.decoding.request import RolloutRequest, Rollouts, noise_counters, reprice


def construct_triton(request: RolloutRequest) -> Rollouts:
    """Construct rollouts by one launch of the Triton kernel of the problem."""
    from rhumbline.kernels.triton.rollout import tables as rollout_tables

    prefixes = request.prefixes
    batch = request.batch
    tables = rollout_tables.build_triton_tables(request.memory, request.latent_bias)
    # Where costs are measured from the actions, these must not be complements.
    mark = request.mark if batch.has_euclidean_cost else 0.0
    given = None if prefixes is None else (prefixes.actions, prefixes.length)
    launch = LAUNCHERS[request.problem.name]
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


def launch_tsp(
    tables: Any, batch: Any, starts: Tensor, counters: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """Launch the kernel on what it reads of a TSP batch."""
    from rhumbline.kernels.triton.rollout import launch as triton_rollout

    return triton_rollout.tsp_rollout(tables, batch.xy, starts, batch.key, counters, **options)


def launch_cvrp(
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


LAUNCHERS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "tsp": launch_tsp,
    "cvrp": launch_cvrp,
}
