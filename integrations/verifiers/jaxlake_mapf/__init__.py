"""Multi-agent path finding for verifiers: ``vf-eval jaxlake-mapf``. What verifiers looks for is in ``__all__``."""

from verifiers.v1.harnesses.null import NullHarness

from jaxlake_mapf.taskset import MapfTaskset
from jaxlake_mapf.turns import MapfEnv

__all__ = ["MapfEnv", "MapfTaskset", "NullHarness"]  # the harness without tools is the default
