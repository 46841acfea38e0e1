"""A model that somebody has trained, SmolLM2-135M-Instruct, beside llama.cpp on the same file.

They need pip install '.[servers]', and fetch 93 MB once.
"""

import json
import random
import unicodedata
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
import servers
from smollm2 import smollm2

from jaxlake.benchmark import load, spread, take
from jaxlake.text import PromptStyle, prompt
from rl import config as config_
from rl.command import shipped
from rl.decoder.gguf import convert
from rl.decoder.tokenizer import Tokenizer
from rl.evaluation import reading

pytestmark = pytest.mark.heavy
for name in ("xllamacpp", "gguf"):
    pytest.importorskip(name, reason="llama.cpp's server needs pip install '.[servers]'")


@pytest.fixture(scope="module")
def file() -> Path:
    return smollm2()


@pytest.fixture(scope="module")
def folder(file, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2") / "folder"
    assert convert(file, folder).endswith(": 134.5 M parameters in float32, from F32, Q4_1, Q8_0")
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder) -> Tokenizer:
    return Tokenizer(folder)


def post(url: str, path: str, **body):
    request = urllib.request.Request(
        url.removesuffix("/v1") + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.loads(response.read())


def strings() -> list[str]:
    """300 prompts of boards, 100 contexts, 300 of all scripts, 150 of digits and blanks, 150 with look-alikes."""
    boards = load("families")
    boards = take(boards, spread(boards)[:100]).instances
    found = [prompt(boards[i], style) for i in range(100) for style in list(PromptStyle)[:3]]
    for name in ("tiny.yaml", "qwen3-4b.yaml"):
        config, asker = config_.load(shipped(name)), SimpleNamespace(fits=lambda text: True)
        found += [question.message for question in reading.questions(reading.drawn_states(config, 25), asker, config)]
    rng = random.Random(0)
    letters = [c for c in map(chr, range(1, 0x110000)) if unicodedata.category(c) not in ("Cn", "Co", "Cs")]
    blanks = [
        *" \t\n\r\v\f\u00a0\u0085\u2003\u2028\u3000\u200b",
        "  ",
        "\n\n",
        "a",
        "1",
        "23",
        "3.5",
        "²",
        "Ⅷ",
        "٣",
        "½",
        "!",
    ]
    control = [
        "<|im_end|>",
        "<|im_start|>",
        "<|endoftext|>",
        "<repo_name>",
        "<|im_",
        "end|>",
        "<",
        " ",
        "\n",
        "user",
        "'s",
        "1",
    ]
    found += ["".join(rng.choices(letters, k=40)) for _ in range(300)]
    found += ["".join(rng.choices(blanks, k=30)) for _ in range(150)]
    return found + ["".join(rng.choices(control, k=12)) for _ in range(150)]


def test_token_ids_are_llama_cpps_on_a_thousand_strings(file, tokenizer):
    """As they are, and as messages, in which what looks like a control token is letters."""
    texts = strings()
    assert len(set(texts)) == 1000 and sum("<|im_" in text for text in texts) > 100
    before, after = tokenizer.chat_text("|here|", thinking=False).split("user\n|here|")
    with servers.llama_cpp_file(file) as url:

        def ids(text, special=True):
            return post(url, "/tokenize", content=text, add_special=False, parse_special=special)["tokens"]

        for text in texts:
            assert tokenizer.encode(text) == ids(text), text
            assert tokenizer.chat(text, thinking=False) == ids(before) + ids(f"user\n{text}", False) + ids(after), text
