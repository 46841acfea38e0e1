"""Text to tokens and back by Qwen's chat template; builds the small tokenizer that ships for from-scratch models.

The shipped one (`tiny_tokenizer/`, Hugging Face format) is a byte-level BPE with Qwen's special tokens, digits split
one by one as Qwen does, and every coordinate from (0,0) to (9,9) as one token. A run with a Qwen3 checkpoint takes
that checkpoint's own tokenizer through the same class.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl.config import ConfigError

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

SPECIAL = (
    ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    + [f"<|{name}_{end}|>" for name in ("object_ref", "box", "quad", "vision") for end in ("start", "end")]
    + ["<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
)
"""Qwen's control tokens, dropped when a text is decoded."""
VISIBLE = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"] + [
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]
"""Qwen's added tokens that stay in a decoded text."""

CHAT_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""What BPE never merges across: words, single digits, runs of punctuation, line ends (the split Qwen publishes)."""


class Tokenizer:
    """A Hugging Face tokenizer with Qwen's chat format.

    Args:
      path: folder with `tokenizer.json` and `tokenizer_config.json`; of a checkpoint, or the shipped one.

    Attributes:
      folder: that path.
      stop_ids: any of these ends an answer: `<|im_end|>` first, then those of generation_config.json.
      pad_id, end_think_id: of `<|endoftext|>` and `</think>`.

    Raises:
      ConfigError: if there is none, or it is not Qwen's.
    """

    def __init__(self, path: Path | str = TINY_TOKENIZER):
        # It advises to install PyTorch, which nothing here needs.
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        from transformers import AutoTokenizer  # 2 s to import: paid only when a tokenizer is made

        try:
            self._tokenizer = AutoTokenizer.from_pretrained(str(path), local_files_only=True)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: must be a folder with a tokenizer ({str(error).splitlines()[0]})") from None
        ids = self._tokenizer.convert_tokens_to_ids
        vocabulary = self._tokenizer.get_vocab()  # Qwen2's class has <|endoftext|> as the id of any unknown
        missing = [name for name in ("<|im_end|>", "<|endoftext|>", "</think>") if name not in vocabulary]
        if missing:
            raise ConfigError(f"{path}: must be a tokenizer of Qwen3, and lacks {', '.join(missing)}")
        self.folder = Path(path)
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys([ids("<|im_end|>"), *self._generation_stops()]))
        self.pad_id: int = ids("<|endoftext|>")
        self.end_think_id: int = ids("</think>")

    def _generation_stops(self) -> list[int]:
        """Read the end tokens of the checkpoint's generation_config.json, one or several; without it <|endoftext|>."""
        file = self.folder / "generation_config.json"
        if not file.exists():
            return [self._tokenizer.convert_tokens_to_ids("<|endoftext|>")]
        try:
            ends = json.loads(file.read_text()).get("eos_token_id") or []
        except (OSError, ValueError, AttributeError) as error:
            raise ConfigError(f"{file}: cannot read it ({error})") from None
        ends = ends if isinstance(ends, list) else [ends]
        if any(type(end) is not int or not 0 <= end < len(self) for end in ends):
            raise ConfigError(f"{file}: eos_token_id = {ends} must be ids from 0 to {len(self) - 1}")
        return ends

    def files(self) -> dict[str, bytes]:
        """Return the names and contents, as they were read, of what a checkpoint carries of its tokenizer."""
        contents = {name: (self.folder / name).read_bytes() for name in FILES if (self.folder / name).exists()}
        generation = {"eos_token_id": list(self.stop_ids), "pad_token_id": self.pad_id}
        return {"generation_config.json": (json.dumps(generation, indent=2) + "\n").encode()} | contents

    def __len__(self) -> int:
        return len(self._tokenizer)

    def chat(self, message: str, *, thinking: bool) -> list[int]:
        """Return the ids of one user message up to where the assistant speaks; without thinking, its empty span too."""
        return self.encode(self.chat_text(message, thinking=thinking))

    def chat_text(self, message: str, *, thinking: bool) -> str:
        """Return the text that `chat` encodes: the message in the chat template, control tokens and all."""
        return self._tokenizer.apply_chat_template(
            [{"role": "user", "content": message}], tokenize=False, add_generation_prompt=True, enable_thinking=thinking
        )

    def completion(self, text: str) -> list[int]:
        """Return the ids of what the assistant says, its end token included."""
        return [*self.encode(text), self.stop_ids[0]]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text as it is, without the chat format."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text without control tokens; `<think>` and `</think>` stay."""
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

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
        """Return the `llguidance.LLTokenizer` of the same vocabulary, for masks of `vocabulary` tokens."""
        import llguidance

        return llguidance.LLTokenizer(self._tokenizer.backend_tokenizer.to_str(), n_vocab=vocabulary)


def check_fit(rows: Sequence[Sequence[int]], room: int, what: str) -> None:
    """Check that every row of tokens fits.

    Raises:
      ConfigError: if one has more than `room`; `what` names the setting to raise.
    """
    longest = max(map(len, rows))
    if longest > room:
        raise ConfigError(f"{what} = {room} must be at least {longest}, the tokens of the longest text of this run")


def build(corpus: Iterable[str], folder: Path, vocabulary: int) -> None:
    """Train the small tokenizer on `corpus` and writes it to `folder` in Hugging Face format."""
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Backend

    backend = Backend(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    coordinates = [f"({row},{column})" for row in range(10) for column in range(10)]
    added = len(SPECIAL) + len(VISIBLE) + len(coordinates)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - added,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(corpus, trainer)
    backend.add_tokens([AddedToken(text, normalized=False, special=text in SPECIAL) for text in SPECIAL + VISIBLE])
    backend.add_tokens([AddedToken(text, normalized=False, special=False) for text in coordinates])

    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 40960,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE + "\n")
