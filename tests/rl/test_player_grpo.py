"""GRPO of a player: its advantages, loss and rollouts beside the same told again in plain Python, in float64."""

import collections
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lab import LAB, NETWORK, SMALL, WEIGHTS, Linear, batched, boards, content, turns, whole
from shapes import SMALL_JSON

from jaxlake.config import LakeConfig
from jaxlake.generate import pool
from jaxlake.types import ABSENT
from rl.command import shipped
from rl.config import Config, ConfigError, TurnLearnSection, load
from rl.config.choices import Baseline
from rl.run.signals import Interrupted, Stop
from rl.students.player import grpo, network, ppo
from rl.students.player.actor import lane as lane_of
from rl.students.player.learner import Learner
from rl.students.player.network import NetworkActor
from rl.students.player.rollout import Rollout, make_bank, no_plays

pytestmark = pytest.mark.usefixtures("quick_compilation")

SETTINGS = TurnLearnSection(
    baseline="group", samples=4, minibatches=1, iterations=1, gae_lambda=1.0, clip_high=0.28, entropy_coefficient=0.0
)
PLAYS = SMALL.model_copy(update={"learn": SETTINGS})
TIME, ENVIRONMENTS, AGENTS, MOST = 13, 8, 3, 6


def draw_rollout(seed):
    """Plays of random lengths with absent agents; some groups have one outcome, and the last plays are cut off."""
    rng = np.random.default_rng(seed)
    done = rng.random((TIME, ENVIRONMENTS)) < 0.3
    done[-1] = rng.random(ENVIRONMENTS) < 0.3
    number = np.cumsum(done, axis=0) - done
    present, reward = np.zeros((TIME, ENVIRONMENTS, AGENTS), bool), np.zeros((TIME, ENVIRONMENTS, AGENTS), np.float32)
    for play, group in itertools.product(range(TIME), range(ENVIRONMENTS // SETTINGS.samples)):
        count, chance = rng.integers(1, AGENTS + 1), rng.choice([0, 0.5, 1])  # of agents; of success
        for e in range(group * SETTINGS.samples, (group + 1) * SETTINGS.samples):
            steps = number[:, e] == play
            present[steps, e, :count] = True
            reward[steps & done[:, e], e] = rng.random() < chance
    view = rng.normal(size=(TIME, ENVIRONMENTS, AGENTS, 3)).astype(np.float32)
    legal = rng.random((TIME, ENVIRONMENTS, AGENTS, 5)) < 0.7
    action = rng.integers(0, 5, present.shape)
    np.put_along_axis(legal, action[..., None], True, axis=-1)
    nothing = np.zeros(done.shape, np.int32)
    return Rollout(
        view=view, legal=legal, action=action, log_probability=rng.normal(-1.5, 0.3, present.shape).astype(np.float32),
        value=np.zeros(present.shape, np.float32), present=present, reward=reward, done=done, level=nothing,
        outcome=np.where(done, 0, ABSENT), length=nothing,
    )  # fmt: skip


def plays_of(rollout):
    """Yield group, environment and steps of each play that has ended."""
    for e in range(ENVIRONMENTS):
        ends = np.flatnonzero(rollout.done[:, e]).tolist()
        for number, (before, end) in enumerate(zip([-1, *ends], ends, strict=False)):
            yield (number, e // SETTINGS.samples), e, range(before + 1, end + 1)


def told_again(settings, rollout, parameters):  # noqa: C901 - as plain as its definitions
    """Advantages and loss in float64 by their definitions, one decision after the other."""
    groups = collections.defaultdict(list)
    for group, e, steps in plays_of(rollout):
        for agent in range(AGENTS):
            if rollout.present[steps[0], e, agent]:
                groups[group, agent].append((float(sum(rollout.reward[t, e, agent] for t in steps)), e, steps, agent))
    advantage = np.zeros(rollout.present.shape)
    for members in groups.values():
        worths = [worth for worth, *_ in members]
        mean = sum(worths) / len(worths)
        for worth, e, steps, agent in members:
            found = (worth - mean) / (np.std(worths) + 1e-4)
            for t in steps:
                advantage[t, e, agent] = found * settings.gae_lambda ** (steps[-1] - t)
    loss, decisions = 0.0, 0
    w, reference = np.asarray(parameters["w"], float), np.asarray(WEIGHTS["w"], float)
    for _, e, steps in plays_of(rollout):
        for t, agent in itertools.product(steps, range(AGENTS)):
            if not rollout.present[t, e, agent]:
                continue
            view, legal, action = (x[t, e, agent] for x in (rollout.view, rollout.legal, rollout.action))

            def chosen(weights, view=view, legal=legal):
                logits = np.where(legal, view.astype(float) @ weights / settings.temperature, -np.inf)
                return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()

            logits, a = chosen(w), advantage[t, e, agent]
            ratio = np.exp(logits[action] - float(rollout.log_probability[t, e, agent]))
            clipped = min(max(ratio, 1 - settings.clip_low), 1 + settings.clip_high)
            term = -min(ratio * a, clipped * a)
            away = chosen(reference)[action] - logits[action]
            term += settings.kl_coefficient * (np.exp(away) - 1 - away)
            term += settings.entropy_coefficient * sum(np.exp(x) * x for x in logits if np.isfinite(x))
            loss, decisions = loss + term, decisions + 1
    return advantage, loss / decisions


VARIANTS = [
    {"gae_lambda": 0.8},
    {"clip_low": 0.05, "clip_high": 0.4},
    {"temperature": 0.7, "entropy_coefficient": 0.02},
    {"kl_coefficient": 0.3, "gae_lambda": 0.9, "entropy_coefficient": 0.01},
]


@pytest.mark.parametrize("values", VARIANTS)
@pytest.mark.parametrize("chunk", [None, 7])
def test_advantages_loss_and_gradient_are_those_of_their_definitions(values, chunk):
    settings, rollout = (
        SETTINGS.model_copy(update=values),
        draw_rollout(1),
    )
    facts = rollout.reward, rollout.done, rollout.present
    advantage, _, weight = grpo.compare(settings, *facts)
    parameters = {"w": WEIGHTS["w"] + 0.3, "v": WEIGHTS["v"]}
    expected, loss = told_again(settings, rollout, parameters)
    assert not rollout.done[-1].all() and (expected != 0).any()
    np.testing.assert_allclose(advantage, expected, atol=1e-5)
    # Where an advantage of 0 alone means no gradient, such decisions have no weight; the others' loss is the same.
    actor, sgd = Linear(chunk), optax.sgd(1.0)
    learner = jax.tree.map(
        lambda x: jnp.asarray(x)[None], Learner(parameters=parameters, optimizer=sgd.init(parameters))
    )
    played = jax.tree.map(lambda x: x[None], no_plays(1))
    lanes = jax.tree.map(lambda x: jnp.asarray(x)[None], (rollout, advantage, weight))
    after, _, metrics = grpo.update(
        actor, settings, sgd, None, WEIGHTS, learner, played, *lanes, jax.random.key(0)[None]
    )
    assert float(metrics["loss"][0]) == pytest.approx(loss, abs=2e-5)
    moved = np.asarray(parameters["w"]) - np.asarray(after.parameters["w"][0])
    for place in [(0, 0), (1, 3), (2, 4)]:  # a sum's slope, in float64
        nudged = []
        for step in (1e-5, -1e-5):
            w = np.asarray(parameters["w"], float).copy()
            w[place] += step
            nudged.append(told_again(settings, rollout, {"w": w})[1])
        assert moved[place] == pytest.approx((nudged[0] - nudged[1]) / 2e-5, abs=2e-4)
    np.testing.assert_array_equal(after.parameters["v"][0], parameters["v"])  # no value is learned


def test_groups_without_signal_plays_alone_and_plays_cut_off_have_no_weight():
    """Two groups of two: one with equal outcomes; in the other one play is cut off, and the other has nobody beside."""
    settings = SETTINGS.model_copy(update={"samples": 2})
    done, present = np.zeros((3, 4), bool), np.ones((3, 4, 1), bool)
    done[1:, :2] = done[2, 2] = True
    reward = np.where(done[..., None], 1.0, 0.0) * np.array([1, 1, 1, 0])[None, :, None]
    advantage, others, weight = grpo.compare(settings, reward, done, present)
    assert not advantage.any()
    np.testing.assert_allclose(weight[:, :3], 1 / 9, rtol=1e-6)
    assert not weight[:, 3].any() and not others[:, 2].any()  # it was cut off, and the one beside it has no group
    assert (others[:, :2] == 1).all()
    reward[2, 0] = 0  # of the second plays one fails
    advantage, others, _ = grpo.compare(settings, reward, done, present)
    np.testing.assert_allclose(advantage[2, :2, 0], [-1, 1], atol=1e-3)
    assert not advantage[:2].any() and not advantage[:, 2:].any() and others[2, :2, 0, 0].tolist() == [1, 0]


def test_a_fitted_baseline_is_that_of_least_squares_and_its_advantages_the_sums_of_their_definition():
    settings, rollout = SETTINGS.model_copy(update={"baseline": Baseline.FITTED, "gae_lambda": 0.9}), draw_rollout(2)
    last = rollout.done.copy()
    last[-1] = True  # as all plays of a real rollout end
    rollout = rollout.replace(done=last)
    none, others, _ = grpo.compare(settings, rollout.reward, rollout.done, rollout.present)
    assert not none.any()
    rows, places, worth = [], [], {}
    for (number, group), e, steps in plays_of(rollout):
        for agent in range(AGENTS):
            if rollout.present[steps[0], e, agent]:
                worth[number, group, agent, e] = float(sum(rollout.reward[t, e, agent] for t in steps))
    for (number, group), e, steps in plays_of(rollout):
        for t, agent in itertools.product(steps, range(AGENTS)):
            if rollout.present[t, e, agent]:
                team = rollout.view[t, e][rollout.present[t, e]].astype(float).mean(axis=0)
                beside = [w for key, w in worth.items() if key[:3] == (number, group, agent) and key[3] != e]
                known = [np.mean(beside), 1.0] if beside else [0.0, 0.0]
                rows.append([*rollout.view[t, e, agent].astype(float), *team, *known, 1.0])
                to_come = sum(ppo.DISCOUNT ** (s - t) * rollout.reward[s, e, agent] for s in steps if s >= t)
                places.append((t, e, agent, to_come, steps[-1]))
    rows, to_come = np.array(rows), np.array([place[3] for place in places])
    value = np.zeros(rollout.present.shape)
    fitted = rows @ np.linalg.solve(rows.T @ rows + grpo.RIDGE * np.eye(rows.shape[1]), rows.T @ to_come)
    for (t, e, agent, *_), known in zip(places, fitted, strict=True):
        value[t, e, agent] = known
    expected = []
    for t, e, agent, _, end in places:
        errors = (
            (ppo.DISCOUNT * 0.9) ** (s - t)
            * (
                rollout.reward[s, e, agent]
                + ppo.DISCOUNT * (value[s + 1, e, agent] if s < end else 0)
                - value[s, e, agent]
            )
            for s in range(t, end + 1)
        )
        expected.append(sum(errors))
    expected = (np.array(expected) - np.mean(expected)) / np.std(expected)
    lanes = jax.tree.map(lambda x: jnp.asarray(x)[None], (rollout, others))
    found = np.asarray(grpo.fit(Linear(), settings, *lanes))[0]
    np.testing.assert_allclose([found[place[:3]] for place in places], expected, atol=2e-3)
    assert np.count_nonzero(found) == len(places)


def collected(settings=SETTINGS, actor=None):
    levels, optima = boards(12)
    actor = actor or Linear()
    bank = make_bank(PLAYS, batched(levels))
    found = grpo.collect(actor, PLAYS, settings, None, batched(WEIGHTS), bank, optima[None], jax.random.key(3)[None])
    return levels, jax.tree.map(lambda x: np.asarray(x)[0], found)


def test_a_rollout_ends_all_plays_that_it_begins_and_a_group_begins_the_same_boards():
    levels, rollout = collected()
    steps, environments = rollout.done.shape
    assert steps == SMALL.rollout_steps + SMALL.episode_steps - 1 and environments == SMALL.environments
    begun = collections.defaultdict(dict)
    for e in range(environments):
        plays, start = rollout.present[:, e].any(axis=-1), 0
        number = 0
        while start < steps and plays[start]:
            end = start + int(np.argmax(rollout.done[start:, e]))
            assert rollout.done[end, e] and end - start < SMALL.episode_steps and start < SMALL.rollout_steps
            assert len({*rollout.level[start : end + 1, e].tolist()}) == 1
            level = int(rollout.level[start, e])
            assert (rollout.present[start : end + 1, e].sum(axis=-1) == levels.num_agents[level]).all()
            begun[e // SETTINGS.samples, number][e] = level
            start, number = end + 1, number + 1
        assert start >= SMALL.rollout_steps and not plays[start:].any() and not rollout.done[start:, e].any()
    assert all(len({*members.values()}) == 1 for members in begun.values())
    assert len({level for members in begun.values() for level in members.values()}) > 3  # boards differ


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_what_a_rollout_says_of_its_moves_is_what_the_actor_says(temperature):
    _, rollout = collected(SETTINGS.model_copy(update={"temperature": temperature}))
    logits, _ = Linear().forward(WEIGHTS, None, rollout.view, rollout.legal)
    scaled = np.where(rollout.legal, np.asarray(logits, float) / temperature, -np.inf)
    scaled -= np.log(np.exp(scaled).sum(axis=-1, keepdims=True))
    found = np.take_along_axis(scaled, rollout.action[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(rollout.log_probability[rollout.present], found[rollout.present], atol=1e-5)


@pytest.mark.heavy
def test_a_network_learns_small_boards():
    student = PLAYS.model_copy(update={"environments": 64, "rollout_steps": 16, "updates": 60, "episode_steps": 12})
    settings = SETTINGS.model_copy(
        update={"samples": 8, "iterations": 2, "minibatches": 3, "gae_lambda": 0.9, "entropy_coefficient": 0.01}
    )
    actor = NetworkActor(radius=1, width=32, episode_steps=student.episode_steps)
    drawn = pool.draw(LakeConfig.uniform(("3",), 0.1, 0.0), jax.random.key(0), 60)
    optimizer = optax.adam(3e-3)
    learner = network.begin(actor, optimizer, jax.random.split(jax.random.key(0), 1))
    optima = np.asarray(drawn.solutions.cost)[None]
    _, played, metrics = grpo.train_round(
        actor, student, settings, optimizer, None, None, learner, batched(drawn.instances), optima,
        jax.random.split(jax.random.key(1), 1),
    )  # fmt: skip
    valid = metrics["valid"][0]
    assert valid[:2].mean() < 0.25 and valid[-3:].mean() > 0.75
    assert int(played.episodes.sum()) == metrics["episodes"].sum()


@pytest.mark.heavy
def test_a_lane_learns_the_same_alone_and_beside_others():
    levels, optima = boards(16)
    actor, optimizer = NetworkActor(**NETWORK, episode_steps=SMALL.episode_steps), optax.adam(1e-3)
    keys = jax.random.split(jax.random.key(5), 2)
    learner = network.begin(actor, optimizer, jax.random.split(jax.random.key(6), 2))
    many = jax.tree.map(lambda x: jnp.stack([x, x]), jax.tree.map(jnp.asarray, levels))

    def train(learner, levels, optima, keys):
        learner = jax.tree.map(jnp.copy, learner)
        return grpo.train_round(actor, PLAYS, SETTINGS, optimizer, None, None, learner, levels, optima, keys)[0]

    together = train(learner, many, np.stack([optima, optima]), keys)
    for lane in range(2):
        alone = train(
            jax.tree.map(lambda x, lane=lane: x[lane : lane + 1], learner),
            batched(levels), optima[None], keys[lane : lane + 1],
        )  # fmt: skip
        for ours, theirs in zip(
            jax.tree.leaves(lane_of(together.parameters, lane)), jax.tree.leaves(alone.parameters), strict=True
        ):
            np.testing.assert_allclose(ours, theirs[0], atol=2e-5)


@pytest.mark.heavy
@pytest.mark.parametrize("actor", ["network", "language"])
def test_a_run_that_was_stopped_goes_on_to_the_same_end(tmp_path, monkeypatch, actor):
    """With a divergence, whose reference is part of the state; stopped within a round and between two."""
    if actor == "language":
        (tmp_path / "shape.json").write_text(json.dumps(SMALL_JSON))
    values = LAB if actor == "network" else turns(tmp_path / "shape.json")
    learn = {"baseline": "group", "kl_coefficient": 0.1, "samples": 4, "iterations": 2, "minibatches": 1}
    config = Config(**values | {"student": values["student"] | {"learn": learn}})
    expected = content(whole(tmp_path / "whole", config))
    asked = []

    def agreed(stop):
        asked.append(None)
        return 15 if len(asked) in (2, 5, 9) else 0

    monkeypatch.setattr(Stop, "agreed", agreed)
    for _ in range(3):
        with pytest.raises(Interrupted):
            whole(tmp_path / "stopped", config)
    whole(tmp_path / "stopped", config)
    assert content(tmp_path / "stopped") == expected
    rows = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert all(np.isfinite(row["loss"]) and row["kl_reference"] >= 0 for row in rows)
    assert "value_loss" not in rows[0]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("student.environments=100", "environments = 100 must be a multiple of learn.samples = 8"),
        ("student.learn.samples=1", "student.learn.samples = 1: must be greater than or equal to 2"),
        ("student.learn.minibatches=7", r"learn.minibatches = 7 must divide \d+, environments by steps"),
        ("student.learn.prompts=4", "student.kind = player has no student.learn.prompts"),
        ("student.learn.gae_lambda=0", "student.learn.gae_lambda = 0: must be greater than 0"),
    ],
)
def test_settings_that_do_not_go_together_or_have_no_meaning_are_refused_in_one_line(override, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load(shipped("turns.yaml"), [override])
    assert "\n" not in str(caught.value)
