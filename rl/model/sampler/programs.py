"""The compiled programs of a sampler and the state that they share: `empty`, `admit` and `decode`."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlake.record import Array, Record, record
from rl.model.attention import device_of
from rl.model.decoder import Decoder, DecoderConfig, KVCache
from rl.model.sampler.draw import SamplingParams, draw
from rl.model.sampler.thinking import ThinkingBudget
from rl.model.sharding import abstract_at, cache_spec


@dataclasses.dataclass(frozen=True)
class SamplerSpec:
    """Static settings that a sampler's programs are compiled for; equal ones share them.

    Attributes:
      mesh: devices along the axes `fsdp`, over which rows are shared out, and `tp`.
      rows: answers under way at once on all devices.
      max_prompt_tokens, max_new_tokens: P and T.
      stop_ids: tokens that end an answer.
    """

    graph: nnx.GraphDef[Decoder]
    config: DecoderConfig
    mesh: Mesh
    rows: int
    max_prompt_tokens: int
    max_new_tokens: int
    stop_ids: tuple[int, ...]
    thinking: ThinkingBudget | None = None


@record
class SamplerState(Record):
    """Rows under way, B of them, and what they have written so far.

    Attributes:
      cache: P + T slots; a row's prompt, all but its last token, and then what was fed one by one.
      lengths: int32 ``[B]``, tokens of the prompt.
      last: int32 ``[B]``, the token that goes in next.
      requests: uint32 ``[B]``, numbers that the draws depend on.
      count: int32 ``[B]``, tokens drawn.
      tokens, logprobs: int32 and float32 ``[B, T]``.
      done: bool ``[B]``, finished or never begun.
    """

    cache: KVCache
    lengths: Array
    last: Array
    requests: Array
    count: Array
    tokens: Array
    logprobs: Array
    done: Array


@record
class Arrivals(Record):
    """Prompts that enter, N of them, and the rows they enter; the first axes are shared out over `fsdp`.

    Attributes:
      prompts: int32 ``[N, bucket]``, right-padded, without their last tokens.
      sizes: int32 ``[N]``, how many tokens these are.
      source: int32 ``[B]``, which prompt of its own shard a row takes; -1 where it takes none.
      lengths, last, requests: values of the row that begins, as in `SamplerState`.
    """

    prompts: Array
    sizes: Array
    source: Array
    lengths: Array
    last: Array
    requests: Array


GPU_DECODING = {
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_enable_dynamic_slice_fusion": True,
    "xla_gpu_dot_merger_threshold_mb": 0,
}
"""XLA's options for a token on GPUs. Left to itself it copies each layer's weights out of the stack of them, and side
by side where it merges products, before it reads them: a third of a step of Qwen3-4B on an H200."""


class Programs(NamedTuple):
    """The functions `empty`, `admit` and `decode` below, compiled for one sampler."""

    empty: jax.stages.Wrapped
    admit: jax.stages.Wrapped
    decode: jax.stages.Wrapped


@functools.cache
def programs(spec: SamplerSpec) -> Programs:
    """Return the programs of a sampler, each compiled when it is first called.

    The state's shardings are stated: otherwise XLA writes one of them differently, and the next call compiles again.
    """
    where = shardings(spec)
    everywhere = NamedSharding(spec.mesh, P())
    on_gpu = device_of(spec.mesh).platform == "gpu"
    return Programs(
        jax.jit(functools.partial(empty, spec), out_shardings=where),
        jax.jit(functools.partial(admit, spec), out_shardings=where, donate_argnames=("state",)),
        jax.jit(
            functools.partial(decode, spec),
            out_shardings=(where, everywhere),
            static_argnames=("truncated",),
            donate_argnames=("state",),
            compiler_options=GPU_DECODING if on_gpu else None,
        ),
    )


def shardings(spec: SamplerSpec) -> SamplerState:
    """Return where a state lies: a SamplerState that holds NamedShardings."""
    cache: Any = NamedSharding(spec.mesh, cache_spec(spec.config.num_key_value_heads, spec.mesh))
    row: Any = NamedSharding(spec.mesh, P("fsdp"))
    places = {field.name: row for field in dataclasses.fields(SamplerState)}
    return SamplerState(**places | {"cache": KVCache(keys=cache, values=cache)})


def empty(spec: SamplerSpec) -> SamplerState:
    """Return a state whose rows are all free."""
    rows, time = spec.rows, spec.max_new_tokens
    return SamplerState(
        cache=KVCache.zeros(spec.config, rows, spec.max_prompt_tokens + time),
        lengths=jnp.ones(rows, jnp.int32),
        last=jnp.zeros(rows, jnp.int32),
        requests=jnp.zeros(rows, jnp.uint32),
        count=jnp.zeros(rows, jnp.int32),
        tokens=jnp.zeros((rows, time), jnp.int32),
        logprobs=jnp.zeros((rows, time), jnp.float32),
        done=jnp.ones(rows, bool),
    )


def abstract(spec: SamplerSpec) -> SamplerState:
    """Return the state as ShapeDtypeStructs with their shardings, to compile programs without any array."""
    return abstract_at(jax.eval_shape(functools.partial(empty, spec)), shardings(spec))


def admit(spec: SamplerSpec, parameters: nnx.State, state: SamplerState, arrivals: Arrivals) -> SamplerState:
    """Prefill the prompts and put them into their rows; the old state is donated.

    The last token of a prompt stays out: it is the first that `decode` feeds, so that all draws happen in one place.
    """
    model = nnx.merge(spec.graph, parameters)
    slots = jnp.arange(arrivals.prompts.shape[1])
    valid = slots < arrivals.sizes[:, None]
    _, fresh = model.prefill(arrivals.prompts, jnp.broadcast_to(slots, valid.shape), valid)

    def insert(old: Array, new: Array, source: Array) -> jax.Array:
        # Layer by layer: as one operation the copies to all samples would lie beside the cache for a moment.
        taken = (source >= 0)[:, None, None, None]

        def layer(i: jax.Array, old: jax.Array) -> jax.Array:
            current = jax.lax.dynamic_slice_in_dim(old[i], 0, len(slots), axis=2)
            written = jnp.where(taken, new[i][source], current)  # slots behind the prompt are not read before written
            return jax.lax.dynamic_update_slice(old, written[None], (i, 0, 0, 0, 0))

        return jax.lax.fori_loop(0, old.shape[0], layer, old)

    # Per shard, so that no keys or values travel.
    cache, rows = cache_spec(spec.config.num_key_value_heads, spec.mesh), P("fsdp")
    scatter = jax.shard_map(insert, mesh=spec.mesh, in_specs=(cache, cache, rows), out_specs=cache)
    taken = arrivals.source >= 0
    return state.replace(
        cache=jax.tree.map(lambda old, new: scatter(old, new, arrivals.source), state.cache, fresh),
        lengths=jnp.where(taken, arrivals.lengths, state.lengths),
        last=jnp.where(taken, arrivals.last, state.last),
        requests=jnp.where(taken, arrivals.requests, state.requests),
        count=jnp.where(taken, 0, state.count),
        done=state.done & ~taken,
    )


def decode(
    spec: SamplerSpec,
    parameters: nnx.State,
    state: SamplerState,
    *,
    key: jax.Array,
    sampling: SamplingParams,
    truncated: bool,
    allowed: jax.Array | None,
    need: jax.Array,
    steps: jax.Array,
) -> tuple[SamplerState, Array]:
    """Draw tokens for all rows until they are done, some shard has its `need` of free rows, or `steps` have passed.

    Args:
      state: donated.
      key: uint32 ``[2]``, a key of threefry: of other kinds `vmap` draws all rows by the first one's.
      sampling, truncated, allowed: arguments of `draw`; the last is None with a cap on thoughts.
      need: int32 ``[fsdp]``, more than the rows of a shard where none is waited for.
      steps: int32 scalar.

    Returns:
      The new state and `done`, whole on every device.
    """
    model = nnx.merge(spec.graph, parameters)
    key = jax.random.wrap_key_data(key, impl="threefry2x32")
    time = spec.max_new_tokens

    def uniforms(request: Array, number: Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, request), number), (2,), jnp.float32)

    def going(carry: tuple[SamplerState, jax.Array]) -> jax.Array:
        state, step = carry
        free = state.done.reshape(len(need), -1).sum(axis=1)
        return (step < steps) & ~state.done.all() & ~(free >= need).any()

    def body(carry: tuple[SamplerState, jax.Array]) -> tuple[SamplerState, jax.Array]:
        state, step = carry
        alive = ~state.done
        filled = jnp.where(alive, state.lengths + state.count, 0)
        hidden, cache = model.decode(state.last, filled, state.cache)
        drawn = jax.vmap(uniforms)(state.requests, state.count)
        may = spec.thinking.allowed(state.tokens, state.count, spec.config.vocab_size) if spec.thinking else allowed
        token, logprob = draw(model.logits(hidden), drawn, sampling, truncated=truncated, allowed=may)
        written = alive[:, None] & (jnp.arange(time) == state.count[:, None])
        count = state.count + alive
        stopped = (token[:, None] == jnp.array(spec.stop_ids)).any(axis=1)
        state = state.replace(
            cache=cache,
            last=jnp.where(alive, token, state.last),
            count=count,
            tokens=jnp.where(written, token[:, None], state.tokens),
            logprobs=jnp.where(written, logprob[:, None], state.logprobs),
            done=state.done | stopped | (count == time),
        )
        return state, step + 1

    state, _ = jax.lax.while_loop(going, body, (state, jnp.int32(0)))
    return state, state.done
