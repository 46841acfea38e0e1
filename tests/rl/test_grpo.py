"""Advantages and loss by hand, gradients by finite differences of nothing but the formula, and a policy that learns."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from rl import distributed, grpo
from rl.config import GRPOSection
from rl.logprobs import Sequences, join
from rl.qwen3 import lora
from rl.qwen3.model import Qwen3Config, abstract, create, token_positions
from rl.qwen3.sharding import make_mesh, shard_parameters, shardings


def batch(old, advantages, mask=None):
    old = np.asarray(old, np.float32)
    mask = np.ones_like(old, bool) if mask is None else np.asarray(mask)
    nothing = np.zeros((len(old), 1), np.int32)
    return grpo.Batch(
        sequences=Sequences(tokens=nothing, valid=nothing == 0, starts=nothing[:, 0], mask=mask),
        old_logprobs=old,
        advantages=np.asarray(advantages, np.float32),
    )


def test_advantages_are_standard_scores_within_each_group():
    rewards = np.array([[0.0, 0.0, 1.0, 1.0], [3.0, 1.0, 1.0, 3.0]], np.float32)
    np.testing.assert_allclose(
        grpo.group_advantages(rewards), [[-1, -1, 1, 1], [1, -1, -1, 1]], atol=1e-3
    )  # population standard deviations .5 and 1


def test_a_group_of_equals_teaches_nothing():
    advantages = grpo.group_advantages(np.array([[0.3, 0.3, 0.3]], np.float32))
    np.testing.assert_array_equal(advantages, 0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, -2.0),
        (1.1, 1.0, -1.1),
        (1.5, 1.0, -1.28),  # clipped above
        (0.5, 1.0, -0.5),  # a good token that became unlikely is not clipped
        (0.5, -1.0, 0.8),  # clipped below
        (1.5, -1.0, 1.5),  # a bad token that became likely is not clipped
    ],
)
def test_clipped_loss_of_one_token(ratio, advantage, expected):
    loss, _ = grpo.clipped_loss(jnp.log(jnp.array([[ratio]])), batch([[0.0]], [advantage]), 0.2, 0.28)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_the_loss_sums_over_tokens_not_over_answers():
    logprobs = jnp.zeros((2, 3))
    data = batch(np.zeros((2, 3)), [1.0, -2.0], [[True, True, True], [True, False, False]])
    loss, metrics = grpo.clipped_loss(logprobs, data, 0.2, 0.28)
    assert float(loss) == pytest.approx(-(3 * 1.0 + 1 * -2.0))
    assert float(metrics["ratio"]) == pytest.approx(4.0)
    assert float(metrics["clipped"]) == 0.0


def test_the_gradient_on_policy_is_the_policy_gradient():
    logprobs = jnp.array([[-1.0, -2.0], [-0.5, -3.0]])
    data = batch(logprobs, [1.5, -0.5], [[True, True], [True, False]])
    gradient = jax.grad(lambda x: grpo.clipped_loss(x, data, 0.2, 0.28)[0])(logprobs)
    np.testing.assert_allclose(gradient, [[-1.5, -1.5], [0.5, 0.0]], rtol=1e-6)


def test_masked_tokens_may_hold_anything():
    wild = jnp.array([[0.0, 1e4]])
    loss, _ = grpo.clipped_loss(wild, batch([[0.0, -1e4]], [1.0], [[True, False]]), 0.2, 0.28)
    assert float(loss) == pytest.approx(-1.0)


SHAPE = Qwen3Config(
    vocab_size=16,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    rope_theta=1e4,
)


ONE = make_mesh(1, 1)


def given_batch(seed=0):
    """Sixteen answers of one to five tokens to prompts of one to four, two of them with nothing to learn from."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, 16, n).tolist() for n in rng.integers(1, 5, 16)]
    answers, mask = rng.integers(0, 16, (16, 5)).astype(np.int32), np.arange(5) < rng.integers(1, 6, (16, 1))
    advantages = rng.normal(size=16).astype(np.float32)
    advantages[4:6] = 0  # skipped, but their tokens count in the mean
    return grpo.Batch(
        sequences=join(prompts, 4, answers, mask),
        old_logprobs=rng.normal(-2.8, 0.1, (16, 5)).astype(np.float32),
        advantages=advantages,
    )


def gradient(parameters, data, mesh, micro_batch):
    """What `update` moves parameters by, at plain gradient descent with rate 1, and its metrics."""
    graph, _ = abstract(SHAPE, mesh)
    placed = shard_parameters(jax.tree.map(jnp.copy, parameters), mesh)
    optimizer = optax.sgd(1.0)
    settings = GRPOSection(micro_batch=micro_batch)
    state = grpo.init(optimizer, placed, mesh)
    after, _, metrics = grpo.update(graph, optimizer, placed, state, data, mesh, settings)
    return jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), parameters, after), metrics


def assert_close(found, expected, rel):
    """Every array within `rel` of its largest value."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=rel * np.abs(b).max())


@pytest.fixture(scope="module")
def parameters():
    return create(SHAPE, jax.random.key(0))[1]


@pytest.fixture(scope="module")
def expected(parameters):
    """The gradient by autodiff of the formula alone, over all logits of all positions."""
    data, graph = given_batch(), abstract(SHAPE)[0]
    sequences, settings = data.sequences, GRPOSection()
    rows, steps = np.arange(16)[:, None], sequences.starts[:, None] + np.arange(5)

    def loss(parameters):
        model = nnx.merge(graph, parameters)
        hidden = model(sequences.tokens, token_positions(sequences.valid), sequences.valid)
        logprobs = jax.nn.log_softmax(model.logits(hidden))[rows, steps - 1, sequences.tokens[rows, steps]]
        ratio = jnp.exp(logprobs - data.old_logprobs)
        clipped = jnp.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
        advantages = data.advantages[:, None]
        return -(jnp.minimum(ratio * advantages, clipped * advantages) * sequences.mask).sum() / sequences.mask.sum()

    return jax.jit(jax.grad(loss))(parameters)


@pytest.mark.parametrize("micro_batch", [1, 5])
def test_micro_batches_add_up_to_the_gradient_of_the_mean_over_all_answer_tokens(parameters, expected, micro_batch):
    found, metrics = gradient(parameters, given_batch(), ONE, micro_batch)
    assert_close(found, expected, rel=1e-5)
    assert metrics["gradient_norm"] == pytest.approx(float(optax.global_norm(expected)), rel=1e-5)


@pytest.mark.parametrize(("fsdp", "tp", "micro_batch"), [(8, 1, 16), (4, 2, 4), (2, 4, 3)])
def test_every_mesh_gives_the_same_gradient(parameters, expected, fsdp, tp, micro_batch):
    found, metrics = gradient(parameters, given_batch(), make_mesh(fsdp, tp), micro_batch)
    assert_close(found, expected, rel=1e-5)
    assert metrics["gradient_norm"] == pytest.approx(float(optax.global_norm(expected)), rel=1e-5)


def test_rows_of_another_process_count_in_the_mean_and_in_the_number_of_micro_batches(
    monkeypatch, parameters, expected
):
    mine = given_batch().sequences.mask.sum()
    other = np.array([[7, 30, 20]], np.int32)  # micro-batches, answer tokens, those of answers with an advantage
    monkeypatch.setattr(distributed, "gather", lambda counts: np.concatenate([counts, other]))
    calls, accumulate = [], grpo.accumulate
    monkeypatch.setattr(grpo, "accumulate", lambda *args, **rest: calls.append(0) or accumulate(*args, **rest))
    found, _ = gradient(parameters, given_batch(), ONE, 5)
    assert len(calls) == 7  # of which this process has three, and takes part in the rest with rows that do not count
    assert_close(found, jax.tree.map(lambda g: g * mine / (mine + 30), expected), rel=1e-5)


def test_the_second_step_compiles_nothing_and_leaves_everything_where_it_was(parameters):
    mesh = make_mesh(4, 2)
    graph, _ = abstract(SHAPE, mesh)
    now = shard_parameters(jax.tree.map(jnp.copy, parameters), mesh)
    optimizer = grpo.make_optimizer(GRPOSection())
    state = grpo.init(optimizer, now, mesh)
    places = shardings((now, state), mesh)
    sizes = []
    for seed in range(3):
        before = now, state
        now, state, _ = grpo.update(graph, optimizer, now, state, given_batch(seed), mesh, GRPOSection(micro_batch=4))
        sizes.append((grpo.accumulate._cache_size(), grpo.apply._cache_size(), grpo.zeros_like._cache_size()))
        assert jax.tree.map(lambda x: x.sharding, (now, state)) == places
        assert all(x.is_deleted() for x in jax.tree.leaves(before))  # donated
    assert sizes[0] == sizes[1] == sizes[2]


def test_with_adapters_only_they_are_trained(parameters):
    shape = Qwen3Config(**vars(SHAPE) | {"lora": lora.LoRAConfig(2, 4.0, ("down_proj",))})
    graph, parameters = create(shape, jax.random.key(0), ONE)
    optimizer = optax.adam(1e-2)
    state = grpo.init(optimizer, parameters, ONE)
    trained, frozen = lora.split(parameters)
    assert jax.tree.structure(state[0].mu) == jax.tree.structure(trained)
    old = jax.tree.map(np.asarray, trained)
    after, state, metrics = grpo.update(
        graph, optimizer, parameters, state, given_batch(), ONE, GRPOSection(micro_batch=8)
    )
    assert jax.tree.structure(after) == jax.tree.structure(parameters)
    new, same = lora.split(after)
    assert all(a is b for a, b in zip(jax.tree.leaves(same), jax.tree.leaves(frozen), strict=True))
    changed = jax.tree.map(lambda a, b: bool((np.asarray(a) != b).any()), new, old)
    assert {path[-1]: v.get_value() for path, v in nnx.to_flat_state(changed)} == {"lora_a": False, "lora_b": True}
    assert metrics["gradient_norm"] > 0


def test_nothing_to_learn_changes_nothing(parameters):
    data = given_batch()
    found, metrics = gradient(parameters, data.replace(advantages=np.zeros(16, np.float32)), ONE, 8)
    assert_close(found, jax.tree.map(np.zeros_like, found), rel=0)
    assert metrics["gradient_norm"] == 0


@functools.partial(jax.jit, static_argnames=("graph",))
def say_three(graph, parameters, prompts, key):
    """Samples three tokens after each prompt of two; the tokens, and their log-probabilities from all logits."""
    model, tokens = nnx.merge(graph, parameters), jnp.pad(prompts, ((0, 0), (0, 3)))
    valid, logprobs = jnp.ones(tokens.shape, bool), []
    for t in range(2, 5):
        logits = jax.nn.log_softmax(model.logits(model(tokens, token_positions(valid), valid)[:, t - 1]))
        drawn = jax.random.categorical(jax.random.fold_in(key, t), logits)
        tokens = tokens.at[:, t].set(drawn)
        logprobs.append(jnp.take_along_axis(logits, drawn[:, None], axis=-1))
    return tokens[:, 2:], jnp.concatenate(logprobs, axis=1)


def test_a_policy_learns_to_say_what_is_rewarded(parameters):
    graph, parameters = abstract(SHAPE, ONE)[0], shard_parameters(jax.tree.map(jnp.copy, parameters), ONE)
    optimizer = optax.adam(1e-2)
    state = grpo.init(optimizer, parameters, ONE)
    prompts = np.repeat(np.arange(8, dtype=np.int32).reshape(4, 2), 8, axis=0)
    shares = []
    for i in range(25):
        said, logprobs = map(np.asarray, say_three(graph, parameters, prompts, jax.random.key(i)))
        wanted = (said == 7).mean(axis=1).astype(np.float32)
        shares.append(wanted.mean())
        data = grpo.Batch(
            sequences=join(prompts.tolist(), 2, said, np.ones_like(said, bool)),
            old_logprobs=logprobs,
            advantages=grpo.group_advantages(wanted.reshape(-1, 8)).reshape(-1),
        )
        settings = GRPOSection(micro_batch=8)
        parameters, state, metrics = grpo.update(graph, optimizer, parameters, state, data, ONE, settings)
        if metrics["gradient_norm"]:
            assert metrics["ratio"] == pytest.approx(1.0, abs=1e-4)  # who samples and who trains agree
    assert shares[0] < 0.2
    assert np.mean(shares[-3:]) > 0.7
