"""Answers to plans, tolerantly, and the reasons where something cannot be read; writes nothing.

What counts of a text, from the outside in:

- Thoughts are left out: only what follows the last ``</think>`` or ``</thinking>`` is read, and nothing if one is not
  closed. Of a long text only the end is read, from the beginning of a line on.
- A path begins with an agent's number and a colon, at the start of a line (``0:``, ``- **Agent 0:**``, ``"0":``) or,
  as in JSON, after another path. Further lines belong to it as long as they hold no words (no words but moves). All
  other lines are skipped.
- An answer is a sequence of paths of different agents; a number that occurs again begins the next answer. It is
  complete if each of its paths can be read. Of the complete answers that name the most agents the last one counts, so
  that neither a correction that breaks off nor an explanation behind the answer takes its place.
- Coordinates are ``(0,1)`` or ``[0, 1]``, or with words ``(row 0, column 1)``; what is between them is skipped. Moves
  are U, D, L, R, W (or S) in either case, a run of these capitals, or up, down, left, right, wait (or stay); where
  there is no word at all they are arrows. No move and nothing else is a path that stays on the start.
"""

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxlake.record import Array
from jaxlake.types import ABSENT, OUTSIDE, STEPS, Action, Plan

_ROOM, _ROOM_PER_CELL = 25_000, 16
"""Characters that are read, and how many more for each cell of a plan: bounds the time that a hostile text takes."""

_THOUGHTS = ("think", "thinking")

# Quantifiers are possessive (``++``), so that no text makes a pattern try twice: time is linear in the text's length.
_LABEL = re.compile(
    r"[\s>*`\"'#{\[-]*+(?:\d++[.)][\s*`]*+)?+(?:agent[\s_#]*+)?+(\d++)(?:'s)?+(?:\s*+(?:path|plan|moves))?+[\s*`\"']*+:",
    re.ASCII | re.IGNORECASE,
)
_LABEL_WITHIN = re.compile(
    r"([])};\"]\s*+,?+)(?=\s*+[\"'*`]{0,4}+(?:agent[\s_#]*+)?+\d++[\s*`\"']*+:)", re.ASCII | re.IGNORECASE
)
_BRACKETS = re.compile(r"[(\[{][^()\[\]{}]*+[)\]}]")
_COORDINATE = re.compile(
    r"[\s\"']*+(?:r(?:ow)?+[\s\"'=:]*+)?+(-?\d++)\s*+,[\s\"']*+(?:c(?:ol(?:umn)?+)?+[\s\"'=:]*+)?+(-?\d++)\s*+",
    re.ASCII | re.IGNORECASE,
)
_DIGIT = re.compile("[0-9]")
_WORD = re.compile("[a-zA-Z]+")
_WORD_OR_NUMBER = re.compile("[a-zA-Z]+|[0-9]+")
_ARROW = re.compile("[↑↓←→⬆⬇⬅➡]")

_WORDS = {
    Action.UP: ("u", "up", "↑", "⬆"),
    Action.DOWN: ("d", "down", "↓", "⬇"),
    Action.LEFT: ("l", "left", "←", "⬅"),
    Action.RIGHT: ("r", "right", "→", "➡"),
    Action.WAIT: ("w", "s", "wait", "stay", "waits", "stays"),
}
_CAPITALS = frozenset("UDLRWS")


class Reading(NamedTuple):
    """A plan as ``parse`` returns it, and in words what could not be read; no words if everything could."""

    plan: Plan
    problems: tuple[str, ...]


def read(
    text: str, *, max_size: int, max_agents: int, max_steps: int, starts: Sequence[int] | Array | None = None
) -> Reading:
    """Reads a plan out of a model's text, tolerantly: never raises, in time linear in the text's length.

    The plan is not parsable, and holds nothing, if no answer is complete (see the top of this file). A path cannot be
    read if it has no coordinate, or words of which none is a move, or more than ``max_steps + 1`` cells.

    Args:
      text: what the model wrote.
      max_size: side of the padded board.
      max_agents: number of paths that the plan holds; agents from there on are counted and not held.
      max_steps: the plan holds one cell more for each agent.
      starts: cells ``[max_agents]`` from which the answer's moves begin (``AnswerFormat.MOVES``); None for an answer in
        coordinates.

    Returns:
      A plan of numpy arrays without batch axes: paths int32 ``[max_agents, max_steps + 1]``. A coordinate off the
      padded board is ``OUTSIDE``, and so is every cell from a move off the padded board on.
    """
    named, problems = _find(text, _Format(max_size, max_agents, max_steps, starts))
    paths = np.full((max_agents, max_steps + 1), ABSENT, np.int32)
    lengths = np.zeros(max_agents, np.int32)
    _hold(named, paths, lengths)
    plan = Plan(
        parsable=np.asarray(bool(named)), num_named=np.asarray(len(named), np.int32), paths=paths, lengths=lengths
    )
    return Reading(plan, tuple(problems))


def parse(
    text: str, *, max_size: int, max_agents: int, max_steps: int, starts: Sequence[int] | Array | None = None
) -> Plan:
    """The plan of ``read``."""
    return read(text, max_size=max_size, max_agents=max_agents, max_steps=max_steps, starts=starts).plan


def parse_batch(
    texts: Sequence[str],
    *,
    max_size: int,
    max_agents: int,
    max_steps: int,
    starts: Sequence[Sequence[int]] | Array | None = None,
) -> Plan:
    """``parse`` for each text (starts ``[batch, max_agents]``) along a leading batch axis; numpy arrays."""
    batch = len(texts)
    paths = np.full((batch, max_agents, max_steps + 1), ABSENT, np.int32)
    lengths = np.zeros((batch, max_agents), np.int32)
    num_named = np.zeros(batch, np.int32)
    for index, text in enumerate(texts):
        begin = None if starts is None else starts[index]
        named, _ = _find(text, _Format(max_size, max_agents, max_steps, begin))
        num_named[index] = len(named)
        _hold(named, paths[index], lengths[index])
    return Plan(parsable=num_named > 0, num_named=num_named, paths=paths, lengths=lengths)


class _Format(NamedTuple):
    """What is to be read: paths in coordinates (starts is None) or in moves, for plans of one size."""

    max_size: int
    max_agents: int
    max_steps: int
    starts: Sequence[int] | Array | None

    def path(self, number: str, body: str) -> tuple[list[int], str]:
        """The cells of an agent's path, none if it cannot be read, and what is wrong with it, if anything."""
        agent = int(number) if len(number) < 9 else 10**9  # int() refuses more than 4,300 digits.
        if self.starts is None:
            cells, problem = _cells(body, self.max_size)
        else:
            start = int(self.starts[agent]) if agent < self.max_agents else ABSENT
            cells, problem = _walk(body, start, self.max_size)
        if len(cells) > self.max_steps + 1:
            return [], f"{len(cells)} cells, where at most {self.max_steps + 1} are allowed"
        if agent >= self.max_agents:
            problem = f"not held, there is room for {self.max_agents} agents"
        return cells, problem

    def continues(self, line: str) -> bool:
        """Whether a line without an agent's number can belong to the path before it."""
        words = _WORD.findall(line)
        return not words if self.starts is None else all(_is_move(word, self.max_size) for word in words)


def _find(text: str, form: _Format) -> tuple[dict[str, list[int]], list[str]]:
    """The path of each agent by its number, nothing if no answer is complete, and what is wrong in words."""
    spoken = text
    for tag in _THOUGHTS if "<" in text else ():
        spoken = spoken.rpartition(f"</{tag}>")[2]
        if f"<{tag}>" in spoken:
            return {}, [f"a <{tag}> is not closed"]
    room = _ROOM + _ROOM_PER_CELL * form.max_agents * (form.max_steps + 1)
    notes = []
    if len(spoken) > room:
        notes = [f"only the last {room} of {len(spoken)} characters are read"]
        spoken = spoken[-room:].partition("\n")[2]
    answers = _answers(spoken, form)
    if not answers:
        return {}, [*notes, "no line begins with an agent's number and a colon"]
    last = len(answers) - 1
    fault = "it names fewer agents"
    order = sorted(range(last + 1), key=lambda index: (len(answers[index]), index), reverse=True) if last else [0]
    for index in order:
        named, problems = _paths(answers[index], form)
        if named:
            if index < last:
                problems.append(f"answer {index + 1} of {last + 1} is taken, the last one is not complete: {fault}")
            return named, notes + problems
        if index == last:
            fault = problems[-1]
    return {}, [*notes, fault if last == 0 else f"none of {last + 1} answers is complete; the last one: {fault}"]


def _answers(spoken: str, form: _Format) -> list[dict[str, list[str]]]:
    """For each answer in turn the lines that follow each agent's number."""
    answers: list[dict[str, list[str]]] = []
    body: list[str] | None = None
    pending = spoken.splitlines()[::-1]
    while pending:
        line = pending.pop()
        if label := _LABEL.match(line):
            rest = line[label.end() :]
            if ":" in rest and len(parts := _LABEL_WITHIN.sub(r"\1\n", line).split("\n")) > 1:
                pending += reversed(parts)
                continue
            number = label[1].lstrip("0") or "0"
            if not answers or number in answers[-1]:
                answers.append({})
            body = answers[-1][number] = [rest]
        elif body is not None and line.strip("` "):
            if form.continues(line):
                body.append(line)
            else:
                body = None
    return answers


def _paths(answer: dict[str, list[str]], form: _Format) -> tuple[dict[str, list[int]], list[str]]:
    """The path of each agent, nothing if one cannot be read, and what is wrong; the reason for nothing comes last."""
    named: dict[str, list[int]] = {}
    problems: list[str] = []
    for number, lines in answer.items():
        cells, problem = form.path(number, "\n".join(lines))
        if problem:
            problems.append(f"agent {number[:9]}: {problem}")
        if not cells:
            return {}, problems
        named[number] = cells
    return named, problems


def _hold(named: dict[str, list[int]], paths: np.ndarray, lengths: np.ndarray) -> None:
    """Writes the paths of the agents for whom there is room."""
    for agent in range(len(lengths)):
        if cells := named.get(str(agent)):
            paths[agent, : len(cells)] = cells
            lengths[agent] = len(cells)


def _cells(body: str, max_size: int) -> tuple[list[int], str]:
    text = body.strip()
    if text[:1] == "(" and text[-1:] == ")":
        try:
            # As the prompts ask for it: three times as fast as what follows.
            return list(map(_written(max_size).__getitem__, text[1:-1].split(")("))), ""
        except KeyError:
            pass
    table = _CellTable.of(max_size)
    found = _BRACKETS.findall(body)
    known = [table[brackets] for brackets in found]
    problem = ""
    if None in known:
        stray = [
            brackets for brackets, cell in zip(found, known, strict=True) if cell is None and _DIGIT.search(brackets)
        ]
        problem = f"{stray[0][:20]!r} is not a coordinate" if stray else ""
        found = [brackets for brackets, cell in zip(found, known, strict=True) if cell is not None]
    cells = [cell for cell in known if cell is not None]
    if not cells:
        return [], "no coordinate"
    if OUTSIDE in cells:
        problem = problem or f"{found[cells.index(OUTSIDE)][:20]} is off the board of {max_size} x {max_size}"
    return cells, problem


@functools.cache
def _written(max_size: int) -> dict[str, int]:
    return {f"{row},{column}": row * max_size + column for row in range(max_size) for column in range(max_size)}


class _CellTable(dict[str, int | None]):
    """The cell of what stands in brackets, None if that is no coordinate; keeps what was asked for."""

    def __init__(self, max_size: int):
        self.max_size = max_size

    @staticmethod
    @functools.cache
    def of(max_size: int) -> "_CellTable":
        return _CellTable(max_size)

    def __missing__(self, brackets: str) -> int | None:
        cell = None
        if match := _COORDINATE.fullmatch(brackets, 1, len(brackets) - 1):
            cell = OUTSIDE
            if max(map(len, match.groups())) <= 6:
                row, column = map(int, match.groups())
                if 0 <= row < self.max_size and 0 <= column < self.max_size:
                    cell = row * self.max_size + column
        if len(brackets) <= 24 and len(self) < 10_000:
            self[brackets] = cell
        return cell


def _walk(body: str, start: int, max_size: int) -> tuple[list[int], str]:
    table = _move_table(max_size)
    problem = ""
    try:
        moves = [table[word] for word in body.split()]  # As the prompts ask for it.
    except KeyError:
        words = _WORD_OR_NUMBER.findall(body) or _ARROW.findall(body)
        moves = [table[word] for word in words if word in table]
        if len(moves) < len(words):
            moves, problem = _moves(words, max_size)
            if not moves:
                return [], problem
    cell = start if start >= 0 else OUTSIDE
    path = [cell]
    for move in moves:
        cell = move[cell]
        path.append(cell)
    if cell == OUTSIDE and start >= 0:
        problem = problem or f"leaves the board of {max_size} x {max_size} in step {path.index(OUTSIDE)}"
    return path, problem


def _moves(words: list[str], max_size: int) -> tuple[list[list[int]], str]:
    """The moves that the words are, in any case and in runs of capitals, and the first word that is none."""
    table = _move_table(max_size)
    moves: list[list[int]] = []
    problem = ""
    for word in words:
        if not _is_move(word, max_size):
            problem = problem or f"{word[:20]!r} is not a move"
        elif word.lower() in table:
            moves.append(table[word.lower()])
        else:
            moves.extend(table[letter] for letter in word)
    return moves, problem


@functools.cache
def _move_table(max_size: int) -> dict[str, list[int]]:
    """For each word a list: where it leads from each cell, and ``OUTSIDE`` from there (index -2)."""
    table: dict[str, list[int]] = {}
    for action, words in _WORDS.items():
        down, right = STEPS[action]
        leads = [
            row * max_size + column if 0 <= row < max_size and 0 <= column < max_size else OUTSIDE
            for row in range(down, max_size + down)
            for column in range(right, max_size + right)
        ]
        for word in words:
            table |= dict.fromkeys((word, word.upper(), word.capitalize()), [*leads, OUTSIDE, OUTSIDE])
    return table


def _is_move(word: str, max_size: int) -> bool:
    return word.lower() in _move_table(max_size) or _CAPITALS.issuperset(word)
