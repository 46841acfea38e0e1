"""Branches: from one saved state a student is trained on each of several designs, and what each gains is written."""

from rl.branching.designs import Design, draw_designs, joined, model_designs, rule_designs
from rl.branching.gains import Branches, branch_all
from rl.branching.states import keep_state, train_states

__all__ = [
    "Branches",
    "Design",
    "branch_all",
    "draw_designs",
    "joined",
    "keep_state",
    "model_designs",
    "rule_designs",
    "train_states",
]
