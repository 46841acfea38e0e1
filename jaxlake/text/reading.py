"""Answers to plans, tolerantly, and the reasons where something cannot be read; writes nothing.

What counts of a text, from the outside in:

- Thoughts are left out: only what follows the last ``</think>`` or ``</thinking>`` is read, and nothing if one is not
  closed. Of a long text only the end is read, from the beginning of a line on.
- A path is a label that says whose it is (``0:``, ``- **Agent 0:**``, ``"id": 0,``, a column of a table) and the steps
  behind it: cells (``(0,1)``, ``[0, 1]``, ``row 0 column 1``) or moves (``R``, ``RRD``, ``3R``, ``right``, ``→`` where
  nothing else moves), one after the other. Where labels say the time (``t=1:``, ``Step 1:``, ``1.``), each brings a
  step. Words between steps that do not just link them make it a remark and no path; remarks behind a path are skipped.
- An answer is a sequence of paths of different agents; one that comes again begins the next answer. Of the complete
  answers that name the most agents the last one counts, where words before it say that it is meant (``Corrected:``,
  ``Final answer:``) or where all say the same. Where they contradict each other without such a word nothing counts.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxlake.record import Array
from jaxlake.text.canonical import read_as_asked
from jaxlake.text.grammar import Body, Label, follow, has_compass, is_walk, labels, read_body, without_remarks
from jaxlake.text.markup import plain, rows_as_lines
from jaxlake.types import ABSENT, OUTSIDE, Plan

_ROOM, _ROOM_PER_CELL = 12_000, 16
"""Characters that are read, and how many more for each cell of a plan: bounds the time that a hostile text takes."""

_THOUGHTS = ("think", "thinking")
_MEANT = re.compile(
    r"\b(?:correct\w*|korrigiert\w*|final\w*|answer|solution|fix(?:ed)?|instead|revised?|better|improved?|updated?|"
    r"actually|therefore|so|thus|hence|wait|no|oops|sorry|wrong|mistake|collides?|collision|conflict|invalid|adjust\w*|"
    r"retry|redo|let me|result|new plan|paths|drafts?)\b|最终|答案|修正|更正|所以|因此",
    re.IGNORECASE,
)
"""Words before an answer that set it against what was before."""
_EITHER = re.compile(
    r"\b(?:option|alternative\w*|another (?:option|plan|solution)|could also|variant|either|maybe|might|perhaps)\b",
    re.IGNORECASE,
)
_REJECTED = re.compile(
    r"\b(?:is|are|was) (?:wrong|invalid|not valid|not allowed|not possible)\b|'s a collision|\bnot able to\b|"
    r"\b(?:that's|that is) a[\w -]{0,20} collision\b|\bto avoid th(?:is|at)\b|\bso let agent\b|\bthat makes agent\b|"
    r"\b(?:these|they) (?:two )?collide\b|\bneeds? to (?:be )?change|\bthat(?:'s| is) wrong\b|\bmistake\b",
    re.IGNORECASE,
)
"""Words behind an answer that take it back."""
_EXAMPLE = re.compile(r"\b(?:format|e\.g\.|example|such as|like)[^\w\n][^\n]{0,60}\Z", re.IGNORECASE)
"""Words before what only shows how an answer looks."""
_CHANGED = re.compile(
    r"\b(?:correct(?:ed|ion)|ha(?:s|ve) to be|must be|fix\w*|changed?|instead|wrong|redo|adjust\w*)\b", re.IGNORECASE
)
"""Words that say that what follows is not what was before."""
_NEXT_TASK = re.compile(r"^[ \t#*<|]*+(?:human|user|question|problem|board|instruction|im_start)\b", re.I | re.M)
"""Beginnings of a new task, with which a model without an end token continues."""


class Reading(NamedTuple):
    """A plan as ``parse`` returns it, and in words what could not be read; no words if everything could."""

    plan: Plan
    problems: tuple[str, ...]


def read(
    text: str, *, max_size: int, max_agents: int, max_steps: int, starts: Sequence[int] | Array | None = None
) -> Reading:
    """Read a plan out of a model's text, tolerantly: never raises, in time linear in the text's length.

    The plan is not parsable, and holds nothing, if no answer is complete or it is in doubt which one is meant (see the
    top of this file).

    Args:
      max_agents: number of paths that the plan holds; agents from there on are counted and not held.
      max_steps: the plan holds one cell more for each agent.
      starts: cells ``[max_agents]`` that moves begin from; None reads coordinates alone, and moves behind them.

    Returns:
      A plan of numpy arrays without batch axes: paths int32 ``[max_agents, max_steps + 1]``. A coordinate off the
      padded board is ``OUTSIDE``, and so is every cell from a move off the padded board on.
    """
    named, problems = _find(text, _Limits(max_size, max_agents, max_steps, starts))
    batch = _plans([named], max_agents, max_steps)
    plan = Plan(**{name: part[0] for name, part in vars(batch).items()})
    return Reading(plan, tuple(problems))


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
    begins = [None] * len(texts) if starts is None else starts
    named = [
        _find(text, _Limits(max_size, max_agents, max_steps, begin))[0]
        for text, begin in zip(texts, begins, strict=True)
    ]
    return _plans(named, max_agents, max_steps)


Paths = dict[str, list[int]]
"""Cells by agent; the agent as its number is written, without zeros before it."""


class _Limits(NamedTuple):
    """Room for paths, and the agents' starts."""

    max_size: int
    max_agents: int
    max_steps: int
    starts: Sequence[int] | Array | None

    def start(self, agent: str) -> int | None:
        """Return the agent's start, ``OUTSIDE`` if the board has no such agent, None if starts are not known."""
        if self.starts is None:
            return None
        known = len(agent) < 7 and int(agent) < len(self.starts) and self.starts[int(agent)] >= 0
        return int(self.starts[int(agent)]) if known else OUTSIDE

    @property
    def known_starts(self) -> list[int]:
        """The starts of the agents that the board has; none if starts are not known."""
        return [] if self.starts is None else [int(start) for start in self.starts if start >= 0]


class _Answer:
    """An answer as it grows.

    Attributes:
      paths: the paths that could be read.
      times: the last time of the agents whose paths come step by step.
      faults: the faults of agents without a path that could be read.
      cut: a cell at its end is cut off.
      last: the text ends with it, so that it may be cut off.
      lead: the words before it.
    """

    def __init__(self, lead: str) -> None:
        self.paths: Paths = {}
        self.times: dict[str, int] = {}
        self.faults: dict[str, str] = {}
        self.cut, self.last, self.lead = False, False, lead

    def agrees(self, other: Paths) -> bool:
        """Whether all it says is the other's, the beginning of it where it is cut off, or no more than its two ends."""
        for agent, path in self.paths.items():
            whole = other.get(agent, [])
            same = (
                path == whole
                or _settled(path) == _settled(whole)
                or ((self.cut or self.last) and path == whole[: len(path)])
            )
            if not same and (len(path) > 2 or len(whole) < 2 or [path[0], path[-1]] != [whole[0], whole[-1]]):
                return False
        return True


def _settled(path: list[int]) -> list[int]:
    """Return the path without the waits at its end, which say nothing."""
    end = len(path)
    while end > 1 and path[end - 1] == path[end - 2]:
        end -= 1
    return path[:end]


def _find(text: str, limits: _Limits) -> tuple[Paths, list[str]]:
    """Return the path of each agent by its number, nothing if no answer counts, and what is wrong in words."""
    spoken = text
    for tag in _THOUGHTS if "<" in text else ():
        spoken = spoken.rpartition(f"</{tag}>")[2]
        if f"<{tag}>" in spoken:
            return {}, [f"a <{tag}> is not closed"]
    room = _ROOM + _ROOM_PER_CELL * limits.max_agents * (limits.max_steps + 1)
    notes = []
    if len(spoken) > room:
        notes = [f"only the last {room} of {len(spoken)} characters are read"]
        spoken = spoken[-room:].partition("\n")[2]
    named = read_as_asked(spoken, limits.max_size, limits.start)
    problems: list[str] = []
    if named is None:
        named, problems = _choose(*_answers(spoken, limits))
    if "0" not in named:
        named, problems = _numbered_from_zero(named, limits, problems)
    for agent, path in named.items():
        if len(path) > limits.max_steps + 1:
            return {}, [*notes, f"agent {agent[:9]}: {len(path)} cells, where at most {limits.max_steps + 1} are held"]
        if OUTSIDE in path:
            side, step = limits.max_size, path.index(OUTSIDE)
            problems.append(f"agent {agent[:9]}: off the board of {side} x {side} in step {step}")
        if len(agent) > 6 or int(agent) >= limits.max_agents:
            problems.append(f"agent {agent[:9]}: not held, there is room for {limits.max_agents} agents")
    return named, notes + problems


class _Entry(NamedTuple):
    """Statement about an agent in one place of a text: a label, and the body behind it.

    Attributes:
      inner: the label is a time, of the agent that was named before it.
      last: the text ends with it.
    """

    agent: str
    time: int | None
    label: Label
    body: Body
    inner: bool
    last: bool

    @property
    def formal(self) -> bool:
        """Marked as a path, and not prose."""
        return self.label.marked and (self.body.formal or bool(self.body.problem))


def _answers(spoken: str, limits: _Limits) -> tuple[list[_Answer], set[str], str]:
    """Return the answers of a text in turn, the agents that it names, and the words behind the last answer.

    Paths told in prose count only where more agents have one that way than have one written down.
    """
    text = without_remarks(rows_as_lines(plain(spoken)))
    compass = has_compass(text)
    entries, text = _entries(text, compass, limits)
    answers, since = _grouped([entry for entry in entries if entry.formal], text, limits)
    if not all(entry.formal for entry in entries):
        told, told_since = _grouped(entries, text, limits)
        if _most(told) > _most(answers) or not answers:
            answers, since = told, told_since
    answers = [answer for answer in answers if not _EXAMPLE.search(answer.lead[-80:])] or answers
    if not answers:
        return _unlabelled(text, compass, limits), set(), text[since:]
    return answers, {entry.agent for entry in entries}, text[since:]


def _most(answers: list[_Answer]) -> int:
    """Return the number of agents of the complete answers that name the most."""
    return max((len(answer.paths) for answer in answers if not answer.faults), default=0)


def _entries(text: str, compass: bool, limits: _Limits) -> tuple[list[_Entry], str]:
    """Return the text's statements about agents in turn, and the text, up to where another task begins."""
    side = limits.max_size
    marks = list(labels(text))
    first = read_body(text[: marks[0].begin], side, compass) if marks and marks[0].agent == "1" else Body([])
    if first.steps and first.formal and not first.remark:
        marks.insert(0, Label(0, 0, "0", None, True, True))  # The prompt may have ended in "0:".
    entries: list[_Entry] = []
    agent: str | None = None
    time: int | None = None
    shared = listed = celled = False
    # That is: the time is that of all agents behind it; bare numbers are times below a heading; somebody has cells.
    next_task = _NEXT_TASK.search(text, marks[0].end if marks else 0)
    for index, mark in enumerate(marks):
        end = marks[index + 1].begin if index + 1 < len(marks) else len(text)
        if next_task and entries and mark.begin >= next_task.start():
            return entries, text[: mark.begin]
        body = read_body(text[mark.end : end], side, compass)
        ahead = marks[index + 1] if index + 1 < len(marks) and not body.steps and not body.remark else None
        inner = mark.agent is None or (mark.bare and listed)
        if inner:
            time, shared = mark.time if mark.agent is None else int(mark.agent[:4]), bool(ahead and ahead.agent)
            if shared or agent is None:
                continue
        else:
            shared = shared and "\n\n" not in text[marks[index - 1].end : mark.begin]
            agent, listed = mark.agent, not mark.bare and body.empty and bool(ahead and ahead.bare)
            time = time if shared else None
            if listed or (body.empty and ahead and ahead.agent is None):
                continue
        assert agent is not None
        start = limits.start(agent)
        celled = celled or int in map(type, body.steps)
        if body.empty and mark.marked and start is not None and not inner and not celled:
            body = Body([start], empty=True)
        last = end == len(text) and not body.remark and "\n" not in text[mark.end :].strip()
        entries.append(_Entry(agent, time, mark, body, inner, last))
    if all(entry.body.empty for entry in entries):
        stay = {entry.agent for entry in entries if entry.body.steps}
        if not stay.issuperset(map(str, range(len(limits.known_starts)))):
            return [], text  # Babble such as "1:2:1:1:1:", and no agent that stays where it is.
    return entries, text


def _grouped(entries: list[_Entry], text: str, limits: _Limits) -> tuple[list[_Answer], int]:
    """Return the answers that the entries make, and where their last path begins."""
    answers: list[_Answer] = []
    since = 0
    for entry in entries:
        last = answers[-1] if answers else None
        if entry.inner and last and entry.agent not in last.times and len(last.paths.get(entry.agent, [])) > 1:
            continue  # The path was told at once: this is about all of it.
        fault = entry.body.problem or ("" if entry.body.steps else "no cell and no move")
        if not fault:
            fault = _add(answers, entry, limits, text[since : entry.label.begin])
        if not fault:
            since = entry.label.end
        elif entry.label.marked and not (last and entry.agent in last.paths):
            if not answers:
                answers.append(_Answer(text[: entry.label.begin]))
            answers[-1].faults[entry.agent] = fault
    return answers, since


def _unlabelled(text: str, compass: bool, limits: _Limits) -> list[_Answer]:
    """Return the answer of a text of nothing but as many paths as there are agents, each from its agent's start."""
    lines = [line for line in re.sub(r"\][\s,]*+\[(?=\s*+[\[(])", "\n", text).split("\n") if line.strip()]
    starts = limits.known_starts
    answer = _Answer("")
    if not starts or len(lines) != len(starts):
        return []
    for agent, (line, start) in enumerate(zip(lines, starts, strict=True)):
        body = read_body(line, limits.max_size, compass)
        cells, problem = follow(body.steps, start, limits.max_size, continues=False)
        if problem or body.problem or not body.formal or not body.steps or cells[0] != start:
            return []
        answer.paths[str(agent)] = cells
    return [answer]


def _add(answers: list[_Answer], entry: _Entry, limits: _Limits, lead: str) -> str:
    """Add an entry to the last answer, or to a new one, and return what is wrong with it, if anything."""
    agent, time, body = entry.agent, entry.time, entry.body
    start, side = limits.start(agent), limits.max_size
    last = answers[-1] if answers else None
    before = last.times.get(agent, 0 if len(last.paths.get(agent, [])) == 1 else None) if last else None
    if last and before is not None and time is not None and time > before:
        cells, problem = follow(body.steps, last.paths[agent][-1], side, continues=True)
        if not problem and (len(cells) != 1 or time != before + 1):
            problem = f"{len(cells)} steps at time {time}, after time {before}"
        if problem:
            del last.paths[agent]
            last.times.pop(agent, None)
            return problem
        last.paths[agent] += cells
    else:
        cells, problem = follow(body.steps, start, side, continues=False)
        if not problem and not body.formal and not is_walk(cells, side):
            problem = "words between cells that are apart"
        if problem:
            return problem
        if time == 1 and len(cells) == 1 and start is not None and cells[0] != start:
            cells = [start, *cells]
        if last is None or agent in last.paths:
            answers.append(last := _Answer(lead))
        last.paths[agent] = cells
        last.faults.pop(agent, None)
    if time is not None:
        last.times[agent] = time
    last.cut, last.last = body.broken, entry.last
    return ""


def _choose(answers: list[_Answer], mentioned: set[str], behind: str) -> tuple[Paths, list[str]]:
    """Return the paths of the answer that counts, nothing if none does, and the problems, the decisive one last."""
    if not answers:
        return {}, ["no line begins with an agent's number and a colon"]
    most = _most(answers)
    if not most:
        faults = (f"agent {agent[:9]}: {fault}" for agent, fault in answers[-1].faults.items())
        return {}, [next(faults, "no agent has a whole path")]
    whole = [index for index, answer in enumerate(answers) if not answer.faults and len(answer.paths) == most]
    chosen = whole[-1]
    # The first that says all of it already: the last one only repeats that.
    repeated = (answers[index] for index in whole if not answers[index].cut)
    named = dict(next((one for one in repeated if answers[chosen].agrees(one.paths)), answers[chosen]).paths)
    problems: list[str] = []
    meant = len(answers) > 1 and _is_meant(answers[chosen].lead)
    for index, answer in enumerate(answers):
        if index == chosen or (answer.agrees(named) and not (answer.cut and _CHANGED.search(answer.lead))):
            continue
        if index < chosen and (meant or not any(agent in named for agent in answer.paths)):
            continue
        changed = index > chosen and _is_meant(answer.lead) and _CHANGED.search(answer.lead)
        if changed and not answer.faults and not answer.cut and set(answer.paths) < set(named):
            named |= answer.paths
            continue
        return {}, [f"answer {index + 1} of {len(answers)} contradicts another, and no word says which one is meant"]
    if silent := mentioned - set(named):
        return {}, [f"agent {min(silent)[:9]}: no path"]
    if _REJECTED.search(behind.strip().partition("\n")[2]) or any(
        _REJECTED.search(answer.lead) for answer in answers[chosen + 1 :]
    ):
        return {}, ["words behind the answer take it back"]
    return named, problems


def _is_meant(lead: str) -> bool:
    return bool(_MEANT.search(lead)) and not _EITHER.search(lead)


def _numbered_from_zero(named: Paths, limits: _Limits, problems: list[str]) -> tuple[Paths, list[str]]:
    """Renumber the agents from 0 where they are numbered from 1 and the starts show it; return nothing in doubt."""
    numbers = sorted(int(agent) for agent in named if len(agent) < 7)
    agents = len(limits.known_starts)
    if not numbers or numbers != list(range(1, agents + 1)):
        return named, problems
    if all(path[0] == limits.start(str(int(agent) - 1)) for agent, path in named.items()):
        return {str(int(agent) - 1): path for agent, path in named.items()}, problems
    return {}, [*problems, f"agents are numbered from 1 to {agents}, and not from 0"]


def _plans(named: Sequence[Paths], max_agents: int, max_steps: int) -> Plan:
    """Return the plans ``[batch]`` that hold the paths of the agents for whom there is room."""
    paths = np.full((len(named), max_agents, max_steps + 1), ABSENT, np.int32)
    lengths = np.zeros((len(named), max_agents), np.int32)
    numbers = list(map(str, range(max_agents)))
    for index, found in enumerate(named):
        for agent, number in enumerate(numbers):
            if cells := found.get(number):
                paths[index, agent, : len(cells)] = cells
                lengths[index, agent] = len(cells)
    num_named = np.array(list(map(len, named)), np.int32)
    return Plan(parsable=num_named > 0, num_named=num_named, paths=paths, lengths=lengths)
