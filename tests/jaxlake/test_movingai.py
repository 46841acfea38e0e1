"""MovingAI files: what other programs write is read, and a fault names its file and line."""

import jax
import numpy as np
import pytest

from jaxlake import to_text
from jaxlake.movingai import read_map, read_scenarios

# Four columns and three rows; agent 0 goes from (x=1, y=0) to (x=3, y=2), agent 1 from (x=0, y=1) to (x=2, y=1).
MAP = "type octile\nheight 3\nwidth 4\nmap\nG.@T\n.S..\nOW..\n"
SCEN = (
    "version 1\n"
    "0\tmaps/small.map\t4\t3\t1\t0\t3\t2\t3.41421356\n"
    "0\tmaps/small.map\t4\t3\t0\t1\t2\t1\t2.00000000\n"
    "1\tmaps/small.map\t4\t3\t3\t1\t1\t1\t2\n"
)
BOARD = ".a##\nb.B.\n##.A\n####"


@pytest.fixture
def save(tmp_path):
    """Writes a map and its scenario, and returns the scenario's path."""

    def save(map_text=MAP, scen_text=SCEN):
        for suffix, text in ((".map", map_text), (".scen", scen_text)):
            (tmp_path / f"small{suffix}").write_bytes(text.encode())
        return tmp_path / "small.scen"

    return save


def same(one, other):
    assert list(one) == list(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_scenario_is_a_board_for_each_number_of_agents_and_the_rest_of_its_square_is_holes(save):
    scenarios = read_scenarios(save())  # its rows name maps/small.map, which lies beside it
    assert list(scenarios) == ["small_2ag", "small_3ag"]
    assert to_text(scenarios["small_2ag"]) == BOARD  # x is the column
    assert to_text(scenarios["small_3ag"]) == ".a##\nbCBc\n##.A\n####"


def test_a_scenario_of_many_agents_ends_at_five_and_one_of_one_is_one(save):
    open_map = "type octile\nheight 3\nwidth 3\nmap\n...\n...\n...\n"
    row = "0\tC:\\maps\\small.map\t3\t3\t{0}\t{1}\t{1}\t{0}\t1\n"
    rows = [row.format(*divmod(cell, 3)) for cell in range(9)]
    many = save(open_map, "version 1\n" + "".join(rows))
    assert list(read_scenarios(many)) == [f"small_{agents}ag" for agents in (2, 3, 4, 5)]
    assert list(read_scenarios(many, [9])) == ["small_9ag"]
    assert list(read_scenarios(save(open_map, rows[0]))) == ["small_1ag"]


@pytest.mark.parametrize("separator", ["\t", " \t", " "])
def test_windows_line_ends_byte_order_marks_and_blanks_are_read(save, separator):
    texts = (MAP, SCEN.replace("\t", separator))
    path = save(*("\ufeff" + text.replace("\n", " \t\r\n") + "\r\n" for text in texts))
    assert to_text(read_scenarios(path)["small_2ag"]) == BOARD


def test_lacams_scenarios_without_version_and_sizes_and_maps_without_type_are_read(save):
    expected = read_scenarios(save())
    rows = SCEN.replace("\t4\t3\t", "\t0\t0\t").partition("\n")[2]
    same(read_scenarios(save(MAP.replace("type octile\n", ""), rows)), expected)


def test_emitters_and_service_points_of_a_warehouse_can_be_entered(save):
    path = save("type octile\nheight 3\nwidth 4\nmap\n..E.\nS@@S\nTE..\n")
    assert np.flatnonzero(read_map(path.with_suffix(".map"))).tolist() == [5, 6, 8]


@pytest.mark.parametrize(("old", "new"), [(MAP, ""), ("OW..\n", ""), (".S..", ".S."), (".S..", ".X..")])
def test_a_broken_map_is_named(save, old, new):
    path = save(MAP.replace(old, new, 1)).with_suffix(".map")
    with pytest.raises(ValueError) as error:
        read_map(path)
    assert str(error.value).startswith(f"{path}: must have lines with height, width and 'map'")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("\t3\t2\t3.41421356", "", ", line 2: must have the columns"),
        (SCEN, "", ": the file has no row for an agent"),
        ("\t0\t1\t2\t1", "\t0\t1\t3\t2", ": the goal of agent 1 is also that of an agent before it"),
        ("\t1\t0\t3\t2", "\t1\t-1\t3\t2", ": row -1, column 1 is outside the map of 3 x 4"),
        ("\t1\t0\t3\t2", "\t1\t0\t2\t0", ": the goal of agent 0 is a hole"),
        ("\t4\t3\t0\t1", "\t512\t512\t0\t1", ": the size of small.map is (512, 512): it must be (3, 4)"),
        ("1\tmaps/small.map\t4\t3\t3\t1\t1\t1\t2\n", "", ", small: agents = 3 must be a whole number from 1 to 2"),
    ],
)
def test_a_broken_scenario_is_named(save, old, new, fault):
    path = save(scen_text=SCEN.replace(old, new, 1))
    with pytest.raises(ValueError) as error:
        read_scenarios(path, [3])
    assert str(error.value).startswith(f"{path}{fault}") and "\n" not in str(error.value)


def test_a_scenario_of_several_maps_has_boards_of_each(save):
    """As the page of the formats allows; rows of one map need not follow each other."""
    path = save()
    expected = read_scenarios(path)
    path.with_name("tall.map").write_text("type tile\nwidth\t1\nheight\t3\n\nmap\n.\n.\n.\n")
    rows = SCEN.splitlines(keepends=True)
    tall = ["0\tmaps\\tall.map\t1\t3\t0\t0\t0\t1\t1.0\n", "3\tmaps/tall.map\t1\t3\t0\t2\t0\t0\t2\n"]
    path.write_text("".join([rows[0].replace("1", "1.0"), tall[0], *rows[1:3], tall[1], rows[3]]))
    scenarios = read_scenarios(path)
    assert list(scenarios) == ["small_tall_2ag", "small_small_2ag", "small_small_3ag"]
    # Agent a goes one down from the upper end, agent b all the way up.
    board = scenarios.pop("small_tall_2ag")
    assert (board.starts.tolist(), board.goals.tolist(), board.holes.sum()) == ([0, 6], [3, 0], 6)
    same({name.replace("small_small", "small"): scenario for name, scenario in scenarios.items()}, expected)
