"""The reading test: an engineer gets tables whose answers are known; are its words right, and does its design follow?

Every state is put to it three times: as it is, with the kinds' names exchanged, and with one kind's valid share
changed. The responses are kept as they come, like the answers to a suite.
"""

import dataclasses
import gzip
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engineer import Generation, PastRound, Proposal, Training, grammar
from engineer.engineers.language import read_answer
from engineer.engineers.rules import frontier_design
from engineer.examples import draw_history, visible
from engineer.reading import Marks, mark, permutation, permuted, with_share
from jaxlake.config import FIELDS, LakeConfig
from jaxlake.files import write_whole
from jaxlake.kinds import Kind
from rl.config import Config, ConfigError
from rl.context import read_context
from rl.evaluation.record import Answer, Record
from rl.evaluation.writers import Writer
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.statistics import Share, spearman
from rl.table import Table

STATES = Path(__file__).parent / "states.jsonl.gz"
"""States of real runs, a line each; no training shows them."""
COUNT = 200
"""States of either origin, at most."""
SEED = 2**20
"""With a state's number or name it seeds what is drawn for it; a run's examples come from keys and never from this."""
REQUEST = (
    '\n\nBegin with one line in this form: "Weakest size K (P% valid), most learnable size K (P%). Leading failure: '
    'NAME." P is sampled valid; most learnable is what is nearest to 50%.'
)
"""What a model is asked besides that was not taught how the examples think."""


class State(NamedTuple):
    """What an engineer designs from.

    Attributes:
      name: of the state.
      origin: ``drawn`` or ``real``.
      history: finished rounds, at whose end the evidence is.
    """

    name: str
    origin: str
    history: list[PastRound]


def drawn_states(config: Config, count: int = COUNT) -> list[State]:
    """Draw states as the examples of the warm start are drawn, of the run's kinds."""
    shown, kinds, targets = read_context(config).modules, config.lake.kinds, config.target_kinds
    rounds = max(2, config.rounds.count)
    return [
        State(f"drawn-{i}", "drawn", draw_history(np.random.default_rng([SEED, i]), kinds, rounds, shown, targets))
        for i in range(count)
    ]


def real_states(config: Config, count: int = COUNT, path: Path = STATES) -> list[State]:
    """Return states of runs with these kinds and targets, evenly from all that there are; none where there are none.

    Only those after which this run would design a round: longer histories are shown to nobody in it.

    Raises:
      ConfigError: if the file is damaged.
    """
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    except (OSError, EOFError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    found = []
    for state in read_lines(path, lines):
        last = state.history[-1]
        targets = tuple(row.kind for row in last.evidence.by_kind)
        left = config.rounds.count - 1 - last.round
        if last.config.kinds == config.lake.kinds and targets == config.target_kinds and left > 0:
            found.append(state)
    return [found[i] for i in np.linspace(0, len(found) - 1, min(count, len(found))).round().astype(int)]


def read_lines(path: Path, lines: Sequence[str]) -> list[State]:
    """Return the states of a file's lines.

    Raises:
      ConfigError: naming the line that is damaged.
    """
    states = []
    for number, line in enumerate(lines, 1):
        try:
            states.append(read_state(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}, line {number}: damaged ({error})") from None
    return states


def write_state(name: str, history: Sequence[PastRound]) -> dict[str, Any]:
    """Return a state of a run as JSON values; failed answers are left out."""
    bare = (dataclasses.replace(past, evidence=dataclasses.replace(past.evidence, trajectories=())) for past in history)
    return {"name": name, "history": [past.to_json() for past in bare]}


def read_state(values: Mapping[str, Any]) -> State:
    """The inverse of `write_state`.

    Raises:
      ValueError, KeyError, TypeError: for anything else.
    """
    history = [PastRound.from_json(past) for past in values["history"]]
    if not history:
        raise ValueError("history is empty")
    return State(values["name"], "real", history)


@dataclasses.dataclass(frozen=True)
class Forms:
    """The forms in which a state is put to an engineer.

    Attributes:
      exchanged, labels: with the kinds' names exchanged, and for what.
      changed, kind: with the valid share of one kind changed, and of which.
    """

    state: State
    exchanged: list[PastRound]
    labels: dict[Kind, Kind]
    changed: list[PastRound]
    kind: Kind

    @classmethod
    def of(cls, state: State) -> "Forms":
        """Put a state into its forms; always the same for a state of the same name.

        The changed kind goes to a half, or where it is near one to 0.
        """
        rng = np.random.default_rng([SEED, zlib.crc32(state.name.encode())])
        labels = permutation(state.history, rng)
        rows = state.history[-1].evidence.by_kind
        row = rows[rng.integers(len(rows))]
        share = 0.5 if abs(row.valid_share - 0.5) > 0.25 else 0.0
        changed = with_share(state.history, row.kind, share)
        return cls(state, permuted(state.history, labels), labels, changed, row.kind)

    @property
    def histories(self) -> dict[str, list[PastRound]]:
        """What is shown, by the name of the form."""
        return {"plain": self.state.history, "exchanged": self.exchanged, "changed": self.changed}


def ask(
    forms: Sequence[Forms],
    writer: Writer,
    config: Config,
    record: Record,
    display: Display,
    stop: Stop,
) -> dict[tuple[str, str], str]:
    """Have an engineer respond to every form of every state; what the record holds is not asked for again.

    Args:
      config: whose context and rooms the messages have; where nothing was taught, they ask for the words besides.

    Returns:
      The responses, verbatim, by the names of state and form.

    Raises:
      ConfigError: if a message has no room.
      Interrupted: on a signal, with all responses kept that have come.
    """
    context = read_context(config)
    request = "" if config.warm_start.steps else REQUEST
    wanted = [(form, name) for form in forms for name in form.histories]
    missing = [(form, name) for form, name in wanted if (_id(form, name), 0) not in record.answers]
    display.stage("responses", len(wanted), done=len(wanted) - len(missing))
    requests = []
    for form, name in missing:
        history = form.histories[name]
        training = Training(history[-1].round + 1, config.rounds.count, config.rounds.epochs)
        message = context.build(history[-1].evidence, history, training, lambda text: writer.fits(text + request))
        requests.append((message + request, grammar(history[-1].config.kinds)))
    with stop.interrupt_immediately():
        for index, raw in writer.write(requests):
            record.add([Answer(_id(*missing[index]), 0, raw, None, False)])
            record.note_refused(writer.client, display.say)
            display.advance()
    return {(form.state.name, name): record.answers[_id(form, name), 0].answer for form, name in wanted}


def _id(form: Forms, name: str) -> str:
    return f"{form.state.name}/{name}"


@dataclasses.dataclass(frozen=True)
class Scores:
    """What the responses to some states came to; means over the states in which a number is defined.

    Attributes:
      states: how many there are.
      legal: how many responses to them as they are hold a configuration.
      weakest, learnable, failure, all: how many name these rightly, and all three.
      quotes, right: numbers quoted, and how many stand in the table where they are said to.
      follows: by ratio (data, hole, wait), the rank correlation over kinds with what the taught rule designs.
      equivariant: by ratio, that of the designs to the plain and the exchanged names, each kind with its own numbers.
      rules: by ratio, the same of the taught rule's own designs: below 1 where equal numbers go to the earlier kind.
      moves, wanted: mean change of the changed kind's data ratio towards where the rule moves it, and the rule's.
      moved: share of these that go the same way as the rule's.
      control: ``weakest``, ``learnable`` and ``follows`` of data where it is the exchanged form that was read: what one
        gets who does not read which number is whose.
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
    moves: float
    wanted: float
    moved: float
    control: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a mean of nothing becomes null."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: plain(part) for name, part in value.items()}
            return None if isinstance(value, float) and math.isnan(value) else value

        return plain(dataclasses.asdict(self))


def score(forms: Sequence[Forms], responses: Mapping[tuple[str, str], str], config: Config) -> Scores:
    """Score the responses to some states.

    Args:
      responses: of `ask`.
    """
    shown = read_context(config).modules

    def read(form: Forms, name: str) -> tuple[Marks, Proposal, LakeConfig]:
        """Mark what is said to a form by the state as it is, and return it as a proposal, and the rule's design."""
        history = form.histories[name]
        generation = Generation.of(responses[form.state.name, name])
        proposal = read_answer("engineer", generation, history[-1].config)
        said = f"{generation.thinking}\n{generation.answer.partition('{')[0]}"
        designed = frontier_design(visible(history[-1].evidence, shown), history[-1].config.kinds)
        seen = form.state.history[-1]
        return mark(said, visible(seen.evidence, shown), seen.config.kinds), proposal, designed

    marks: list[Marks] = []
    astray: list[Marks] = []
    legal = 0
    columns: dict[str, list[float]] = {
        f"{what} {field}": [] for what in ("follows", "equivariant", "rules") for field in FIELDS
    }
    columns |= {"control": [], "moves": [], "wanted": []}
    for form in forms:
        (said, plain, wanted), (said_exchanged, exchanged, exchanged_wanted), (_, changed, rewanted) = (
            read(form, name) for name in form.histories
        )
        marks.append(said)
        astray.append(said_exchanged)
        legal += not plain.errors
        kinds = plain.projected.kinds
        order = [kinds.index(form.labels[kind]) for kind in kinds]
        for field in FIELDS:
            ours, rules, others = (np.array(getattr(c, field)) for c in (plain.projected, wanted, exchanged.projected))
            columns[f"follows {field}"].append(_agreement(ours, rules))
            columns[f"equivariant {field}"].append(_agreement(others[order], ours))
            columns[f"rules {field}"].append(_agreement(np.array(getattr(exchanged_wanted, field))[order], rules))
        columns["control"].append(_agreement(np.array(exchanged.projected.data), np.array(wanted.data)))
        i = kinds.index(form.kind) if form.kind in kinds else None
        step = rewanted.data[i] - wanted.data[i] if i is not None else 0.0
        if i is not None and step:
            columns["moves"].append(np.sign(step) * (changed.projected.data[i] - plain.projected.data[i]))
            columns["wanted"].append(abs(step))
    means = {name: _mean(values) for name, values in columns.items()}
    count = len(forms)
    return Scores(
        states=count,
        legal=legal,
        weakest=sum(m.weakest for m in marks),
        learnable=sum(m.learnable for m in marks),
        failure=sum(m.failure for m in marks),
        all=sum(m.weakest and m.learnable and m.failure for m in marks),
        quotes=sum(m.quotes for m in marks),
        right=sum(m.right for m in marks),
        follows={field: means[f"follows {field}"] for field in FIELDS},
        equivariant={field: means[f"equivariant {field}"] for field in FIELDS},
        rules={field: means[f"rules {field}"] for field in FIELDS},
        moves=means["moves"],
        wanted=means["wanted"],
        moved=_mean([float(move > 0) for move in columns["moves"]]),
        control={
            "weakest": sum(m.weakest for m in astray) / count,
            "learnable": sum(m.learnable for m in astray) / count,
            "follows": means["control"],
        },
    )


def _agreement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the rank correlation; NaN where nothing is to be followed, 0 where a constant follows nothing."""
    if np.ptp(theirs) == 0:
        return float("nan")
    return 0.0 if np.ptp(ours) == 0 else float(spearman(ours, theirs))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def to_table(scores: Mapping[str, Scores]) -> Table:
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
        ("changed row: same way, %", *number(lambda s: 100 * s.moved)),
        ("changed row: points of data", *number(lambda s: 100 * s.moves)),
        ("  the rule's", *number(lambda s: 100 * s.wanted)),
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
    writer: Writer, config: Config, label: str, limit: int | None, folder: Path, display: Display, stop: Stop
) -> dict[str, Scores]:
    """Ask, score, and write ``reading.json`` and ``reading.md`` into the folder; return the scores by origin.

    Args:
      label: who is asked.
      limit: at most so many states of either origin.
    """
    count = min(COUNT, limit or COUNT)
    states = {"drawn": drawn_states(config, count), "real": real_states(config, count)}
    if not states["real"]:
        display.say("no states of real runs have these kinds and targets: only drawn ones")
    everything = [Forms.of(state) for part in states.values() for state in part]
    settings = config.engineer
    identity = {
        "reading": label,
        **writer.identity(),
        "context": settings.context,
        "template": settings.template,
        "temperature": settings.temperature,
        "kinds": " ".join(map(str, config.lake.kinds)),
    }
    with Record(folder, identity) as record:
        responses = ask(everything, writer, config, record, display, stop)
    parts = {origin: [form for form in everything if form.state.origin == origin] for origin in states}
    parts = {origin: part for origin, part in parts.items() if part} | {"all": everything}
    scores = {origin: score(part, responses, config) for origin, part in parts.items()}
    table = to_table(scores)
    values = {"about": record.about, "scores": {origin: s.to_json() for origin, s in scores.items()}}
    write_whole(folder / "reading.json", (json.dumps(values, indent=1) + "\n").encode())
    write_whole(folder / "reading.md", (table.to_markdown() + "\n").encode())
    display.say(f"\n{table.to_text()}\n\nReport: {folder / 'reading.md'}")
    return scores
