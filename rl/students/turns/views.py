"""Views as tokens: the prompt of a decision, in the tokenizer's own words or in tokens made for them."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake import view
from jaxlake.record import Array
from jaxlake.types import Action
from jaxlake.view import CELLS, CLOCK, FAR
from rl.config import ConfigError
from rl.model.tokenizer import Tokenizer

MOVES = tuple(f" move: {action.name.lower()}" for action in Action)
"""The answers, by the numbers of `Action`."""
_SCALES = {"near": 0.6, "beyond": 0.3, "contested": 0.6, "far": 0.15, "clock": 0.1, "move": 0.05}
"""Sizes of properties' first vectors against those of the embedding's rows; 1 for signs and what all views share.

Small for the moves, so that the first policy is nearly uniform."""


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
        columns = []
        for number, phrases in enumerate([(self.before,), *self.parts, (self.after,)]):
            width = max(map(len, phrases))
            table = np.array([phrase + (-1,) * (width - len(phrase)) for phrase in phrases], np.int32)
            rows = views[:, number - 1] if 0 < number <= len(self.parts) else np.zeros(len(views), int)
            columns.append(jnp.asarray(table)[rows])
        tokens = jnp.concatenate(columns, axis=1)
        if not self.padded:
            return tokens, jnp.ones(tokens.shape, bool)
        tokens = jnp.take_along_axis(tokens, jnp.argsort(tokens < 0, axis=1, stable=True), axis=1)
        return jnp.maximum(tokens, 0), tokens >= 0


def in_words(tokenizer: Tokenizer) -> Prompt:
    """Return the prompt in the tokenizer's own words, within its chat format."""
    setting, mark = "student.tokens", "\x00"
    tokenizer.check_answers_at_once(setting)
    before, after = tokenizer.chat_text(view.INSTRUCTIONS + mark, thinking=False).split(mark)
    words, parts = before, []
    for phrases in view.phrases():
        parts.append(tuple(tuple(tokenizer.encode(phrase, after=words)) for phrase in phrases))
        words += phrases[0]  # any of them does, as is checked below
    moves = [tokenizer.encode(tokenizer.lead + action.name.lower(), after=words + after) for action in Action]
    if any(len(tokens) != 1 for tokens in moves) or len({tokens[0] for tokens in moves}) < len(moves):
        raise ConfigError(
            f"{setting} = false: needs a tokenizer with a token for each move, which that of {tokenizer.folder} lacks; "
            f"set {setting}=true"
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


@functools.cache
def properties() -> tuple[np.ndarray, np.ndarray]:
    """Return the properties of all phrases, part by part, and of the moves: what they have in common.

    Phrases of a direction share what is near, beyond and contested. Distances of one sign share the sign, those of five
    and more their length: what small boards never show is learned with the rest.

    Returns:
      float32 ``[phrases and moves, properties]``, 1 where a phrase has a property; and ``[properties]``, how large the
      first vector of each is.
    """
    rows: list[list[tuple[str, ...]]] = []
    for axis in ("rows", "columns"):
        for distance in range(-FAR, FAR + 1):
            rows.append([(axis, "sign", str(np.sign(distance))), (axis, "far", str(min(abs(distance), 5)))])
    for name in range(Action.WAIT):
        for near, beyond, contested in itertools.product(CELLS, CELLS, "01"):
            rows.append([(str(name), "near", near), (str(name), "beyond", beyond), (str(name), "contested", contested)])
    rows += [[("", "always"), ("", "clock", str(number))] for number in range(len(CLOCK) + 1)]
    rows += [[("", "move", move)] for move in MOVES]
    names = list(dict.fromkeys(name for row in rows for name in row))
    scales = [_SCALES.get(name[1], 1.0) for name in names]
    table = np.array([[name in row for name in names] for row in rows], np.float32)
    return table, np.array(scales, np.float32)
