"""An engineer, a reward, a prompt, an optimizer and a loss that a user wrote take part in a run."""

import dataclasses

import jax
import numpy as np
import pytest
from lab import LAB
from stage import Stage

from jaxlake.types import Costs, Verdict
from rl import command
from rl.config import Config, ConfigError, RewardSection, RunError, extensions, load
from rl.learn.boards import BoardSet
from rl.learn.optimizer import init_state, updates_made
from rl.learn.reward import rewards
from rl.model.policy import writer
from rl.students import create
from rl.students.writer.step import grpo_step, rounds_optimizer

TINY = command.shipped("tiny.yaml")
MINE = '''
import optax

from jaxlake import LakeConfig


def holes(evidence, history, key):
    """As many holes as the share of valid plans."""
    kinds = history[-1].config.kinds
    hole = tuple(0.1 + 0.2 * row.valid / row.n for row in evidence.by_kind)
    return LakeConfig(kinds, data=(1 / len(kinds),) * len(kinds), hole=hole, wait=(0.5,) * len(kinds))


def wrong_kinds(evidence, history, key):
    return LakeConfig.uniform((9,), 0.2, 0.1)


def nothing(*anything):
    return None


def short(verdict, optima, tokens):
    return verdict.valid / tokens


def too_few(verdict, optima, tokens):
    return verdict.valid[1:]


def signs(rate):
    return optax.chain(optax.scale_by_sign(), optax.scale_by_learning_rate(rate))


def plain(inputs):
    moved = inputs.log_probability - inputs.old
    return -moved * inputs.advantage, {"moved": moved}


def terse(instance):
    return f"{instance.size} {instance.num_agents}"

'''


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    """A module in the current directory, where a user has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # also undoes what the test imported
    (tmp_path / "mine_lake.py").write_text(MINE)
    monkeypatch.delitem(extensions.sys.modules, "mine_lake", raising=False)


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> Stage:
    return Stage(tmp_path_factory.mktemp("extensions"))


def verdict(valid: list[bool]) -> Verdict:
    passed, cost = np.array(valid), np.full(len(valid), 6)
    costs = Costs(sum_of_costs=cost, sum_of_loss=cost, makespan=cost)
    return Verdict(checks=np.repeat(passed[:, None], 8, axis=1), valid=passed, optimal=passed, cost=cost, costs=costs)


@pytest.mark.parametrize(
    ("key", "name", "message"),
    [
        ("engineer.kind", "nowhere_to_be_found:f", "No module named 'nowhere_to_be_found'"),
        ("student.reward.kind", "mine_lake:misspelt", "cannot import name 'misspelt' from 'mine_lake'"),
        ("student.text.style", "mine_lake:__name__", "Input should be callable"),
        *((f"student.{stage}.optimizer", "mine_lake:lion", "cannot import name") for stage in ("learn", "warm_start")),
        ("student.learn.loss", "mine_lake:misspelt", "cannot import name"),
    ],
)
def test_what_is_not_there_is_found_out_before_a_run(key, name, message):
    with pytest.raises(ConfigError) as error:
        create(load(TINY, ["student.learn.credit=outcome", f"{key}={name}"]))
    assert str(error.value).startswith(f"{key} = {name}: ") and message in str(error.value)


def test_a_players_reward_that_is_not_there_is_refused_before_anything_is_drawn():
    with pytest.raises(ConfigError, match="student.reward = json:no: .*cannot import name 'no' from 'json'"):
        create(Config(**LAB | {"student": LAB["student"] | {"reward": "json:no"}}))


def test_an_engineer_of_ones_own_designs_a_round(stage):
    proposal = stage.after_round_0(kind="mine_lake:holes").design()
    assert (proposal.engineer, proposal.projected.hole) == ("mine_lake:holes", (0.1, 0.1))  # nothing was valid


@pytest.mark.parametrize("rule", ["wrong_kinds", "nothing"])
def test_an_engineer_that_returns_something_else_is_named(stage, rule):
    run = stage.after_round_0(kind=f"mine_lake:{rule}")
    with pytest.raises(RunError, match=f"engineer.kind = mine_lake:{rule}: must return a LakeConfig of the kinds 3, 4"):
        run.design()


def test_a_reward_of_ones_own_is_the_whole_reward():
    settings = RewardSection(kind="mine_lake:short")
    found = rewards(settings, verdict([True, False, True]), np.full(3, 6), np.array([10, 10, 40]), short_share=0.0)
    np.testing.assert_allclose(found.total, [0.1, 0, 0.025])
    assert (found.weight_accuracy, found.total.dtype) == (1, np.float32)


@pytest.mark.parametrize(
    ("name", "found"), [("too_few", r"shape \(2,\), 0 of them"), ("nothing", r"shape \(\), 1 of them")]
)
def test_a_reward_that_is_no_number_an_answer_is_named(name, found):
    message = (
        f"student.reward.kind = mine_lake:{name}: must return 3 finite numbers, one an answer, not {found} not finite"
    )
    with pytest.raises(RunError, match=message):
        rewards(RewardSection(kind=f"mine_lake:{name}"), verdict([True] * 3), np.full(3, 6), np.full(3, 9), 0.0)


def test_a_prompt_of_ones_own_is_what_the_policy_reads(stage):
    policy = stage.run().policy
    settings = policy.text.model_copy(update={"style": "mine_lake:terse"})
    policy = dataclasses.replace(policy, text=settings)
    board = jax.tree.map(np.asarray, stage.data.instances)
    assert writer(settings)(jax.tree.map(lambda x: x[0], board)) == "4 2"
    assert policy.prompts(board).tokens[0] == policy.tokenizer.chat("4 2", thinking=settings.thinking)
    with pytest.raises(RunError, match="student.text.style = mine_lake:nothing: must return a str, not NoneType"):
        writer(settings.model_copy(update={"style": "mine_lake:nothing"}))(board)


def test_an_optimizer_and_a_loss_of_ones_own_make_the_update_of_a_step(stage):
    own = {"optimizer": "mine_lake:signs", "loss": "mine_lake:plain"}
    run = stage.run(**own, warmup_steps=0, kl_coefficient=0.0, minibatches=1)
    run.state.optimizer_state = init_state(rounds_optimizer(run.student.config), run.state.parameters, run.policy.mesh)
    before = jax.tree.map(np.asarray, run.state.parameters)
    boards = BoardSet.of(run.policy, stage.data)
    metrics, _ = grpo_step(run.policy, run.student.config, run.state, run.recorder, boards, np.arange(4))
    moves = jax.tree.map(lambda now, then: np.abs(now - then), run.state.parameters, before)
    for move in jax.tree.leaves(moves):  # by the rate, or not at all: as of the embedding of a token that nobody wrote
        assert np.all(np.isclose(move, 1e-2, rtol=1e-3) | (move == 0)) and move.any()
    assert updates_made(run.state.optimizer_state) == 1
    assert metrics["moved"] == 0 and "ratio" not in metrics  # the first update, and the loss says what describes it
