"""Branches: from one saved state a student is trained on each of several designs, and what each gains is written."""

from rl.branching.designs import Design, deduplicate, draw_designs, model_designs, rule_designs
from rl.branching.gains import BranchPlan, Gains, StateGains, branch_all, read_gains
from rl.branching.states import keep_state, train_states

__all__ = [
    "BranchPlan",
    "Design",
    "Gains",
    "StateGains",
    "branch_all",
    "deduplicate",
    "draw_designs",
    "keep_state",
    "model_designs",
    "read_gains",
    "rule_designs",
    "train_states",
]
