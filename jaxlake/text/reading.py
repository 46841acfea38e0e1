"""Answers to plans, tolerantly, and the reason where one is refused; writes nothing.

An answer is a sequence of paths of different agents, each a label and the steps behind it; an agent that comes again
begins the next answer. Of the complete answers that name the most agents the last one counts, where words before it say
that it is meant (``Corrected:``) or where all say the same. If they contradict each other without such a word, or words
behind the last one take it back, nothing counts.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxlake.record import Array
from jaxlake.text.canonical import read_as_asked
from jaxlake.text.grammar import Body, Label, Step, follow, labels, read_body
from jaxlake.text.markup import plain
from jaxlake.types import ABSENT, OUTSIDE, Action, Plan

_ROOM, _ROOM_PER_CELL = 12_000, 16
"""Characters that are read, and how many more for each cell of a plan: bounds the time that a hostile text takes."""

_CHANGED = r"correct(?:ed|ion)|ha(?:s|ve) to be|must be|fix\w*|changed?|instead|wrong|redo|adjust\w*"
_CHANGES = re.compile(rf"\b(?:{_CHANGED})\b", re.I)
"""Words that say that what follows is not what was before."""
_MEANT = re.compile(rf"\b(?:{_CHANGED}|correct|final\w*|answer|better|so|wait|no|sorry|let me)\b|答案", re.I)
"""Words before an answer that set it against what was before."""
_TAKEN_BACK = re.compile(
    r"\b(?:wrong|invalid|mistake|not (?:valid|able|allowed|possible)|th(?:ese|ey) (?:two )?collide|"
    r"to avoid th(?:is|at)|needs? to (?:be )?change|so let agent)\b|'s a[\w -]{0,20} collision\b",
    re.I,
)
"""Words behind an answer that take it back."""
_NEXT_TASK = re.compile(r"^[ \t#*<|]*+(?:human|user|question|problem|board|instruction|im_start)\b", re.I | re.M)
"""Beginnings of a new task, with which a model without an end token continues."""
_FIRST_UNLABELLED = re.compile(r"\s*+[(\[]\d[^\n:]*+\n1\W")
_BROKEN_END = re.compile(r"[(\[]\s*+-?\d*+\s*+,?\s*+-?\Z")
_MENTIONED = re.compile(r"\bagent ?(\d{1,6})", re.I)
_NOTHING = "no cell and no move"

Paths = dict[str, list[int]]
"""Cells by agent; the agent as its number is written, without zeros before it."""


class Reading(NamedTuple):
    """A plan as ``parse`` returns it, and in words what could not be read; no words if everything could."""

    plan: Plan
    problems: tuple[str, ...]


def read(
    text: str, *, max_size: int, max_agents: int, max_steps: int, starts: Sequence[int] | Array | None = None
) -> Reading:
    """Read a plan out of a model's text, tolerantly: never raises, in time linear in the text's length.

    The plan is not parsable, and holds nothing, if no answer is complete or it is in doubt which one is meant (see
    the top of this file).

    Args:
      max_agents: number of paths that the plan holds; agents from there on are counted and not held.
      max_steps: the plan holds one cell more for each agent.
      starts: cells ``[max_agents]`` that moves begin from; None reads coordinates alone, and moves behind them.

    Returns:
      A plan of numpy arrays without batch axes: paths int32 ``[max_agents, max_steps + 1]``. A coordinate off the
      padded board is ``OUTSIDE``, and so is every cell from a move off the padded board on.
    """
    paths, problems = _find(text, max_size, max_agents, max_steps, starts)
    batch = _plans([paths], max_agents, max_steps)
    return Reading(Plan(**{name: part[0] for name, part in vars(batch).items()}), tuple(problems))


def parse(
    text: str, *, max_size: int, max_agents: int, max_steps: int, starts: Sequence[int] | Array | None = None
) -> Plan:
    """Return the plan of ``read``."""
    return read(text, max_size=max_size, max_agents=max_agents, max_steps=max_steps, starts=starts).plan


def parse_batch(
    texts: Sequence[str],
    *,
    max_size: int,
    max_agents: int,
    max_steps: int,
    starts: Sequence[Sequence[int]] | Array | None = None,
) -> Plan:
    """Apply ``parse`` to each text (starts ``[batch, max_agents]``) along a leading batch axis; numpy arrays."""
    cells = [None] * len(texts) if starts is None else starts
    answers = [_find(text, max_size, max_agents, max_steps, at)[0] for text, at in zip(texts, cells, strict=True)]
    return _plans(answers, max_agents, max_steps)


def _plans(answers: Sequence[Paths], max_agents: int, max_steps: int) -> Plan:
    """Return the plans ``[batch]`` that hold the paths of the agents for whom there is room."""
    paths = np.full((len(answers), max_agents, max_steps + 1), ABSENT, np.int32)
    lengths = np.zeros((len(answers), max_agents), np.int32)
    for index, answer in enumerate(answers):
        for agent in range(max_agents):
            if cells := answer.get(str(agent)):
                paths[index, agent, : len(cells)] = cells
                lengths[index, agent] = len(cells)
    num_named = np.array(list(map(len, answers)), np.int32)
    return Plan(parsable=num_named > 0, num_named=num_named, paths=paths, lengths=lengths)


def _find(
    text: str, side: int, max_agents: int, max_steps: int, cells: Sequence[int] | Array | None
) -> tuple[Paths, list[str]]:
    """Return the path of each agent by its number, nothing if no answer counts, and what is wrong in words."""
    for tag in ("think", "thinking"):
        text = text.rpartition(f"</{tag}>")[2]
        if f"<{tag}>" in text:
            return {}, [f"a <{tag}> is not closed"]
    problems = []
    if len(text) > (room := _ROOM + _ROOM_PER_CELL * max_agents * (max_steps + 1)):
        problems = [f"only the last {room} of {len(text)} characters are read"]
        text = text[-room:].partition("\n")[2]
    starts = None if cells is None else {str(agent): int(cell) for agent, cell in enumerate(cells) if cell >= 0}
    paths = read_as_asked(text, side, starts)
    if paths is None:
        paths, problem = _read(plain(text), side, starts)
        problems += [problem] if problem else []
    if starts and set(paths) == set(map(str, range(1, len(starts) + 1))):
        paths = {str(int(agent) - 1): path for agent, path in paths.items()}
        if any(path[0] != starts[agent] for agent, path in paths.items()):
            return {}, [*problems, f"agents are numbered from 1 to {len(starts)}, and not from 0"]
    for agent, path in paths.items():
        if len(path) > max_steps + 1:
            return {}, [*problems, f"agent {agent[:9]}: {len(path)} cells, where at most {max_steps + 1} are held"]
        if OUTSIDE in path:
            problems.append(f"agent {agent[:9]}: off the board of {side} x {side} in step {path.index(OUTSIDE)}")
        if len(agent) > 6 or int(agent) >= max_agents:
            problems.append(f"agent {agent[:9]}: not held, there is room for {max_agents} agents")
    return paths, problems


def _read(text: str, side: int, starts: dict[str, int] | None) -> tuple[Paths, str]:
    """Return the paths of the answer that counts in a text in plain signs, or none and why."""
    if _FIRST_UNLABELLED.match(text):
        text = "0:" + text  # The prompt may have ended in it.
    first = next(labels(text), None)
    if first and (next_task := _NEXT_TASK.search(text, first.end)):
        text = text[: next_task.start()]
    answers, behind = _answers(text, side, starts)
    if not answers:
        paths = _unlabelled(text, side, starts or {})
        return paths, "" if paths else "no line begins with an agent's number and a colon"
    paths, problem = _choose(answers)
    named = set(_MENTIONED.findall(text)).union(*(answer.paths.keys() | answer.faults.keys() for answer in answers))
    if paths and named - set(paths):
        return {}, f"agent {min(named - set(paths))[:9]}: no path"
    if paths and _TAKEN_BACK.search(behind.partition("\n")[2]):
        return {}, "words behind the answer take it back"
    return paths, problem


class _Answer:
    """An answer as it grows: the words before it, paths, faults of agents without one, and the last times told.

    The text ends within the ``last`` one, which may not be whole, and in a broken cell if it is ``cut``.
    """

    def __init__(self, lead: str) -> None:
        self.lead, self.last, self.cut = lead, False, False
        self.paths: Paths = {}
        self.faults: dict[str, str] = {}
        self.times: dict[str, int] = {}

    def is_meant(self) -> bool:
        """Whether the words before it set it against what was before."""
        return bool(_MEANT.search(self.lead))

    def agrees(self, other: Paths) -> bool:
        """Whether it says the same, or the beginning of it where the text ends with it."""
        wholes = (other.get(agent, []) for agent in self.paths)
        pairs = zip(self.paths.values(), wholes, strict=True)
        return all(path == (whole[: len(path)] if self.last else whole) for path, whole in pairs)


def _statements(text: str, side: int) -> list[tuple[Label, Body]]:
    """Return the labels of a text and what they say; of times those before an agent's label, others are in its path."""
    marks = list(labels(text))
    marks = [
        mark
        for mark, following in zip(marks, [*marks[1:], None], strict=False)
        if mark.agent or (following and following.agent and read_body(text[mark.end : following.begin], side).empty)
    ]
    ends = [*[mark.begin for mark in marks[1:]], len(text)]
    return [(mark, read_body(text[mark.end : end], side)) for mark, end in zip(marks, ends, strict=False)]


def _answers(text: str, side: int, starts: dict[str, int] | None) -> tuple[list[_Answer], str]:  # noqa: C901 - one pass
    """Return the answers of a text in turn, and the words behind the last path."""
    whole = _BROKEN_END.sub("", text)
    statements = _statements(whole, side)
    moves = any(isinstance(step, Action) for _, body in statements for step in body.steps[:1])
    answers: list[_Answer] = []
    time = -1  # The time of all agents up to a blank line; -1 if none is told.
    since = end = 0
    for mark, body in statements:
        time = -1 if "\n\n" in text[end : mark.begin] else time
        agent, end = mark.agent, mark.end
        if agent is None:
            time, end = mark.time, len(text)
        if agent is None or (mark.told and time < 0):
            continue
        answer = answers[-1] if answers else _Answer(text[: mark.begin])
        path, start = answer.paths.get(agent, []), None if starts is None else starts.get(agent, OUTSIDE)
        before = answer.times.get(agent, time)
        goes_on = bool(path) and time > before
        steps: list[Step] = [start] if body.empty and moves and start is not None else body.steps
        cells: list[int] = []
        fault = body.problem or ("" if steps else _NOTHING)
        if not fault:
            cells, fault = follow(steps, path[-1] if goes_on else start, side, goes_on)
        if goes_on and (fault or len(cells) != 1 or time != before + 1):
            fault = fault or f"{len(cells)} steps at time {time}, after time {before}"
            del answer.paths[agent]
        elif not goes_on and time > 1 and len(cells) < 3:
            fault = fault or f"begins at time {time}"
        if fault:
            if agent not in answer.paths:
                answers = answers or [answer]
                answer.faults[agent] = fault
            continue
        if not goes_on:
            if start not in (None, cells[0]) and (body.times[:1] == (1,) or (time == 1 and len(cells) == 1)):
                cells = [start, *cells]
            if path or not answers or answer.faults.get(agent, _NOTHING) != _NOTHING:
                answers.append(answer := _Answer(text[since : mark.begin]))
        answer.paths[agent] = [*path, *cells] if goes_on else cells
        answer.faults.pop(agent, None)
        if time >= 0:
            answer.times[agent] = time
        since = mark.end
    if answers:
        answers[-1].last = "\n" not in text[since:].strip()
        answers[-1].cut = answers[-1].last and whole != text
    return answers, text[since:]


def _choose(answers: list[_Answer]) -> tuple[Paths, str]:
    """Return the paths of the answer that counts, or none and why."""
    most = max((len(answer.paths) for answer in answers if not answer.faults), default=0)
    if not most:
        agent, fault = next(iter(answers[-1].faults.items()))
        return {}, f"agent {agent[:9]}: {fault}"
    complete = [index for index, answer in enumerate(answers) if not answer.faults and len(answer.paths) == most]
    chosen = answers[complete[-1]]
    # The first that says all of it already: the last one only repeats that.
    repeated = (answers[index].paths for index in complete if not answers[index].cut)
    paths = dict(next((one for one in repeated if chosen.agrees(one)), chosen.paths))
    for index, answer in enumerate(answers):
        changes = answer.is_meant() and _CHANGES.search(answer.lead)
        garbled = index > complete[-1] and set(answer.faults.values()) - {_NOTHING}
        if answer is chosen or (answer.agrees(paths) and not (garbled or (answer.cut and changes))):
            continue
        if index > complete[-1] and changes and not (answer.faults or answer.cut) and set(answer.paths) < set(paths):
            paths |= answer.paths
        elif index > complete[-1] or not chosen.is_meant():
            return {}, f"answer {index + 1} of {len(answers)} contradicts another, and no word says which one is meant"
    return paths, ""


def _unlabelled(text: str, side: int, starts: dict[str, int]) -> Paths:
    """Return the answer of a text of nothing but as many paths as there are agents, each from its agent's start."""
    lines = [line for line in re.sub(r"\][\s,]*+\[(?=\s*+[\[(])", "\n", text).split("\n") if line.strip()]
    paths: Paths = {}
    for line, (agent, start) in zip(lines, starts.items(), strict=False):
        body = read_body(line, side)
        paths[agent], problem = follow(body.steps, start, side) if body.steps else ([], "no step")
        if problem or body.problem or body.remark or paths[agent][0] != start:
            return {}
    return paths if len(lines) == len(starts) else {}
