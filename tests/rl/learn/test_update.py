"""Updates of a small causal Qwen3: one gradient however rows are cut up, and nothing changed that may not be."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P
from shapes import SMALL, shard_parameters

from rl import distributed
from rl.config import LearnSection, LoRASection
from rl.learn import update as update_module
from rl.learn.loss import Batch
from rl.learn.optimizer import init_state, make_optimizer
from rl.learn.update import Total, accumulate, answer_logprobs_of, apply, update, zeros_like
from rl.model import lora
from rl.model.decoder import abstract, create, token_positions
from rl.model.logprobs import join
from rl.model.sharding import make_mesh, shardings

ONE = make_mesh(1, 1)
ROOM = 8
DESCENT, ADAM = optax.sgd(1.0), optax.adam(1e-2)  # one object, one compiled program
EVERYTHING = {"kl_coefficient": 0.3, "entropy_coefficient": 0.1, "temperature": 0.7}


def nothing():
    """A check that finds no reason to stop."""


def given_batch(seed=0):
    """Sixteen answers to prompts of one to four tokens; one has no token that counts, two have nothing to learn from.

    Its log-probabilities are what a uniform policy would give, more or less, so that some ratios are clipped. All rows
    are padded to the whole room of twelve tokens, so that there is one program for all.
    """
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, 16, n).tolist() for n in rng.integers(1, 5, 16)]
    answers, mask = (
        rng.integers(0, 16, (16, ROOM)).astype(np.int32),
        np.arange(ROOM) < rng.integers(5, ROOM + 1, (16, 1)),
    )
    advantages = rng.normal(size=(16, ROOM)).astype(np.float32)
    advantages[4:6] = 0  # skipped, but their tokens count in the mean
    sequences = join(prompts, 4, answers, mask)
    mask[9] = False  # a truncated answer, if these are masked
    old, sampler, reference = rng.normal(-2.8, 0.3, (3, 16, ROOM)).astype(np.float32)
    return Batch(
        sequences=sequences.replace(mask=mask),
        sampler_logprobs=sampler,
        advantages=advantages,
        old_logprobs=old,
        reference_logprobs=reference,
    )


def step(parameters, data, mesh=ONE, *, optimizer=DESCENT, check=nothing, **settings):
    """Parameters, state and metrics after one update."""
    graph, _ = abstract(SMALL, mesh)
    placed = shard_parameters(jax.tree.map(jnp.copy, parameters), mesh)
    state = init_state(optimizer, placed, mesh)
    settings = LearnSection(**settings)
    return update(graph, optimizer, placed, state, data, mesh, settings, check)


def gradient(parameters, *arguments, **settings):
    """What plain gradient descent with rate 1 moves parameters by, and the metrics."""
    after, _, metrics = step(parameters, *arguments, **settings)
    return jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), parameters, after), metrics


def assert_close(found, expected, rel):
    """Every array within `rel` of its largest value."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=rel * np.abs(b).max())


def assert_same(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def parameters():
    noise = np.random.default_rng(0)
    return jax.tree.map(lambda x: jnp.asarray(0.5 * noise.normal(size=x.shape), x.dtype), abstract(SMALL)[1])


@pytest.fixture(scope="module")
def expected(parameters):
    """Value and gradient of a loss with everything in it, by autodiff of the formula alone.

    Over all logits of all positions and all rows at once.
    """
    data = given_batch()
    sequences, mask = data.sequences, data.sequences.mask
    rows, steps = np.arange(16)[:, None], sequences.starts[:, None] + np.arange(ROOM)
    graph = abstract(SMALL)[0]

    def loss(parameters):
        model = nnx.merge(graph, parameters)
        hidden = model(sequences.tokens, token_positions(sequences.valid), sequences.valid)
        log_softmax = jax.nn.log_softmax(model.logits(hidden) / 0.7)[rows, steps - 1]
        entropy = -(jnp.exp(log_softmax) * log_softmax).sum(axis=-1)
        logprobs = jnp.take_along_axis(log_softmax, sequences.tokens[rows, steps][..., None], axis=-1)[..., 0]

        ratio, advantages = jnp.exp(logprobs - data.old_logprobs), data.advantages
        objective = jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.8, 1.28) * advantages)
        d = logprobs - data.reference_logprobs
        tokens = (-objective + 0.3 * (jnp.exp(-d) - 1 + d) - 0.1 * entropy) * mask
        return tokens.sum() / mask.sum()

    return jax.jit(jax.value_and_grad(loss))(parameters)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("mesh", "micro_batch"), [((1, 1), 1), ((1, 1), 4), ((1, 1), 16), ((8, 1), 16), ((4, 2), 4), ((2, 4), 3)]
)
def test_micro_batches_and_meshes_give_the_gradient_of_the_whole_batch(parameters, expected, mesh, micro_batch):
    moved, metrics = gradient(parameters, given_batch(), make_mesh(*mesh), micro_batch=micro_batch, **EVERYTHING)
    value, wanted = expected
    assert_close(moved, wanted, rel=1e-5)
    assert metrics["loss"] == pytest.approx(float(value), rel=1e-5)
    assert metrics["gradient_norm"] == pytest.approx(float(optax.global_norm(wanted)), rel=1e-5)
    assert metrics["rows_computed"] == 15 / 16


@pytest.mark.heavy
def test_rows_go_through_as_wide_as_the_longest_beside_them_and_nothing_else_changes(monkeypatch, parameters, expected):
    monkeypatch.setattr(update_module, "FINEST", 1)
    monkeypatch.setattr(update_module, "ENOUGH_TOKENS", 20)
    data, shapes = given_batch(), []

    def noted(graph, trained, frozen, total, micro, **rest):
        rows, width = micro.sequences.tokens.shape
        assert micro.old_logprobs.shape == micro.sequences.mask.shape == (rows, min(ROOM, width - 1))
        shapes.append((rows, int(micro.sequences.mask.any(axis=-1).sum()), width))
        return accumulate(graph, trained, frozen, total, micro, **rest)

    monkeypatch.setattr(update_module, "accumulate", noted)
    moved, metrics = gradient(parameters, data, micro_batch=16, **EVERYTHING)
    assert_close(moved, expected[1], rel=1e-5)
    assert metrics["loss"] == pytest.approx(float(expected[0]), rel=1e-5)
    # A room of 12 tokens: two rows of 12 are 20 tokens and more, three of 8 are no more than those two.
    sizes = {12: 2, 10: 2, 8: 3, 7: 3, 6: 4, 5: 4}
    assert all(rows == sizes[width] for rows, _, width in shapes)
    longest = sorted(data.sequences.valid.sum(axis=-1)[data.sequences.mask.any(axis=-1)])[::-1]
    for _, count, width in shapes:
        mine, longest = longest[:count], longest[count:]
        assert max(mine) <= width < max(mine) * 1.25
    assert not longest and len({width for *_, width in shapes}) > 2


def test_what_describes_a_step_is_over_all_tokens_however_they_are_cut_up(parameters):
    data, asked = given_batch(), LearnSection(micro_batch=4, **EVERYTHING)
    *_, metrics = step(parameters, data, optimizer=ADAM, micro_batch=4, **EVERYTHING)
    now = answer_logprobs_of(
        abstract(SMALL, ONE)[0], shard_parameters(parameters, ONE), data.sequences, ONE, asked, nothing
    )
    mask, mismatch = data.sequences.mask, (data.old_logprobs - data.sampler_logprobs)[data.sequences.mask]
    ratio, worse = (np.exp(now - data.old_logprobs)[mask], (data.advantages < 0)[mask])
    away = (now - data.reference_logprobs)[mask]
    better = (data.advantages > 0)[mask]
    wanted = {
        "ratio": ratio.mean(),
        "ratio_max": ratio.max(),
        "clipped_low": (worse & (ratio < 0.8)).mean(),
        "clipped_high": (better & (ratio > 1.28)).mean(),
        "kl_reference": (np.exp(-away) - 1 + away).mean(),
        "mismatch_mean": np.abs(mismatch).mean(),
        "mismatch_max": np.abs(mismatch).max(),
        "mismatch_factor": np.exp(np.abs(mismatch)).mean(),
        "mismatch_k3": (np.exp(mismatch) - 1 - mismatch).mean(),
        "rows_computed": 15 / 16,
        "update_skipped": 0.0,
    }
    assert metrics.keys() - wanted.keys() == {"loss", "gradient_norm", "entropy"}
    assert {name: metrics[name] for name in wanted} == pytest.approx(wanted, rel=1e-4)
    assert all(isinstance(value, float) for value in metrics.values())
    assert 1.5 < metrics["entropy"] <= np.log(16)  # of random weights
    assert min(wanted["clipped_low"], wanted["clipped_high"]) > 0  # the data has them all


def test_processes_agree_on_the_shapes_of_their_micro_batches(monkeypatch):
    """Each takes its own rows, in one order, by the longest of all processes; none is left out or twice there."""
    monkeypatch.setattr(update_module, "FINEST", 1)
    batches = [given_batch(seed).sequences[: 16 - 5 * seed] for seed in (0, 1)]
    rows = [np.arange(len(batch.starts)) for batch in batches]
    counts, lengths = [np.array([[len(one)]], np.int32) for one in rows], []
    for batch in batches:
        lengths.append(np.zeros((1, 16), np.int32))
        lengths[-1][0, : len(batch.starts)] = np.sort(batch.valid.sum(axis=-1))[::-1]

    parts = []
    for process, (batch, mine) in enumerate(zip(batches, rows, strict=True)):
        exchanges = iter((counts, lengths))

        def exchange(sent, process=process, exchanges=exchanges):
            of_all = next(exchanges)
            np.testing.assert_array_equal(sent, of_all[process])
            return np.concatenate(of_all)

        monkeypatch.setattr(distributed, "all_gather", exchange)
        parts.append(update_module.micro_batches(batch, mine, 4, ONE))
    shapes = [[(part.size, part.width) for part in one] for one in parts]
    assert shapes[0] == shapes[1] and len(set(shapes[0])) > 1
    for batch, mine, one in zip(batches, rows, parts, strict=True):
        assert sorted(np.concatenate([part.rows for part in one])) == mine.tolist()
        assert all(batch.valid[part.rows].sum(axis=-1).max(initial=0) <= part.width for part in one)


@pytest.mark.parametrize("rows", [0, 16])
def test_nothing_to_learn_changes_nothing(parameters, rows):
    data = jax.tree.map(lambda x: x[:rows], given_batch()).replace(advantages=np.zeros((rows, ROOM), np.float32))
    after, state, metrics = step(parameters, data, optimizer=optax.adam(1.0), check=pytest.fail)
    assert_same(after, parameters)
    assert state[0].count == 0
    assert metrics == {"loss": 0, "gradient_norm": 0, "update_skipped": 0, "rows_computed": 0}


class Stopped(Exception):
    """What a check raises in these tests."""


@pytest.mark.parametrize("calls", [1, 3, 5])  # before the first micro-batch, between two, before the parameters go
def test_a_check_that_raises_leaves_everything_as_it_was(parameters, calls):
    graph, placed = abstract(SMALL, ONE)[0], shard_parameters(jax.tree.map(jnp.copy, parameters), ONE)
    state, left = init_state(ADAM, placed, ONE), iter(range(calls - 1))
    settings = LearnSection(micro_batch=4, **EVERYTHING)

    def check():
        if next(left, None) is None:
            raise Stopped

    with pytest.raises(Stopped):
        update(graph, ADAM, placed, state, given_batch(), ONE, settings, check)
    assert list(left) == []
    assert_same(placed, parameters)
    resumed, _, metrics = update(graph, ADAM, placed, state, given_batch(), ONE, settings, nothing)
    unbroken, _, wanted = step(parameters, given_batch(), optimizer=ADAM, micro_batch=4, **EVERYTHING)
    assert_same(resumed, unbroken)
    assert metrics == wanted


@pytest.mark.parametrize("mesh", [(1, 1), (4, 2)])
def test_log_probabilities_of_answers_are_those_of_the_whole_models_logits(parameters, mesh):
    data, mesh, checks = given_batch(), make_mesh(*mesh), []
    found = answer_logprobs_of(
        abstract(SMALL, mesh)[0],
        shard_parameters(jax.tree.map(jnp.copy, parameters), mesh),
        data.sequences,
        mesh,
        LearnSection(micro_batch=4, temperature=0.7),
        lambda: checks.append(0),
    )
    assert len(checks) == 4
    assert found.dtype == np.float32
    sequences = data.sequences

    @jax.jit
    def whole(parameters):
        model = nnx.merge(abstract(SMALL)[0], parameters)
        hidden = model(sequences.tokens, token_positions(sequences.valid), sequences.valid)
        return jax.nn.log_softmax(model.logits(hidden) / 0.7)

    logits = np.asarray(whole(parameters))
    for i, (start, mask) in enumerate(zip(sequences.starts, sequences.mask, strict=True)):
        at = start + np.flatnonzero(mask)
        np.testing.assert_allclose(found[i][mask], logits[i, at - 1, sequences.tokens[i, at]], atol=2e-6)
        assert not found[i][~mask].any()


def test_later_steps_compile_nothing_and_leave_everything_where_it_was(parameters):
    mesh, settings = make_mesh(4, 2), LearnSection(micro_batch=4, **EVERYTHING)
    graph, _ = abstract(SMALL, mesh)
    now = shard_parameters(jax.tree.map(jnp.copy, parameters), mesh)
    optimizer = make_optimizer(settings, updates=3)
    state = init_state(optimizer, now, mesh)
    places = shardings((now, state), mesh)
    sizes = []
    for seed in range(3):
        before = now, state
        now, state, _ = update(graph, optimizer, now, state, given_batch(seed), mesh, settings, nothing)
        sizes.append((accumulate._cache_size(), apply._cache_size(), zeros_like._cache_size()))
        assert jax.tree.structure((now, state)) == jax.tree.structure(places)
        assert [x.sharding for x in jax.tree.leaves((now, state))] == jax.tree.leaves(places)
        assert all(x.is_deleted() for x in jax.tree.leaves(before))  # donated
    assert sizes[0] == sizes[1] == sizes[2]


def test_with_adapters_only_they_are_trained(parameters):
    shape = dataclasses.replace(SMALL, lora=LoRASection(rank=2, alpha=4.0))
    graph, parameters = create(shape, jax.random.key(0), ONE)
    trained, frozen = lora.split(parameters)
    state = init_state(ADAM, trained, ONE)
    assert jax.tree.structure(state[0].mu) == jax.tree.structure(trained)
    old = jax.tree.map(np.asarray, trained)
    after, state, metrics = update(
        graph, ADAM, parameters, state, given_batch(), ONE, LearnSection(micro_batch=8), nothing
    )
    assert jax.tree.structure(after) == jax.tree.structure(parameters)
    new, same = lora.split(after)
    assert all(a is b for a, b in zip(jax.tree.leaves(same), jax.tree.leaves(frozen), strict=True))
    changed = jax.tree.map(lambda a, b: bool((np.asarray(a) != b).any()), new, old)
    by_name = {path[-1]: jax.tree.leaves(variable)[0] for path, variable in nnx.to_flat_state(changed)}
    assert by_name == {"lora_a": False, "lora_b": True}
    assert metrics["gradient_norm"] > 0


@pytest.mark.parametrize(
    ("gradient", "loss"), [(np.nan, 1.0), (np.inf, 1.0), (1e30, 1.0), (1.0, np.nan), (1.0, np.inf)]
)
def test_loss_and_gradient_norm_must_both_be_finite(gradient, loss):
    trained = nnx.State({"weight": nnx.Param(jnp.ones(4), spec=P(None))})
    state = ADAM.init(trained)
    total = Total(gradients=jax.tree.map(lambda w: w * jnp.float32(gradient), trained), loss=jnp.float32(loss))
    after, state, _, finite = apply(ADAM, trained, state, total, np.float32(1), mesh=ONE)
    assert not finite
    np.testing.assert_array_equal(after["weight"][...], 1)
    assert state[0].count == 0 and not state[0].mu["weight"][...].any()
