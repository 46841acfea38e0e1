"""Scenarios of other projects: solved and scored as the fixed sets are, and refused beyond the limits of the solver."""

import json

import pytest

from jaxlake import score
from jaxlake.benchmark import __main__ as export
from jaxlake.benchmark import load_maps

# In `pass` agent a must wait in the bay or go around it until b is by; `full` is a lane on which nobody can pass.
MAPS = """
pass: |-
  a...b
  ##.##
  B...A
apart: |-
  a.A
  b.B
"""
FULL = """
full: |-
  aB.bA
"""
ANSWERS = {
    "apart": "0:(0,0)(0,1)(0,2)\n1:(1,0)(1,1)(1,2)",
    "pass": "0:(0,0)(0,1)(0,2)(1,2)(2,2)(2,3)(2,4)\n1:(0,4)(0,4)(0,3)(0,2)(1,2)(2,2)(2,1)(2,0)",
}


@pytest.fixture
def path(tmp_path):
    """Writes a file of maps and returns its path."""

    def write(text=MAPS, name="boards.yaml"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.fixture
def run(capsys):
    """Runs a command; returns its status and what it printed."""

    def run(main, *arguments):
        try:
            status = main(list(map(str, arguments)))
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


@pytest.mark.heavy
def test_the_way_from_a_file_of_maps_to_scores(path, run, tmp_path):
    status, out, err = run(export.main, "export", tmp_path / "lake", "--format", "jsonl", "--maps", path(MAPS + FULL))
    assert (status, out.strip()) == (0, str(tmp_path / "lake" / "boards.jsonl"))
    assert err == "boards: 1 left out as unsolvable: full\n"
    rows = [json.loads(line) for line in (tmp_path / "lake" / "boards.jsonl").read_text().splitlines()]
    assert [(row["id"], row["size"], row["optimum"], row["needs_wait"]) for row in rows] == [
        ("pass", 5, 13, True),
        ("apart", 3, 4, False),
    ]
    assert rows[0]["prompt"].startswith("5x5 holes") and rows[0]["makespan"] == 7
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"id": key, "answer": text}) + "\n" for key, text in ANSWERS.items()))
    status, out, err = run(score.main, answers, "--maps", path(MAPS + FULL), "--json", tmp_path / "scores.json")
    assert status == 0 and out.startswith("boards set, optimal by sum_of_costs: 2 answers to 2 of 2 instances")
    figures = json.loads((tmp_path / "scores.json").read_text())
    cells = {row["size"]: (row["valid"], row["optimal"]) for row in figures["rows"]}
    assert cells == {3: (100, 100), 5: (100, 100), None: (100, 100)}


@pytest.mark.heavy
def test_a_scenario_of_movingai_is_scored_for_each_number_of_agents(tmp_path, run):
    (tmp_path / "open.map").write_text("type octile\nheight 5\nwidth 5\nmap\n" + ".....\n" * 5)
    rows = (f"0\topen.map\t5\t5\t{ends}\t2\n" for ends in ("0\t0\t2\t0", "2\t2\t0\t2"))
    (tmp_path / "open.SCEN").write_text("version 1\n" + "".join(rows))
    boards = load_maps(tmp_path / "open.SCEN")
    assert boards.ids == ("open_2ag",) and boards.optimum.tolist() == [4]
    (tmp_path / "answers.jsonl").write_text(json.dumps({"id": "open_2ag", "answer": "0: R R\n1: L L"}))
    status, out, _ = run(score.main, tmp_path / "answers.jsonl", "--maps", tmp_path / "open.SCEN")
    assert status == 0 and "100.0±0.0" in out


def test_what_cannot_be_played_is_refused_in_one_line(path, run, tmp_path):
    (tmp_path / "answers.jsonl").write_text('{"id": "a", "answer": ""}')
    (tmp_path / "wall.map").write_text("type octile\nheight 2\nwidth 3\nmap\n@..\n...\n")
    (tmp_path / "wall.scen").write_text("version 1\n0\twall.map\t3\t2\t0\t0\t1\t1\t1\n")
    for file, fault in (
        (path(f"wide: a{'.' * 180}A\n"), "boards.yaml, wide: the board is 182x182: it must be at most 181 a side"),
        (tmp_path / "wall.scen", "wall.scen"),
        (path("[", "broken.yaml"), "broken.yaml: not YAML"),
        (path("cut: |-\n  a.#........A\n", "cut.yaml"), "cut.yaml: no scenario has a plan that the solver finds"),
        (path("", "maps.txt"), "maps.txt must end in .yaml, .yml, .scen"),
        (tmp_path / "none.yaml", "No such file"),
    ):
        status, _, err = run(score.main, tmp_path / "answers.jsonl", "--maps", file)
        assert status == 2 and fault in err and err.count("\n") == 1
        status, _, err = run(export.main, "export", tmp_path / "lake", "--maps", file)
        assert status == 2 and fault in err and err.count("\n") == 1
    assert not (tmp_path / "lake").exists()


@pytest.mark.heavy
def test_a_board_beyond_the_solver_has_a_bound_and_pibt_is_measured_against_it(path, run, tmp_path):
    file = path("long: |-\n  a..........A\n  b..........B\ncut: |-\n  a.#........A\n")
    boards = load_maps(file)
    assert boards.ids == ("long",) and boards.account["left_out"]["unsolvable"] == ["cut"]
    assert (boards.optimum.tolist(), boards.lower_bound.tolist(), boards.makespan.tolist()) == ([-1], [22], [-1])
    status, out, _ = run(score.main, "--maps", file, "--planner", "pibt", "--json", tmp_path / "scores.json")
    (row,) = json.loads((tmp_path / "scores.json").read_text())["measures"]["pibt"]
    assert status == 0 and "pibt, 2 agents" in out
    assert [row[key] for key in ("success", "individual_success", "sum_of_costs", "makespan")] == [1, 1, 1, 1]
