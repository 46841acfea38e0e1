"""Text to tokens and back by a chat template, with a checkpoint's tokenizer or the small one that ships.

The shipped one (`tiny_tokenizer/`, Hugging Face format) is for models trained from scratch: a byte-level BPE of 896
tokens with Qwen's special ones, in which every coordinate is one token, and every number from 0 to 100 with its blank.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl.config import ConfigError

TURNS = ("user", ""), ("assistant", ANSWER := "answer")
"""A chat whose last turn is looked for in the chat template."""
DATE = "26 Jul 2024"
"""The date in prompts of templates that take one, Llama 3's own: a prompt must not change from day to day."""
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
    """A Hugging Face tokenizer with a chat template, as `transformers` reads it.

    Args:
      path: folder with `tokenizer.json` and `tokenizer_config.json`; of a checkpoint, or the shipped one.
      added: texts that get a token each, which no model writes.

    Attributes:
      folder: the path.
      stop_ids: any of these ends an answer: first the one that ends the assistant's turn in the chat template (without
        one there, tokenizer_config.json's `eos_token`), then the `eos_token_id` of generation_config.json, or without
        one there that of config.json, or in neither eos and padding of tokenizer_config.json.
      pad_id: id of tokenizer_config.json's `pad_token`; without one, the first of `stop_ids`.
      end_think_id: id of `</think>`; None where that is no token of its own, but text in several.
      suppressed: ids that are read and never written, such as those of `added`.
      lead: blanks that the chat template writes between the prompt and what the assistant says; mostly none.
    """

    def __init__(self, path: Path | str = TINY_TOKENIZER, added: Sequence[str] = ()):
        # By no class of its own, which transformers' `AutoTokenizer` would look up with PyTorch: 1.6 s against .6.
        from tokenizers import AddedToken
        from transformers import PreTrainedTokenizerFast

        self.folder = Path(path)
        # Kept here, not by `functools.cache`, which would keep every tokenizer for good.
        self._pieces: dict[int, str] = {}
        self._grammar_tokenizers: dict[int, Any] = {}
        self._added = tuple(added)
        try:
            self._tokenizer = PreTrainedTokenizerFast.from_pretrained(str(path), local_files_only=True)
            # Read now: a run that ends after its folder was moved would save a model without a tokenizer.
            self._files = {name: (self.folder / name).read_bytes() for name in FILES if (self.folder / name).exists()}
            self._generation = self._read("generation_config.json")
            self._prompt = self.chat_text("", thinking=True)
            before, _, after = self._render(*TURNS).rpartition(ANSWER)
        except Exception as error:  # the class that `tokenizers` raises
            raise ConfigError(f"{path}: cannot use its tokenizer ({str(error).splitlines()[0]})") from None
        between = before.removeprefix(self._prompt) if before.startswith(self._prompt) else ""
        self.lead = "" if between.strip() else between
        added_tokens = self._tokenizer.added_tokens_decoder
        eos, pad = self._tokenizer.eos_token_id, self._tokenizer.pad_token_id
        # Special or not: some checkpoints do not flag the markers of their own template.
        turn = [token for token in self.encode(after) if token in added_tokens] or [eos]
        said = self._generation.get("eos_token_id"), self._read("config.json").get("eos_token_id"), [eos, pad]
        ends = next(ids for ids in said if ids is not None)
        stops = [turn[0], *(ends if isinstance(ends, list) else [ends])]
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys(stop for stop in stops if stop is not None))
        self.pad_id: int = self.stop_ids[0] if pad is None else pad
        self.end_think_id: int | None = self.id_of("</think>")
        # Tags stay even if they are flagged special: without them a thought would read as the answer.
        tags = {self.id_of(tag) for tag in ("<think>", "</think>", "<thinking>", "</thinking>")}
        self._silent = {i for i, token in added_tokens.items() if token.special}.union(self.stop_ids) - tags
        self._newline = self.encode("\n", after="")
        self._before = len(self._decode(self._newline))
        count = len(self)
        self._tokenizer.add_tokens([AddedToken(text, normalized=False) for text in added])
        self.suppressed = (*(self._generation.get("suppress_tokens") or ()), *range(count, len(self)))

    def _read(self, name: str) -> dict[str, Any]:
        """Return what a JSON file of the checkpoint says, nothing if it is not there."""
        file = self.folder / name
        return json.loads(file.read_bytes()) if file.exists() else {}

    def id_of(self, token: str) -> int | None:
        """Return the id of the token with this very text, None if there is none."""
        return self._tokenizer.backend_tokenizer.token_to_id(token)

    def with_tokens(self, texts: Sequence[str]) -> "Tokenizer":
        """Return a tokenizer of the same folder that has an extra token for each of these texts too."""
        return Tokenizer(self.folder, (*self._added, *texts))

    def files(self) -> dict[str, bytes]:
        """Return the names and contents, as they were read, of what a checkpoint carries of its tokenizer.

        They name the ends of `stop_ids`, so that other programs stop where this one does.
        """
        contents = dict(self._files)
        settings = {"pad_token_id": self.pad_id} | self._generation | {"eos_token_id": list(self.stop_ids)}
        if self._added:
            settings["suppress_tokens"] = list(self.suppressed)
            contents["tokenizer.json"] = self._tokenizer.backend_tokenizer.to_str(pretty=True).encode()
        contents["generation_config.json"] = (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()
        return contents

    @property
    def digest(self) -> str:
        """A SHA-256 of `files`, by which a run knows its tokenizer again."""
        digest = hashlib.sha256()
        for name, content in sorted(self.files().items()):
            digest.update(f"{name} {len(content)} ".encode() + content)
        return digest.hexdigest()

    def __len__(self) -> int:
        """Return the number of tokens, added ones included: the rows that an embedding must have."""
        return len(self._tokenizer)

    def chat(self, message: str, *, thinking: bool) -> list[int]:
        """Return the ids of one user message up to where the assistant speaks; without thinking, its empty span too."""
        return self.encode(self.chat_text(message, thinking=thinking), after="")

    def chat_text(self, message: str, *, thinking: bool) -> str:
        """Return the message in the chat template, control tokens and all: the text of the ids of `chat`."""
        return self._render(("user", message), add_generation_prompt=True, enable_thinking=thinking)

    def _render(self, *turns: tuple[str, str], **settings: bool) -> str:
        """Return turns, each a role and a content, in the chat template."""
        messages = [{"role": role, "content": content} for role, content in turns]
        return self._tokenizer.apply_chat_template(messages, tokenize=False, date_string=DATE, **settings)

    def opened(self, *, thinking: bool) -> str:
        """Return the text of a thought that the chat template has begun where the assistant speaks, "" if none is open.

        ``<think>\\n`` of Qwen3-4B-Thinking-2507, whatever it is asked for: what such a model writes has no opening tag.
        """
        _, tag, begun = self.chat_text("", thinking=thinking).rpartition("<think>")
        return tag + begun if tag and "</think>" not in begun else ""

    def check_answers_at_once(self, setting: str) -> None:
        """Check that the assistant can speak without a thought; ConfigError names the setting, which must be true."""
        if self.opened(thinking=False):
            raise ConfigError(
                f"{setting} = false: must be true, as every prompt begins a thought by the chat template of "
                f"{self.folder}"
            )

    def fits(self, message: str, room: int) -> bool:
        """Whether a user message, in its chat format and with thinking, has at most `room` tokens."""
        return len(self.chat(message, thinking=True)) <= room

    def reply(self, text: str) -> list[int]:
        """Return the ids of what the assistant says first, as they follow the prompt in the chat template."""
        return self.encode(self.lead + text, after=self._prompt)

    def completion(self, text: str) -> list[int]:
        """Return the ids of all that the assistant says, its end token included."""
        return [*self.reply(text), self.stop_ids[0]]

    def encode(self, text: str, *, after: str = "\n") -> list[int]:
        """Return the ids of a text as it is, without the chat format, within a longer one.

        SentencePiece puts a blank before a text by itself. Where tokens would join over the border, the text stands
        behind an empty line, or by itself.

        Args:
          text: the text.
          after: what stands before it; "" at the beginning.
        """

        def ids(text: str) -> list[int]:
            return self._tokenizer.encode(text, add_special_tokens=False)

        for context in (after, "\n"):
            before, whole = ids(context), ids(context + text)
            if whole[: len(before)] == before:
                return whole[len(before) :]
        return ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of what the assistant says, without control tokens; `<think>` and `</think>` stay."""
        return self._text(ids).removeprefix(self.lead)

    def _text(self, ids: Sequence[int]) -> str:
        """Return the text of ids within a longer one: SentencePiece's decoder drops the blank of a first token."""
        return self._decode([*self._newline, *ids])[self._before :]

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode([i for i in ids if i not in self._silent], clean_up_tokenization_spaces=False)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token of an answer, "" for one that ends it and for other control tokens."""
        for token in set(ids) - self._pieces.keys():
            self._pieces[token] = "" if token in self.stop_ids else self._text([token])
        pieces = [self._pieces[token] for token in ids]
        return [piece.removeprefix(self.lead) for piece in pieces[:1]] + pieces[1:]

    def pad_right(self, rows: Sequence[Sequence[int]], length: int, what: str) -> tuple[np.ndarray, np.ndarray]:
        """Pad rows to int32 ``[B, length]`` with their padding on the right, and bool ``[B, length]`` where tokens are.

        See `check_fit` for a row that is longer.
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
    """Raise ConfigError if a row has more than `room` tokens; `what` names the setting to raise."""
    longest = max(map(len, rows))
    if longest > room:
        raise ConfigError(f"{what} = {room} must be at least {longest}, the tokens of the longest text of this run")
