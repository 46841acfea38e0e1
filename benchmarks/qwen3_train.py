"""How many tokens a second are trained on? Forward, backward and AdamW, ours
against torch's on the CPU.

Both train the same random Qwen3, float32, on the mean cross-entropy of the
next tokens, on all cores that this process may use: one of four layers and
width 512, and two layers of Qwen3-0.6B with a fourteenth of its vocabulary,
so that layers and head have their shares of it. Below each line the tokens
that the products of forward and backward pass alone would allow, of the same
shapes in the same run, in XLA and in torch.
Ours is the supervised step of `rl/learn/sft/`; the peer is `transformers`' model
with torch's fused AdamW, in a process of its own. It reads the folder that we
wrote, and its losses must be ours. They take turns: rates are medians, the
ratio is that of the turns' ratios.

examples:
  pip install torch
  python benchmarks/qwen3_train.py
      seven turns of 8 x 512 tokens; some five minutes
  python benchmarks/qwen3_train.py --quick
      two turns of 8 x 128 tokens: a minute
"""

import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable

import jax
import machine
import numpy as np
import optax
from qwen3_decode import CONFIG, beside_products, products
from side_by_side import Row, alternate, connect, header, installed, read_options, report, row

from rl.learn import supervised
from rl.learn.optimizer import init_state
from rl.model import lora, presets, weights
from rl.model.decoder import DecoderConfig, create
from rl.model.logprobs import join
from rl.model.sharding import make_mesh, shard_batch

BATCH = 8
LAYERS = 2, 28  # of Qwen3-0.6B: ours, and all
TARGETS = {"train": (1.0, None), "train 0.6B's layers": (None, 0.6)}
"""Of the ratio to the peer, and of ours to what its products alone allow."""
OPTIMIZER = optax.adamw(1e-4, weight_decay=0.01)  # as in peers/torch_qwen3.py


def main() -> None:
    options = read_options(__doc__, quick="two turns of shorter rows")
    python = sys.executable if installed("torch", "torch") else None
    length, repeats = (128, 2) if options.quick else (512, 7)
    print(f"float32, {len(os.sched_getaffinity(0))} cores, median of {repeats} turns")
    whole = presets.shape_of("qwen3-0.6b")
    part = dataclasses.replace(
        whole, num_hidden_layers=LAYERS[0], vocab_size=whole.vocab_size * LAYERS[0] // LAYERS[1] // 64 * 64
    )
    rows = []
    for (name, targets), config in zip(TARGETS.items(), (CONFIG, part), strict=True):
        # As the peer: there is memory for all activations.
        config = dataclasses.replace(config, remat="none")
        rows += compare(f"{name}, {BATCH} x {length} tokens", config, length, repeats, *targets, python)
    report(rows, options.json)


def compare(
    name: str,
    config: DecoderConfig,
    length: int,
    repeats: int,
    target: float | None,
    share_target: float | None,
    python: str | None,
) -> list[Row]:
    """Both sides' tokens a second, and ours beside what its products allow; each is compiled before."""
    mesh = make_mesh(fsdp=1, tp=1)
    graph, parameters = create(config, jax.random.key(0), mesh)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (BATCH, length)).astype(np.int32)
    with tempfile.TemporaryDirectory() as folder:
        weights.save(folder, config, parameters)
        ours = Ours(graph, parameters, mesh, tokens)
        with connect("torch_qwen3.py", folder, len(os.sched_getaffinity(0)), python=python) as peer:
            print(f"this machine: {machine.measure()}")
            print(header("tokens per second", "torch"))
            theirs = (lambda: peer.ask(task="train", rows=tokens.tolist())) if peer else None
            for _ in range(2):
                losses = [side()["loss"] for side in (ours.train, theirs) if side]
                if not np.allclose(losses, losses[0], rtol=1e-3):
                    raise AssertionError(f"not the same loss: {losses}")

            def rate(side: Callable[[], dict]) -> Callable[[], dict[str, float]]:
                return lambda: {name: tokens.size / side()["all"]}

            (compared,) = alternate(rate(ours.train), theirs and rate(theirs), {name: target}, repeats)
            work = products(config, tokens.size, tokens.size)
            compared = beside_products(compared, peer, tokens.size, work, backward=True)
    share = row(f"{name}, of its products", [compared.ours] * 2, [compared.facts["xla_products"]] * 2, share_target)
    print(share.line())
    return [compared, share]


class Ours:
    """Our step on the same rows over and over, in the peer's words."""

    def __init__(self, graph, parameters, mesh, tokens: np.ndarray) -> None:
        prompts, answers = tokens[:, :1].tolist(), tokens[:, 1:]
        self.batch = shard_batch(join(prompts, 1, answers, np.ones(answers.shape, bool)), mesh)
        self.graph, self.mesh = graph, mesh
        self.state = init_state(OPTIMIZER, parameters, mesh)
        self.trained, self.frozen = lora.split(parameters)

    def train(self) -> dict:
        """Seconds of one step, and the loss before it."""
        start = time.perf_counter()
        self.trained, self.state, found = jax.block_until_ready(
            supervised.update(self.graph, OPTIMIZER, self.trained, self.frozen, self.state, self.batch, mesh=self.mesh)
        )
        return {"all": time.perf_counter() - start, "loss": float(found["loss"])}


if __name__ == "__main__":
    main()
