"""Scores of answers worked out by hand, and the command that prints them."""

import dataclasses
import itertools
import json

import jax
import numpy as np
import pytest

from jaxlake import rules
from jaxlake.benchmark import FAILURES, Benchmark, score
from jaxlake.board_text import from_text
from jaxlake.score import main
from jaxlake.types import Objective

ACROSS = """
    a.A
    ...
    b.B
"""
BACK = """
    A.a
    .#.
    B.b
"""
LARGE = """
    a..A
    ....
    .#..
    b..B
"""
MEETING = """
    aB.
    b.A
    ...
"""
THREE = """
    a.A
    b.B
    c.C
"""
# Three boards of side 3 in the first subset and one of side 4; one in the second; one with three agents.
BOARDS = (ACROSS, BACK, MEETING, LARGE, ACROSS, THREE)
IDS = ("across", "back", "meeting", "large", "again", "three")
OPTIMAL = {
    "across": "0:(0,0)(0,1)(0,2)\n1:(2,0)(2,1)(2,2)",
    "back": "0:(0,2)(0,1)(0,0)\n1:(2,2)(2,1)(2,0)",
    "meeting": "0:(0,0)(0,1)(0,2)(1,2)\n1:(1,0)(1,1)(0,1)",
    "large": "0:(0,0)(0,1)(0,2)(0,3)\n1:(3,0)(3,1)(3,2)(3,3)",
    "again": "0:(0,0)(0,1)(0,2)\n1:(2,0)(2,1)(2,2)",
    "three": "0:(0,0)(0,1)(0,2)\n1:(1,0)(1,1)(1,2)\n2:(2,0)(2,1)(2,2)",
}
LATE = "0:(0,2)(0,2)(0,1)(0,0)\n1:(2,2)(2,1)(2,0)"  # For "back": a step later than it could be.


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    boards = [from_text(board, max_size=4, max_agents=3) for board in BOARDS]
    return Benchmark(
        name="test",
        ids=IDS,
        instances=jax.tree.map(lambda *leaves: np.stack(leaves), *boards),
        optimum=np.array([4, 4, 5, 6, 4, 6], np.int32),
        lower_bound=np.array([4, 4, 5, 6, 4, 6], np.int32),
        makespan=np.array([2, 2, 3, 3, 2, 2], np.int32),
        needs_wait=np.zeros(6, bool),
        family=np.full(6, "random"),
        hole_ratio=np.zeros(6),
        wait_subset=np.array([0.25, 0.25, 0.25, 0.25, 0.75, 0.25]),
        account={"sha256": "none"},
    )


def row_of(scores, agents, subset):
    (row,) = [row for row in scores.rows if (row.num_agents, row.wait_subset) == (agents, subset)]
    return row


def failures_of(scores, identifier):
    counted = scores.failures[IDS.index(identifier)]
    return {name: count for name, count in zip(FAILURES, counted.tolist(), strict=True) if count}


def test_each_answer_lands_in_its_cell(benchmark):
    answers = OPTIMAL | {"back": LATE, "large": OPTIMAL["across"], "again": "I give up."}
    scores = score(answers, benchmark)
    row = row_of(scores, 2, 0.25)
    assert list(row.by_size) == [3, 4]
    three, four = row.by_size.values()
    assert (three.instances, three.valid, three.optimal) == (3, 100, pytest.approx(200 / 3))
    assert (four.instances, four.valid, four.optimal) == (1, 0, 0)
    assert (row.mean.instances, row.mean.valid, row.mean.optimal) == (4, 50, pytest.approx(100 / 3))
    assert row_of(scores, 2, 0.75).mean.valid == 0
    # All subsets together: 3 of 4 on boards of side 3, 0 of 1 on the other.
    assert row_of(scores, 2, None).by_size[3].valid == 75
    assert row_of(scores, 2, None).mean.valid == 37.5
    assert row_of(scores, 3, 0.25).mean.optimal == 100
    # All agents in the first subset: the cells 2 agents 3x3, 2 agents 4x4 and 3 agents 3x3 count the same.
    assert row_of(scores, None, 0.25).mean.valid == pytest.approx((100 + 0 + 100) / 3)
    assert row_of(scores, None, 0.25).mean.instances == 5
    assert row_of(scores, None, None).mean.valid == pytest.approx((75 + 0 + 100) / 3)


def test_standard_errors_are_those_of_a_mean_over_instances(benchmark):
    scores = score(OPTIMAL | {"back": "none", "again": "none"}, benchmark)
    cell = row_of(scores, 2, None).by_size[3]  # 100, 0, 100 and 0 percent
    assert cell.valid_se == pytest.approx(np.sqrt(4 * 50**2 / 3 / 4))
    assert row_of(scores, 2, None).by_size[4].valid_se == 0  # one instance: nothing to tell it from
    assert row_of(scores, 2, None).mean.valid_se == pytest.approx(cell.valid_se / 2)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ("no path here", "parsable"),
        ("0:(0,2)(0,3)(0,2)(0,1)(0,0)\n1:(2,2)(2,1)(2,0)", "in_bounds"),  # on the padded board, off its own
        ("0:(0,2)(1,2)(1,1)(1,0)(0,0)\n1:(2,2)(2,1)(2,0)", "hole_free"),
        ("0:(0,2)(0,1)\n1:(2,2)(2,1)(2,0)", "goal_reached"),
    ],
)
def test_a_broken_answer_counts_under_the_first_check_it_fails(benchmark, answer, failure):
    scores = score(OPTIMAL | {"back": answer}, benchmark)
    assert failures_of(scores, "back") == {failure: 1}
    assert scores.failures.sum() == 1


def test_samples_are_averaged_over_each_instance(benchmark):
    scores = score({"across": [OPTIMAL["across"], "", "", ""], "back": [OPTIMAL["back"], LATE]}, benchmark)
    assert scores.answers.tolist() == [4, 2, 0, 0, 0, 0]
    assert scores.valid.tolist() == [0.25, 1, 0, 0, 0, 0]
    assert scores.optimal.tolist() == [0.25, 0.5, 0, 0, 0, 0]
    assert failures_of(scores, "across") == {"parsable": 3}


def test_an_instance_without_an_answer_counts_as_invalid_and_is_told(benchmark):
    scores = score({"across": OPTIMAL["across"], "back": []}, benchmark)
    assert failures_of(scores, "back") == failures_of(scores, "three") == {"missing": 1}
    assert row_of(scores, 2, 0.25).by_size[3].valid == pytest.approx(100 / 3)
    assert scores.to_json()["missing"] == 5 and scores.to_json()["rules"] == rules.VERSION
    assert "5 instances have no answer and count as invalid" in scores.to_text()


def test_what_cannot_be_scored_is_refused_in_one_line(benchmark):
    with pytest.raises(ValueError, match="id 'acros' is not in the test set: ids are like 'across'"):
        score({"acros": "", "b": ""}, benchmark)


def test_more_answers_than_are_judged_at_once_are_all_judged(benchmark):
    scores = score({"back": [LATE] * 1500 + [OPTIMAL["back"]] * 500, "across": OPTIMAL["across"]}, benchmark)
    assert (scores.valid[1], scores.optimal[1], scores.optimal[0]) == (1, 0.25, 1)


def test_optimal_may_mean_the_least_makespan(benchmark):
    # The one takes a detour that costs a step more and ends no later than the other has to.
    slow = "0:(0,0)(0,1)(0,2)(1,2)\n1:(1,0)(1,0)(1,1)(0,1)"
    scores = score({"meeting": slow}, benchmark, objective=Objective.MAKESPAN)
    assert scores.optimal[IDS.index("meeting")] == 1
    assert score({"meeting": slow}, benchmark).optimal[IDS.index("meeting")] == 0
    assert "optimal by makespan" in scores.to_text()


@pytest.fixture
def families(benchmark) -> Benchmark:
    """The same in two families and without subsets: maze has a board of side 3, and those of side 4 and 3 agents."""
    family = np.array(["rooms", "rooms", "maze", "maze", "rooms", "maze"])
    return dataclasses.replace(benchmark, family=family, wait_subset=np.full(6, 0.5))


def test_a_set_of_several_families_has_a_row_for_each(families):
    scores = score(OPTIMAL | {"back": LATE, "meeting": "none"}, families)
    rows = {(row.num_agents, row.family): row for row in scores.rows}
    assert set(rows) == {*itertools.product((2, None), ("maze", "rooms", None)), (3, "maze")}
    rooms, maze = rows[2, "rooms"], rows[2, "maze"]
    assert list(rooms.by_size) == [3] and rooms.mean.valid == 100 and rooms.mean.optimal == pytest.approx(200 / 3)
    assert [cell.valid for cell in maze.by_size.values()] == [0, 100]
    assert [cell.instances for cell in rows[2, None].by_size.values()] == [4, 1]
    # The cells 2 agents 3x3, 2 agents 4x4 and 3 agents 3x3 count the same.
    assert rows[None, "maze"].mean.valid == pytest.approx((0 + 100 + 100) / 3)
    assert rows[None, "rooms"].mean.instances == 3


@pytest.fixture
def command(benchmark, monkeypatch, tmp_path, capsys):
    """Runs the command on lines of a file; returns its status and what it printed."""
    monkeypatch.setattr("jaxlake.score.load", lambda name: benchmark)

    def run(lines, *options):
        path = tmp_path / "answers.jsonl"
        path.write_text("\n".join(lines))
        try:
            status = main([str(path), *options])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


def test_the_command_prints_the_tables_and_writes_the_figures(command, tmp_path):
    lines = [json.dumps({"id": key, "answer": answer}) for key, answer in (OPTIMAL | {"back": LATE}).items()]
    lines.append(json.dumps({"id": "back", "answer": OPTIMAL["back"]}))
    status, out, _ = command([*lines, ""], "--json", str(tmp_path / "scores.json"))
    assert status == 0 and "7 answers to 6 of 6 instances" in out
    figures = json.loads((tmp_path / "scores.json").read_text())
    assert (figures["answers"], figures["missing"], figures["objective"]) == (7, 0, "sum_of_costs")
    (cell,) = [row for row in figures["rows"] if (row["agents"], row["wait_subset"], row["size"]) == (2, 0.25, 3)]
    assert (cell["valid"], cell["optimal"], cell["instances"]) == (100, pytest.approx(250 / 3), 3)
    assert figures["failures"][0] == {"agents": 2} | dict.fromkeys(FAILURES, 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "back"}', "line 1: ValueError: it must be an object with the texts id and answer"),
        ('{"id": "nobody", "answer": ""}', "id 'nobody' is not in the test set"),
        ("", "the file has no answer"),
    ],
)
def test_the_command_refuses_a_broken_file_in_one_line_and_writes_nothing(command, tmp_path, line, message):
    status, _, err = command([line], "--json", str(tmp_path / "scores.json"))
    assert status == 2 and message in err and err.count("\n") == 1
    assert not (tmp_path / "scores.json").exists()
