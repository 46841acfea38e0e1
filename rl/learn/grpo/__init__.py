"""Group Relative Policy Optimization: advantages, the loss and one update; knows nothing of boards or text."""

from rl.learn.grpo.advantages import advantages, token_advantages
from rl.learn.grpo.loss import Batch, denominator, policy_loss
from rl.learn.grpo.update import Total, accumulate, answer_logprobs_of, apply, init, lower, update, zeros_like

__all__ = [
    "Batch",
    "Total",
    "accumulate",
    "advantages",
    "answer_logprobs_of",
    "apply",
    "denominator",
    "init",
    "lower",
    "policy_loss",
    "token_advantages",
    "update",
    "zeros_like",
]
