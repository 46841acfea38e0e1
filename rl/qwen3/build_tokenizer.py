"""The command `python -m rl.qwen3.build_tokenizer`: makes the small tokenizer from the project's own texts.

It is a byte-level BPE with Qwen's special tokens. Every coordinate from (0,0) to (9,9) is one token, and so is every
number from 0 to 100 with the blank before it, and what stands before a ratio in a configuration. With Qwen's single
digits a model of half a million parameters named the weakest of four sizes rightly in 58 % of tables after 10,000
examples, with these in 79 %, at half the tokens.
"""

import gzip
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jaxlake.commands import command_parser, mistakes_in_one_line
from rl.qwen3.tokenizer import TINY_TOKENIZER

SPECIAL = (
    ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    + [f"<|{name}_{end}|>" for name in ("object_ref", "box", "quad", "vision") for end in ("start", "end")]
    + ["<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
)
"""Qwen's control tokens, dropped when a text is decoded."""
VISIBLE = (
    ["<tool_call>", "</tool_call>"]
    + [f"<|{name}|>" for name in ("fim_prefix", "fim_middle", "fim_suffix", "fim_pad", "repo_name", "file_sep")]
    + ["<tool_response>", "</tool_response>", "<think>", "</think>"]
)
"""Qwen's added tokens that stay in a decoded text."""

WORD = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+| ?(?:100|\p{N}{1,2})| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
"""Pieces that BPE never merges across: words, numbers, runs of punctuation, line ends (the split Qwen publishes, except
for numbers, which it splits into digits)."""
RATIOS = ['":{"data":0.', ',"hole":0.', ',"wait":0.']
"""Texts before the decimals of a ratio in a configuration."""

VOCABULARY = 896
SETTINGS = ("tokenizer_config.json", "chat_template.jinja")
"""Files that are written by hand; the template is Qwen's, in short."""
TEXTS = Path(__file__).with_name("tokenizer_corpus.jsonl.gz")
"""Contexts and answers of 400 engineer examples, half of them in terse words; a text a line, as JSON."""
DESCRIPTION = """\
Makes the small tokenizer from the project's own texts: prompts, contexts and
answers. Needed only when what is one token changes; writes the package's files."""
EPILOG = """\
examples:
  python -m rl.qwen3.build_tokenizer
  python -m rl.qwen3.build_tokenizer --folder tokenizer"""


def corpus() -> Iterator[str]:
    """Yield what a small model reads and writes: plan prompts without coordinates, numbers, contexts and answers.

    Contexts and answers are a file, drawn once: with those of today a word changed in a template would be another
    tokenizer, and no model that was saved before could be used.
    """
    for size in range(3, 11):
        yield from [
            f"<|im_start|>user\n{size}x{size} holes 0 1 2 3 4<|im_end|>\n<|im_start|>assistant\n\n\n0:\n1:"
        ] * 50
    yield "\n".join(f"{row} {number}" for row in range(101) for number in range(101))
    yield from map(json.loads, gzip.decompress(TEXTS.read_bytes()).decode().splitlines())


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
    whole = [*VISIBLE, *coordinates, *RATIOS]
    added = len(SPECIAL) + len(whole)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - added,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(corpus, trainer)
    backend.add_tokens([AddedToken(text, normalized=False, special=text in SPECIAL) for text in SPECIAL + whole])

    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    for name in SETTINGS:
        if not (folder / name).exists():
            shutil.copy(TINY_TOKENIZER / name, folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = command_parser("rl.qwen3.build_tokenizer", DESCRIPTION, EPILOG)
    parser.add_argument(
        "--folder", type=Path, default=TINY_TOKENIZER, metavar="DIR", help="write there (default: the package)"
    )
    folder = parser.parse_args(arguments).folder
    with mistakes_in_one_line(parser):
        build(corpus(), folder, VOCABULARY)
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
