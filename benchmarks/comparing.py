"""Can SmolLM2-135M be taught to compare the numbers that it quotes? Adapters
learn from 1,296 examples, small ones first; held-out questions and the reading
test before and after.

The examples ask for the larger or the smaller of two rows, then of four, then
for both rankings of a table, and the last are the engineer's own. An answer
compares by looking up: it writes each share with two digits in front of its
row's name, counts through the tens, and copies what begins with each.

"Ours" is what is right, and the peer the same answers held against tables whose
numbers have moved on by a row: what a habit would get. Met means: 90 % right
after the lessons.

examples:
  python benchmarks/comparing.py --out /tmp/comparing
      43 minutes of processor time for the lessons, and the measurements
  python benchmarks/comparing.py after --out /tmp/comparing --contexts V1
      the measurements of adapters that are there, with one reading test
  python benchmarks/comparing.py lessons after --alone --out /tmp/alone
      the control: the 336 examples of the engineer's alone
  python benchmarks/comparing.py --quick
      a few examples for the shipped model: only that the script works
"""

import argparse
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from flax import nnx
from side_by_side import fail, write_rows

from engineer.context import Module, percent
from engineer.examples import draw_history, example
from rl import config as config_
from rl.command import shipped
from rl.config import Config
from rl.judge import reading_test as reading
from rl.judge.asking import engineer_asker
from rl.judge.statistics import Share
from rl.learn import grpo, sft
from rl.learn.grpo.optimizer import make_optimizer
from rl.learn.sft.examples import response
from rl.model import lora
from rl.model.logprobs import join
from rl.model.policy import Policy
from rl.model.sampler import SamplingParams
from rl.run.keys import Purpose, make_key
from rl.run.signals import Stop
from rl.run.state import TrainState
from rl.run.tracking import Display

LESSONS = {
    "comparison": [("two rows", 30, 8), ("four rows", 30, 8), ("ranking", 60, 8)],
    "engineer": 2 * [("V1", 8, 4), ("V3", 2, 4), ("V6", 2, 4)],
    "V1": [("V1", 60, 4)],
}
"""By course: a lesson or a context, its batches, and the examples of a batch; 1,296 examples."""
HELD_OUT = (("two rows", 96), ("four rows", 96), ("ranking", 64))
ASKED = {
    "smaller": "Which size has the smaller share?",
    "larger": "Which size has the larger share?",
    "smallest": "Which size has the smallest share?",
    "largest": "Which size has the largest share?",
    "weakest": "Rank the sizes by their shares, the weakest first, and by nearness to 50.",
}
OVERRIDES = (
    *("warm_start.learning_rate=1.5e-3", "engineer.max_thinking_tokens=208", "sampler.rows=64"),
    *("text.max_prompt_tokens=96", "text.max_new_tokens=192"),
)
STEPS = ("before", "lessons", "after")
TARGET = 90

Rows = dict[str, int]
"""Valid percentages by the names of the rows."""


class Question(NamedTuple):
    """A question about a table, a key of `ASKED`, and the answer that is taught."""

    asked: str
    rows: Rows
    answer: str

    @property
    def message(self) -> str:
        return "\n".join(["size sampled", *(f"{name} {share}" for name, share in self.rows.items()), ASKED[self.asked]])


def key(letter: str, value: int) -> str:
    """Write a number in two digits, which make it easy to find; the letter tells it from a quote."""
    return f"{letter}x0" if value == 100 else f"{letter}{value:02d}"


def notes(rows: Rows, distances: bool) -> str:
    """Quote the rows, each with its key, and with that of its distance from a half."""
    marks = {"s": rows} | ({"d": {name: abs(share - 50) for name, share in rows.items()}} if distances else {})
    return "".join(
        f"{name} {share};" + "".join(f"{key(letter, values[name])} {name};" for letter, values in marks.items())
        for name, share in rows.items()
    )


def count(letter: str, values: Rows, down: bool = False, first: bool = False) -> str:
    """Count through the tens, and name at each the rows that are there; `first` ends at the first row."""
    text = ""
    for tens in sorted("0123456789x" if letter == "s" else "012345", reverse=down):
        there = sorted((-value if down else value, name) for name, value in values.items())
        names = [f"{mark} {name};" for value, name in there if (mark := key(letter, abs(value)))[1] == tens]
        text += "".join(names[:1] if first else names) or f"{letter}{tens},"
        if names and first:
            break
    return text[:-1]


def ranking(rows: Rows) -> str:
    """Rank the rows as the engineer's examples do: the weakest first, then the nearest to a half."""
    spread = {name: abs(share - 50) for name, share in rows.items()}
    return f"{notes(rows, distances=True)}Weakest:{count('s', rows)};most learnable:{count('d', spread)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", help=f"what to do, of {' '.join(STEPS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="a few examples for the shipped model")
    parser.add_argument("--alone", action="store_true", help="the engineer's examples without the comparisons before")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--model", default="models/smollm2", metavar="DIR", help="docs/policy.md says how to get it")
    parser.add_argument("--out", type=Path, default=Path("runs/comparing"), metavar="DIR", help="adapters and answers")
    parser.add_argument("--contexts", nargs="*", default=["V1", "V3", "V6"], help="contexts of the reading test")
    parser.add_argument("--limit", type=int, default=12, help="most drawn, and most real states of a context")
    options = parser.parse_args()
    if unknown := set(options.steps) - set(STEPS):
        fail(f"{' '.join(sorted(unknown))}: must be of {' '.join(STEPS)}")
    model, share = [f"model.path={options.model}"], 1.0
    lessons = {course: parts for course, parts in LESSONS.items() if not (options.alone and course == "comparison")}
    if options.quick:
        model = ["model.shape=tiny", "model.path=null", "text.max_prompt_tokens=200", "text.max_new_tokens=16"]
        lessons, share = {"engineer": [("two rows", 1, 2), ("ranking", 1, 2), ("V1", 1, 2)]}, 0.05
        options.out, options.contexts = Path(tempfile.mkdtemp()), []
    config = config_.load(shipped("smollm2-135m.yaml"), [*OVERRIDES, *model])
    rows, key_ = [], make_key(config.seed, Purpose.PARAMETERS)
    for step in options.steps or STEPS:
        if step == "lessons":
            policy, parameters = Policy.create(config, key_)
            for course, parts in lessons.items():
                parameters = teach(policy, parameters, config, parts)
                policy.save(options.out / course, parameters)
            continue
        for course in lessons if step == "after" else ["before"]:
            policy, parameters = (
                Policy.create(config, key_) if step == "before" else Policy.load(config, options.out / course, key_)
            )
            rows += measure(
                policy,
                parameters,
                config,
                step if step == course else f"after {course}",
                share / 4 if step == "before" else share,
            )
        for context in options.contexts:
            rows += read(policy, parameters, config, step, context, options.limit, options.out)
    write_rows(rows, options.json)


def question(rng: np.random.Generator, config: Config, lesson: str) -> Question:
    """Draw a table as the engineer's examples do, and what is asked of some of its rows."""
    evidence = draw_history(rng, config.lake.kinds, config.rounds.count, (Module.F,))[-1].evidence
    every = {str(row.kind): percent(row.valid_share, 1) for row in evidence.by_kind}
    if lesson == "ranking":
        return Question("weakest", every, ranking(every))
    names = sorted(rng.permutation([*every])[: 2 if lesson == "two rows" else 4].tolist(), key=[*every].index)
    rows, down = {name: every[name] for name in names}, bool(rng.random() < 0.5)
    asked = ("smaller", "larger", "smallest", "largest")[2 * (lesson == "four rows") + down]
    if len(set(rows.values())) == 1:
        return question(rng, config, lesson)  # nothing to compare
    return Question(asked, rows, f"{notes(rows, distances=False)}{asked}:{count('s', rows, down, first=True)}")


def lesson(policy: Policy, config: Config, rng: np.random.Generator, name: str) -> tuple[list[int], list[int]]:
    """Return the tokens of an example, message and answer; the engineer's with the comparison in its thought."""
    if name in dict(HELD_OUT):
        drawn = question(rng, config, name)
        return policy.tokenizer.chat(drawn.message, thinking=False), policy.tokenizer.completion(drawn.answer)
    message, thought, answer, _ = example(rng, config.lake.kinds, config.rounds.count, config.rounds.epochs, [name])
    weakest, failure = thought.partition(";most")[0], thought.rpartition(";")[2]
    rows = {name: int(share) for name, share in sorted(re.findall(r"(\d+) (\d+)", weakest))}  # four: all there are
    return policy.tokenizer.chat(message, thinking=True), response(
        policy.tokenizer, f"{ranking(rows)};{failure}", answer
    )


def teach(policy: Policy, parameters: nnx.State, config: Config, lessons: Sequence[tuple[str, int, int]]) -> nnx.State:
    """Return the parameters after a course of lessons."""
    updates = sum(batches for _, batches, _ in lessons)
    optimizer = make_optimizer(config.warm_start.model_copy(update={"warmup_steps": updates // 6}), updates)
    state = TrainState(parameters, grpo.init(optimizer, lora.split(parameters)[0], policy.mesh))
    rng, begun = np.random.default_rng(config.seed), time.process_time()
    for name, batches, size in lessons:
        drawn = [lesson(policy, config, rng, name) for _ in range(batches * size)]
        contexts, answers = zip(*drawn, strict=True)
        room, width = (-(-max(map(len, tokens)) // 32) * 32 for tokens in (contexts, answers))  # few shapes to compile
        sequences = join(contexts, room, *policy.tokenizer.pad_right(answers, width, "answer"))
        for batch in np.arange(len(drawn)).reshape(batches, size):
            loss = sft.teach(policy, state, optimizer, sequences, batch, lambda metrics: None)["loss"]
            if batch[0] % (8 * size) == 0:
                print(
                    f"{name}: {batch[-1] + 1} examples, loss {loss:.3f}, {time.process_time() - begun:.0f} s",
                    flush=True,
                )
    return state.parameters


def ask(policy: Policy, parameters: nnx.State, questions: Sequence[Question]) -> list[str]:
    """Return greedy answers to the questions."""
    messages = [policy.tokenizer.chat(question.message, thinking=False) for question in questions]
    sampler = policy.sampler
    rollout = sampler.generate(
        policy.rollout_parameters(parameters), messages, jax.random.key(0), sampling=SamplingParams(temperature=0)
    )
    return policy.texts(rollout.tokens, rollout.mask)


def is_right(text: str, question: Question, rows: Rows, by_nearness: bool = False) -> bool:
    """Whether an answer names the rows in one of the two orders, or the row that is asked for, by these numbers.

    Where the answer to another question is a ranking, its first or its last row counts.
    """
    down, whole = question.asked.startswith("larg"), question.asked == "weakest"
    _, claimed, claim = text.lower().rpartition(f"{question.asked}:")
    weakest, _, nearest = text.lower().rpartition("weakest:")[2].partition("most learnable:")

    def named(part: str, values: Rows) -> list[int]:
        return [values[name] for name in re.findall(r"[a-z0-9]+", part) if name in values]

    if whole:
        spread = {name: abs(share - 50) for name, share in rows.items()}
        part, values = (nearest, spread) if by_nearness else (weakest, rows)
        return named(part, values) == sorted(values.values())
    chosen = named(claim, rows) if claimed else named(weakest, rows)[:: -1 if down else 1]
    return bool(chosen) and chosen[0] == (max if down else min)(rows.values())


def moved(rows: Rows) -> Rows:
    """Give each row the number of the row before it."""
    shares = [*rows.values()]
    return dict(zip(rows, shares[-1:] + shares[:-1], strict=True))


def measure(policy: Policy, parameters: nnx.State, config: Config, when: str, share: float) -> list[dict]:
    """Return rows for held-out questions of each sort."""
    rng = np.random.default_rng([reading.SEED, 0])  # no lesson is drawn by it
    asked = {name: [question(rng, config, name) for _ in range(round(share * count))] for name, count in HELD_OUT}
    everything = [drawn for part in asked.values() for drawn in part]
    texts = iter(ask(policy, parameters, everything))
    rows = []
    for name, part in asked.items():
        said = [(next(texts), drawn) for drawn in part]
        for by_nearness in (False, True) if name == "ranking" else (False,):
            ours, peer = (
                Share.of(sum(is_right(text, drawn, change(drawn.rows), by_nearness) for text, drawn in said), len(said))
                for change in (dict, moved)
            )
            what = f"{when}: {name}{' by nearness to 50' * by_nearness}, {len(said)} held-out questions"
            print(f"{what}: {ours.text()} %, shuffled {peer.text()}", flush=True)
            rows.append(as_row(f"{what}, %", 100 * ours.value, 100 * peer.value))
    return rows


def read(
    policy: Policy, parameters: nnx.State, config: Config, when: str, context: str, limit: int, out: Path
) -> list[dict]:
    """Return rows of the reading test in a context."""
    config = config.model_copy(update={"engineer": config.engineer.model_copy(update={"context": context})})
    with Display() as display:
        folder = out / f"reading-{when}-{context}"
        scores = reading.run(engineer_asker(policy, parameters, config), config, when, limit, folder, display, Stop())[
            "all"
        ]
    names = [name for name in scores if name.endswith("%") and not name.startswith("shuffled")]
    return [
        as_row(
            f"{when}: {context}, {scores['states']} states: {name}",
            scores[name] or 0.0,
            scores.get(f"shuffled: {name}"),
        )
        for name in names
    ]


def as_row(name: str, ours: float, peer: float | None) -> dict:
    target = TARGET if name.startswith("after") and peer is not None else None
    met = None if target is None else ours >= target
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "ratio": ours / peer if peer else None,
        "target": target,
        "met": met,
    }


if __name__ == "__main__":
    main()
