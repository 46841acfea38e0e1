"""Multi-agent path finding on frozen lakes for OpenEnv: the client, and what it sends and gets."""

from jaxlake_openenv.client import LakeEnv
from jaxlake_openenv.models import LakeAction, LakeObservation, LakeState

__all__ = ["LakeAction", "LakeEnv", "LakeObservation", "LakeState"]
