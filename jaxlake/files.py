"""Instances on disk, as JSON lines or as boards drawn in text; solves, draws and downloads nothing.

A file ending in ``.jsonl`` holds one record, a JSON object, per line (here broken in two):

    {"id": "7", "size": 3, "agents": 2, "holes": [[1, 1]], "starts": [[0, 0], [2, 2]], "goals": [[2, 0], [0, 2]],
     "status": "solved", "optimum": 4, "lower_bound": 4, "needs_wait": false, "plan": [[[0, 0], [1, 0], [2, 0]], ...]}

Cells are [row, column]. The instance is required, but for its id; what is known about it is not. A file ending in
``.txt`` holds boards as ``from_text`` reads them, with blank lines between them.
"""

import contextlib
import json
import operator
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake import levels
from jaxlake.board_text import from_text, to_text
from jaxlake.record import Array
from jaxlake.types import ABSENT, OUTSIDE, Instance, Plan, Status

Record = dict[str, Any]
KNOWN = ("status", "optimum", "lower_bound", "needs_wait", "plan")
"""The keys of a record that are not the instance."""

_LARGEST = 2048  # A mistyped size must not ask for more memory than there is; MovingAI's boards are smaller.
_Divide = Callable[[str], Iterator[tuple[int, str]]]
_Parse = Callable[[str], Record]


def record(
    instance: Instance,
    identifier: str,
    *,
    status: Status | None = None,
    optimum: int | Array | None = None,
    lower_bound: int | Array | None = None,
    needs_wait: bool | Array | None = None,
    plan: Plan | None = None,
) -> Record:
    """Write an instance (no batch axes) and what is known about it as plain JSON values, without what is None.

    Args:
      instance: the board; the record does not depend on its padding.
      identifier: name of the board, unique in a file.
      optimum: the least sum of costs.
      lower_bound: the sum of the agents' independent shortest paths.
      needs_wait: every optimal plan contains a wait before an arrival.
      plan: a plan with the same padding as the instance.
    """
    levels.check_has_end(instance)
    agents, max_size = int(instance.num_agents), instance.max_size
    known = {
        "status": None if status is None else Status(int(status)).name.lower(),
        "optimum": None if optimum is None else int(optimum),
        "lower_bound": None if lower_bound is None else int(lower_bound),
        "needs_wait": None if needs_wait is None else bool(needs_wait),
        "plan": None if plan is None else _paths(plan, agents, max_size),
    }
    return {
        "id": identifier,
        "size": int(instance.size),
        "agents": agents,
        "holes": _pairs(np.flatnonzero(instance.holes), max_size),
        "starts": _pairs(np.asarray(instance.starts)[:agents], max_size),
        "goals": _pairs(np.asarray(instance.goals)[:agents], max_size),
    } | {key: value for key, value in known.items() if value is not None}


def from_record(entry: Record, max_size: int | None = None, max_agents: int | None = None) -> Instance:
    """Return the instance of a record; numpy arrays without batch axes.

    Args:
      entry: a record as ``record`` writes it; NumPy's numbers and arrays, and tuples, do as well.
      max_size: side of the padded board, the board's own by default.
      max_agents: number of agent slots, the board's own by default.

    Raises:
      ValueError: naming the key, the value and what it must be.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"{_short(entry)} is not a record: it must be a JSON object")
    size, agents = _plain(entry.get("size")), _plain(entry.get("agents"))
    for key, number in (("size", size), ("agents", agents)):
        if type(number) is not int or not 1 <= number <= _LARGEST:
            raise ValueError(f"{key} = {_short(number)} must be a whole number from 1 to {_LARGEST}")
    max_size = size if max_size is None else max_size
    max_agents = agents if max_agents is None else max_agents
    if size > max_size or agents > max_agents:
        raise ValueError(f"size {size} with {agents} agents exceeds max_size {max_size}, max_agents {max_agents}")
    holes, starts, goals = (_cells(entry.get(key), key, size, max_size) for key in ("holes", "starts", "goals"))
    for key, cells in (("starts", starts), ("goals", goals)):
        if len(cells) != agents:
            raise ValueError(f"{key} has {len(cells)} cells: it must have one for each of {agents} agents")
    flags = np.zeros(max_size * max_size, bool)
    flags[holes] = True
    instance = levels.build(size, flags, starts, goals, max_agents)
    levels.validate(instance)
    return instance


def plan_of(entry: Record) -> Plan | None:
    """Return the plan of a record, valid or not; numpy arrays without batch axes. None if the record has none.

    The paths fit the record's own board, agents and longest path; a cell off the board becomes ``OUTSIDE``.

    Args:
      entry: a record as ``record`` writes it, with an instance that ``from_record`` reads.

    Raises:
      ValueError: naming the fault.
    """
    paths, size, agents = (_plain(entry.get(key)) for key in ("plan", "size", "agents"))
    if paths is None:
        return None
    if not (isinstance(paths, list) and len(paths) == agents and all(map(is_path, paths))):
        raise ValueError(f"plan = {_short(paths)} must be a list of [row, column] for each of {agents} agents")
    lengths = np.array(list(map(len, paths)), np.int32)
    cells = np.full((agents, max(lengths.max(), 1)), ABSENT, np.int32)
    for agent, path in enumerate(paths):
        for step, (row, column) in enumerate(path):
            inside = 0 <= row < size and 0 <= column < size
            cells[agent, step] = row * size + column if inside else OUTSIDE
    named = np.count_nonzero(lengths)
    return Plan(parsable=np.asarray(named > 0), num_named=np.asarray(named, np.int32), paths=cells, lengths=lengths)


def read(
    path: str | os.PathLike[str], max_size: int | None = None, max_agents: int | None = None
) -> tuple[Instance, list[str]]:
    """Read the instances of a file, numpy arrays ``[n]``, and their ids.

    Args:
      path: ends in ``.jsonl`` or ``.txt``.
      max_size: side of the padded boards, the largest board's by default.
      max_agents: number of agent slots, the most of any board by default.

    Raises:
      OSError: if the file cannot be read.
      ValueError: naming the file, the line and the fault.
    """
    entries = read_records(path, max_size, max_agents)
    instances = [from_record(entry, max_size, max_agents) for entry in entries]
    return levels.stack(instances), [entry["id"] for entry in entries]


def read_records(
    path: str | os.PathLike[str], max_size: int | None = None, max_agents: int | None = None
) -> list[Record]:
    """Read the records of a file, at least one, each with an instance and a plan, if any, that can be read.

    Records without an id get their number, from 0 on. Keys that have no meaning here are kept.

    Raises:
      OSError: if the file cannot be read.
      ValueError: naming the file, the line and the fault.
    """
    divide, parse = _format(path)
    seen: set[str] = set()

    def read(part: str) -> Record:
        entry = parse(part)
        from_record(entry, max_size, max_agents)
        plan_of(entry)
        identifier = entry.setdefault("id", str(len(seen)))
        if not isinstance(identifier, str) or identifier in seen:
            raise ValueError(f"id = {_short(identifier)} must be a text that no line before it has")
        seen.add(identifier)
        return entry

    return read_parts(path, divide, read, "instance")


def read_parts(
    path: str | os.PathLike[str],
    divide: Callable[[str], Iterable[tuple[int, str]]],
    read: Callable[[str], Record],
    what: str,
) -> list[Record]:
    """Read the parts of a text file, at least one.

    Args:
      divide: the text into parts with their line numbers, such as ``lines``.
      read: a part, such as ``from_json``; ValueError where it cannot be.
      what: one of them is called.

    Raises:
      OSError: if the file cannot be read.
      ValueError: naming the file, the line and the fault.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # Windows' programs write a byte-order mark.
    except UnicodeDecodeError:
        raise ValueError(f"{path}: the file is not text in UTF-8") from None
    entries: list[Record] = []
    for line, part in divide(text):
        try:
            entries.append(read(part))
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from None
    if not entries:
        raise ValueError(f"{path}: the file has no {what}")
    return entries


def write(path: str | os.PathLike[str], entries: Iterable[Record]) -> None:
    """Write records to a file, all or nothing; a ``.txt`` takes the boards alone.

    Raises:
      OSError: if it cannot be written.
      ValueError: if the path ends in neither ``.jsonl`` nor ``.txt``.
    """
    _format(path)
    if Path(path).suffix.lower() == ".txt":
        text = "\n\n".join(to_text(from_record(entry)) for entry in entries) + "\n"
    else:
        text = "".join(json.dumps(entry, default=operator.methodcaller("tolist")) + "\n" for entry in entries)
    write_whole(path, text.encode())


def check_target(path: str | os.PathLike[str]) -> None:
    """Return if ``write`` has a chance, for a command to ask before a long work; else ValueError naming the fault."""
    _format(path)
    folder = Path(path).parent
    if not folder.is_dir():
        raise ValueError(f"{path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{path}: the folder {folder} cannot be written to")
    if Path(path).is_dir():
        raise ValueError(f"{path}: it is a folder")


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that at no time a part of it is there under its name; OSError, naming it, if that cannot be."""
    path = Path(path)
    if path.exists() and not path.is_file():  # Such as /dev/null, in whose place a file would do harm.
        path.write_bytes(content)
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        with contextlib.suppress(OSError):  # There is none, or what is wrong with the folder is being raised already.
            draft.unlink()


def whole_lines(path: str | os.PathLike[str], cut: bool = False) -> list[bytes]:
    """Return a log's lines but for a last one without its end, as a kill leaves it; ``cut`` takes it off the file."""
    content = Path(path).read_bytes()
    *whole, half = content.split(b"\n")
    if cut and half:
        os.truncate(path, len(content) - len(half))
    return whole


def _format(path: str | os.PathLike[str]) -> tuple[_Divide, _Parse]:
    """Return the functions that divide the file into parts with their line numbers and that read a part."""
    formats = {".jsonl": (lines, from_json), ".txt": (_drawings, _from_drawing)}
    suffix = Path(path).suffix.lower()
    if suffix not in formats:
        raise ValueError(f"{path} must end in {' or '.join(formats)}")
    return formats[suffix]


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text that are not blank, each with its number."""
    # Not splitlines: a JSON text may hold line separators other than \n.
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _drawings(text: str) -> Iterator[tuple[int, str]]:
    rows: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.strip():
            rows.append(line)
        elif rows:
            yield number - len(rows), "\n".join(rows)
            rows = []


def from_json(line: str) -> Any:
    """Return what a line of JSON holds; ValueError where it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # A number of thousands of digits is a ValueError.
        raise ValueError(f"not JSON: {error}") from None


def _from_drawing(rows: str) -> Record:
    entry = record(from_text(rows), "")
    del entry["id"]
    return entry


def _paths(plan: Plan, agents: int, max_size: int) -> list[list[list[int]]]:
    paths, lengths = np.asarray(plan.paths), np.asarray(plan.lengths)
    return [_pairs(paths[agent, : lengths[agent]], max_size) for agent in range(agents)]


def _pairs(cells: Iterable[int], max_size: int) -> list[list[int]]:
    """[row, column] of each cell; [-1, -1] for one off the padded board, of which no more is known."""
    return [[-1, -1] if cell < 0 else list(divmod(int(cell), max_size)) for cell in cells]


def _cells(pairs: Any, key: str, size: int, max_size: int) -> list[int]:
    pairs = _plain(pairs)
    if not is_path(pairs):
        raise ValueError(f"{key} = {_short(pairs)} must be a list of [row, column]")
    for pair in pairs:
        if not all(0 <= coordinate < size for coordinate in pair):
            raise ValueError(f"{key} contains {_short(pair)}: both must be from 0 to {size - 1}")
    return [row * max_size + column for row, column in pairs]


def is_path(value: Any) -> bool:
    """Return whether a value is a list of [row, column], of any whole numbers."""
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair) for pair in value
    )


def _plain(value: Any) -> Any:
    """Return a value as JSON would have it: Python's numbers for NumPy's, lists for arrays and tuples."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def _short(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=repr)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
