"""A thought at its cap is closed by the sampler, as a token by token decoding says; its tokens teach nothing."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from shapes import SMALL

from rl.model.decoder import create, token_positions
from rl.model.sampler import Sampler, SamplingParams, ThinkingBudget
from rl.model.sharding import make_mesh

STOP, OPEN, END = 3, 2, 5
BUDGET = ThinkingBudget(4, (11, 12, END, 13), None, END)
TOKENS = 14
PROMPTS = [[1 + i, *range(6, 6 + i % 4)] for i in range(12)]


@pytest.fixture(scope="module")
def model():
    """A sampler with a cap, and its parameters."""
    mesh = make_mesh(1, 1)
    graph, parameters = create(dataclasses.replace(SMALL, num_hidden_layers=2), jax.random.key(1), mesh)
    config = dataclasses.replace(SMALL, num_hidden_layers=2)
    sampler = Sampler(graph, config, mesh, 12, 4, TOKENS, stop_ids=(STOP,), thinking=BUDGET)
    return sampler, parameters


def write(sampler, parameters, temperature=1.0, prompts=PROMPTS, seed=0):
    sampling = SamplingParams(temperature)
    return sampler.generate(parameters, prompts, jax.random.key(seed), samples=1, sampling=sampling)


def by_hand(logits_behind, prompt, opens):
    """A greedy answer by a whole forward pass a token: (token, its log-probability, whether it was forced) of each."""
    written, answer, to_come = list(prompt), [], None
    while len(answer) < TOKENS and (not answer or answer[-1][0] != STOP):
        padded = np.zeros(4 + TOKENS, np.int32)
        padded[: len(written)] = written
        logprobs = np.asarray(jax.nn.log_softmax(logits_behind(padded, len(written))))
        own = written[len(prompt) :]
        if len(answer) == BUDGET.tokens and END not in own and (OPEN in own or not opens):
            to_come = list(BUDGET.closing)
        token = to_come.pop(0) if (forced := bool(to_come)) else int(logprobs.argmax())
        answer.append((token, logprobs[token], forced))
        written.append(token)
    return answer


@pytest.mark.parametrize("opens", [False, pytest.param(True, marks=pytest.mark.heavy)])
def test_a_capped_answer_is_what_decoding_by_hand_gives(model, opens):
    """Whether the prompt opens the thought or the answer does."""
    capped, parameters = model
    if opens:
        capped = dataclasses.replace(capped, thinking=dataclasses.replace(BUDGET, open_id=OPEN))
    rollout = write(capped, parameters, temperature=0.0)

    @jax.jit
    def logits_behind(tokens, length):
        valid = jnp.arange(len(tokens))[None] < length
        net = nnx.merge(capped.graph, parameters)
        return net.logits(net(tokens[None], token_positions(valid), valid))[0, length - 1]

    for row, prompt in enumerate(PROMPTS):
        tokens, logprobs, forced = map(np.array, zip(*by_hand(logits_behind, prompt, opens), strict=True))
        mask = rollout.mask[row]
        np.testing.assert_array_equal(rollout.tokens[row][mask], tokens)
        np.testing.assert_array_equal(rollout.forced[row][mask], forced)
        np.testing.assert_allclose(rollout.logprobs[row][mask], logprobs, atol=1e-5)
    assert not rollout.forced[~rollout.mask].any()
    assert rollout.forced.any(), "some thoughts are open at the cap"
    assert not opens or not rollout.forced.any(axis=1)[rollout.mask[:, 4]].all(), "and some answers have none"


@pytest.mark.heavy
def test_rows_that_are_filled_again_remember_no_earlier_thought(model):
    sampler, parameters = model
    together = write(sampler, parameters, prompts=PROMPTS * 8)
    queued = write(dataclasses.replace(sampler, rows=3), parameters, prompts=PROMPTS * 8)
    np.testing.assert_array_equal(queued.mask, together.mask)
    np.testing.assert_array_equal(queued.tokens[queued.mask], together.tokens[queued.mask])
    np.testing.assert_array_equal(queued.forced, together.forced)
