"""Group Relative Policy Optimization: advantages, the loss and one update; knows nothing of boards or text."""

from rl.learn.grpo.advantages import advantages, token_advantages
from rl.learn.grpo.loss import Batch, denominator, describe, policy_loss, token_losses
from rl.learn.grpo.update import Total, accumulate, answer_logprobs_of, apply, init, lower, update, zeros_like

__all__ = [
    "Batch",
    "Total",
    "accumulate",
    "advantages",
    "answer_logprobs_of",
    "apply",
    "denominator",
    "describe",
    "init",
    "lower",
    "policy_loss",
    "token_advantages",
    "token_losses",
    "update",
    "zeros_like",
]
