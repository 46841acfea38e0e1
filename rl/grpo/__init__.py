"""Group Relative Policy Optimization: groups, advantages, the loss and one update; knows nothing of boards or text."""

from rl.grpo.advantages import Advantage, advantages
from rl.grpo.groups import Groups, Role
from rl.grpo.loss import Aggregation, Batch, Correction, KLEstimator, LossSettings, policy_loss
from rl.grpo.update import Total, accumulate, answer_logprobs_of, apply, init, lower, update, zeros_like

__all__ = [
    "Advantage",
    "Aggregation",
    "Batch",
    "Correction",
    "Groups",
    "KLEstimator",
    "LossSettings",
    "Role",
    "Total",
    "accumulate",
    "advantages",
    "answer_logprobs_of",
    "apply",
    "init",
    "lower",
    "policy_loss",
    "update",
    "zeros_like",
]
