"""The client of a lake's server, over one WebSocket. Imports no JAX."""

from typing import Any

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient

from jaxlake_openenv.models import LakeAction, LakeObservation, LakeState


class LakeEnv(EnvClient[LakeAction, LakeObservation, LakeState]):
    """A session on a server: ``await`` its methods, or take ``.sync()`` for a client that blocks."""

    def _step_payload(self, action: LakeAction) -> dict[str, Any]:
        return action.model_dump(exclude_none=True)

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[LakeObservation]:
        reward, done = payload["reward"], payload["done"]
        observation = LakeObservation(**payload["observation"], reward=reward, done=done)
        return StepResult(observation=observation, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> LakeState:
        return LakeState(**payload)
