"""Hugging Face's Qwen3 with random weights in torch on a GPU, bfloat16, generating greedily from random prompts.

Arguments: the shape as JSON of a config.json, rows, tokens of a prompt, new tokens.
"""

import json
import sys
import time

import torch
from protocol import serve_requests
from transformers import Qwen3Config, Qwen3ForCausalLM

shape, rows, tokens, new_tokens = sys.argv[1], *map(int, sys.argv[2:])
torch.set_default_device("cuda")
torch.set_default_dtype(torch.bfloat16)
model = Qwen3ForCausalLM(Qwen3Config(**json.loads(shape))).eval()
model.generation_config.eos_token_id = None  # nothing ends an answer before its length
prompts = torch.randint(0, model.config.vocab_size, (rows, tokens))


def seconds(new_tokens: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    with torch.inference_mode():
        model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=False,
            pad_token_id=0,
            max_new_tokens=new_tokens,
        )
    torch.cuda.synchronize()
    return time.perf_counter() - start


seconds(new_tokens)  # the first time takes twice as long
serve_requests(lambda: {"rate": rows * (new_tokens - 1) / (seconds(new_tokens) - seconds(1))})
