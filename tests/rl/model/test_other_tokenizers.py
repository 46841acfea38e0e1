"""Tokenizers unlike the shipped one: ends in other files, a clock in the template, gaps between ids, SentencePiece."""

import datetime
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import transformers.utils.chat_template_utils as templates

from jaxlake import view
from jaxlake.types import Action
from rl.config import ConfigError
from rl.config.sections import EngineerSection
from rl.model.sampler.grammar import Script
from rl.model.tokenizer import TINY_TOKENIZER, Tokenizer
from rl.students.player.views import in_words

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def folder(tmp_path):
    """The shipped tokenizer's files, to be changed."""
    return shutil.copytree(TINY_TOKENIZER, tmp_path / "tokenizer")


def change(file, **values):
    raw = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(raw | values))


@pytest.mark.parametrize(
    "generation", [None, {}, {"eos_token_id": None}, {"eos_token_id": 767, "top_k": 20, "pad_token_id": 1}]
)
def test_what_is_saved_stops_other_programs_where_it_was_trained_to_stop(folder, tmp_path, generation):
    """As a base model's files: their end is <|endoftext|>, and the chats that it is trained on end in <|im_end|>."""
    change(folder / "tokenizer_config.json", eos_token="<|endoftext|>")
    if generation is not None:
        change(folder / "generation_config.json", **generation)
    trained = Tokenizer(folder)
    end, other = trained.id_of("<|im_end|>"), trained.id_of("<|endoftext|>")
    assert trained.stop_ids == (end, other)
    (tmp_path / "final").mkdir()
    for name, content in trained.files().items():
        (tmp_path / "final" / name).write_bytes(content)
    saved = json.loads((tmp_path / "final/generation_config.json").read_text())
    assert saved["eos_token_id"] == [end, other]
    assert {key: saved[key] for key in generation or {} if key != "eos_token_id"} == {
        key: value for key, value in (generation or {}).items() if key != "eos_token_id"
    }
    assert json.loads((tmp_path / "final/tokenizer_config.json").read_text())["eos_token"] == "<|im_end|>"
    again = Tokenizer(tmp_path / "final")
    assert again.stop_ids == trained.stop_ids and again.chat("Go", thinking=False) == trained.chat("Go", thinking=False)


@pytest.mark.parametrize("where", ["top", "text_config"])
@pytest.mark.parametrize("generation", [None, {"top_k": 20}])
def test_ends_may_stand_in_config_json_alone(folder, where, generation):
    ends = {"eos_token_id": [5, 6]}
    change(folder / "config.json", **(ends if where == "top" else {"text_config": ends}))
    if generation is not None:
        change(folder / "generation_config.json", **generation)
    assert Tokenizer(folder).stop_ids[1:] == (5, 6)
    change(folder / "generation_config.json", eos_token_id=7)
    assert Tokenizer(folder).stop_ids[1:] == (7,)
    change(folder / "generation_config.json", eos_token_id=10**6)
    with pytest.raises(ConfigError, match=r"generation_config.json: eos_token_id = 1000000 must be ids from 0 to 895"):
        Tokenizer(folder)


@pytest.mark.parametrize(
    ("clock", "expected"),
    [
        ("{{ strftime_now('%Y-%m-%d') }}", "2024-07-26"),
        ("{{ strftime_now('%B %d, %Y, %H:%M %%') }}", "July 26, 2024, 00:00 %"),
        ("{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% endif %}", "26 Jul 2024"),
        ("{% macro day(form) %}{{ strftime_now(form) }}{% endmacro %}{{ day('%d/%m') }}", "26/07"),
        ("{% if not date_string is defined %}{% set date_string = 'x' %}{% endif %}{{ date_string }}", "26 Jul 2024"),
    ],
)
def test_a_prompt_is_the_same_every_day(folder, monkeypatch, clock, expected):
    class Clock(datetime.datetime):
        day = 1

        @classmethod
        def now(cls, tz=None):
            return cls(2026, 11, cls.day, 23, 59)

    monkeypatch.setattr(templates, "datetime", Clock)
    (folder / "chat_template.jinja").write_text(clock + CHAT)
    tokenizer = Tokenizer(folder)
    before = tokenizer.chat("Go", thinking=False)
    assert tokenizer.chat_text("Go", thinking=False).startswith(f"{expected}<|im_start|>user\nGo<|im_end|>")
    Clock.day = 2
    assert tokenizer.chat("Go", thinking=False) == before


def test_ids_with_a_gap_count_to_the_largest(folder):
    file = folder / "tokenizer.json"
    raw = json.loads(file.read_text())
    raw["model"]["vocab"]["Answer"] = 1000
    file.write_text(json.dumps(raw))
    tokenizer = Tokenizer(folder)
    assert tokenizer.encode("Answer") == [1000] and len(tokenizer) == 1001
    grown = tokenizer.with_tokens(["a phrase"])
    assert grown.id_of("a phrase") == 1001 and grown.encode("a phrase") == [1001] and len(grown) == 1002
    writer = SimpleNamespace(tokenizer=tokenizer, settings=EngineerSection(), early_stop="")
    writer.sampler = SimpleNamespace(config=SimpleNamespace(vocab_size=1024))
    allowed = Script(writer, tokenizer.grammar_tokenizer(1024), 'start: "x"').guide()(None)
    assert allowed[1000] and not allowed[896:1000].any() and not allowed[1001:].any()

    grown = grown.with_tokens(["another"])
    file.write_bytes(grown.files()["tokenizer.json"])
    for other in grown, Tokenizer(folder):
        assert other.encode("Answera phraseanother") == [1000, 1001, 1002] and len(other) == 1003
    writer.tokenizer, writer.settings = grown, EngineerSection(max_thinking_tokens=1)
    allow = Script(writer, grown.grammar_tokenizer(1024), 'start: "Answer" | "yes"').guide()
    allow(None)
    allowed = allow(1000)
    while allowed.sum() == 1:
        allowed = allow(int(allowed.argmax()))
    assert allowed[1000] and {grown.decode([i])[0] for i in np.flatnonzero(allowed)} == {"A", "y"}


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


def test_a_template_that_writes_eos_token_after_a_chat_keeps_it(folder):
    """As Phi-3's, whose turns end in another token."""
    change(folder / "tokenizer_config.json", eos_token="<|endoftext|>")
    (folder / "chat_template.jinja").write_text(CHAT.replace("{% endif %}", "{% else %}{{ eos_token }}{% endif %}"))
    tokenizer = Tokenizer(folder)
    ends = [tokenizer.id_of("<|im_end|>"), tokenizer.id_of("<|endoftext|>")]
    assert list(tokenizer.stop_ids) == json.loads(tokenizer.files()["generation_config.json"])["eos_token_id"] == ends
    assert json.loads(tokenizer.files()["tokenizer_config.json"])["eos_token"] == "<|endoftext|>"


def test_of_several_named_templates_the_default_is_the_chats(folder):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": CHAT}]
    change(folder / "tokenizer_config.json", chat_template=named)
    tokenizer = Tokenizer(folder)
    prompt = "<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.chat_text("Go", thinking=False) == prompt
    (again := folder.parent / "again").mkdir()
    for name, content in tokenizer.files().items():
        (again / name).write_bytes(content)
    assert Tokenizer(again).chat_text("Go", thinking=False) == prompt
    change(folder / "tokenizer_config.json", chat_template=named[:1])
    with pytest.raises(ConfigError, match="cannot use its chat template"):
        Tokenizer(folder)


def test_a_tokenizer_whose_tokens_cross_the_end_of_a_phrase_is_refused(sentencepiece, folder):
    first, second = (phrases[0] for phrases in view.phrases()[:2])
    raw = json.loads((folder / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    raw["added_tokens"].append({"id": len(sentencepiece), "content": first[-2:] + second[:2]} | flags)
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match="tokens end where the phrases of a view do, and those of .* do not in"):
        in_words(Tokenizer(folder))


def test_a_template_that_opens_a_thought_is_refused_by_players_too(folder):
    (folder / "chat_template.jinja").write_text(CHAT.replace("assistant\n", "assistant\n<think>\n"))
    with pytest.raises(ConfigError, match="student.turns.tokens = false: must be true, as every prompt begins a thou"):
        in_words(Tokenizer(folder))
