"""google-tunix's vanilla sampler on its own Qwen3, float32. Arguments: a model folder, room for prompts and answers."""

import json
import sys
import time
from pathlib import Path

import jax.numpy as jnp
from protocol import serve_requests
from tunix.generate.sampler import CacheConfig, Sampler
from tunix.models.qwen3.model import ModelConfig
from tunix.models.qwen3.params import create_model_from_safe_tensors

folder, prompt_slots, new_tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
raw = json.loads((Path(folder) / "config.json").read_text())
config = ModelConfig(
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

    def encode(self, tokens: list[int]) -> list[int]:
        return tokens

    def decode(self, tokens: list[int]) -> str:
        return ""

    def bos_id(self) -> int:
        return 0  # none

    def eos_id(self) -> int:
        return self.pad_id()

    def pad_id(self) -> int:
        return config.vocab_size - 1


sampler = Sampler(
    create_model_from_safe_tensors(folder, config, dtype=jnp.float32),
    Tokens(),
    CacheConfig(prompt_slots + new_tokens, config.num_layers, config.num_kv_heads, config.head_dim),
)


def generate(prompts: list[list[int]], samples: int, stop_ids: list[int], temperature: float, seed: int) -> dict:
    """`samples` answers to every prompt, with log-probs: seconds, their lengths with the stop and tokens without it."""
    sampling = {"temperature": temperature} if temperature == 0 else {"temperature": temperature, "top_p": 1.0}
    start = time.perf_counter()
    output = sampler(
        [prompt for prompt in prompts for _ in range(samples)],
        max_generation_steps=new_tokens,
        max_prompt_length=prompt_slots,
        return_logprobs=True,
        eos_tokens=stop_ids,
        seed=seed,
        **sampling,
    )
    seconds = time.perf_counter() - start
    answers = [list(map(int, row)) for row in output.tokens]  # without the stop
    return {"all": seconds, "lengths": [min(len(row) + 1, new_tokens) for row in answers], "tokens": answers}


serve_requests(generate)
