"""Text to tokens and back by a chat template, with a checkpoint's tokenizer or the small one that ships.

The shipped one (`tiny_tokenizer/`, Hugging Face format) is for models trained from scratch: a byte-level BPE of 896
tokens with Qwen's special ones, in which every coordinate is one token, and every number from 0 to 100 with its blank.
"""

import copy
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import TemplateError

from rl.config import ConfigError

MARK = "\ufdd0"
"""Breaks what looks like a control token in a message; Unicode promises that no text has this character."""
ANSWER = "answer"
"""Content of an assistant's turn whose end is looked for in the chat template."""
TINY_TOKENIZER = Path(__file__).parent / "tiny_tokenizer"

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "generation_config.json",
)
"""All that a checkpoint may hold of its tokenizer and of how it is sampled; the last five are not always there."""


class Tokenizer:
    """A Hugging Face tokenizer with a chat template.

    Args:
      path: folder with `tokenizer.json` and `tokenizer_config.json`; of a checkpoint, or the shipped one.

    Attributes:
      folder: the path.
      stop_ids: any of these ends an answer: first the one that ends the assistant's turn in the chat template (without
        one there, tokenizer_config.json's `eos_token`), then those of generation_config.json.
      pad_id: id of tokenizer_config.json's `pad_token`; without one, the first of `stop_ids`.
      end_think_id: id of `</think>`; None where that is no token of its own, but text in several.
      suppressed: ids that are read and never written, such as those of `with_tokens`.

    Raises:
      ConfigError: if there is none, or it has no chat template or no token that ends an answer.
    """

    def __init__(self, path: Path | str = TINY_TOKENIZER):
        # It advises to install PyTorch, and to read by the class that the folder names.
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        from transformers import PreTrainedTokenizerFast  # 2 s to import: paid only when a tokenizer is made

        self.folder = Path(path)
        if not (self.folder / "tokenizer.json").is_file():
            raise ConfigError(f"{path}: must hold a tokenizer, and has no tokenizer.json")
        try:
            # Read now: a run that ends after its folder was moved would save a model without a tokenizer.
            self._files = {name: (self.folder / name).read_bytes() for name in FILES if (self.folder / name).exists()}
            # What tokenizer.json says, whatever class is named beside it: that of transformers 5 would split numbers
            # its own way, and 4.57 knows neither its classes nor its list of special tokens, all of them in that file.
            self._tokenizer = PreTrainedTokenizerFast.from_pretrained(
                str(path), local_files_only=True, extra_special_tokens={}
            )
        except Exception as error:  # the class that `tokenizers` raises
            raise ConfigError(f"{path}: cannot read its tokenizer ({str(error).splitlines()[0]})") from None
        # Kept here, not by `functools.cache`, which would keep every tokenizer for good.
        self._pieces: dict[int, str] = {}
        self._grammar_tokenizers: dict[int, Any] = {}
        try:
            _, answer, after = self._render(("user", ""), ("assistant", ANSWER)).rpartition(ANSWER)
        except (TemplateError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{self.folder}: cannot use its chat template ({str(error).splitlines()[0]}); chat_template.jinja of "
                "the model that this one was trained from belongs beside tokenizer.json"
            ) from None
        self._generation = self._read_generation_config()
        ends = self._generation.get("eos_token_id", [])
        ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
        if any(type(end) is not int or not 0 <= end < len(self) for end in ends):
            file = self.folder / "generation_config.json"
            raise ConfigError(f"{file}: eos_token_id = {ends} must be ids from 0 to {len(self) - 1}")
        special = {i: token.content for i, token in self._tokenizer.added_tokens_decoder.items() if token.special}
        self._control = re.compile("|".join(map(re.escape, sorted(special.values(), key=len, reverse=True))) or "(?!)")
        turn = [token for token in self.encode(after if answer else "") if token in special]
        first = turn[0] if turn else self._tokenizer.eos_token_id
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys([*([] if first is None else [first]), *ends]))
        if not self.stop_ids:
            raise ConfigError(f"{self.folder}/tokenizer_config.json: must name the eos_token that ends an answer")
        pad = self._tokenizer.pad_token_id
        self.pad_id: int = self.stop_ids[0] if pad is None else pad
        self.end_think_id: int | None = self.id_of("</think>")
        self.suppressed: tuple[int, ...] = tuple(self._generation.get("suppress_tokens") or ())
        self._added: list[dict[str, Any]] = []

    def _read_generation_config(self) -> dict[str, Any]:
        """Return what the checkpoint's generation_config.json says; without one, that eos and padding end an answer."""
        content = self._files.get("generation_config.json")
        if content is None:
            ends = self._tokenizer.eos_token_id, self._tokenizer.pad_token_id
            return {"eos_token_id": [end for end in ends if end is not None]}
        try:
            return dict(json.loads(content))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self.folder / 'generation_config.json'}: cannot read it ({error})") from None

    def id_of(self, token: str) -> int | None:
        """Return the id of the token with this very text, None if there is none."""
        return self._tokenizer.get_vocab().get(token)

    def with_tokens(self, texts: Sequence[str]) -> "Tokenizer":
        """Return a tokenizer that has a token of its own for each of these texts besides, which nobody writes."""
        from tokenizers import AddedToken

        grown = copy.copy(self)
        grown._tokenizer = copy.deepcopy(self._tokenizer)
        grown._tokenizer.add_tokens([AddedToken(text, normalized=False) for text in texts])
        ids = [grown._tokenizer.convert_tokens_to_ids(text) for text in texts]
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        grown._added = self._added + [{"id": i, "content": t} | flags for i, t in zip(ids, texts, strict=True)]
        grown.suppressed = (*self.suppressed, *ids)
        grown._pieces, grown._grammar_tokenizers = {}, {}
        return grown

    def files(self) -> dict[str, bytes]:
        """Return the names and contents, as they were read, of what a checkpoint carries of its tokenizer."""
        contents = dict(self._files)
        generation = {"eos_token_id": list(self.stop_ids), "pad_token_id": self.pad_id}
        if self._added:
            generation = self._generation | generation | {"suppress_tokens": list(self.suppressed)}
            contents.pop("generation_config.json", None)
            raw = json.loads(contents["tokenizer.json"])
            raw["added_tokens"] += self._added
            contents["tokenizer.json"] = json.dumps(raw, ensure_ascii=False, indent=1).encode()
        return {"generation_config.json": (json.dumps(generation, indent=2) + "\n").encode()} | contents

    def __len__(self) -> int:
        return len(self._tokenizer)

    def chat(self, message: str, *, thinking: bool) -> list[int]:
        """Return the ids of one user message up to where the assistant speaks; without thinking, its empty span too.

        Control tokens are the chat template's alone: a text such as ``<|im_end|>`` in the message is letters.
        """
        marked = self._control.sub(lambda match: match[0][0] + MARK + match[0][1:], message)
        text, ids = self.chat_text(marked, thinking=thinking), []
        if marked == message:
            return self.encode(text)
        for part in re.split(f"({self._control.pattern})", text):
            letters = not self._control.fullmatch(part)
            ids += self._tokenizer.encode(
                part.replace(MARK, ""), add_special_tokens=False, split_special_tokens=letters
            )
        return ids

    def chat_text(self, message: str, *, thinking: bool) -> str:
        """Return the message in the chat template, control tokens and all: the text of the ids of `chat`."""
        return self._render(("user", message), add_generation_prompt=True, enable_thinking=thinking)

    def _render(self, *turns: tuple[str, str], **settings: bool) -> str:
        """Return turns, each a role and a content, in the chat template."""
        messages = [{"role": role, "content": content} for role, content in turns]
        # The date is Llama 3's default where there is no clock: a prompt must not change from day to day.
        return self._tokenizer.apply_chat_template(messages, tokenize=False, date_string="26 Jul 2024", **settings)

    def opened(self, *, thinking: bool) -> str:
        """Return the text of a thought that the chat template has begun where the assistant speaks, "" if none is open.

        ``<think>\\n`` of Qwen3-4B-Thinking-2507, whatever it is asked for: what such a model writes has no opening tag.
        """
        _, tag, begun = self.chat_text("", thinking=thinking).rpartition("<think>")
        return tag + begun if tag and "</think>" not in begun else ""

    def fits(self, message: str, room: int) -> bool:
        """Whether a user message, in its chat format and with thinking, has at most `room` tokens."""
        return len(self.chat(message, thinking=True)) <= room

    def completion(self, text: str) -> list[int]:
        """Return the ids of what the assistant says, its end token included."""
        return [*self.encode(text), self.stop_ids[0]]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text as it is, without the chat format."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text without control tokens; `<think>` and `</think>` stay."""
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token by itself, "" for one that ends an answer and for other control tokens."""
        for token in set(ids) - self._pieces.keys():
            self._pieces[token] = "" if token in self.stop_ids else self.decode([token])
        return [self._pieces[token] for token in ids]

    def pad_right(self, rows: Sequence[Sequence[int]], length: int, what: str) -> tuple[np.ndarray, np.ndarray]:
        """Pad rows to int32 ``[B, length]`` with their padding on the right, and bool ``[B, length]`` where tokens are.

        Raises:
          ConfigError: if a row is longer than `length`; `what` names the setting to raise.
        """
        check_fit(rows, length, what)
        tokens = np.full((len(rows), length), self.pad_id, np.int32)
        valid = np.zeros((len(rows), length), bool)
        for i, row in enumerate(rows):
            tokens[i, : len(row)] = row
            valid[i, : len(row)] = True
        return tokens, valid

    def grammar_tokenizer(self, vocabulary: int) -> Any:
        """Return the `llguidance.LLTokenizer` of the same vocabulary, for masks of `vocabulary` tokens; made once."""
        import llguidance

        if vocabulary not in self._grammar_tokenizers:
            text = self._tokenizer.backend_tokenizer.to_str()
            self._grammar_tokenizers[vocabulary] = llguidance.LLTokenizer(text, n_vocab=vocabulary)
        return self._grammar_tokenizers[vocabulary]


def check_fit(rows: Sequence[Sequence[int]], room: int, what: str) -> None:
    """Check that every row of tokens fits.

    Raises:
      ConfigError: if one has more than `room`; `what` names the setting to raise.
    """
    longest = max(map(len, rows))
    if longest > room:
        raise ConfigError(f"{what} = {room} must be at least {longest}, the tokens of the longest text of this run")
