"""The network that plays: its plans, its training and its runs, on boards small enough to be checked by force."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lab import LAB, NETWORK, SMALL, Linear, batched, boards

from jaxlake import Params
from jaxlake.board_text import from_text
from jaxlake.config import LakeConfig
from jaxlake.levels import LevelBank, stack
from jaxlake.types import ABSENT, Action, Check
from jaxlake.verify import verify
from rl.command import shipped
from rl.compare import main as compare
from rl.config import Config
from rl.model.sampler import SamplingParams
from rl.run.directory import RunDirectory
from rl.run.tracking import Display
from rl.students import NetworkPlayer
from rl.students.turns import network
from rl.students.turns.actor import lake_of
from rl.students.turns.actor import lane as lane_of
from rl.students.turns.network import NetworkActor, flatten
from rl.students.turns.rollout import CONFLICT, HOLE, LATE, OPTIMAL, SOLVED, Boards, play
from rl.students.turns.student import Player, make_trainer
from rl.students.turns.trainer import TurnTrainer
from rl.train import main
from tests.support.actors import check_actor

pytestmark = pytest.mark.usefixtures("quick_compilation")

OVERRIDES = [
    "lake.kinds=[3,4]",
    "rounds={count: 3, instances: 16}",
    "validation={kinds: [4], instances: 12, samples: 2, holes: [0.0, 0.3]}",
    *(
        f"student.{name}={getattr(SMALL, name)}"
        for name in ("episode_steps", "environments", "rollout_steps", "updates")
    ),
    "student.learn.minibatches=2",
    *(f"student.{name}={value}" for name, value in NETWORK.items()),
]


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
def test_branches_leave_the_state_as_it_is_and_share_their_keys(tmp_path):
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


def test_a_loss_that_is_not_finite_ends_the_round_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(TurnTrainer, "train", lambda self, *rest: (None, None, {"loss": np.array([[0.1, np.nan]])}))
    assert main(["--config", str(shipped("lab.yaml")), "--run", str(tmp_path / "run"), *OVERRIDES]) == 1
    error = capsys.readouterr().err
    assert "error: round 0: the loss of an update is not finite; a smaller" in error and error.count("\n") == 1


@pytest.mark.heavy
def test_engineers_of_networks_are_compared_from_nothing_on_each_seed(tmp_path):
    path, out = tmp_path / "study.yaml", tmp_path / "out"
    overrides = {name: LAB[name] for name in ("student", "lake", "rounds", "validation")}
    engineers = {name: {"kind": name} for name in ("fixed_random", "hindsight")}
    settings = {"base": "lab.yaml", "overrides": overrides, "seeds": [0, 1], "engineers": engineers}
    path.write_text(json.dumps(settings | {"evaluation": {"per_slice": 2, "samples": 1}}))  # which is YAML too
    assert compare(["--config", str(path), "--out", str(out)]) == 0
    assert not (out / "start/config.yaml").exists()
    starts = [np.load(out / f"start/seed{seed}/final/network.npz")["heads.w"] for seed in (0, 1)]
    assert np.abs(starts[0] - starts[1]).max() > 1e-3  # each seed begins with a network of its own
    for seed in (0, 1):
        first, *others = (out / f"{name}/seed{seed}" for name in ("start", *(f"arms/{name}" for name in engineers)))
        assert len({(run / "rounds/0/evidence.json").read_bytes() for run in (first, *others)}) == 1


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
