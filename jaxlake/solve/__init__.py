"""Exact optimal plans by batched Conflict-Based Search; ``solve`` is the way in."""

from jaxlake.solve.driver import needs_wait, solve, without_waiting

__all__ = ["needs_wait", "solve", "without_waiting"]
