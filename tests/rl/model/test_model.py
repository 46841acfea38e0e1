"""The model against itself run in other ways; `test_parity` holds it against the reference implementation."""

import dataclasses
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from shapes import MEDIUM, shard_parameters

from rl.model.decoder import Decoder, KVCache, RopeScaling, abstract, create, token_positions
from rl.model.sharding import make_mesh

TINY = dataclasses.replace(MEDIUM, num_hidden_layers=3)
QWEN2 = dataclasses.replace(TINY, qk_norm=False, qkv_bias=True)
LLAMA3 = dataclasses.replace(TINY, qk_norm=False, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8))

TOKENS = np.random.default_rng(1).integers(0, TINY.vocab_size - 1, (3, 9))


@functools.partial(jax.jit, static_argnames="graph")
def all_logits(graph, parameters, tokens, valid) -> jax.Array:
    model = nnx.merge(graph, parameters)
    return model.logits(model(tokens, token_positions(valid), valid))


@pytest.fixture(scope="module")
def model() -> tuple[nnx.GraphDef[Decoder], nnx.State]:
    return create(TINY, jax.random.key(0))


def loss_and_gradients(graph, parameters):
    tokens = np.random.default_rng(0).integers(0, TINY.vocab_size, (8, 6))
    valid = np.arange(6) < np.array([6, 3, 6, 1, 5, 6, 2, 4])[:, None]

    def loss(p):
        logits = all_logits(graph, p, tokens, valid)
        return jnp.where(valid, jax.nn.log_softmax(logits)[..., 0], 0).sum() / valid.sum(), logits

    # Half the seconds to compile: 1.2 of CPU time against 2.3.
    quick = {"xla_backend_optimization_level": 0}
    return jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=quick)(parameters)


@pytest.mark.parametrize("shape", [TINY, *(pytest.param(shape, marks=pytest.mark.heavy) for shape in (QWEN2, LLAMA3))])
def test_decoding_with_the_cache_equals_the_whole_forward_pass(shape):
    """Ragged prompts padded on the right; every row goes on behind its own."""
    graph, parameters = create(shape, jax.random.key(0))
    lengths, room, new = np.array([5, 2, 4]), 6, 4
    tokens, valid = TOKENS, np.arange(room) < lengths[:, None]
    running = nnx.merge(graph, parameters)
    prefill = jax.jit(lambda p, *inputs: nnx.merge(graph, p).prefill(*inputs))
    hidden, cache = prefill(parameters, tokens[:, :room], token_positions(valid), valid)
    empty = KVCache.zeros(shape, 3, room + new)
    cache = jax.tree.map(lambda whole, part: whole.at[:, :, :, :room].set(part), empty, cache)
    rows = [[running.logits(hidden)[row, length - 1]] for row, length in enumerate(lengths)]
    step = jax.jit(lambda p, *inputs: nnx.merge(graph, p).decode(*inputs))
    for i in range(new):
        fed = tokens[np.arange(3), lengths + i]
        hidden, cache = step(parameters, fed, lengths + i + 1, cache)
        for row, logits in enumerate(running.logits(hidden)):
            rows[row].append(logits)
    whole = np.asarray(all_logits(graph, parameters, tokens, np.arange(9) < lengths[:, None] + new))
    for row, length in enumerate(lengths):
        expected = whole[row, length - 1 : length + new]
        np.testing.assert_allclose(np.stack(rows[row]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.heavy
@pytest.mark.parametrize(("shape", "fsdp", "tp"), [(TINY, 4, 2), (TINY, 2, 4), (QWEN2, 2, 4), (LLAMA3, 2, 4)])
def test_every_parameter_has_a_gradient_and_a_mesh_changes_neither_it_nor_the_logits(shape, fsdp, tp):
    """Over four devices along `tp` the two key-value heads do not divide."""
    graph, parameters = create(shape, jax.random.key(0))
    alone, mesh = loss_and_gradients(graph, parameters), make_mesh(fsdp, tp)
    for path, variable in nnx.to_flat_state(alone[1]):
        assert np.abs(np.asarray(variable[...])).max() > 0, path
    spread = shard_parameters(parameters, mesh)
    gate = spread["layers"]["mlp"]["gate_proj"]["weight"][...]
    assert gate.addressable_shards[0].data.shape == (3, 32 // fsdp, 48 // tp)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, loss_and_gradients(abstract(shape, mesh)[0], spread), alone)


@pytest.mark.heavy
def test_the_same_key_gives_the_same_weights_on_a_mesh_each_made_where_it_belongs(model):
    mesh = make_mesh(4, 2)
    graph, spread = create(TINY, jax.random.key(0), mesh)
    assert graph == abstract(TINY, mesh)[0]
    jax.tree.map(np.testing.assert_array_equal, spread, model[1])
    shardings = [jax.tree.map(lambda x: x.sharding, state) for state in (spread, abstract(TINY, mesh)[1])]
    assert shardings[0] == shardings[1]


@pytest.mark.heavy
def test_remat_keeps_less_for_the_same_gradients(model):
    parameters, tokens, valid = model[1], np.zeros((4, 16), np.int32), np.ones((4, 16), bool)
    alone = loss_and_gradients(*model)
    kept = {}
    for remat in ("none", "dots", "full"):
        graph, _ = abstract(dataclasses.replace(TINY, remat=remat))
        backward = jax.eval_shape(
            lambda p, graph=graph: jax.vjp(lambda p: nnx.merge(graph, p)(tokens, token_positions(valid), valid), p)[1],
            parameters,
        )
        kept[remat] = sum(leaf.size for leaf in jax.tree.leaves(backward))
        if remat != "full":  # which `alone` is
            close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
            jax.tree.map(close, loss_and_gradients(graph, parameters), alone)
    assert kept["full"] < 0.7 * kept["dots"] < 0.7 * kept["none"]


def equations(jaxpr: jax.extend.core.Jaxpr) -> Iterator[jax.extend.core.JaxprEqn]:
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def test_in_bfloat16_matrices_are_multiplied_in_it_and_norms_and_rotations_are_float32():
    graph, parameters = abstract(dataclasses.replace(TINY, dtype=jnp.bfloat16))
    tokens, valid = jax.ShapeDtypeStruct((2, 5), jnp.int32), jax.ShapeDtypeStruct((2, 5), bool)
    program = jax.make_jaxpr(lambda p, t, v: all_logits(graph, p, t, v))(parameters, tokens, valid)
    assert program.out_avals[0].dtype == jnp.float32
    seen = {
        "dot_general": jnp.bfloat16,
        "rsqrt": jnp.float32,
        "sin": jnp.float32,
        "cos": jnp.float32,
        "exp": jnp.float32,
    }
    counts = dict.fromkeys(seen, 0)
    for equation in equations(program.jaxpr):
        if (name := equation.primitive.name) in seen:
            counts[name] += 1
            assert {v.aval.dtype for v in equation.invars} == {jnp.dtype(seen[name])}, equation
    assert counts["dot_general"] == 10 and min(counts.values()) > 0
