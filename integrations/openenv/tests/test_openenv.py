"""A server on a real socket and its client beside the core: scores, rules, tasks, and what is refused."""

import re
import socket
import threading
import time
from collections import Counter

import pytest
import requests
import uvicorn
from jaxlake_openenv import LakeAction, LakeEnv
from jaxlake_openenv.server import app

from jaxlake import answer, solve
from jaxlake.benchmark import FAILURES, load, score

SIZES = {"train": 21208, "train_families": 6336, "validation": 800, "test": 3150, "families": 2250}
# .#.##    Agent 0 goes from a to A, and so on: board 417 of the split test, 3ag_5x5_hr0.4_027.
# .#b#.
# .a.CB
# .#c..
# A...#
BOARD = 417


@pytest.fixture(scope="module")
def url():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def env(url):
    with LakeEnv(base_url=url).sync() as env:
        yield env


def judged(env, split, index, text):
    env.reset(split=split, index=index)
    result = env.step(LakeAction(plan=text))
    assert result.done
    return result


def test_a_thousand_answers_are_worth_what_the_core_says(env):
    """Optimal plans, the same in moves, late ones, ones that stop before a goal, and no plan; beside `score`."""
    boards, manners, answers = load("validation"), 5, {}
    part = slice(0, 800, 4)
    solutions = solve(boards.instances[part])
    found = {}
    for number, index in enumerate(range(len(boards))[part]):
        instance, plan, optimum = boards.instances[index], solutions.plan[number], int(boards.optimum[index])
        text = answer(plan, instance.max_size)
        late = re.sub(r":(\(\d,\d\))", r":\1\1", text)
        moves = answer(plan, instance.max_size, "moves")
        answers[boards.ids[index]] = [text, moves, late, text[: text.rindex("(")], "I see no way around the holes."]
        found[index] = [judged(env, "validation", index, one) for one in answers[boards.ids[index]]]
        # A wait at the start costs every agent that has to move a time step; 0.7 of twice the optimum is the scale.
        moving = int((instance.starts != instance.goals).sum())
        worth = [1, 1, 1 - 0.7 * moving / (2 * optimum), 0, 0]
        assert [result.reward for result in found[index]] == pytest.approx(worth)
        costs = [optimum, optimum, optimum + moving, None, None]
        assert [result.observation.cost for result in found[index]] == costs
    assert manners * len(found) == 1000
    scores = score(answers, boards)
    for index, results in found.items():
        observations = [result.observation for result in results]
        assert sum(one.solved for one in observations) == round(manners * scores.valid[index])
        assert sum(one.optimal for one in observations) == round(manners * scores.optimal[index])
        failed = [[check for check, passed in one.checks.items() if not passed] for one in observations]
        counts = Counter(checks[0] for checks in failed if checks)
        assert [counts[check] for check in FAILURES] == scores.failures[index].tolist()


def test_a_plan_earns_the_same_move_by_move(env):
    """Agent 2 waits a step for agent 1, which passes its goal: three agents that arrive after three steps each."""
    env.reset(split="test", index=BOARD)
    for moves in ("LDR", "DRW"):
        result = env.step(LakeAction(moves=moves))
        assert not result.done and result.reward == 0
    played = env.step(LakeAction(moves="DRU"))
    planned = judged(env, "test", BOARD, "0: L D D\n1: D R R\n2: R W U")
    for result in (played, planned):
        assert result.done and result.reward == 1
        assert (result.observation.solved, result.observation.optimal, result.observation.cost) == (True, True, 9)


def test_the_solvers_plans_are_played_at_their_cost(env):
    boards = load("validation")
    for index in (0, 399, 799):
        plan = solve(boards.instances[index]).plan
        lines = [line.split(": ")[-1].split() for line in answer(plan, 10, "moves").split("\n")]
        result = env.reset(split="validation", index=index)
        assert result.observation.task == boards.ids[index]
        for step in range(max(map(len, lines))):
            assert not result.done and result.reward == 0
            result = env.step(LakeAction(moves="".join(line[step] if step < len(line) else "W" for line in lines)))
        assert result.done and result.reward == 1 and result.observation.cost == boards.optimum[index]


def test_agents_that_would_meet_stay_and_the_drawing_shows_it(env):
    observation = env.reset(split="test", index=BOARD).observation
    assert observation.board == ".#.##\n.#b#.\n.a.CB\n.#c..\nA...#"
    assert observation.legal_moves == ["LRW", "UDW", "UDRW"]
    assert env.step(LakeAction(moves="RDW")).observation.board == observation.board  # both onto (2,2)
    assert env.step(LakeAction(moves="LDR")).observation.board == ".#.##\n.#.#.\na.bCB\n.#.c.\nA...#"


def test_agents_see_words_and_words_move_them(env):
    """The player's own view: where the goal is, what is beside and beyond, who could come there, and the clock."""
    observation = env.reset(split="test", index=BOARD).observation
    assert observation.instructions.endswith("Answer with one word: up, down, left, right or wait.\n")
    assert observation.views == [
        "goal 2 down, 1 left. up: blocked, then blocked, contested. down: blocked, then free, contested."
        " left: free, then blocked. right: free, then free, contested. 25 or more steps left.",
        "goal 1 down, 2 right. up: free, then blocked. down: free, then an agent, contested."
        " left: blocked, then free, contested. right: blocked, then free. 25 or more steps left.",
        "goal 1 up, 1 right. up: free, then an agent, contested. down: free, then blocked."
        " left: blocked, then free, contested. right: free, then free. 25 or more steps left.",
    ]
    env.step(LakeAction(moves="left down right"))
    env.step(LakeAction(moves="Down  RIGHT wait"))
    result = env.step(LakeAction(moves="down right up"))
    assert result.done and result.reward == 1 and result.observation.cost == 9


def test_an_episode_ends_after_64_steps_with_nothing_earned(env):
    result = env.reset(split="test", index=BOARD)
    for step in range(64):
        assert not result.done, step
        result = env.step(LakeAction(moves="WWW"))
    assert result.done and result.reward == 0 and not result.observation.solved
    assert env.state().step_count == 64


def test_a_seed_draws_a_board(env):
    drawn = [(env.reset(seed=seed, split="families"), env.state())[1].index for seed in (5, 5, 6)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_prompts_come_in_styles(env):
    reset = lambda **words: env.reset(split="test", index=0, **words).observation.prompt  # noqa: E731
    assert "U for up" in reset(answer_format="moves") and "(row,column)" not in reset(style="coordinates")
    assert reset(style="coordinates").startswith("3x3 holes")


def test_tasks_are_listed_over_http_and_are_what_reset_plays(url, env):
    splits = requests.get(f"{url}/jaxlake/splits").json()
    assert {split["name"] for split in splits} == set(SIZES)
    assert {split["type"] for split in splits} == {"train", "validation", "test"}

    def post(route, **body):
        return requests.post(f"{url}/jaxlake/{route}", json=body).json()

    for split, size in SIZES.items():
        assert post("num_tasks", split=split) == {"num_tasks": size}
        last = post("task", split=split, index=size - 1)["task"]
        assert post("task_range", split=split, start=size - 1)["tasks"] == [last]
        observation = env.reset(split=split, index=last["index"]).observation
        assert (observation.task, observation.prompt) == (last["id"], last["prompt"])
    listed = post("tasks", split="train")["tasks"]
    assert [task["index"] for task in listed] == list(range(1000))


def test_sessions_do_not_mix(url):
    with LakeEnv(base_url=url).sync() as one, LakeEnv(base_url=url).sync() as other:
        one.reset(split="test", index=BOARD)
        before = other.reset(split="test", index=0).observation.board
        one.step(LakeAction(moves="LUR"))
        assert other.step(LakeAction(moves="WWW")).observation.board == before
        assert (one.state().index, other.state().index) == (BOARD, 0)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"split": "tset"}, "split = 'tset' must be one of train, train_families, validation, test, families"),
        ({"split": "test", "index": 3150}, "index = 3150 must be from 0 to 3149, the boards of split test"),
        ({"index": -1}, "index = -1 must be from 0 to 21207, the boards of split train"),
        ({"style": "loud"}, "'loud' is not a valid PromptStyle"),
    ],
)
def test_a_reset_that_cannot_be_is_refused_in_a_line_and_the_session_goes_on(env, arguments, line):
    with pytest.raises(RuntimeError) as refused:
        env.reset(**arguments)
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert env.reset(split="test", index=0).observation.task == "3ag_3x3_hr0.1_000"


def test_an_action_that_does_not_fit_is_refused_in_a_line_and_plays_nothing(env):
    def refused(action, line):
        with pytest.raises(RuntimeError) as error:
            env.step(action)
        assert line in str(error.value) and "\n" not in str(error.value)

    refused(LakeAction(moves="WWW"), "nothing has begun: reset must come first")
    board = env.reset(split="test", index=BOARD).observation.board
    words = "up, down, left, right, wait"
    for moves in ("WW", "WWWW", "WXW", "www", "", "up down", "up down over", "up down left wait"):
        refused(
            LakeAction(moves=moves),
            f"moves = {moves!r} must be a letter of UDLRW, or a word of {words}, for each of 3 agents",
        )
    assert env.state().step_count == 0
    assert env.step(LakeAction(moves="WWW")).observation.board == board
    refused(LakeAction(plan="0:(0,0)"), "plan begins at the start: it must be the first action after reset")
    judged(env, "test", BOARD, "")
    refused(LakeAction(moves="WWW"), "the episode is over: reset must come next")
    with pytest.raises(ValueError, match="must have either plan or moves"):
        LakeAction(plan="", moves="W")
