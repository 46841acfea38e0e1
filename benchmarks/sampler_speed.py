"""How fast are ragged answers sampled, end to end? Our sampler against
google-tunix's vanilla sampler.

Eight answers to each of eight prompts of 24 to 64 tokens from the same random
Qwen3 of the tiny run's shape, float32, at temperature 1, with
log-probabilities: from lists of tokens to lists of tokens. One token in 32
ends an answer, so lengths are ragged, 128 at most; draws differ, so rates are
per sampled token, with other seeds every turn. The peer repeats each prompt
and runs until the longest of all 64 answers has ended; ours reads a prompt
once and refills 16 rows from a queue. The peer has jax, flax and a Qwen3 of
its own in a virtual environment below --peers, reads the folder that we wrote,
and must agree with us on greedy answers. Both have the same room for prompts
and answers and are compiled before. They take turns: rates are medians, the
ratio is that of the turns' ratios.

examples:
  python benchmarks/sampler_speed.py
      15 turns; installs the peer first, then some two minutes
  python benchmarks/sampler_speed.py --quick
      three turns, beside the peer if it is installed already
"""

import dataclasses
import functools
import itertools
import tempfile
import time

import jax
import machine
import numpy as np
from side_by_side import alternate, connect, header, interpreter, read_options, report

from rl.model import presets, weights
from rl.model.decoder import create
from rl.model.sampler import Sampler, SamplingParams
from rl.model.sharding import for_rollout, make_mesh

jax.config.update("jax_platforms", "cpu")  # where the peer runs
PACKAGES = ("google-tunix==0.1.7", "jax==0.9.2", "flax==0.12.6")
PROMPTS, SAMPLES, PROMPT_TOKENS, NEW_TOKENS = 8, 8, 64, 128
ROWS = 16  # of the 64 answers; the others wait until rows are free
TARGET = 2.0


def main() -> None:
    options = read_options(__doc__, quick="three turns; installs nothing", peers=True)
    repeats = 3 if options.quick else 15

    # The peer turns its heads by a base of 1e6 whatever the config says (tunix 0.1.7).
    config = dataclasses.replace(presets.shape_of("tiny"), rope_theta=1e6)
    mesh = make_mesh(fsdp=1, tp=1)
    graph, parameters = create(config, jax.random.key(0), mesh)
    rng = np.random.default_rng(0)
    # The peer tells padding by its token, here the vocabulary's last, which therefore occurs in no prompt.
    prompts = [
        rng.integers(0, config.vocab_size - 1, length).tolist() for length in rng.integers(24, PROMPT_TOKENS, PROMPTS)
    ]
    stop_ids = tuple(range(config.vocab_size // 32))
    sampler = Sampler(graph, config, mesh, ROWS, PROMPT_TOKENS, NEW_TOKENS, stop_ids)
    rollout_parameters = for_rollout(parameters, config.dtype, mesh)

    def ours(samples: int, temperature: float, seed: int) -> dict:
        start = time.perf_counter()
        sampling = SamplingParams(temperature=temperature)
        rollout = sampler.generate(
            rollout_parameters, prompts, jax.random.key(seed), samples=samples, sampling=sampling
        )
        lengths = rollout.mask.sum(axis=1)
        answers = [row[:length].tolist() for row, length in zip(rollout.tokens, lengths, strict=True)]
        return {"all": time.perf_counter() - start, "lengths": lengths.tolist(), "tokens": answers}

    python = interpreter(options.peers / "tunix_sampler", PACKAGES, install=not options.quick)
    with tempfile.TemporaryDirectory() as model:
        weights.save(model, config, parameters)
        with connect("tunix_sampler.py", model, PROMPT_TOKENS, NEW_TOKENS, python=python) as peer:

            def theirs(samples: int, temperature: float, seed: int) -> dict:
                sampling = {"samples": samples, "temperature": temperature, "seed": seed}
                return peer.ask(prompts=prompts, stop_ids=stop_ids, **sampling)

            if peer:
                check(ours(1, 0.0, 0), theirs(1, 0.0, 0), stop_ids)
            name = f"{PROMPTS} prompts x {SAMPLES} samples"
            seeds = itertools.count(1)

            def rate(side) -> dict[str, float]:
                answer = side(SAMPLES, 1.0, next(seeds))
                return {name: sum(answer["lengths"]) / answer["all"]}

            sides = [functools.partial(rate, side) for side in ((ours, theirs) if peer else (ours,))]
            for side in sides:
                side()
            print(f"float32, median of {repeats} turns; this machine: {machine.measure()}")
            print(header("tokens per second, end to end", "tunix"))
            rows = alternate(sides[0], sides[1] if peer else None, {name: TARGET}, repeats)
    for row in rows:
        print(row.line())
    report(rows, options.json)


def check(ours: dict, theirs: dict, stop_ids: tuple[int, ...]) -> None:
    """Raise AssertionError unless both wrote the same greedy answers; theirs come without the stop."""
    mine = [[token for token in row if token not in stop_ids] for row in ours["tokens"]]
    if mine != theirs["tokens"] or ours["lengths"] != theirs["lengths"]:
        raise AssertionError("not the same greedy answers")


if __name__ == "__main__":
    main()
