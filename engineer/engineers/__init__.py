"""Designers of the next configuration, behind one interface: ``propose(evidence, history, key) -> Proposal``.

`base` has the interface and what all share, `language` the engineers that are language models, `controls` what such a
one is compared with, and `rules` plain functions of evidence and history.
"""

from engineer.engineers.base import Rule
from engineer.engineers.rules import BOARD_RULES, RULES

__all__ = ["BOARD_RULES", "RULES", "Rule"]
