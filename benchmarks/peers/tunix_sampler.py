"""google-tunix's vanilla sampler on its own Qwen3, float32. Arguments: a model folder, room for prompts and answers."""

import sys
import time

import jax.numpy as jnp
from protocol import serve_requests
from tunix.generate.sampler import CacheConfig, Sampler
from tunix.models.qwen3.params import create_model_from_safe_tensors
from tunix_model import Tokens, read_config

folder, prompt_slots, new_tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
config = read_config(folder)

sampler = Sampler(
    create_model_from_safe_tensors(folder, config, dtype=jnp.float32),
    Tokens(config.vocab_size),
    CacheConfig(prompt_slots + new_tokens, config.num_layers, config.num_kv_heads, config.head_dim),
)


def generate(prompts: list[list[int]], samples: int, stop_ids: list[int], temperature: float, seed: int) -> dict:
    """Sample `samples` answers to every prompt, with log-probs: seconds, lengths with the stop, tokens without it."""
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
