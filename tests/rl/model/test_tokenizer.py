"""The shipped tokenizer speaks Qwen's format and reads every text back, as a checkpoint's of any family does."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from shapes import SMALL_JSON
from tokenizers import Tokenizer as Backend

from jaxlake import view
from jaxlake.types import Action
from rl.config import ConfigError, load
from rl.config.sections import EngineerSection
from rl.model.policy import Policy
from rl.model.sampler.grammar import allowed_tokens
from rl.model.tokenizer import TINY_TOKENIZER, Tokenizer
from rl.students.turns.views import in_words

TINY = Path("configs/tiny.yaml")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer()


@pytest.fixture
def folder(tmp_path):
    """The shipped tokenizer's files, to be changed."""
    return shutil.copytree(TINY_TOKENIZER, tmp_path / "tokenizer")


def change(file, **values):
    raw = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(raw | values))


def test_padding_is_on_the_right_and_too_long_a_row_names_the_setting(tokenizer):
    tokens, valid = tokenizer.pad_right([[1, 2], [3]], 3, "x")
    assert valid.tolist() == [[True, True, False], [True, False, False]]
    assert tokens[valid].tolist() == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"student.text.max_prompt_tokens = 1 must be at least 2, "):
        tokenizer.pad_right([[1, 2]], 1, "student.text.max_prompt_tokens")


def test_a_checkpoints_tokenizer_goes_through_the_same_class(folder, tokenizer):
    """As a published Qwen3's, with its template in the settings."""
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    change(folder / "tokenizer_config.json", tokenizer_class="ATokenizerOfTomorrow", chat_template=template.rstrip())
    other = Tokenizer(folder)
    text = "0:(0,0)(0,1)\n1:(2,2) <think>Größe</think> \n\n 57 % of it's"
    assert other.encode(text) == tokenizer.encode(text)
    assert other.decode(other.encode(text)) == text
    for thinking in (True, False):
        assert other.chat(text, thinking=thinking) == tokenizer.chat(text, thinking=thinking)
    assert len(other) == len(tokenizer)


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
@pytest.mark.parametrize(
    ("named", "stops"),
    [
        (None, ["<|im_end|>", "<|endoftext|>"]),
        (["<|endoftext|>", "<|im_end|>"], ["<|im_end|>", "<|endoftext|>"]),
        ("<|im_end|>", ["<|im_end|>"]),
        ("<|endoftext|>", ["<|im_end|>", "<|endoftext|>"]),  # a base model: our chats end in <|im_end|> all the same
        (0, ["<|im_end|>", 0]),
    ],
)
def test_stops_are_the_end_of_a_message_and_what_the_files_say(folder, tmp_path, tokenizer, file, named, stops):
    def ids(tokens):
        return [token if token == 0 else tokenizer.id_of(token) for token in tokens]

    if named is not None:
        change(folder / file, eos_token_id=ids(named) if isinstance(named, list) else ids([named])[0], top_k=20)
    trained = Tokenizer(folder)
    assert list(trained.stop_ids) == ids(stops)
    (saved := tmp_path / "final").mkdir()
    for name, content in trained.files().items():
        (saved / name).write_bytes(content)
    assert json.loads((saved / "generation_config.json").read_text())["eos_token_id"] == ids(stops)
    assert Tokenizer(saved).stop_ids == trained.stop_ids


LLAMA3_TEMPLATE = (
    "{{ bos_token }}{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ date_string + m.content | trim }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)


def test_special_tokens_have_the_names_that_the_files_say(folder):
    """In the manner of Llama 3: other names, no padding, no thoughts, and a date in each prompt."""
    names = {"<|im_start|>": "<|start_header_id|>", "<|im_end|>": "<|eot_id|>", "<|endoftext|>": "<|end_of_text|>"}
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["added_tokens"] = [token for token in raw["added_tokens"] if "think" not in token["content"]]
    for token in raw["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    settings = {"bos_token": "<|start_header_id|>", "eos_token": "<|end_of_text|>", "pad_token": None}
    change(folder / "tokenizer_config.json", **settings)
    (folder / "chat_template.jinja").write_text(LLAMA3_TEMPLATE)
    tokenizer = Tokenizer(folder)
    turn, end = (tokenizer.id_of(name) for name in ("<|eot_id|>", "<|end_of_text|>"))
    assert tokenizer.stop_ids == (turn, end) and tokenizer.end_think_id is None
    assert tokenizer.pad_id == turn  # any token will do
    assert tokenizer.completion("go")[-1] == turn
    for thinking in True, False:
        assert "user<|end_header_id|>\n\n26 Jul 2024go<|eot_id|>" in tokenizer.chat_text("go", thinking=thinking)
        assert tokenizer.opened(thinking=thinking) == ""
    text = "<think>\nleft or right?\n</think>"
    assert len(tokenizer.encode("</think>")) > 1 and tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["student.text.thinking=true"],
            "student.text.thinking = true: must be false, as FOLDER has no token",
        ),
        ([], "FOLDER: the embedding has 896 rows, and the tokenizer 1[0-9]+ tokens, "),
    ],
)
def test_a_tokenizer_that_does_not_fit_the_model_or_the_settings_is_refused(folder, settings, message):
    """It has no token for the end of a thought, and one more than the model has rows."""
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens([f"<cell {i}>" for i in range(0 if settings else SMALL_JSON["vocab_size"])])
    raw = json.loads(backend.to_str())
    raw["added_tokens"] = [token for token in raw["added_tokens"] if token["content"] != "</think>"]
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    (folder / "config.json").write_text(json.dumps(SMALL_JSON))
    settings = [f"student.model.path={folder}", "student.model.shape=null", "student.learn.credit=outcome", *settings]
    config = load(TINY, settings)
    with pytest.raises(ConfigError, match=message.replace("FOLDER", str(folder))):
        Policy.create(config.student, config.mesh, jax.random.key(0))


def thinks_in(tokenizer, *thought):
    """Which tokens an engineer's thought may go on with."""
    writer = SimpleNamespace(tokenizer=tokenizer, settings=EngineerSection(), early_stop="")
    writer.sampler = SimpleNamespace(config=SimpleNamespace(vocab_size=1024))
    guide = allowed_tokens(writer, 'start: "x"')
    return [guide.send(token) for token in (None, *thought)][-1]


def test_new_tokens_are_read_saved_and_never_written(folder, tmp_path):
    tokenizer = Tokenizer(folder)
    count = len(tokenizer)
    grown = tokenizer.with_tokens(["a phrase"]).with_tokens(["another"])
    files = grown.files()
    shutil.rmtree(folder)
    assert grown.files() == files  # even after the folder is gone that it came from
    (saved := tmp_path / "saved").mkdir()
    for name, content in files.items():
        (saved / name).write_bytes(content)
    for other in grown, Tokenizer(saved):
        assert other.encode("Answera phraseanother")[-2:] == [count, count + 1] and len(other) == count + 2
        assert other.suppressed == (count, count + 1)
    allowed = thinks_in(grown)
    assert allowed[:count].sum() == count - len(grown.stop_ids) and not allowed[count:].any()
    assert len(tokenizer) == count and tokenizer.id_of("a phrase") is None


def test_flags_of_a_checkpoints_tokens_do_not_change_what_an_answer_is(folder, tokenizer):
    """Tags of a thought that are special tokens stay in the text; markers of a template that are none end a turn."""
    raw = json.loads((folder / "tokenizer.json").read_text())
    for token in raw["added_tokens"]:
        token["special"] = "think" in token["content"]
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    change(folder / "tokenizer_config.json", eos_token="<|endoftext|>")
    flagged = Tokenizer(folder)
    assert flagged.stop_ids == tokenizer.stop_ids
    answer = flagged.completion(text := "<think>\n0:(0,0)\n</think>\n\n1:(1,1)")
    assert answer == tokenizer.completion(text)
    assert flagged.decode(answer) == "".join(flagged.pieces(answer)) == text
    assert thinks_in(flagged, tokenizer.end_think_id).sum() == 1  # the blank line after a thought, and no more of it


@pytest.mark.parametrize("template", [None, "{% for message in messages %}", "{{ raise_exception('no') }}"])
def test_a_tokenizer_that_cannot_be_used_is_one_line(folder, template):
    (folder / "chat_template.jinja").unlink()
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(ConfigError, match=rf"^{folder}: cannot use its tokenizer \(.*\)$"):
        Tokenizer(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="cannot use its tokenizer"):
        Tokenizer(folder)


@pytest.fixture(params=["legacy", "first", "never"])
def sentencepiece(request, folder):
    """A small tokenizer of SentencePiece's kind: Llama 2's form, that of later models, and one that adds no blank."""
    from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Fast

    words = sorted({word for part in view.phrases() for phrase in part for word in phrase.split()} | {"user", "Go"})
    words += [action.name.lower() for action in Action] + list(map(chr, range(33, 127)))
    pieces = ["<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "▁", *(f"<0x{i:02X}>" for i in range(256))]
    pieces += [piece for word in dict.fromkeys(words) for piece in (word, "▁" + word)]
    vocabulary = [(piece, -10.0 + 0.5 * min(len(piece), 12)) for piece in dict.fromkeys(pieces)]
    model = models.Unigram(vocabulary, unk_id=0, byte_fallback=True)
    fast = Fast(model)
    if request.param == "legacy":
        fast.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        strip = [decoders.Strip(" ", 1, 0)]
    else:
        fast.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=request.param, split=False)
        strip = [decoders.Strip(" ", 1, 0)] if request.param == "first" else []
    fast.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    fast.add_special_tokens([AddedToken(t, normalized=False) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    fast.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT)
    return Tokenizer(folder)


def test_a_prompt_of_pieces_is_the_text_as_one(sentencepiece):
    prompt, rng = in_words(sentencepiece), np.random.default_rng(0)
    for _ in range(50):
        numbers = [int(rng.integers(len(part))) for part in prompt.parts]
        tokens, valid = map(np.asarray, prompt.tokens(np.array([numbers])))
        assert tokens[0][valid[0]].tolist() == sentencepiece.chat(
            view.INSTRUCTIONS + view.text(numbers), thinking=False
        )


@pytest.mark.parametrize("text", ["0:(0,0)(0,1)\n1:(2,2)", " Go", "up", '{"3":{"data":0.5}}', "Größe\n\n"])
def test_an_answer_follows_its_prompt_as_in_the_chat_template(sentencepiece, text):
    chat = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": text}]
    whole = sentencepiece._tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)
    ours = sentencepiece.chat("Go", thinking=False) + sentencepiece.completion(text)
    assert list(whole[: len(ours)]) == ours
    assert sentencepiece.decode(sentencepiece.completion(text)) == text
    assert "".join(sentencepiece.pieces(sentencepiece.reply(text))).isascii() <= text.isascii()


def test_a_template_may_write_a_blank_before_the_answer(folder):
    """As Llama 2's, which writes it behind the prompt."""
    (folder / "chat_template.jinja").write_text(
        CHAT.replace("{{ m.content }}", "{{ ' ' * (m.role == 'assistant') }}{{ m.content }}")
    )
    tokenizer = Tokenizer(folder)
    assert tokenizer.lead == " " and Tokenizer().lead == ""
    chat = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "up(1,2)"}]
    whole = tokenizer._tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)
    ours = tokenizer.chat("Go", thinking=False) + tokenizer.completion("up(1,2)")
    assert list(whole[: len(ours)]) == ours
    assert tokenizer.decode(tokenizer.completion("up(1,2)")) == "up(1,2)"
    assert "".join(tokenizer.pieces(tokenizer.completion("up(1,2)"))) == "up(1,2)"


def test_a_tokenizer_whose_tokens_cross_the_end_of_a_phrase_is_refused(sentencepiece, folder):
    first, second = (phrases[0] for phrases in view.phrases()[:2])
    raw = json.loads((folder / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    raw["added_tokens"].append({"id": len(sentencepiece), "content": first[-2:] + second[:2]} | flags)
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match="tokens end where the phrases of a view do, and those of .* do not in"):
        in_words(Tokenizer(folder))
