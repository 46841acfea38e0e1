"""A model that somebody has trained, SmolLM2-135M-Instruct, beside llama.cpp: tokens, answers, logits.

They need pip install . --group servers, and fetch 93 MB once.
"""

import itertools
import json
import random
import unicodedata
import urllib.request
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import servers
from flax import nnx
from published import smollm2

from jaxlake.benchmark import load, spread, take
from jaxlake.text import PromptStyle, prompt
from rl.model import weights
from rl.model.decoder import token_positions
from rl.model.presets import read_config
from rl.model.tokenizer import Tokenizer
from studies.gguf_folder import convert

pytestmark = pytest.mark.heavy
for name in ("xllamacpp", "gguf"):
    pytest.importorskip(name, reason="llama.cpp's server needs pip install . --group servers")

LENGTH, WIDTH = 12, 104
QUESTIONS = (
    "What is the capital of France? And of Japan?",
    "Name three animals that live in water.",
    "Write a short poem about a frozen lake.",
    "Why is the sky blue?",
    "Count from 1 to 10.",
    "Translate into French: The ice is thin.",
    "What is 12 + 30?",
    "Tell me about robots in a warehouse.",
    "How do I cook rice?",
    "Who wrote Hamlet?",
)


@pytest.fixture(scope="module")
def file() -> Path:
    return smollm2()


@pytest.fixture(scope="module")
def folder(file, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2") / "folder"
    convert(file, folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder) -> Tokenizer:
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def exact_file(file, tmp_path_factory) -> Path:
    """The same numbers in float32, in llama.cpp's format: it computes with them as they are, not in eight bits."""
    import gguf

    reader, path = gguf.GGUFReader(file), tmp_path_factory.mktemp("exact") / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, field.contents())
        else:
            writer.add_key_value(key, field.contents(), field.types[0])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def post(url: str, path: str, **body):
    request = urllib.request.Request(
        url.removesuffix("/v1") + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.loads(response.read())


def strings() -> list[str]:
    """300 prompts of boards, 300 of all scripts, 150 of digits and blanks, 150 with look-alikes of control tokens."""
    boards = load("families")
    boards = take(boards, spread(boards)[:100]).instances
    found = [prompt(boards[i], style) for i in range(100) for style in list(PromptStyle)[:3]]
    rng = random.Random(0)
    letters = [c for c in map(chr, range(1, 0x110000)) if unicodedata.category(c) not in ("Cn", "Co", "Cs")]
    blanks = [*" \t\n\r\v\f\u00a0\u0085\u2003\u2028\u3000\u200b", "  ", "\n\n", *"a1²Ⅷ٣½!", "23", "3.5"]
    control = ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<repo_name>", "<|im_", "end|>", "user", "'s", *"< \n1"]
    found += ["".join(rng.choices(letters, k=40)) for _ in range(300)]
    found += ["".join(rng.choices(blanks, k=30)) for _ in range(150)]
    return found + ["".join(rng.choices(control, k=12)) for _ in range(150)]


def test_token_ids_are_llama_cpps_on_many_strings(file, tokenizer):
    texts = strings()
    assert len(set(texts)) == 900 and sum("<|im_" in text for text in texts) > 100
    with servers.llama_cpp_file(file) as url:

        def ids(text):
            return post(url, "/tokenize", content=text, add_special=False, parse_special=True)["tokens"]

        for text in texts:
            assert tokenizer.encode(text) == ids(text), text
            assert tokenizer.chat(text, thinking=False) == ids(tokenizer.chat_text(text, thinking=False)), text


def ask(url: str, prompts: list[list[int]]) -> list[tuple[list[int], np.ndarray]]:
    """Return the tokens of llama.cpp's answers, every second one greedy, and the log-probability of each token."""
    found = []
    for seed, ids in enumerate(prompts):
        asked = {"prompt": ids, "n_predict": LENGTH, "n_probs": 1, "seed": seed, "temperature": seed % 2}
        answer = post(url, "/completion", **asked, top_k=0, top_p=1.0, min_p=0.0, return_tokens=True)
        steps = answer["completion_probabilities"]  # of a letter in several tokens, its last token alone
        pairs = zip(steps, answer["tokens"], strict=False)
        steps = list(itertools.takewhile(lambda pair: pair[0]["id"] == pair[1], pairs))
        found.append(([token for _, token in steps], np.array([step["logprob"] for step, _ in steps])))
    return found


@pytest.fixture(scope="module")
def score(folder):
    """A function: our log-probabilities of answers' tokens, float32, and by how much another token is likelier."""
    config = read_config(folder)
    graph, parameters = weights.load(folder, config)

    @jax.jit
    def run(parameters, tokens, valid):
        model = nnx.merge(graph, parameters)
        logprobs = jax.nn.log_softmax(model.logits(model(tokens, token_positions(valid), valid)))[:, :-1]
        own = jnp.take_along_axis(logprobs, tokens[:, 1:, None], axis=-1)[..., 0]
        return own, logprobs.max(axis=-1) - own

    def of(ids, answer):
        row = np.zeros((1, WIDTH), np.int32)
        row[0, : len(ids) + len(answer)] = [*ids, *answer]
        valid = np.arange(WIDTH)[None] < len(ids) + len(answer)
        return [np.asarray(x)[0, len(ids) - 1 :][: len(answer)] for x in run(parameters, row, valid)]

    return of


@pytest.fixture(scope="module")
def prompts(tokenizer) -> list[list[int]]:
    """Ten questions, and ten boards of 3x3."""
    boards = load("validation")
    boards = take(boards, np.flatnonzero(boards.instances.size == 3)[:10]).instances
    messages = [*QUESTIONS, *(prompt(boards[i], PromptStyle.COORDINATES) for i in range(10))]
    rows = [tokenizer.chat(message, thinking=False) for message in messages]
    assert max(map(len, rows)) + LENGTH <= WIDTH
    return rows


def test_answers_are_llama_cpps(exact_file, prompts, score):
    """Log-probabilities of 20 answers' tokens differ by less than 0.002, and by 0.0005 in the root mean square.

    Ten answers are greedy: where ours would first be another, its token is likelier by less than 0.002.
    """
    with servers.llama_cpp_file(exact_file, "float32") as url:
        answers = ask(url, prompts)
    differences, gaps = [], []
    for i, (ids, (answer, theirs)) in enumerate(zip(prompts, answers, strict=True)):
        ours, gap = score(ids, answer)
        differences.append(ours - theirs)
        if i % 2 == 0:
            gaps.append(next((float(x) for x in gap if x > 0), 0.0))
    differences = np.concatenate(differences)
    told = f"{differences.size} tokens: {np.abs(differences).max()}, {differences.std()}, {differences.mean()}; {gaps}"
    assert differences.size > 200, told
    assert np.abs(differences).max() < 0.002 and np.sqrt((differences**2).mean()) < 0.0005 and max(gaps) < 0.002, told
