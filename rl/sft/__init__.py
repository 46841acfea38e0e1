"""Supervised learning on the solver's plans and on examples of an environment engineer's answers: the warm start."""

from rl.sft.examples import engineer_texts, plan_examples
from rl.sft.stage import warm_start
from rl.sft.step import lower, update

__all__ = ["engineer_texts", "lower", "plan_examples", "update", "warm_start"]
