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
    ("old", "new", "fault"),
    [
        ("height 3", "height three", ": must begin with the lines type, height, width and map"),
        (MAP, "", ": must begin with the lines"),
        ("OW..\n", "", ": 2 rows follow 'map': the height is 3"),
        (".S..", ".S.", ", line 6: must be 4 cells out of .GSE@OTW"),
    ],
)
def test_a_broken_map_is_named(files, old, new, fault):
    save(files, MAP.replace(old, new, 1))
    with pytest.raises(ValueError) as error:
        read_map(files[0])
    assert str(error.value).startswith(f"{files[0]}{fault}")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("\t3.41421356", "", ", line 2: must have the nine columns"),
        ("\t1\t0\t3\t2", "\t1\t-1\t3\t2", ", line 2: must have the nine columns"),
        (SCEN, "", ": the file has no row for an agent"),
        ("\t0\t1\t2\t1", "\t0\t1\t3\t2", ": the goal of agent 1 is also that of an agent before it"),
        ("\t1\t0\t3\t2", "\t4\t0\t3\t2", ": row 0, column 4 is outside the map of 3 x 4"),
        ("\t1\t0\t3\t2", "\t1\t0\t2\t0", ": the goal of agent 0 is a hole"),
        ("\t4\t3\t0\t1", "\t512\t512\t0\t1", ": small.map is 512 x 512: it must be 4 x 3 as in its file"),
        ("1\tmaps/small.map", "1\tmaps/tall.map", ": has 2 rows of the map, for 1 to as many agents and not 3"),
    ],
)
def test_a_broken_scenario_is_named(files, old, new, fault):
    save(files, scen_text=SCEN.replace(old, new, 1))
    with pytest.raises(ValueError) as error:
        read_scenario(*files, num_agents=3)
    assert str(error.value).startswith(f"{files[1]}{fault}") and "\n" not in str(error.value)


def test_a_scenario_of_several_maps_has_boards_of_each(files):
    """As the page of the formats allows; rows of one map need not follow each other."""
    save(files)
    files[0].with_name("tall.map").write_text("type tile\nwidth\t1\nheight\t3\n\nmap\n.\n.\n.\n")
    rows = SCEN.splitlines(keepends=True)
    tall = ["0\tmaps\\tall.map\t1\t3\t0\t0\t0\t1\t1.0\n", "3\tmaps/tall.map\t1\t3\t0\t2\t0\t0\t2\n"]
    files[1].write_text("".join([rows[0].replace("1", "1.0"), tall[0], *rows[1:3], tall[1], rows[3]]))
    scenarios = read_scenarios(files[1])
    assert list(scenarios) == ["small_tall_2ag", "small_small_2ag", "small_small_3ag"]
    # Agent a goes one down from the upper end, agent b all the way up.
    tall = scenarios["small_tall_2ag"]
    assert (tall.starts.tolist(), tall.goals.tolist(), tall.holes.sum()) == ([0, 6], [3, 0], 6)
    save(files)
    for name, expected in read_scenarios(files[1]).items():
        jax.tree.map(np.testing.assert_array_equal, scenarios[f"small_{name}"], expected)


def without_sizes(text: str) -> str:
    return text.replace("\t4\t3\t", "\t0\t0\t")


@pytest.mark.parametrize(
    ("scen_text", "left_out"),
    [
        (without_sizes(SCEN), "no size of the map: "),
        (without_sizes(SCEN).partition("\n")[2], "no version and no size of the map: "),  # LaCAM's own
    ],
)
def test_scenarios_without_version_or_sizes_are_read_with_a_warning(files, scen_text, left_out):
    save(files)
    expected = read_scenarios(files[1])
    save(files, MAP.replace("type octile\n", ""), scen_text)  # LaCAM's maps have no type.
    with pytest.warns(UserWarning) as warned:
        scenarios = read_scenarios(files[1])
    (text,) = (str(each.message) for each in warned)
    assert text == f"{files[1]}: {left_out}read as version 1, with the size in the map's file"
    assert list(scenarios) == list(expected)
    for name in expected:
        jax.tree.map(np.testing.assert_array_equal, scenarios[name], expected[name])


def test_emitters_and_service_points_of_a_warehouse_can_be_entered(tmp_path):
    (tmp_path / "warehouse.map").write_text("type octile\nheight 3\nwidth 4\nmap\n..E.\nS@@S\nTE..\n")
    with pytest.warns(UserWarning) as warned:
        blocked = read_map(tmp_path / "warehouse.map")
    assert np.flatnonzero(blocked).tolist() == [5, 6, 8]
    assert [str(each.message) for each in warned] == [
        f"{tmp_path / 'warehouse.map'}: E and S are free cells, as on the maps of the League of Robot Runners"
    ]
