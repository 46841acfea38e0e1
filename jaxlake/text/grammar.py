"""Parts of an answer in plain signs: labels, and the steps behind them. Does not decide which answer counts."""

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from jaxlake.text.canonical import leads
from jaxlake.types import OUTSIDE, Action

# Patterns are possessive (``++``) or bounded, as in ``markup``.

_MOVE_WORDS = {
    Action.UP: "u up upward upwards north ↑",
    Action.DOWN: "d down downward downwards south ↓",
    Action.LEFT: "l left leftward leftwards west ←",
    Action.RIGHT: "r right rightward rightwards east →",
    Action.WAIT: "w wait waits waiting stay stays staying",
}
_MOVES = {word: action for action, words in _MOVE_WORDS.items() for word in words.split()}
_LINK_WORDS = """
    then to at in from and finally start starts starting go goes move moves moved moving step steps path paths plan
    positions route actions cells reached"""
_LINKS = frozenset(_LINK_WORDS.split())
"""Words that a path may have between its steps; any other word ends it."""

_MOVE = rf"(?:{'|'.join(_MOVES)})\b"
_TIME = r"(?:t|time|step|time[ _-]?step|tick|turn)[ ]?[=:_\#]?[ ]?(?P<time>\d{1,4})(?!\w)\s?[:.)\],=-]?"
_ITEM = r"^[\ \t*\#>+-]*+(?P<item>\d{1,3})[.)](?=\s)"
_ASIDE = r"[(\[](?=[a-z])(?:[^()\[\]\n]|[(\[][^()\[\]\n]{0,20}+[)\]]){1,80}+[)\]]"
_LABEL = re.compile(
    rf"""
    (?:[(\[][ ]?\d++\s*+,\s*+\d++[)\]][ ,>→-]*+)++
  | (?P<line>^[\ \t*\#>+-]*+)?(?<![^\W_])(?:agente?|robot|智能体|代理|id|a(?=\d))[\s_\#:]*+(?P<agent>\d++|[a-e])\b
    (?:\ *+(?:'s|path|plan|moves(?=\ ?:)|route|→\ ?[a-e](?![^\W_])))*+(?:\s?{_ASIDE})?\s?
    (?:[:=|]++|->|,(?=\s*+(?:path|plan|moves|route|positions|start|actions)\b)|(?(line)$|(?!))
    |(?P<told>(?=(?:moves?|stays?|waits?|goes)\b)))
  | (?:^[\ \t*\#>+\[{{(-]*+|(?<=[\s(\[{{,;|.:)\]}}/]))(?P<bare>\d++)(?:\s?{_ASIDE})?
    (?:\s?:(?!\d))*+(?:(?<=:)|\s?[=|](?=\s*+[(\[UDLRW])|\s(?:→|->)(?=\s*+[(\[]))
  | (?:^|(?<![^\W\d_]\s)(?<![^\W_])){_TIME} | {_ITEM}
  | ^[\ \t*\#>+-]*+(?P<letter>[a-e])\s?:
  | (?!is\b|{_MOVE}|(?-i:[UDLRW]++)\b)[^\W\d_]++[ \t]++\d++
  | [^\W\d_]++ | [\ ]++
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


class Label(NamedTuple):
    """A label: its place in the text, whose path or which time follows, and whether it ends in a verb ("told")."""

    begin: int
    end: int
    agent: str | None
    time: int
    told: bool


def labels(text: str) -> Iterator[Label]:
    """Yield the labels of a text in plain signs, in order."""
    for match in _LABEL.finditer(text):
        agent, time = match["agent"] or match["bare"] or match["letter"], match["time"] or match["item"]
        if agent and not agent.isdecimal():
            agent = str("abcde".index(agent.lower()))
        if agent or time:
            yield Label(*match.span(), agent and (agent.lstrip("0") or "0"), int(time or 0), match["told"] is not None)


_PAIR_INSIDE = r"[^()\[\]\n]*?\d\s*+,\s*+-?\d"
_TOKEN = re.compile(
    rf"""
    [(\[{{<]\s*+(?P<row>-?\d++)\s*+[,;]\s*+(?P<cell>-?\d++)\s*+(?:[)\]}}>]|\Z)
  | (?<![^\W_]){_TIME} | {_ITEM}
  | (?P<count>[x*^]\ ?\{{?\d{{1,3}}\}}?(?!\w)|\(?\b\d{{1,3}}\ *+(?:x|times?)\b\)?)
  | [(\[](?P<named>{_MOVE})[)\]]
  | (?P<aside>[(\[](?!(?:{_MOVE}|[UDLRW]++|[\s,'>→\d-])*+[)\]]|{_PAIR_INSIDE})[^()\[\]{{}}\n]*+[)\]]|(?<=\s)(?:\#|//).*)
  | (?<![^\W_])(?P<letters>(?:\d{{0,2}}(?-i:[UDLRW]))++\d{{0,2}})(?![^\W_])
  | (?P<word>[^\W\d_]++(?:'[a-z]++)?) | (?P<arrow>[↑↓←→]) | (?P<number>\d++)
  | (?P<gap>\.{{3}}|[·○]|[(\[](?={_PAIR_INSIDE})|\(\s*+\d*+,?\s*+\Z)
  | (?P<sign>[^\s\w])
    """,
    re.VERBOSE | re.IGNORECASE,
)
_LETTERS = re.compile(r"[\W\d_]*+(?:[UDLRWudlrw]++[\W\d_]*+)++")
_BEFORE, _AFTER = re.compile("([0-9]{0,2})([UDLRW])"), re.compile("([UDLRW])([0-9]{0,2})")

Step = int | Action
"""A cell, which may be ``OUTSIDE``, or a move."""


class Body(NamedTuple):
    """What stands between a label and the next: steps, why it cannot be a path, and the times of the steps.

    A remark has words that are none of a path.
    """

    steps: list[Step]
    problem: str = ""
    remark: bool = False
    times: tuple[int, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether it says nothing."""
        return not (self.steps or self.problem or self.remark)

    @property
    def is_moves(self) -> bool:
        """Whether it begins with a move."""
        return Action in map(type, self.steps[:1])


def read_body(text: str, side: int) -> Body:
    """Read the text behind a label: its first line, and further ones that hold steps and nothing else."""
    body, apart = Body([]), False
    for line in text.split("\n"):
        part = _read_line(line, side)
        foreign = part.is_moves and not body.is_moves
        numbered = line[:1].isdecimal() and (body.is_moves or re.search(r"\d, ?\d", line))
        late = part.times and not body.times and len(body.steps) > 1
        if part.empty:
            apart = apart or not line.strip()
        elif not body.steps:
            body, apart = part, False
        elif (foreign and _LETTERS.fullmatch(line)) or (late and apart):
            break
        elif part.remark and (apart or foreign or not part.steps) and not (numbered and part.problem):
            break  # noqa: SIM114 - the one is no step, the other a remark
        elif part.remark or part.problem or late or (apart and not part.times):
            return body._replace(problem=part.problem or "it is not clear what follows it")
        else:
            body = part._replace(steps=body.steps + part.steps, times=body.times + part.times)
        if body.remark or body.problem:
            break
    first = min(body.times[:1], default=0)
    in_order = first < 2 and body.times == tuple(range(first, first + len(body.times)))
    return body if in_order or body.problem else body._replace(problem="times are left out")


def _read_line(line: str, side: int) -> Body:  # noqa: C901 - one pass, one state
    tokens = list(_TOKEN.finditer(line))
    kinds = {token.lastgroup for token in tokens}
    words = any(token.lastgroup == "word" and _MOVES.get(token[0].lower(), 4) < 4 for token in tokens)
    cells, linked = "cell" in kinds, words or not kinds.isdisjoint(("cell", "letters", "aside"))
    steps: list[Step] = []
    times: list[int] = []
    problem = "moves are told in words and in letters" if words and "letters" in kinds else ""
    stray = ""
    count = 1  # A number that counts the move behind it.
    last = -1  # The token of the last step.
    for index, token in enumerate(tokens):
        kind = token.lastgroup or ""
        word, behind = token[kind].lower(), last == index - 1 >= 0
        new: list[Step] = []
        if kind == "cell":
            new = [_cell(token["row"], word, side)]
        elif kind == "letters":
            runs = _BEFORE.findall(token[0]) if word[0].isdecimal() else [run[::-1] for run in _AFTER.findall(token[0])]
            new = [_MOVES[letter.lower()] for number, letter in runs for _ in range(int(number or count))]
        elif kind == "named" and behind:
            waits = cells and _MOVES[word] is Action.WAIT  # behind a cell that is the one before it, or the first
            if steps[-1] != (steps[-2:][0] if waits else _MOVES[word]):
                problem = problem or f"({word}) behind another step"
        elif word in _MOVES:
            if not (linked if kind == "arrow" else cells and len(word) == 1):
                new = [_MOVES[word]] * count
        elif kind == "count":
            count = max(int(re.sub(r"\D", "", word)), 1)
            if behind:
                steps += [steps[-1]] * (count - 1)
                count = 1
        elif kind in ("time", "item"):
            times += [] if stray else [int(word)]
        elif kind == "gap" or word.startswith("(or ") or (word == ":" and steps and not stray):
            problem = problem or "steps are left out"
        elif kind == "number" or (kind == "word" and word not in _LINKS):
            if behind and tokens[last].lastgroup == "word" and not cells:
                problem = problem or f"{word[:20]!r} within a path"
            stray = stray or word
        if new and not stray:
            steps += new
            last, count = index, 1
        elif new and (not steps or isinstance(new[0], Action) <= isinstance(steps[-1], Action)):
            problem = problem or f"{stray[:20]!r} within a path"
    return Body(steps, problem, bool(stray and not (times and steps)), tuple(times))


@functools.lru_cache(4096)
def _cell(row: str, column: str, side: int) -> int:
    """Return the number of a cell, ``OUTSIDE`` off a board of that side."""
    at = [int(number.lstrip("0")[:7] or "0") for number in (row, column)]  # int() refuses more than 4,300 digits.
    return at[0] * side + at[1] if min(at) >= 0 and max(at) < side else OUTSIDE


def follow(steps: list[Step], origin: int | None, side: int, continues: bool = False) -> tuple[list[int], str]:
    """Walk the steps, and return the cells and what is wrong with them, if anything.

    A cell behind a move says where it leads; it is no further step. The first move leads from ``origin``, which is
    None where nobody knows it. A path that ``continues`` has it already.
    """
    path: list[int] = []
    before: Step | None = None
    if continues or isinstance(steps[0], Action):
        if origin is None:
            return [], "moves from an unknown start"
        path = [origin]
    if continues and len(steps) > 1 and steps[0] == origin:
        steps = steps[1:]
    for step in steps:
        if isinstance(step, Action):
            path.append(leads(side)[step.name[0]][path[-1]])
        elif not isinstance(before, Action) or (before is Action.WAIT and step != path[-1]):
            path.append(step)
        elif step != path[-1]:
            return [], "a move does not lead to the cell behind it"
        before = step
    return path[1:] if continues else path, ""
