"""A chat server on this machine that does what a test tells it."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class ChatServer(ThreadingHTTPServer):
    """Listens on a free port.

    Attributes:
      asked: the bodies of all requests, in the order in which they came; `headers` likewise.
      respond: gets the handler, the body and its number; the default answers "fine".
      most: requests that were under way at once.
    """

    daemon_threads = True
    block_on_close = False  # some handlers hang on purpose

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.respond: Callable[[_Handler, dict[str, Any], int], None] = lambda handler, body, number: handler.say(
            "fine"
        )
        self.most = self.under_way = 0
        self.lock = threading.Lock()
        self.end = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request, client_address):
        """A client that has gone is none of the test's."""


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self):  # noqa: N802 - the name that the base class calls
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            number = len(server.asked)
            server.asked.append(body | {"path": self.path})
            server.headers.append(self.headers)
            server.under_way += 1
            server.most = max(server.most, server.under_way)
            self.waits = True
        try:
            server.respond(self, body, number)
        finally:
            self.leave()

    def leave(self) -> None:
        """Counts the request as answered: before its last byte is sent, as the client may ask again at once."""
        with self.server.lock:
            self.server.under_way -= self.waits
            self.waits = False

    def send(self, status: int, content: str | dict, headers: Mapping[str, str] | None = None) -> None:
        """One whole response; a dict becomes JSON."""
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | dict(headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.leave()
        with contextlib.suppress(OSError):
            self.wfile.write(data)

    def say(self, text: str | None, reason: str = "stop", tokens: int = 7) -> None:
        """A chat completion."""
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        self.send(
            200,
            {
                "object": "chat.completion",
                "choices": [choice],
                "usage": {"completion_tokens": tokens, "prompt_tokens": 100},
            },
        )

    def log_message(self, *arguments):
        """Nothing on the terminal."""


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as chat:
        threading.Thread(target=chat.serve_forever, args=(0.01,), daemon=True).start()
        yield chat
        chat.end.set()
        chat.shutdown()


@pytest.fixture(scope="module", autouse=True)
def _quick(request):
    """Compile in haste: programs of these tests run once."""
    if not request.node.get_closest_marker("tpu_aot"):
        request.getfixturevalue("quick_compilation")
