"""Instances on disk, as JSON lines or as boards drawn in text; solves, draws and downloads nothing.

A file ending in ``.jsonl`` holds one record, a JSON object, per line (here broken in two):

    {"id": "7", "size": 3, "agents": 2, "holes": [[1, 1]], "starts": [[0, 0], [2, 2]], "goals": [[2, 0], [0, 2]],
     "status": "solved", "optimum": 4, "lower_bound": 4, "needs_wait": false, "plan": [[[0, 0], [1, 0], [2, 0]], ...]}

Cells are [row, column]. The instance is required, but for its id; what is known about it is not. A file ending in
``.txt`` holds boards as ``from_text`` reads them, with blank lines between them.
"""

import itertools
import json
import operator
import os
import tempfile
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
    """
    size, agents = operator.index(entry["size"]), operator.index(entry["agents"])
    holes, starts, goals = (_pairs_of(entry[key]) for key in ("holes", "starts", "goals"))
    max_size, max_agents = max_size or size, max_agents or agents
    if not (1 <= size <= min(max_size, _LARGEST) and len(starts) == len(goals) == agents <= max_agents):
        raise ValueError(f"size {size} with {agents} agents, {len(starts)} starts and {len(goals)} goals does not fit")
    for pairs in (holes, starts, goals):
        if np.any((pairs < 0) | (pairs >= size)):  # else it would be a cell of another row
            raise ValueError(f"rows and columns must be from 0 to {size - 1}")
    flags = np.zeros(max_size * max_size, bool)
    flags[holes @ [max_size, 1]] = True
    starts_at, goals_at = ((pairs @ [max_size, 1]).tolist() for pairs in (starts, goals))
    instance = levels.build(size, flags, starts_at, goals_at, max_agents)
    levels.validate(instance)
    return instance


def plan_of(entry: Record) -> Plan | None:
    """Return the plan of a record, valid or not; numpy arrays without batch axes. None if the record has none.

    The paths fit the record's own board, agents and longest path; a cell off the board becomes ``OUTSIDE``.

    Args:
      entry: a record as ``record`` writes it, with an instance that ``from_record`` reads.
    """
    if (paths := entry.get("plan")) is None:
        return None
    size, agents = entry["size"], entry["agents"]
    parts = [_pairs_of(path) for path in paths]
    if len(parts) != agents:
        raise ValueError(f"plan has {len(parts)} paths: it must have one for each of {agents} agents")
    lengths = np.array(list(map(len, parts)), np.int32)
    cells = np.full((agents, max(lengths.max(), 1)), ABSENT, np.int32)
    for agent, pairs in enumerate(parts):
        inside = np.all((pairs >= 0) & (pairs < size), axis=1)
        cells[agent, : len(pairs)] = np.where(inside, pairs @ [size, 1], OUTSIDE)
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
    """
    entries = read_records(path, max_size, max_agents)
    instances = [from_record(entry, max_size, max_agents) for entry in entries]
    return levels.stack(instances), [entry["id"] for entry in entries]


def read_records(
    path: str | os.PathLike[str], max_size: int | None = None, max_agents: int | None = None
) -> list[Record]:
    """Read the records of a file, at least one, each with an instance and a plan, if any, that can be read.

    Records without an id get their number, from 0 on. Keys that have no meaning here are kept.
    """
    divide, parse = _format(path)
    seen: set[str] = set()

    def read(part: str) -> Record:
        entry = parse(part)
        from_record(entry, max_size, max_agents)
        plan_of(entry)
        identifier = entry.setdefault("id", str(len(seen)))
        if not isinstance(identifier, str) or identifier in seen:
            raise ValueError(f"id = {identifier!r} must be a text that no line before it has")
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
      divide: divides the text into parts with their line numbers, such as ``lines``.
      read: reads a part; what it raises becomes one line with the part's line number.
      what: the name of a part, for the message that there is none.
    """
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")  # Windows writes a byte-order mark.
    entries: list[Record] = []
    for line, part in divide(text):
        try:
            entries.append(read(part))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {line}: {type(error).__name__}: {error}") from None
    if not entries:
        raise ValueError(f"{path}: the file has no {what}")
    return entries


def write(path: str | os.PathLike[str], entries: Iterable[Record]) -> None:
    """Write records to a file, all or nothing; a ``.txt`` takes the boards alone."""
    _format(path)
    if Path(path).suffix.lower() == ".txt":
        text = "\n\n".join(to_text(from_record(entry)) for entry in entries) + "\n"
    else:
        text = "".join(json.dumps(entry, default=operator.methodcaller("tolist")) + "\n" for entry in entries)
    write_whole(path, text.encode())


def check_target(path: str | os.PathLike[str]) -> None:
    """Raise OSError or ValueError if ``write`` would fail, for a command to ask before a long work."""
    _format(path)
    tempfile.TemporaryFile(dir=Path(path).parent).close()


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that at no time a part of it is there under its name."""
    path = Path(path)
    if path.exists() and not path.is_file():  # Such as /dev/null, in whose place a file would do harm.
        path.write_bytes(content)
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def whole_lines(path: str | os.PathLike[str], cut: bool = False) -> list[bytes]:
    """Return a log's lines but for a last one without its end, as a kill leaves it; ``cut`` takes it off the file."""
    content = Path(path).read_bytes()
    *whole, half = content.split(b"\n")
    if cut and half:
        os.truncate(path, len(content) - len(half))
    return whole


def _format(path: str | os.PathLike[str]) -> tuple[_Divide, _Parse]:
    """Return the functions that divide the file into parts with their line numbers and that read a part."""
    formats: dict[str, tuple[_Divide, _Parse]] = {".jsonl": (lines, read_json), ".txt": (_drawings, _from_drawing)}
    suffix = Path(path).suffix.lower()
    if suffix not in formats:
        raise ValueError(f"{path} must end in {' or '.join(formats)}")
    return formats[suffix]


def read_json(text: str) -> Any:
    """Read a JSON text; ValueError for a key given twice, of which ``json`` takes the last."""

    def unique(pairs: list[tuple[str, Any]]) -> Record:
        entry = dict(pairs)
        if len(entry) < len(pairs):
            raise ValueError(f"a key is given twice: {', '.join(key for key, _ in pairs)}")
        return entry

    return json.loads(text, object_pairs_hook=unique)


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text that are not blank, each with its number."""
    # Not splitlines: a JSON text may hold line separators other than \n.
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _drawings(text: str) -> Iterator[tuple[int, str]]:
    groups = itertools.groupby(enumerate(text.split("\n"), 1), lambda row: bool(row[1].strip()))
    for rows in (list(rows) for drawn, rows in groups if drawn):
        yield rows[0][0], "\n".join(line for _, line in rows)


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


def _pairs_of(values: Any) -> np.ndarray:
    """Return a list of [row, column] as int ``[n, 2]``; ValueError for anything else."""
    pairs = np.asarray(values)
    if pairs.size == 0 and pairs.ndim == 1:
        return np.zeros((0, 2), int)
    if pairs.dtype.kind not in "iu" or pairs.shape[1:] != (2,):
        raise ValueError("must be a list of [row, column]")
    return pairs
