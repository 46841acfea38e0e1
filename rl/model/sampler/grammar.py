"""Text under a grammar: the model thinks freely up to a cap, then every token is held to the grammar."""

import dataclasses
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from engineer import Generate, Generation, NoAnswer
from rl.config import ConfigError, EngineerSection
from rl.model.sampler import Guide, Sampler, SamplingParams
from rl.model.sampler.thinking import closing
from rl.model.sharding import for_rollout
from rl.model.tokenizer import Tokenizer, check_fit

OPEN = "<think>\n"
CLOSE = "</think>"
BETWEEN = "\n\n"
"""Follows the end of a thought; one that the model closes itself stays as it wrote it."""


class Written(NamedTuple):
    """A response as text: all of it verbatim, its parts, and how many tokens it has, the last one included."""

    raw: str
    thinking: str
    answer: str
    tokens: int


@dataclasses.dataclass(frozen=True)
class GrammarSampler:
    """A sampler of answers in two parts: a thought of at most so many tokens, and then what a grammar admits.

    It is an ordinary `Sampler` that gets the allowed tokens before each token. Where that is only one, as at the
    forced end of a thought, the model has no choice. In a job of several processes all of them write the same texts.

    Attributes:
      sampler: the same model's sampler, for text without a grammar.
      settings: room for the message in its chat format, caps of thought and answer, and how both are drawn.
      early_stop: sentence that ends a thought at its cap; None for none.
      rows: responses that are written at once; more than these wait for each other.
    """

    sampler: Sampler
    tokenizer: Tokenizer
    settings: EngineerSection
    early_stop: str | None = None
    rows: int = 1

    def write(
        self,
        parameters: nnx.State,
        requests: Sequence[tuple[str, str]],
        key: jax.Array,
        progress: Callable[[int], None] | None = None,
    ) -> list[Written]:
        """Write a response to each request.

        Args:
          parameters: parameters in the layout of `sharding.for_rollout`.
          requests: user messages, each with a grammar in llguidance's Lark dialect; the answer belongs to it unless the
            cap cut it off. Equal ones get different responses.
          key: key of the tokens; the first of several responses is the one that would be written alone.
          progress: called after each token with the number of finished responses; may raise.

        Raises:
          ConfigError: if a message is longer than `engineer.max_prompt_tokens`.
        """
        tokenizer, settings = self.tokenizer, self.settings
        chats = {message: tokenizer.chat(message, thinking=True) for message, _ in requests}
        check_fit(list(chats.values()), settings.max_prompt_tokens, "engineer.max_prompt_tokens")
        vocabulary = tokenizer.grammar_tokenizer(self.sampler.config.vocab_size)
        scripts = [Script(self, vocabulary, grammar) for _, grammar in requests]
        opened = tokenizer.opened(thinking=True)
        opening = [] if opened else tokenizer.reply(OPEN)
        rollout = self.tokens.generate(
            parameters,
            [chats[message] + opening for message, _ in requests],
            key,
            sampling=SamplingParams(settings.temperature, settings.top_k, settings.top_p),
            guides=[script.guide() for script in scripts],
            first_request=0,  # the same on all processes, so that they write the same
            progress=progress,
        )
        responses = []
        for written, mask, script in zip(rollout.tokens, rollout.mask, scripts, strict=True):
            tokens = written[mask].tolist()
            responses.append(
                Written(
                    raw=(opened or OPEN) + tokenizer.decode(tokens),
                    thinking=tokenizer.decode(tokens[: script.thought_to]).strip().removesuffix(CLOSE).strip(),
                    answer=tokenizer.decode(tokens[script.answer_from :]),
                    tokens=len(tokens),
                )
            )
        return responses

    def generation(self, parameters: Callable[[], nnx.State], progress: Callable[[int], None]) -> Generate:
        """Return how an engineer's answers are written; the samplers' copy of the parameters lives as long as a call.

        Args:
          parameters: function that returns the parameters that write, at each call.
          progress: called now and then while they write; may raise.
        """

        def generate(message: str, grammar: str, key: jax.Array) -> Generation:
            copy = for_rollout(parameters(), self.sampler.config.dtype, self.sampler.mesh)
            try:
                (written,) = self.write(copy, [(message, grammar)], key, progress)
            except ConfigError as error:  # the message is too long even with everything left out that can be
                raise NoAnswer(str(error)) from None
            return Generation(*written[:3])

        return generate

    @property
    def tokens(self) -> Sampler:
        """The sampler of tokens, with room for forced ones and for the one that ends an answer."""
        settings, shards = self.settings, self.sampler.shards
        opening = len(self.tokenizer.reply(OPEN))
        forced = len(closing(self.tokenizer, self.early_stop))
        return dataclasses.replace(
            self.sampler,
            rows=shards * -(-self.rows * jax.process_count() // shards),
            max_prompt_tokens=settings.max_prompt_tokens + opening,
            max_new_tokens=settings.max_thinking_tokens + forced + settings.max_answer_tokens + 1,
            thinking=None,  # a guide closes thoughts here, as the grammar begins behind them
        )


class Script:
    """The allowed next tokens of one response, step by step: thought, its end, answer, end.

    Attributes:
      thought_to, answer_from: numbers of tokens up to the thought's end and up to the answer, once these are reached.
    """

    def __init__(self, sampler: GrammarSampler, vocabulary: Any, grammar: str):
        """`vocabulary`: the tokenizer as llguidance wants it."""
        import llguidance

        self.tokenizer, self.settings, self.early_stop = sampler.tokenizer, sampler.settings, sampler.early_stop
        self.vocabulary_size = sampler.sampler.config.vocab_size
        self.matcher = llguidance.LLMatcher(vocabulary, grammar)

    def guide(self) -> Guide:
        """Begin the response; the sampler asks what this returns. Not kept in here, as a cycle would outlive both."""
        return self._write().send

    def _write(self) -> Generator[np.ndarray, Any, None]:
        """Yield bool ``[V]`` before each token, and be sent the one that came."""
        tokenizer = self.tokenizer
        tokens = np.arange(self.vocabulary_size)
        text = tokens < len(tokenizer)
        text[[*tokenizer.stop_ids, *tokenizer.suppressed]] = False

        thought: list[int] = []
        forced = closing(tokenizer, self.early_stop)
        while len(thought) < self.settings.max_thinking_tokens:
            thought.append((yield text))
            # A tokenizer without a token for it writes the tag as text, in at most as many tokens as it has letters.
            written = thought[-1:] if tokenizer.end_think_id is not None else thought[-len(CLOSE) :]
            _, closed, begun = tokenizer.decode(written).partition(CLOSE)
            if closed:
                forced = tokenizer.encode(BETWEEN.removeprefix(begun), after=CLOSE + begun)
                break
        for token in forced:
            yield tokens == token
        self.thought_to, self.answer_from = len(thought), len(thought) + len(forced)

        for _ in range(self.settings.max_answer_tokens):
            allowed = text & self._grammatical()
            if not allowed.any():
                break
            token = yield allowed
            if not self.matcher.consume_token(token):
                raise RuntimeError(f"the grammar refused a token that it had allowed: {self.matcher.get_error()}")
            if self.matcher.is_stopped():
                break
        while True:
            yield tokens == tokenizer.stop_ids[0]

    def _grammatical(self) -> np.ndarray:
        """Return the tokens that the grammar admits next, bool ``[V]``."""
        from llguidance.numpy import fill_next_token_bitmask

        size = self.vocabulary_size
        bits = np.zeros((1, -(-size // 32)), np.int32)
        fill_next_token_bitmask(self.matcher, bits)
        return np.unpackbits(bits.view(np.uint8), bitorder="little")[:size].astype(bool)
