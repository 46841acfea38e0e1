"""A checkpoint's folder that cannot be used ends a command in one line that names what is wrong and what to do."""

import dataclasses
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from shapes import SMALL
from tokenizers import Tokenizer as Backend

from rl import evaluate
from rl.config import LoRASection
from rl.qwen3 import lora, weights
from rl.qwen3.model import abstract
from rl.qwen3.tokenizer import Tokenizer

SHAPE = dataclasses.replace(SMALL, vocab_size=900)
ADAPTED = dataclasses.replace(SHAPE, lora=LoRASection(rank=2, targets=("q_proj",)))


def zeros(shape):
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), abstract(shape)[1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A model of two files with its tokenizer."""
    folder = tmp_path_factory.mktemp("whole")
    parameters = jax.tree.map(jax.numpy.asarray, zeros(SHAPE))
    weights.save(folder, SHAPE, parameters, Tokenizer(), max_shard_bytes=58_000)
    assert len(list(folder.glob("model-*.safetensors"))) == 2
    return folder


@pytest.fixture
def model(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "model"))


@pytest.fixture
def complaint(capsys, model):
    def of() -> str:
        """What the command says of the folder, which must be one line."""
        capsys.readouterr()
        assert evaluate.main(["--model", str(model), "--suite", "validation", "--limit", "1"]) == 2
        out, err = capsys.readouterr()
        assert err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in out
        return err.removeprefix("error: ").rstrip().replace(str(model), "MODEL")

    return of


def test_no_tokenizer(model, complaint):
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (model / name).unlink()
    assert complaint() == "MODEL: must hold a tokenizer, and has no tokenizer.json"


def test_no_chat_template(model, complaint):
    (model / "chat_template.jinja").unlink()
    assert complaint() == (
        "MODEL: must have a chat template; chat_template.jinja of the model that this one was trained from belongs "
        "beside tokenizer.json"
    )


def test_adapters_alone(model, complaint):
    shutil.rmtree(model)
    lora.save(model, ADAPTED.lora, jax.tree.map(jax.numpy.asarray, zeros(ADAPTED)), "Qwen/Qwen3-4B")
    assert complaint() == (
        "model.path = MODEL: must be a whole model, and holds adapters alone; a run has the merged model in the folder "
        "above them, and PEFT's merge_and_unload makes one of others"
    )


def test_pointers_of_git_lfs(model, complaint):
    for file in [*model.glob("*.safetensors"), model / "tokenizer.json"]:
        file.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{64 * '0'}\nsize 11422654\n")
    assert complaint() == (
        "model.path = MODEL: model-00001-of-00002.safetensors, model-00002-of-00002.safetensors, tokenizer.json must "
        "be the files that git-lfs keeps elsewhere, and only point to them; run git lfs pull in that folder"
    )


def test_a_missing_shard(model, complaint):
    (model / "model-00002-of-00002.safetensors").unlink()
    assert complaint() == "model.path = MODEL: file model-00002-of-00002.safetensors is missing"


def test_more_tokens_than_rows_of_the_embedding(model, complaint):
    backend = Backend.from_file(str(model / "tokenizer.json"))
    backend.add_tokens([f"<cell {i}>" for i in range(10)])
    backend.save(str(model / "tokenizer.json"))
    assert complaint() == (
        "model.path = MODEL: its embedding has vocab_size = 900 rows, which must be at least the 906 tokens of its "
        "tokenizer"
    )
