"""How near does Qwen3-4B come to what a GPU can do? Decoding against its
bandwidth, training against its FLOPs.

Decoding: eight answers to each of several prompts, 64 and 128 at once, from
1,024 and 3,072 tokens on. The bound is the bandwidth of a plain copy, measured
here, over the bytes that a step cannot avoid: all weights, and the keys and
values of the tokens so far. Training: the supervised step of `rl/sft/` on rows
of 2,048 tokens, with all parameters where the memory is there for them (100
GB), and with adapters. The bound is the chip's rated bfloat16 rate (of a chip
that we do not know: that of a product of matrices, measured) over the analytic
FLOPs of a token, recomputation not counted: the ratio is the MFU. Each line is
a process of its own, so that its peak of memory is its own.

examples:
  python benchmarks/qwen3_gpu.py
      Qwen3-4B with random weights, bfloat16; some ten minutes
  python benchmarks/qwen3_gpu.py --quick
      the tiny model on whatever is here, also a CPU: only that the script
      works
"""

import dataclasses
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")  # 0.75 by default: too little for 128 x 3k tokens

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from side_by_side import fail, header, read_options, report, row  # noqa: E402

from rl import grpo, sft  # noqa: E402
from rl.config import LoRASection  # noqa: E402
from rl.qwen3 import lora, presets  # noqa: E402
from rl.qwen3.logprobs import join  # noqa: E402
from rl.qwen3.model import Qwen3Config, abstract, create  # noqa: E402
from rl.qwen3.sharding import for_rollout, make_mesh, shard_batch  # noqa: E402
from rl.sampler import Sampler, SamplingParams  # noqa: E402

PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
}
"""Dense bfloat16 FLOP/s by the vendor's data sheets; the first name that the device's contains."""
SAMPLES = 8
DECODE_TARGET, TRAIN_TARGET = 0.6, 0.4
FULL_BYTES = 100e9  # float32 parameters, their gradient and Adam's moments are 64 GB of Qwen3-4B; then activations


@dataclasses.dataclass(frozen=True)
class Case:
    """What one process measures: `run` gets the case and returns rates, bounds and peak bytes."""

    name: str
    run: Callable[["Case"], dict]
    target: float | None
    model: str
    rows: int
    tokens: int  # of a prompt, or of a training row
    new_tokens: int = 0
    adapters: bool = False
    repeats: int = 3


def main() -> None:
    options = read_options(__doc__, quick="the tiny model, on a GPU or not")

    device = alone(describe)
    if device["platform"] != "gpu":
        if not options.quick:
            fail("no GPU here; --quick runs the tiny model anywhere")
        print(f"No GPU here: this is a {device['platform']}, and the figures say nothing but that the script works.")
    print(f"{device['kind']}, JAX {jax.__version__}, {device['bytes'] / 2**30:.0f} GiB")
    print(f"{header('tokens per second', 'bound')}  peak GiB")
    rows = []
    for case in cases(options.quick, device["bytes"]):
        try:
            measured = alone(case.run, case)
        except jax.errors.JaxRuntimeError as error:
            print(f"{case.name:34} does not run: {str(error).splitlines()[0]}")
            continue
        rows.append(
            row(
                case.name,
                measured["rates"],
                measured["bounds"],
                case.target,
                **measured["facts"],
                device=device["kind"],
            )
        )
        print(f"{rows[-1].line()}  {measured['facts']['peak_gib']:8.1f}", flush=True)
    report(rows, options.json)


def cases(quick: bool, memory: int) -> list[Case]:
    model, decodes, length, new_tokens = "qwen3-4b", [(64, 1024), (64, 3072), (128, 1024), (128, 3072)], 2048, 256
    decoding, training = DECODE_TARGET, TRAIN_TARGET
    if quick:
        model, decodes, length, new_tokens = "tiny", [(16, 64)], 128, 16
        decoding = training = None  # no model to be fast with
    wanted = [
        Case(f"decode, {rows} rows, {tokens} tokens on", decode, decoding, model, rows, tokens, new_tokens)
        for rows, tokens in decodes
    ]
    if memory >= FULL_BYTES or quick:
        wanted.append(Case(f"train, 4 x {length}", train, training, model, 4, length))
    return [*wanted, Case(f"train adapters, 4 x {length}", train, training, model, 4, length, adapters=True)]


def alone(function: Callable, *arguments: object) -> dict:
    """Calls `function` in a process of its own, so that this one never holds the device."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def describe() -> dict:
    device = jax.devices()[0]
    return {"platform": device.platform, "kind": device.device_kind, "bytes": memory(device).get("bytes_limit", 0)}


def decode(case: Case) -> dict:
    """Tokens a second of all answers after their first token, and the same by memory traffic alone."""
    config = dataclasses.replace(presets.shape_of(case.model), dtype=jnp.bfloat16)
    bandwidth = copy_bandwidth()
    mesh = make_mesh(fsdp=1, tp=1)
    graph, parameters = create(config, jax.random.key(0), mesh)
    parameters = jax.block_until_ready(for_rollout(parameters, config.dtype, mesh))  # the float32 ones go
    rng = np.random.default_rng(0)
    prompts = rng.integers(0, config.vocab_size, (case.rows // SAMPLES, case.tokens)).tolist()

    def seconds(new_tokens: int) -> float:
        sampler = Sampler(graph, config, mesh, case.rows, case.tokens, new_tokens, stop_ids=(-1,))
        start = time.perf_counter()
        sampler.generate(parameters, prompts, jax.random.key(0), samples=SAMPLES, sampling=SamplingParams())
        return time.perf_counter() - start

    lengths = 1, case.new_tokens
    for length in lengths:
        seconds(length)
    taken = [seconds(lengths[1]) - seconds(lengths[0]) for _ in range(case.repeats)]

    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(parameters))
    token = (
        2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * jnp.dtype(config.dtype).itemsize
    )
    step = weights + case.rows * (case.tokens + case.new_tokens / 2) * token
    facts = {"copy_gb_s": bandwidth / 1e9, "step_ms": 1e3 * min(taken) / (case.new_tokens - 1), "peak_gib": peak_gib()}
    return {
        "rates": [case.rows * (case.new_tokens - 1) / t for t in taken],
        "bounds": [case.rows * bandwidth / step] * case.repeats,
        "facts": facts,
    }


def train(case: Case) -> dict:
    """Tokens a second of whole steps, and the same at the chip's rated FLOP/s."""
    adapters = LoRASection(rank=32, alpha=64.0) if case.adapters else None
    config = dataclasses.replace(presets.shape_of(case.model), dtype=jnp.bfloat16, lora=adapters)
    mesh = make_mesh(fsdp=1, tp=1)
    graph, parameters = create(config, jax.random.key(0), mesh)
    optimizer = optax.adamw(1e-5)
    state = grpo.init(optimizer, parameters, mesh)
    trained, frozen = lora.split(parameters)
    del parameters  # else the step could not overwrite them
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (case.rows, case.tokens)).astype(np.int32)
    batch = shard_batch(join(tokens[:, :1].tolist(), 1, tokens[:, 1:], np.ones(tokens[:, 1:].shape, bool)), mesh)
    rates = []
    for _ in range(case.repeats + 1):  # the first compiles
        start = time.perf_counter()
        trained, state, _ = jax.block_until_ready(
            sft.update(graph, optimizer, trained, frozen, state, batch, mesh=mesh)
        )
        rates.append(tokens.size / (time.perf_counter() - start))
    bound = peak_flops() / train_flops(config, case.tokens)
    facts = {"peak_gib": peak_gib()}
    return {"rates": rates[1:], "bounds": [bound] * case.repeats, "facts": facts}


def train_flops(config: Qwen3Config, length: int) -> float:
    """FLOPs that a token of a row of `length` takes: forward once, backward once with and once for the weights.

    Adapters spare the gradient of the base's weights. Attention is causal, so a token meets half the row on average.
    """
    whole = dataclasses.replace(config, lora=None)
    weights = sum(leaf.size for leaf in jax.tree.leaves(abstract(whole)[1]))
    if not config.tie_word_embeddings:
        weights -= config.vocab_size * config.hidden_size  # the embedding is looked up, not multiplied
    attention = 2 * length * config.num_hidden_layers * config.num_attention_heads * config.head_dim
    return (6 if config.lora is None else 4) * weights + 3 * attention


def peak_flops() -> float:
    kind = jax.devices()[0].device_kind
    return next((flops for name, flops in PEAKS.items() if name in kind), None) or product_flops()


def product_flops() -> float:
    """FLOP/s of a square product of 2,048 in bfloat16."""
    x = jnp.ones((2048, 2048), jnp.bfloat16)
    return 2 * 2048**3 / fastest(jax.jit(jnp.matmul), x, x)


def copy_bandwidth() -> float:
    """Bytes a second, read and written, of adding one to half a gigabyte."""
    x = jnp.zeros(2**28, jnp.bfloat16)
    return 2 * x.nbytes / fastest(jax.jit(lambda x: x + 1), x)


def fastest(function: Callable, *arguments: jax.Array) -> float:
    """Seconds of the best of ten calls; the first also compiles."""
    taken = []
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        taken.append(time.perf_counter() - start)
    return min(taken)


def memory(device: jax.Device) -> dict:
    return device.memory_stats() or {}  # CPUs keep none


def peak_gib() -> float:
    return memory(jax.devices()[0]).get("peak_bytes_in_use", 0) / 2**30


if __name__ == "__main__":
    main()
