"""The language model as an actor: it reads a view as a prompt, and its next token is the move; knows no boards."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxlake import view
from jaxlake.record import Array
from jaxlake.types import Action
from rl.config import ConfigError, PPOSection, TurnsSection
from rl.model.decoder import Decoder, abstract, token_positions
from rl.model.policy import Policy
from rl.model.tokenizer import Tokenizer, check_fit
from rl.students.player.actor import MAX_NORM, log_probabilities
from rl.students.player.properties import MOVES, properties


@dataclasses.dataclass(frozen=True)
class Prompt:
    """The tokens of every view, as tuples, so that it can be hashed.

    Attributes:
      before, after: tokens before and after those of the phrases.
      parts: for each part of a view the tokens of its phrases.
      moves: token of each `Action`.
    """

    before: tuple[int, ...]
    parts: tuple[tuple[tuple[int, ...], ...], ...]
    after: tuple[int, ...]
    moves: tuple[int, ...]

    @classmethod
    def of_length(cls, length: int) -> "Prompt":
        """Return a prompt whose views have so many tokens, whichever: programs depend on their number alone."""
        parts = len(view.phrases())
        return cls((0,) * (length - parts), (((0,),),) * parts, (), (0,) * len(Action))

    @property
    def length(self) -> int:
        """Tokens of a view, padding included."""
        return len(self.before) + sum(max(map(len, phrases)) for phrases in self.parts) + len(self.after)

    @property
    def padded(self) -> bool:
        """Whether views differ in length."""
        return any(len(set(map(len, phrases))) > 1 for phrases in self.parts)

    def tokens(self, views: Array) -> tuple[jax.Array, jax.Array]:
        """Return the tokens of views ``[n, parts]``, int32 ``[n, tokens]``, and where they are no padding, bool.

        The padding is on the right.
        """
        columns: list[Any] = [np.array([self.before], np.int32)]
        valid: list[Any] = [np.ones((1, len(self.before)), bool)]
        for number, phrases in enumerate(self.parts):
            width = max(map(len, phrases))
            table = np.array([phrase + (0,) * (width - len(phrase)) for phrase in phrases], np.int32)
            there = np.array([[i < len(phrase) for i in range(width)] for phrase in phrases])
            columns.append(jnp.asarray(table)[views[:, number]])
            valid.append(jnp.asarray(there)[views[:, number]])
        columns.append(np.array([self.after], np.int32))
        valid.append(np.ones((1, len(self.after)), bool))

        def join(parts: list[Any], dtype: Any) -> jax.Array:
            return jnp.concatenate([jnp.broadcast_to(x, (len(views), x.shape[1])).astype(dtype) for x in parts], axis=1)

        tokens, there = join(columns, jnp.int32), join(valid, bool)
        if not self.padded:
            return tokens, there
        order = jnp.argsort(~there, axis=1, stable=True)
        return jnp.take_along_axis(tokens, order, 1), jnp.take_along_axis(there, order, 1)


@dataclasses.dataclass(frozen=True)
class LanguageActor:
    """An `rl.students.player.actor.Actor`: a language model, and a linear value of its last hidden state.

    Its parameters are ``model``, the trained part of the model's, and ``value``, weight ``w`` and bias ``b``.

    Attributes:
      graph: the model's static half.
      prompt: the tokens of views and moves.
      chunk: number of decisions that are computed at once.
      first: first row of the embedding that is a phrase's; None where phrases are in the tokenizer's own words.
      observe: the view of an agent, in numbers of phrases.
    """

    graph: nnx.GraphDef[Decoder]
    prompt: Prompt
    chunk: int
    first: int | None
    observe: view.View = view.View()

    def forward(self, parameters: Any, frozen: nnx.State, views: Array, legal: Array) -> tuple[Array, Array]:
        """Return log-probabilities ``[n, 5]`` of the moves and values ``[n]``; see `Actor`."""
        model = nnx.merge(self.graph, nnx.merge_state(parameters["model"], frozen))
        tokens, valid = self.prompt.tokens(views)
        hidden = model(tokens, token_positions(valid), valid)
        if self.prompt.padded:
            hidden = jnp.take_along_axis(hidden, jnp.sum(valid, axis=1)[:, None, None] - 1, axis=1)
        hidden = hidden[:, -1].astype(jnp.float32)
        moves = model.head[np.array(self.prompt.moves)].astype(jnp.float32)
        value = hidden @ parameters["value"]["w"] + parameters["value"]["b"]
        return log_probabilities(hidden @ moves.T, legal), value

    def make_optimizer(self, settings: PPOSection) -> optax.GradientTransformation:
        """Return Adam with the gradient's norm bounded; phrases of the vocabulary learn by their properties."""
        adam = optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.adam(settings.learning_rate, eps=1e-5))
        return adam if self.first is None else _by_properties(adam, self.first)


def _by_properties(inner: optax.GradientTransformation, first: int) -> optax.GradientTransformation:
    """Return an optimizer of the rows from `first` on as sums of their properties' vectors.

    The rows themselves are what is kept, so that a checkpoint is an ordinary model.
    """
    table = properties().table

    def split(tree: Any) -> Any:
        weight = tree["model"]["embed_tokens"]["weight"]
        rows = weight[...]
        model = nnx.merge_state(tree["model"], nnx.State({"embed_tokens": {"weight": weight.replace(rows[:first])}}))
        return {"model": model, "value": tree["value"], "properties": table.T @ rows[first : first + len(table)]}

    def join(tree: Any, like: Any) -> Any:
        weight = tree["model"]["embed_tokens"]["weight"]
        rows = jnp.concatenate([weight[...], table @ tree["properties"]])
        left = like["model"]["embed_tokens"]["weight"][...].shape[0] - len(rows)
        rows = jnp.pad(rows, ((0, left), (0, 0)))
        model = nnx.merge_state(tree["model"], nnx.State({"embed_tokens": {"weight": weight.replace(rows)}}))
        return {"model": model, "value": tree["value"]}

    def update(gradient: Any, state: optax.OptState, parameters: Any) -> tuple[Any, optax.OptState]:
        updates, state = inner.update(split(gradient), state)
        return join(updates, gradient), state

    return optax.GradientTransformation(lambda parameters: inner.init(split(parameters)), update)


def make_actor(
    policy: Policy, settings: TurnsSection, parameters: nnx.State, key: jax.Array
) -> tuple[LanguageActor, Policy, nnx.State]:
    """Return the actor, and policy and parameters with a token for each phrase if the settings ask for such.

    Args:
      key: key of the new rows of the embedding.

    Raises:
      ConfigError: if the tokenizer has no single token for a move, or the settings do not go together.
    """
    tokenizer = policy.tokenizer
    if not settings.tokens:
        prompt = _in_words(tokenizer)
        check_fit([(0,) * prompt.length], policy.text.max_prompt_tokens, "text.max_prompt_tokens")
        return LanguageActor(policy.graph, prompt, settings.chunk, None), policy, parameters
    if policy.shape.lora is not None:
        raise ConfigError(
            "student.turns.tokens = true: must be false with adapters, which leave the embedding of new tokens as it is"
        )
    phrases = [phrase for part in view.phrases() for phrase in part]
    missing = [token for token in (*phrases, *MOVES) if tokenizer.id_of(token) is None]
    if missing and len(missing) < len(phrases) + len(MOVES):
        raise ConfigError(
            f"{tokenizer.folder}: has tokens of another view of the boards and lacks {missing[0]!r}; it was trained by "
            "another version"
        )
    if missing:
        tokenizer = tokenizer.with_tokens(missing)
        policy, parameters = _grow(dataclasses.replace(policy, tokenizer=tokenizer), parameters, len(missing), key)
    ids = {token: tokenizer.id_of(token) for token in (*phrases, *MOVES)}
    prompt = Prompt(
        before=(),
        parts=tuple(tuple((ids[phrase],) for phrase in part) for part in view.phrases()),  # type: ignore[misc]
        after=(),
        moves=tuple(ids[move] for move in MOVES),  # type: ignore[misc]
    )
    return LanguageActor(policy.graph, prompt, settings.chunk, ids[phrases[0]]), policy, parameters


def _in_words(tokenizer: Tokenizer) -> Prompt:
    """Return the prompt in the tokenizer's own words, within its chat format."""
    setting, mark = "student.turns.tokens", "\x00"
    tokenizer.check_answers_at_once(setting)
    before, after = tokenizer.chat_text(view.INSTRUCTIONS + mark, thinking=False).split(mark)
    words, parts = before, []
    for phrases in view.phrases():
        parts.append(tuple(tuple(tokenizer.encode(phrase, after=words)) for phrase in phrases))
        words += phrases[0]  # any of them does, as is checked below
    moves = [tokenizer.encode(tokenizer.lead + action.name.lower(), after=words + after) for action in Action]
    if any(len(tokens) != 1 for tokens in moves) or len({tokens[0] for tokens in moves}) < len(moves):
        several = next((a for a, t in zip(Action, moves, strict=True) if len(t) != 1), Action.UP)
        raise ConfigError(
            f"{setting} = false: needs a tokenizer with a token for each move, and that of {tokenizer.folder} has none "
            f"for {several.name.lower()}; set {setting}=true"
        )
    prompt = Prompt(
        before=tuple(tokenizer.encode(before, after="")),
        parts=tuple(parts),
        after=tuple(tokenizer.encode(after, after=words)),
        moves=tuple(tokens[0] for tokens in moves),
    )
    # Each phrase beside each of the next part: what stands further apart does not join.
    pairs = itertools.product(range(max(map(len, parts))), repeat=2)
    views = np.array([[pair[i % 2] % len(part) for i, part in enumerate(parts)] for pair in pairs])
    for numbers, tokens, valid in zip(views, *map(np.asarray, prompt.tokens(views)), strict=True):
        seen = view.text(numbers)
        if tokens[valid].tolist() != tokenizer.chat(view.INSTRUCTIONS + seen, thinking=False):
            raise ConfigError(
                f"{setting} = false: needs a tokenizer whose tokens end where the phrases of a view do, and those of "
                f"{tokenizer.folder} do not in {seen!r}; set {setting}=true"
            )
    return prompt


def _grow(policy: Policy, parameters: nnx.State, count: int, key: jax.Array) -> tuple[Policy, nnx.State]:
    """Return policy and parameters with the rows of `count` new tokens, the last ones of the tokenizer."""
    first = len(policy.tokenizer) - count
    size = max(policy.shape.vocab_size, first + count)
    shape = dataclasses.replace(policy.shape, vocab_size=size)
    graph, shapes = abstract(shape, policy.mesh)
    table, scales = properties()

    def extend(path: tuple[Any, ...], old: nnx.Variable, new: nnx.Variable) -> nnx.Variable:
        if old.shape == new.shape and path[0] not in ("embed_tokens", "lm_head"):
            return old
        rows = old[...]
        spread = scales[:, None] * jnp.sqrt(jnp.mean(rows[:first].astype(jnp.float32) ** 2))
        fresh = table @ (spread * jax.random.normal(key, (len(scales), rows.shape[1]), jnp.float32))
        whole = (
            jnp.pad(rows[:first], ((0, size - first), (0, 0))).at[first : first + count].set(fresh.astype(rows.dtype))
        )
        return old.replace(jax.device_put(whole, new.sharding))

    flat, wanted = nnx.to_flat_state(parameters), dict(nnx.to_flat_state(shapes))
    grown = nnx.from_flat_state([(path, extend(path, variable, wanted[path])) for path, variable in flat])
    return dataclasses.replace(policy, graph=graph, shape=shape), grown


@functools.partial(jax.jit, static_argnums=0)
def first_value(width: int) -> dict[str, jax.Array]:
    """Return the value head of a player that has not begun: zeros."""
    return {"w": jnp.zeros(width, jnp.float32), "b": jnp.zeros((), jnp.float32)}
