"""Qwen3's own tokenizer does what is tested of the small one: texts, chats, prompts, grammars, others' folders."""

import json
import os
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from published import published_tokenizer

from rl import config as config_
from rl.command import shipped
from rl.config import EngineerSection
from rl.model.policy import Policy
from rl.model.sampler import Guide
from rl.model.sampler.grammar import GrammarSampler, allowed_tokens
from rl.model.sampler.thinking import closing
from rl.model.sharding import make_mesh
from rl.model.tokenizer import Tokenizer
from rl.students.writer.student import check_room

ROOT = Path(__file__).parents[3]
VOCABULARY = 151_936
"""Rows of the published models' embeddings, more than there are tokens."""


@pytest.fixture(scope="module")
def folder() -> Path:
    return published_tokenizer()


@pytest.fixture(scope="module")
def tokenizer(folder) -> Tokenizer:
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def theirs(folder):
    """The same folder, by transformers."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(folder))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Answers in the manners of real models, in several languages and with thoughts, and some that break tokenizers."""
    answers = yaml.safe_load((ROOT / "tests/jaxlake/data/answers.yaml").read_text())
    strange = ["", " ", "\t\n\n", "e\u0301\u200b\u200d\U0001f389\u00bd\ufb01", "12345 (10,3)", "<|im_end|>"]
    return strange + [answer["text"] for answer in answers]


def test_numbers_are_those_of_the_published_models(tokenizer):
    assert len(tokenizer) == 151_669 <= VOCABULARY
    assert (tokenizer.stop_ids, tokenizer.pad_id, tokenizer.end_think_id) == ((151645, 151643), 151643, 151668)


def test_ids_are_those_of_transformers_and_come_back_as_text(tokenizer, theirs, texts):
    for one in texts:
        ids = tokenizer.encode(one)
        assert ids == theirs.encode(one, add_special_tokens=False), one
        assert tokenizer.decode(ids) == unicodedata.normalize("NFC", one).replace("<|im_end|>", "")


def test_chats_are_those_of_transformers(tokenizer, theirs):
    for thinking, end in ((True, ""), (False, "<think>\n\n</think>\n\n")):
        chat = tokenizer.chat_text("Plan.", thinking=thinking)
        assert chat == f"<|im_start|>user\nPlan.<|im_end|>\n<|im_start|>assistant\n{end}"
        assert chat == theirs.apply_chat_template(
            [{"role": "user", "content": "Plan."}], tokenize=False, add_generation_prompt=True, enable_thinking=thinking
        )
        assert tokenizer.chat("Plan.", thinking=thinking) == theirs.encode(chat)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["qwen3-0.6b", "qwen3-4b", "qwen3-4b-lora", "qwen3-4b-v5e-8"])
def test_the_shipped_configurations_have_room_for_its_prompts(tokenizer, name):
    config = config_.load(shipped(f"{name}.yaml"))
    assert config.student.learn.credit == "outcome"
    mesh = make_mesh(max(config.mesh.fsdp, 1), config.mesh.tp)  # -1: one GPU, and eight devices here
    check_room(Policy(None, None, tokenizer, mesh, config.student.text, config.student.sampler.rows), config)


def answering(tokenizer, grammar) -> tuple[Guide, np.ndarray]:
    """A response whose thought of one token is over, and what its answer may begin with."""
    settings = EngineerSection(max_thinking_tokens=1, max_answer_tokens=400)
    sampler = SimpleNamespace(config=SimpleNamespace(vocab_size=VOCABULARY))
    allow = allowed_tokens(GrammarSampler(sampler, tokenizer, settings), grammar).send
    allowed, token = allow(None), tokenizer.encode("a")[0]
    assert not allowed[list(tokenizer.stop_ids)].any() and allowed.sum() == len(tokenizer) - len(tokenizer.stop_ids)
    for _ in closing(tokenizer, None):
        allowed = allow(token)
        assert allowed.sum() == 1
        token = int(allowed.argmax())
    return allow, allow(token)


@pytest.mark.heavy
def test_a_grammar_admits_just_the_tokens_that_a_word_of_it_can_go_on_with(tokenizer):
    """Beside all 151,669 tried one by one; letters that are certain get the one token that llguidance makes of them."""
    words, pieces = ("yesterday", "yes, today", "no"), tokenizer.pieces(range(len(tokenizer)))
    for tokens in (["y", "es", ",", " today"], ["yes", "ter", "day"], ["n", "o"]):
        allow, allowed = answering(tokenizer, f"start: {' | '.join(map(json.dumps, words))}")
        written = ""
        for piece in tokens:
            left = [word.removeprefix(written) for word in words if word.startswith(written)]
            possible = {i for i, x in enumerate(pieces) if x and any(rest.startswith(x) for rest in left)}
            admitted = set(np.flatnonzero(allowed).tolist())
            assert admitted <= possible and tokenizer.encode(piece)[0] in admitted
            assert os.path.commonprefix(left) or admitted == possible
            allowed, written = allow(tokenizer.encode(piece)[0]), written + piece
        assert np.flatnonzero(allowed).tolist() == [tokenizer.stop_ids[0]]
