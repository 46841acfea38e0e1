"""MAPF-FrozenLake in JAX: boards, rules, an exact solver, a generator and the text in between; knows no model."""

from jaxlake.config import MAX_HOLE, LakeConfig, counts, project
from jaxlake.generate import Dataset, SizeReport, generate
from jaxlake.render import draw, from_text, to_text
from jaxlake.solve import needs_wait, solve, without_waiting
from jaxlake.text import PromptStyle, answer, parse, parse_batch, prompt
from jaxlake.types import Action, Check, Costs, Instance, Objective, Plan, Solution, Status, Verdict
from jaxlake.verify import first_failure, verify

__all__ = [
    "MAX_HOLE",
    "Action",
    "Check",
    "Costs",
    "Dataset",
    "Instance",
    "LakeConfig",
    "Objective",
    "Plan",
    "PromptStyle",
    "SizeReport",
    "Solution",
    "Status",
    "Verdict",
    "answer",
    "counts",
    "draw",
    "first_failure",
    "from_text",
    "generate",
    "needs_wait",
    "parse",
    "parse_batch",
    "project",
    "prompt",
    "solve",
    "to_text",
    "verify",
    "without_waiting",
]
