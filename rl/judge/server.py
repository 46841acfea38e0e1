"""A client of chat completions as OpenAI's servers speak them, and vLLM, llama.cpp, Ollama, OpenRouter and others too.

The `openai` package sends requests, and repeats them after waits that double or that the server names. This file adds
many requests at once, a first small question that finds mistakes, and another attempt where a body holds no answer.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rl.config import ConfigError, EngineerSection

try:
    import anyio.from_thread
    import httpx2
    import openai
except ModuleNotFoundError as error:
    raise ConfigError(f"asking a server needs pip install 'jaxlake[api]' ({error})") from None

PAUSE = 0.5
"""Seconds before a question is asked again whose answer could not be read."""
CHECK_TOKENS, CHECK_ATTEMPTS = 16, 2
"""Room for the answer to a first small question, and how often it is asked: all attempts would take half a minute."""
HEADERS = frozenset(
    {"host", "content-type", "content-length", "accept", "accept-encoding", "connection", "user-agent", "authorization"}
)
"""Headers that are sent; the package would add what OPENAI_* variables hold, organisation and project among it."""


class ApiError(ConfigError, openai.OpenAIError):
    """A server that no request can succeed with; one line says why.

    Also one of the package's own errors, which it raises at once where it repeats the request for all others.
    """


class RequestFailed(Exception):
    """A request without an answer; one line says why."""


@dataclasses.dataclass(frozen=True)
class Completion:
    """Text that a model wrote.

    Attributes:
      text: without thoughts that the server sends separately; empty where the limit cut them off.
      tokens: number of tokens, with thoughts, as the server counts; None where it does not count.
      truncated: whether the limit on tokens ended it.
      prompt_tokens: length of the message, as the server counts; None where it does not.
      thinking: thought that the server sends separately; empty where it sends none, or within the text.
    """

    text: str
    tokens: int | None
    truncated: bool
    prompt_tokens: int | None = None
    thinking: str = ""

    @property
    def response(self) -> str:
        """Thoughts and text in one, as a model writes them: tags around the thoughts, without an end if it was cut."""
        if not self.thinking:
            return self.text
        return f"<think>\n{self.thinking}" + (f"\n</think>\n\n{self.text}" if self.text else "")


@dataclasses.dataclass(frozen=True)
class Request:
    """One user message and how to answer it.

    Attributes:
      temperature: 0 is greedy.
      max_tokens: room for the answer, thoughts included.
      thinking: whether the chat template lets the model think first, where it can be told.
      seed: makes a server that heeds it repeatable; what is sent is its remainder by 2**31, as some take int32 alone.
      top_p, top_k: draw among the likeliest tokens; 1 and 0 draw among all.
      schema: JSON schema that the answer, after its thoughts, must fit; None for free text.
    """

    message: str
    temperature: float
    max_tokens: int
    thinking: bool
    seed: int = 0
    top_p: float = 1.0
    top_k: int = 0
    schema: Mapping[str, Any] | None = None

    @classmethod
    def to_engineer(
        cls, settings: EngineerSection, message: str, seed: int = 0, schema: Mapping[str, Any] | None = None
    ) -> "Request":
        """Return a request to an engineer's server; like the policy as engineer, its model may think first."""
        return cls(
            message=message,
            temperature=settings.temperature,
            max_tokens=settings.api.max_tokens,
            thinking=True,
            seed=seed,
            top_p=settings.top_p,
            top_k=settings.top_k,
            schema=schema,
        )

    def optional(self) -> dict[str, Any]:
        """Return the fields of the request that a server may refuse, all that its own defaults could change among them.

        Left out they are not off: llama.cpp draws with top_k 40, top_p .95 and min_p .05, and others by what a
        checkpoint's generation_config.json says, repetition penalties in it.
        """
        fields: dict[str, Any] = {"temperature": self.temperature, "repetition_penalty": 1.0}
        fields |= {"chat_template_kwargs": {"enable_thinking": self.thinking}}
        if self.temperature:
            fields |= {"top_p": self.top_p, "top_k": self.top_k, "min_p": 0.0, "seed": self.seed % 2**31}
        if self.schema is not None:
            schema = {"name": "answer", "strict": True, "schema": self.schema}
            fields |= {"response_format": {"type": "json_schema", "json_schema": schema}}
        return fields


class ChatClient:
    """A client of one model of one server.

    Args:
      url: such as ``http://localhost:8000/v1``; ``/chat/completions`` is added.
      key: sent as a bearer token; None or empty for servers that want none.
      key_name: the user's name of the key, for messages.
      timeout: seconds for one attempt.
      attempts: attempts for each request; 8 of them bridge half a minute.
      omit: names of optional fields that requests leave out, as the server refuses them.

    Raises:
      ApiError: if the URL cannot be one.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str | None = None,
        *,
        key_name: str = "the API key",
        timeout: float,
        attempts: int = 8,
        omit: Sequence[str] = (),
    ):
        if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", url):
            raise ApiError(f"{url}: must be the address of a server, like http://localhost:8000/v1")
        self.url, self.model = url.rstrip("/").removesuffix("/chat/completions"), model
        self._key, self._key_name, self._timeout, self._attempts = (key or "").strip(), key_name, timeout, attempts
        self._limit_key, self._omit = "max_tokens", tuple(omit)

    def check(self, request: Request) -> None:
        """Ask a small question in the manner of a request, so that a mistake shows before there is work to lose.

        Raises:
          ApiError: if it gets no answer.
        """
        question = dataclasses.replace(request, message="Answer with the word yes.", max_tokens=CHECK_TOKENS)
        ((_, result),) = self.map([question], 1, CHECK_ATTEMPTS)
        if isinstance(result, RequestFailed):
            raise ApiError(f"{self.url}: a first small request for the model {self.model!r} failed: {result}")

    def sent(self, request: Request) -> dict[str, Any]:
        """Return the optional fields that go out with a request, its own seed aside."""
        return {name: value for name, value in self._fields(request).items() if name != "seed"}

    def _fields(self, request: Request) -> dict[str, Any]:
        return {name: value for name, value in request.optional().items() if name not in self._omit}

    def map(
        self, requests: Sequence[Request], concurrency: int, attempts: int | None = None
    ) -> Iterator[tuple[int, Completion | RequestFailed]]:
        """Yield the answers as they come, each with its request's index; `concurrency` requests are under way at once.

        A request has failed if every attempt did, or the server refuses it. A server that goes away is waited for as
        long as the attempts last; one that no request of this call has reached ends it at once. Closing the iterator
        breaks off what is under way.

        Args:
          attempts: attempts for each request; None for the client's own number.

        Raises:
          ApiError: if no request can succeed.
        """
        attempts, waiting = attempts or self._attempts, iter(enumerate(requests))
        try:
            client = openai.AsyncOpenAI(
                base_url=self.url,
                api_key=self._key or "none",  # the package insists on one
                max_retries=attempts - 1,
                timeout=openai.Timeout(None, connect=30.0),
                http_client=_HttpClient(self.url, self._timeout),
            )
        except (ImportError, OSError, ValueError) as error:  # a proxy or certificates that the environment names
            raise ApiError(f"{self.url}: {self._line(str(error))}") from None
        under_way: dict[concurrent.futures.Future[Completion | RequestFailed], int] = {}
        with anyio.from_thread.start_blocking_portal() as portal:  # an event loop in a thread of its own
            try:
                while True:
                    for index, request in itertools.islice(waiting, concurrency - len(under_way)):
                        under_way[portal.start_task_soon(self._ask, client, request, attempts)] = index
                    if not under_way:
                        return
                    # A signal that comes just before the wait begins is heard only when it ends.
                    for future in concurrent.futures.wait(under_way, 0.5, concurrent.futures.FIRST_COMPLETED).done:
                        yield under_way.pop(future), future.result()
            finally:
                for future in under_way:
                    future.cancel()
                portal.call(client.close)

    async def _ask(self, client: openai.AsyncOpenAI, request: Request, attempts: int) -> Completion | RequestFailed:
        limit_key = self._limit_key
        fields = {limit_key: request.max_tokens} | self._fields(request)
        for attempt in range(attempts):
            await anyio.sleep(PAUSE * (attempt > 0))
            try:
                return _read(
                    await client.chat.completions.create(
                        model=self.model, messages=[{"role": "user", "content": request.message}], extra_body=fields
                    )
                )
            except openai.APIStatusError as error:
                said = error.response.text
                if limit_key == "max_tokens" and "max_completion_tokens" in said:
                    self._limit_key = "max_completion_tokens"  # OpenAI's reasoning models want it, older servers do not
                    return await self._ask(client, request, attempts)
                return self._refusal(error, request)
            except openai.APIConnectionError as error:
                cause = error.__cause__ or error
                return RequestFailed(self._line(f"{type(cause).__name__}: {cause}".removesuffix(": ")))
            except (json.JSONDecodeError, RequestFailed) as error:
                failed = RequestFailed(self._line(str(error)))
        return failed

    def _refusal(self, error: openai.APIStatusError, request: Request) -> RequestFailed:
        """Put a refusal into a line, and the optional fields that it names; raise it where all would be refused."""
        status, body = error.status_code, error.body
        if isinstance(body, dict):
            body = body.get("message") or body.get("detail") or body
        message = f"status {status}: {self._line(body if isinstance(body, str) else json.dumps(body))}"
        if status in (401, 403):
            reason = f"refuses {self._key_name}" if self._key else f"wants a key, which must be in {self._key_name}"
        elif status == 404:
            reason = f"knows no model {self.model!r}, or nothing at this address"
        elif 300 <= status < 400:
            reason = f"the server is elsewhere, at {error.response.headers.get('Location')}"
        elif error.code == "insufficient_quota":
            reason = f"{self._key_name} has no budget left"
        else:
            named = [name for name in self._fields(request) if re.search(rf"\b{name}\b", error.response.text)]
            if named and status in (400, 422):
                omit = ",".join((*self._omit, *named))
                message += f"; to leave out what it names: engineer.api.omit=[{omit}]"
            return RequestFailed(message)
        raise ApiError(f"{self.url}: {reason} ({message})") from None

    def _line(self, text: str) -> str:
        """Return one line of at most 200 letters, without the key."""
        line = " ".join(text.split())
        line = line.replace(self._key, "***") if self._key else line
        return line if len(line) <= 200 else line[:197] + "..."


class _HttpClient(openai.DefaultAsyncHttpxClient):
    """The client that the package sends through; it sends our headers alone, and limits a whole attempt."""

    def __init__(self, url: str, limit: float):
        super().__init__(follow_redirects=False)  # a redirect would take the question to whoever it names
        self._url, self._limit, self._reached = url, limit, False

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        for name in set(request.headers) - HEADERS:
            del request.headers[name]
        try:
            # The package limits the wait for each piece, and a server may send blanks for ever.
            with anyio.fail_after(self._limit):
                response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if self._reached:
                raise
            raise ApiError(f"{self._url}: not reached: {type(error).__name__}: {error}") from None
        except TimeoutError:
            raise httpx2.ReadTimeout(f"no answer within {self._limit:g} s") from None
        self._reached = True
        return response


def _read(answer: Any) -> Completion:
    """Read a completion, of which the package checks nothing; RequestFailed for another thing, or without a text."""
    try:
        choice, usage = answer.choices[0], answer.usage
        message, truncated = choice.message, choice.finish_reason == "length"
        text, thinking = _parts(message.content)
        apart = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
        thinking += "".join(_parts(apart))
        tokens, prompt_tokens = (getattr(usage, f"{part}_tokens", None) for part in ("completion", "prompt"))
    except (AttributeError, IndexError, KeyError, TypeError):
        content = getattr(answer, "model_extra", None) or answer
        raise RequestFailed(f"the answer is no chat completion: {content!r}") from None
    if not text.strip():
        if not truncated:
            raise RequestFailed(f"an empty answer (finish_reason {choice.finish_reason!r})")
        text = ""
    # Halves of surrogate pairs, which no file takes.
    text, thinking = (part.encode(errors="replace").decode() for part in (text, thinking))
    return Completion(text, tokens, truncated, prompt_tokens, thinking.strip())


def _parts(content: Any) -> tuple[str, str]:
    """Return the text and the thoughts of a content: a text, or parts such as ``{"type": "text", "text": ".."}``."""
    if not isinstance(content, list):
        return (content if isinstance(content, str) else ""), ""
    text = thinking = ""
    for part in content:
        said, thought = _parts(part.get(part["type"], part.get("text")))
        if part["type"] in ("thinking", "reasoning"):
            said, thought = "", thought + said
        text, thinking = text + said, thinking + thought
    return text, thinking
