"""The shipped tokenizer speaks Qwen's format, reads every text back, and is what its builder makes."""

import pytest

from jaxlake.render import from_text
from jaxlake.text import PromptStyle, prompt
from rl.config import ConfigError
from rl.qwen3 import build_tokenizer
from rl.qwen3.tokenizer import TINY_TOKENIZER, Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer()


def test_every_coordinate_is_one_token(tokenizer):
    for row in range(10):
        for column in range(10):
            assert len(tokenizer.encode(f"({row},{column})")) == 1


@pytest.mark.parametrize(
    "text", ["0:(0,0)(0,1)\n1:(2,2)", "Größe 12 % of 3x3 {}\t\n\n", "", " (12,3) <think>hm</think>"]
)
def test_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_chat_is_qwens(tokenizer):
    ids = tokenizer.chat("hello", thinking=False)
    text = tokenizer._tokenizer.decode(ids)
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    thinking = tokenizer._tokenizer.decode(tokenizer.chat("hello", thinking=True))
    assert thinking == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def test_an_answer_ends_with_qwens_end_of_message(tokenizer):
    assert tokenizer.completion("0:(0,0)")[-1] == tokenizer.encode("<|im_end|>")[0] == tokenizer.stop_ids[0]


def test_a_board_costs_few_tokens(tokenizer):
    board = from_text(["a.#", "#.b", "B.A"], max_size=3, max_agents=2)
    assert len(tokenizer.chat(prompt(board, PromptStyle.COORDINATES), thinking=False)) <= 28


def test_the_shipped_files_are_what_the_builder_makes(tmp_path):
    build_tokenizer.main(tmp_path)
    for file in sorted(TINY_TOKENIZER.iterdir()):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes(), file.name


def test_padding_is_on_the_asked_side_and_too_long_a_row_names_the_setting(tokenizer):
    tokens, valid = tokenizer.pad_left([[1, 2], [3]], 3, "x")
    assert valid.tolist() == [[False, True, True], [False, False, True]]
    assert tokens[1, 2] == 3
    tokens, valid = tokenizer.pad_right([[1, 2], [3]], 3, "x")
    assert valid.tolist() == [[True, True, False], [True, False, False]]
    with pytest.raises(ConfigError, match=r"text.max_prompt_tokens = 1 .* has 2 tokens"):
        tokenizer.pad_left([[1, 2]], 1, "text.max_prompt_tokens")
