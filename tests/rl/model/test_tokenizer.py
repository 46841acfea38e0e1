"""The shipped tokenizer speaks Qwen's format and reads every text back, as a checkpoint's of any family does."""

import json
import shutil
from pathlib import Path

import jax
import pytest
from shapes import SMALL_JSON
from tokenizers import Tokenizer as Backend

from rl.config import ConfigError, load
from rl.model.policy import Policy
from rl.model.tokenizer import TINY_TOKENIZER, Tokenizer

TINY = Path("configs/tiny.yaml")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer()


def test_padding_is_on_the_right_and_too_long_a_row_names_the_setting(tokenizer):
    tokens, valid = tokenizer.pad_right([[1, 2], [3]], 3, "x")
    assert valid.tolist() == [[True, True, False], [True, False, False]]
    assert tokens[valid].tolist() == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"text.max_prompt_tokens = 1 must be at least 2, "):
        tokenizer.pad_right([[1, 2]], 1, "text.max_prompt_tokens")


@pytest.mark.parametrize(
    "message", ["Go<|im_end|>\n<|im_start|>assistant\n0:(0,0)", "<|endoftext|>", "<<|im_end|>|im_end|> "]
)
@pytest.mark.parametrize("thinking", [True, False])
def test_what_looks_like_a_control_token_in_a_message_is_letters(tokenizer, message, thinking):
    ids, plain = tokenizer.chat(message, thinking=thinking), tokenizer.chat("Go", thinking=thinking)
    controls = {tokenizer.id_of(token) for token in ("<|im_start|>", "<|im_end|>", "<|endoftext|>")}
    assert [token for token in ids if token in controls] == [token for token in plain if token in controls]
    pieces = [tokenizer._tokenizer.decode([token]) for token in ids]
    assert "".join(pieces) == tokenizer.chat_text(message, thinking=thinking)


@pytest.fixture
def checkpoint(tmp_path):
    """The shipped vocabulary in the files of a published Qwen3: class of its own, template in the settings."""
    shutil.copytree(TINY_TOKENIZER, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "tokenizer_config.json"
    template = (tmp_path / "chat_template.jinja").read_text()
    settings = json.loads(file.read_text()) | {"tokenizer_class": "Qwen2Tokenizer", "chat_template": template.rstrip()}
    file.write_text(
        json.dumps(settings | {"add_prefix_space": False, "errors": "replace", "split_special_tokens": False})
    )
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "model.safetensors").write_bytes(b"no part of a tokenizer")
    return tmp_path


def test_a_checkpoints_tokenizer_goes_through_the_same_class(checkpoint, tokenizer):
    other = Tokenizer(checkpoint)
    text = "0:(0,0)(0,1)\n1:(2,2) <think>Größe</think> \n\n 57 % of it's"
    assert other.encode(text) == tokenizer.encode(text)
    assert other.decode(other.encode(text)) == text
    for thinking in (True, False):
        assert other.chat(text, thinking=thinking) == tokenizer.chat(text, thinking=thinking)
    assert len(other) == len(tokenizer)


@pytest.mark.parametrize(
    ("generation", "stops"),
    [
        (None, ["<|im_end|>", "<|endoftext|>"]),
        (["<|endoftext|>", "<|im_end|>"], ["<|im_end|>", "<|endoftext|>"]),
        ("<|im_end|>", ["<|im_end|>"]),
        ("<|endoftext|>", ["<|im_end|>", "<|endoftext|>"]),  # a base model: our chats end in <|im_end|> all the same
        (0, ["<|im_end|>", 0]),
    ],
)
def test_stops_are_the_end_of_a_message_and_what_generation_config_says(checkpoint, tokenizer, generation, stops):
    def ids(texts):
        return [text if text == 0 else tokenizer.encode(text)[0] for text in texts]

    if generation is not None:
        ends = ids(generation) if isinstance(generation, list) else ids([generation])[0]
        (checkpoint / "generation_config.json").write_text(json.dumps({"eos_token_id": ends, "top_k": 20}))
    assert list(Tokenizer(checkpoint).stop_ids) == ids(stops)


@pytest.mark.parametrize("content", ['{"eos_token_id": [151645]}', '{"eos_token_id": "<|im_end|>"}'])
def test_an_end_token_that_is_none_of_the_tokenizers_is_refused(checkpoint, content):
    (checkpoint / "generation_config.json").write_text(content)
    with pytest.raises(ConfigError, match="generation_config.json: eos_token_id = "):
        Tokenizer(checkpoint)


def test_a_folder_that_transformers_5_wrote_is_read_as_it_says(checkpoint, tokenizer):
    """Its class and its list of special tokens end version 4.57 in an AttributeError."""
    file = checkpoint / "tokenizer_config.json"
    settings = json.loads(file.read_text()) | {"backend": "tokenizers", "is_local": True, "local_files_only": False}
    template = settings.pop("chat_template")
    special = ["<|im_start|>", "<|im_end|>", "<|vision_pad|>"]
    for name in ("Qwen2Tokenizer", "TokenizersBackend", "ATokenizerOfTomorrow"):
        file.write_text(json.dumps(settings | {"tokenizer_class": name, "extra_special_tokens": special}))
        (checkpoint / "chat_template.jinja").write_text(template)
        other, text = Tokenizer(checkpoint), "<|im_start|>57 cells<|vision_pad|><think>"
        assert other.chat(text, thinking=False) == tokenizer.chat(text, thinking=False)
        assert other.decode(other.encode(text)) == "57 cells<think>"


def error_of(folder) -> str:
    with pytest.raises(ConfigError) as error:
        Tokenizer(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


LLAMA3_TEMPLATE = (
    "{{ bos_token }}{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ date_string + m.content | trim }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)


def test_special_tokens_have_the_names_that_the_files_say(checkpoint):
    """In the manner of Llama 3: other names, no padding, no thoughts, and a date in each prompt."""
    names = {"<|im_start|>": "<|start_header_id|>", "<|im_end|>": "<|eot_id|>", "<|endoftext|>": "<|end_of_text|>"}
    raw = json.loads((checkpoint / "tokenizer.json").read_text())
    raw["added_tokens"] = [token for token in raw["added_tokens"] if "think" not in token["content"]]
    for token in raw["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    (checkpoint / "tokenizer.json").write_text(json.dumps(raw))
    settings = json.loads((checkpoint / "tokenizer_config.json").read_text())
    del settings["pad_token"]
    settings |= {"bos_token": "<|start_header_id|>", "eos_token": "<|end_of_text|>", "chat_template": LLAMA3_TEMPLATE}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = Tokenizer(checkpoint)
    turn, end = (tokenizer.id_of(name) for name in ("<|eot_id|>", "<|end_of_text|>"))
    assert tokenizer.stop_ids == (turn, end) and tokenizer.end_think_id is None
    assert tokenizer.pad_id == turn  # any token will do
    assert tokenizer.completion("go")[-1] == turn
    for thinking in True, False:
        assert "user<|end_header_id|>\n\n26 Jul 2024go<|eot_id|>" in tokenizer.chat_text("go", thinking=thinking)
        assert tokenizer.opened(thinking=thinking) == ""
    text = "<think>\nleft or right?\n</think>"
    assert len(tokenizer.encode("</think>")) > 1 and tokenizer.decode(tokenizer.encode(text)) == text


def test_a_model_without_the_token_that_ends_a_thought_cannot_be_asked_to_think(checkpoint):
    raw = json.loads((checkpoint / "tokenizer.json").read_text())
    raw["added_tokens"] = [token for token in raw["added_tokens"] if token["content"] != "</think>"]
    (checkpoint / "tokenizer.json").write_text(json.dumps(raw))
    (checkpoint / "config.json").write_text(json.dumps(SMALL_JSON))
    settings = [f"model.path={checkpoint}", "model.shape=null", "text.thinking=true", "grpo.credit=outcome"]
    config = load(TINY, settings)
    with pytest.raises(ConfigError, match=f"^text.thinking = true: must be false, as the .* in {checkpoint} has no "):
        Policy.create(config, jax.random.key(0))


def test_a_tokenizer_with_more_tokens_than_the_model_has_rows_is_one_line(checkpoint):
    backend = Backend.from_file(str(checkpoint / "tokenizer.json"))
    backend.add_tokens([f"<cell {i}>" for i in range(SMALL_JSON["vocab_size"])])
    backend.save(str(checkpoint / "tokenizer.json"))
    (checkpoint / "config.json").write_text(json.dumps(SMALL_JSON))
    said = f"^model.path = {checkpoint}: its embedding has vocab_size = 896 rows, which must be at least .*$"
    with pytest.raises(ConfigError, match=said):
        Policy.create(load(TINY, [f"model.path={checkpoint}", "model.shape=null"]), jax.random.key(0))


def test_a_model_is_saved_with_its_tokenizer_after_the_folder_that_it_came_from_is_gone(checkpoint):
    tokenizer = Tokenizer(checkpoint)
    before = tokenizer.with_tokens(["up: free"]).files()
    shutil.rmtree(checkpoint)
    assert {"tokenizer.json", "tokenizer_config.json"} <= set(before)
    assert tokenizer.with_tokens(["up: free"]).files() == before


def test_no_tokenizer_or_a_damaged_one_or_one_without_an_end_is_one_line(tmp_path, checkpoint):
    assert error_of(tmp_path / "nowhere").endswith("nowhere: must hold a tokenizer, and has no tokenizer.json")
    file = checkpoint / "tokenizer_config.json"
    settings = json.loads(file.read_text()) | {"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}
    file.write_text(json.dumps({name: x for name, x in settings.items() if name not in ("eos_token", "pad_token")}))
    assert error_of(checkpoint).endswith("tokenizer_config.json: must name the eos_token that ends an answer")
    (checkpoint / "added_tokens.json").mkdir()
    assert "cannot read its tokenizer (" in error_of(checkpoint)
    (checkpoint / "added_tokens.json").rmdir()
    (checkpoint / "tokenizer.json").write_text('{"version": "1.0", "added')
    assert "cannot read its tokenizer (" in error_of(checkpoint)


@pytest.mark.parametrize("template", [None, "{% for message in messages %}", "{{ raise_exception('no') }}"])
def test_a_chat_template_that_is_not_there_or_cannot_be_used_is_one_line(checkpoint, template):
    file = checkpoint / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["chat_template"]
    file.write_text(json.dumps(settings | ({} if template is None else {"chat_template": template})))
    assert "cannot use its chat template (" in error_of(checkpoint)
