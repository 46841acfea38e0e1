"""A dense decoder in Flax nnx: one class for Qwen3, Qwen2, Llama and Mistral, from 0.5 M parameters to 8 B.

Names follow the reference implementation (`input_layernorm`, `q_norm`), so that loading weights is a flat table.
Axis letters, in einsum strings and comments alike: B batch, T query time, S key time, D hidden, N query heads,
K key-value heads, G query heads per key-value head, H head, F feed-forward, V vocabulary, L layers.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxlake.record import Array, Record, record
from rl.config import LoRASection
from rl.config.choices import Remat
from rl.model.attention import attend, attend_cached, choose_kernel, device_of
from rl.model.sharding import named_sharding

CHECKPOINTS = {
    "none": lambda body: body,
    "dots": functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable),
    # Less memory, and faster where memory traffic is the limit (0.37 s against 0.46 for the gradient at 128 x 88 tokens
    # of the tiny model on two CPU cores).
    "full": jax.checkpoint,
}


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Llama 3's scaling of rotary frequencies for long texts (`rope_type` llama3), in the names of its `config.json`.

    Attributes:
      factor: number by which slow frequencies are divided.
      low_freq_factor, high_freq_factor: a frequency with fewer turns in a text than the first is slow, one with more
        than the second stays as it is, and those between are mixtures of both.
      original_max_position_embeddings: number of tokens of that text.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def scale(self, frequency: jax.Array) -> jax.Array:
        """Scale frequencies, in radians a token."""
        turns = self.original_max_position_embeddings * frequency / (2 * math.pi)
        kept = jnp.clip((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor), 0, 1)
        return frequency * (kept + (1 - kept) / self.factor)


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Shape of a dense decoder, in the names of its `config.json`, and how it is computed. The defaults are Qwen3's.

    Attributes:
      rope_scaling: scaling of the rotary frequencies; None for none.
      qk_norm: queries and keys are normed before they are rotated.
      qkv_bias: the projections to queries, keys and values have biases.
      dtype: type of the matrix work; trained parameters are float32 whatever it is.
      remat: memory against time in training.
      lora: adapters; with them the base's matrices are stored in `dtype`, for they are not trained.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = True
    rope_scaling: RopeScaling | None = None
    qk_norm: bool = True
    qkv_bias: bool = False
    dtype: Any = jnp.float32
    remat: Remat = "full"
    lora: LoRASection | None = None


@record
class KVCache(Record):
    """Keys and values of every layer; token t of a row is in its slot t, so that its tokens lie side by side.

    Attributes:
      keys, values: ``[L, B, K, S, H]`` in the compute dtype.
    """

    keys: Array
    values: Array

    @classmethod
    def zeros(cls, config: DecoderConfig, batch: int, slots: int) -> "KVCache":
        """Return an empty cache with room for `slots` tokens of `batch` sequences."""
        shape = (config.num_hidden_layers, batch, config.num_key_value_heads, slots, config.head_dim)
        return cls(keys=jnp.zeros(shape, config.dtype), values=jnp.zeros(shape, config.dtype))


def constrain(x: jax.Array, mesh: Mesh | None, *axes: str | None) -> jax.Array:
    """Lay an activation out over the mesh axes given for its own axes, as far as they divide them."""
    return x if mesh is None else jax.lax.with_sharding_constraint(x, named_sharding(P(*axes), x.shape, mesh))


@functools.partial(jax.jit, static_argnames=("shape", "fan_in", "spec", "mesh", "dtype"))
def init_matrix(
    key: jax.Array, shape: tuple[int, ...], fan_in: int, spec: P, mesh: Mesh | None, dtype: Any
) -> jax.Array:
    """Draw a matrix, normal with variance 1 / fan_in, where it belongs; `spec` names the mesh axes that shard it.

    One small program a shape, kept between models: one for a whole model compiles in 5 to 7 s, whatever its size.
    """
    x = (jax.random.normal(key, shape, jnp.float32) * fan_in**-0.5).astype(dtype)
    return constrain(x, mesh, *spec)


def base_dtype(config: DecoderConfig) -> Any:
    """Return the dtype of the base's stored matrices: float32 where they are trained, else that of the work."""
    return jnp.float32 if config.lora is None else config.dtype


class RMSNorm(nnx.Module):
    """Root-mean-square norm: x / rms(x) * weight in float32, cast back to the dtype of x."""

    def __init__(self, shape: tuple[int, ...], eps: float, mesh: Mesh | None):
        self.weight = nnx.Param(jnp.ones(shape, jnp.float32, device=named_sharding(P(None), shape, mesh)), spec=P(None))
        self.eps = eps

    def __call__(self, x: jax.Array) -> jax.Array:
        x32 = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + self.eps)
        return (x32 * scale * self.weight[...]).astype(x.dtype)


Rotation = tuple[jax.Array, jax.Array]
"""Cosines and sines of the rotary embedding's angles, float32 ``[B, T, 1, H / 2]`` each."""


def make_rotation(positions: Array, config: DecoderConfig) -> Rotation:
    """Return the rotation of the heads at positions int32 ``[B, T]``, the same for every layer (Su et al. 2021).

    To be made once a forward pass: within the scan over layers each would compute it anew, in the backward pass too.
    """
    half = config.head_dim // 2
    frequency = config.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    if config.rope_scaling is not None:
        frequency = config.rope_scaling.scale(frequency)
    angle = positions[..., None, None].astype(jnp.float32) * frequency
    return jnp.cos(angle), jnp.sin(angle)


def rope(x: jax.Array, rotation: Rotation) -> jax.Array:
    """Rotate the two halves of each head of x ``[B, T, heads, H]``, in the half-split layout of the reference."""
    cos, sin = rotation
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


def project(x: jax.Array, w: jax.Array) -> jax.Array:
    """Multiply x ``[..., I]`` by w ``[I, O]``, in the dtype of x.

    As one two-dimensional product: over several axes XLA's CPU backend transposes activations for the gradient of the
    weight (72 ms against 34 for one feed-forward at 11,264 tokens, forward and backward), and its TPU backend copies
    the weight into another layout first.

    On a CPU one row is multiplied twice: XLA draws the slice of the weights into a product with a vector and reads it
    column by column (25 ms a token against 6, on one core, of a model of four layers and width 512).
    """
    rows = x.reshape(-1, x.shape[-1])
    if len(rows) == 1 and jax.default_backend() == "cpu":
        return (jnp.concatenate([rows, rows]) @ w.astype(x.dtype))[:1].reshape(*x.shape[:-1], -1)
    return (rows @ w.astype(x.dtype)).reshape(*x.shape[:-1], -1)


class Projection(nnx.Module):
    """Linear maps, one a layer, with an adapter if the config asks."""

    def __init__(
        self,
        config: DecoderConfig,
        rngs: nnx.Rngs,
        mesh: Mesh | None,
        inputs: int,
        outputs: int,
        spec: P,
        bias: bool = False,
    ):
        layers = config.num_hidden_layers
        w = init_matrix(rngs.params(), (layers, inputs, outputs), inputs, spec, mesh, base_dtype(config))
        self.weight = nnx.Param(w, spec=spec)
        self.has_bias, self.scale = bias, None
        if bias:
            zeros = jnp.zeros((layers, outputs), device=named_sharding(P(spec[1]), (layers, outputs), mesh))
            self.bias = nnx.Param(zeros, spec=P(spec[1]))
        if config.lora is not None:
            rank = config.lora.rank
            self.scale = config.lora.alpha / rank
            into, out = P(spec[0], None), P(None, spec[1])
            a = init_matrix(rngs.params(), (layers, inputs, rank), inputs, into, mesh, jnp.float32)
            # Zero, the one parameter that is: the adapted model starts as the base.
            b = jnp.zeros((layers, rank, outputs), a.dtype, device=named_sharding(out, (layers, rank, outputs), mesh))
            self.lora_a, self.lora_b = nnx.LoRAParam(a, spec=into), nnx.LoRAParam(b, spec=out)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = project(x, self.weight[...])
        if self.has_bias:
            y = y + self.bias[...].astype(y.dtype)
        return y if self.scale is None else y + self.scale * project(project(x, self.lora_a[...]), self.lora_b[...])


class Attention(nnx.Module):
    """Self-attention with rotary positions; the caller's `attention_fn` says which tokens are read."""

    def __init__(self, config: DecoderConfig, rngs: nnx.Rngs, mesh: Mesh | None):
        d, n, k, h = config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.q_proj = Projection(config, rngs, mesh, d, n * h, P("fsdp", "tp"), config.qkv_bias)
        self.k_proj = Projection(config, rngs, mesh, d, k * h, P("fsdp", "tp"), config.qkv_bias)
        self.v_proj = Projection(config, rngs, mesh, d, k * h, P("fsdp", "tp"), config.qkv_bias)
        self.o_proj = Projection(config, rngs, mesh, n * h, d, P("tp", "fsdp"))
        self.qk_norm = config.qk_norm
        if self.qk_norm:
            self.q_norm = RMSNorm((config.num_hidden_layers, h), config.rms_norm_eps, mesh)
            self.k_norm = RMSNorm((config.num_hidden_layers, h), config.rms_norm_eps, mesh)
        self.head_dim = h
        self.mesh = mesh

    def __call__(self, x: jax.Array, rotation: Rotation, attention_fn: "AttentionFn") -> tuple[jax.Array, Any]:
        # Behind a barrier, or XLA:TPU draws the reshape into the product and copies the weights for that.
        q, k, v = jax.lax.optimization_barrier((self.q_proj(x), self.k_proj(x), self.v_proj(x)))
        q, k, v = (
            constrain(y.reshape(*x.shape[:2], -1, self.head_dim), self.mesh, "fsdp", None, "tp", None)
            for y in (q, k, v)
        )
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        y, cached = attention_fn(rope(q, rotation), rope(k, rotation), v)
        return self.o_proj(y.reshape(*x.shape[:2], -1)), cached


AttentionFn = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, Any]]
"""From q ``[B, T, N, H]``, k and v ``[B, T, K, H]`` to their attention ``[B, T, N, H]`` and the cache of k and v."""


class MLP(nnx.Module):
    """SwiGLU feed-forward."""

    def __init__(self, config: DecoderConfig, rngs: nnx.Rngs, mesh: Mesh | None):
        d, f = config.hidden_size, config.intermediate_size
        self.gate_proj = Projection(config, rngs, mesh, d, f, P("fsdp", "tp"))
        self.up_proj = Projection(config, rngs, mesh, d, f, P("fsdp", "tp"))
        self.down_proj = Projection(config, rngs, mesh, f, d, P("tp", "fsdp"))
        self.mesh = mesh

    def __call__(self, x: jax.Array) -> jax.Array:
        hidden = jax.nn.silu(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(constrain(hidden, self.mesh, "fsdp", None, "tp"))


class DecoderLayer(nnx.Module):
    """Pre-norm attention and feed-forward, each with a residual.

    Made with the parameters of all layers, stacked along a leading axis; called with those of one.
    """

    def __init__(self, config: DecoderConfig, rngs: nnx.Rngs, mesh: Mesh | None):
        norm = (config.num_hidden_layers, config.hidden_size)
        self.input_layernorm = RMSNorm(norm, config.rms_norm_eps, mesh)
        self.self_attn = Attention(config, rngs, mesh)
        self.post_attention_layernorm = RMSNorm(norm, config.rms_norm_eps, mesh)
        self.mlp = MLP(config, rngs, mesh)
        self.mesh = mesh

    def __call__(self, x: jax.Array, rotation: Rotation, attention_fn: AttentionFn) -> tuple[jax.Array, Any]:
        y, cached = self.self_attn(self.input_layernorm(x), rotation, attention_fn)
        x = constrain(x + y, self.mesh, "fsdp", None, None)
        y = self.mlp(self.post_attention_layernorm(x))
        return constrain(x + y, self.mesh, "fsdp", None, None), cached


class Embedding(nnx.Module):
    """A table with one row a token: the embedding, and the head where it is not tied."""

    def __init__(self, config: DecoderConfig, rngs: nnx.Rngs, mesh: Mesh | None):
        v, d, spec = config.vocab_size, config.hidden_size, P("tp", "fsdp")
        self.weight = nnx.Param(init_matrix(rngs.params(), (v, d), d, spec, mesh, base_dtype(config)), spec=spec)


class Decoder(nnx.Module):
    """A dense decoder; its layers are scanned.

    Args:
      config: the model's shape.
      rngs: generators of the random weights.
      mesh: axes `fsdp` and `tp`, over which parameters and activations lie; None on one device.
    """

    def __init__(self, config: DecoderConfig, rngs: nnx.Rngs, mesh: Mesh | None = None):
        self.config = config
        self.mesh = mesh
        self.kernel = choose_kernel(device_of(mesh), config.dtype, config.head_dim)
        self.embed_tokens = Embedding(config, rngs, mesh)
        self.layers = DecoderLayer(config, rngs, mesh)
        self.norm = RMSNorm((config.hidden_size,), config.rms_norm_eps, mesh)
        if not config.tie_word_embeddings:
            self.lm_head = Embedding(config, rngs, mesh)

    @property
    def head(self) -> jax.Array:
        """Return the output matrix ``[V, D]`` as it is stored; a tied one is the embedding itself."""
        return (self.embed_tokens if self.config.tie_word_embeddings else self.lm_head).weight[...]

    def __call__(self, tokens: Array, positions: Array, valid: Array) -> jax.Array:
        """Return hidden states after the last norm, for training: no cache, and each layer's memory as `remat` says.

        Args:
          tokens, positions: int32 ``[B, T]``.
          valid: bool ``[B, T]``, False on padding, which lies on the right (cuDNN's kernel counts on it).

        Returns:
          ``[B, T, D]`` in the compute dtype.
        """

        def attention_fn(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, None]:
            return attend(q, k, v, valid, self.kernel, self.mesh), None

        wrap, rotation = CHECKPOINTS[self.config.remat], make_rotation(positions, self.config)
        x, _ = self._scan(self._embed(tokens), lambda x, call, _: call(x, rotation, attention_fn), wrap=wrap)
        return self.norm(x)

    def prefill(self, tokens: Array, positions: Array, valid: jax.Array) -> tuple[jax.Array, KVCache]:
        """Return the hidden states of `__call__`, and a cache of T slots with the keys and values of these tokens."""

        def attention_fn(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            cached = k.swapaxes(1, 2), v.swapaxes(1, 2)  # [B, K, T, H]
            return attend(q, k, v, valid, self.kernel, self.mesh), cached

        rotation = make_rotation(positions, self.config)
        x, (keys, values) = self._scan(self._embed(tokens), lambda x, call, _: call(x, rotation, attention_fn))
        return self.norm(x), KVCache(keys=keys, values=values)

    def decode(self, tokens: Array, lengths: jax.Array, cache: KVCache) -> tuple[jax.Array, KVCache]:
        """Return hidden states of one new token a row, and the cache with its keys and values written.

        Args:
          tokens: int32 ``[B]``.
          lengths: int32 ``[B]``, tokens of each row with the new one, which is the last of them; 0 where nothing is
            wanted of a row.
          cache: cache of at least as many slots.

        Returns:
          ``[B, D]`` in the compute dtype, and the cache.
        """

        def layer(
            carried: tuple[jax.Array, KVCache], call: DecoderLayer, number: jax.Array
        ) -> tuple[tuple[jax.Array, KVCache], None]:
            # The whole cache is carried through the layers and one slot a row written: handed out as one part a layer,
            # every layer's was copied out of the cache and back in for every token.
            x, cache = carried

            def attention_fn(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, KVCache]:
                whole = cache.keys, cache.values
                y, (keys, values) = attend_cached(
                    q[:, 0], k[:, 0], v[:, 0], whole, number, lengths, self.kernel, self.mesh
                )
                return y[:, None], KVCache(keys=keys, values=values)

            return call(x, rotation, attention_fn), None

        rotation = make_rotation(jnp.maximum(lengths - 1, 0)[:, None], self.config)
        (x, cache), _ = self._scan((self._embed(tokens[:, None]), cache), layer)
        return self.norm(x)[:, 0], cache

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Return float32 logits ``[..., V]`` of hidden states ``[..., D]``."""
        rows = hidden.reshape(-1, hidden.shape[-1])
        logits = jnp.einsum("VD,BD->VB", self.head.astype(rows.dtype), rows, preferred_element_type=jnp.float32)
        if len(rows) < 128 and device_of(self.mesh).platform == "cpu":  # docs/decisions.md 18
            logits = jax.lax.optimization_barrier(logits)
        return logits.T.reshape(*hidden.shape[:-1], -1)

    def _embed(self, tokens: Array) -> jax.Array:
        x = self.embed_tokens.weight[...][tokens].astype(self.config.dtype)
        return constrain(x, self.mesh, "fsdp", None, None)

    def _scan(self, x: Any, body: Callable[..., tuple[Any, Any]], wrap: Any = CHECKPOINTS["none"]) -> tuple[Any, Any]:
        """Carry x through the layers; `body` gets x, the layer and its number."""
        graph, stacked = nnx.split(self.layers)

        def step(x: Any, inputs: tuple[nnx.State, jax.Array]) -> tuple[Any, Any]:
            parameters, number = inputs
            return body(x, nnx.merge(graph, parameters), number)

        return jax.lax.scan(wrap(step), x, (stacked, jnp.arange(self.config.num_hidden_layers)))


def token_positions(valid: Array) -> jax.Array:
    """Count the valid tokens before each one in its row, int32 ``[B, T]``; padding gets 0 or repeats."""
    return jnp.maximum(jnp.cumsum(valid, axis=-1) - 1, 0)


def abstract(config: DecoderConfig, mesh: Mesh | None = None) -> tuple[nnx.GraphDef[Decoder], nnx.State]:
    """Return the two halves of a model without its numbers: each parameter a ShapeDtypeStruct with its sharding."""
    graph, shapes = nnx.split(nnx.eval_shape(lambda: Decoder(config, nnx.Rngs(0), mesh)))

    def place(variable: nnx.Variable) -> nnx.Variable:
        shape, dtype = variable.shape, variable.dtype
        return variable.replace(jax.ShapeDtypeStruct(shape, dtype, sharding=named_sharding(variable.spec, shape, mesh)))

    return graph, jax.tree.map(place, shapes, is_leaf=lambda x: isinstance(x, nnx.Variable))


def create(config: DecoderConfig, key: jax.Array, mesh: Mesh | None = None) -> tuple[nnx.GraphDef[Decoder], nnx.State]:
    """Return the two halves of a model with random weights, each made where it belongs: no device ever holds them all.

    The same key gives the same weights on every mesh.
    """
    return nnx.split(Decoder(config, nnx.Rngs(key), mesh))
