"""What the peers of google-tunix share: the shape of the model that we wrote, and tokens instead of texts."""

import json
from pathlib import Path

from tunix.models.qwen3.model import ModelConfig


def read_config(folder: str) -> ModelConfig:
    """Read the shape of a checkpoint in Hugging Face format."""
    raw = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    return ModelConfig(
        num_layers=raw["num_hidden_layers"],
        vocab_size=raw["vocab_size"],
        embed_dim=raw["hidden_size"],
        hidden_dim=raw["intermediate_size"],
        num_heads=raw["num_attention_heads"],
        head_dim=raw["head_dim"],
        num_kv_heads=raw["num_key_value_heads"],
        rope_theta=(raw.get("rope_parameters") or raw)["rope_theta"],
        norm_eps=raw["rms_norm_eps"],
        use_tied_embedding=raw["tie_word_embeddings"],
    )


class Tokens:
    """A tokenizer for texts that are lists of tokens already; the last token of the vocabulary is padding."""

    def __init__(self, vocab_size: int):
        self._padding = vocab_size - 1

    def encode(self, tokens: list[int]) -> list[int]:
        return tokens

    def decode(self, tokens: list[int]) -> str:
        return ""

    def bos_id(self) -> int:
        return 0  # none

    def eos_id(self) -> int:
        return self._padding

    def pad_id(self) -> int:
        return self._padding
