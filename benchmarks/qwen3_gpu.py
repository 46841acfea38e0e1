"""How near does Qwen3 come to what a GPU can do? Decoding against its
bandwidth, training against its FLOPs; 0.6B and 4B, random weights, bfloat16.

Decoding: eight answers to each of several prompts, 64 and 128 at once, from
1,024 and 3,072 tokens on. The bound is the bandwidth of a plain copy, measured
here, over the bytes that a step cannot avoid: all weights, and the keys and
values of the tokens so far. Beside it, where PyTorch sees the GPU: `generate`
of `transformers`, greedy, as many rows and tokens. Training: the supervised
step of `rl/learn/sft/` on rows of 2,048 tokens, with all parameters where the memory
is there for them (100 GB for 4B), and with adapters. The bound is the chip's
rated bfloat16 rate (of a chip that we do not know: that of a product of
matrices, measured) over the analytic FLOPs of a token, recomputation not
counted: the ratio is the MFU. Below each line the three kernels that take
longest, of one more repeat. Each line is a process of its own, so that its
peak of memory is its own.

examples:
  python benchmarks/qwen3_gpu.py
      every case; some fifteen minutes
  python benchmarks/qwen3_gpu.py --only 0.6B
      those whose names contain it
  python benchmarks/qwen3_gpu.py --quick
      the tiny model on whatever is here, also a CPU: only that the script
      works
"""

import collections
import dataclasses
import functools
import importlib.util
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")  # 0.75 by default: too little for 128 x 3k tokens

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import machine  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from side_by_side import Peer, Unavailable, fail, header, read_options, report, row  # noqa: E402

from rl.config import LoRASection  # noqa: E402
from rl.learn import supervised  # noqa: E402
from rl.learn.optimizer import init_state
from rl.model import lora, presets  # noqa: E402
from rl.model.decoder import DecoderConfig, abstract, create  # noqa: E402
from rl.model.logprobs import join  # noqa: E402
from rl.model.sampler import Sampler, SamplingParams  # noqa: E402
from rl.model.sharding import for_rollout, make_mesh, shard_batch  # noqa: E402

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
DECODE_TARGET, TRAIN_TARGET = 0.75, 0.5
FULL_BYTES = 100e9  # float32 parameters, their gradient and Adam's moments are 64 GB of Qwen3-4B; then activations
REPEATS = 3


@dataclasses.dataclass(frozen=True)
class Case:
    """What one process measures: `run` gets the case and what `describe` says, and returns rates, bound and facts."""

    name: str
    run: Callable[["Case", dict], dict]
    target: float | None
    model: str
    rows: int
    tokens: int  # of a prompt, or of a training row
    new_tokens: int = 0
    adapters: bool = False


def main() -> None:
    options = read_options(__doc__, quick="the tiny model, on a GPU or not", only=True)

    device = alone(describe)
    if device["platform"] != "gpu":
        if not options.quick:
            fail("no GPU here; --quick runs the tiny model anywhere")
        print(f"No GPU here: this is a {device['platform']}, and the figures say nothing but that the script works.")
    print(f"{device['kind']}, JAX {jax.__version__}, {device['bytes'] / 2**30:.0f} GiB, {device['rates']}")
    print(f"{header('tokens per second', 'bound')}  peak GiB")
    rows = []
    for case in cases(options.quick, device["bytes"]):
        if options.only not in case.name:
            continue
        try:
            measured = alone(case.run, case, device)
        except jax.errors.JaxRuntimeError as error:
            print(f"{case.name:34} does not run: {str(error).splitlines()[0]}", flush=True)
            continue
        facts = measured["facts"] | {"device": device["kind"]}
        rows.append(row(case.name, measured["rates"], [measured["bound"]] * REPEATS, case.target, **facts))
        print(f"{rows[-1].line()}  {facts['peak_gib']:8.1f}", flush=True)
        for name, share in facts["kernels"]:
            print(f"    {share:4.0%} of the GPU's time: {name}")
        if case.run is decode and device["torch"]:
            print(f"    transformers' generate: {generate_with_transformers(case)}", flush=True)
    report(rows, options.json)


def cases(quick: bool, memory: int) -> list[Case]:
    if quick:  # no model to be fast with
        return [
            Case("tiny: decode, 16 rows, 64 tokens on", decode, None, "tiny", 16, 64, 16),
            Case("tiny: train adapters, 4 x 128", train, None, "tiny", 4, 128, adapters=True),
        ]
    wanted = []
    for name, model, rows, full in ("0.6B", "qwen3-0.6b", 16, True), ("4B", "qwen3-4b", 4, memory >= FULL_BYTES):
        for batch, tokens in (64, 1024), (64, 3072), (128, 1024), (128, 3072):
            about = f"{name}: decode, {batch} rows, {tokens} tokens on"
            wanted.append(Case(about, decode, DECODE_TARGET, model, batch, tokens, 256))
        if full:
            wanted.append(Case(f"{name}: train, {rows} x 2048", train, TRAIN_TARGET, model, rows, 2048))
        adapters = f"{name}: train adapters, {rows} x 2048"
        wanted.append(Case(adapters, train, TRAIN_TARGET, model, rows, 2048, adapters=True))
    return wanted


def alone(function: Callable, *arguments: object) -> dict:
    """Call `function` in a process of its own, so that this one never holds the device."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def describe() -> dict:
    """Describe the device, and the bytes and operations a second that a plain copy and a plain product reach on it."""
    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "kind": device.device_kind,
        "bytes": memory(device).get("bytes_limit", 0),
        "rates": machine.measure(jnp.bfloat16),
        "torch": device.platform == "gpu" and importlib.util.find_spec("torch") is not None,
    }


def decode(case: Case, device: dict) -> dict:
    """Tokens a second of all answers after their first token, and the same by memory traffic alone."""
    config = dataclasses.replace(presets.shape_of(case.model), dtype=jnp.bfloat16)
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
    taken = [seconds(lengths[1]) - seconds(lengths[0]) for _ in range(REPEATS)]

    stored = sum(leaf.nbytes for leaf in jax.tree.leaves(parameters))
    token = (
        2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * jnp.dtype(config.dtype).itemsize
    )
    step = stored + case.rows * (case.tokens + case.new_tokens / 2) * token
    facts = {
        "copy_gb_s": device["rates"].copy / 1e9,
        "step_ms": 1e3 * min(taken) / (case.new_tokens - 1),
        "peak_gib": peak_gib(),
        "kernels": longest_kernels(functools.partial(seconds, case.new_tokens)),
    }
    rates = [case.rows * (case.new_tokens - 1) / t for t in taken]
    return {"rates": rates, "bound": case.rows * device["rates"].copy / step, "facts": facts}


def generate_with_transformers(case: Case) -> str:
    """Tokens a second of the peer at the same work, or why there are none; its cache grows as it goes."""
    numbers = {k: v for k, v in vars(presets.shape_of(case.model)).items() if isinstance(v, int | float)}
    try:
        with Peer("torch_gpu.py", json.dumps(numbers), case.rows, case.tokens, case.new_tokens) as peer:
            rates = sorted(peer.ask()["rate"] for _ in range(2))
    except Unavailable as reason:
        return f"not measured: {reason}"
    return f"{rates[0]:,.0f} to {rates[1]:,.0f}"


def train(case: Case, device: dict) -> dict:
    """Tokens a second of whole steps, and the same at the chip's rated FLOP/s."""
    adapters = LoRASection(rank=32, alpha=64.0) if case.adapters else None
    config = dataclasses.replace(presets.shape_of(case.model), dtype=jnp.bfloat16, lora=adapters)
    mesh = make_mesh(fsdp=1, tp=1)
    graph, parameters = create(config, jax.random.key(0), mesh)
    optimizer = optax.adamw(1e-5)
    trained, frozen = lora.split(parameters)
    state = init_state(optimizer, trained, mesh)
    del parameters  # else the step could not overwrite them
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (case.rows, case.tokens)).astype(np.int32)
    batch = shard_batch(join(tokens[:, :1].tolist(), 1, tokens[:, 1:], np.ones(tokens[:, 1:].shape, bool)), mesh)

    def step() -> float:
        nonlocal trained, state
        start = time.perf_counter()
        trained, state, _ = jax.block_until_ready(
            supervised.update(graph, optimizer, trained, frozen, state, batch, mesh=mesh)
        )
        return tokens.size / (time.perf_counter() - start)

    step()  # compiles
    rates = [step() for _ in range(REPEATS)]
    facts = {"peak_gib": peak_gib(), "kernels": longest_kernels(step)}
    return {"rates": rates, "bound": peak_flops(device) / train_flops(config, case.tokens), "facts": facts}


def longest_kernels(call: Callable[[], object]) -> list[tuple[str, float]]:
    """Names of the three kernels that take most of the GPU's time in a call, with their shares; none off a GPU."""
    if jax.devices()[0].platform != "gpu":
        return []
    taken: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            call()
        for file in Path(folder).rglob("*.xplane.pb"):
            for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
                for line in plane.lines if plane.name.startswith("/device:GPU") else ():
                    for event in line.events if line.name.startswith("Stream") else ():
                        taken[event.name] += int(event.duration_ns)
    return [(name, ns / sum(taken.values())) for name, ns in taken.most_common(3)]


def train_flops(config: DecoderConfig, length: int) -> float:
    """FLOPs that a token of a row of `length` takes: forward once, backward once with and once for the weights.

    Adapters spare the gradient of the base's weights. Attention is causal, so a token meets half the row on average.
    """
    whole = dataclasses.replace(config, lora=None)
    weights = sum(leaf.size for leaf in jax.tree.leaves(abstract(whole)[1]))
    if not config.tie_word_embeddings:
        weights -= config.vocab_size * config.hidden_size  # the embedding is looked up, not multiplied
    attention = 2 * length * config.num_hidden_layers * config.num_attention_heads * config.head_dim
    return (6 if config.lora is None else 4) * weights + 3 * attention


def peak_flops(device: dict) -> float:
    return next((flops for name, flops in PEAKS.items() if name in device["kind"]), device["rates"].product)


def memory(device: jax.Device) -> dict:
    return device.memory_stats() or {}  # CPUs keep none


def peak_gib() -> float:
    return memory(jax.devices()[0]).get("peak_bytes_in_use", 0) / 2**30


if __name__ == "__main__":
    main()
