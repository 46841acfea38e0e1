"""What holds for Qwen3 holds with biases, without norms and with scaled frequencies: meshes and the sampler."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import CONFIGS, write_checkpoint
from flax import nnx

from rl.model import weights
from rl.model.decoder import token_positions
from rl.model.logprobs import answer_logprobs, join
from rl.model.presets import read_config
from rl.model.sampler import Sampler, SamplingParams
from rl.model.sharding import for_rollout, make_mesh

pytestmark = pytest.mark.heavy

close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
TOKENS = np.random.default_rng(1).integers(0, 48, (4, 9))
VALID = np.arange(9) < np.array([9, 4, 7, 9])[:, None]


@pytest.fixture(scope="module", params=["qwen2", "llama3"])
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    write_checkpoint(path, CONFIGS[request.param], seed=3)
    return path


@functools.partial(jax.jit, static_argnames="graph")
def logits(graph, parameters, tokens=TOKENS, valid=VALID):
    model = nnx.merge(graph, parameters)
    return model.logits(model(tokens, token_positions(valid), valid))


@functools.partial(jax.jit, static_argnames="graph")
def gradients(graph, parameters):
    def loss(parameters):
        shares = jax.nn.log_softmax(logits(graph, parameters))
        return jnp.where(VALID, shares[..., 0], 0).sum() / VALID.sum()

    return jax.grad(loss)(parameters)


def test_every_parameter_moves_the_logits_and_a_mesh_changes_no_gradient(folder):
    """Over four devices along `tp` the two key-value heads do not divide."""
    shape = read_config(folder)
    graph, parameters = weights.load(folder, shape)
    moved = gradients(graph, parameters)
    for path, variable in nnx.to_flat_state(moved):
        assert np.abs(np.asarray(variable[...])).max() > 0, path
    jax.tree.map(close, gradients(*weights.load(folder, shape, make_mesh(2, 4))), moved)


def test_the_sampler_draws_the_same_on_a_mesh_and_knows_the_trainers_log_probs(folder):
    shape, prompts = read_config(folder), [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
    rollouts = []
    for mesh in make_mesh(1, 1), make_mesh(4, 2):
        graph, parameters = weights.load(folder, shape, mesh)
        sampler = Sampler(graph, shape, mesh, 8, max_prompt_tokens=5, max_new_tokens=12, stop_ids=(0,))
        copy = for_rollout(parameters, shape.dtype, mesh)
        rollouts.append(sampler.generate(copy, prompts, jax.random.key(0), samples=2, sampling=SamplingParams()))
    np.testing.assert_array_equal(*(rollout.tokens for rollout in rollouts))
    alone, (graph, parameters) = rollouts[0], weights.load(folder, shape)
    sequences = join([prompt for prompt in prompts for _ in range(2)], 5, alone.tokens, alone.mask)
    ours, _ = answer_logprobs(nnx.merge(graph, parameters), sequences, 1.0)
    close(np.asarray(ours)[alone.mask], alone.logprobs[alone.mask])
