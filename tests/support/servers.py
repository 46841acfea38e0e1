"""Servers of chat completions that are not ours, each a process on this machine that serves a folder of ours."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pairs import free_port

TRANSFORMERS = "import sys; from transformers.cli.transformers import app; app(sys.argv[1:])"
LLAMA_CPP = """
import sys, threading, xllamacpp
settings = xllamacpp.CommonParams()
settings.model.path, settings.port, settings.n_ctx, settings.n_parallel = sys.argv[1], int(sys.argv[3]), 8192, 2
settings.cpuparams.n_threads = 1  # two would wait for each other where other tests run beside
if sys.argv[2] == "float32":
    settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(settings)
threading.Event().wait()
"""


def transformers_serve(folder: Path) -> contextlib.AbstractContextManager[str]:
    """`transformers serve` with the model of a folder; gives its URL."""
    port = str(free_port())
    return _running([TRANSFORMERS, "serve", str(folder), "--host", "127.0.0.1", "--device", "cpu", "--port", port])


@contextlib.contextmanager
def llama_cpp(folder: Path) -> Iterator[str]:
    """llama.cpp's server with the model of a folder, which becomes one file in its own format; gives its URL."""
    write_gguf(folder, folder / "model.gguf")
    with llama_cpp_file(folder / "model.gguf") as url:
        yield url


def llama_cpp_file(file: Path, cache: str = "float16") -> contextlib.AbstractContextManager[str]:
    """llama.cpp's server with a file in its format and the type of its cache, float16 or float32; gives its URL."""
    return _running([LLAMA_CPP, str(file), cache, str(free_port())])


@contextlib.contextmanager
def _running(program: list[str]) -> Iterator[str]:
    """Run a Python program whose last argument is its port, and end it."""
    url = f"http://127.0.0.1:{program[-1]}"
    with tempfile.TemporaryFile("w+") as log:  # a pipe that nobody reads is full after some hundred requests
        process = subprocess.Popen(
            [sys.executable, "-c", *program],
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "NO_COLOR": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + 300  # importing PyTorch takes a minute on a busy machine
            while not _is_up(f"{url}/health"):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"the server did not come up:\n{log.read()[-2000:]}")
                time.sleep(0.2)
            yield f"{url}/v1"
        finally:
            process.kill()
            process.wait()


def _is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


PARTS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""What llama.cpp calls the parameters of a Qwen3 whose embeddings are tied."""


def write_gguf(folder: Path, file: Path) -> None:
    """Write a small Qwen3 with its tokenizer in llama.cpp's format."""
    import gguf
    from safetensors.numpy import load_file

    config, tokenizer = (json.loads((folder / f"{name}.json").read_text()) for name in ("config", "tokenizer"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    model, added = tokenizer["model"], {token["id"]: token for token in tokenizer["added_tokens"]}
    ids = model["vocab"] | {token["content"]: number for number, token in added.items()}
    kinds = gguf.TokenType
    writer = gguf.GGUFWriter(file, "qwen3")
    writer.add_context_length(8192)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(sorted(ids, key=ids.__getitem__))
    writer.add_token_types(
        [
            kinds.NORMAL if i not in added else kinds.CONTROL if added[i]["special"] else kinds.USER_DEFINED
            for i in range(len(ids))
        ]
    )
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_pad_token_id(ids["<|endoftext|>"])
    writer.add_chat_template(settings.get("chat_template") or (folder / "chat_template.jinja").read_text())
    for name, values in load_file(folder / "model.safetensors").items():
        name = name.removesuffix(".weight")
        part = name if name in PARTS else name.split(".", 3)[3]
        block = "" if name in PARTS else f"blk.{name.split('.')[2]}."
        writer.add_tensor(f"{block}{PARTS[part]}.weight", np.ascontiguousarray(values.astype(np.float32)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
