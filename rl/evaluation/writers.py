"""The writers of an engineer's responses in the reading test: a checkpoint on the devices here, or a server's model."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx

from rl.config import Config
from rl.policy import Policy
from rl.run.checkpoint import fingerprint

if TYPE_CHECKING:
    from rl.sampler.api import ChatClient

AT_ONCE = 48
"""Responses that a checkpoint writes side by side; a process that is killed loses so many."""


class Writer:
    """Writes an engineer's responses to messages.

    Attributes:
      masked: they are held to the grammar.
    """

    masked: bool

    def identity(self) -> dict[str, Any]:
        """Return what decides on the responses, beside the messages; plain values."""
        raise NotImplementedError

    def fits(self, message: str) -> bool:
        """Whether there is room for a message."""
        raise NotImplementedError

    def write(self, requests: Sequence[tuple[str, str]]) -> Iterator[tuple[int, str]]:
        """Yield the responses to messages with grammars as they come, each with its request's index."""
        raise NotImplementedError


class PolicyWriter(Writer):
    """A language model on the devices here.

    Args:
      policy: whose `engineer` settings say how it writes.
      parameters: as `Policy.create` and `Policy.load` give them.
    """

    masked = True

    def __init__(self, policy: Policy, parameters: nnx.State):
        self._policy, self._settings = policy, policy.config.engineer
        self._fingerprint = fingerprint(parameters)
        self._parameters = policy.rollout_parameters(parameters)
        self._key = jax.random.key(policy.config.seed)

    def identity(self) -> dict[str, Any]:
        """Return what decides on the responses, beside the messages; plain values."""
        return {"parameters": self._fingerprint}

    def fits(self, message: str) -> bool:
        """Whether a message is within `engineer.max_prompt_tokens`."""
        return self._policy.tokenizer.fits(message, self._settings.max_prompt_tokens)

    def write(self, requests: Sequence[tuple[str, str]]) -> Iterator[tuple[int, str]]:
        """Write `AT_ONCE` responses at a time.

        Raises:
          ConfigError: if a message is longer than `engineer.max_prompt_tokens`.
        """
        settings = self._settings.model_copy(update={"proposals": min(AT_ONCE, max(1, len(requests)))})
        sampler = dataclasses.replace(self._policy.grammar_sampler(), settings=settings)
        for first in range(0, len(requests), AT_ONCE):
            part = requests[first : first + AT_ONCE]
            written = sampler.write(self._parameters, part, jax.random.fold_in(self._key, first))
            yield from ((first + i, response.raw) for i, response in enumerate(written))


class ApiWriter(Writer):
    """A model behind an API.

    Args:
      concurrency: requests under way at once.
    """

    masked = False

    def __init__(self, client: "ChatClient", config: Config, concurrency: int):
        self._client, self._settings, self._concurrency = client, config.engineer, concurrency

    def identity(self) -> dict[str, Any]:
        """Return what decides on the responses, beside the messages; plain values."""
        return {"url": self._client.url, "api_model": self._client.model}

    def fits(self, message: str) -> bool:
        """Whether there is room: a server knows its own."""
        return True

    def write(self, requests: Sequence[tuple[str, str]]) -> Iterator[tuple[int, str]]:
        """Ask, and yield each response as it comes.

        Raises:
          ApiError: if a request fails.
        """
        from rl.sampler.api import ApiError, Request, RequestFailed  # needs a package that not everyone has

        settings = self._settings
        asked = [
            Request(
                message=message,
                temperature=settings.temperature,
                max_tokens=settings.max_thinking_tokens + settings.max_answer_tokens,
                seed=i if settings.temperature else None,
                top_p=settings.top_p,
                top_k=settings.top_k,
            )
            for i, (message, _) in enumerate(requests)
        ]
        for index, result in self._client.map(asked, self._concurrency):
            if isinstance(result, RequestFailed):
                raise ApiError(f"{self._client.url}: {result}; the same command asks again")
            yield index, result.text
