"""The commands that draw, solve and show boards in files."""

import json
import sys
import warnings

import numpy as np
import pytest

from jaxlake import files
from jaxlake.commands import command_parser, mistakes_in_one_line
from jaxlake.generate.__main__ import main as generate
from jaxlake.render.__main__ import main as render
from jaxlake.solve.__main__ import main as solve
from jaxlake.verify import verify

BOARDS = """\
a.B.
.#..
b..#
...A

ab#.
####
....
.BA.

a... A...
.b.. ..B.
.... ....
.... ....
"""
DRAWN = "a+B.\n^#v.\nb.v#\n..>A\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, with boards in ``boards.txt``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boards.txt").write_text(BOARDS)
    return tmp_path


def records(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def refused(command, arguments: list[str], capsys) -> str:
    """The error line of a command that ends with status 2."""
    with pytest.raises(SystemExit) as caught:
        command(arguments)
    assert caught.value.code == 2
    output = capsys.readouterr()
    assert output.out == "" and "Traceback" not in output.err
    return output.err.splitlines()[-1]


@pytest.mark.heavy
def test_generated_boards_meet_their_quotas_and_the_same_command_writes_the_same_file(here, capsys):
    command = "--kinds 3-4 --holes .2 --waits .5 --count 20 --seed 3 -o"
    assert generate([*command.split(), "one.jsonl"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line[:12] for line in told] == ["3: 10 boards", "4: 10 boards"] and "5 of 5 need a wait" in told[0]
    written = records(here / "one.jsonl")
    assert [entry["id"] for entry in written] == [str(index) for index in range(20)]
    for entry in written:
        assert verify(files.from_record(entry), files.plan_of(entry), np.int32(entry["optimum"])).optimal

    generate([*command.split(), "two.jsonl"])
    assert (here / "one.jsonl").read_bytes() == (here / "two.jsonl").read_bytes()
    generate([*command.split(), "other.txt", "--exclude", "one.jsonl", "--waits", "0"])
    others = files.read_records(here / "other.txt")
    assert len(others) == 20 and not boards(others) & boards(written)


def boards(entries) -> set[str]:
    return {json.dumps([entry[key] for key in ("size", "holes", "starts", "goals")]) for entry in entries}


@pytest.mark.heavy
def test_solving_a_file_keeps_its_boards_and_says_how_each_one_ended(here, capsys):
    assert solve(["boards.txt", "-o", "solved.jsonl"]) == 0
    summary = "3 boards: 2 solved, of which 0.0% need a wait; 1 unsolvable, 0 undecided\n"
    assert capsys.readouterr().out == summary
    crossing, walled, resting = records(here / "solved.jsonl")
    assert [crossing["id"], walled["id"], resting["id"]] == ["0", "1", "2"]
    assert crossing["status"] == "solved" and resting["status"] == "solved" and walled["status"] == "unsolvable"
    assert crossing["optimum"] == 6 + 4 and resting["optimum"] == 0 + 1
    assert "plan" not in walled and "optimum" not in walled

    stale = crossing | {"optimum": 99, "plan": None, "author": "somebody", "id": "first"}
    (here / "again.jsonl").write_text(json.dumps(stale))
    solve(["again.jsonl", "-o", "again.jsonl"])
    (again,) = records(here / "again.jsonl")
    assert again == crossing | {"author": "somebody", "id": "first"}


PLANNED = {
    "size": 4,
    "agents": 2,
    "holes": [[1, 1], [2, 3]],
    "starts": [[0, 0], [2, 0]],
    "goals": [[3, 3], [0, 2]],
    "plan": [
        [[0, 0], [0, 1], [0, 2], [1, 2], [1, 2], [2, 2], [3, 2], [3, 3]],
        [[2, 0], [1, 0], [1, 0], [0, 0], [0, 1], [0, 2]],
    ],
}


def test_a_board_is_drawn_in_the_format_that_the_ending_names(here, capsys):
    (here / "planned.jsonl").write_text("\n".join(json.dumps(x) for x in (PLANNED, PLANNED | {"plan": None})))
    assert render(["planned.jsonl"]) == 0
    assert capsys.readouterr().out == DRAWN
    assert render(["boards.txt", "--index", "2"]) == 0
    assert capsys.readouterr().out == BOARDS.split("\n\n")[2]
    beginnings = {"x.txt": b"a+B.", "x.svg": b"<svg", "x.png": b"\x89PNG"}
    for name, beginning in beginnings.items():
        assert render(["planned.jsonl", "-o", name]) == 0
        assert (here / name).read_bytes().startswith(beginning)
    assert b"animateTransform" not in (here / "x.svg").read_bytes()
    render(["planned.jsonl", "--animate", "-o", "x.svg"])
    assert b"animateTransform" in (here / "x.svg").read_bytes()


@pytest.mark.parametrize(
    ("command", "arguments", "fault"),
    [
        (generate, "--kinds 2-4 -o x.jsonl", "argument --kinds: size of random boards = 2 must be a whole"),
        (generate, "--holes .9 -o x.jsonl", "hole of size 3 = 0.9 must be from 0 to 0.5"),
        (generate, "-o nowhere/x.jsonl", "No such file or directory: "),
        (generate, "-o x.jsonl --exclude large.jsonl", "large.jsonl, line 1: ValueError: size 11 with 1 agents"),
        (solve, "faulty.jsonl -o x.jsonl", "faulty.jsonl, line 2: KeyError: 'size'"),
        (solve, "boards.txt -o x.jsonl --max-steps 128", "max_steps = 128 must be a whole number from 1 to 127"),
        (solve, "boards.txt -o x.txt", "x.txt: plans need a file that ends in .jsonl"),
        (render, "boards.txt -o x.svg --animate", "boards.txt: board 0 has no plan; python -m jaxlake.solve finds one"),
        (render, "boards.txt -o x.gif", "x.gif must end in .txt, .svg, .png"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_and_nothing_is_written(here, capsys, command, arguments, fault):
    (here / "faulty.jsonl").write_text(json.dumps(PLANNED) + "\n{}\n")
    large = {"size": 11, "agents": 1, "holes": [], "starts": [[0, 0]], "goals": [[9, 9]]}
    (here / "large.jsonl").write_text(json.dumps(large))
    before = sorted(here.iterdir())
    line = refused(command, arguments.split(), capsys)
    assert ": error: " in line and fault in line
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize(
    ("command", "work", "arguments"), [(generate, "generate", "-o x.jsonl"), (solve, "solve", "boards.txt -o x.jsonl")]
)
def test_a_command_that_is_stopped_says_so_and_writes_nothing(here, capsys, monkeypatch, command, work, arguments):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[command.__module__], work, stopped)
    with pytest.raises(SystemExit) as caught:
        command(arguments.split())
    assert caught.value.code == 130
    assert capsys.readouterr().err.endswith(": stopped, nothing is written\n")
    assert [path.name for path in here.iterdir()] == ["boards.txt"]


def test_a_picture_that_needs_a_library_says_which(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "PIL is not installed: .png needs Pillow, .svg does not" in refused(
        render, ["boards.txt", "-o", "x.png"], capsys
    )


def test_a_warning_is_a_line_on_stderr(capsys):
    parser = command_parser("jaxlake.score", "", "")
    with mistakes_in_one_line(parser):
        warnings.warn("old.scen: no version", stacklevel=1)
    assert capsys.readouterr() == ("", "python -m jaxlake.score: old.scen: no version\n")
