"""The reading test: an engineer gets tables whose answers are known; are its words right, and does its design follow?

The engineer sees every state twice: as it is, and with the kinds' names exchanged.
"""

import dataclasses
import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pydantic

from engineer import Generation, PastRound, Proposal, Training, grammar
from engineer.engineers.language import read_answer
from engineer.engineers.rules import frontier_design
from engineer.examples import draw_history, visible
from engineer.reading import Marks, mark, permutation, permuted
from jaxlake.config import FIELDS, LakeConfig
from jaxlake.files import write_whole
from jaxlake.kinds import Kind
from jaxlake.table import Table
from rl.config import Config, ConfigError, RunError
from rl.context import read_context
from rl.evaluation.asking import Asker, Question, collect
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.statistics import Share, spearman

STATES = Path(__file__).parent / "states.jsonl.gz"
"""States of real runs, a line each; no training shows them."""
COUNT = 200
"""States of either origin, at most."""
SEED = 2**20
"""Seed, with a state's number or name, of the draws for it; a run's examples come from keys and never from this."""
REQUEST = (
    '\n\nBegin with one line in this form: "Weakest size K (P% valid), most learnable size K (P%). Leading failure: '
    'NAME." P is sampled valid; most learnable is what is nearest to 50%.'
)
"""Request besides to a model that was not taught how the examples think."""


class State(NamedTuple):
    """A state that an engineer designs from.

    Attributes:
      origin: ``drawn`` or ``real``.
      history: finished rounds, at whose end the evidence is.
    """

    name: str
    origin: str
    history: list[PastRound]


def drawn_states(config: Config, count: int = COUNT) -> list[State]:
    """Draw states as the examples of the warm start are drawn, of the run's kinds."""
    shown, kinds, targets = read_context(config.engineer).modules, config.lake.kinds, config.target_kinds
    rounds = max(2, config.rounds.count)
    return [
        State(f"drawn-{i}", "drawn", draw_history(np.random.default_rng([SEED, i]), kinds, rounds, shown, targets))
        for i in range(count)
    ]


def real_states(config: Config, count: int = COUNT) -> list[State]:
    """Return states of runs with these kinds and targets, evenly from all that there are; none where there are none.

    Only those after which this run would design a round: longer histories are shown to nobody in it.
    """
    states = []
    for state in read_lines(STATES, gzip.decompress(STATES.read_bytes()).decode().splitlines()):
        last = state.history[-1]
        targets = tuple(row.kind for row in last.evidence.by_kind)
        left = config.rounds.count - 1 - last.round
        if last.config.kinds == config.lake.kinds and targets == config.target_kinds and left > 0:
            states.append(state)
    return [states[i] for i in np.linspace(0, len(states) - 1, min(count, len(states))).round().astype(int)]


def write_state(name: str, history: Sequence[PastRound]) -> dict[str, Any]:
    """Return a state of a run as JSON values; failed answers are left out."""
    bare = (dataclasses.replace(past, evidence=dataclasses.replace(past.evidence, trajectories=())) for past in history)
    return {"name": name, "history": [past.to_json() for past in bare]}


def read_lines(path: Path, lines: Sequence[str]) -> list[State]:
    """Return the states of a file's lines, as `write_state` makes them.

    Raises:
      ConfigError: naming the line that is damaged.
    """
    states = []
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            state = State(values["name"], "real", [PastRound.from_json(past) for past in values["history"]])
            if not state.history:
                raise ValueError("history is empty")
            states.append(state)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}, line {number}: damaged ({error})") from None
    return states


@dataclasses.dataclass(frozen=True)
class Variants:
    """A state in the forms in which it is put to an engineer.

    Attributes:
      exchanged, labels: the history with the kinds' names exchanged, and the new name of each kind.
    """

    state: State
    exchanged: list[PastRound]
    labels: dict[Kind, Kind]

    @classmethod
    def of(cls, state: State) -> "Variants":
        """Put a state into its forms; always the same for a state of the same name."""
        labels = permutation(state.history, np.random.default_rng([SEED, zlib.crc32(state.name.encode())]))
        return cls(state, permuted(state.history, labels), labels)

    @property
    def histories(self) -> dict[str, list[PastRound]]:
        """The histories that are shown, by the id of the question."""
        forms = {"plain": self.state.history, "exchanged": self.exchanged}
        return {f"{self.state.name}/{form}": history for form, history in forms.items()}


def questions(variants: Sequence[Variants], asker: Asker, config: Config) -> list[Question]:
    """Return a question for every form of every state.

    Args:
      asker: has room for the messages.
      config: whose context the messages have; where nothing was taught, they ask for the words besides.

    Raises:
      ConfigError: if a message has no room.
    """
    context, request = read_context(config.engineer), "" if config.warm_start.steps else REQUEST
    asked: list[Question] = []
    for name, history in (item for one in variants for item in one.histories.items()):
        training = Training(history[-1].round + 1, config.rounds.count, config.rounds.epochs)
        message = context.build(history[-1].evidence, history, training, lambda text: asker.fits(text + request))
        asked.append(Question(name, 0, message + request, len(asked), grammar(history[-1].config.kinds)))
    return asked


class ReadingScores(pydantic.BaseModel):
    """The scores of the responses to some states: means over the states in which a number is defined, NaN over none.

    Attributes:
      states: how many there are.
      legal: how many responses to them as they are hold a configuration.
      weakest, learnable, failure, all: how many name these rightly, and all three.
      quotes, right: numbers quoted, and how many are in the table where they are said to be.
      follows: by ratio (data, hole, wait), the rank correlation over kinds with the design of the taught rule.
      equivariant: by ratio, that of the designs to the plain and the exchanged names, each kind with its own numbers.
      rules: by ratio, the same of the taught rule's own designs: below 1 where equal numbers go to the earlier kind.
      control: ``weakest``, ``learnable`` and ``follows`` of data where the exchanged form was read instead: the figures
        of an engineer that does not read which number is whose.
    """

    states: int
    legal: int
    weakest: int
    learnable: int
    failure: int
    all: int
    quotes: int
    right: int
    follows: dict[str, float]
    equivariant: dict[str, float]
    rules: dict[str, float]
    control: dict[str, float]


def score(variants: Sequence[Variants], responses: Mapping[str, str], config: Config) -> ReadingScores:
    """Score the responses to some states, verbatim by the ids of their questions."""
    shown = read_context(config.engineer).modules

    def read(form: Variants, name: str, history: Sequence[PastRound]) -> tuple[Marks, Proposal, LakeConfig]:
        """Mark a response to a form by the state as it is, and return it as a proposal, and the rule's design."""
        generation = Generation.of(responses[name])
        proposal = read_answer("engineer", generation, history[-1].config)
        said = f"{generation.thinking}\n{generation.answer.partition('{')[0]}"
        designed = frontier_design(visible(history[-1].evidence, shown), history[-1].config.kinds)
        seen = form.state.history[-1]
        return mark(said, visible(seen.evidence, shown), seen.config.kinds), proposal, designed

    rows: list[dict[str, float]] = []
    for one in variants:
        (said, plain, wanted), (astray, exchanged, exchanged_wanted) = (
            read(one, *item) for item in one.histories.items()
        )
        kinds = plain.projected.kinds
        order = [kinds.index(one.labels[kind]) for kind in kinds]
        row = dataclasses.asdict(said) | {"all": said.weakest and said.learnable and said.failure}
        row |= {"legal": not plain.errors, "control weakest": astray.weakest, "control learnable": astray.learnable}
        row["control follows"] = _agreement(np.array(exchanged.projected.data), np.array(wanted.data))
        for field in FIELDS:
            ours, rules, others = (np.array(getattr(c, field)) for c in (plain.projected, wanted, exchanged.projected))
            row[f"follows {field}"] = _agreement(ours, rules)
            row[f"equivariant {field}"] = _agreement(others[order], ours)
            row[f"rules {field}"] = _agreement(np.array(getattr(exchanged_wanted, field))[order], rules)
        rows.append(row)

    def mean(name: str) -> float:
        known = [row[name] for row in rows if not np.isnan(row.get(name, np.nan))]
        return float(np.mean(known)) if known else float("nan")

    counts = ("legal", "weakest", "learnable", "failure", "all", "quotes", "right")
    ratios = {
        what: {field: mean(f"{what} {field}") for field in FIELDS} for what in ("follows", "equivariant", "rules")
    }
    return ReadingScores(
        states=len(rows),
        **{name: int(sum(row[name] for row in rows)) for name in counts},
        **ratios,
        control={name: mean(f"control {name}") for name in ("weakest", "learnable", "follows")},
    )


def _agreement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the rank correlation; NaN where nothing is to be followed, 0 where a constant follows nothing."""
    if np.ptp(theirs) == 0:
        return float("nan")
    return 0.0 if np.ptp(ours) == 0 else float(spearman(ours, theirs))


def to_table(scores: Mapping[str, ReadingScores]) -> Table:
    """Return the figures as a table with a column for each origin of states."""

    def share(name: str, of: str = "states") -> list[str]:
        return [_share(getattr(s, name), getattr(s, of)) for s in scores.values()]

    def number(cell: Any) -> list[str]:
        return [f"{cell(s):.2f}" for s in scores.values()]

    rows = [
        ("states", *(str(s.states) for s in scores.values())),
        ("a legal design, %", *share("legal")),
        ("weakest kind right, %", *share("weakest")),
        ("most learnable kind right, %", *share("learnable")),
        ("leading failure right, %", *share("failure")),
        ("all three right, %", *share("all")),
        ("quotes right, %", *share("right", "quotes")),
        ("quotes a response", *number(lambda s: s.quotes / s.states)),
        *((f"follows the rule: {field}", *number(lambda s, f=field: s.follows[f])) for field in FIELDS),
        *((f"equivariance: {field}", *number(lambda s, f=field: s.equivariant[f])) for field in FIELDS),
        *((f"  the rule's: {field}", *number(lambda s, f=field: s.rules[f])) for field in FIELDS),
        ("shuffled: weakest right, %", *number(lambda s: 100 * s.control["weakest"])),
        ("shuffled: most learnable right, %", *number(lambda s: 100 * s.control["learnable"])),
        ("shuffled: follows the rule: data", *number(lambda s: s.control["follows"])),
    ]
    note = (
        "In brackets 95 % intervals by Wilson. Follows: rank correlation over kinds with the rule that the examples "
        "teach. Equivariance: rank correlation between the designs before and after the kinds' names were exchanged, "
        "each kind with the one that had its name. Shuffled: the same figures if the exchanged table is read instead."
    )
    return Table("Reading", ("", *scores), rows, note)


def _share(count: int, of: int) -> str:
    return Share.of(count, of).text(1) if of else "-"


def run(
    asker: Asker, config: Config, label: str, limit: int | None, folder: Path, display: Display, stop: Stop
) -> dict[str, ReadingScores]:
    """Ask, score, and write ``reading.json`` into the folder; return the scores by origin.

    Args:
      label: name of the model that is asked.
      limit: at most so many states of either origin.

    Raises:
      ConfigError: if a message has no room, or the folder holds something else.
      RunError: if some responses are missing.
      Interrupted: on a signal, with all responses kept that have come.
    """
    count = min(COUNT, limit or COUNT)
    states = {"drawn": drawn_states(config, count), "real": real_states(config, count)}
    if not states["real"]:
        display.say("no states of real runs have these kinds and targets: only drawn ones")
    variants = [Variants.of(state) for part in states.values() for state in part]
    settings = config.engineer
    identity = {
        "reading": label,
        "context": settings.context,
        "template": settings.template,
        "temperature": settings.temperature,
        "kinds": " ".join(map(str, config.lake.kinds)),
    }
    record = collect(asker, questions(variants, asker, config), folder, identity, display, stop, "responses")
    assert record is not None, "one process asks"
    if asker.failures:
        name, reason = next(iter(asker.failures.items()))
        raise RunError(f"{len(asker.failures):,} responses are missing, such as to {name[0]}: {reason}; ask again")
    responses = {name: answer.answer for (name, _), answer in record.answers.items()}
    if cut := sum(answer.truncated for answer in record.answers.values()):
        display.say(
            f"{cut:,} of {len(responses):,} responses were cut off at engineer.api.max_tokens = "
            f"{settings.api.max_tokens:,}"
        )
    parts = {origin: [one for one in variants if one.state.origin == origin] for origin in states}
    parts = {origin: part for origin, part in parts.items() if part} | {"all": variants}
    scores = {origin: score(part, responses, config) for origin, part in parts.items()}
    plain = {
        origin: json.loads(one.model_dump_json()) for origin, one in scores.items()
    }  # a mean of nothing becomes null
    content = {"about": record.about | asker.refused, "scores": plain}
    write_whole(folder / "reading.json", (json.dumps(content, indent=1) + "\n").encode())
    display.say(f"\n{to_table(scores).to_text()}\n\nNumbers: {folder / 'reading.json'}")
    return scores
