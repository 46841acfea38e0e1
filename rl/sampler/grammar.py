"""Text under a grammar: the model thinks freely up to a cap, then every token is held to the grammar."""

import dataclasses
from collections.abc import Callable, Generator
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from rl.qwen3.model import Qwen3, Qwen3Config
from rl.qwen3.tokenizer import Tokenizer, check_fit
from rl.sampler import Guide, Sampler, SamplingParams

OPEN = "<think>\n"
CUT = "\n</think>"
"""Closes a thought that has reached its cap; one that the model closes itself stays as it wrote it."""
BETWEEN = "\n\n"


@dataclasses.dataclass(frozen=True)
class GrammarSampler:
    """A sampler of answers in two parts: a thought of at most so many tokens, and then what a grammar admits.

    It is an ordinary `Sampler` that is told before each token which ones may come. Where that is only one, as at the
    forced end of a thought, the model has no choice. In a job of several processes all of them write the same texts.

    Attributes:
      graph, config, mesh: of the model.
      tokenizer: of the model.
      max_prompt_tokens: of the message in its chat format.
      max_thinking_tokens, max_answer_tokens: the caps.
      sampling: of thought and answer.
      answers: how many are written at once; more than these wait for each other.
    """

    graph: nnx.GraphDef[Qwen3]
    config: Qwen3Config
    mesh: Mesh
    tokenizer: Tokenizer
    max_prompt_tokens: int
    max_thinking_tokens: int
    max_answer_tokens: int
    sampling: SamplingParams
    answers: int = 1

    def write(
        self,
        parameters: nnx.State,
        message: str,
        grammar: str,
        key: jax.Array,
        count: int,
        progress: Callable[[int], None] | None = None,
    ) -> list[tuple[str, str, str]]:
        """Write `count` responses to one user message; return each verbatim, its thinking and its answer.

        Args:
          parameters: as `sharding.for_rollout` lays them out.
          message: what the user says.
          grammar: in llguidance's Lark dialect; the answer belongs to it unless the cap cut it off.
          key: draws the tokens; the first of several responses is the one that would be written alone.
          progress: called after each token with the number of finished responses; may raise.

        Raises:
          ConfigError: if the message is longer than `max_prompt_tokens`.
        """
        tokenizer = self.tokenizer
        prompt = tokenizer.chat(message, thinking=True)
        check_fit([prompt], self.max_prompt_tokens, "engineer.max_prompt_tokens")
        vocabulary = tokenizer.grammar_tokenizer(self.config.vocab_size)
        scripts = [Script(self, vocabulary, grammar) for _ in range(count)]
        opening = tokenizer.encode(OPEN)
        sampler = self._sampler(len(opening))
        rollout = sampler.generate(
            parameters,
            [prompt + opening] * count,
            key,
            sampling=self.sampling,
            guides=[script.allow for script in scripts],
            first_request=0,  # the same on all processes, so that they write the same
            progress=progress,
        )
        texts = []
        for tokens, mask, script in zip(rollout.tokens, rollout.mask, scripts, strict=True):
            written = tokens[mask].tolist()
            thinking, answer = written[: script.thought_to], written[script.answer_from :]
            texts.append(
                (tokenizer.decode(opening + written), tokenizer.decode(thinking).strip(), tokenizer.decode(answer))
            )
        return texts

    def _sampler(self, opening: int) -> Sampler:
        """Return the sampler of tokens, with room for forced tokens and for the one that ends an answer."""
        shards = self.mesh.shape["fsdp"]
        forced = len(self.tokenizer.encode(CUT) + self.tokenizer.encode(BETWEEN))
        return Sampler(
            graph=self.graph,
            config=self.config,
            mesh=self.mesh,
            rows=shards * -(-self.answers * jax.process_count() // shards),
            max_prompt_tokens=self.max_prompt_tokens + opening,
            max_new_tokens=self.max_thinking_tokens + forced + self.max_answer_tokens + 1,
            stop_ids=self.tokenizer.stop_ids,
        )


class Script:
    """The tokens that one response may go on with, step by step: thought, its end, answer, end.

    Attributes:
      allow: the guide for the sampler.
      thought_to, answer_from: tokens before the thought's end and before the answer, once these are reached.
    """

    def __init__(self, sampler: GrammarSampler, vocabulary: Any, grammar: str):
        """`vocabulary`: the tokenizer as llguidance wants it."""
        import llguidance

        self.sampler = sampler
        self.matcher = llguidance.LLMatcher(vocabulary, grammar)
        self.allow: Guide = self._write().send

    def _write(self) -> Generator[np.ndarray, int | None, None]:
        """Yield bool ``[V]`` before each token, and be sent the one that came."""
        tokenizer = self.sampler.tokenizer
        tokens = np.arange(self.sampler.config.vocab_size)
        text = tokens < len(tokenizer)
        text[list(tokenizer.stop_ids)] = False

        self.thought_to, closed = 0, False
        while self.thought_to < self.sampler.max_thinking_tokens and not closed:
            closed = (yield text) == tokenizer.end_think_id
            self.thought_to += not closed
        forced = tokenizer.encode(BETWEEN) if closed else tokenizer.encode(CUT) + tokenizer.encode(BETWEEN)
        for token in forced:
            yield tokens == token
        self.answer_from = self.thought_to + closed + len(forced)

        for _ in range(self.sampler.max_answer_tokens):
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

        size = self.sampler.config.vocab_size
        bits = np.zeros((1, -(-size // 32)), np.int32)
        fill_next_token_bitmask(self.matcher, bits)
        return np.unpackbits(bits.view(np.uint8), bitorder="little")[:size].astype(bool)
