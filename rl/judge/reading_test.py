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

from engineer import Generation, PastRound, Training, grammar
from engineer.engineers.language import read_answer
from engineer.engineers.rules import frontier_design
from engineer.engineers.shuffle import permutation, permuted
from engineer.examples import draw_history, visible
from engineer.reading import mark
from jaxlake.config import FIELDS
from jaxlake.files import write_whole
from jaxlake.kinds import Kind
from jaxlake.table import Table
from rl.config import Config, ConfigError, RunError
from rl.judge.asking import Asker, Question, collect
from rl.judge.statistics import spearman
from rl.model.context import read_context
from rl.run.signals import Stop
from rl.run.tracking import Display

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


class DesignState(NamedTuple):
    """A state that an engineer designs from, ``drawn`` or ``real``: finished rounds, at whose end the evidence is."""

    name: str
    origin: str
    history: list[PastRound]


def drawn_states(config: Config, count: int = COUNT) -> list[DesignState]:
    """Draw states as the examples of the warm start are drawn, of the run's kinds."""
    shown, kinds, targets = read_context(config.engineer).modules, config.lake.kinds, config.target_kinds
    rounds = max(2, config.rounds.count)
    return [
        DesignState(
            f"drawn-{i}", "drawn", draw_history(np.random.default_rng([SEED, i]), kinds, rounds, shown, targets)
        )
        for i in range(count)
    ]


def real_states(config: Config, count: int = COUNT) -> list[DesignState]:
    """Return states of runs with these kinds and targets, evenly from all that there are; none where there are none.

    Only those after which this run would design a round; it shows no longer histories.
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


def read_lines(path: Path, lines: Sequence[str]) -> list[DesignState]:
    """Return the states of a file's lines, as `write_state` makes them; ConfigError naming a line that is damaged."""
    states = []
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            state = DesignState(values["name"], "real", [PastRound.from_json(past) for past in values["history"]])
            if not state.history:
                raise ValueError("history is empty")
            states.append(state)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}, line {number}: damaged ({error})") from None
    return states


def exchange(state: DesignState) -> tuple[list[PastRound], dict[Kind, Kind]]:
    """Return a state's history with the kinds' names exchanged, and the new name of each kind; the same each time."""
    labels = permutation(state.history, np.random.default_rng([SEED, zlib.crc32(state.name.encode())]))
    return permuted(state.history, labels), labels


def histories(state: DesignState) -> dict[str, list[PastRound]]:
    """Return the histories that an engineer sees, by the id of their question."""
    return {f"{state.name}/plain": state.history, f"{state.name}/exchanged": exchange(state)[0]}


def questions(states: Sequence[DesignState], asker: Asker, config: Config) -> list[Question]:
    """Return two questions for every state, which ask untaught models for words too; ConfigError if one has no room."""
    taught = config.warm_start.teaches_engineer or config.engineer.template == "terse"
    context, request = read_context(config.engineer), "" if taught else REQUEST
    asked: list[Question] = []
    for name, history in (item for state in states for item in histories(state).items()):
        training = Training(history[-1].round + 1, config.rounds.count, config.rounds.epochs)
        message = context.build(history[-1].evidence, history, training, lambda text: asker.fits(text + request))
        asked.append(Question(name, 0, message + request, len(asked), grammar(history[-1].config.kinds)))
    return asked


def score(states: Sequence[DesignState], responses: Mapping[str, str], config: Config) -> dict[str, float | None]:
    """Score the responses to some states, verbatim by the ids of their questions.

    Returns:
      By name means over the states in which a number is defined, None over none. Follows: the rank correlation over
      kinds with the design of the taught rule. Equivariance: that of the designs to the plain and the exchanged names,
      each kind with its own numbers; the rule's own is below 1 where equal numbers go to the earlier kind. Shuffled:
      the exchanged table was read instead, as by an engineer that does not read which number is whose.
    """
    shown = read_context(config.engineer).modules
    rows: list[dict[str, float]] = []
    quotes = right = 0
    for state in states:
        seen, labels = visible(state.history[-1].evidence, shown), exchange(state)[1]
        words, proposals, rules = [], [], []
        for name, history in histories(state).items():
            generation = Generation.of(responses[name])
            said = f"{generation.thinking}\n{generation.answer.partition('{')[0]}"
            words.append(mark(said, seen, state.history[-1].config.kinds))
            proposals.append(read_answer("engineer", generation, history[-1].config))
            rules.append(frontier_design(visible(history[-1].evidence, shown), history[-1].config.kinds))
        kinds = proposals[0].projected.kinds
        order = [kinds.index(labels[kind]) for kind in kinds]
        told, astray = words
        quotes, right = quotes + told.quotes, right + told.right
        row: dict[str, float] = {
            "legal design, %": not proposals[0].errors,
            "weakest kind right, %": told.weakest,
            "most learnable kind right, %": told.learnable,
            "leading failure right, %": told.failure,
            "all three right, %": told.weakest and told.learnable and told.failure,
            "whole ranking right, %": told.ranking,
            "shuffled: weakest kind right, %": astray.weakest,
            "shuffled: most learnable kind right, %": astray.learnable,
        }
        for field in FIELDS:
            designs, wanted = (
                [np.array(getattr(config, field)) for config in configs]
                for configs in ([proposal.projected for proposal in proposals], rules)
            )
            row[f"follows the rule: {field}"] = _agreement(designs[0], wanted[0])
            row[f"equivariance: {field}"] = _agreement(designs[1][order], designs[0])
            row[f"equivariance of the rule: {field}"] = _agreement(wanted[1][order], wanted[0])
            row[f"shuffled: follows the rule: {field}"] = _agreement(designs[1], wanted[0])
        rows.append(row)
    scores: dict[str, float | None] = {"states": len(rows), "quotes right, %": 100 * right / quotes if quotes else None}
    for name in sorted(rows[0], key=lambda name: name.startswith("shuffled")):
        known = [row[name] for row in rows if not np.isnan(row[name])]
        scores[name] = (100 if name.endswith("%") else 1) * float(np.mean(known)) if known else None
    return scores


def _agreement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the rank correlation; NaN where the evidence has nothing to follow, 0 where the design is constant."""
    if np.ptp(theirs) == 0:
        return float("nan")
    return 0.0 if np.ptp(ours) == 0 else float(spearman(ours, theirs))


def run(
    asker: Asker, config: Config, label: str, limit: int | None, folder: Path, display: Display, stop: Stop
) -> dict[str, dict[str, float | None]]:
    """Ask, score, and write ``reading.json`` into the folder; return the scores by origin.

    Args:
      limit: most states of either origin.

    Raises:
      ConfigError: if a message has no room, or the folder holds something else.
      RunError: if some responses are missing.
      Interrupted: on a signal, with all responses kept that have come.
    """
    count = min(COUNT, limit or COUNT)
    states = {"drawn": drawn_states(config, count), "real": real_states(config, count)}
    if not states["real"]:
        display.say("no states of real runs have these kinds and targets: only drawn ones")
    everything = [state for part in states.values() for state in part]
    settings = config.engineer
    identity = {
        "reading": label,
        "context": settings.context,
        "template": settings.template,
        "temperature": settings.temperature,
        "kinds": " ".join(map(str, config.lake.kinds)),
    }
    record = collect(asker, questions(everything, asker, config), folder, identity, display, stop, "responses")
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
    parts = {origin: part for origin, part in states.items() if part} | {"all": everything}
    scores = {origin: score(part, responses, config) for origin, part in parts.items()}

    def cell(name: str, origin: str) -> str:
        value = scores[origin][name]
        return "-" if value is None else f"{value:.3g}"

    content = {"about": record.about, "scores": scores}
    write_whole(folder / "reading.json", (json.dumps(content, indent=1) + "\n").encode())
    table = Table.grid("Reading", "", list(scores["all"]), list(scores), cell)
    display.say(f"\n{table.to_text()}\n\nNumbers: {folder / 'reading.json'}")
    return scores
