"""Supervised learning on the solver's plans and on examples of an environment engineer's answers: the warm start."""

from rl.learn.sft.examples import engineer_sequences as engineer_sequences
from rl.learn.sft.examples import engineer_texts as engineer_texts
from rl.learn.sft.examples import plan_examples as plan_examples
from rl.learn.sft.stage import rehearse as rehearse
from rl.learn.sft.stage import teach as teach
from rl.learn.sft.stage import warm_start as warm_start
from rl.learn.sft.step import lower as lower
from rl.learn.sft.step import update as update
