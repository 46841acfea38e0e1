"""Boards of any size without an optimum: what is drawn, its lower bounds, and what such boards cannot have."""

import hashlib

import jax
import numpy as np
import oracles
import pytest

from jaxlake import Family, Kind, LakeConfig, Status, generate, levels
from jaxlake.generate.__main__ import main
from jaxlake.generate.candidates import fingerprints
from jaxlake.levels import distance_fields, pad
from jaxlake.types import ABSENT


def bounded(kind, hole, count, seed=0, **options):
    return generate(LakeConfig.uniform([kind], hole, 0.0), jax.random.key(seed), count, exact=False, **options)


@pytest.mark.parametrize(
    ("kind", "hole"),
    [
        ("20x20", 0.3),
        ("corridor20x6", 0.4),
        *(
            pytest.param(kind, hole, marks=pytest.mark.heavy)
            for kind, hole in (
                ("12x40", 0.5),
                ("40x12", 0.2),
                *((f"{family.value}20x6", 0.4) for family in list(Family)[1:-1]),
            )
        ),
    ],
)
def test_every_goal_can_be_reached_and_the_bound_is_the_shortest_paths(kind, hole):
    found = bounded(kind, hole, 4)
    levels.validate(found.instances)
    assert set(found.kinds) == {Kind.of(kind)} and not found.shortfalls()
    assert np.all(found.solutions.status == Status.OUT_OF_BUDGET) and np.all(found.solutions.cost == -1)
    for board, bound in zip(found.instances, found.solutions.lower_bound, strict=True):
        size, agents = int(board.size), int(board.num_agents)
        ends = np.concatenate([board.starts[:agents], board.goals[:agents]])
        shared = Kind.of(kind).family is Family.CORRIDOR  # the halves change places
        assert shared or len(set(ends.tolist())) == 2 * agents
        assert bound == sum(oracles.path_lengths(board))
        if Kind.of(kind).family is Family.RANDOM:
            assert board.holes.sum() == int(hole * (size**2 - 2 * agents) + 1e-6)


def test_a_makespan_is_bounded_by_the_longest_of_the_shortest_paths():
    found = bounded("20x20", 0.2, 10, objective="makespan")
    fields = np.asarray(distance_fields(found.instances))
    alone = np.take_along_axis(fields, found.instances.starts[..., None], axis=2)[..., 0]
    assert found.solutions.lower_bound.tolist() == alone.max(axis=1).tolist()


def test_starts_and_goals_are_anywhere():
    """Every free cell of a board without holes is a start, and a goal, equally often."""
    found = bounded("5x3", 0.0, 2000)
    for cells in (found.instances.starts, found.instances.goals):
        seen = np.bincount(cells.ravel(), minlength=25)
        expected = 6000 / 25
        assert np.sum((seen - expected) ** 2 / expected) < 51.2  # chi-square, 24 degrees: exceeded once in 1,000


@pytest.mark.heavy
def test_a_board_depends_on_its_key_and_its_padding_changes_nothing():
    narrow, wide = bounded("12x9", 0.3, 30), bounded("12x9", 0.3, 30, max_agents=12)
    assert fingerprints(narrow.instances) == fingerprints(wide.instances)
    assert len(set(fingerprints(narrow.instances)) | set(fingerprints(bounded("12x9", 0.3, 30, 1).instances))) == 60
    padded = pad(narrow.instances, 40, 50)
    assert fingerprints(padded) == fingerprints(narrow.instances)
    again = bounded("12x9", 0.3, 30, exclude=padded)
    assert not set(fingerprints(again.instances)) & set(fingerprints(narrow.instances))


def test_the_draws_stay_what_they_are():
    """The digest was taken when these boards were first drawn."""
    mark = hashlib.sha256(b"".join(fingerprints(bounded("20x20", 0.25, 5).instances))).hexdigest()
    assert mark[:16] == "4a07772795383746", "raise VERSION of jaxlake.generate: boards of a key are others"


@pytest.mark.parametrize("side", [5, 33, pytest.param(62, marks=pytest.mark.heavy)])
def test_fields_are_the_distances_of_a_search_from_each_goal(side):
    rng, padding = np.random.default_rng(side), {"max_size": side + 2, "max_agents": 5}
    boards = levels.stack([oracles.random_instance(rng, side, 3, 0.3, overlapping=True, **padding) for _ in range(8)])
    fields = np.asarray(distance_fields(boards))
    expected = np.full(fields.shape, ABSENT)
    for board, goals in enumerate(boards.goals):
        near = oracles.moves(boards[board])
        for agent, goal in enumerate(goals[goals != ABSENT].tolist()):
            found = oracles.distances(near, goal)
            expected[board, agent, list(found)] = list(found.values())
    assert fields.dtype == np.int16 and np.array_equal(fields, expected)
    assert np.array_equal(np.asarray(distance_fields(boards[3])), fields[3])


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ((["32x32"], 0.2, 0.0), {}, "kind 32x32 is too large to be solved: .* exact=False"),
        ((["12"], 0.2, 0.0), {}, "size 12 is too large to be solved"),
        ((["32x32"], 0.2, 0.5), {"exact": False}, "wait of kind 32x32 = 0.5 must be 0 with exact=False"),
        ((["32x32"], 0.2, 0.0), {"exact": False, "interacting": 0.5}, "interacting must be None with exact=False"),
        ((["5x12"], 0.5, 0.0), {"exact": False, "max_size": 65}, "max_size = 65 must be a whole number from 5 to 64"),
    ],
)
def test_what_needs_an_optimum_says_so_in_one_line(config, options, message):
    with pytest.raises(ValueError, match=message) as fault:
        generate(LakeConfig.uniform(*config), jax.random.key(0), **{"count": 2} | options)
    assert "\n" not in str(fault.value)


def test_the_command_draws_them_with_bounds_alone(tmp_path, capsys):
    target = tmp_path / "boards.jsonl"
    assert main(["--kinds", "20x20", "--bounded", "--count", "3", "-o", str(target)]) == 0
    assert "20x20: 3 boards with 72 holes" in capsys.readouterr().out
    lines = target.read_text().splitlines()
    assert len(lines) == 3 and all("lower_bound" in line and "optimum" not in line for line in lines)
    with pytest.raises(SystemExit):
        main(["--kinds", "20x20", "--bounded", "--waits", ".5", "-o", str(tmp_path / "none.jsonl")])
    assert "wait of kind 20x20 = 0.5 must be 0" in capsys.readouterr().err and not (tmp_path / "none.jsonl").exists()
