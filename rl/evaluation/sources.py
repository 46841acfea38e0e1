"""The sources of answers to a suite: a checkpoint on the devices here, or a model behind an API."""

import contextlib
import copy
import dataclasses
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import nnx

from jaxlake.arguments import seed_key
from jaxlake.benchmark import Benchmark
from rl import distributed
from rl.config import Config
from rl.evaluation.record import Answer
from rl.policy import Policy, writer
from rl.run.checkpoint import fingerprint
from rl.run.keys import Purpose, make_key
from rl.sampler import SamplingParams

if TYPE_CHECKING:
    from rl.sampler.api import ChatClient, Request

CALL = 4
"""Answers in one call of the sampler, in multiples of its rows. The last ones of a call leave rows empty, which costs
half a long answer's time; a process that is killed loses a call."""
FAILURES_IN_A_ROW = 10
"""Requests without an answer, after all their attempts, at which the server is given up."""

Write = Callable[[Sequence[Answer]], None]
Within = Callable[[str], None]


class Source:
    """A source of answers to boards.

    Attributes:
      samples: answers to each board.
      failures: why, for each board and sample that got no answer.
      client: of the server that is asked; None where the answers are written here.
    """

    client: "ChatClient | None" = None

    def __init__(self, config: Config, sampling: SamplingParams, samples: int):
        self._config, self._sampling, self.samples = config, sampling, samples
        self.failures: dict[tuple[str, int], str] = {}

    def identity(self) -> dict[str, Any]:
        """Return what decides on the answers, beside the boards; plain values."""
        return {
            "samples": self.samples,
            **dataclasses.asdict(self._sampling),
            "seed": self._config.seed,
            "max_new_tokens": self._config.text.max_new_tokens,
        }

    def answer(self, asked: Benchmark, missing: np.ndarray, write: Write, within: Within) -> None:
        """Answer what is missing.

        Args:
          asked: the first boards of the suite in its order, so that a place there is the same for every limit.
          missing: bool ``[n, samples]``, the same on all processes.
          write: gets answers as they come; called on all processes alike.
          within: gets a line on how far this is between two writes.
        """
        raise NotImplementedError


class PolicySource(Source):
    """A checkpoint; every process of a job makes one and calls it alike.

    Args:
      config: of the run that the checkpoint is from, or one that fits it.
      path: of the checkpoint.
      suite: the whole set: prompts get the room that its longest one needs.
      say: gets what was found, a line each.

    Raises:
      ConfigError: if the checkpoint cannot be read, or does not fit the settings or devices.
    """

    def __init__(
        self,
        config: Config,
        path: str,
        suite: Benchmark,
        sampling: SamplingParams,
        samples: int,
        say: Callable[[str], None],
    ):
        super().__init__(config, sampling, samples)
        roomy = config.text.model_copy(update={"max_prompt_tokens": 2**31})
        key = make_key(config.seed, Purpose.PARAMETERS)
        policy, parameters = Policy.load(config.model_copy(update={"text": roomy}), path, key)
        tokens = policy.prompts(suite.instances).tokens
        longest = max(map(len, tokens))
        room = config.text.model_copy(update={"max_prompt_tokens": longest})
        self._policy = dataclasses.replace(policy, config=config.model_copy(update={"text": room}))
        self._tokens = dict(zip(suite.ids, tokens, strict=True))
        self._policy.sampler.width(samples)
        self._fingerprint = fingerprint(parameters)
        self._parameters: nnx.State = policy.rollout_parameters(parameters)
        say(f"{path}: {policy.describe(parameters)}")
        if longest > config.text.max_prompt_tokens:
            say(
                f"prompts have up to {longest} tokens and get the room they need (text.max_prompt_tokens = "
                f"{config.text.max_prompt_tokens} is for training)"
            )

    def greedy(self) -> "PolicySource":
        """Return the same checkpoint as a source of one greedy answer to each board."""
        other = copy.copy(self)
        other._sampling, other.samples, other.failures = SamplingParams(0.0), 1, {}
        return other

    def identity(self) -> dict[str, Any]:
        """Return what decides on the answers, beside the boards; plain values."""
        text = self._config.text
        capped = (
            {}
            if text.thinking_cap is None
            else {"max_thinking_tokens": text.thinking_cap, "early_stop": text.early_stop}
        )
        return super().identity() | {
            "parameters": self._fingerprint,
            "dtype": self._config.model.dtype,
            "thinking": text.thinking,
            **capped,
        }

    def answer(self, asked: Benchmark, missing: np.ndarray, write: Write, within: Within) -> None:
        """Answer what is missing, in calls of the sampler that begin at the same places whatever is missing.

        Where a call has lost some answers, all of it is answered again: the tokens depend on the request's number, but
        the last bit of a number may depend on how long the longest prompt beside it is.
        """
        processes = jax.process_count()
        rows = self._policy.config.sampler.rows
        size = max(CALL * rows // (self.samples * processes), 1) * processes
        for begin in range(0, len(asked), size):
            places = np.arange(begin, min(begin + size, len(asked)))
            if missing[places].any():
                answers = self._call(asked, places, within)
                write([answer for answer, wanted in zip(answers, missing[places].flat, strict=True) if wanted])

    def _call(self, asked: Benchmark, places: np.ndarray, within: Within) -> list[Answer]:
        """Return all samples to the boards at these places, one after the other."""
        share = -(-len(places) // jax.process_count())
        first = jax.process_index() * share
        # What is asked too much, so that all processes ask equally many, is dropped.
        mine = [places[min(first + i, len(places) - 1)] for i in range(share)]
        rollout = self._policy.sampler.generate(
            self._parameters,
            [self._tokens[asked.ids[place]] for place in mine],
            seed_key(self._policy.config.seed),
            samples=self.samples,
            sampling=self._sampling,
            first_request=int(places[0] + first) * self.samples,
            progress=lambda done: within(f"{done}/{share * self.samples} of this call"),
        )
        rollout = distributed.all_gather(rollout)
        count = len(places) * self.samples
        texts = self._policy.texts(rollout.tokens[:count], rollout.mask[:count])
        return [
            Answer(
                id=asked.ids[places[i // self.samples]],
                sample=i % self.samples,
                answer=answer,
                tokens=int(rollout.mask[i].sum()),
                truncated=bool(rollout.truncated[i]),
            )
            for i, answer in enumerate(texts)
        ]


class ApiSource(Source):
    """A model behind an API, which is asked a first small question at once.

    Args:
      concurrency: requests under way at once.
      say: gets a line on what the server refuses.

    Raises:
      ApiError: if the question gets no answer.
    """

    def __init__(
        self,
        client: "ChatClient",
        config: Config,
        sampling: SamplingParams,
        samples: int,
        concurrency: int,
        say: Callable[[str], None],
    ):
        super().__init__(config, sampling, samples)
        self.client: ChatClient = client
        self._concurrency = concurrency
        client.check(self._request("", 0), say)

    def identity(self) -> dict[str, Any]:
        """Return what decides on the answers, beside the boards; plain values."""
        return super().identity() | {
            "thinking": self._config.text.thinking,
            "url": self.client.url,
            "api_model": self.client.model,
            "sent": self.client.sent(self._request("", 0)),
            "refused": sorted(self.client.refused),
        }

    def answer(self, asked: Benchmark, missing: np.ndarray, write: Write, within: Within) -> None:
        """Ask for what is missing, and write each answer as it comes.

        Raises:
          ApiError: if no request can succeed, or `FAILURES_IN_A_ROW` did not.
        """
        from rl.sampler.api import ApiError, RequestFailed  # needs a package that not everyone has

        put_in_words = writer(self._config.text)
        wanted = [(place, sample) for place, sample in zip(*np.nonzero(missing), strict=True)]
        prompts = {place: put_in_words(asked.instances[place]) for place, _ in wanted}
        requests = [self._request(prompts[place], self._seed(asked.ids[place], sample)) for place, sample in wanted]
        in_a_row = 0
        with contextlib.closing(self.client.map(requests, self._concurrency)) as results:  # type: ignore[type-var]
            for index, result in results:
                place, sample = wanted[index]
                identifier = asked.ids[place]
                if isinstance(result, RequestFailed):
                    within(f"failed: {len(self.failures) + 1}, the last: {result}"[:60])
                    self.failures[identifier, int(sample)] = str(result)
                    in_a_row += 1
                    if in_a_row == FAILURES_IN_A_ROW:
                        raise ApiError(f"{self.client.url}: {in_a_row} requests in a row failed, the last: {result}")
                    continue
                in_a_row = 0
                write([Answer(identifier, int(sample), result.text, result.tokens, result.truncated)])

    def _request(self, message: str, seed: int) -> "Request":
        from rl.sampler.api import Request  # needs a package that not everyone has

        return Request(
            message=message,
            temperature=self._sampling.temperature,
            max_tokens=self._config.text.max_new_tokens,
            thinking=self._config.text.thinking,
            seed=seed,
            top_p=self._sampling.top_p,
            top_k=self._sampling.top_k,
        )

    def _seed(self, identifier: str, sample: int) -> int:
        """Return a seed for each answer, the same whenever it is asked for."""
        return zlib.crc32(f"{self._config.seed} {identifier} {sample}".encode())
