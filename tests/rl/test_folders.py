"""A checkpoint's folder that cannot be used ends a command in one line that names what is wrong and what to do."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
from shapes import SMALL
from tokenizers import Tokenizer as Backend

from rl import evaluate
from rl.model import weights
from rl.model.decoder import abstract
from rl.model.tokenizer import Tokenizer

SHAPE = dataclasses.replace(SMALL, vocab_size=900)


def zeros(shape):
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), abstract(shape)[1])


def more_tokens_than_rows(model: Path) -> None:
    backend = Backend.from_file(str(model / "tokenizer.json"))
    backend.add_tokens([f"<cell {i}>" for i in range(10)])
    backend.save(str(model / "tokenizer.json"))


def test_a_tokenizer_with_more_tokens_than_the_model_has_rows_is_one_line(tmp_path, capsys):
    model = tmp_path / "model"
    weights.save(model, SHAPE, zeros(SHAPE), Tokenizer())
    more_tokens_than_rows(model)
    assert evaluate.main(["--model", str(model), "--suite", "validation", "--limit", "1"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"error: model.path = {model}: its embedding has vocab_size = 900 rows, which must be at lea")
    assert err.count("\n") == 1 and "Traceback" not in out
