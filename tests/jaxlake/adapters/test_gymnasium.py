"""The Gymnasium adapters: Gymnasium's checker and wrappers accept them, and what they do is what the core does."""

import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

from jaxlake import Status, from_text, solve
from jaxlake.adapters.gymnasium import CentralLake, VectorLake
from jaxlake.adapters.host import Layout, pack
from jaxlake.env import CLASSIC_SLIP, Lake
from jaxlake.levels import LevelBank, stack
from jaxlake.state import Params
from jaxlake.types import Action

OPEN = """
....B
.....
..a..
.b...
....A
"""
SMALL = """
a.A
...
b.B
"""
RIGHT = [Action.RIGHT, Action.RIGHT]
WAIT = [Action.WAIT, Action.WAIT]

reset, step = jax.jit(Lake().reset), jax.jit(Lake().step)


@pytest.fixture(scope="module")
def bank():
    return LevelBank.build(stack([from_text(OPEN), from_text(SMALL)]))


def core_step(bank, level, *joint_actions):
    """The core's state and time step after the actions on a level of the bank."""
    state, timestep = reset(bank.at(level)[0])
    for actions in joint_actions:
        state, timestep = step(state, np.array(actions, np.int32))
    return state, timestep


def test_gymnasium_finds_no_fault(bank):
    env = gymnasium.make("jaxlake/Lake-v0", bank=bank, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


@pytest.mark.heavy
def test_levels_that_nobody_gave_have_solutions_and_are_the_same_in_every_environment():
    one, many = CentralLake(kind="3x1"), VectorLake(num_envs=2, kind="3x1")
    levels = jax.tree.map(np.asarray, one.episode.bank.instances)
    assert levels.size.tolist() == [3] * 1024 and levels.num_agents.tolist() == [1] * 1024
    assert (solve(levels).status == Status.SOLVED).all()
    jax.tree.map(np.testing.assert_array_equal, levels, many.bank.instances)


@pytest.mark.parametrize(("given", "own", "length"), [(3, 9, 3), (-1, 3, 3)])
def test_make_vec_takes_gymnasiums_limit_of_steps_as_make_does(bank, given, own, length):
    settings = {"bank": bank, "params": Params(max_steps=own), "max_episode_steps": given}
    for env in gymnasium.make_vec("jaxlake/Lake-v0", 2, **settings), gymnasium.make("jaxlake/Lake-v0", **settings):
        env.reset(seed=0)
        wait = np.full(env.action_space.shape, Action.WAIT)
        assert [np.all(env.step(wait)[3]) for _ in range(length)] == [False] * (length - 1) + [True]


def test_the_mask_that_maskable_ppo_asks_for_is_the_cores(bank):
    env = CentralLake(bank)
    env.reset(options={"level": 1})
    assert env.action_masks().tolist() == core_step(bank, 1)[1].legal_actions.ravel().tolist()
    env.step([Action.DOWN, Action.UP])
    mask = env.action_masks()
    assert (mask.shape, mask.dtype) == ((10,), bool)
    assert mask.tolist() == core_step(bank, 1, [Action.DOWN, Action.UP])[1].legal_actions.ravel().tolist()


def test_the_seed_decides_levels_and_slips(bank):
    env = VectorLake(bank, 2, params=Params(max_steps=3, slip=CLASSIC_SLIP))

    def play(seed):
        return [env.reset(seed=seed)] + [env.step([RIGHT] * 2) for _ in range(8)]

    assert data_equivalence(play(3), play(3), exact=True)
    assert not data_equivalence(play(3), play(4), exact=True)


def vector_env(bank, mode, limit=64):
    """Two environments, of which the second has a board that two steps to the right solve."""
    env = VectorLake(bank, 2, params=Params(max_steps=limit), autoreset_mode=mode)
    assert env.metadata["autoreset_mode"] is mode
    env.reset(seed=0, options={"levels": np.array([0, 1])})
    env.step([WAIT, RIGHT])
    return env


def test_next_step_resets_in_the_step_after_the_end(bank):
    env = vector_env(bank, AutoresetMode.NEXT_STEP)
    seen, rewards, terminated, truncated, infos = env.step([WAIT, RIGHT])
    np.testing.assert_array_equal(seen[1], core_step(bank, 1, RIGHT, RIGHT)[1].observation)
    assert rewards.tolist() == [0, 2] and terminated.tolist() == [False, True] and not truncated.any()
    assert infos["solved"].tolist() == [False, True] and infos["_solved"].all()
    assert "final_obs" not in infos
    seen, rewards, terminated, truncated, infos = env.step([WAIT, RIGHT])
    begun = [core_step(bank, level)[1].observation for level in (0, 1)]
    assert any(np.array_equal(seen[1], start) for start in begun)
    assert not rewards.any() and not terminated.any() and infos["makespan"].tolist() == [3, 0]


def test_same_step_resets_at_once_and_keeps_the_final_observation(bank):
    env = vector_env(bank, AutoresetMode.SAME_STEP)
    seen, rewards, terminated, truncated, infos = env.step([WAIT, RIGHT])
    begun = [core_step(bank, level)[1].observation for level in (0, 1)]
    assert any(np.array_equal(seen[1], start) for start in begun)
    assert rewards.tolist() == [0, 2] and terminated.tolist() == [False, True] and not truncated.any()
    assert infos["final_obs"][0] is None and infos["_final_obs"].tolist() == [False, True]
    np.testing.assert_array_equal(infos["final_obs"][1], core_step(bank, 1, RIGHT, RIGHT)[1].observation)
    assert infos["final_info"]["sum_of_costs"].tolist() == [0, 4]
    assert infos["final_info"]["_sum_of_costs"].tolist() == [False, True]
    assert infos["makespan"].tolist() == [2, 0] and infos["_makespan"].tolist() == [True, False]
    legal = [core_step(bank, level)[1].legal_actions for level in (0, 1)]
    assert any(np.array_equal(infos["action_mask"][1], start) for start in legal)
    *_, infos = env.step([WAIT, WAIT])
    assert "final_obs" not in infos and infos["_makespan"].all()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_batch_is_what_gymnasiums_own_batches_make_of_single_environments(mode):
    level = LevelBank.build(stack([from_text("a..#\n.B..\n#.A.\n...b", max_agents=3)]))
    batches = [
        VectorLake(level, 2, params=Params(max_steps=3), autoreset_mode=mode),
        SyncVectorEnv([lambda: CentralLake(level, params=Params(max_steps=3))] * 2, autoreset_mode=mode),
    ]
    assert data_equivalence(*[env.reset(seed=0) for env in batches])
    masked = mode is AutoresetMode.DISABLED
    for number, joint in enumerate(np.random.default_rng(0).integers(0, 5, (8, 2, 3))):
        steps = [env.step(joint) for env in batches]
        if mode is AutoresetMode.SAME_STEP:  # whose infos of the next episode are masked out here
            steps = [(*seen, {key: infos[key] for key in infos if key[0] != "_"}) for *seen, infos in steps]
        assert data_equivalence(*steps), number
        ended = np.array([False, True]) if number == 0 else steps[0][2] | steps[0][3]  # so that they end apart
        if masked and ended.any():
            assert data_equivalence(*[env.reset(options={"reset_mask": ended.copy()}) for env in batches]), number


def test_disabled_stays_done(bank):
    env = vector_env(bank, AutoresetMode.DISABLED)
    env.step([[Action.UP, Action.UP], RIGHT])
    seen, rewards, terminated, _, _ = env.step([WAIT, [Action.LEFT, Action.LEFT]])
    np.testing.assert_array_equal(seen[1], core_step(bank, 1, RIGHT, RIGHT)[1].observation)
    assert not rewards.any() and terminated.tolist() == [False, True]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_wrappers_of_gymnasium_take_it(bank, mode):
    def finish(wrapper):
        env = gymnasium.make_vec(
            "jaxlake/Lake-v0", 2, vectorization_mode="vector_entry_point", bank=bank, autoreset_mode=mode
        )
        assert isinstance(env.unwrapped, VectorLake)
        env = wrapper(env)
        env.reset(seed=0, options={"levels": np.array([0, 1])})
        env.step([WAIT, RIGHT])
        return env.step([WAIT, RIGHT])[-1]

    infos = finish(RecordEpisodeStatistics)
    assert infos["episode"]["r"].tolist() == [0, 2] and infos["_episode"].tolist() == [False, True]
    infos = finish(DictInfoToList)
    ended = infos[1]["final_info"] if mode is AutoresetMode.SAME_STEP else infos[1]
    assert infos[0]["makespan"] == ended["makespan"] == 2 and ended["solved"]


def test_one_program_serves_every_reset_and_step(bank):
    traces = []

    def observe(state):
        traces.append(1)
        return state.positions

    env = VectorLake(bank, 2, Lake(observe=observe))
    env.reset(seed=0)
    env.step([WAIT, RIGHT])
    count = len(traces)
    env.reset()
    for _ in range(3):
        env.step([RIGHT, WAIT])
    assert len(traces) == count


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda bank: VectorLake(bank, 2).reset(options={"reset_mask": np.array([1])}),
            r"reset_mask must be bool \[2\]: it is int64 \[1\]",
        ),
        (lambda bank: CentralLake(bank).reset(options={"level": 0.5}), "level = 0.5 must be a whole number from 0"),
        (lambda bank: VectorLake(bank, 2).reset(options={"levels": np.array([0, 2])}), "level = 2 must be a whole"),
        (lambda bank: VectorLake(bank, 2).reset(options={"level": 1}), "only levels and reset_mask have"),
    ],
)
def test_a_mistake_is_named(bank, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(bank)


def test_what_is_packed_on_the_device_is_unpacked_on_the_host_leaf_by_leaf():
    tree = {
        "bytes": np.arange(-3, 4, dtype=np.int8),
        "flag": np.bool_(True),
        "flags": np.array([[True, False], [False, True]]),
        "floats": np.array([[1.5, -0.0, np.inf]], np.float32),
        "half": np.array([1.25], jax.numpy.bfloat16),
        "none": None,
        "nothing": np.zeros((0, 3), np.int32),
        "numbers": np.arange(6, dtype=np.int32).reshape(2, 3),
        "small": np.array([-(2**15), 2**15 - 1], np.int16),
    }
    unpacked = Layout(jax.eval_shape(lambda: tree)).unpack(jax.jit(pack)(tree))
    assert jax.tree.structure(unpacked) == jax.tree.structure(tree)
    for name, leaf in tree.items():
        np.testing.assert_array_equal(unpacked[name], leaf)
        assert leaf is None or (unpacked[name].dtype == leaf.dtype and unpacked[name].flags.aligned)


def test_what_a_step_gives_belongs_to_the_caller(bank):
    for env, waiting in ((CentralLake(bank), WAIT), (VectorLake(bank, 2), [WAIT, WAIT])):
        seen, infos = env.reset(seed=0)
        seen[:], infos["action_mask"][:] = 7, 7
        later, *_ = env.step(waiting)
        assert (seen == 7).all() and not (later == 7).any()


def test_a_batch_is_rendered_as_texts_and_as_pictures_of_one_size(bank):
    env = VectorLake(bank, 2, render_mode="ansi")
    env.reset(seed=0, options={"levels": np.array([0, 1])})
    env.step([WAIT, RIGHT])
    assert env.render() == ("....B\n.....\n..a..\n.b...\n....A", ".aA\n...\n.bB")
    env = gymnasium.make_vec("jaxlake/Lake-v0", 2, bank=bank, render_mode="rgb_array")
    env.reset(seed=0, options={"levels": np.array([0, 1])})
    first, second = env.render()
    assert first.shape == second.shape and first.dtype == np.uint8
    below = 2 * len(first) // 3
    assert (second[below:] == 255).all() and not (first[below:] == 255).all()  # White is off the board.
