"""Text under a grammar: the model thinks freely up to a cap, then every token is held to the grammar."""

import dataclasses
from collections.abc import Callable, Generator
from typing import Any

import jax
import numpy as np
from flax import nnx

from engineer import Generate, Generation, NoAnswer
from rl.config import ConfigError, EngineerSection
from rl.model.sampler import Sampler, SamplingParams
from rl.model.sampler.thinking import closing
from rl.model.sharding import for_rollout
from rl.model.tokenizer import Tokenizer, check_fit

OPEN = "<think>\n"
CLOSE = "</think>"
BETWEEN = "\n\n"
"""Follows the end of a thought; one that the model closes itself stays as it wrote it."""


@dataclasses.dataclass(frozen=True)
class GrammarSampler:
    """A sampler of an answer in two parts: a thought of at most so many tokens, and then what a grammar admits.

    It is an ordinary `Sampler` that gets the allowed tokens before each token. Where that is only one, as at the
    forced end of a thought, the model has no choice. In a job of several processes all of them write the same text.

    Attributes:
      sampler: the same model's sampler, for text without a grammar.
      settings: room for the message in its chat format, caps of thought and answer, and how both are drawn.
      early_stop: sentence that ends a thought at its cap; None for none.
    """

    sampler: Sampler
    tokenizer: Tokenizer
    settings: EngineerSection
    early_stop: str | None = None

    def write(
        self,
        parameters: nnx.State,
        message: str,
        grammar: str,
        key: jax.Array,
        progress: Callable[[int], None] | None = None,
    ) -> Generation:
        """Write a response; ConfigError if the message is longer than `engineer.max_prompt_tokens`.

        Args:
          parameters: parameters in the layout of `sharding.for_rollout`.
          message: user message.
          grammar: in llguidance's Lark dialect; the answer belongs to it unless the cap cut it off.
          key: key of the tokens.
          progress: called after each token; may raise.
        """
        tokenizer, settings = self.tokenizer, self.settings
        chat = tokenizer.chat(message, thinking=True)
        check_fit([chat], settings.max_prompt_tokens, "engineer.max_prompt_tokens")
        opened = tokenizer.opened(thinking=True)
        rollout = self.tokens.generate(
            parameters,
            [chat if opened else chat + tokenizer.reply(OPEN)],
            key,
            sampling=SamplingParams(settings.temperature, settings.top_k, settings.top_p),
            guide=allowed_tokens(self, grammar).send,
            first_request=0,  # the same on all processes, so that they write the same
            progress=progress,
        )
        text = tokenizer.decode(rollout.tokens[rollout.mask].tolist())
        thinking, _, answer = text.rpartition(CLOSE)
        thinking = thinking.strip().removesuffix(self.early_stop or "").strip()
        return Generation((opened or OPEN) + text, thinking, answer.removeprefix(BETWEEN))

    def generation(self, parameters: Callable[[], nnx.State], progress: Callable[[int], None]) -> Generate:
        """Return how an engineer's answers are written; the samplers' copy of the parameters lives as long as a call.

        Args:
          parameters: function that returns the parameters that write, at each call.
          progress: called now and then while they write; may raise.
        """

        def generate(message: str, grammar: str, key: jax.Array) -> Generation:
            copy = for_rollout(parameters(), self.sampler.config.dtype, self.sampler.mesh)
            try:
                return self.write(copy, message, grammar, key, progress)
            except ConfigError as error:  # the message is too long even with everything left out that can be
                raise NoAnswer(str(error)) from None

        return generate

    @property
    def tokens(self) -> Sampler:
        """The sampler of tokens, with room for forced ones and for the one that ends an answer."""
        settings, shards = self.settings, self.sampler.shards
        opening = len(self.tokenizer.reply(OPEN))
        forced = len(closing(self.tokenizer, self.early_stop))
        return dataclasses.replace(
            self.sampler,
            rows=shards * -(-jax.process_count() // shards),
            max_prompt_tokens=settings.max_prompt_tokens + opening,
            max_new_tokens=settings.max_thinking_tokens + forced + settings.max_answer_tokens + 1,
            thinking=None,  # a guide closes thoughts here, as the grammar begins behind them
        )


def allowed_tokens(sampler: GrammarSampler, grammar: str) -> Generator[np.ndarray, Any, None]:
    """Yield the tokens that may come next, bool ``[V]``, and be sent the one that came.

    They are those of a thought, then of its end, of an answer in the grammar, and of the end of all.
    """
    import llguidance
    from llguidance.numpy import fill_next_token_bitmask

    tokenizer, settings, vocabulary = sampler.tokenizer, sampler.settings, sampler.sampler.config.vocab_size
    matcher = llguidance.LLMatcher(tokenizer.grammar_tokenizer(vocabulary), grammar)
    tokens = np.arange(vocabulary)
    text = tokens < len(tokenizer)
    text[[*tokenizer.stop_ids, *tokenizer.suppressed]] = False

    thought: list[int] = []
    forced = closing(tokenizer, sampler.early_stop)
    while len(thought) < settings.max_thinking_tokens:
        thought.append((yield text))
        # A tokenizer without a token for it writes the tag as text, in at most as many tokens as it has letters.
        written = thought[-1:] if tokenizer.end_think_id is not None else thought[-len(CLOSE) :]
        _, closed, begun = tokenizer.decode(written).partition(CLOSE)
        if closed:
            forced = tokenizer.encode(BETWEEN.removeprefix(begun), after=CLOSE + begun)
            break
    for token in forced:
        yield tokens == token

    bits = np.zeros((1, -(-vocabulary // 32)), np.int32)
    for _ in range(settings.max_answer_tokens):
        fill_next_token_bitmask(matcher, bits)
        allowed = text & np.unpackbits(bits.view(np.uint8), bitorder="little")[:vocabulary].astype(bool)
        if not allowed.any():
            break
        token = yield allowed
        if not matcher.consume_token(token):
            raise RuntimeError(f"the grammar refused a token that it had allowed: {matcher.get_error()}")
        if matcher.is_stopped():
            break
    while True:
        yield tokens == tokenizer.stop_ids[0]
