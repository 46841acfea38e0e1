"""Batched generation with a KV cache, free or under a grammar; knows the model and tokens, not what they mean."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from rl.qwen3.model import KVCache, Qwen3, causal_mask, token_positions
from rl.qwen3.tokenizer import Tokenizer


@chex.dataclass(frozen=True)
class Rollout:
    """What was generated for a batch of prompts.

    Attributes:
      tokens: int32 ``[B, T]``; whatever stands where `mask` is False is padding.
      mask: bool ``[B, T]``, True for each sampled token, the stop token included.
      logprobs: float32 ``[B, T]`` of the sampled tokens under the temperature used (greedy: under temperature 1).
      truncated: bool ``[B]``, no stop token came in time.
    """

    tokens: chex.Array
    mask: chex.Array
    logprobs: chex.Array
    truncated: chex.Array


@functools.partial(jax.jit, static_argnames=("graph", "samples", "max_new_tokens", "stop_ids"))
def generate(
    graph: nnx.GraphDef[Qwen3],
    parameters: nnx.State,
    prompts: jax.Array,
    valid: jax.Array,
    key: jax.Array,
    temperature: jax.Array | float,
    *,
    samples: int,
    max_new_tokens: int,
    stop_ids: tuple[int, ...],
) -> Rollout:
    """Samples `samples` answers to each prompt; rows of one prompt lie side by side.

    Sampling is from the whole distribution (no top-p, no top-k), so that `logprobs` are those the trainer sees. Each
    prompt is prefilled once and its cache tiled. The loop ends when every row has stopped.

    Args:
      graph, parameters: the two halves of a `Qwen3` (`nnx.split`).
      prompts: int32 ``[P, T0]``, left-padded.
      valid: bool ``[P, T0]``, False on the padding.
      key: draws the tokens.
      temperature: 0 is greedy.
      samples: answers a prompt; the batch is ``B = P * samples``.
      max_new_tokens: length T of the answers.
      stop_ids: tokens that end an answer.
    """
    model = nnx.merge(graph, parameters)
    logits, cache = _prefill(model, prompts, valid, slots=prompts.shape[1] + max_new_tokens)
    tile = functools.partial(jnp.repeat, repeats=samples, total_repeat_length=prompts.shape[0] * samples)
    cache = jax.tree.map(functools.partial(tile, axis=3), cache)
    logits, valid = tile(logits, axis=0), tile(valid, axis=0)

    batch, prompt_slots = valid.shape
    lengths = valid.sum(axis=-1)
    slots = jnp.concatenate([valid, jnp.zeros((batch, max_new_tokens), bool)], axis=1)
    scale = jnp.where(temperature > 0, temperature, 1.0)

    def choose(logits, step):
        logprobs = jax.nn.log_softmax(logits / scale)
        drawn = jax.random.categorical(jax.random.fold_in(key, step), logprobs)
        token = jnp.where(temperature > 0, drawn, jnp.argmax(logits, axis=-1)).astype(jnp.int32)
        return token, jnp.take_along_axis(logprobs, token[:, None], axis=-1)[:, 0]

    def write(state, logits, step):
        token, logprob = choose(logits, step)
        alive = ~state["done"]
        return dict(
            state,
            tokens=state["tokens"].at[:, step].set(jnp.where(alive, token, stop_ids[0])),
            logprobs=state["logprobs"].at[:, step].set(jnp.where(alive, logprob, 0.0)),
            mask=state["mask"].at[:, step].set(alive),
            done=state["done"] | jnp.isin(token, jnp.array(stop_ids)),
        )

    def body(state):
        step = state["step"]  # the token of step - 1 goes in, that of `step` comes out
        seen = state["seen"].at[:, prompt_slots + step - 1].set(True)
        hidden, cache = model(
            jax.lax.dynamic_slice_in_dim(state["tokens"], step - 1, 1, axis=1),
            (lengths + step - 1)[:, None],
            seen[:, None],
            state["cache"],
            prompt_slots + step - 1,
        )
        state = write(dict(state, cache=cache, seen=seen), model.logits(hidden[:, 0]), step)
        return dict(state, step=step + 1)

    state = dict(
        step=jnp.int32(1),
        cache=cache,
        seen=slots,
        tokens=jnp.full((batch, max_new_tokens), stop_ids[0], jnp.int32),
        logprobs=jnp.zeros((batch, max_new_tokens), jnp.float32),
        mask=jnp.zeros((batch, max_new_tokens), bool),
        done=jnp.zeros(batch, bool),
    )
    state = write(state, logits, 0)
    state = jax.lax.while_loop(lambda s: (s["step"] < max_new_tokens) & ~s["done"].all(), body, state)
    return Rollout(tokens=state["tokens"], mask=state["mask"], logprobs=state["logprobs"], truncated=~state["done"])


def _prefill(model: Qwen3, prompts: jax.Array, valid: jax.Array, slots: int) -> tuple[jax.Array, KVCache]:
    """Logits ``[P, V]`` after each left-padded prompt, and a cache of `slots` slots that holds it."""
    batch, time = prompts.shape
    mask = jnp.pad(causal_mask(valid), ((0, 0), (0, 0), (0, slots - time)))
    cache = KVCache.zeros(model.config, batch, slots)
    hidden, cache = model(prompts, token_positions(valid), mask, cache, 0)
    return model.logits(hidden[:, -1]), cache


@functools.partial(jax.jit, static_argnames=("graph", "slots"))
def _start(graph, parameters, prompts, valid, *, slots):
    return _prefill(nnx.merge(graph, parameters), prompts, valid, slots)


@functools.partial(jax.jit, static_argnames=("graph",), donate_argnames=("cache",))
def _advance(graph, parameters, cache, seen, token, position, slot):
    """Logits ``[1, V]`` after one more token, written at `slot`."""
    hidden, cache = nnx.merge(graph, parameters)(token[None, None], position[None, None], seen[None, None], cache, slot)
    return nnx.merge(graph, parameters).logits(hidden[:, 0]), cache


@jax.jit
def _choose(logits, allowed, key, step, temperature):
    logits = jnp.where(allowed, logits[0], -jnp.inf)
    drawn = jax.random.categorical(jax.random.fold_in(key, step), logits / jnp.where(temperature > 0, temperature, 1.0))
    return jnp.where(temperature > 0, drawn, jnp.argmax(logits))


@dataclasses.dataclass(frozen=True)
class GrammarSampler:
    """Writes one answer: thinks freely up to a cap, then is held to a grammar, token by token.

    Attributes:
      graph: static half of the model.
      tokenizer: of the model.
      max_prompt_tokens, max_thinking_tokens, max_answer_tokens: sizes of the one compiled program.
      temperature: 0 is greedy.
    """

    graph: nnx.GraphDef[Qwen3]
    tokenizer: Tokenizer
    vocabulary: int
    max_prompt_tokens: int
    max_thinking_tokens: int
    max_answer_tokens: int
    temperature: float

    def __call__(self, parameters: nnx.State, message: str, grammar: str, key: jax.Array) -> tuple[str, str, str]:
        """The response to one user message: all of it verbatim, its thinking and its answer.

        Args:
          parameters: of the model, as they are now.
          message: what the user says.
          grammar: in llguidance's Lark dialect; the answer belongs to it unless the cap cut it off.
          key: draws the tokens.

        Raises:
          ConfigError: if the message is longer than `max_prompt_tokens`.
        """
        import llguidance
        from llguidance.numpy import fill_next_token_bitmask

        tokenizer = self.tokenizer
        prompt = tokenizer.chat(message, thinking=True)
        rows, valid = tokenizer.pad_left([prompt], self.max_prompt_tokens, "engineer.max_prompt_tokens")
        forced_open, cut, forced_close = (tokenizer.encode(part) for part in ("<think>\n", "\n</think>", "\n\n"))
        forced = len(forced_open) + len(cut) + len(forced_close)
        budget = self.max_thinking_tokens + self.max_answer_tokens + forced
        slots = self.max_prompt_tokens + budget
        seen = np.zeros(slots, bool)
        seen[: self.max_prompt_tokens] = valid[0]
        logits, cache = _start(self.graph, parameters, rows, valid, slots=slots)
        said: list[int] = []

        def say(token: int) -> None:
            nonlocal logits, cache
            slot = self.max_prompt_tokens + len(said)
            seen[slot] = True
            position = len(prompt) + len(said)
            token = np.int32(token)
            logits, cache = _advance(
                self.graph, parameters, cache, seen.copy(), token, np.int32(position), np.int32(slot)
            )
            said.append(int(token))

        def draw(allowed: np.ndarray) -> int:
            return int(_choose(logits, allowed, key, np.int32(len(said)), np.float32(self.temperature)))

        for token in forced_open:
            say(token)
        free = np.arange(self.vocabulary) < len(tokenizer)
        free[list(tokenizer.stop_ids)] = False
        thought_from = len(said)
        closing = cut  # Where the model closes its thought itself, nothing is put in front of it.
        while len(said) < thought_from + self.max_thinking_tokens:
            token = draw(free)
            if token == tokenizer.end_think_id:
                closing = [token]
                break
            say(token)
        thinking = tokenizer.decode(said[thought_from:]).strip()
        for token in closing + forced_close:
            say(token)

        matcher = llguidance.LLMatcher(tokenizer.grammar_tokenizer(self.vocabulary), grammar)
        bits = np.zeros((1, -(-self.vocabulary // 32)), np.int32)
        answer_from = len(said)
        while len(said) < answer_from + self.max_answer_tokens:
            fill_next_token_bitmask(matcher, bits)
            allowed = np.unpackbits(bits.view(np.uint8), bitorder="little")[: self.vocabulary].astype(bool)
            token = draw(allowed & free) if (allowed & free).any() else None
            if token is None or not matcher.consume_token(token):
                break
            say(token)
            if matcher.is_stopped():
                break
        return tokenizer.decode(said), thinking, tokenizer.decode(said[answer_from:])
