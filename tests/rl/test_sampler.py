"""Sampling says what the model says, whatever the rows, the refills and the mesh; the host's queue loses nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import strict
from flax import nnx
from shapes import MEDIUM

from rl.config import RunError
from rl.model.decoder import abstract, create, token_positions
from rl.model.logprobs import join
from rl.model.sampler import Sampler, SamplingParams
from rl.model.sampler.draw import draw, likeliest
from rl.model.sampler.programs import programs
from rl.model.sampler.schedule import Schedule
from rl.model.sharding import make_mesh, rollout_shardings
from rl.run.keys import Purpose, make_key

SHAPE = MEDIUM
STOPS = (3, 14, 15, 9)
PROMPTS = [list(range(1 + i, 2 + i + n)) for i, n in enumerate([4, 3, 0, 2, 1, 4, 2, 0])]  # ragged, 1 to 5 tokens
TOKENS = 9


@pytest.fixture(scope="module")
def weights():
    """Parameters on one device; made once, for that is what takes the longest to compile."""
    return create(SHAPE, jax.random.key(0), make_mesh(1, 1))[1]


def sampler_on(weights, fsdp=1, tp=1, rows=16):
    """A sampler and its rollout parameters, the same numbers on every mesh."""
    mesh = make_mesh(fsdp, tp)
    graph, _ = abstract(SHAPE, mesh)
    sampler = Sampler(graph, SHAPE, mesh, rows, max_prompt_tokens=5, max_new_tokens=TOKENS, stop_ids=STOPS)
    return sampler, jax.device_put(weights, rollout_shardings(weights, mesh))


@pytest.fixture(scope="module")
def alone(weights):
    """One device, and a row for each of two answers to every prompt."""
    return sampler_on(weights)


def sample(sampler_and_parameters, seed=0, sampling=SamplingParams(), samples=2, prompts=PROMPTS, **more):  # noqa: B008
    sampler, parameters = sampler_and_parameters
    return sampler.generate(parameters, prompts, jax.random.key(seed), samples=samples, sampling=sampling, **more)


@pytest.fixture(scope="module")
def forward(alone):
    """Logits of whole sequences ``[16, 14, V]`` by the training forward, right-padded."""
    sampler, parameters = alone

    @jax.jit
    def run(tokens, valid):
        model = nnx.merge(sampler.graph, parameters)
        return model.logits(model(tokens, token_positions(valid), valid))

    def logits(prompts, rollout):
        """Float32 ``[B, T, V]``, what each answer token was drawn from."""
        sequences = join(prompts, 5, rollout.tokens, rollout.mask)
        whole = np.asarray(run(sequences.tokens, sequences.valid))
        return np.stack([row[len(p) - 1 :][:TOKENS] for row, p in zip(whole, prompts, strict=True)])

    return logits


TWICE = [p for p in PROMPTS for _ in range(2)]


def test_samples_follow_the_models_distribution(alone, forward):
    rollout = sample(alone, prompts=PROMPTS[:1] * 250, samples=8)
    first = jax.tree.map(lambda x: x[:16], rollout)
    expected = np.asarray(jax.nn.softmax(forward(PROMPTS[:1] * 16, first)[0, 0]))
    found = np.bincount(rollout.tokens[:, 0], minlength=SHAPE.vocab_size) / 2000
    assert ((found - expected) ** 2 / expected).sum() * 2000 < 63 + 4.5 * np.sqrt(2 * 63)  # chi-squared


@pytest.mark.parametrize("temperature", [0.0, 1e-20, 1e-38])
def test_greedy_takes_the_likeliest_token(alone, forward, temperature):
    rollout, again = (sample(alone, seed, SamplingParams(temperature)) for seed in (0, 5))
    np.testing.assert_array_equal(rollout.tokens, again.tokens)
    best = forward(TWICE, rollout).argmax(axis=-1)
    np.testing.assert_array_equal(rollout.tokens[rollout.mask], best[rollout.mask])


def test_an_answer_ends_at_its_first_stop_token_which_counts(alone):
    rollout = sample(alone, samples=8)
    lengths = rollout.mask.sum(axis=1)
    for tokens, mask, length, truncated in zip(
        *(getattr(rollout, k) for k in ("tokens", "mask")), lengths, rollout.truncated, strict=True
    ):
        assert mask[:length].all() and not np.isin(tokens[: length - 1], STOPS).any()
        assert truncated == (tokens[length - 1] not in STOPS)
        assert not truncated or length == TOKENS
    assert set(lengths) >= {1, 2, 3, TOKENS}, "the lengths are ragged"


def test_keys_and_samples_draw_tokens_of_their_own(alone):
    np.testing.assert_array_equal(sample(alone, seed=1).tokens, sample(alone, seed=1).tokens)
    assert (sample(alone, seed=1).tokens != sample(alone, seed=2).tokens).any()
    pairs = sample(alone).tokens.reshape(-1, 2, TOKENS)
    assert (pairs[:, 0] != pairs[:, 1]).any(axis=-1).all()


def assert_same(a, b):
    np.testing.assert_array_equal(a.mask, b.mask)
    np.testing.assert_array_equal(a.tokens[a.mask], b.tokens[b.mask])
    np.testing.assert_array_equal(a.truncated, b.truncated)
    np.testing.assert_allclose(a.logprobs[a.mask], b.logprobs[b.mask], atol=1e-5)


def test_tokens_of_a_seed_do_not_depend_on_jaxs_options(alone):
    sampler, parameters = alone

    def tokens():
        return sampler.generate(parameters, PROMPTS, make_key(7, Purpose.ROLLOUT))

    expected = tokens()
    with strict.settings(jax_default_prng_impl="unsafe_rbg", jax_enable_x64=True):
        assert_same(tokens(), expected)


def test_rows_draw_by_keys_of_their_own(alone):
    sampler, parameters = alone
    together = sampler.generate(parameters, PROMPTS, jax.random.key(3))
    for row in (1, 6):
        single = sampler.generate(parameters, PROMPTS[row : row + 1], jax.random.key(3), first_request=row)
        assert_same(single, together[row : row + 1])


def test_a_model_that_computes_no_numbers_is_one_line(alone):
    sampler, parameters = alone
    with pytest.raises(
        RunError, match="log-probabilities are NaN or infinite.* too large for student.model.dtype = float32$"
    ):
        sample((sampler, jax.tree.map(lambda x: x * jnp.inf, parameters)))


@pytest.mark.parametrize(
    ("fsdp", "tp", "rows"),
    [(4, 2, 8), *(pytest.param(*mesh, marks=pytest.mark.slow) for mesh in ((8, 1, 16), (2, 4, 4)))],
)
def test_tokens_do_not_depend_on_the_mesh(alone, weights, fsdp, tp, rows):
    assert_same(sample(alone), sample(sampler_on(weights, fsdp, tp, rows)))


def test_nothing_compiles_in_steady_state(alone):
    compiled = programs(alone[0])
    sample(alone, prompts=PROMPTS * 3)  # the rows are filled again
    before = [program._cache_size() for program in compiled]
    for seed, temperature, count in [(1, 0.3, 24), (2, 0.0, 13), (3, 1.0, 3)]:
        sample(alone, seed, SamplingParams(temperature), prompts=(PROMPTS * 3)[-count:])
    assert [program._cache_size() for program in compiled] == before


jit_draw = jax.jit(draw, static_argnames="truncated")


def drawn(logits, sampling, count=4000, allowed=None, seed=0):
    """Frequencies of `count` draws from one row of logits."""
    rows = np.broadcast_to(np.float32(logits), (count, len(logits)))
    allowed = None if allowed is None else np.broadcast_to(allowed, rows.shape)
    uniforms = jax.random.uniform(jax.random.key(seed), (count, 2))
    tokens, _ = jit_draw(rows, uniforms, sampling, truncated=sampling.truncated, allowed=allowed)
    return np.bincount(tokens, minlength=len(logits)) / count


def by_hand(logits, sampling):
    """The distribution that top-k and then top-p leave, in numpy."""
    p = np.exp(np.float64(logits) / sampling.temperature)
    order = np.argsort(-p)
    p[order[sampling.top_k or len(p) :]] = 0
    p /= p.sum()
    p[order[1:][np.cumsum(p[order])[:-1] >= sampling.top_p]] = 0
    return p / p.sum()


@pytest.mark.parametrize(
    "sampling",
    [SamplingParams(top_k=1), SamplingParams(top_k=7), SamplingParams(top_p=0.7), SamplingParams(top_k=30, top_p=0.9)],
    ids=str,
)
def test_the_likeliest_are_those_at_the_head_of_a_sorted_vocabulary(sampling):
    """Of rows of few and of large numbers, of both signs, some forbidden, without two that are equal."""
    rng = np.random.default_rng(0)
    logits = (
        rng.normal(size=(6, 97)) * [[0.01], [1], [3], [3], [10], [20]] - [[0], [0], [20], [-20], [0], [0]]
    ).astype(np.float32)
    logits[:, 40:50] = -np.inf
    for found, row in zip(np.asarray(jax.jit(likeliest)(logits, sampling)), logits, strict=True):
        np.testing.assert_array_equal(found, by_hand(np.float64(row) - row.max(), sampling) > 0)


@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("masked", [False, True])
def test_logprobs_are_those_of_a_softmax_at_any_temperature(top_p, masked):
    logits = np.random.default_rng(1).normal(size=(64, 256)).astype(np.float32) * 3
    allowed = np.arange(256) % 2 == np.arange(64)[:, None] % 2 if masked else None
    run = jax.jit(lambda x, u, s: draw(x, u, s, truncated=top_p < 1, allowed=allowed))
    for temperature in (1e-30, 1e-20, 1e-12, 1e-6, 1e-3, 1.0):
        tokens, logprobs = run(logits, np.full((64, 2), 0.5, np.float32), SamplingParams(temperature, top_p=top_p))
        scaled = logits.astype(np.float64) / temperature
        scaled -= scaled.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(scaled, np.asarray(tokens)[:, None], axis=1)[:, 0]
        expected = chosen - np.log(np.exp(scaled).sum(axis=-1))
        np.testing.assert_allclose(logprobs, expected, rtol=1e-4, atol=1e-6 * max(1, np.abs(scaled).max()))
        if temperature < 1e-9:
            likely = np.where(allowed, logits, -np.inf) if masked else logits
            np.testing.assert_array_equal(tokens, likely.argmax(axis=-1))


def test_a_token_that_may_not_come_never_does_and_the_others_come_as_often_as_they_should():
    logits = np.random.default_rng(0).normal(size=1000) * 3
    logits[:990] += 80.0  # the allowed ones have a probability that underflows
    allowed = np.arange(1000) >= 990
    found = drawn(logits, SamplingParams(), allowed=allowed)
    assert found[allowed].sum() == 1
    expected = np.exp(logits[990:]) / np.exp(logits[990:]).sum()
    np.testing.assert_allclose(found[990:], expected, atol=4.5 * np.sqrt(0.25 / 4000))
    assert drawn(logits, SamplingParams(0.0), allowed=allowed).argmax() == logits[990:].argmax() + 990
    few = SamplingParams(3.0, top_k=4)
    found, expected = drawn(logits, few, allowed=allowed)[990:], by_hand(logits[990:], few)
    assert found[expected == 0].sum() == 0
    np.testing.assert_allclose(found, expected, atol=4.5 * np.sqrt(0.25 / 4000))


def follow(schedule, rng):
    """Plays a schedule to its end with rows that end at random; every admission as lists."""
    seen = []
    while schedule.active:
        while schedule.ready:
            seen.append([[(p, r.tolist()) for p, r in groups] for groups in schedule.admit()])
        done = rng.random(schedule.held.size) < 0.4
        schedule.release(done | (schedule.held < 0).reshape(-1))
    return seen


def test_processes_foresee_each_others_admissions(monkeypatch):
    calls, entered = [], []
    for process in (0, 1):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        seen = follow(Schedule([0, 0, 1, 1], width=6, prompts=9, samples=2), np.random.default_rng(0))
        calls.append(len(seen))
        entered.append(sorted(p for shards in seen for groups in shards for p, _ in groups))
    assert calls[0] == calls[1]
    assert entered == [list(range(9))] * 2
