"""MovingAI files: what other programs write is read, and a fault names its file and line."""

import jax
import numpy as np
import pytest

from jaxlake import to_text
from jaxlake.movingai import read_map, read_scenario, read_scenarios

# Four columns and three rows; agent 0 goes from (x=1, y=0) to (x=3, y=2), agent 1 from (x=0, y=1) to (x=2, y=1).
MAP = "type octile\nheight 3\nwidth 4\nmap\nG.@T\n.S..\nOW..\n"
SCEN = (
    "version 1\n"
    "0\tmaps/small.map\t4\t3\t1\t0\t3\t2\t3.41421356\n"
    "0\tmaps/small.map\t4\t3\t0\t1\t2\t1\t2.00000000\n"
    "1\tmaps/small.map\t4\t3\t3\t1\t1\t1\t2\n"
)


@pytest.fixture
def files(tmp_path):
    return tmp_path / "small.map", tmp_path / "small.scen"


def save(files, map_text=MAP, scen_text=SCEN):
    files[0].write_text(map_text)
    files[1].write_text(scen_text)


def test_x_is_the_column_and_the_rest_of_the_square_is_holes(files):
    save(files)
    assert to_text(read_scenario(*files, num_agents=2)) == ".a##\nb.B.\n##.A\n####"


def test_a_scenario_is_an_instance_for_each_number_of_agents_from_2_on(files):
    save(files)  # its rows name maps/small.map, which lies beside it
    scenarios = read_scenarios(files[1])
    assert list(scenarios) == ["small_2ag", "small_3ag"]
    for name, instance in scenarios.items():
        expected = read_scenario(*files, num_agents=int(name[-3]))
        jax.tree.map(np.testing.assert_array_equal, instance, expected)


def test_a_scenario_of_many_agents_ends_at_five_and_one_of_one_is_one(files):
    save(files, "type octile\nheight 3\nwidth 3\nmap\n...\n...\n...\n")
    row = "0\tC:\\maps\\small.map\t3\t3\t{0}\t{1}\t{1}\t{0}\t1\n"
    rows = [row.format(*divmod(cell, 3)) for cell in range(9)]
    files[1].write_text("version 1\n" + "".join(rows))
    assert list(read_scenarios(files[1])) == [f"small_{agents}ag" for agents in (2, 3, 4, 5)]
    files[1].write_text("version 1\n" + rows[0])
    assert list(read_scenarios(files[1])) == ["small_1ag"]


@pytest.mark.parametrize("separator", ["\t", " \t", " "])
def test_windows_line_ends_byte_order_marks_and_blanks_are_read(files, separator):
    for path, text in zip(files, (MAP, SCEN.replace("\t", separator)), strict=True):
        path.write_bytes((text.replace("\n", " \t\r\n") + "\r\n").encode("utf-8-sig"))
    assert to_text(read_scenario(*files, num_agents=2)) == ".a##\nb.B.\n##.A\n####"


@pytest.mark.parametrize(
    ("old", "new", "line", "fault"),
    [
        ("height 3", "height three", 4, "there is no line 'height' with a whole number above 'map'"),
        ("OW..\n", "", 6, "2 rows follow 'map': the height is 3"),
        (".S..", ".S.", 6, "'.S.' must be 4 cells out of"),
    ],
)
def test_a_broken_map_names_file_and_line(files, old, new, line, fault):
    save(files, MAP.replace(old, new, 1))
    with pytest.raises(ValueError) as error:
        read_map(files[0])
    assert str(error.value).startswith(f"{files[0]}, line {line}: {fault}")


@pytest.mark.parametrize(
    ("old", "new", "where", "fault"),
    [
        ("\t3.41421356", "", ", line 2", "the row must have the 9 columns"),
        ("\t1\t0\t3\t2", "\t1\t-1\t3\t2", ", line 2", "width, height, start x"),
        ("\t0\t1\t2\t1", "\t0\t1\t3\t2", "", "agents 0 and 1 have the same goal (2,3)"),
        ("\t1\t0\t3\t2", "\t4\t0\t3\t2", ", line 2", "the start or the goal is outside the map"),
        ("\t4\t3\t0\t1", "\t3\t4\t0\t1", ", line 3", "the map is 3 x 4 here, its file (4, 3)"),
        ("1\tmaps/small.map\t4\t3\t3\t1\t1\t1\t2\n", "", ", line 3", "the file ends after 2 of 3 agents"),
    ],
)
def test_a_broken_scenario_names_the_file_and_the_fault(files, old, new, where, fault):
    save(files, scen_text=SCEN.replace(old, new, 1))
    with pytest.raises(ValueError) as error:
        read_scenario(*files, num_agents=3)
    assert str(error.value).startswith(f"{files[1]}{where}: {fault}")
