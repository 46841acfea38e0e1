"""Rebuilds the shipped small tokenizer from the project's own texts; needed only when a prompt or context changes.

python -m rl.qwen3.build_tokenizer
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from engineer import examples
from rl.qwen3.tokenizer import TINY_TOKENIZER, build

VOCABULARY = 1024


def corpus() -> Iterator[str]:
    """What a small model reads and writes: plan prompts without their coordinates, contexts, thoughts and answers."""
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


def main(folder: Path = TINY_TOKENIZER) -> None:
    build(corpus(), folder, VOCABULARY)


if __name__ == "__main__":
    main()
