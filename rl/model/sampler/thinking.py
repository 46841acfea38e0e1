"""The end of a thought that has reached its cap: the sampler writes it, and the model continues with its answer."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array
from rl.model.tokenizer import Tokenizer


def closing(tokenizer: Tokenizer, sentence: str | None) -> list[int]:
    """Return the tokens that close a thought at its cap: a sentence, if there is one, `</think>` and an empty line."""
    return tokenizer.encode(f"\n\n{sentence}\n</think>\n\n" if sentence else "\n</think>\n\n")


@dataclasses.dataclass(frozen=True)
class ThinkingBudget:
    """The cap on the thoughts of a sampler's answers.

    Attributes:
      tokens: number of an answer's tokens after which its thought is closed if it is still open.
      closing: tokens that are written then, whatever the model would write.
      open_id: the token of `<think>`, with which an answer opens a thought; None if the prompt has opened it.
      end_id: the token of `</think>`.
    """

    tokens: int
    closing: tuple[int, ...]
    open_id: int | None
    end_id: int

    def allowed(self, tokens: Array, count: Array, vocabulary: int) -> jax.Array:
        """Mark the tokens that may come next: bool ``[B, V]``, one of them within a closing and else all.

        Args:
          tokens: int32 ``[B, T]``, of which the first `count` are written.
          count: int32 ``[B]``.
        """
        place = count - self.tokens
        forced = self._is_open(tokens) & (place >= 0) & (place < len(self.closing))
        token = jnp.array(self.closing)[jnp.clip(place, 0, len(self.closing) - 1)]
        return jnp.where(forced[:, None], jnp.arange(vocabulary) == token[:, None], True)

    def forced(self, tokens: Array, mask: Array) -> np.ndarray:
        """Mark the tokens of answers ``[B, T]`` that the model did not choose; those outside of `mask` are none."""
        place = np.arange(tokens.shape[1]) - self.tokens
        forced = mask & self._is_open(tokens)[:, None] & (place >= 0) & (place < len(self.closing))
        return np.asarray(forced)

    def _is_open(self, tokens: Array) -> Array:
        """Whether a thought is open at the cap, bool ``[B]``; means nothing before all tokens up to it are written."""
        before = tokens[:, : self.tokens]
        unclosed = ~(before == self.end_id).any(axis=1)
        return unclosed if self.open_id is None else unclosed & (before == self.open_id).any(axis=1)
