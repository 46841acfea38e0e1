"""A thought that the chat template begins in the prompt is part of the answer: nothing in it is read as the plan."""

import shutil

import jax
import numpy as np
import pytest

from jaxlake.benchmark import load, take
from jaxlake.board_text import from_text
from rl.config import ConfigError, TextSection
from rl.judge.answers import judge
from rl.judge.record import Answer
from rl.judge.suite import score_answers
from rl.learn.supervised import response
from rl.model.policy import Policy
from rl.model.sampler import Rollout
from rl.model.tokenizer import TINY_TOKENIZER, Tokenizer

BOARD = from_text(["a.A", "b.B", "..."], max_size=3, max_agents=2)
PLAN = "0:(0,0)(0,1)(0,2)\n1:(1,0)(1,1)(1,2)"


@pytest.fixture(scope="module")
def always(tmp_path_factory) -> Tokenizer:
    """The shipped tokenizer with a template like that of Qwen3-4B-Thinking-2507."""
    folder = tmp_path_factory.mktemp("thinking") / "tokenizer"
    shutil.copytree(TINY_TOKENIZER, folder)
    (folder / "chat_template.jinja").write_text(
        "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
        "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"
    )
    return Tokenizer(folder)


def policy(tokenizer: Tokenizer, thinking: bool) -> Policy:
    return Policy(None, None, tokenizer, None, TextSection(thinking=thinking), rows=1)


def read(written: str, by: Policy) -> bool:
    """Whether what a policy wrote tells a plan."""
    tokens = np.array([by.tokenizer.encode(written)])
    rollout = Rollout(
        tokens=tokens,
        mask=np.ones(tokens.shape, bool),
        forced=np.zeros(tokens.shape, bool),
        logprobs=np.zeros(tokens.shape, np.float32),
        truncated=np.array([False]),
    )
    boards = jax.tree.map(lambda x: np.asarray(x)[None], BOARD)
    by.prompts(boards)
    return bool(judge(boards, np.array([4]), by.read(boards, rollout)).valid[0])


def test_a_draft_in_a_thought_that_was_cut_off_is_no_answer(always):
    thinks = policy(always, thinking=True)
    assert not read(f"I could go {PLAN}", thinks)
    assert read(f"Hm.\n</think>\n\n{PLAN}", thinks)
    assert read(PLAN, policy(Tokenizer(), thinking=True))  # whose template begins none


def test_a_model_that_always_thinks_is_not_told_that_it_does_not(always):
    boards = jax.tree.map(lambda x: np.asarray(x)[None], BOARD)
    with pytest.raises(
        ConfigError, match=r"student.text.thinking = false: must be true, as every prompt begins a thought"
    ):
        policy(always, thinking=False).prompts(boards)


def test_what_is_taught_follows_on_what_the_prompt_has_begun(always):
    for tokenizer in (always, Tokenizer()):
        message = tokenizer.chat("design", thinking=True) + response(tokenizer, "Holes.", "{}")
        text = tokenizer._tokenizer.decode(message)
        assert text.endswith("assistant\n<think>\nHoles.\n</think>\n\n{}<|im_end|>")


def test_the_answers_of_a_server_tell_whether_its_template_begins_a_thought():
    drafts = [
        "0:(1,2)(1,1)\n1:(2,2)(2,1)(2,0)(1,0)(0,0)\n2:(0,1)(0,2)",
        "0:(2,0)(1,0)(0,0)\n1:(2,1)(3,1)\n2:(1,1)(1,1)(1,0)\n3:(0,1)(0,2)",
    ]
    suite = load("test")
    boards = take(suite, np.flatnonzero(np.isin(suite.ids, ["3ag_3x3_hr0.1_000", "4ag_4x4_hr0.5_020"])))

    def valid(*texts: str) -> list[bool]:
        answers = {(name, 0): Answer(name, 0, said, None, True) for name, said in zip(boards.ids, texts, strict=True)}
        return score_answers(boards, answers, 1).valid.tolist()

    thought = f"Hm.\n</think>\n\n{drafts[0]}"
    assert valid(*drafts) == [True, True]  # a model that shows no thoughts
    assert valid(thought, f"I could go {drafts[1]}") == [True, False]  # the second was cut off in a thought
    assert valid(f"<think>\n{thought}", drafts[1]) == [True, True]  # each opens its own thoughts
