"""The command ``jaxlake-openenv``: serves the boards over HTTP and WebSocket."""

import argparse

import uvicorn
from openenv.core.env_server.http_server import create_app

from jaxlake_openenv.environment import LakeEnvironment
from jaxlake_openenv.models import LakeAction, LakeObservation, LakeState

SESSIONS = 256
"""Episodes at a time; a further connection is refused."""

app = create_app(
    LakeEnvironment, LakeAction, LakeObservation, env_name="jaxlake", max_concurrent_envs=SESSIONS, state_cls=LakeState
)
"""The application, for servers of ASGI: ``uvicorn jaxlake_openenv.server:app``."""


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="jaxlake-openenv", description="Serves boards to OpenEnv's clients.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000)")
    options = parser.parse_args()
    uvicorn.run(app, host=options.host, port=options.port)
