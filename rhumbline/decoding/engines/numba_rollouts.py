"""The fused engine of a CPU for routing problems: rollouts in one call of compiled code."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rhumbline.decoding.request import RolloutRequest, Rollouts, reprice


def construct_numba(request: RolloutRequest) -> Rollouts:
    """Construct rollouts by the numba kernel, with as many threads as torch uses."""
    from rhumbline.kernels.numba.rollout import launch as numba_rollout

    batch = request.batch
    prefixes = request.prefixes
    threads = torch.get_num_threads()
    with numba_rollout.limit_torch_to_one_thread():
        cost, actions = numba_rollout.run_rollouts(
            numba_rollout.build_numba_tables(request.memory, request.latent_bias),
            batch.xy,
            request.starts,
            batch.key,
            request.host_seed,
            request.attempt,
            vehicles=VEHICLES[request.problem.name](batch),
            temperature=request.temperature,
            threads=threads,
            given=None if prefixes is None else (prefixes.actions, prefixes.length),
        )
        return reprice(request.problem, batch, cost, actions)


def no_vehicles(batch: Any) -> None:
    """Return what the kernel reads of the vehicles of a TSP: nothing."""
    return


def demand_and_capacity(batch: Any) -> tuple[Tensor, Tensor]:
    """Return what the kernel reads of the vehicles of a CVRP."""
    return batch.demand, batch.capacity


VEHICLES: dict[str, Callable[[Any], tuple[Tensor, Tensor] | None]] = {
    "tsp": no_vehicles,
    "cvrp": demand_and_capacity,
}
