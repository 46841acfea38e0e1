"""Parts of an answer: labels that say whose path or which time follows, and bodies of cells and moves.

Decides nothing about which of several answers counts; ``reading`` does.
"""

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from jaxlake.types import OUTSIDE, STEPS, Action

# Patterns are possessive (``++``) or bounded, so that no text makes one try twice: time is linear in the text's length.

_CELL_INSIDE = r"\s*+-?\d++\s*+[,;]\s*+-?\d++\s*+"
_REMARK = re.compile(r"[(\[](?![\s\d,;-]*+[)\]])(?=[^()\[\]\n]{0,200}+[)\]])[^()\[\]\n]*[)\]]")
_NAMED = re.compile(r"\b(?:row|col(?:umn)?|r|c|x|y)\b", re.IGNORECASE)
_ENDS = re.compile(
    rf"(?:from\s)?\s*+[(\[]{_CELL_INSIDE}[)\]]\s*+(?:→|->|to)\s*+[(\[]{_CELL_INSIDE}[)\]]\s*+(?=:)", re.I | re.A
)
_TASK = re.compile(
    rf"[\s(\[{{,-]{{0,9}}+[\"']?(?:starts?|from)\b[\"']?\s*+(?:at|:|=)?\s*+[(\[]{_CELL_INSIDE}[)\]][\s,;|→>-]*+"
    rf"[\"']?(?:goal|target|end|destination|to)\b[\"']?\s*+(?:at|is|:|=)?\s*+[(\[]{_CELL_INSIDE}[)\]]\s*+"
    r"(?:[)\]]\s*+(?=[:=-])|(?=:)|[,;.\s*-]*+(?=[\"']?(?:path|plan|moves|route|positions)))",
    re.IGNORECASE | re.ASCII,
)
_AT_TIME = re.compile(r"[ \t(,]*+\bat (?:t|time|step|time ?step)\s*+=?\s*+\d++(?:[ \t]*+\))?", re.IGNORECASE | re.ASCII)
_COMMENT = re.compile(r"(?<=\S)[ \t]+(?://|#)[^\n]*")


def without_remarks(text: str) -> str:
    """Return the text without what only comments: tasks restated before a colon, times behind a cell, asides."""
    lower = text.lower()
    if "start" in lower or "from" in lower:
        text = _TASK.sub(" ", text)
    if "):" in text or ") :" in text or "]:" in text:
        text = _ENDS.sub(" ", text)
    if " at " in lower:
        text = _AT_TIME.sub(" ", text)
    if "#" in text or "//" in text:
        text = _COMMENT.sub("", text)
    return _REMARK.sub(_aside, text) if "(" in text or "[" in text else text


def _aside(match: re.Match[str]) -> str:
    inside = match[0][1:-1]
    words = _WORD.findall(inside)
    if not words or _NAMED.search(inside) or _BARE_CELL.search(inside) or _ONLY_TIMES.fullmatch(inside):
        return match[0]
    known = [_MOVES.get(word.lower()) for word in words]
    if known == [Action.WAIT] and len(words[0]) > 1:
        return " [@] "  # It names a repeated cell, or is a step of its own: ``follow`` tells by the cells around it.
    return " " if None in known and not _COMPASS_RUN.fullmatch("".join(words)) else match[0]


class Label(NamedTuple):
    """A label: where it begins and ends, whose path or which time follows, and whether it is marked as one."""

    begin: int
    end: int
    agent: str | None
    time: int | None
    marked: bool
    bare: bool


_AGENT = r"agente?n?|robots?|智能体|代理人?|机器人|id|a(?=\d)"
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_COUNTED = re.compile(
    r"\b(?:rows?|columns?|cols?|lines?|costs?|length|total|sum|round|case|option|plan|note)[ \t]++\Z", re.I
)
"""Words that a number belongs to which is no agent's."""
_CARDINALS = ("zero", "one", "two", "three", "four")
_LABEL = re.compile(
    rf"""
    (?:[(\[][ ]?\d++\s*+,\s*+\d++[)\]][ ,>→-]*+)++
  | (?:(?:up|down|left|right|wait)(?:[ ,>→-]++|$))++
  | (?<![a-z0-9_])(?=[\"']?[artifsld智代机])(?:[ld]')?[\"']?(?:
        (?:(?P<ordinal>{"|".join(_ORDINALS[:5])})\ (?:agent|robot))
      | (?:{_AGENT})(?:[\"']\s*+:\s*+|(?:[\ \t_\#.]|no\.)*+)[\"']?
        (?P<agent>\d++|[a-e]|{"|".join(_CARDINALS)})(?![a-z0-9_])
    )(?:
        's|[\"'\ \t]|path|plan|moves|route|→\s*[a-e](?![a-z])
      | \((?=[a-z])[^()\n]{{0,60}}\)|\[(?=[a-z])[^\[\]\n]{{0,60}}\]
    )*+
    (?P<mark>[:=|]|->|,(?=\s*+[\"']))?
  | (?=[\ \t>*\#+\"'ts第时-])
    (?:^[\ \t>*\#+-]*+|(?<=[(\[{{,;|:.\"'-])|(?<=[(\[{{,;|:.>→-]\s)|(?<=\s)(?=t=?\d+\s?[:=]))
    [\"']?(?:t|time|step|time[\ _-]?step|tick|turn|第|时刻)[\"']?[\ \t]*+[=:_\#]?[\ \t]*+
    (?P<time>\d{{1,4}})(?![\d\w])[\"']?\s*+步?[:.)\],=-]?
  | (?=[fstne])(?:^|(?<=\s))(?P<nth>{"|".join(_ORDINALS)})\ (?:time\ )?(?:step|move)\b[:,]?
  | ^[\ \t>*\#+-]*+(?P<item>\d{{1,3}})[.)](?=\s)
  | (?:^[\ \t>*\#+\[{{(-]*+|(?<=[\s(\[{{,;|.:)\]}}\"'/]))[\"']?(?P<bare>\d++)[\"']?\s*+
    (?:\((?=[a-z])[^()\n]{{0,60}}\)\s*+)?(?::(?!\d)|(?:=|\|)(?=\s*+[(\[])|\|(?=\s*+(?-i:[UDLRW])))
  | ^[\ \t>*\#+-]*+(?P<row>\d{{1,3}})\s*+(?:(?:→|->)(?=\s*+[(\[])|,(?=\"))
  | (?<=[a-z])\[(?P<entry>\d{{1,3}})\]\s*+=
  | (?<=[:,;]\s)(?P<brief>\d)(?=\s(?-i:[UDLRW])(?![a-z]))
  | ^[\ \t>*\#+-]*+(?P<letter>[a-e])\s?:
  | (?<=[\"'])(?P<key>[a-e])[\"']\s*+:(?=\s*+[\[\"'])
  | [^\W\d_]++ | [\ ]++
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


def labels(text: str) -> Iterator[Label]:
    """Yield the labels of a text without remarks, in order."""
    for match in _LABEL.finditer(text):
        if match.lastgroup is None:
            continue  # Cells, words and spaces are passed over as a whole: half of the time of one by one.
        kind = match.lastgroup if match.lastgroup != "mark" else ("ordinal" if match["ordinal"] else "agent")
        value = match[kind]
        agent = time = None
        if kind in ("time", "item"):
            time = int(value)
        elif kind == "nth":
            time = _ORDINALS.index(value.lower()) + 1
        elif value.lower() in _CARDINALS:
            agent = str(_CARDINALS.index(value.lower()))
        elif kind == "ordinal":
            agent = str(_ORDINALS.index(value.lower()))
        else:
            agent = value.lstrip("0") or "0" if value.isdecimal() else str("abcde".index(value.lower()))
        if kind == "bare" and _COUNTED.search(text, max(match.start() - 12, 0), match.start(kind)):
            continue
        marked = kind not in ("ordinal", "agent") or match["mark"] is not None
        yield Label(match.start(), match.end(), agent, time, marked, kind == "bare")


_MOVE_WORDS = {
    Action.UP: "u up upward upwards n north ↑ 上 向上 arriba haut hoch rauf oben nord",
    Action.DOWN: "d down downward downwards south ↓ 下 向下 abajo bas runter unten süd sud",
    Action.LEFT: "l left leftward leftwards west ← 左 向左 izquierda gauche links ouest",
    Action.RIGHT: "r right rightward rightwards e east → 右 向右 derecha droite rechts ost est",
    Action.WAIT: "w s wait waits waiting stay stays staying pause pauses hold holds 停 等 等待 停留 不动 原地不动 "
    "esperar espera attendre attend attends warten warte wartet bleibt",
}
_MOVES = {word: action for action, words in _MOVE_WORDS.items() for word in words.split()}
_COMPASS = _MOVES | {"s": Action.DOWN, "w": Action.LEFT}
_COMPASS_RUN = re.compile("[UDLRWSNE]+")
_HAS_COMPASS = re.compile(r"(?<![^\W_])(?:[NESW]*[NE][NESW]*|north|east|south|west)(?![^\W_])")
_IDEOGRAMS = re.compile("(?:等待|停留|原地不动|不动|[上下左右停等向往走移动])+")
_IDEOGRAM = re.compile("等待|停留|原地不动|不动|[上下左右停等]")
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "once": 1, "twice": 2, "thrice": 3}

_LINKS = "then path paths plan moves route actions row col column r c x y pos 然后 dann luego puis"
_FORMAL = frozenset(_LINKS.split())
"""Words that may stand in a path without making it prose."""
_STORY = """
    reach reaches reaching goal arrive arrives arriving end ends we in first straight where which having should can
    perform performs sequence remain remains stop stops next and finally to move moved moving go goes going step steps
    is are at from start starts starting begin begins the via through now on position positions cell cells will travel
    travels travelling follow follows take takes for one time times there here it its a again y et und action agent
    coordinates coordinate meanwhile while 在 到 从 至 走 向 再"""
_NEUTRAL = _FORMAL.union(_STORY.split())
"""Words that describe a path in prose."""

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_BARE_CELL = re.compile(r"-?\d\s*+[,;]\s*+-?\d")
_TIMES = r"(?:\d{1,3}|one|two|three|four|five|six)\s*+(?:x|times?|mal|veces|fois|次)"
_ONLY_TIMES = re.compile(rf"\s*+x?\s*+(?:{_TIMES}|\d{{1,3}}|once|twice|thrice)\s*+")
_ROW, _COLUMN = r"(?:r(?:ow)?+[\s\"'=:]*+)?+", r"(?:c(?:ol(?:umn)?+)?+[\s\"'=:]*+)?+"
_TOKEN = re.compile(
    rf"""
    [(\[{{<][\s\"']*+{_ROW}(?P<row0>-?\d++)[\s\"']*+[,;][\s\"']*+{_COLUMN}(?P<cell>-?\d++)\s*+(?:[)\]}}>]|\Z)
  | [(\[{{][\s\"']*+x[\s\"'=:]*+(?P<x>-?\d++)\s*+[,;][\s\"']*+y[\s\"'=:]*+(?P<xy>-?\d++)\s*+[)\]}}]
  | (?<!\w)row\s*+(?P<row1>\d++)\s*+,?\s*+col(?:umn)?\s*+(?P<cell1>\d++)
  | (?<!\w)r(?P<row2>\d++)\s?c(?P<cell2>\d++)(?!\w)
  | (?<![\w(\[<.-])(?P<row3>-?\d++)\s*+,\s*+(?P<cell3>-?\d++)(?![\w)\]>.])
  | (?P<broken>[(\[]\s*+\d*+\s*+,?\s*+-?\Z)
  | (?P<aside>\[@\])
  | (?P<times>(?:
        [x*^]\s*+\{{?\d{{1,3}}\}}?|\(\s*+(?:x\s*+\d{{1,3}}|{_TIMES})\s*+\)|(?<=\s){_TIMES}|once|twice|thrice
    )(?!\w))
  | (?P<during>(?<=\s)(?:\d{{1,3}}|one|two|three|four|five|six)\s(?:time\s?)?(?:steps?|turns?|cells?|squares?)(?!\w))
  | (?<![^\W_])(?P<letters>(?:\d{{0,2}}(?-i:[UDLRWSNE]))+\d{{0,2}})(?:(?=x\s?\d)|(?![^\W_]))
  | (?P<word>{_WORD.pattern})
  | (?P<arrow>[↑↓←→])
  | (?P<number>\d++)
  | (?P<gap>\.{{3,}})
  | (?P<dot>[·∙○])
  | (?P<sign>[^\s\w])
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ROWS = {"cell": "row0", "cell1": "row1", "cell2": "row2", "cell3": "row3", "xy": "xy"}
_PLACEHOLDERS = frozenset("cxyijn")
"""Letters that are no move: "(r,c)"."""
_BEFORE, _AFTER = re.compile("([0-9]{0,2})([UDLRWSNE])"), re.compile("([UDLRWSNE])([0-9]{0,2})")

# No loop over a group is possessive here: before Python 3.11.5 such loops lose matches (gh-106052).
_GAP = r"(?:[^\w()\[\]{<+.-]|-(?!\d)|\.(?=\s|\Z)|[(\[](?=\s*[(\[])|[)\]])*"
_ONLY_CELLS = re.compile(rf"{_GAP}(?:[(\[]\s*+\d++\s*+,\s*+\d++\s*+{_GAP})+")
_PAIR = re.compile(r"(\d++)\s*+,\s*+(\d++)")
_ONLY_LETTERS = re.compile(r"[\s,UDLRW]*+")
_ONLY_WORDS = re.compile(r"\s*+(?:(?:up|down|left|right|wait|stay)(?:[\s,]++|\Z))*+", re.IGNORECASE)

Step = int | Action | None
"""A cell or ``OUTSIDE``, a move, or None for an aside that the agent waits."""


class Body(NamedTuple):
    """The steps that the text between a label and the next says.

    Attributes:
      steps: cells or moves in order.
      formal: no prose before the last step.
      problem: why it cannot be a path, or "".
      empty: whether it contains neither word nor number.
      broken: a cell at its end is cut off.
      remark: words that are none of a path.
    """

    steps: list[Step]
    formal: bool = True
    problem: str = ""
    empty: bool = False
    broken: bool = False
    remark: bool = False


def has_compass(text: str) -> bool:
    """Return whether a text names moves by the compass, in which W is west and S south."""
    return ("N" in text or "E" in text or "st" in text or "th" in text) and bool(_HAS_COMPASS.search(text))


def read_body(text: str, side: int, compass: bool) -> Body:
    """Read the text behind a label: its first line, and further ones that hold steps and nothing else."""
    if _ONLY_CELLS.fullmatch(text) and "\n\n" not in text:
        known = _pairs(side)
        return Body([known.get(pair) or cell_at(pair[0], pair[1], side) for pair in _PAIR.findall(text)])
    if _ONLY_LETTERS.fullmatch(text) and not compass and "\n\n" not in text.strip():
        letters = text.replace(",", "").split()
        return Body([_MOVES[letter.lower()] for run in letters for letter in run], empty=not letters)
    if _ONLY_WORDS.fullmatch(text) and "\n\n" not in text.strip():
        return Body([_MOVES[word] for word in text.lower().replace(",", " ").split()])
    body = Body([], empty=True)
    apart = False
    for line in text.split("\n"):
        tokens = list(_TOKEN.finditer(line))
        if all(token.lastgroup in ("sign", "dot") for token in tokens):
            apart = apart or not line.strip()
            continue
        part = _read_line(tokens, side, compass)
        if len(body.steps) == 1 and not body.formal and part.steps:
            return body._replace(problem="it is not clear what follows its first cell")
        if not body.empty and (
            part.problem or not part.formal or not part.steps or not _alike(body.steps, part.steps, tokens)
        ):
            break
        if body.steps and (apart and not _near(body.steps[-1], part.steps[0], side) or _numbered(tokens)):
            return body._replace(problem="what follows it may be a path of its own")
        formal, problem = body.formal and part.formal, body.problem or part.problem
        body = Body(body.steps + part.steps, formal, problem, False, part.broken, body.remark or part.remark)
        if not part.steps or part.problem:
            break
        apart = False
    return body


@functools.cache
def _pairs(side: int) -> dict[tuple[str, str], int]:
    return {(str(row), str(column)): row * side + column for row in range(side) for column in range(side)}


def cell_at(row: str, column: str, side: int) -> int:
    """Return the number of a cell, ``OUTSIDE`` off a board of that side."""
    if len(row) > 6 or len(column) > 6:  # int() refuses more than 4,300 digits.
        row, column = row.lstrip("0")[-6:] or "0", column.lstrip("0")[-6:] or "0"
    at = int(row), int(column)
    return at[0] * side + at[1] if 0 <= at[0] < side and 0 <= at[1] < side else OUTSIDE


def _alike(steps: list[Step], further: list[Step], tokens: list[re.Match[str]]) -> bool:
    """Whether a further line can belong to a path: to one of cells, if it holds cells, or that the agent waits."""
    if all(isinstance(step, Action) for step in steps):
        return True
    return not any(token[0].isalpha() and len(token[0]) == 1 for token in tokens) and any(
        not isinstance(step, Action) or step is Action.WAIT for step in further
    )


def is_walk(cells: list[int], side: int) -> bool:
    """Return whether each cell is the one before it or next to that."""
    return all(_near(before, after, side) for before, after in zip(cells, cells[1:], strict=False))


def _near(before: Step, after: Step, side: int) -> bool:
    if isinstance(before, Action) or isinstance(after, Action) or before is None or after is None:
        return isinstance(before, Action) == isinstance(after, Action)
    return abs(before // side - after // side) + abs(before % side - after % side) <= 1


def _numbered(tokens: list[re.Match[str]]) -> bool:
    return any(token.lastgroup == "number" for token in tokens)


def _read_line(tokens: list[re.Match[str]], side: int, compass: bool) -> Body:  # noqa: C901 - one pass, one state
    kinds = [token.lastgroup or "" for token in tokens]
    moves = _COMPASS if compass else _MOVES
    named = [moves.get(token[0].lower()) if kind == "word" else None for token, kind in zip(tokens, kinds, strict=True)]
    cells = not _ROWS.keys().isdisjoint(kinds)
    lettered = "letters" in kinds or not {None, Action.WAIT}.issuperset(named)
    placeholders = not _PLACEHOLDERS.isdisjoint(token[0] for token in tokens)
    steps: list[Step] = []
    formal, prose, stray = True, False, ""
    told: set[str] = set()
    problem = ""
    last = -1  # The token of the last step.
    alone = True  # No sign since the last step.
    ahead = 1  # A number that counts the move behind it.
    for index, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        found: list[Step] = []
        word = token[0].lower()
        if kind in _ROWS:
            found = [cell_at(token[_ROWS[kind]], token["x" if kind == "xy" else kind], side)]
        elif kind == "letters":
            found = _letters(token[0], moves) * ahead
        elif kind == "arrow" and not cells and not lettered:
            found = [moves[word]]
        elif kind == "dot" and "arrow" in kinds and not cells and not lettered:
            found = [Action.WAIT]
        elif kind == "gap":
            problem = problem or "steps are left out"
        elif kind == "aside":
            found = [None if last == index - 1 else Action.WAIT]
        elif kind in ("times", "during", "number") and not stray:
            if steps and (
                (kind == "times" and last == index - 1)
                or (alone and last >= 0 and kinds[last] == "word" and kinds[0] != "number")
            ):
                steps += [steps[-1]] * (_number(word) - 1)
            else:
                ahead = _number(word)
            continue
        elif kind == "word":
            if (action := named[index]) is not None and not (len(word) == 1 and (cells or placeholders)):
                found = [action] * ahead
            elif _IDEOGRAMS.fullmatch(word):
                found = [moves[move] for move in _IDEOGRAM.findall(word)]
            elif word not in _NEUTRAL:
                if alone and last >= 0 and kinds[last] == "word" and not cells and "letters" not in kinds:
                    problem = problem or f"{token[0][:20]!r} within a path"
                stray = stray or token[0]
            prose = prose or (word not in _FORMAL and not found)
        elif kind == "sign":
            if word == ":" and index and kinds[index - 1] == "number" and (cells or lettered):
                problem = problem or "a number before a colon within it"
            alone, ahead = False, 1
        if not found or (found == steps[-1:] and last == index - 2 >= 0 and tokens[index - 1][0] == "("):
            continue  # The second is a letter that explains a word: "right (R)".
        if stray:
            if steps and kind in _ROWS and kinds[last] in _ROWS or kind == "letters" == kinds[last] or not steps:
                problem = problem or f"{stray[:20]!r} within a path"
            continue
        steps += found
        formal, last, alone, ahead = formal and not prose, index, True, 1
        told |= {kind} if kind == "letters" or (kind == "word" and found[0] is not Action.WAIT) else set()
        if len(told) == 2:
            problem = problem or "moves are told in words and in letters"
    return Body(steps, formal, problem, False, "broken" in kinds, bool(stray))


def _letters(run: str, moves: dict[str, Action]) -> list[Step]:
    """Return the moves of a run of letters, each with a number before it or behind it: RRD, 3R2D, R3D2."""
    counted = _BEFORE.findall(run) if run[0].isdecimal() else [pair[::-1] for pair in _AFTER.findall(run)]
    return [moves[letter.lower()] for count, letter in counted for _ in range(int(count or 1))]


def _number(text: str) -> int:
    if digits := re.search("[0-9]{1,3}", text):
        return max(int(digits[0]), 1)
    return next((number for word, number in _NUMBERS.items() if word in text), 1)


def follow(steps: list[Step], origin: int | None, side: int, continues: bool) -> tuple[list[int], str]:
    """Walk the steps, and return the cells and what is wrong with them, if anything.

    A cell behind a move says where it leads; it is no further step.

    Args:
      origin: the cell that a move without a cell before it begins from; None if nobody knows.
      continues: the path has ``origin`` already, and only what follows it is returned.
    """
    if set(map(type, steps)) == {int} and not continues:
        return list(steps), ""  # type: ignore[arg-type]
    named = [step for step in steps if step is not None]
    if named and not isinstance(named[0], Action):
        path: list[int] = [] if not continues or origin is None else [origin]
    elif origin is None:
        return [], "moves from an unknown start"
    else:
        path = [origin]
    before: Step = Action.WAIT if continues and len(named) > 1 and named[0] == origin else None
    for step in steps:
        if step is None:
            if len(path) > 1 and path[-1] != path[-2]:
                return [], "a wait beside a cell may be a step or not"
            continue
        if isinstance(step, Action):
            down, right = STEPS[step]
            row, column = divmod(path[-1], side)
            inside = path[-1] >= 0 and 0 <= row + down < side and 0 <= column + right < side
            path.append((row + down) * side + column + right if inside else OUTSIDE)
        elif not isinstance(before, Action) or (before is Action.WAIT and step != path[-1]):
            path.append(step)
        elif step != path[-1]:
            return [], "a move does not lead to the cell behind it"
        before = step
    return path[1:] if continues and origin is not None else path, ""
