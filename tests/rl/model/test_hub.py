"""Models of the Hugging Face hub: downloaded as far as they are read, and then found in its cache."""

import http.server
import json
import threading
import urllib.parse

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shapes import SMALL

from rl.config import ConfigError
from rl.model import weights
from rl.model.decoder import abstract

REPOSITORY = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "README.md",
    "params.json",
    "tekken.json",
    "consolidated.safetensors",
    "original/consolidated.00.pth",
    "original/config.json",
    "onnx/model.safetensors",
    "pytorch_model.bin",
    "adapter_model.safetensors",
)
"""Names of files in published repositories beside their weights."""


def test_of_a_repository_only_what_is_read_is_downloaded(tmp_path, monkeypatch):
    """The hub's own client asks a server on this machine, which answers as the hub does."""
    pytest.importorskip("huggingface_hub", minversion="1", reason="an older client is offline for good, as tests begin")
    commit = "0123456789abcdef0123456789abcdef01234567"
    noise = np.random.default_rng(0)
    parameters = jax.tree.map(lambda x: jnp.asarray(noise.normal(size=x.shape), x.dtype), abstract(SMALL)[1])
    weights.save(tmp_path / "hub", SMALL, parameters)
    config = (tmp_path / "hub/config.json").read_bytes()
    contents = dict.fromkeys(REPOSITORY, b"{}") | {"config.json": config}
    contents |= {file.name: file.read_bytes() for file in (tmp_path / "hub").glob("model*")}
    fetched = []

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path, answer = urllib.parse.urlsplit(self.path).path, None
            if path.startswith("/api/models/org/name/tree/"):
                answer = [{"type": "file", "oid": "0", "size": len(x), "path": name} for name, x in contents.items()]
            elif path.startswith("/api/models/org/name"):
                answer = {"id": "org/name", "sha": commit, "siblings": [{"rfilename": name} for name in contents]}
            name = path.removeprefix(f"/org/name/resolve/{commit}/")
            body = contents.get(name, b"") if answer is None else json.dumps(answer).encode()
            fetched.extend([name] if name in contents and self.command == "GET" else [])
            self.send_response(200 if body else 404)
            headers = {"ETag": f'"{name}"', "X-Repo-Commit": commit, "Content-Length": len(body)}
            for header, value in headers.items():
                self.send_header(header, str(value))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    folder = weights.resolve("org/name")
    assert folder.name == commit and weights.resolve("org/name@v1.0") == folder
    server.shutdown()
    needed = [*REPOSITORY[:5], *(name for name in contents if name.startswith("model"))]
    assert sorted(fetched) == sorted(needed)
    jax.tree.map(np.testing.assert_array_equal, parameters, weights.load(folder, SMALL)[1])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert weights.resolve("org/name") == folder


@pytest.mark.parametrize("path", ["Qwen/Qwen3-not-here", "qwen3-4b", "Qwen/..", "/no/such/folder"])
def test_what_is_neither_a_folder_nor_in_the_cache_is_one_line(tmp_path, monkeypatch, path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=f"^student.model.path = {path}: no such folder, and not had from the hub.*$"):
        weights.resolve(path)
