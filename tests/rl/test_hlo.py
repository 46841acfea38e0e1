"""What the token loop of a compiled program does is read rightly, on small programs that are known to do it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rl.sampler.hlo import read_token_loop

LAYERS, SLOTS, ROWS, WIDTH = 3, 40, 16, 64


def loop_of(weight_spec, step, rows=("fsdp",), tp=1):
    """The token loop of a toy decoder on eight devices: `step(weight, x, cache, layer, slot) -> x, cache` a layer."""
    mesh = Mesh(np.array(jax.devices()).reshape(-1, tp), ("fsdp", "tp"))

    def decode(weights, x, cache, limit):
        def body(state):
            x, cache, slot = state

            def layer(carry, weight):
                x, cache, i = carry
                x, cache = step(weight, x, cache, i, slot)
                return (x, cache, i + 1), None

            (x, cache, _), _ = jax.lax.scan(layer, (x, cache, 0), weights)
            return x, cache, slot + 1

        return jax.lax.while_loop(lambda state: (state[2] < limit) & (state[0].sum() < 1e9), body, (x, cache, 0))

    def struct(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    arguments = (
        struct((LAYERS, WIDTH, WIDTH), weight_spec),
        struct((ROWS, WIDTH), P(*rows)),
        struct((LAYERS, SLOTS, ROWS, WIDTH), P(None, None, *rows)),
        jax.ShapeDtypeStruct((), jnp.int32),
    )
    compiled = jax.jit(decode, donate_argnums=2).lower(*arguments).compile()
    return read_token_loop(compiled.as_text(), SLOTS * ROWS * WIDTH // (mesh.shape["fsdp"] if rows else 1))


def write_a_slot(weight, x, cache, layer, slot):
    seen = jax.lax.dynamic_slice(cache, (layer, slot // 2, 0, 0), (1, 1, *x.shape))[0, 0]
    x = jnp.tanh(x @ weight) + seen
    return x, jax.lax.dynamic_update_slice(cache, x[None, None], (layer, slot, 0, 0))


def rewrite_a_layer(weight, x, cache, layer, slot):
    x = jnp.tanh(x @ weight)
    keys = jax.lax.dynamic_index_in_dim(cache, layer, keepdims=False)
    keys = jax.lax.dynamic_update_slice(keys * 0.5, x[None], (slot, 0, 0))
    return x + (keys * x).sum(axis=0), jax.lax.dynamic_update_slice(cache, keys[None], (layer, 0, 0, 0))


def test_whole_weights_and_a_cache_written_in_place_are_found_clean():
    loop = loop_of(P(), write_a_slot)
    assert loop.weight_gathers == {} and loop.cache_copies == {}
    assert "all-gather" not in loop.collectives


def test_a_weight_sharded_over_the_batch_axis_is_gathered_for_every_token():
    loop = loop_of(P(None, "fsdp", None), write_a_slot)
    assert loop.weight_gathers == {f"f32[{WIDTH},{WIDTH}]": LAYERS}
    assert loop.collectives["all-gather"] == LAYERS


def test_an_activation_that_is_gathered_is_no_weight():
    loop = loop_of(P(None, None, "tp"), write_a_slot, rows=(), tp=8)
    assert loop.collectives["all-gather"] >= LAYERS
    assert loop.weight_gathers == {}


def test_a_layer_that_is_written_whole_is_a_cache_copy():
    loop = loop_of(P(), rewrite_a_layer)
    assert sum(loop.cache_copies.values()) >= LAYERS


def test_a_program_without_a_loop_of_unknown_length_is_refused():
    scan = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda i, x: jnp.sin(x), x)).lower(jnp.ones(8)).compile()
    with pytest.raises(ValueError, match="no loop"):
        read_token_loop(scan.as_text(), 1)


TPU_TEXT = """HloModule jit_decode, is_scheduled=true

%region_cond (param.0: (s32[], bf16[2,64])) -> pred[] {
  %param.0 = (s32[]{:T(128)}, bf16[2,64]{1,0:T(8,128)(2,1)}) parameter(0)
  %count = s32[]{:T(128)} get-tuple-element(%param.0), index=0
  %limit = s32[]{:T(128)} constant(36)
  ROOT %lt = pred[]{:T(512)} compare(%count, %limit), direction=LT
}

%region_layer (param.1: (s32[], bf16[2,64], bf16[36,8,64])) -> (s32[], bf16[2,64], bf16[36,8,64]) {
  %param.1 = (s32[]{:T(128)}, bf16[2,64]{1,0:T(8,128)(2,1)}, bf16[36,8,64]{2,1,0}) parameter(0)
  %count.1 = s32[]{:T(128)} get-tuple-element(%param.1), index=0
  %x.1 = bf16[2,64]{1,0:T(8,128)(2,1)} get-tuple-element(%param.1), index=1
  %weights.1 = bf16[36,8,64]{2,1,0} get-tuple-element(%param.1), index=2
  %zero = s32[]{:T(128)} constant(0)
  %shard = bf16[1,8,64]{2,1,0} dynamic-slice(%weights.1, %count.1, %zero, %zero), dynamic_slice_sizes={1,8,64}
  %gather-start = (bf16[1,8,64]{2,1,0}, bf16[1,64,64]{2,1,0:S(1)}) all-gather-start(%shard), dimensions={1}
  %gather-done = bf16[1,64,64]{2,1,0:S(1)} all-gather-done(%gather-start)
  %sum = bf16[2,64]{1,0} all-reduce(%x.1), to_apply=%add
  ROOT %tuple.1 = (s32[]{:T(128)}, bf16[2,64]{1,0}, bf16[36,8,64]{2,1,0}) tuple(%count.1, %sum, %weights.1)
}

%region_body (param.2: (bf16[2,64], bf16[36,8,64], pred[])) -> (bf16[2,64], bf16[36,8,64], pred[]) {
  %param.2 = (bf16[2,64]{1,0}, bf16[36,8,64]{2,1,0}, pred[]) parameter(0)
  %x.2 = bf16[2,64]{1,0} get-tuple-element(%param.2), index=0
  %weights.2 = bf16[36,8,64]{2,1,0} get-tuple-element(%param.2), index=1
  %go.2 = pred[]{:T(512)} get-tuple-element(%param.2), index=2
  %start = s32[]{:T(128)} constant(0)
  %tuple.2 = (s32[], bf16[2,64]{1,0}, bf16[36,8,64]{2,1,0}) tuple(%start, %x.2, %weights.2)
  %while.2 = (s32[], bf16[2,64]{1,0}, bf16[36,8,64]{2,1,0}) while(%tuple.2), condition=%region_cond, body=%region_layer
  %x.3 = bf16[2,64]{1,0} get-tuple-element(%while.2), index=1
  ROOT %tuple.3 = (bf16[2,64]{1,0}, bf16[36,8,64]{2,1,0}, pred[]) tuple(%x.3, %weights.2, %go.2)
}

%region_go (param.3: (bf16[2,64], bf16[36,8,64], pred[])) -> pred[] {
  %param.3 = (bf16[2,64]{1,0}, bf16[36,8,64]{2,1,0}, pred[]) parameter(0)
  ROOT %go.3 = pred[]{:T(512)} get-tuple-element(%param.3), index=2
}

ENTRY %main (x: bf16[2,64], weights: bf16[36,8,64], go: pred[]) -> bf16[2,64] {
  %x = bf16[2,64]{1,0} parameter(0)
  %weights = bf16[36,8,64]{2,1,0} parameter(1)
  %go = pred[]{:T(512)} parameter(2)
  %tuple = (bf16[2,64]{1,0}, bf16[36,8,64]{2,1,0}, pred[]) tuple(%x, %weights, %go)
  %while = (bf16[2,64]{1,0}, bf16[36,8,64]{2,1,0}, pred[]) while(%tuple), condition=%region_go, body=%region_body
  ROOT %result = bf16[2,64]{1,0} get-tuple-element(%while), index=0
}
"""


def test_what_a_tpu_program_does_in_every_layer_counts_once_a_layer():
    """TPU programs name asynchronous halves and memory spaces, and say the number of layers in the loop's condition."""
    loop = read_token_loop(TPU_TEXT, layer_size=10**6)
    assert loop.collectives == {"all-gather": 36, "all-reduce": 36}
    assert loop.weight_gathers == {"bf16[1,64,64]": 36}
    assert loop.cache_copies == {}
