"""Sampling says what the model says: log-probs of the full forward, stops honoured, grammar kept, keys that matter."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from engineer import proposal
from jaxlake.config import LakeConfig, project
from rl.grpo import answer_logprobs
from rl.qwen3.model import Qwen3, Qwen3Config
from rl.qwen3.sharding import make_mesh, shard_batch, shard_parameters
from rl.qwen3.tokenizer import Tokenizer
from rl.sampler import GrammarSampler, generate

SHAPE = Qwen3Config(
    vocab_size=768,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    rope_theta=1e6,
)
PROMPTS = np.arange(1, 41, dtype=np.int32).reshape(8, 5)
VALID = np.arange(5) >= np.array([0, 1, 2, 3, 4, 0, 2, 4])[:, None]  # ragged, left-padded


@pytest.fixture(scope="module")
def model():
    return nnx.split(Qwen3(SHAPE, nnx.Rngs(0)))


def sample(model, key=0, temperature=1.0, samples=2, stop_ids=(600,), prompts=PROMPTS, valid=VALID):
    return jax.tree.map(
        np.asarray,
        generate(
            *model,
            prompts,
            valid,
            jax.random.key(key),
            temperature,
            samples=samples,
            max_new_tokens=7,
            stop_ids=stop_ids,
        ),
    )


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_prefill_and_decode_logprobs_equal_the_full_forwards(model, temperature):
    rollout = sample(model, temperature=temperature)
    tokens = np.concatenate([np.repeat(PROMPTS, 2, axis=0), rollout.tokens], axis=1)
    valid = np.concatenate([np.repeat(VALID, 2, axis=0), rollout.mask], axis=1)
    logprobs, _ = answer_logprobs(nnx.merge(*model), tokens, valid, 7, temperature)
    np.testing.assert_allclose(rollout.logprobs[rollout.mask], logprobs[rollout.mask], atol=1e-5)


def test_samples_follow_the_models_distribution(model):
    rollout = sample(model, samples=2000, prompts=PROMPTS[:1], valid=VALID[:1])
    logits = nnx.merge(*model)
    hidden, _ = logits(PROMPTS[:1], jnp.arange(5)[None], jnp.tril(jnp.ones((1, 5, 5), bool)))
    expected = np.asarray(jax.nn.softmax(logits.logits(hidden[0, -1])))
    found = np.bincount(rollout.tokens[:, 0], minlength=SHAPE.vocab_size) / 2000
    likely = np.argsort(expected)[-5:]
    error = np.sqrt(expected * (1 - expected) / 2000)
    assert np.all(np.abs(found - expected)[likely] < 4.5 * error[likely])


def test_greedy_takes_the_likeliest_token(model):
    rollout = sample(model, temperature=0.0, samples=1)
    again = sample(model, key=5, temperature=0.0, samples=1)
    np.testing.assert_array_equal(rollout.tokens, again.tokens)
    tokens = np.concatenate([PROMPTS, rollout.tokens], axis=1)
    valid = np.concatenate([VALID, rollout.mask], axis=1)
    hidden, _ = nnx.merge(*model)(tokens, *_positions_and_mask(valid))
    best = np.asarray(nnx.merge(*model).logits(hidden[:, 4:-1]).argmax(-1))
    np.testing.assert_array_equal(rollout.tokens[rollout.mask], best[rollout.mask])


def _positions_and_mask(valid):
    from rl.qwen3.model import causal_mask, token_positions

    return token_positions(jnp.asarray(valid)), causal_mask(jnp.asarray(valid))


def test_an_answer_ends_at_its_stop_token_which_counts(model):
    free = sample(model)
    stop = int(free.tokens[0, 2])
    rollout = sample(model, stop_ids=(stop,))
    for tokens, mask, truncated in zip(rollout.tokens, rollout.mask, rollout.truncated, strict=True):
        length = mask.sum()
        assert mask[:length].all()
        assert truncated == (stop not in tokens[mask])
        assert stop not in tokens[: length - 1]
    assert rollout.mask[0].sum() <= 3


def test_another_key_gives_other_tokens_and_the_same_key_the_same(model):
    np.testing.assert_array_equal(sample(model, key=1).tokens, sample(model, key=1).tokens)
    assert (sample(model, key=1).tokens != sample(model, key=2).tokens).any()


def test_samples_of_one_prompt_differ(model):
    tokens = sample(model, samples=4).tokens.reshape(8, 4, 7)
    assert (tokens[:, 0] != tokens[:, 1]).any()


@pytest.mark.parametrize(("fsdp", "tp"), [(8, 1), (4, 2)])
def test_tokens_do_not_depend_on_the_mesh(model, fsdp, tp):
    mesh = make_mesh(fsdp, tp)
    spread = sample(
        (model[0], shard_parameters(model[1], mesh)),
        prompts=shard_batch(PROMPTS, mesh),
        valid=shard_batch(VALID, mesh),
    )
    alone = sample(model)
    np.testing.assert_array_equal(alone.tokens, spread.tokens)
    np.testing.assert_allclose(alone.logprobs, spread.logprobs, atol=1e-5)


def test_nothing_compiles_in_steady_state(model):
    sample(model, key=1)
    before = generate._cache_size()
    sample(model, key=2, temperature=0.3)
    sample(model, key=3, temperature=0.0)
    assert generate._cache_size() == before


class RandomLogits:
    """A grammar sampler's stand-in for a very bad model: the real sampler over parameters that are pure noise."""

    sizes = (3, 4, 5, 6)

    def __init__(self, max_thinking_tokens=4):
        self.graph, self.parameters = nnx.split(Qwen3(SHAPE, nnx.Rngs(0)))
        self.sampler = GrammarSampler(
            graph=self.graph,
            tokenizer=Tokenizer(),
            vocabulary=SHAPE.vocab_size,
            max_prompt_tokens=16,
            max_thinking_tokens=max_thinking_tokens,
            max_answer_tokens=400,
            temperature=5.0,
        )

    def write(self, seed: int, parameters=None) -> tuple[str, str, str]:
        parameters = self.parameters if parameters is None else parameters
        return self.sampler(parameters, "design", proposal.grammar(self.sizes), jax.random.key(seed))


def test_the_sampler_writes_a_legal_config_whatever_the_logits():
    noise = RandomLogits()
    previous = LakeConfig.uniform(noise.sizes, 0.25, 0.25)
    for seed in range(4):
        _, _, answer = noise.write(seed)
        config, _ = project(json.loads(answer), previous)
        assert config.sizes == noise.sizes
        assert abs(sum(config.data) - 1) < 1e-6
        assert set(json.loads(answer)) == {"3", "4", "5", "6"}


def test_other_parameters_write_another_config():
    noise = RandomLogits()
    other = nnx.split(Qwen3(SHAPE, nnx.Rngs(1)))[1]
    assert noise.write(0) == noise.write(0)
    assert noise.write(0) != noise.write(0, other)


def test_thinking_is_cut_at_its_cap():
    noise = RandomLogits()
    raw, thinking, answer = noise.write(0)
    assert raw.endswith(f"\n</think>\n\n{answer}")
    assert len(noise.sampler.tokenizer.encode(thinking)) <= 4 + 2  # reading back may split a token or two


def test_a_thought_that_the_model_closes_itself_stays_as_it_wrote_it():
    noise = RandomLogits(max_thinking_tokens=256)  # One token in 768 closes it.
    texts = [noise.write(seed)[0] for seed in range(6)]
    ends = [text[: text.index("</think>")] for text in texts]
    assert all("</think>\n\n{" in text for text in texts)
    assert any(not end.endswith("\n") for end in ends) and any(end.endswith("\n") for end in ends)
