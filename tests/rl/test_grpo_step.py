"""A step's answers, said by a script: text, verdicts, groups, masks, and the same on two processes.

The script has a word for each board, a letter for each answer to it: `o` the optimal plan, `v` the same one step later,
`.` and `x` nothing that is a plan (short and long), `t` the optimal plan without an end.
"""

import dataclasses
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxlake.board_text import from_text
from jaxlake.kinds import Kind
from jaxlake.levels import stack
from jaxlake.types import Check, Verdict
from rl import distributed
from rl.config import Config, LearnSection, RewardSection, TextSection, WriterSection
from rl.judge.answers import judge
from rl.learn.boards import BoardSet
from rl.learn.loss import policy_loss
from rl.learn.state import TrainState
from rl.model.policy import Policy
from rl.model.sampler import Rollout
from rl.model.tokenizer import Tokenizer
from rl.run.keys import Purpose, make_key
from rl.run.tracking import Stopwatch
from rl.students.writer.step import make_batch, reward_answers, sample

Scene = tuple[SimpleNamespace, BoardSet]
ROOM = 40
OPTIMAL = "0:(0,0)(0,1)(0,2)(0,3)\n1:(2,0)(2,1)(2,2)(2,3)"
ANSWERS = {"o": OPTIMAL, "v": OPTIMAL.replace("0:(0,0)", "0:(0,0)(0,0)"), ".": "no", "x": "no " * 9, "t": OPTIMAL}


def board(holes: int):
    """A board of two straight ways, with holes between them where the binary digits of a number are 1; least cost 6."""
    between = f"{holes:04b}".replace("0", ".").replace("1", "#")
    return from_text(f"a..A\n{between}\nb..B\n....")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scripted(Policy):
    """Answers by the script.

    Attributes:
      says: of the tokens of a prompt, the answers, as (text, whether it ends).
      asked: the key of each call and how many prompts came with it.
      forced: places of tokens that the sampler wrote itself, in each answer.
    """

    says: dict[tuple[int, ...], list[tuple[str, bool]]]
    asked: list[tuple[jax.Array, int]]
    forced: tuple[int, ...] = ()

    def rollout_parameters(self, parameters):
        return parameters

    @property
    def sampler(self):
        return self

    def generate(self, parameters, prompts, key, *, samples, sampling, progress) -> Rollout:
        self.asked.append((key, len(prompts)))
        answers = [answer for tokens in prompts for answer in self.says[tuple(tokens)]]
        ids = [self.tokenizer.completion(said) if ends else self.tokenizer.encode(said) for said, ends in answers]
        tokens, mask = self.tokenizer.pad_right(ids, ROOM, "room")
        progress(len(answers))
        logprobs = np.where(mask, -1 - np.arange(len(ids))[:, None] / 8, 0).astype(np.float32)
        truncated = np.array([not ends for _, ends in answers])
        forced = mask & np.isin(np.arange(ROOM), self.forced)
        return Rollout(tokens=tokens, mask=mask, forced=forced, logprobs=logprobs, truncated=truncated)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer()


@pytest.fixture
def scene(tokenizer):
    """Makes (run, lake) of boards that all differ, one for each word of the script."""

    def make(script: list[str], *, kind="valid", round=0, **settings) -> Scene:
        config = Config(
            lake={"kinds": (4,)},
            student=WriterSection(
                text=TextSection(max_new_tokens=ROOM),
                learn=LearnSection(**{"samples": len(script[0]), "credit": "outcome"} | settings),
                reward=RewardSection(kind=kind, free_tokens=8, limit_tokens=16),
            ),
            rounds={"instances": settings["prompts"]},
        )
        policy = Scripted(None, None, tokenizer, None, config.student.text, rows=1, says={}, asked=[])
        prompts = policy.prompts(stack([board(i) for i in range(len(script))]))
        for tokens, word in zip(prompts.tokens, script, strict=True):
            policy.says[tuple(tokens)] = [(ANSWERS[letter], letter != "t") for letter in word]
        run = SimpleNamespace(policy=policy, config=config, state=TrainState(None, None), watch=Stopwatch())
        run.state.progress.round = round
        return run, BoardSet(prompts, np.full(len(script), 6), np.array([Kind.of(4)] * len(script), object))

    return make


def answered(scene_: Scene, boards: np.ndarray) -> tuple[Rollout, Verdict]:
    """This process's answers to the boards, and their verdicts."""
    run, lake = scene_
    mine = boards[distributed.share(len(boards), "boards")]
    prompts = lake.prompts.take(mine)
    rollout = sample(run.policy, run.config, run.state, prompts, lambda done: None)
    return rollout, judge(prompts.instances, lake.optima[mine], run.policy.read(prompts.instances, rollout))


def gathered(scene_: Scene, boards: np.ndarray | None = None, answers=None) -> SimpleNamespace:
    """The batch of a step, and the answers' metrics and evidence."""
    run, lake = scene_
    boards = np.arange(len(lake.prompts)) if boards is None else boards
    rollout, verdicts = answers or answered(scene_, boards)
    rewarded = reward_answers(run.config, run.state.progress, lake, boards, rollout, verdicts)
    batch = make_batch(run.policy, run.config.student.learn, lake, boards, rollout, rewarded, run.watch)
    return SimpleNamespace(batch=batch, metrics=rewarded.metrics, training=rewarded.training)


def test_a_batch_holds_each_prompt_with_its_answers_side_by_side(scene):
    run, lake = scene(["o.", "oo", ".v"], prompts=3)
    found = gathered((run, lake), np.array([2, 0, 1]))
    sequences, starts = found.batch.sequences, found.batch.sequences.starts
    for i, board in enumerate([2, 2, 0, 0, 1, 1]):
        assert sequences.tokens[i, : starts[i]].tolist() == lake.prompts.tokens[board]
    said = [
        run.policy.tokenizer.decode(tokens[valid][start:])
        for tokens, valid, start in zip(sequences.tokens, sequences.valid, starts, strict=True)
    ]
    assert said[0] == said[3] == "no" and said[4] == said[5]
    assert (sequences.mask.sum(axis=1) == sequences.valid.sum(axis=1) - starts).all()
    np.testing.assert_allclose(found.batch.advantages[:, 0], [-1, 1, 1, -1, 0, 0], atol=1e-3)
    np.testing.assert_allclose(found.batch.sampler_logprobs[:, 0], -1 - np.arange(6) / 8)
    assert found.batch.old_logprobs is None and found.batch.reference_logprobs is None


def test_tokens_that_the_policy_did_not_choose_are_read_and_get_no_gradient(scene):
    run, lake = scene(["o."], prompts=1)
    whole = gathered((run, lake)).batch
    run, lake = scene(["o."], prompts=1)
    run.policy = dataclasses.replace(run.policy, forced=(1, 2))
    batch = gathered((run, lake)).batch
    np.testing.assert_array_equal(batch.sequences.tokens, whole.sequences.tokens)
    np.testing.assert_array_equal(batch.sequences.valid, whole.sequences.valid)
    np.testing.assert_array_equal(batch.advantages, whole.advantages)
    lost = whole.sequences.mask & ~batch.sequences.mask
    assert [np.flatnonzero(row).tolist() for row in lost] == [[1, 2], [1, 2]]

    def loss(logprobs):
        return policy_loss(logprobs, np.zeros(logprobs.shape, np.float32), batch, run.config.student.learn)[0]

    gradient = np.asarray(jax.grad(loss)(batch.sampler_logprobs))
    np.testing.assert_array_equal(gradient != 0, batch.sequences.mask)


def test_the_key_of_a_step_is_that_of_its_place_in_the_round(scene):
    run, lake = scene(["o.", "..", "..", "o."], prompts=1, round=2)
    for place in range(4):
        run.state.progress.cursor = place
        gathered((run, lake), np.array([place]))
    expected = [make_key(run.config.seed, Purpose.ROLLOUT, 2, number) for number in range(4)]
    assert [key for key, _ in run.policy.asked] == expected


def test_the_rounds_evidence_adds_the_answers_of_each_step(scene):
    run, lake = scene(["oo", "o.", "t.", "..", "xx", ".v"], prompts=2)
    found = gathered((run, lake), np.arange(4))
    (counted,) = found.training.values()
    assert (counted["groups"], counted["answers"], counted["valid"], counted["optimal"]) == (4, 8, 4, 4)
    assert (counted["all_valid"], counted["learnable"], counted["all_invalid"], counted["truncated"]) == (1, 2, 1, 1)
    assert sum(counted["first_failures"]) == counted["first_failures"][Check.PARSABLE] == 4
    assert counted["advantages"] == pytest.approx(4, abs=1e-2)
    assert run.state.progress.training is None  # until the step is done

    run.state.progress.training = json.loads(json.dumps(found.training))
    (both,) = gathered((run, lake), np.array([4, 5])).training.values()
    assert (both["groups"], both["answers"], both["valid"], both["optimal"]) == (6, 12, 5, 4)
    assert both["advantages"] == pytest.approx(6, abs=1e-2)


def test_with_exact_credit_every_token_up_to_the_one_that_loses_the_reward_has_its_own_advantage(scene):
    run, lake = scene(["ov", ".o"], prompts=2, kind="optimal", credit="exact")
    collected = gathered((run, lake))
    batch, (training,) = collected.batch, collected.training.values()
    pieces = [run.policy.tokenizer.pieces(run.policy.tokenizer.completion(ANSWERS[letter])) for letter in "ov.o"]
    p = np.exp(-1 - np.arange(4) / 8)  # of every token of an answer, says the script
    learned = [len(pieces[0]), pieces[1].index("(0,0)") + 2, 1, len(pieces[3])]  # "v" waits, "." is no plan
    for row, count in enumerate(learned):
        expected = np.full(count, np.sqrt(p[row]))
        if row in (1, 2):
            expected[-1] = -p[row] / np.sqrt(1 - p[row])
        np.testing.assert_allclose(batch.advantages[row, :count], expected, rtol=1e-5)
    assert batch.sequences.mask.sum(axis=-1).tolist() == learned  # what comes after is not computed
    assert not batch.advantages[~batch.sequences.mask].any() and batch.advantages.dtype == np.float32
    assert run.watch.seconds["credit"] > 0
    assert training["advantages"] == pytest.approx(4, abs=1e-2)  # the evidence has those of the groups


@pytest.mark.parametrize(
    ("kind", "credit"), [("paper", "outcome"), pytest.param("optimal", "exact", marks=pytest.mark.heavy)]
)
def test_two_processes_learn_of_the_same_answers_as_one_and_share_them(scene, monkeypatch, kind, credit):
    script, boards = ["oo", "o.", ".v", ".t"], np.arange(4)
    settings = dict(prompts=4, kind=kind, credit=credit)
    alone, scenes = gathered(scene(script, **settings)), [scene(script, **settings) for _ in range(2)]

    def of_each(work):
        for me in range(2):
            half = lambda count, what, me=me: slice(me * count // 2, (me + 1) * count // 2)  # noqa: E731
            monkeypatch.setattr(distributed, "share", half)
            yield work(scenes[me])

    def join(*parts):
        return jax.tree.map(lambda *x: np.concatenate(x), *parts)

    answers = join(*of_each(lambda scene: answered(scene, boards)))
    both = [*of_each(lambda scene: gathered(scene, boards, answers))]
    assert [count for run, _ in scenes for _, count in run.policy.asked] == [2, 2]
    assert both[0].metrics == both[1].metrics == alone.metrics
    assert both[0].training == both[1].training == alone.training
    joined = join(*(each.batch for each in both))
    for ours, theirs in zip(jax.tree.leaves(joined.sequences), jax.tree.leaves(alone.batch.sequences), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # The script's log-probs, which weigh exact credit, count each process's answers from 0.
    compared = (joined.advantages, alone.batch.advantages)
    np.testing.assert_array_equal(*(compared if credit == "outcome" else map(np.sign, compared)))
