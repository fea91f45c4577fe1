"""The two functions in the middle: `rollout` samples solutions, `log_prob` scores given ones with gradients.

Plain torch over the Problem and Policy protocols is the definition. The fused kernels are optimisations of it.
"""

from rhumbline.decoding.engines import complete, next_logits
from rhumbline.decoding.rollouts import CHUNK_ELEMENTS, rollout
from rhumbline.decoding.scores import log_prob, unmarked
from rhumbline.decoding.work import BELOW_ONE, Beginnings, Engine, Rollouts, Work, choose

__all__ = [
    "BELOW_ONE", "CHUNK_ELEMENTS", "Beginnings", "Engine", "Rollouts", "Work", "choose", "complete", "log_prob",
    "next_logits", "rollout", "unmarked",
]  # fmt: skip
