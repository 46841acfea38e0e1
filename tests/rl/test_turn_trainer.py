"""The trainer of turns beside its definitions told again in plain Python, one decision after the other, in float64."""

import collections
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lab import SMALL, WEIGHTS, Linear, batched, boards

from engineer.evidence import CHECKS, LEARNABLE, training_evidence
from jaxlake.config import LakeConfig
from jaxlake.generate import pool
from jaxlake.kinds import Kind
from jaxlake.types import ABSENT
from rl.config import NetworkSection
from rl.students.turns import network
from rl.students.turns.actor import lane
from rl.students.turns.network import NetworkActor
from rl.students.turns.rollout import CONFLICT, HOLE, LATE, OPTIMAL, SOLVED, Boards, Rollout, count, describe, ended
from rl.students.turns.student import make_trainer
from rl.students.turns.trainer import DISCOUNT, RIDGE, Learner, TurnTrainer

TIME, ENVIRONMENTS, AGENTS, SAMPLES = 13, 8, 3, 4
ENDED = np.zeros((ENVIRONMENTS, AGENTS), np.float32)
"""Values after the last step, where all plays have ended."""
BASELINES = ["value", "group", "fitted"]


def trainer(chunk=16, rate=1.0, **learn):
    """Return a trainer of small plays by plain descent; what is given goes into its learning."""
    values = {"samples": SAMPLES, "iterations": 1, "minibatches": 1, "entropy_coefficient": 0.0} | learn
    values = SMALL.model_dump(mode="json") | {"learn": SMALL.learn.model_dump(mode="json") | values}
    return TurnTrainer(Linear(chunk), NetworkSection(**values), optax.sgd(rate))


def draw_rollout(seed, goes_on=False):
    """Return plays of random lengths with absent agents; in some groups all plays have one outcome."""
    rng = np.random.default_rng(seed)
    done = rng.random((TIME, ENVIRONMENTS)) < 0.3
    if goes_on:  # beyond the last step, in all environments but one
        last = np.full(ENVIRONMENTS, TIME - 1)
        done[-1] = np.arange(ENVIRONMENTS) == 3
    else:
        last = rng.integers(TIME - 3, TIME, ENVIRONMENTS)  # step of each environment that ends its last play
        done[last, np.arange(ENVIRONMENTS)] = True
    plays = np.arange(TIME)[:, None] <= last
    done &= plays
    number = np.cumsum(done, axis=0) - done
    if not goes_on:
        number = np.minimum(number, done.sum(axis=0) - 1)
    present, reward = np.zeros((2, TIME, ENVIRONMENTS, AGENTS), np.float32)
    for play, group in itertools.product(range(TIME), range(ENVIRONMENTS // SAMPLES)):
        agents, chance = rng.integers(1, AGENTS + 1), rng.choice([0, 0.5, 1])  # of success
        for e in range(group * SAMPLES, (group + 1) * SAMPLES):
            steps = (number[:, e] == play) & plays[:, e]
            present[steps, e, :agents] = 1
            reward[steps & done[:, e], e] = rng.random() < chance
    reward += rng.normal(0, 0.1, reward.shape).astype(np.float32) * plays[..., None]
    legal = rng.random((*present.shape, 5)) < 0.7
    action = rng.integers(0, 5, present.shape)
    np.put_along_axis(legal, action[..., None], True, axis=-1)
    length = np.zeros(done.shape, np.int32)
    for t in range(TIME):
        length[t] = 1 if t == 0 else np.where(done[t - 1], 1, length[t - 1] + 1)
    return Rollout(
        view=rng.normal(size=(*present.shape, 3)).astype(np.float32), legal=legal, action=action,
        log_probability=rng.normal(-1.5, 0.3, present.shape).astype(np.float32),
        value=rng.normal(size=present.shape).astype(np.float32), present=present > 0, reward=reward, done=done,
        level=np.asarray(number * 2 + np.arange(ENVIRONMENTS) // SAMPLES, np.int32), number=number,
        outcome=np.where(done, rng.integers(0, 5, done.shape), ABSENT), length=length,
    )  # fmt: skip


def plays_of(rollout):
    """Yield group, environment, agent and steps of each agent's play."""
    for e in range(rollout.done.shape[1]):
        ends = np.flatnonzero(rollout.done[:, e]).tolist()
        if rollout.present[-1, e].any() and not rollout.done[-1, e]:
            ends.append(TIME - 1)  # and goes on
        for number, (before, end) in enumerate(zip([-1, *ends], ends, strict=False)):
            steps = range(before + 1, end + 1)
            for agent in np.flatnonzero(rollout.present[steps[0], e]).tolist():
                yield (number, e // SAMPLES, agent), e, steps


def estimates(rollout, value, last_value, gae_lambda):
    """Return generalised advantage estimates as the sums of their definition."""
    advantage = np.zeros(rollout.present.shape)
    for (*_, agent), e, steps in plays_of(rollout):
        for t in steps:
            for s in range(t, steps[-1] + 1):
                follows = value[s + 1, e, agent] if s < steps[-1] else 0 if rollout.done[s, e] else last_value[e, agent]
                error = float(rollout.reward[s, e, agent]) + DISCOUNT * follows - value[s, e, agent]
                advantage[t, e, agent] += (DISCOUNT * gae_lambda) ** (s - t) * error
    return advantage


def worths(rollout):
    """Return the sum of rewards of each play, by group and environment."""
    groups = collections.defaultdict(dict)
    for group, e, steps in plays_of(rollout):
        groups[group][e] = sum(float(rollout.reward[t, e, group[-1]]) for t in steps)
    return groups


def fitted_values(rollout):
    """Return the values of a ridge regression, which is least squares with a row of its own for each coefficient."""
    rows, places, to_come, groups = [], [], [], worths(rollout)
    for group, e, steps in plays_of(rollout):
        beside = [worth for other, worth in groups[group].items() if other != e]
        for t in steps:
            team = rollout.view[t, e][rollout.present[t, e]].astype(float).mean(axis=0)
            known = [np.mean(beside), 1.0] if beside else [0.0, 0.0]
            rows.append([*rollout.view[t, e, group[-1]].astype(float), *team, *known, 1.0])
            places.append((t, e, group[-1]))
            to_come.append(sum(DISCOUNT ** (s - t) * float(rollout.reward[s, e, group[-1]]) for s in steps if s >= t))
    rows, width = np.array(rows), len(rows[0])
    padded = np.concatenate([rows, np.sqrt(RIDGE) * np.eye(width)]), np.concatenate([to_come, np.zeros(width)])
    value = np.zeros(rollout.present.shape)
    value[tuple(np.transpose(places))] = rows @ np.linalg.lstsq(*padded, rcond=None)[0]
    return value


def told_again(rollout, last_value, baseline, gae_lambda):
    """Return advantages and returns by their definitions."""
    mask = rollout.present
    if baseline == "group":
        advantage = np.zeros(mask.shape)
        for group, e, steps in plays_of(rollout):
            beside = [*worths(rollout)[group].values()]
            unit = (worths(rollout)[group][e] - np.mean(beside)) / (np.std(beside) + 1e-4)
            for t in steps:
                advantage[t, e, group[-1]] = unit * gae_lambda ** (steps[-1] - t)
        return advantage, np.zeros(mask.shape)
    value = rollout.value.astype(float) if baseline == "value" else fitted_values(rollout)
    raw = estimates(rollout, value, last_value, gae_lambda)
    return np.where(mask, (raw - raw[mask].mean()) / (raw[mask].std() + 1e-5), 0), raw + value


@pytest.mark.parametrize("gae_lambda", [0.8, 1.0])
@pytest.mark.parametrize("baseline", BASELINES)
def test_advantages_are_those_of_their_definitions(baseline, gae_lambda):
    rollout = draw_rollout(1, goes_on=baseline == "value")
    last_value = np.random.default_rng(2).normal(size=rollout.present.shape[1:]).astype(np.float32)
    advantage, returns = trainer(baseline=baseline, gae_lambda=gae_lambda).advantages(rollout, last_value)
    expected, follows = told_again(rollout, last_value, baseline, gae_lambda)
    np.testing.assert_allclose(advantage, expected, atol=2e-3)
    np.testing.assert_allclose(np.asarray(returns)[rollout.present], follows[rollout.present], atol=1e-4)
    assert not np.asarray(advantage)[~rollout.present].any()


def test_a_group_of_equal_plays_and_a_play_without_others_have_no_advantage():
    rollout = draw_rollout(3)
    rollout = rollout.replace(reward=np.where(rollout.done[..., None] & (rollout.number == 0)[..., None], 1.0, 0.0))
    advantage, returns = trainer(baseline="group").advantages(rollout, ENDED)
    assert not np.asarray(advantage).any()
    alone = [group for group, plays in worths(draw_rollout(1)).items() if len(plays) == 1]
    assert alone  # which the test above has compared
    wanted = trainer(baseline="group").decisions(None, None, rollout, advantage, returns)
    assert not np.asarray(wanted.weight).any()  # and nothing is computed for them


def loss_told_again(rollout, parameters, advantage, returns, learn):
    """Return the loss of all decisions in float64."""
    w, v, reference = (np.asarray(x, float) for x in (parameters["w"], parameters["v"], WEIGHTS["w"]))
    total = 0.0
    for t, e, agent in np.argwhere(rollout.present):
        view, legal, action = (x[t, e, agent] for x in (rollout.view, rollout.legal, rollout.action))

        def log_softmax(weights, view=view, legal=legal):
            logits = np.where(legal, view.astype(float) @ weights, -np.inf)
            logits -= np.log(np.exp(logits - logits.max()).sum()) + logits.max()
            logits = logits / learn.temperature
            return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()

        logits, a = log_softmax(w), advantage[t, e, agent]
        ratio = np.exp(logits[action] - float(rollout.log_probability[t, e, agent]))
        term = -min(ratio * a, min(max(ratio, 1 - learn.clip_low), 1 + learn.clip_high) * a)
        away = log_softmax(reference)[action] - logits[action]
        term += learn.kl_coefficient * (np.exp(away) - 1 - away)
        term += learn.entropy_coefficient * sum(np.exp(x) * x for x in logits if np.isfinite(x))
        if learn.baseline == "value":
            term += 0.5 * (view.astype(float) @ v - returns[t, e, agent]) ** 2
        total += term
    return total / rollout.present.sum()


@pytest.mark.parametrize(
    ("learn", "chunk"),
    [
        ({"baseline": "group"}, 10**6),
        ({"baseline": "group", "temperature": 0.7, "entropy_coefficient": 0.02}, 7),
        ({"baseline": "fitted", "clip_low": 0.05, "clip_high": 0.4}, 7),
        ({"baseline": "value", "kl_coefficient": 0.3, "entropy_coefficient": 0.01}, 7),
    ],
)
def test_loss_and_gradient_are_those_of_their_definitions_at_once_and_in_chunks(learn, chunk):
    made, rollout = trainer(chunk, **learn), draw_rollout(1)
    advantage, returns = (np.asarray(x) for x in made.advantages(rollout, ENDED))
    parameters = {"w": WEIGHTS["w"] + 0.3, "v": WEIGHTS["v"]}
    rows = jax.jit(made.decisions)(None, WEIGHTS, rollout, advantage, returns)
    learner = Learner(parameters=parameters, optimizer=made.optimizer.init(parameters))
    after, metrics = jax.jit(made.learn)(learner, None, rows, jax.random.key(0))

    def loss(name, place, step):
        nudged = {key: np.array(x, float) for key, x in parameters.items()}
        nudged[name][place] += step
        return loss_told_again(rollout, nudged, advantage, returns, made.student.learn)

    assert float(metrics["loss"]) == pytest.approx(loss("w", (0, 0), 0), abs=2e-5)
    if "entropy_coefficient" in learn:  # else decisions without an advantage may be left out
        of_entropy = [made.student.learn.model_copy(update={"entropy_coefficient": weight}) for weight in (0, 1)]
        without, with_it = (loss_told_again(rollout, parameters, advantage, returns, each) for each in of_entropy)
        assert float(metrics["entropy"]) == pytest.approx(without - with_it, abs=2e-5)
    for name, place in [("w", (0, 0)), ("w", (1, 3)), ("w", (2, 4)), ("v", (1,))]:  # a gradient is a slope
        moved = float(parameters[name][place] - after.parameters[name][place])
        slope = (loss(name, place, 1e-5) - loss(name, place, -1e-5)) / 2e-5
        assert moved == pytest.approx(slope, abs=2e-4)


def test_minibatches_are_parts_of_the_whole_and_every_decision_is_in_each_pass():
    """Without a step between them, the mean of the parts' losses is the loss of all."""
    rollout, found, fitted = draw_rollout(2, goes_on=True), {}, trainer(baseline="fitted")
    rows = jax.jit(lambda: fitted.decisions(None, None, rollout, *fitted.advantages(rollout, ENDED)))()
    assert rollout.done.size % 7  # parts of unequal sizes
    for parts, passes in ((1, 1), (7, 2)):
        made = trainer(rate=0.0, baseline="fitted", minibatches=parts, iterations=passes)
        learner = Learner(parameters=WEIGHTS, optimizer=made.optimizer.init(WEIGHTS))
        _, metrics = jax.jit(made.learn)(learner, None, rows, jax.random.key(0))
        found[parts] = float(metrics["loss"])
    assert found[7] == pytest.approx(found[1], rel=1e-4)


@pytest.fixture(scope="module")
def collected():
    """A trainer whose plays all end, its boards, and a rollout at a temperature of 0.6."""
    levels, optima = boards(12)
    stock = lane(Boards.of_lanes(batched(levels), optima[None], SMALL.reward), 0)
    made = trainer(baseline="fitted", temperature=0.6)
    rollout = jax.jit(made.collect)(WEIGHTS, None, None, stock, jax.random.key(3))[0]
    return made, levels, jax.tree.map(np.asarray, rollout)


def test_with_a_value_plays_go_on_from_one_update_to_the_next():
    made, stock = trainer(baseline="value"), Boards.of_lanes(*map(batched, boards(12)), SMALL.reward)
    playing, parts, collect = lane(made.begin(stock, jax.random.key(1)[None]), 0), [], jax.jit(made.collect)
    last = jax.jit(lambda states: jax.vmap(Linear().observe)(states) @ WEIGHTS["v"])
    for number in range(3):
        rollout, last_value, playing = collect(WEIGHTS, None, playing, lane(stock, 0), jax.random.key(number))
        parts.append(rollout)
        value = last(playing.states)  # of what the next update sees first
        np.testing.assert_allclose(last_value, value * (playing.states.positions != ABSENT), atol=1e-5)
    rollout = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    steps = 3 * SMALL.rollout_steps
    assert rollout.done.shape == (steps, SMALL.environments) and rollout.present.any(axis=-1).all()
    assert (rollout.number[:: SMALL.rollout_steps] == 0).all()
    for t in range(1, steps):
        before, begins = rollout.length[t - 1], rollout.done[t - 1]
        np.testing.assert_array_equal(rollout.length[t], np.where(begins, 1, before + 1))
        assert (begins | (rollout.level[t] == rollout.level[t - 1])).all()
        if t % SMALL.rollout_steps:
            np.testing.assert_array_equal(rollout.number[t], rollout.number[t - 1] + begins)
    assert rollout.length.max() == SMALL.episode_steps and len(np.unique(rollout.level)) > 6


def test_all_plays_that_begin_end_and_a_group_begins_the_same_boards(collected):
    made, levels, rollout = collected
    steps, environments = rollout.done.shape
    assert steps == SMALL.rollout_steps + SMALL.episode_steps - 1 and environments == SMALL.environments
    begun = collections.defaultdict(dict)
    for e in range(environments):
        plays, start, number = rollout.present[:, e].any(axis=-1), 0, 0
        while start < steps and plays[start]:
            end = start + int(np.argmax(rollout.done[start:, e]))
            assert rollout.done[end, e] and end - start < SMALL.episode_steps and start < SMALL.rollout_steps
            assert len({*rollout.level[start : end + 1, e].tolist()}) == 1
            assert (rollout.number[start : end + 1, e] == number).all()
            level = int(rollout.level[start, e])
            assert (rollout.present[start : end + 1, e].sum(axis=-1) == levels.num_agents[level]).all()
            begun[e // made.samples, number][e] = level
            start, number = end + 1, number + 1
        assert start >= SMALL.rollout_steps and not plays[start:].any() and not rollout.done[start:, e].any()
    assert all(len({*members.values()}) == 1 for members in begun.values())
    assert len({level for members in begun.values() for level in members.values()}) > 3  # boards differ
    assert made.samples == SAMPLES


def test_what_a_rollout_says_of_its_moves_is_what_the_actor_says(collected):
    _, _, rollout = collected
    flat = [x.reshape(-1, *x.shape[3:]) for x in (rollout.view, rollout.legal)]
    logits = np.asarray(Linear().forward(WEIGHTS, None, *flat)[0], float).reshape(rollout.legal.shape)
    scaled = np.where(rollout.legal, logits / 0.6, -np.inf)
    scaled -= np.log(np.exp(scaled).sum(axis=-1, keepdims=True))
    expected = np.take_along_axis(scaled, rollout.action[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(rollout.log_probability[rollout.present], expected[rollout.present], atol=1e-5)


def test_logged_shares_are_those_of_the_ends_of_plays():
    rollout, ends = draw_rollout(4), {"optimal": OPTIMAL, "hole_free": HOLE, "conflict_free": CONFLICT}
    shares, outcomes = describe(rollout), rollout.outcome[rollout.done]
    assert float(shares["valid"]) == pytest.approx(np.isin(outcomes, (SOLVED, OPTIMAL)).mean())
    for name, end in (ends | {"goal_reached": LATE}).items():
        share = shares[name if name in shares else f"failure/{name}"]
        assert float(share) == pytest.approx((outcomes == end).mean())


def test_plays_are_counted_as_evidence_by_board():
    """Beside sums over each kind's plays; a group is a board's plays, however many."""
    rollout = draw_rollout(4)
    advantage = np.random.default_rng(0).normal(size=rollout.present.shape).astype(np.float32)
    kinds = np.array([Kind.of(3 + level % 2) for level in range(2 * TIME)], object)
    rows = training_evidence(count(jax.tree.map(np.asarray, ended(rollout, advantage)), kinds), ()).by_kind
    plays = collections.defaultdict(dict)
    for (number, group, _), e, steps in plays_of(rollout):
        size = np.abs(advantage[steps, e][rollout.present[steps, e]]).mean()
        plays[number * 2 + group][e] = int(rollout.outcome[steps[-1], e]), len(steps), size
    for row in rows:
        groups = [[*of_level.values()] for level, of_level in plays.items() if kinds[level] == row.kind]
        outcomes = [outcome for group in groups for outcome, _, _ in group]
        solved = [[outcome in (SOLVED, OPTIMAL) for outcome, _, _ in group] for group in groups]
        shares = [np.mean(group) for group in solved]
        assert (row.n, row.groups) == (len(outcomes), len(groups)) and row.optimal == outcomes.count(OPTIMAL)
        assert row.valid == sum(map(sum, solved)) and row.sampled_valid == pytest.approx(row.valid / row.n)
        assert row.learnable == sum(LEARNABLE[0] <= share <= LEARNABLE[1] for share in shares)
        assert (row.all_valid, row.all_invalid) == (shares.count(1), shares.count(0))
        ends = {"hole_free": HOLE, "conflict_free": CONFLICT, "goal_reached": LATE}
        assert row.first_failures == {name: outcomes.count(ends.get(name, ABSENT)) for name in CHECKS}
        assert row.any_failures == row.first_failures | {"goal_reached": row.n - row.valid}
        assert row.truncated == outcomes.count(LATE)
        assert row.answer_tokens == pytest.approx(np.mean([length for group in groups for _, length, _ in group]))
        assert row.advantage == pytest.approx(np.mean([size for group in groups for *_, size in group]), rel=1e-5)
        residuals = [sum(group) - row.valid / row.n * len(group) for group in solved]  # of a ratio, Cochran (6.13)
        spread = np.sqrt(np.sum(np.square(residuals)) / (len(groups) - 1) / len(groups)) / (row.n / len(groups))
        assert row.sampled_se == pytest.approx(spread)
    assert sum(row.n for row in rows) == rollout.done.sum() and len(rows) == 2


def train(made, learner, levels, optima, keys):
    stock = Boards.of_lanes(levels, optima, made.student.reward)
    return made.train(None, None, jax.tree.map(jnp.copy, learner), stock, keys)


@pytest.mark.heavy
@pytest.mark.parametrize("baseline", BASELINES)
def test_a_network_learns_small_boards(baseline):
    """From one in twenty to most: what no bug in reward, advantage or gradient would let through."""
    values = {"environments": 64, "rollout_steps": 16, "updates": 60, "episode_steps": 12, "width": 32}
    learn = {"baseline": baseline, "samples": 8, "iterations": 2, "minibatches": 3, "learning_rate": 3e-3}
    student = NetworkSection(kind="network", radius=1, **values, learn=learn)
    made = make_trainer(NetworkActor.of(student), student, 1)
    drawn = pool.draw(LakeConfig.uniform(("3",), 0.1, 0.0), jax.random.key(0), 60)
    learner = network.begin(made.actor, made.optimizer, jax.random.key(0)[None])
    optima = np.asarray(drawn.solutions.cost)[None]
    _, _, metrics = train(made, learner, batched(drawn.instances), optima, jax.random.key(1)[None])
    assert metrics["valid"][0, :2].mean() < 0.25 and metrics["valid"][0, -3:].mean() > 0.75


@pytest.mark.heavy
@pytest.mark.parametrize("baseline", BASELINES)
def test_a_lane_learns_the_same_alone_and_beside_others_and_equal_trainers_share_their_programs(baseline):
    (levels, optima), keys = boards(16), jax.random.split(jax.random.key(5), 2)
    student = NetworkSection(**SMALL.model_dump(mode="json") | {"learn": {"baseline": baseline, "samples": 4}})
    made = make_trainer(NetworkActor.of(student), student, 3)
    learner = network.begin(made.actor, made.optimizer, jax.random.split(jax.random.key(6), 2))
    many = jax.tree.map(lambda x: jnp.stack([x, x]), jax.tree.map(jnp.asarray, levels))
    together = train(made, learner, many, np.stack([optima, optima]), keys)[0]
    compiled = None
    for number in range(2):
        again = make_trainer(NetworkActor.of(student.model_copy()), student.model_copy(), 3)
        own = jax.tree.map(functools.partial(jnp.take, indices=jnp.array([number]), axis=0), learner)
        alone = train(again, own, batched(levels), optima[None], keys[number : number + 1])[0]
        assert compiled in (None, TurnTrainer.update._cache_size())
        compiled = TurnTrainer.update._cache_size()
        for ours, theirs in zip(
            jax.tree.leaves(lane(together.parameters, number)), jax.tree.leaves(alone.parameters), strict=True
        ):
            np.testing.assert_allclose(ours, theirs[0], atol=2e-5)
