"""Multi-agent path finding for verifiers: ``vf-eval jaxlake-mapf``. What verifiers looks for is in ``__all__``."""

from verifiers.v1.harnesses.null import NullHarness

from jaxlake_mapf.taskset import MapfTaskset

__all__ = ["MapfTaskset", "NullHarness"]  # the harness without tools is the default: a plan is one reply
