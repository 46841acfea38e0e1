"""POGEMA's YAML of maps and scenarios: what it says is read, and a fault names the file and the scenario or map."""

import warnings

import numpy as np
import pytest

from jaxlake import lifelong, to_text
from jaxlake.benchmark.external_maps import read_maps
from jaxlake.pogema import read_scenarios

MAPS = """
gap: |-
  ..#.
  ....
  ..#.
"yard": |-
  !@@!
  !##!
  !$$!
  !!!!
"""
SCENARIOS = """
environment:
  num_agents:
    grid_search: [2]
  on_target: nothing
scenarios:
  Scenario-000:
    agents_xy: [[0, 0], [2, 1]]
    map_name: gap
    seed: 0
    targets_xy: [[0, 3], [1,
        0]]
  Scenario-001:
    agents_xy: [[0, 1], [0, 2], [3, 3]]
    map_name: yard
    seed: 1
    targets_xy: [[2, 1], [0, 1], [2, 2]]
"""
LETTERS = """
meeting: |-
  aB.
  b.A
  ...
row: "c.#C"
"""


@pytest.fixture
def files(tmp_path):
    """Writes maps and scenarios, with a part of one of them replaced; returns the path of the scenarios."""

    def write(old="", new="", maps=MAPS, scenarios=SCENARIOS):
        assert not old or (maps + scenarios).count(old)
        (tmp_path / "maps.yaml").write_text(maps.replace(old, new, 1) if old in maps else maps)
        (tmp_path / "scenarios.yaml").write_text(scenarios.replace(old, new, 1) if old in scenarios else scenarios)
        return tmp_path / "scenarios.yaml"

    return write


def test_scenarios_are_read_with_the_maps_beside_them(files):
    scenarios = read_scenarios(files())
    assert list(scenarios) == ["Scenario-000", "Scenario-001"]
    # Row before column, and the rest of the square is holes.
    assert to_text(scenarios["Scenario-000"]) == "a.#A\nB...\n.b#.\n####"
    assert to_text(scenarios["Scenario-001"]) == ".ab. .B..\n.##. .##.\n.... .AC.\n...c ...."


@pytest.mark.parametrize(
    ("rule", "lifelong", "assumed"),
    [
        ("on_target: nothing", False, None),
        ("on_target: restart", False, "on_target = 'restart' is read as 'nothing'"),
        ("collision_system: priority", False, "collision_system = 'priority' is read as 'soft'"),
        ("on_target: restart", True, None),
        ("num_agents: 2", True, None),
        ("on_target: nothing", True, "on_target = 'nothing' is read as 'restart'"),
    ],
)
def test_rules_that_boards_are_not_played_by_here_are_warned_of(files, rule, lifelong, assumed):
    path = files("on_target: nothing", rule)
    with warnings.catch_warnings(record=True) as warned:
        scenarios = read_maps(path, lifelong=lifelong)
    expected = [f"{path}: {assumed}, as boards are played here"] if assumed else []
    assert [str(each.message) for each in warned] == expected
    assert list(map(to_text, scenarios.values())) == list(map(to_text, read_scenarios(files()).values()))


def test_sequences_of_goals_are_lists_of_a_lifelong_board(files):
    sequences = [[[0, 3], [1, 0], [0, 3]], [[1, 0], [2, 0]]]
    path = files(
        scenarios=SCENARIOS.partition("  Scenario-001")[0].partition("targets_xy")[0] + f"targets_xy: {sequences}"
    )
    with pytest.warns(UserWarning, match="on_target = 'nothing' is read as 'restart'"):
        boards = read_maps(path, [1, 2], lifelong=True)
    for name, agents in (("Scenario-000_1ag", 1), ("Scenario-000_2ag", 2)):
        board = boards[name]
        for turn in range(7):  # POGEMA begins a sequence again after its end
            goals = [sequence[turn % len(sequence)] for sequence in sequences[:agents]]
            assert board.goals.tolist() == [4 * row + column for row, column in goals]
            board = lifelong.next_goals(board, np.full(agents, True))
    assert to_text(read_maps(path)["Scenario-000"]) == "a.#A\nB...\n.b#.\n####"
    path.write_text(path.read_text().replace("[2, 0]]]", "[2, 4]]]"))
    with (
        pytest.warns(UserWarning),
        pytest.raises(ValueError, match="Scenario-000: goal 1 of agent 1 must be a cell that it can reach"),
    ):
        read_scenarios(path, on_target="restart")


def test_goals_that_are_drawn_from_more_cells_are_warned_of(files):
    path = files(
        "    seed: 0\n",
        "    possible_targets_xy: [[0, 3], [1, 0]]\n",
        scenarios=SCENARIOS.replace("nothing", "restart"),
    )
    with pytest.warns(UserWarning, match="Scenario-000: goals are drawn from all cells in reach, not from") as warned:
        read_maps(path, lifelong=True)
    assert len(warned) == 1


def test_letters_on_a_map_place_its_agents(files):
    boards = read_scenarios(files(scenarios=LETTERS))
    assert to_text(boards["meeting"]) == "aB.\nb.A\n..."
    assert to_text(boards["row"]) == "a.#A\n####\n####\n####"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("scenarios:", "scenarios: [", "scenarios.yaml: not YAML: while parsing"),
        (SCENARIOS, "12", "scenarios.yaml: must have names of maps or scenarios"),
        ("map_name: gap", "map_name: gaps", "Scenario-000: not of POGEMA's form: KeyError('gaps')"),
        ("[[0, 0], [2, 1]]", "[[0, 0]]", "Scenario-000: not of POGEMA's form: ValueError('zip() argument 2 is longer"),
        ("[[0, 0], [2, 1]]", "[[0, 4], [2, 1]]", "Scenario-000: row 0, column 4 is outside the map of 3 x 4"),
        ("  ..#.\n  ....", "  ..#.\n  ..?.", "a map must be rows of as many characters"),
        (SCENARIOS, LETTERS.replace("b.A", "..A"), "meeting: not of POGEMA's form: KeyError('b')"),
        (SCENARIOS, LETTERS.replace("b.A", "bAA"), "a map must have each letter at most once"),
    ],
)
def test_a_broken_file_names_the_scenario_and_the_fault(files, old, new, fault):
    path = files(old, new)
    with pytest.raises(ValueError) as error:
        read_scenarios(path)
    assert str(error.value).startswith(str(path.parent)) and fault in str(error.value)
    assert "\n" not in str(error.value)
