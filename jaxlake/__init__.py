"""MAPF-FrozenLake in JAX: boards, rules, an exact solver, a generator and the text in between; knows no model."""

from jaxlake.autoreset import AutoReset, AutoResetMode
from jaxlake.board_text import from_text, to_text
from jaxlake.config import MAX_HOLE, LakeConfig, counts, project
from jaxlake.env import CLASSIC_SLIP, Lake
from jaxlake.generate import Dataset, KindReport, generate
from jaxlake.kinds import Family, Kind
from jaxlake.levels import LevelBank, distance_fields, distance_tables, pad, stack, validate
from jaxlake.render import animate, draw, png, svg
from jaxlake.rules import ConflictRule, GoalRule, HoleRule
from jaxlake.solve import (
    INFINITE,
    JointValues,
    action_values,
    completion_costs,
    joint_values,
    needs_wait,
    solve,
    value,
    waits,
    without_waiting,
)
from jaxlake.state import Info, Params, State, TimeStep, Transition
from jaxlake.text import AnswerFormat, PromptStyle, Reading, answer, parse, parse_batch, prompt, read
from jaxlake.types import Action, Check, Costs, Instance, LifelongInstance, Objective, Plan, Solution, Status, Verdict
from jaxlake.verify import first_failure, verify

__version__ = "0.1.0"

__all__ = [
    "CLASSIC_SLIP",
    "INFINITE",
    "MAX_HOLE",
    "Action",
    "AnswerFormat",
    "AutoReset",
    "AutoResetMode",
    "Check",
    "ConflictRule",
    "Costs",
    "Dataset",
    "Family",
    "GoalRule",
    "HoleRule",
    "Info",
    "Instance",
    "JointValues",
    "Kind",
    "KindReport",
    "Lake",
    "LakeConfig",
    "LevelBank",
    "LifelongInstance",
    "Objective",
    "Params",
    "Plan",
    "PromptStyle",
    "Reading",
    "Solution",
    "State",
    "Status",
    "TimeStep",
    "Transition",
    "Verdict",
    "action_values",
    "animate",
    "answer",
    "completion_costs",
    "counts",
    "distance_fields",
    "distance_tables",
    "draw",
    "first_failure",
    "from_text",
    "generate",
    "joint_values",
    "needs_wait",
    "pad",
    "parse",
    "parse_batch",
    "png",
    "project",
    "prompt",
    "read",
    "solve",
    "stack",
    "svg",
    "to_text",
    "validate",
    "value",
    "verify",
    "waits",
    "without_waiting",
]
