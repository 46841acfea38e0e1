"""A client of chat completions: many requests at once by threads. The `openai` package sends, repeats and waits."""

import dataclasses
import itertools
import os
import queue
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from rl.config import ConfigError
from rl.model.sampler import SamplingParams

try:
    import openai
except ModuleNotFoundError as error:
    raise ConfigError(f"asking a server needs pip install 'jaxlake[api]' ({error})") from None

TIMEOUT, RETRIES = 600.0, 7
"""Seconds for which a server may send nothing, and repetitions of a request, whose waits bridge half a minute."""
REFUSABLE = ("top_k", "min_p", "repetition_penalty"), ("chat_template_kwargs",), ("response_format",)
"""Fields that not every server takes, in the order in which `ChatClient.check` leaves them out."""
HINTS = dict.fromkeys((401, 403), "the variable OPENAI_API_KEY holds the key") | {404: "no such model or address"}
"""What to look at by the statuses after which no request can succeed."""


class RequestFailed(Exception):
    """A request without an answer; one line says why."""


@dataclasses.dataclass(frozen=True)
class Completion:
    """Text that a model wrote.

    Attributes:
      text: the answer, after a thought in tags where the server sends one apart; without an answer its tag stays open.
      completion_tokens, prompt_tokens: lengths of text and message, as the server counts; None where it does not.
      truncated: whether the limit on tokens ended it.
    """

    text: str
    completion_tokens: int | None
    prompt_tokens: int | None
    truncated: bool


class ChatClient:
    """A model of a server, and how it is asked; the variable OPENAI_API_KEY holds the key, if the server wants one.

    All that a server's own defaults could change is sent, also where it is off: llama.cpp draws with top_k 40 and min_p
    .05, and others by what a checkpoint's generation_config.json says.

    Args:
      url: such as ``http://localhost:8000/v1``.
      max_tokens: room for the answer, thoughts included.
      thinking: whether the chat template lets the model think first, where it can be told.
      schema: JSON schema that the answer, after its thoughts, must fit; None for free text.

    Attributes:
      sent: the fields that go out beside the message, its seed and the limit on tokens.
    """

    def __init__(
        self,
        url: str,
        model: str,
        sampling: SamplingParams,
        max_tokens: int,
        thinking: bool,
        schema: Mapping[str, Any] | None = None,
    ):
        self.url, self.model, self.max_tokens, self._limit = url, model, max_tokens, "max_tokens"
        self.sent: dict[str, Any] = {"temperature": sampling.temperature, "repetition_penalty": 1.0}
        self.sent |= {"chat_template_kwargs": {"enable_thinking": thinking}}
        if sampling.temperature:
            self.sent |= {"top_p": sampling.top_p, "top_k": sampling.top_k, "min_p": 0.0}
        if schema is not None:
            answer = {"name": "answer", "strict": True, "schema": schema}
            self.sent |= {"response_format": {"type": "json_schema", "json_schema": answer}}
        key = os.environ.get("OPENAI_API_KEY", "").strip() or "none"  # the package insists on one
        self._client = openai.OpenAI(base_url=url, api_key=key, timeout=TIMEOUT)

    def check(self, say: Callable[[str], None]) -> None:
        """Ask a small question, so that a mistake shows before there is work to lose.

        Fields that the server refuses are left out from then on, and `say` is told so. ConfigError without an answer.
        """
        ((_, refused),) = _run_threads(lambda _: self._refused(), 1, 1)
        if refused:
            say(f"{self.url}: refuses {', '.join(refused)}; for these its own defaults hold")

    def _refused(self) -> list[str]:
        fields = self.sent
        # OpenAI's reasoning models want the newer name of the limit, and other servers know only the older one.
        for limit, groups in itertools.product(("max_tokens", "max_completion_tokens"), range(len(REFUSABLE) + 1)):
            refused = [name for group in REFUSABLE[:groups] for name in group if name in fields]
            self._limit, self.sent = limit, {name: fields[name] for name in fields if name not in refused}
            try:
                self._ask("Answer with the word yes.", 0, max_tokens=16, retries=1)
                return refused
            except RequestFailed as error:
                failed = f"{self.url}: a first small request for the model {self.model!r} failed: {error}"
                if not isinstance(error.__cause__, openai.BadRequestError | openai.UnprocessableEntityError):
                    break
        raise ConfigError(failed)

    def map(
        self, messages: Sequence[str], seeds: Sequence[int], concurrency: int
    ) -> Generator[tuple[int, Completion | RequestFailed], None, None]:
        """Yield the answers as they come, each with its message's index; `concurrency` requests are under way at once.

        Seeds make a server that heeds them repeatable. ConfigError if no request can succeed.
        """
        return _run_threads(
            lambda i: self._ask(messages[i], seeds[i], self.max_tokens, RETRIES), len(messages), concurrency
        )

    def _ask(self, message: str, seed: int, max_tokens: int, retries: int) -> Completion:
        fields = self.sent | {self._limit: max_tokens}
        if self.sent["temperature"]:
            fields["seed"] = seed % 2**31  # some servers take int32 alone
        try:
            reply = self._client.with_options(max_retries=retries).chat.completions.create(
                model=self.model, messages=[{"role": "user", "content": message}], extra_body=fields
            )
            return _read(reply)
        except openai.APIStatusError as error:
            line = f"status {error.status_code}: {_line(error.response.text)}"
            if hint := HINTS.get(error.status_code):
                raise ConfigError(f"{self.url}, model {self.model!r}: {line}; {hint}") from None
            raise RequestFailed(line) from error
        except openai.APITimeoutError as error:
            raise RequestFailed(_line(error)) from error
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise ConfigError(f"{self.url}: not reached: {type(cause).__name__}: {_line(cause)}") from None
        except (AttributeError, IndexError, TypeError, ValueError) as error:  # the package checks nothing of an answer
            raise RequestFailed(f"the answer is no chat completion ({_line(error)})") from None


def _read(reply: Any) -> Completion:
    """Read a completion; RequestFailed where it is empty, though no limit ended it."""
    choice, usage = reply.choices[0], reply.usage
    text, truncated = choice.message.content or "", choice.finish_reason == "length"
    if not text.strip() and not truncated:
        raise RequestFailed(f"an empty answer (finish_reason {choice.finish_reason!r})")
    thought = getattr(choice.message, "reasoning_content", None) or getattr(choice.message, "reasoning", None)
    if thought:
        text = f"<think>\n{thought.strip()}" + (f"\n</think>\n\n{text}" if text else "")
    text = text.encode(errors="replace").decode()  # halves of surrogate pairs, which no file takes
    return Completion(text, usage and usage.completion_tokens, usage and usage.prompt_tokens, truncated)


def _line(text: object) -> str:
    return " ".join(str(text).split())[:300]


def _run_threads(work: Callable[[int], Any], count: int, concurrency: int) -> Generator[tuple[int, Any], None, None]:
    """Yield the results of ``work(index)`` as they come, `concurrency` at once; a `RequestFailed` is a result.

    A signal then interrupts the wait for a result, and no request, where the package would take it for a failure. The
    threads of a pool would keep the process from ending until the server answers.
    """
    waiting, results = iter(range(count)), queue.SimpleQueue[tuple[int, Any]]()
    closed = threading.Event()

    def run() -> None:
        for index in waiting:
            try:
                results.put((index, work(index)))
            except Exception as error:
                results.put((index, error))
            if closed.is_set():
                return

    for _ in range(min(concurrency, count)):
        threading.Thread(target=run, daemon=True).start()
    try:
        for _ in range(count):
            index, result = results.get()
            if isinstance(result, Exception) and not isinstance(result, RequestFailed):
                raise result
            yield index, result
    finally:
        closed.set()
