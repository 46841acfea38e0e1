"""How much of the work is done for tokens that do not exist? Updates and
decoding of answers whose lengths differ, beside the least that there is to do.

Lengths are log-normal with a mean of 1,500 tokens (sigma .8 of the logarithm),
cut off at 8,192, behind prompts of 230 to 440; 64 answers a step, eight to a
prompt, 48 under way at once, four at once in a backward pass, as in
configs/qwen3-4b.yaml. *Update* counts the products in the programs of the
micro-batches (of their jaxprs, loops included), *decode* the bytes of the
weights and of what is read of the cache: counted and not timed, so they are
the same on every machine. *Least* are those of the tokens that exist, *padded*
those of the whole room for every answer. The ratio is ours by the least.

Then the clock, on the CPU: the tiny model. An update of answers of a
sixty-fourth of the tokens, as it is and with every answer padded; and decoding
of answers of a sixteenth with sixteen times the room that is needed, beside
the same with what is needed.

examples:
  python benchmarks/padding.py
      twenty steps, five turns of the clock; some three minutes
  python benchmarks/padding.py --quick
      five steps, one turn; about a minute
"""

import functools
import importlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from side_by_side import alternate, header, read_options, write_rows

from rl.config import LearnSection
from rl.learn.loss import Batch
from rl.learn.optimizer import init_state, make_optimizer
from rl.learn.update import accumulate, update
from rl.model import lora, presets
from rl.model.attention import SLOTS_AT_ONCE
from rl.model.decoder import DecoderConfig, abstract, create
from rl.model.logprobs import abstract_sequences, join
from rl.model.sampler import Sampler
from rl.model.sampler.schedule import Schedule
from rl.model.sharding import for_rollout, make_mesh

update_module: Any = importlib.import_module("rl.learn.update")

jax.config.update("jax_platforms", "cpu")
MEAN, SIGMA, ROOM = 1500, 0.8, 8192
PROMPTS, SAMPLES, ROWS, MICRO_BATCH = 8, 8, 48, 4
PROMPT_ROOM, PROMPT_TOKENS = 512, (230, 440)
SHORTER = 64, 16  # by which the clock's answers are, in updates and in decoding
MOST = 1.2
MESH = make_mesh(fsdp=1, tp=1)

Lengths = tuple[np.ndarray, np.ndarray]
"""Tokens of prompts and of their answers, int ``[B]`` each."""


def main() -> None:
    options = read_options(__doc__, quick="five steps, one turn of the clock")
    steps, turns = (5, 2) if options.quick else (20, 5)
    rng = np.random.default_rng(0)
    lengths = [draw_lengths(rng) for _ in range(steps)]
    print(f"{steps} steps of {PROMPTS * SAMPLES} answers, {sum(a.sum() for _, a in lengths):,} tokens")
    print(f"{'':28} {'ours':>10} {'least':>10} {'padded':>10} {'ratio':>7} {'padded':>7} {'most':>6} {'met':>4}")
    rows = []
    for model in "qwen3-4b", "qwen3-0.6b":
        config = presets.shape_of(model)
        rows.append(counted(f"{model}, update, PFLOP", 1e15, update_work(config, lengths)))
        rows.append(counted(f"{model}, decode, TB", 1e12, decode_work(config, lengths)))
    print(first_steps(lengths))
    print(f"\n{header('tiny, tokens per second', 'beside')}")
    for sides in clock_update(rng), clock_decode():
        (row,) = alternate(*sides, turns)
        print(row.line(), flush=True)
        rows.append(row.as_json())
    write_rows(rows, options.json)


def draw_lengths(rng: np.random.Generator) -> Lengths:
    """Lengths of a step's prompts and answers; all answers to a prompt have its length."""
    count = PROMPTS * SAMPLES
    answers = np.exp(rng.normal(math.log(MEAN) - SIGMA**2 / 2, SIGMA, count)).astype(int).clip(1, ROOM)
    return np.repeat(rng.integers(*PROMPT_TOKENS, PROMPTS), SAMPLES), answers


def counted(name: str, unit: float, work: tuple[float, float, float]) -> dict:
    """Print what is done, what must be done and what padding would do, and return it as a row."""
    ours, least, padded = (float(x) / unit for x in work)
    ratio, padded_ratio = ours / least, padded / least
    met = {True: "yes", False: "no"}[ratio <= MOST]
    print(
        f"{name:28} {ours:10,.2f} {least:10,.2f} {padded:10,.2f} {ratio:6.2f}x {padded_ratio:6.2f}x {MOST:6} {met:>4}"
    )
    figures = {"name": name, "ours": ours, "peer": least, "ratio": ratio, "target": MOST, "met": ratio <= MOST}
    return figures | {"padded": padded, "padded_ratio": padded_ratio}


def update_work(config: DecoderConfig, steps: list[Lengths]) -> tuple[float, float, float]:
    """FLOPs of the updates: ours, of rows as long as their tokens, and of rows as long as the room."""
    flops, ours, least, padded = flops_of_rows(config), 0.0, 0.0, 0.0
    for prompts, answers in steps:
        ours += sum(part.size * flops(part.width, min(ROOM, part.width - 1)) for part in plan(prompts, answers))
        least += sum(flops(p + a, a) for p, a in zip(prompts, answers, strict=True))
        padded += len(answers) * flops(PROMPT_ROOM + ROOM, ROOM)
    return ours, least, padded


def plan(prompts: np.ndarray, answers: np.ndarray) -> list[Any]:
    """Return the micro-batches of a step."""
    written = np.zeros((len(answers), ROOM), np.int32)
    sequences = join([[0] * p for p in prompts], PROMPT_ROOM, written, np.arange(ROOM) < answers[:, None])
    return update_module.micro_batches(sequences, np.arange(len(answers)), MICRO_BATCH, MESH)


def flops_of_rows(config: DecoderConfig) -> Callable[[int, int], float]:
    """FLOPs of the products of `accumulate` on one row, by its width and the room in it for an answer.

    They are a polynomial of both, found from four traces and confirmed by a fifth.
    """
    graph, parameters = abstract(config, MESH)
    trained, frozen = lora.split(parameters)
    total = jax.eval_shape(functools.partial(update_module.zeros_like, mesh=MESH), trained)

    def traced(width: int, room: int) -> float:
        values = jax.ShapeDtypeStruct((1, room), jnp.float32)
        sequences = abstract_sequences(1, width - room, room)
        batch = Batch(sequences=sequences, sampler_logprobs=values, advantages=values)
        settings = LearnSection(micro_batch=1)
        program = accumulate.trace(graph, trained, frozen, total, batch, settings=settings, mesh=MESH)
        return products(program.jaxpr.jaxpr)

    def terms(width: int, room: int) -> list[float]:
        return [1.0, width, width**2, room]

    points = [(256, 128), (512, 128), (1024, 512), (2048, 1024)]
    factors = np.linalg.solve([terms(*point) for point in points], [traced(*point) for point in points])
    flops = lambda width, room: float(np.dot(factors, terms(width, room)))  # noqa: E731
    if not math.isclose(flops(1536, 256), traced(1536, 256), rel_tol=1e-6):
        raise AssertionError("the FLOPs of a row are not a polynomial of its width and its room")
    return flops


def products(jaxpr: Any) -> float:
    """FLOPs of the products of matrices in a jaxpr."""
    flops = 0.0
    for equation in jaxpr.eqns:
        inner = sum(map(products, jaxprs_in(equation.params)))
        if equation.primitive.name == "while" and inner:
            raise AssertionError("how often a loop with products runs must be known")
        flops += inner * equation.params.get("length", 1)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            flops += 2 * math.prod(equation.outvars[0].aval.shape) * depth
    return flops


def jaxprs_in(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for one in value if isinstance(value, tuple | list) else [value]:
            if hasattr(one, "eqns"):
                yield one
            elif hasattr(one, "jaxpr"):
                yield one.jaxpr


def decode_work(config: DecoderConfig, steps: list[Lengths]) -> tuple[float, float, float]:
    """Bytes that the tokens of the steps read, in bfloat16, by the sampler's own schedule."""
    stored = 2 * sum(leaf.size for leaf in jax.tree.leaves(abstract(config)[1]))
    token = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    ours = least = passes = 0
    for prompts, answers in steps:
        schedule = Schedule([0], ROWS, PROMPTS, SAMPLES)
        left, filled = np.zeros((2, ROWS), int)
        while schedule.active:
            while schedule.ready:
                for prompt, rows in schedule.admit()[0]:
                    requests = prompt * SAMPLES + np.arange(SAMPLES)
                    left[rows], filled[rows] = answers[requests], prompts[requests]
            alive = left > 0
            ours += (-(-filled[alive] // SLOTS_AT_ONCE) * SLOTS_AT_ONCE).sum()
            least += filled[alive].sum()
            filled, left, passes = filled + alive, left - alive, passes + 1
            schedule.release(left == 0)
    padded = passes * ROWS * (PROMPT_ROOM + ROOM)
    return ours * token + passes * stored, least * token + passes * stored, padded * token + passes * stored


def first_steps(steps: list[Lengths]) -> str:
    """Say how many programs the steps need, and which of them needs the last."""
    needed = [{part.width for part in plan(*lengths)} for lengths in steps]
    every = set().union(*needed)
    complete = next(i for i in range(len(steps)) if set().union(*needed[: i + 1]) == every)
    return (
        f"{len(every)} widths of micro-batches, {len(needed[0])} of them in the first step, the last in step {complete}"
    )


Sides = tuple[Callable[[], dict[str, float]], Callable[[], dict[str, float]], dict[str, float | None]]
"""What `alternate` takes: both sides, already warm, and the targets."""


def clock_update(rng: np.random.Generator) -> Sides:
    """Time our update beside one with every answer padded, in tokens that exist a second."""
    config, scale = presets.shape_of("tiny"), SHORTER[0]
    room = ROOM // scale
    graph, parameters = create(config, jax.random.key(0), MESH)
    settings = LearnSection(micro_batch=MICRO_BATCH, learning_rate=1e-6)
    optimizer = make_optimizer(settings, 1000)
    held = [parameters, init_state(optimizer, parameters, MESH)]
    prompts, answers = (np.maximum(x // scale, 1) for x in draw_lengths(rng))
    mask = np.arange(room) < answers[:, None]
    values = rng.normal(size=mask.shape).astype(np.float32)
    sequences = join([[1] * p for p in prompts], PROMPT_ROOM // scale, np.ones(mask.shape, np.int32), mask)
    batch = Batch(sequences=sequences, sampler_logprobs=values, advantages=values)
    name = f"update, {len(answers)} answers"

    def ours() -> dict[str, float]:
        start = time.perf_counter()
        held[0], held[1], _ = update(graph, optimizer, held[0], held[1], batch, MESH, settings, lambda: None)
        jax.block_until_ready(held)
        return {name: (prompts.sum() + answers.sum()) / (time.perf_counter() - start)}

    def padded() -> dict[str, float]:
        with mock.patch.object(update_module, "widths", lambda room: [room]):
            return ours()

    ours(), padded()
    return ours, padded, {name: None}


def clock_decode() -> Sides:
    """Time the same answers with much room and with enough, in tokens a second."""
    config, scale = presets.shape_of("tiny"), SHORTER[1]
    graph, parameters = create(config, jax.random.key(0), MESH)
    parameters = for_rollout(parameters, config.dtype, MESH)
    prompts = np.random.default_rng(0).integers(0, config.vocab_size, (PROMPTS, PROMPT_ROOM // scale)).tolist()
    stops = tuple(range(config.vocab_size * scale // MEAN))
    name = f"decode, room for {16 * ROOM // scale:,} tokens"

    def side(room: int) -> dict[str, float]:
        sampler = Sampler(graph, config, MESH, ROWS, PROMPT_ROOM // scale, room, stops)
        start = time.perf_counter()
        answers = sampler.generate(parameters, prompts, jax.random.key(1), samples=SAMPLES)
        return {name: answers.mask.sum() / (time.perf_counter() - start)}

    sides = [functools.partial(side, room) for room in (16 * ROOM // scale, ROOM // scale)]
    for one in sides:
        one()
    return *sides, {name: None}


if __name__ == "__main__":
    main()
