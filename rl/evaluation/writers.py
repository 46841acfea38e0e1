"""The writers of an engineer's responses in the reading test: a checkpoint on the devices here, or a server's model."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx

from jaxlake.arguments import seed_key
from rl.config import Config
from rl.policy import Policy
from rl.run.checkpoint import fingerprint

if TYPE_CHECKING:
    from rl.sampler.api import ChatClient, Request

AT_ONCE = 48
"""Responses that a checkpoint writes side by side; a process that is killed loses so many."""


class Writer:
    """Writes an engineer's responses to messages.

    Attributes:
      client: of the server that is asked; None where the responses are written here.
    """

    client: "ChatClient | None" = None

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

    def __init__(self, policy: Policy, parameters: nnx.State):
        self._policy, self._settings = policy, policy.config.engineer
        self._fingerprint = fingerprint(parameters)
        self._parameters = policy.rollout_parameters(parameters)
        self._key = seed_key(policy.config.seed)

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
    """A model behind an API, which is asked a first small question at once; its words are free, no schema holds it.

    Args:
      concurrency: requests under way at once.
      say: gets a line on what the server refuses, and on responses that were cut off.

    Raises:
      ApiError: if the question gets no answer.
    """

    def __init__(self, client: "ChatClient", config: Config, concurrency: int, say: Callable[[str], None]):
        self.client: ChatClient = client
        self._settings, self._concurrency, self._say = config.engineer, concurrency, say
        client.check(self._request("", 0), say)

    def identity(self) -> dict[str, Any]:
        """Return what decides on the responses, beside the messages; plain values."""
        return {
            "url": self.client.url,
            "api_model": self.client.model,
            "max_tokens": self._settings.api.max_tokens,
            "sent": self.client.sent(self._request("", 0)),
            "refused": sorted(self.client.refused),
        }

    def fits(self, message: str) -> bool:
        """Whether there is room: a server knows its own."""
        return True

    def write(self, requests: Sequence[tuple[str, str]]) -> Iterator[tuple[int, str]]:
        """Ask, and yield each response as it comes.

        Raises:
          ApiError: if a request fails.
        """
        from rl.sampler.api import ApiError, RequestFailed  # needs a package that not everyone has

        asked = [self._request(message, seed) for seed, (message, _) in enumerate(requests)]
        cut = 0
        for index, result in self.client.map(asked, self._concurrency):
            if isinstance(result, RequestFailed):
                raise ApiError(f"{self.client.url}: {result}; the same command asks again")
            cut += result.truncated
            yield index, result.text
        if cut:
            limit = self._settings.api.max_tokens
            self._say(f"{cut:,} of {len(asked):,} responses were cut off at engineer.api.max_tokens = {limit:,}")

    def _request(self, message: str, seed: int) -> "Request":
        from rl.sampler.api import Request  # needs a package that not everyone has

        return Request.to_engineer(self._settings, message, seed)
