"""A comparison of engineers: one warm start for all, one round 0 a seed, and from there each engineer on its own."""

from rl.comparison.config import Resolved, load
from rl.comparison.stages import Stage, describe_costs, plan
from rl.comparison.work import Pace, open_folder, reopen, run_all
from rl.comparison.workers import run_workers

__all__ = [
    "Stage",
    "Pace",
    "Resolved",
    "describe_costs",
    "run_all",
    "run_workers",
    "load",
    "open_folder",
    "plan",
    "reopen",
]
