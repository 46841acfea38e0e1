"""A checkpoint's folder that cannot be used ends a command in one line that names what is wrong and what to do."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from shapes import SMALL
from tokenizers import Tokenizer as Backend

from rl import evaluate
from rl.qwen3 import weights
from rl.qwen3.model import abstract
from rl.qwen3.tokenizer import Tokenizer

SHAPE = dataclasses.replace(SMALL, vocab_size=900)


def zeros(shape):
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), abstract(shape)[1])


def without_template(model: Path) -> None:
    (model / "chat_template.jinja").unlink()


def more_tokens_than_rows(model: Path) -> None:
    backend = Backend.from_file(str(model / "tokenizer.json"))
    backend.add_tokens([f"<cell {i}>" for i in range(10)])
    backend.save(str(model / "tokenizer.json"))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (without_template, "MODEL: cannot use its chat template ("),
        (more_tokens_than_rows, "model.path = MODEL: its embedding has vocab_size = 900 rows, which must be at least "),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_line(tmp_path, capsys, spoil, complaint):
    model = tmp_path / "model"
    weights.save(model, SHAPE, zeros(SHAPE), Tokenizer())
    spoil(model)
    assert evaluate.main(["--model", str(model), "--suite", "validation", "--limit", "1"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"error: {complaint.replace('MODEL', str(model))}")
    assert err.count("\n") == 1 and "Traceback" not in out
