"""The fused engine of a GPU for job shops: a whole schedule in one kernel launch."""

from typing import Any

from rhumbline.decoding.request import RolloutRequest, Rollouts, noise_counters


def construct_triton_shop(request: RolloutRequest) -> Rollouts:
    """Construct schedules by one launch of the Triton kernel for job shops."""
    from rhumbline.kernels.triton.job_shop import launch as triton_job_shop

    policy: Any = request.policy
    problem: Any = request.problem
    cost, actions = triton_job_shop.jssp_rollout(
        triton_job_shop.build_shop_weights(policy.decoder),
        request.memory,
        request.latent_bias,
        request.batch,
        noise_counters(request),
        starts=request.starts.shape[1],
        steps=problem.horizon(request.batch),
        heads=policy.architecture.heads,
        active=problem.active,
        temperature=request.temperature,
    )
    return Rollouts(cost, actions)
