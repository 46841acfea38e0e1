"""Steps and rounds of a model that is too small to answer anything: what is done, in which order, and what stops it."""

import jax
import numpy as np
import pytest
from stage import PREVIOUS, Scene, Stage

from rl import distributed
from rl.config import LearnSection
from rl.learn import supervised
from rl.learn.loss import Batch
from rl.learn.optimizer import updates_made
from rl.model.logprobs import join
from rl.model.sampler import Sampler
from rl.run.signals import Interrupted
from rl.students.writer import step as one_step
from rl.students.writer.step import minibatch_rows, summary

pytestmark = pytest.mark.heavy  # its stage compiles for 25 seconds


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> Stage:
    return Stage(tmp_path_factory.mktemp("rounds"))


def leaves(run: Scene) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves((run.state.parameters, run.state.optimizer_state))]


def test_four_minibatches_are_four_updates(stage, monkeypatch):
    run, updates, make_updates = stage.run(), [], one_step.make_updates
    monkeypatch.setattr(one_step, "make_updates", lambda *rest: updates.extend(made := make_updates(*rest)) or made)
    metrics = stage.step(run)
    assert len(updates) == updates_made(run.state.optimizer_state) == 4
    assert [update["learning_rate"] for update in updates] == pytest.approx([0, 1e-2 / 8, 2e-2 / 8, 3e-2 / 8])
    assert [update["ratio_max"] for update in updates[:2]] == pytest.approx([1, 1], abs=1e-5)  # the first rate was 0
    assert updates[2]["ratio_max"] > 1 + 1e-4
    assert updates[0]["kl_reference"] == pytest.approx(0, abs=1e-9) and updates[3]["kl_reference"] > 1e-9
    assert (run.progress.cursor, run.progress.step) == (4, 0)  # the step is done when it is logged
    assert metrics["ratio_max"] == max(update["ratio_max"] for update in updates)
    assert metrics["learning_rate"] == pytest.approx(1.5e-2 / 8)
    assert metrics["groups_sampled"] == 4 and metrics["valid"] == 0 and metrics["mismatch_alarm"] == 0
    assert metrics["mismatch_max"] < 1e-4


def test_a_step_broken_off_anywhere_and_begun_again_ends_the_same(stage, monkeypatch):
    """At each of the places where a step may be stopped, one after the other, the engineer's rehearsal among them."""
    whole = stage.run(engineer_every=1)
    expected, checks = stage.step(whole), []
    assert "engineer_loss" in expected
    again = stage.run(engineer_every=1)
    monkeypatch.setattr(again.recorder, "check_stop", lambda: checks.append(None))
    np.testing.assert_equal(stage.step(again), expected)  # nan is nan
    assert len(checks) > 8

    for place in range(len(checks)):
        run, seen = stage.run(engineer_every=1), []

        def check(seen=seen, place=place):
            seen.append(None)
            if len(seen) == place + 1:
                raise Interrupted(15)

        monkeypatch.setattr(run.recorder, "check_stop", check)
        with pytest.raises(Interrupted):
            stage.step(run)
        assert (run.progress.cursor, run.progress.short_share, run.progress.training) == (0, None, None)
        assert updates_made(run.state.optimizer_state) == 0
        np.testing.assert_equal(stage.step(run), expected, err_msg=str(place))
        assert run.progress.training == whole.progress.training
        for ours, theirs in zip(leaves(run), leaves(whole), strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=str(place))


def test_a_round_takes_each_instance_once_an_epoch_in_an_order_of_its_own_and_rehearses_fresh_examples(
    stage, monkeypatch
):
    run, asked, examples = stage.run(engineer_every=2), [], []
    generate, make = Sampler.generate, supervised.engineer_examples

    def noted(sampler, parameters, prompts, *rest, **options):
        asked.append(prompts)
        return generate(sampler, parameters, prompts, *rest, **options)

    monkeypatch.setattr(Sampler, "generate", noted)
    monkeypatch.setattr(supervised, "engineer_examples", lambda *given: examples.append(make(*given)) or examples[-1])
    run.student.train(run.recorder, stage.data, PREVIOUS)
    rows = run.log("metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert (run.progress.cursor, run.progress.step) == (16, 4)
    everything = sorted(run.policy.prompts(stage.data.instances).tokens)
    assert sorted(asked[0] + asked[1]) == sorted(asked[2] + asked[3]) == everything
    assert asked[:2] != asked[2:]
    assert [row.get("engineer_loss") is not None for row in rows] == [False, True, False, True]
    assert len(examples) == 2 and not np.array_equal(examples[0].tokens, examples[1].tokens)
    assert updates_made(run.state.optimizer_state) == 4 * 4 + 2
    timed = run.log("timings.jsonl")[0]
    for part in ("rollout", "logprob", "update", "host"):
        assert timed[part] >= 0 and timed[f"{part}_tokens_per_second"] > 0
    assert run.recorder.display.done == 4
    run.recorder.directory.close()


def test_a_mismatch_of_sampler_and_trainer_is_reported_once_a_round(stage, monkeypatch):
    def shifted(*arguments):
        batch = make_batch(*arguments)
        return batch.replace(sampler_logprobs=batch.sampler_logprobs + 0.1)

    make_batch = one_step.make_batch
    monkeypatch.setattr(one_step, "make_batch", shifted)
    run = stage.run()
    run.student.train(run.recorder, stage.data, PREVIOUS)
    rows = run.log("metrics.jsonl")
    assert [row["mismatch_alarm"] for row in rows] == [1] * 4
    assert rows[0]["mismatch_factor"] == pytest.approx(np.exp(0.1), rel=1e-3)
    said = [line for line in run.lines if "differ by a factor" in line]
    assert said == ["round 0, step 1: sampler and trainer differ by a factor of 1.105 a token, above 1.05"]
    run.recorder.directory.close()


def test_minibatches_are_whole_groups_and_the_same_for_any_number_of_processes(monkeypatch):
    settings = LearnSection(prompts=8, samples=2, minibatches=4)
    batch = Batch(
        sequences=join([[1]] * 16, 2, np.zeros((16, 1), np.int32), np.ones((16, 1), bool)),
        sampler_logprobs=np.zeros((16, 1), np.float32),
        advantages=np.repeat(np.arange(8), 2).astype(np.float32)[:, None],  # each group's number
    )
    whole = [batch[minibatch_rows(number, settings)].advantages[:, 0].tolist() for number in range(4)]
    assert whole == [[0, 0, 4, 4], [1, 1, 5, 5], [2, 2, 6, 6], [3, 3, 7, 7]]
    for process in range(2):
        mine = slice(8 * process, 8 * process + 8)
        monkeypatch.setattr(distributed, "share", lambda count, what, mine=mine: mine)
        part = jax.tree.map(lambda x, mine=mine: x[mine], batch)
        found = [part[minibatch_rows(number, settings)].advantages[:, 0].tolist() for number in range(4)]
        assert found == [both[2 * process : 2 * process + 2] for both in whole]


def test_a_step_logs_means_of_its_updates_but_the_largest_maximum_and_the_number_skipped():
    updates = [
        {"loss": 1.0, "ratio_max": 3.0, "update_skipped": 1.0},
        {"loss": 2.0, "ratio_max": 2.0, "update_skipped": 1.0},
        {"loss": 0.0, "update_skipped": 0.0},  # nothing to learn from: no ratio
    ]
    assert summary(updates) == {"loss": 1.0, "ratio_max": 3.0, "update_skipped": 2.0}
    assert np.isnan(summary([{"loss": float("nan")}, {"loss": 1.0}])["loss"])
