"""The fused engine of a GPU for job shops: a whole schedule in one kernel launch."""

from typing import Any

from rhumbline import kernels
from rhumbline.decoding.engines.base import NO_PREFIXES, Ask, NotedReason
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


class JobShopEngine:
    """Compiled schedules on a GPU."""

    name = "job_shop"
    fused = True

    def why_not(self, ask: Ask) -> str | None:
        """Return why the kernel cannot serve: it constructs whole schedules, and scores nothing."""
        if not ask.on_gpu or ask.kernel != "schedules":
            return ask.no_kernel
        if ask.prefixes:
            return NO_PREFIXES
        if ask.gradients:
            return f"there is no fused scoring for {ask.rules.name}"
        reason = kernels.why_not_job_shop(ask.architecture)
        if reason is None:
            return None
        slower = "job shops are built by plain torch in a CUDA graph, several times slower"
        return NotedReason(reason, slower)

    def rollout(self, request: RolloutRequest) -> Rollouts:
        """Construct schedules in one kernel launch."""
        return construct_triton_shop(request)


JOB_SHOP = JobShopEngine()
