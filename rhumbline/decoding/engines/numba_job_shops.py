"""The fused engine of a CPU for job shops: schedules in one call of compiled code."""

from typing import Any

from rhumbline import kernels
from rhumbline.decoding.engines.base import Ask, Pace, note_missing_numba
from rhumbline.decoding.request import RolloutRequest, Rollouts
from rhumbline.kernels.threads import worker_threads
from rhumbline.policies.jssp import JSSPArchitecture
from rhumbline.problems import Problem


def construct_numba_shop(request: RolloutRequest) -> Rollouts:
    """Construct schedules by the numba kernel, with as many threads as the user wants."""
    from rhumbline.kernels.numba.job_shop import launch as numba_job_shop
    from rhumbline.kernels.numba.rollout.launch import limit_torch_to_one_thread

    policy: Any = request.policy
    problem: Any = request.problem
    batch = request.batch
    memory = request.memory
    prefixes = request.prefixes
    threads = worker_threads()
    with limit_torch_to_one_thread():
        try:
            cost, actions = numba_job_shop.run_schedules(
                numba_job_shop.build_shop_tables(policy.decoder, memory, request.latent_bias),
                memory,
                batch,
                request.host_seed,
                request.attempt,
                starts=request.starts.shape[1],
                steps=problem.horizon(batch),
                active=problem.active,
                temperature=request.temperature,
                threads=threads,
                given=None if prefixes is None else (prefixes.actions, prefixes.length),
                deadline=request.limit.deadline,
            )
        except TimeoutError:
            request.limit.check()
            raise
    return Rollouts(cost, actions)


class NumbaJobShopEngine:
    """Compiled schedules on a CPU."""

    name = "numba_job_shop"
    fused = True
    # A rollout alone takes less time than several, and tensor elements a tenth of what they take in
    # the kernel for tours.
    pace = Pace(tile=1, relative_speed=10)

    def why_not(self, ask: Ask) -> str | None:
        """Return why numba cannot serve: it constructs and scores schedules of the default policy.

        Where gradients of weights are wanted, `log_prob` takes plain torch.
        """
        if ask.on_gpu or ask.kernel != "schedules":
            return ask.no_kernel
        shape = ask.architecture or JSSPArchitecture()
        if not isinstance(shape, JSSPArchitecture):
            return ask.no_kernel
        reason = kernels.why_not_job_shop_heads(shape)
        if reason is not None:
            return reason
        missing = kernels.why_not_numba()  # last: the answer takes a second
        if missing is None:
            return None
        return note_missing_numba(missing)

    def load(self, rules: Problem[Any, Any]) -> None:
        """Load the kernels from the cache on disk, or compile them."""
        from rhumbline.kernels.numba.rollout.cache import load_rollout_kernel

        for kernel in ("schedules", "schedule_scores"):
            load_rollout_kernel(kernel)

    def rollout(self, request: RolloutRequest) -> Rollouts:
        """Construct schedules in one call of compiled code."""
        return construct_numba_shop(request)


NUMBA_JOB_SHOP = NumbaJobShopEngine()
