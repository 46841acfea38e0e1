"""Hours of a run: before it from its programs and a device's rates, after it those of larger runs at its own rates."""

from rl.cost.devices import MATRIX_SHARE, MEMORY_SHARE, RATES, Rates, rates_of
from rl.cost.estimate import Phase, ProgramCost, hours, phases
from rl.cost.flops import matmul_flops
from rl.cost.forecast import Target, forecast, targets
from rl.cost.work import Work, work_of

__all__ = [
    "MATRIX_SHARE",
    "MEMORY_SHARE",
    "RATES",
    "Phase",
    "ProgramCost",
    "Rates",
    "Target",
    "Work",
    "forecast",
    "hours",
    "matmul_flops",
    "phases",
    "rates_of",
    "targets",
    "work_of",
]
