"""Supervised learning on the solver's plans and on examples of an environment engineer's answers: the warm start."""

from rl.sft.examples import engineer_sequences, engineer_texts, plan_examples
from rl.sft.stage import rehearse, teach, warm_start
from rl.sft.step import lower, update
