"""The network that plays: its plans, its training and its runs, on boards small enough to be checked by force."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lab import LAB, NETWORK, SMALL, Linear, batched, boards, whole

from jaxlake import Params
from jaxlake.benchmark import load as load_suite
from jaxlake.benchmark import spread, take
from jaxlake.board_text import from_text
from jaxlake.config import LakeConfig
from jaxlake.levels import LevelBank, stack
from jaxlake.types import ABSENT, Action, Check
from jaxlake.verify import verify
from rl.command import shipped
from rl.config import Config, RunError
from rl.evaluate import main as evaluate
from rl.judge import asking
from rl.judge.answers import GREEDY
from rl.model.sampler import SamplingParams
from rl.plan import main as plan
from rl.run.directory import FORMAT, RunDirectory
from rl.run.tracking import Display
from rl.students import NetworkPlayer
from rl.students.turns import network
from rl.students.turns.actor import lake_of
from rl.students.turns.actor import lane as lane_of
from rl.students.turns.network import NetworkActor, flatten
from rl.students.turns.rollout import CONFLICT, HOLE, LATE, OPTIMAL, SOLVED, Boards, play
from rl.students.turns.student import Player, make_trainer
from rl.students.turns.trainer import TurnTrainer
from tests.support.actors import check_actor

ACTOR = NetworkActor(**NETWORK, episode_steps=SMALL.episode_steps)
ADAM = make_trainer(ACTOR, SMALL, 1).optimizer


def test_the_network_does_what_the_trainer_requires_of_an_actor():
    learner = network.begin(ACTOR, ADAM, jax.random.key(0)[None])
    check_actor(ACTOR, lane_of(learner.parameters, 0), levels=LevelBank.build(boards(6)[0]))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_is_played_is_a_plan_that_ends_where_the_episode_ended(temperature):
    """By the verifier of plans: no earlier step has a mistake, the last one has that of the outcome."""
    levels, optima = boards()
    learner = network.begin(ACTOR, ADAM, jax.random.key(1)[None])
    played = play(ACTOR, None, learner.parameters, batched(levels), jax.random.key(2)[None], temperature)
    plans, steps, outcomes = jax.tree.map(lambda x: np.asarray(x)[0], played)
    agents = np.arange(levels.max_agents) < np.asarray(levels.num_agents)[:, None]
    np.testing.assert_array_equal(plans.lengths, np.where(agents, steps[:, None] + 1, 0))
    np.testing.assert_array_equal(plans.num_named, levels.num_agents)
    assert (plans.paths[~agents] == ABSENT).all()
    verdicts = verify(levels, plans, optima)
    first = np.where(verdicts.valid, -1, np.argmin(verdicts.checks, axis=1))
    ends = {HOLE: Check.HOLE_FREE, CONFLICT: Check.CONFLICT_FREE, LATE: Check.GOAL_REACHED, SOLVED: -1, OPTIMAL: -1}
    np.testing.assert_array_equal(first, [ends[int(outcome)] for outcome in outcomes])
    assert (steps[outcomes == LATE] == SMALL.episode_steps).all() and len({*first.tolist()}) >= 2
    before = verify(levels, plans.replace(lengths=np.where(agents, steps[:, None], 0)), optima)
    assert np.asarray(before.checks)[:, : Check.GOAL_REACHED].all() and not np.asarray(before.valid).any()


@pytest.mark.heavy
def test_an_agent_sees_its_window_and_the_way_to_its_goal_whatever_the_padding():
    actor = NetworkActor(**NETWORK, episode_steps=8)
    observe = actor.observe
    seen = []
    for side, slots in ((3, 2), (5, 4)):
        level = jax.tree.map(jnp.asarray, stack([from_text("a.B\n.#b\n..A", max_size=side, max_agents=slots)]))[0]
        lake = lake_of(actor, SMALL.reward)
        seen.append(np.asarray(flatten(observe(lake.reset(level)[0]))))
    np.testing.assert_allclose(seen[0], seen[1][:2])
    assert (seen[1][2:] == 0).all() and seen[0].shape == (2, observe.features)
    first = seen[0][0]
    obstacles = first[:9].reshape(3, 3)
    assert obstacles.tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 1]]
    np.testing.assert_allclose(first[36:], [0.2, 0.2, 1, 1, 0, 0.3, 0.4, 0])


@pytest.mark.heavy
def test_branches_leave_the_state_as_it_is_and_share_their_keys(tmp_path, monkeypatch):
    config = Config(**LAB)
    student = NetworkPlayer(config)
    directory = RunDirectory(tmp_path, config)
    with Display(quiet=True) as display:
        student.restore(directory, display)
    directory.close()
    before = jax.tree.map(np.asarray, student.state.learner)
    design = LakeConfig.uniform((3, 4), 0.2, 0.2)
    other = LakeConfig.uniform((3,), 0.2, 0.2)
    learner = student.branch([design, other, design], jax.random.key(0))
    lanes = [jax.tree.leaves(jax.tree.map(np.asarray, lane_of(learner.parameters, lane))) for lane in range(3)]
    for ours, theirs in zip(lanes[0], lanes[2], strict=True):  # the same design and key
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert any(np.abs(ours - theirs).max() > 1e-6 for ours, theirs in zip(lanes[0], lanes[1], strict=True))
    for ours, theirs in zip(jax.tree.leaves(before), jax.tree.leaves(student.state.learner), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    scores = student.branch_scores(Display(quiet=True), [design, design], jax.random.key(1))
    assert scores.shape == (2,) and scores[0] == scores[1]
    another = NetworkPlayer(Config(**LAB, seed=1))
    directory = RunDirectory(tmp_path / "another", another.config)
    another.restore(directory, Display(quiet=True))
    directory.close()
    first, second = (np.asarray(jax.tree.leaves(one.state.learner.parameters)[-1]) for one in (student, another))
    assert np.abs(first - second).max() > 1e-3  # a comparison begins each seed with a network of its own


@pytest.mark.heavy
def test_parameters_that_are_not_finite_end_the_run_and_are_nowhere(tmp_path, monkeypatch):
    """The losses, taken before the updates, are all finite."""
    train = TurnTrainer.train

    def diverged(*arguments):
        learner, *rest = train(*arguments)
        return learner.replace(parameters=jax.tree.map(lambda x: x / 0, learner.parameters)), *rest

    monkeypatch.setattr(TurnTrainer, "train", diverged)
    run = tmp_path / "run"
    with pytest.raises(RunError, match="round 0, after step 0: the next step's parameters are not finite"):
        whole(run, Config(**LAB))
    assert not (run / "metrics.jsonl").exists() and not (run / "rounds/0/evidence.json").exists()
    assert not (run / "best").exists() and len(list((run / "checkpoints").iterdir())) == 1


def test_several_plays_of_a_board_are_drawn_apart_and_the_first_is_that_of_one():
    levels, _ = boards()
    learner = network.begin(ACTOR, ADAM, jax.random.key(1)[None])
    player, key = Player(ACTOR, 8, None, learner.parameters), jax.random.key(1)
    alone = player.answer(levels, 1, SamplingParams(), key, print)
    sampled = player.answer(levels, 3, SamplingParams(), key, print)
    np.testing.assert_array_equal(sampled.lengths[::3], alone.lengths)
    assert any(sampled.lengths[0::3] != sampled.lengths[1::3])


@pytest.mark.heavy
def test_a_player_is_rewarded_by_the_function_that_a_setting_names(tmp_path, monkeypatch):
    """By what each pays on a board of two agents."""
    own = "def far(now):\n    return 0.0 * now.before.distances[:, 0] + (now.before.positions >= 0)\n"
    (tmp_path / "reward_of_mine.py").write_text(own)
    monkeypatch.chdir(tmp_path)
    level = batched(stack([from_text("a.B\n...\nb.A", max_size=3, max_agents=2)]))
    paid = {"sparse": [0, 0], "cost": [-1, -1], "shaped": [0.1, 0.1], "reward_of_mine:far": [1, 1]}
    for reward, expected in paid.items():
        lake, bank = lake_of(Linear(), reward), lane_of(Boards.of_lanes(level, np.zeros((1, 1), int), reward).bank, 0)
        state, _ = jax.jit(lake.reset)(bank.at(0)[0], Params(max_steps=5), bank.at(0)[1])
        found = jax.jit(lake.step)(state, np.array([Action.RIGHT, Action.UP]))[1].rewards
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=reward)


@pytest.mark.heavy
def test_a_saved_network_answers_the_fixed_boards(tmp_path, capsys, monkeypatch):
    run, learner = tmp_path / "run", network.begin(ACTOR, ADAM, jax.random.key(0)[None])
    network.save(run / "final", ACTOR, parameters := lane_of(learner.parameters, 0))
    player = network.load_player(Config(**LAB), run / "final")
    assert player.actor == ACTOR
    jax.tree.map(np.testing.assert_array_equal, lane_of(player.parameters, 0), parameters)
    (run / "config.yaml").write_text(Config(**LAB).to_yaml())
    (run / "version.json").write_text(json.dumps({"jaxlake": "0.1.0", "format": FORMAT}))
    boards = take(suite := load_suite("test"), spread(suite)[:30])
    monkeypatch.setattr("jaxlake.benchmark.load", lambda name: boards)
    monkeypatch.setattr(asking, "CALL", 1)  # 16 boards a call
    assert evaluate(["--run", str(run), "--suite", "benchmark"]) == 0
    assert "this model, turn by turn " in capsys.readouterr().out
    scores = json.loads((run / "evaluations/benchmark/scores.json").read_text())
    answers = player.answer(boards.instances, 1, GREEDY, jax.random.key(0), print)
    lines = [json.loads(line) for line in (run / "evaluations/benchmark/answers.jsonl").read_text().splitlines()]
    texts = dict(zip(boards.ids, answers.texts(range(30)), strict=True))
    assert {line["id"]: line["answer"] for line in lines} == texts and scores["answers"] == 30
    assert evaluate(["--run", str(run), "--suite", "benchmark", "--samples", "2", "validation.top_k=3"]) == 2
    assert plan(["--config", str(shipped("lab.yaml"))]) == 2
    error = capsys.readouterr().err
    assert "top_k and top_p: a player chooses among five moves" in error
    assert "student.kind = network has no program that needs a plan" in error and error.count("\n") == 2
