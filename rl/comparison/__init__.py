"""A comparison of engineers: one warm start for all, one round 0 a seed, and from there each engineer on its own."""

from rl.comparison.config import Resolved, load
from rl.comparison.legs import Leg, plan
from rl.comparison.work import Pace, carry_out, open_folder, reopen
from rl.comparison.workers import employ

__all__ = ["Leg", "Pace", "Resolved", "carry_out", "employ", "load", "open_folder", "plan", "reopen"]
