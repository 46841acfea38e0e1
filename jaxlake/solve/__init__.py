"""Exact optimal plans for batches of instances; ``solve`` is the way in."""

from jaxlake.solve.completion import completion_costs
from jaxlake.solve.driver import needs_wait, solve, waits, without_waiting
from jaxlake.solve.joint import INFINITE, JointValues, action_values, joint_values, value

__all__ = [
    "INFINITE",
    "JointValues",
    "action_values",
    "completion_costs",
    "joint_values",
    "needs_wait",
    "solve",
    "value",
    "waits",
    "without_waiting",
]
