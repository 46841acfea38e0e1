"""How many tokens a second are generated, and prompts read? Our sampler
against `transformers`' `generate` on the CPU.

Both run the same random Qwen3 of four layers and width 512, float32, greedily,
on all cores that this process may use: prompts of 128 tokens, answers of 128.
The peer reads the folder that we wrote, in a process of its own, and its
tokens must be ours. Prefill is the time to the first token, decode what the
others take; ours computes log-probabilities as well, which its users cannot
leave out. They take turns: rates are medians, the ratio is that of the turns'
ratios. Below each line what the products of matrices alone would allow, of the
same shapes in the same run, in XLA and in torch.

examples:
  pip install torch
  python benchmarks/qwen3_decode.py
      batches of 1, 8 and 32; some three minutes
  python benchmarks/qwen3_decode.py --quick
      two turns of batches of 8, shorter answers: under a minute
"""

import dataclasses
import os
import sys
import tempfile
import time

import jax
import machine
import numpy as np
from side_by_side import Peer, Row, alternate, connect, header, installed, read_options, report

from rl.model import weights
from rl.model.decoder import DecoderConfig, abstract, create
from rl.model.sampler import Sampler, SamplingParams
from rl.model.sharding import for_rollout, make_mesh

jax.config.update("jax_platforms", "cpu")  # where the peer runs
CONFIG = DecoderConfig(
    vocab_size=32_768,
    hidden_size=512,
    intermediate_size=1536,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=64,
    rope_theta=1e6,
)
PROMPT = 128
TARGETS = {1: None, 8: 1.5, 32: 1.5}


def main() -> None:
    options = read_options(__doc__, quick="one batch size, two turns, shorter answers")
    python = sys.executable if installed("torch", "torch") else None
    batches, repeats, new_tokens = ([8], 2, 32) if options.quick else (list(TARGETS), 7, 128)
    cores = len(os.sched_getaffinity(0))

    mesh = make_mesh(fsdp=1, tp=1)
    graph, parameters = create(CONFIG, jax.random.key(0), mesh)
    ours = Ours(graph, for_rollout(parameters, CONFIG.dtype, mesh), mesh, new_tokens)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        weights.save(folder, CONFIG, parameters)
        print(f"float32, prompts of {PROMPT} tokens, answers of {new_tokens}, {cores} cores, median of {repeats} turns")
        with connect("torch_qwen3.py", folder, cores, python=python) as peer:
            print(f"this machine: {machine.measure()}")
            print(header("tokens per second", "torch"))
            for batch in batches:
                rows += compare(ours, peer, batch, new_tokens, repeats)
    report(rows, options.json)


def products(config: DecoderConfig, rows: int, head_rows: int) -> list[tuple[int, int, int]]:
    """Return rows, inputs and outputs of each product of a forward pass; the last is the head's."""
    stacked = [leaf.shape for leaf in jax.tree.leaves(abstract(config)[1]) if leaf.ndim == 3]
    layers = [(rows, inputs, outputs) for count, inputs, outputs in stacked for _ in range(count)]
    return [*layers, (head_rows, config.hidden_size, config.vocab_size)]


def beside_products(
    row: Row, peer: Peer | None, tokens: int, shapes: list[tuple[int, int, int]], backward: bool = False
) -> Row:
    """Put the rates that these products alone would allow, in XLA and in the peer's torch, beside a row's; print both.

    A ratio of the peers means the same on every machine only with the ratio of these.
    """
    *layers, (rows, inputs, outputs) = shapes
    xla = [*layers, (outputs, inputs, rows)]  # the matrix first, as our head has it
    limits = {"xla": tokens / machine.multiply(xla, backward)}
    if peer:
        limits["torch"] = tokens / peer.ask(task="multiply", shapes=shapes, backward=backward)["seconds"]
    rates = {"xla": row.ours, "torch": row.peer}
    told = [f"{name} {limit:,.0f}, {rates[name] / limit:.2f} of it reached" for name, limit in limits.items()]
    print(f"{row.line()}\n    its products alone: {'; '.join(told)}", flush=True)
    return dataclasses.replace(row, facts={f"{name}_products": limit for name, limit in limits.items()})


def compare(ours: "Ours", peer: Peer | None, batch: int, new_tokens: int, repeats: int) -> list[Row]:
    """Prefill and decode of one batch; both sides are compiled and warm before, and agree on every token."""
    prompts = np.random.default_rng(batch).integers(0, CONFIG.vocab_size, (batch, PROMPT)).tolist()
    names = f"prefill, batch {batch}", f"decode, batch {batch}"

    def rates(answer: dict) -> dict[str, float]:
        rest = answer["all"] - answer["first"]
        return {names[0]: batch * PROMPT / answer["first"], names[1]: batch * (new_tokens - 1) / rest}

    def theirs() -> dict:
        return peer.ask(task="generate", prompts=prompts, new_tokens=new_tokens)

    first = ours.generate(prompts)
    if peer and not np.array_equal(first["tokens"], theirs()["tokens"]):
        raise AssertionError(f"batch {batch}: not the same tokens")
    rows = alternate(
        lambda: rates(ours.generate(prompts)),
        (lambda: rates(theirs())) if peer else None,
        {names[0]: None, names[1]: TARGETS[batch]},
        repeats,
    )
    work = (batch * PROMPT, batch * PROMPT), (batch, batch)  # tokens, and rows of the layers' products
    return [
        beside_products(row, peer, tokens, products(CONFIG, layer_rows, batch))
        for row, (tokens, layer_rows) in zip(rows, work, strict=True)
    ]


class Ours:
    """Our sampler, in the peer's words."""

    def __init__(self, graph, parameters, mesh, new_tokens: int) -> None:
        self.graph, self.parameters, self.mesh, self.new_tokens = graph, parameters, mesh, new_tokens

    def generate(self, prompts: list[list[int]]) -> dict:
        """Seconds of the first token alone, and of a whole answer; its tokens."""
        seconds, tokens = {}, None
        for name, length in {"first": 1, "all": self.new_tokens}.items():
            sampler = Sampler(self.graph, CONFIG, self.mesh, len(prompts), PROMPT, length, stop_ids=(-1,))
            start = time.perf_counter()
            tokens = sampler.generate(
                self.parameters, prompts, jax.random.key(0), sampling=SamplingParams(temperature=0.0)
            ).tokens
            seconds[name] = time.perf_counter() - start
        return seconds | {"tokens": tokens}


if __name__ == "__main__":
    main()
