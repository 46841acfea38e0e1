"""How many tokens a second are trained on? Forward, backward and AdamW, ours
against torch's on the CPU.

Both train the same random Qwen3 of four layers and width 512, float32, on the
mean cross-entropy of the next tokens, on all cores that this process may use.
Ours is the supervised step of `rl/sft/`; the peer is `transformers`' model
with torch's fused AdamW, in a process of its own. It reads the folder that we
wrote, and its losses must be ours. They take turns: rates are medians, the
ratio is that of the turns' ratios.

examples:
  pip install torch
  python benchmarks/qwen3_train.py
      seven turns of 8 x 512 tokens; some two minutes
  python benchmarks/qwen3_train.py --quick
      two turns of 8 x 128 tokens: under a minute
"""

import dataclasses
import os
import tempfile
import time

import jax
import numpy as np
import optax
from qwen3_decode import CONFIG
from side_by_side import Peer, Unavailable, alternate, fail, header, read_options, report, require

from rl import grpo, sft
from rl.config.choices import Remat  # noqa: E402
from rl.qwen3 import lora, weights
from rl.qwen3.logprobs import join
from rl.qwen3.model import create
from rl.qwen3.sharding import make_mesh, shard_batch

BATCH = 8
TARGET = 1.0
OPTIMIZER = optax.adamw(1e-4, weight_decay=0.01)  # as in peers/torch_qwen3.py


def main() -> None:
    options = read_options(__doc__, quick="two turns of shorter rows")
    require("torch", "torch")
    length, repeats = (128, 2) if options.quick else (512, 7)
    cores = len(os.sched_getaffinity(0))

    config = dataclasses.replace(CONFIG, remat=Remat.NONE)  # as the peer: there is memory for all activations
    mesh = make_mesh(fsdp=1, tp=1)
    graph, parameters = create(config, jax.random.key(0), mesh)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (BATCH, length)).astype(np.int32)
    name = f"train, {BATCH} x {length} tokens"
    with tempfile.TemporaryDirectory() as folder:
        weights.save(folder, config, parameters)
        ours = Ours(graph, parameters, mesh, tokens)
        print(f"float32, {cores} cores, median of {repeats} turns")
        print(header("tokens per second", "torch"))
        try:
            with Peer("torch_qwen3.py", folder, cores) as peer:
                sides = ours.train, lambda: peer.ask(task="train", rows=tokens.tolist())
                for _ in range(2):
                    losses = [side()["loss"] for side in sides]
                    if not np.isclose(*losses, rtol=1e-3):
                        raise AssertionError(f"not the same loss: {losses}")
                rates = (lambda side=side: {name: tokens.size / side()["all"]} for side in sides)
                rows = alternate(*rates, {name: TARGET}, repeats)
        except Unavailable as reason:
            fail(f"no peer: {reason}")
    for row in rows:
        print(row.line())
    report(rows, options.json)


class Ours:
    """Our step on the same rows over and over, in the peer's words."""

    def __init__(self, graph, parameters, mesh, tokens: np.ndarray) -> None:
        prompts, answers = tokens[:, :1].tolist(), tokens[:, 1:]
        self.batch = shard_batch(join(prompts, 1, answers, np.ones(answers.shape, bool)), mesh)
        self.graph, self.mesh = graph, mesh
        self.state = grpo.init(OPTIMIZER, parameters, mesh)
        self.trained, self.frozen = lora.split(parameters)

    def train(self) -> dict:
        """Seconds of one step, and the loss before it."""
        start = time.perf_counter()
        self.trained, self.state, found = jax.block_until_ready(
            sft.update(self.graph, OPTIMIZER, self.trained, self.frozen, self.state, self.batch, mesh=self.mesh)
        )
        return {"all": time.perf_counter() - start, "loss": float(found["loss"])}


if __name__ == "__main__":
    main()
