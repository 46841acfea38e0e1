"""Lifelong play by PIBT and by the command, its pictures, and what has no meaning in it."""

import json
from xml.etree import ElementTree

import jax
import numpy as np
import pytest

from jaxlake import (
    Action,
    Lake,
    Plan,
    PromptStyle,
    animate,
    from_text,
    lifelong,
    observations,
    pibt,
    prompt,
    rewards,
    solve,
    stack,
    svg,
    to_text,
    validate,
    verify,
)
from jaxlake.files import record
from jaxlake.levels import build
from jaxlake.render import scene
from jaxlake.score import main as score
from jaxlake.types import ABSENT
from tests.support.lifelong_boards import BOARD, DRAWN, LISTED, LISTS, SLOTS, board, random_board

UP, DOWN, LEFT, RIGHT, WAIT = Action
SVG = "{http://www.w3.org/2000/svg}"


def test_pibt_plays_lists_alike_by_tables_and_by_floods(monkeypatch):
    boards = [random_board(seed, 4, 3, 3) for seed in range(3)]
    lists = np.array(
        [np.random.default_rng(seed).permutation(np.flatnonzero(~boards[seed].holes))[:9] for seed in range(3)]
    )
    boards = stack([lifelong.board(each, row.reshape(3, 3)) for each, row in zip(boards, lists, strict=True)])
    by_tables = pibt.play(boards, jax.random.key(0), 40, "listed")  # two parts, of two boards
    monkeypatch.setattr(pibt, "_BYTES", 1)
    assert np.array_equal(pibt.play(boards, jax.random.key(0), 40, "listed"), by_tables) and by_tables.min() > 1


def test_a_lifelong_state_is_drawn():
    instance = board(np.array([[11, 13], [11, 8]]))
    state, _ = jax.jit(LISTED.reset)(instance)
    assert observations.text(state) == "a...\n.##.\nb..B\n...#"  # both go there, and the last is drawn
    assert svg(state.instance, positions=state.positions).count("<circle") >= 4


def test_the_goals_of_an_animation_jump_when_they_are_reached():
    positions, goals = np.array([[0, 8, -1], [1, 8, -1], [2, 8, -1]]), np.array([[2, 3, -1], [2, 3, -1], [11, 3, -1]])
    picture = ElementTree.fromstring(animate(board(), positions, goals))
    rings = [group for group in picture.iter(f"{SVG}g") if group[0].get("r") == f"{48 * scene.RING:.4g}"]
    motions = [group.find(f"{SVG}animateTransform") for group in rings]
    assert {motion.get("calcMode") for motion in motions} == {"discrete"}
    places = [motion.get("values").split(";")[:3] for motion in motions]
    assert places == [[f"{48 * (cell % 4)},{48 * (cell // 4)}" for cell in own] for own in goals.T[:2].tolist()]
    assert [motion.get("keyTimes").split(";")[2] for motion in motions] == [
        "0.4",
        "0.4",
    ]  # two steps of two and a pause
    with pytest.raises(ValueError, match="the goals of a lifelong board move"):
        animate(board(), positions)


def test_the_command_prints_throughput_by_agents(tmp_path, capsys):
    file = tmp_path / "maps.yaml"
    file.write_text("pair: |-\n  aB\n  bA\ncut: |-\n  a.#\n  ###\n  .A#\ntrio: |-\n  abc\n  ...\n  CAB\n")
    asked = ["--maps", str(file), "--planner", "pibt", "--lifelong"]
    assert score([*asked, "40", "--json", str(tmp_path / "figures.json")]) == 0
    rows = json.loads((tmp_path / "figures.json").read_text())["throughput"]["pibt"]
    assert [(row["agents"], row["boards"]) for row in rows] == [(2, 1), (3, 1)]
    trio = lifelong.board(from_text("abc\n...\nCAB", max_size=3))
    reached = pibt.play(stack([trio]), jax.random.key(0), 40).sum()
    assert reached > 10 and rows[1]["throughput"] == reached / 40
    out, err = capsys.readouterr()
    assert f"pibt, 3 agents       1  {reached / 40:.3f}±0.000" in out
    fault = "goal 0 of agent 0 must be a cell that it can reach from its start"
    assert f"maps: 1 left out as unplayable: cut ({fault})\n" in err
    for wrong, message in (
        [["0"], "steps = 0 must be a whole number from 1 to 32767"],
        [["3", "answers.jsonl"], "no file of answers"],
    ):
        with pytest.raises(SystemExit):
            score([*asked, *wrong])
        assert message in capsys.readouterr().err.splitlines()[-1]


def lifelong_state():
    return LISTED.reset(board())[0]


def changed(**parts):
    validate(board().replace(**{name: np.asarray(part, np.int32) for name, part in parts.items()}), lifelong=True)


def auto_state():
    state = lifelong_state()
    return state.replace(instance=state.instance.replace(tasks=None))


ALONE = build(3, np.isin(np.arange(9), [5, 7]), [0, 8], [1, 8])
PLAN = Plan(
    parsable=np.array(True), num_named=np.int32(2), paths=np.zeros((SLOTS, 4), np.int32), lengths=np.ones(SLOTS, int)
)
NOWHERE = "the board is lifelong, its agents have goals without end"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: board(LISTS[:, :1]), "agent 0 must have 2 to 65,536 goals"),
        (
            lambda: board(np.array([[1, 5], [3, 8]])),
            "goal 1 of agent 0 must be a cell that it can reach from its start",
        ),
        (lambda: board(np.array([[1, ABSENT, 2], [3, 8, 0]])), "goal 1 of agent 0 must be a cell that it can reach"),
        (lambda: lifelong.board(ALONE), "agent 1 must have 2 to 65,536 goals"),
        (lambda: lifelong.board(from_text("a#A\n.#.\n.#.")), "goal 0 of agent 0 must be a cell that it can reach from"),
        (
            lambda: stack([from_text(BOARD), lifelong.board(from_text(BOARD))]),
            "others have none: lifelong.board makes",
        ),
        (lambda: changed(first=[-1, 4, 0]), "the goals of agent 0 are not all among the 6 tasks"),
        (lambda: changed(place=[4, 0, 0]), "the place of agent 0 must be below its count"),
        (lambda: changed(tasks=[11, 0, 13, 3, 3, 6]), "among the goals of agent 1 is a hole"),
        (lambda: solve(board()), NOWHERE),
        (lambda: pibt.plan(stack([board()]), jax.random.key(0)), NOWHERE),
        (lambda: to_text(board()), NOWHERE),
        (lambda: verify(board(), PLAN, np.int32(3)), NOWHERE),
        (lambda: prompt(board(), PromptStyle.GRID), NOWHERE),
        (lambda: record(board(), "a"), NOWHERE),
        (lambda: Lake().reset(board()), NOWHERE),
        (lambda: DRAWN.step(DRAWN.reset(board())[0], [WAIT] * 3), "step needs a key: goals are drawn"),
        (lambda: Lake().step(lifelong_state(), [WAIT] * 3), "the state is not of a lake with goals = 'once'"),
        (
            lambda: DRAWN.step(lifelong_state(), [WAIT] * 3, jax.random.key(0)),
            "the state is not of a lake with goals = 'drawn'",
        ),
        (lambda: LISTED.step(Lake().reset(from_text(BOARD))[0], [WAIT] * 2), "not of a lake with goals = 'listed'"),
        (lambda: Lake(goals="listed").step(lifelong_state(), [WAIT] * 3), "rewards.sparse needs an end"),
        (
            lambda: Lake(goals="listed", reward=lambda now: 2 * rewards.cost(now)).step(lifelong_state(), [WAIT] * 3),
            "rewards.cost needs an end",
        ),
    ],
)
def test_what_has_no_meaning_in_a_lifelong_episode_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as fault:
        call()
    assert "\n" not in str(fault.value)
