"""Instances on disk: records, JSON lines and drawn boards."""

import json

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlake import files
from jaxlake.board_text import from_text, to_text
from jaxlake.text import parse
from jaxlake.types import ABSENT, OUTSIDE, Instance, Status

BOARD = """
    a.B
    .#.
    b.A
"""
RECORD = {
    "id": "first",
    "size": 3,
    "agents": 2,
    "holes": [[1, 1]],
    "starts": [[0, 0], [2, 0]],
    "goals": [[2, 2], [0, 2]],
}
PLAN = [[[0, 0], [0, 1], [0, 2], [1, 2], [2, 2]], [[2, 0], [1, 0], [1, 0], [0, 0], [0, 1], [0, 2]]]
ANSWER = "0:(0,0)(0,1)(0,2)(1,2)(2,2)\n1:(2,0)(1,0)(1,0)(0,0)(0,1)(0,2)"


def equal(ours, theirs) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))


@st.composite
def instances(draw) -> Instance:
    """Any legal instance, agents on their goals and on others' goals included."""
    size, agents = draw(st.integers(2, 10)), draw(st.integers(1, 3))
    max_size, max_agents = draw(st.integers(size, 10)), draw(st.integers(agents, 5))
    cells = st.integers(0, size - 1).flatmap(lambda r: st.integers(0, size - 1).map(lambda c: r * max_size + c))
    starts, goals = (draw(st.lists(cells, min_size=agents, max_size=agents, unique=True)) for _ in range(2))
    holes = np.zeros(max_size**2, bool)
    holes[list(draw(st.sets(cells, max_size=size * size // 2)) - set(starts) - set(goals))] = True
    padding = [ABSENT] * (max_agents - agents)
    return Instance(
        size=np.int32(size),
        num_agents=np.int32(agents),
        holes=holes,
        starts=np.array(starts + padding, np.int32),
        goals=np.array(goals + padding, np.int32),
    )


def test_a_record_says_what_the_board_shows_however_it_is_padded():
    for max_size in (3, 10):
        assert files.record(from_text(BOARD, max_size=max_size, max_agents=4), "first") == RECORD


def test_a_record_holds_what_is_known():
    plan = parse(ANSWER, max_size=7, max_agents=3, max_steps=9)
    written = files.record(
        from_text(BOARD, max_size=7, max_agents=3),
        "first",
        status=np.int32(Status.OUT_OF_BUDGET),
        optimum=np.int32(8),
        lower_bound=8,
        needs_wait=np.bool_(False),
        plan=plan,
    )
    known = {"status": "out_of_budget", "optimum": 8, "lower_bound": 8, "needs_wait": False, "plan": PLAN}
    assert json.loads(json.dumps(written)) == RECORD | known
    assert files.plan_of(RECORD) is None
    assert equal(files.plan_of(written), parse(ANSWER, max_size=3, max_agents=2, max_steps=5))


def test_a_plan_off_the_board_stays_off_the_board():
    plan = files.plan_of(RECORD | {"plan": [[[0, 0], [-1, 0], [0, 3]], []]})
    assert plan.paths.tolist() == [[0, OUTSIDE, OUTSIDE], [ABSENT] * 3] and plan.num_named == 1


@given(instances())
def test_every_instance_is_read_back_from_its_record(instance):
    entry = json.loads(json.dumps(files.record(instance, "x")))
    assert equal(files.from_record(entry, instance.max_size, instance.max_agents), instance)


@given(instances())
def test_every_instance_is_read_back_from_its_drawing(instance):
    again = from_text(to_text(instance), max_size=instance.max_size, max_agents=instance.max_agents)
    assert equal(again, instance)


def test_files_are_read_back_padded_to_the_largest_board(tmp_path):
    small, large = from_text(BOARD), from_text(["a...", "c..B", "..b.", ".AC."])
    for name in ("boards.jsonl", "boards.txt"):
        files.write(tmp_path / name, [files.record(small, "0"), files.record(large, "1")])
        batch, names = files.read(tmp_path / name)
        assert names == ["0", "1"]
        assert batch.starts.tolist() == [[0, 8, ABSENT], [0, 10, 4]]
        assert files.read(tmp_path / name, max_size=8, max_agents=4)[0].starts[1].tolist() == [0, 18, 8, ABSENT]
    assert (tmp_path / "boards.txt").read_text() == "a.B\n.#.\nb.A\n\na...\nc..B\n..b.\n.AC.\n"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("convert", [tuple, np.array, lambda cells: [list(map(np.int64, pair)) for pair in cells]])
def test_cells_of_other_types_are_read_and_written(tmp_path, convert):
    paths = [[np.int64(0), 0], (0, 1)], np.array([[2, 0]])
    entry = {key: convert(value) if isinstance(value, list) else value for key, value in RECORD.items()}
    entry |= {"size": np.int32(3), "plan": paths}
    assert equal(files.from_record(entry), files.from_record(RECORD))
    assert files.plan_of(entry).paths.tolist() == [[0, 1], [6, ABSENT]]
    files.write(tmp_path / "X.JSONL", [entry])
    assert files.read_records(tmp_path / "X.JSONL") == [RECORD | {"plan": [[[0, 0], [0, 1]], [[2, 0]]]}]


@pytest.mark.parametrize("name", ["boards.jsonl", "BOARDS.TXT"])
def test_a_byte_order_mark_windows_line_ends_and_blanks_change_nothing(tmp_path, name):
    path = tmp_path / name
    files.write(path, [RECORD])
    expected = files.read(path)
    path.write_bytes(path.read_text().replace("\n", " \t\r\n").encode("utf-8-sig"))
    assert equal(files.read(path)[0], expected[0])


def test_unknown_keys_are_kept_and_missing_ids_counted(tmp_path):
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps(x) for x in (RECORD | {"tag": 1}, RECORD | {"id": "1"})))
    assert [entry.get("tag") for entry in files.read_records(tmp_path / "x.jsonl")] == [1, None]
    (tmp_path / "y.txt").write_text("\n\n a.B \n .#. \n b.A\n\n\na.A\n...\n...\n")
    assert files.read(tmp_path / "y.txt")[1] == ["0", "1"]


def broken(**changes) -> str:
    return json.dumps({key: value for key, value in (RECORD | changes).items() if value is not None})


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("[1]", "TypeError: "),
        (broken(size=None), "KeyError: 'size'"),
        (broken(agents=3), "ValueError: size 3 with 3 agents, 2 starts and 2 goals does not fit"),
        (broken(holes=[[1, 1.0]]), r"ValueError: must be a list of \[row, column\]"),
        (broken(holes=[[0, 3]]), "ValueError: rows and columns must be from 0 to 2"),
        (broken(plan=[[[0, 0]]]), "ValueError: plan has 1 paths: it must have one for each of 2 agents"),
        (broken(), "ValueError: id = 'first' must be a text that no line before it has"),
    ],
)
def test_a_faulty_line_is_refused_with_file_line_and_fault(tmp_path, line, fault):
    path = tmp_path / "faulty.jsonl"
    path.write_text(f"{json.dumps(RECORD)}\n\n{line}\n")
    with pytest.raises(ValueError, match=f"faulty.jsonl, line 3: {fault}") as caught:
        files.read(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("x.jsonl", b"\n", "x.jsonl: the file has no instance"),
        ("x.txt", b"\xff\xfe", "x.txt, line 1: ValueError: the board has 1 rows of lengths"),
        ("x.txt", b"a.\n.A\n\n\naa\n.A\n", r"x.txt, line 5: ValueError: 'a' at \(0,1\) of board 1"),
        ("x.csv", b"", r"x.csv must end in .jsonl or .txt"),
    ],
)
def test_a_file_that_holds_no_instances_is_refused(tmp_path, name, content, fault):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=fault):
        files.read(tmp_path / name)


def test_nothing_half_written_is_left_and_the_old_file_stays(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("old")

    def entries():
        yield RECORD
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        files.write(path, entries())
    with pytest.raises(ValueError, match="must end in"):
        files.write(tmp_path / "x.csv", [RECORD])
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    for name in ("nowhere/y.jsonl", "x.jsonl/y.jsonl"):
        with pytest.raises(OSError):
            files.write(tmp_path / name, [RECORD])
    assert list(tmp_path.iterdir()) == [path]
