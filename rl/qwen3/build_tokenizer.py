"""The command `python -m rl.qwen3.build_tokenizer`: makes the small tokenizer from the project's own texts."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from engineer import examples
from rl.qwen3.tokenizer import TINY_TOKENIZER, build

VOCABULARY = 1024
DESCRIPTION = """\
Makes the small tokenizer from the project's own texts: prompts, contexts and
answers. Needed only when one of these changes; writes the package's files."""
EPILOG = """\
examples:
  python -m rl.qwen3.build_tokenizer
  python -m rl.qwen3.build_tokenizer --folder tokenizer"""


def corpus() -> Iterator[str]:
    """Yield what a small model reads and writes: plan prompts without coordinates, contexts, thoughts and answers."""
    rng = np.random.default_rng(0)
    for size in range(3, 11):
        yield from [
            f"<|im_start|>user\n{size}x{size} holes 0 1 2 3 4<|im_end|>\n<|im_start|>assistant\n\n\n0:\n1:"
        ] * 50
    for _ in range(400):
        sizes = tuple(range(3, int(rng.integers(5, 11))))
        context, thinking, answer, _ = examples.example(rng, sizes, rounds=3, epochs_per_round=2)
        yield f"<|im_start|>user\n{context}<|im_end|>\n<|im_start|>assistant\n"
        yield f"{thinking}\n\n\n{answer}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rl.qwen3.build_tokenizer",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--folder", type=Path, default=TINY_TOKENIZER, metavar="DIR", help="write there (default: the package)"
    )
    folder = parser.parse_args(arguments).folder
    try:
        build(corpus(), folder, VOCABULARY)
    except OSError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
