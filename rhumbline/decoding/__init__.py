"""Decoding: `rollout` samples solutions, `log_prob` scores given ones with gradients.

Plain torch over the Problem and Policy protocols is the definition. The fused kernels optimise it.
"""

from rhumbline.decoding.completion import CompletionRequest, complete, next_logits
from rhumbline.decoding.engines import ENGINES, Ask, Engine, choose_engine
from rhumbline.decoding.request import (
    BELOW_ONE,
    EngineName,
    Prefixes,
    RolloutRequest,
    Rollouts,
    TimeLimit,
    choose,
)
from rhumbline.decoding.rollouts import rollout
from rhumbline.decoding.scoring import (
    Decisions,
    chosen_log_prob,
    log_prob,
    score_decisions,
    unmark_actions,
)

__all__ = [
    "BELOW_ONE",
    "ENGINES",
    "Ask",
    "CompletionRequest",
    "Decisions",
    "Engine",
    "EngineName",
    "Prefixes",
    "RolloutRequest",
    "Rollouts",
    "TimeLimit",
    "choose",
    "choose_engine",
    "chosen_log_prob",
    "complete",
    "log_prob",
    "next_logits",
    "rollout",
    "score_decisions",
    "unmark_actions",
]
