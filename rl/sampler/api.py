"""A client of chat completions as OpenAI's servers speak them, and vLLM, llama.cpp, Ollama, OpenRouter and others too.

The `openai` package sends requests, and repeats them after waits that double or that the server names. This file adds
what it leaves open: bodies that hold no answer, fields that a server refuses, a limit on a whole attempt, one line for
what no further request can mend (no server, no key, no such model), and many requests at once.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pydantic

from rl.config import ConfigError, EngineerSection

try:
    import anyio.from_thread
    import httpx2
    import openai
except ModuleNotFoundError as error:
    raise ConfigError(f"asking a server needs pip install 'jaxlake[api]' ({error})") from None

CONNECT_TIMEOUT = 30.0
"""Seconds for one attempt to reach the server."""
CHECK_TOKENS, CHECK_ATTEMPTS = 16, 2
"""Room for the answer to a first small question, and how often it is asked: all attempts would take half a minute."""
OPTIONAL = {
    "temperature": "temperature",
    "seed": "seed",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "chat_template_kwargs": "chat_template_kwargs|enable_thinking",
    "response_format": "response_format|json_schema|schema|grammar",
}
"""Fields that a request can do without, with what a server calls one that it refuses."""
HEADERS = frozenset(
    {"host", "content-type", "content-length", "accept", "accept-encoding", "connection", "user-agent", "authorization"}
)
"""Headers that are sent, all others are not: the package adds what OPENAI_* variables hold, and our platform."""


class ApiError(ConfigError, openai.OpenAIError):
    """A server that no request can succeed with; one line says why.

    Also one of the package's own errors, which it raises at once where it repeats the request for all others.
    """


class RequestFailed(Exception):
    """A request that got no answer; one line says why.

    Attributes:
      named: the optional fields that were sent and that the server names in its refusal.
    """

    named: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Completion:
    """Text that a model wrote.

    Attributes:
      text: without thoughts that the server sends separately; empty where the limit cut them off.
      tokens: how many it took, thoughts included, as the server counts; None where it does not.
      truncated: whether the limit on tokens ended it.
      prompt_tokens: length of the message, as the server counts; None where it does not.
      thinking: what the server sends separately as thoughts; empty where it sends none, or within the text.
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
      model: its name there.
      key: sent as a bearer token; None or empty sends none.
      key_name: what the user calls the key, for messages.
      timeout: seconds for one attempt, from the question to the end of the answer.
      attempts: for each request; 8 of them bridge half a minute.

    Attributes:
      refused: names of optional fields that the server takes no request with, and that are left out from then on.
      refused_later: those that it refused after it had answered the first small question with them.

    Raises:
      ApiError: if the URL or the key cannot be one.
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
    ):
        try:
            usable = " " not in url and not pydantic.TypeAdapter(pydantic.HttpUrl).validate_python(url).username
        except pydantic.ValidationError:
            usable = False
        if not usable:
            raise ApiError(f"{url}: must be the address of a server, like http://localhost:8000/v1")
        if key and not (key.isascii() and key.isprintable()):
            raise ApiError(f"{key_name}: must be ASCII letters on one line")
        self.url, self.model = url.rstrip("/").removesuffix("/chat/completions"), model
        self._key, self._key_name, self._timeout, self._attempts = key, key_name, timeout, attempts
        self._limit_key = "max_tokens"
        self.refused = self._refused_first = frozenset[str]()

    @property
    def refused_later(self) -> frozenset[str]:
        return self.refused - self._refused_first

    def check(self, request: Request, say: Callable[[str], None]) -> None:
        """Ask a small question in the manner of a request, so that a mistake shows before there is work to lose.

        Args:
          say: gets a line on what the server refuses.

        Raises:
          ApiError: if it gets no answer, also without what the server refuses.
        """
        question = dataclasses.replace(request, message="Answer with the word yes.", max_tokens=CHECK_TOKENS)
        ((_, result),) = self.map([question], concurrency=1, attempts=CHECK_ATTEMPTS)
        if isinstance(result, RequestFailed):
            raise ApiError(f"{self.url}: a first small request for the model {self.model!r} failed: {result}")
        self._refused_first = self.refused
        if self.refused:
            say(f"{self.url}: refuses {', '.join(sorted(self.refused))}, so there its own defaults hold")

    def sent(self, request: Request) -> dict[str, Any]:
        """Return the optional fields that go out with a request, its own seed aside."""
        return {name: value for name, value in request.optional().items() if name not in self.refused | {"seed"}}

    def map(
        self, requests: Sequence[Request], concurrency: int, attempts: int | None = None
    ) -> Iterator[tuple[int, Completion | RequestFailed]]:
        """Yield the answers as they come, each with its request's index; `concurrency` requests are under way at once.

        A request has failed if every attempt did, or the server refuses it. A server that goes away is waited for as
        long as the attempts last; one that no request of this call has reached ends it at once. Closing the iterator
        breaks off what is under way.

        Args:
          attempts: for each request; None for the client's own number.

        Raises:
          ApiError: if no request can succeed.
        """
        client, waiting = self._client(attempts or self._attempts), iter(enumerate(requests))
        under_way: dict[concurrent.futures.Future[Completion | RequestFailed], int] = {}
        with anyio.from_thread.start_blocking_portal() as portal:  # an event loop in a thread of its own
            try:
                while True:
                    for index, request in itertools.islice(waiting, concurrency - len(under_way)):
                        under_way[portal.start_task_soon(self._ask, client, request)] = index
                    if not under_way:
                        return
                    # A signal that comes just before the wait begins is heard only when it ends.
                    for future in concurrent.futures.wait(under_way, 0.5, concurrent.futures.FIRST_COMPLETED).done:
                        yield under_way.pop(future), future.result()
            finally:
                for future in under_way:
                    future.cancel()
                portal.call(client.close)

    def _client(self, attempts: int) -> openai.AsyncOpenAI:
        try:
            return openai.AsyncOpenAI(
                base_url=self.url,
                api_key=self._key or "none",  # the package insists on one; it is not sent
                max_retries=attempts - 1,
                timeout=openai.Timeout(None, connect=CONNECT_TIMEOUT),
                http_client=_HttpClient(self),
            )
        except (ImportError, OSError, ValueError) as error:  # a proxy or certificates that the environment names
            raise ApiError(f"{self.url}: {self._line(str(error))}") from None

    async def _ask(self, client: openai.AsyncOpenAI, request: Request) -> Completion | RequestFailed:
        """Ask, again without the optional fields that the server names, and remember what it refuses.

        An error that repeats the request names all of it: of several fields each is sent once more without the others.
        """
        dropped, doubtful = self.refused, frozenset[str]()
        while isinstance(result := await self._try(client, request, dropped), RequestFailed):
            if not result.named:
                return result
            dropped |= result.named
            doubtful |= result.named if len(result.named) > 1 else frozenset()
        for name in sorted(doubtful):
            again = await self._try(client, request, dropped - {name})
            if isinstance(again, Completion):
                dropped, result = dropped - {name}, again
        self.refused |= dropped  # now that it answers without them: another mistake may have named them in passing
        return result

    async def _try(
        self, client: openai.AsyncOpenAI, request: Request, dropped: frozenset[str]
    ) -> Completion | RequestFailed:
        """Ask without some optional fields."""
        limit_key = self._limit_key
        body: dict[str, Any] = {"model": self.model, "messages": [{"role": "user", "content": request.message}]}
        body |= {limit_key: request.max_tokens}
        body |= {name: value for name, value in request.optional().items() if name not in dropped}
        try:
            return _read((await client.post("/chat/completions", body=body, cast_to=httpx2.Response)).text)
        except openai.APIConnectionError as error:
            return RequestFailed(self._line(_reason(error)))
        except openai.APIStatusError as error:
            said = error.response.text
            if limit_key == "max_tokens" and "max_completion_tokens" in said:
                self._limit_key = "max_completion_tokens"  # OpenAI's reasoning models want it, older servers do not
                return await self._try(client, request, dropped)
            failed = self._refusal(error)
            if error.status_code in (400, 422):
                words = {name: words for name, words in OPTIONAL.items() if name in body}
                failed.named = frozenset(name for name in words if re.search(rf"\b({words[name]})\b", said))
            return failed

    def _refusal(self, error: openai.APIStatusError) -> RequestFailed:
        """Put a refusal into a line; raise it where every request would be refused."""
        status, body = error.status_code, error.body
        if isinstance(body, dict):
            body = body.get("message") or body.get("detail") or body
        message = f"status {status}: {self._line(body if isinstance(body, str) else json.dumps(body))}"
        message = message.removesuffix(": ")
        if status in (401, 403):
            reason = f"refuses {self._key_name}" if self._key else f"wants a key, which must be in {self._key_name}"
        elif status == 404:
            reason = f"knows no model {self.model!r}, or nothing at this address"
        elif 300 <= status < 400:
            reason = f"the server is elsewhere, at {error.response.headers.get('Location')}"
        elif error.code == "insufficient_quota":
            reason = f"{self._key_name} has no budget left"
        else:
            return RequestFailed(message)
        raise ApiError(f"{self.url}: {reason} ({message})") from None

    def _line(self, text: str) -> str:
        """Return one line of at most 200 letters, without the key."""
        line = " ".join(text.split())
        line = line.replace(self._key, "***") if self._key else line
        return line if len(line) <= 200 else line[:197] + "..."


class _NoAnswer(httpx2.RequestError):
    """An attempt that brought no answer, whatever its status; for this error the package repeats the request."""


class _HttpClient(openai.DefaultAsyncHttpxClient):
    """The client that the package sends through, and that sees each attempt before the package does."""

    def __init__(self, chat: ChatClient):
        super().__init__(follow_redirects=False)  # a redirect would take the question to whoever is named
        self._chat, self._reached = chat, False

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        chat = self._chat
        for name in set(request.headers) - (HEADERS if chat._key else HEADERS - {"authorization"}):
            del request.headers[name]
        try:
            # httpx limits the wait for each piece, and a server may send blanks for ever to keep a connection open.
            with anyio.fail_after(chat._timeout):
                response = await super().send(request, **options)
        except TimeoutError:
            raise _NoAnswer(f"no answer within {chat._timeout:g} s") from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if self._reached:
                raise
            raise ApiError(f"{chat.url}: not reached: {_reason(error)}") from None
        self._reached = True
        if response.is_success:
            _read(response.text)
        elif "insufficient_quota" in response.text:
            response.headers["x-should-retry"] = "false"  # the package obeys it
        return response


def _reason(error: BaseException) -> str:
    """Return the line of the first error in the chain: the package says no more than "Connection error."."""
    if isinstance(error, _NoAnswer):
        return str(error)
    cause = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
    return _reason(cause) if cause else f"{type(error).__name__}: {error}".removesuffix(": ")


def _read(body: str) -> Completion:
    """Read the completion in a body of status 200; some servers send an error with that status, or nothing."""
    try:
        answer = json.loads(body)
        if isinstance(answer, dict) and answer.get("error"):
            raise _NoAnswer(f"status 200 with an error: {json.dumps(answer['error'])}")
        choice = answer["choices"][0]
        message, reason = choice["message"], choice.get("finish_reason")
        text, thinking = _parts(message.get("content"))
        thinking += "".join(_parts(message.get("reasoning_content") or message.get("reasoning")))
        usage = answer.get("usage") or {}
        tokens, prompt_tokens = (
            count if type(count := usage.get(f"{part}_tokens")) is int else None for part in ("completion", "prompt")
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise _NoAnswer(f"the answer is no chat completion: {json.dumps(body[:60])}") from None
    truncated = reason == "length"
    if not text.strip():
        if not truncated:
            raise _NoAnswer(f"an empty answer (finish_reason {json.dumps(reason)})")
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
