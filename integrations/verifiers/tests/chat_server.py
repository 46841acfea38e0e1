"""A server of chat completions on this machine that answers each conversation by a function; for tests."""

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def serving(reply: Callable[[list[str]], str]) -> Iterator[str]:
    """Yield the base URL of a server that streams ``reply(texts of all messages)``, as OpenAI's interface has it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            contents = [message["content"] for message in body["messages"]]
            texts = [text if isinstance(text, str) else "".join(part["text"] for part in text) for text in contents]
            head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
            delta = {"role": "assistant", "content": reply(texts)}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            chunks = [
                head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
                head | {"choices": [], "usage": usage},
            ]
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for text in (*map(json.dumps, chunks), "[DONE]"):
                self.wfile.write(f"data: {text}\n\n".encode())

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
