"""Decoding: `rollout` samples solutions, `log_prob` scores given ones with gradients.

Plain torch over the Problem and Policy protocols is the definition. The fused kernels optimise it.
"""

from rhumbline.decoding.engines import complete, next_logits
from rhumbline.decoding.request import (
    BELOW_ONE,
    EngineName,
    Prefixes,
    RolloutRequest,
    Rollouts,
    choose,
)
from rhumbline.decoding.rollouts import CHUNK_ELEMENTS, rollout
from rhumbline.decoding.scoring import log_prob, unmark_actions

__all__ = [
    "BELOW_ONE",
    "CHUNK_ELEMENTS",
    "EngineName",
    "Prefixes",
    "RolloutRequest",
    "Rollouts",
    "choose",
    "complete",
    "log_prob",
    "next_logits",
    "rollout",
    "unmark_actions",
]
