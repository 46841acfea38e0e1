"""Exact optimal plans for batches of instances; ``solve`` is the way in."""

from jaxlake.solve.driver import needs_wait, solve, waits, without_waiting

__all__ = ["needs_wait", "solve", "waits", "without_waiting"]
