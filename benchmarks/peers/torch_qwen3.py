"""Hugging Face's Qwen3 in torch on the CPU, float32. Arguments: a model folder, the number of threads."""

import sys
import time

import torch
from protocol import serve_requests
from transformers import Qwen3ForCausalLM

folder, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
model.generation_config.eos_token_id = None  # nothing ends an answer before its length
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)


def generate(prompts: list[list[int]], new_tokens: int) -> dict:
    """Greedy answers of exactly `new_tokens` tokens: seconds of the first one and of all, and all of them."""
    inputs = torch.tensor(prompts)
    settings = {"attention_mask": torch.ones_like(inputs), "do_sample": False, "pad_token_id": 0}
    model.eval()
    with torch.inference_mode():
        start = time.perf_counter()
        model.generate(inputs, max_new_tokens=1, **settings)
        first = time.perf_counter()
        tokens = model.generate(inputs, max_new_tokens=new_tokens, **settings)
        end = time.perf_counter()
    return {"first": first - start, "all": end - first, "tokens": tokens[:, inputs.shape[1] :].tolist()}


def train(rows: list[list[int]]) -> dict:
    """One step on the mean cross-entropy of all next tokens: seconds, and the loss before it."""
    inputs = torch.tensor(rows)
    model.train()
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = model(input_ids=inputs, labels=inputs, use_cache=False).loss
    loss.backward()
    optimizer.step()
    return {"all": time.perf_counter() - start, "loss": loss.item()}


def multiply(shapes: list[tuple[int, int, int]], backward: bool) -> dict:
    """Products of random matrices alone, as `machine.multiply` makes them in XLA: seconds, the best of three."""
    xs = [torch.randn(rows, inputs, requires_grad=backward) for rows, inputs, _ in shapes]
    ws = [torch.randn(outputs, inputs, requires_grad=backward) for _, inputs, outputs in shapes]
    taken = []
    for _ in range(4):
        start = time.perf_counter()
        ys = [torch.nn.functional.linear(x, w) for x, w in zip(xs, ws, strict=True)]
        if backward:
            torch.autograd.grad(ys, xs + ws, [y.detach() for y in ys])
        taken.append(time.perf_counter() - start)
    return {"seconds": min(taken)}


TASKS = {"generate": generate, "train": train, "multiply": multiply}
serve_requests(lambda task, **request: TASKS[task](**request))
