"""Problems of the League of Robot Runners: what their files say is played, and a fault names its file and line."""

import json
import warnings

import jax
import numpy as np
import pytest

from jaxlake import league, lifelong, pibt, stack
from jaxlake.arguments import seed_key
from jaxlake.benchmark import load_maps
from jaxlake.score import main as score

# Three columns and four rows, numbered row by row: cell 4 is an obstacle, and 11 a tree.
MAP = "type octile\nheight 4\nwidth 3\nmap\n...\n.@.\n...\n..T\n"
AGENTS = "3\n0\n10\n5\n"
TASKS = "5\n8\n3\n1\n9\n2\n"
PROBLEM = {
    "mapFile": "maps/small.map",
    "agentFile": "agents/small_3.agents",
    "teamSize": 2,
    "taskFile": "tasks/small.tasks",
    "numTasksReveal": 1,
    "taskAssignmentStrategy": "roundrobin",
}


@pytest.fixture
def save(tmp_path):
    """Writes the files of a problem, with changes, and returns its path."""

    def save(agents=AGENTS, tasks=TASKS, map_text=MAP, **changes):
        problem = {key: value for key, value in (PROBLEM | changes).items() if value is not None}
        path = tmp_path / "small.json"
        path.write_text(json.dumps(problem))
        for name, text in zip(("mapFile", "agentFile", "taskFile"), (map_text, agents, tasks), strict=True):
            file = tmp_path / PROBLEM[name]
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        return path

    return save


def goals_in_order(board, count):
    """The first goals of each agent, as cells of the file."""
    goals = []
    for _ in range(count):
        row, column = np.divmod(board.goals, 4)
        goals.append((row * 3 + column).tolist())
        board = lifelong.next_goals(board, np.full(board.max_agents, True))
    return np.transpose(goals).tolist()


@pytest.mark.parametrize("agents", [1, 2, 3])
def test_tasks_are_dealt_as_the_league_says_also_after_their_end(save, agents):
    """Its rule: the task of robot i after n others is number i + n * (team size), and the file is read over again."""
    board = league.read_scenarios(save(teamSize=agents))["small"]
    cells = list(map(int, TASKS.split()))[1:]
    assert goals_in_order(board, 12) == [[cells[(i + n * agents) % 5] for n in range(12)] for i in range(agents)]
    row, column = np.divmod([0, 10, 5][:agents], 3)
    assert board.starts.tolist() == (row * 4 + column).tolist()
    # The map is set into a square.
    assert np.flatnonzero(board.holes).tolist() == [3, 5, 7, 11, 14, 15]


def test_a_task_of_several_cells_is_as_many_goals(save):
    path = save(agents=f"# version for LoRR 2024\n{AGENTS}", tasks="# version for LoRR 2024\n3\n8, 3\n1\n9,2,0\r\n")
    assert goals_in_order(league.read_scenarios(path)["small"], 7) == [[8, 3, 9, 2, 0, 1, 8], [1, 8, 3, 9, 2, 0, 1]]


def test_paths_may_be_written_as_on_windows_and_a_key_twice_is_refused(save):
    path = save()
    expected = league.read_scenarios(path)["small"]
    board = league.read_scenarios(save(mapFile="maps\\small.map", taskFile=".\\tasks\\small.tasks"))["small"]
    assert jax.tree.all(jax.tree.map(np.array_equal, board, expected))
    path.write_text(path.read_text().replace('"teamSize": 2', '"teamSize": 2, "teamSize": 3'))
    with pytest.raises(ValueError, match="not a problem of the League .*a key is given twice"):
        league.read_scenarios(path)


def test_boards_have_the_first_of_the_agents(save):
    boards = league.read_scenarios(save(), [1, 3])
    assert {name: len(board.starts) for name, board in boards.items()} == {"small_1ag": 1, "small_3ag": 3}
    assert goals_in_order(boards["small_3ag"], 2) == [[8, 9], [3, 2], [1, 8]]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"taskAssignmentStrategy": "greedy"}, "taskAssignmentStrategy"),
        (
            {"taskAssignmentStrategy": None, "version": "2026 LoRR", "delayConfig": {}, "agentCounter": 3},
            "taskAssignmentStrategy, agentCounter, delayConfig",
        ),
    ],
)
def test_what_is_played_otherwise_is_warned_of(save, changes, names):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = league.read_scenarios(save())["small"]
    with pytest.warns(UserWarning, match=f"dealt round-robin, .* whatever {names} may say$") as caught:
        board = league.read_scenarios(save(**changes))["small"]
    assert len(caught) == 1 and jax.tree.all(jax.tree.map(np.array_equal, board, expected))


@pytest.mark.parametrize(
    ("changes", "where", "fault"),
    [
        ({"tasks": "5\n8\n3\n1\n9\n"}, "tasks/small.tasks", "the count is 5: it must be that of the lines"),
        ({"tasks": "3\n8\n1 2\n1\n"}, "tasks/small.tasks", "must have a count, and below it cells, with commas"),
        ({"tasks": "3\n8\n4\n1\n"}, "tasks/small.tasks", "4 must be a free cell of the 3 x 4 map"),
        ({"tasks": "3\n8\n12\n1\n"}, "tasks/small.tasks", "12 must be a free cell of the 3 x 4 map"),
        ({"agents": "3\n0\n0\n5\n"}, "agents/small_3.agents", "the start of agent 1 is also that of an agent"),
        ({"teamSize": 4}, "small.json", "teamSize or agents = 4 must be a whole number from 1 to 3"),
        ({"tasks": "2\n8\n3\n"}, "small.json", "teamSize or agents = 2 must be a whole number from 1 to 1"),
        ({"mapFile": None}, "small.json", "not a problem of the League of Robot Runners: KeyError('mapFile')"),
        (
            {"agents": "2\n0\n5\n", "tasks": "4\n2\n3\n1\n9\n", "map_text": MAP.replace("...\n..T", "@@@\n..T")},
            *("tasks/small.tasks", "goal 1 of agent 1 must be a cell that it can reach"),
        ),
    ],
)
def test_a_broken_problem_names_the_file_and_the_fault(save, tmp_path, changes, where, fault):
    with pytest.raises(ValueError) as error:
        league.read_scenarios(save(**changes))
    message = str(error.value)
    assert message.startswith(f"{tmp_path / where}: {fault}") and "\n" not in message


def test_the_command_plays_a_problem_in_the_order_of_its_tasks(save, tmp_path, capsys):
    path, figures = save(), tmp_path / "figures.json"
    assert score(["--maps", str(path), "--planner", "pibt", "--lifelong", "60", "--json", str(figures)]) == 0
    reached = pibt.play(stack(list(league.read_scenarios(path).values())), seed_key(0), 60, "listed").sum()
    [row] = json.loads(figures.read_text())["throughput"]["pibt"]
    assert row["agents"] == 2 and row["throughput"] == reached / 60 and reached > 20
    assert not capsys.readouterr().err
    with pytest.raises(ValueError, match="small.json must end in .*, .json, the last for lifelong play"):
        load_maps(path)
