"""A client of chat completions as OpenAI's servers speak them, and vLLM, llama.cpp, Ollama, OpenRouter and others too.

What can go wrong is of two kinds. A request that fails is asked again, after a wait that doubles and is drawn at random
in its upper half, so that many clients do not come back at once; where the server says how long to wait, all requests
do. What no further request can mend (no server, no key, no such model) ends everything at once.
"""

import dataclasses
import email.utils
import http.client
import json
import queue
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

from rl.config import ConfigError

FIRST_WAIT, LONGEST_WAIT = 1.0, 600.0
"""Seconds before the first repetition, and the most that a server's Retry-After is obeyed for."""
TIMEOUT = 600.0
"""Seconds for one attempt: 8,192 tokens at 14 a second."""
_REPEATED = frozenset({408, 409, 425, 429})
"""Answers below 500 that another attempt can change."""


class ApiError(ConfigError):
    """Nothing that is asked of this server will succeed; one line that says why."""


class RequestFailed(Exception):
    """One request got no answer; one line that says why."""


@dataclasses.dataclass(frozen=True)
class Completion:
    """What a model wrote.

    Attributes:
      text: without thoughts that the server keeps apart; empty where the limit cut them off.
      tokens: how many it took, thoughts included, as the server counts; None where it does not.
      truncated: whether the limit on tokens ended it.
    """

    text: str
    tokens: int | None
    truncated: bool


@dataclasses.dataclass(frozen=True)
class Request:
    """One user message and how to answer it.

    Attributes:
      temperature: 0 is greedy.
      seed: makes a server that heeds it repeatable; None leaves it out.
      top_p, top_k: 1 and 0 leave them out; OpenAI's own servers know no top_k.
    """

    message: str
    temperature: float
    max_tokens: int
    seed: int | None = None
    top_p: float = 1.0
    top_k: int = 0


class ChatClient:
    """Asks one model of one server; threads may share it.

    Args:
      url: such as ``http://localhost:8000/v1``; ``/chat/completions`` is added.
      model: its name there.
      key: sent as a bearer token; None or empty sends none.
      key_name: what the user calls the key, for messages.
      timeout: seconds for one attempt, from the question to the end of the answer.
      attempts: for each request.

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
        timeout: float = TIMEOUT,
        attempts: int = 6,
    ):
        try:
            parts = urllib.parse.urlsplit(url)
            usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) and not parts.username
        except ValueError:
            usable = False
        if not usable or " " in url:
            raise ApiError(f"{url}: no address of a server; it is like http://localhost:8000/v1")
        if key and not (key.isascii() and key.isprintable()):
            raise ApiError(f"{key_name}: a key has neither line breaks nor letters beyond ASCII")
        self.url, self.model = url.rstrip("/").removesuffix("/chat/completions"), model
        self._key, self._key_name, self._timeout, self._attempts = key, key_name, timeout, attempts
        self._reached = False  # until then a server that cannot be reached is taken for a wrong address
        self._not_before = 0.0  # time.monotonic() before which nothing is asked
        self._limit_key = "max_tokens"

    def complete(self, request: Request) -> Completion:
        """The answer to one message.

        Raises:
          RequestFailed: if every attempt failed, or the server refuses this request.
          ApiError: if no request can succeed.
        """
        return self._complete(request, threading.Event())

    def map(self, requests: Sequence[Request], concurrency: int) -> Iterator[tuple[int, Completion | RequestFailed]]:
        """The answers as they come, each with its request's index; `concurrency` requests are under way at once.

        Closing the iterator stops asking; what is under way then is given up.

        Raises:
          ApiError: if no request can succeed.
        """
        waiting = iter(enumerate(requests))
        lock, stop, results = threading.Lock(), threading.Event(), queue.SimpleQueue()

        def work() -> None:
            while not stop.is_set():
                with lock:
                    index, request = next(waiting, (None, None))
                if request is None:
                    return
                try:
                    results.put((index, self._complete(request, stop)))
                except Exception as error:
                    results.put((index, error))

        # Daemons, unlike an executor's threads: after Ctrl-C nobody waits for answers that are under way.
        for _ in range(min(concurrency, len(requests))):
            threading.Thread(target=work, daemon=True).start()
        try:
            left = len(requests)
            while left:
                try:
                    # A signal that comes just before the wait begins is heard only when it ends.
                    index, result = results.get(timeout=0.5)
                except queue.Empty:
                    continue
                if isinstance(result, Exception) and not isinstance(result, RequestFailed):
                    raise result
                left -= 1
                yield index, result
        finally:
            stop.set()

    def _complete(self, request: Request, stop: threading.Event) -> Completion:
        reason = ""
        for attempt in range(self._attempts):
            if attempt:
                stop.wait(FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(0.5, 1.0))
            stop.wait(max(0.0, self._not_before - time.monotonic()))
            if stop.is_set():
                raise RequestFailed("stopped")
            try:
                return self._ask(request)
            except _Again as error:
                reason = str(error)
        raise RequestFailed(f"{reason} ({self._attempts} attempts)")

    def _ask(self, request: Request) -> Completion:
        """One attempt."""
        limit_key = self._limit_key
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": request.message}],
            "temperature": request.temperature,
            limit_key: request.max_tokens,
        }
        if request.seed is not None:
            body["seed"] = request.seed
        if request.top_p < 1:
            body["top_p"] = request.top_p
        if request.top_k:
            body["top_k"] = request.top_k
        status, headers, content = self._post(json.dumps(body).encode())
        self._reached = True
        if status == 200:
            return _read(content)
        message = f"status {status}" + (f": {told}" if (told := self._told(content)) else "")
        if status in (401, 403):
            wants = "refuses" if self._key else "wants a key and got none; it is taken from"
            raise ApiError(f"{self.url}: {wants} {self._key_name} ({message})")
        if status == 404:
            raise ApiError(f"{self.url}: knows no model {self.model!r}, or nothing at this address ({message})")
        if 300 <= status < 400:
            raise ApiError(f"{self.url}: the server is elsewhere, at {headers.get('Location')} (status {status})")
        if b"insufficient_quota" in content:
            raise ApiError(f"{self.url}: {self._key_name} has no budget left ({message})")
        if status in _REPEATED or status >= 500:
            self._not_before = max(self._not_before, time.monotonic() + _retry_after(headers))
            raise _Again(message)
        if b"max_completion_tokens" in content and limit_key == "max_tokens":
            self._limit_key = "max_completion_tokens"  # OpenAI's reasoning models want it, older servers do not know it
            raise _Again(message)
        raise RequestFailed(message)

    def _post(self, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and content of what the server sends back within the time."""
        ends = time.monotonic() + self._timeout
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "jaxlake"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        asked = urllib.request.Request(f"{self.url}/chat/completions", body, headers)
        try:
            try:
                response = _OPENER.open(asked, timeout=self._timeout)
            except urllib.error.HTTPError as error:
                response = error  # it is a response as well
            with response:
                parts = []
                while part := response.read1(1 << 16):  # a server may send blanks forever to keep a connection open
                    parts.append(part)
                    if time.monotonic() > ends:
                        raise TimeoutError
                if response.length:  # what was promised and did not come; `read1` keeps silent about it
                    raise http.client.IncompleteRead(b"".join(parts), response.length)
                return response.status, response.headers, b"".join(parts)
        except (OSError, http.client.HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            reason = " ".join(str(cause).split()) or type(cause).__name__
            if isinstance(error, urllib.error.URLError) and not self._reached:  # the question was never sent
                raise ApiError(f"{self.url}: not reached: {reason}") from None
            if isinstance(cause, TimeoutError):
                raise _Again(f"no answer within {self._timeout:g} s") from None
            raise _Again(f"the connection broke: {reason}") from None

    def _told(self, content: bytes) -> str:
        """What the server says about an error, in one line without the key."""
        text = content.decode(errors="replace")
        try:
            found = json.loads(text)
            error = found.get("error", found.get("detail", found))
            text = error.get("message", text) if isinstance(error, dict) else error
        except (ValueError, AttributeError, RecursionError):
            pass
        line = " ".join((text if isinstance(text, str) else json.dumps(text)).split())
        if self._key:
            line = line.replace(self._key, "***")
        return line if len(line) <= 200 else line[:197] + "..."


class _Again(Exception):
    """An attempt failed in a way that another one may not."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected question would become a GET without its body, and take the key to whoever is named."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _read(content: bytes) -> Completion:
    """The completion in a body of status 200; some servers send an error with that status, or nothing."""
    try:
        found = json.loads(content)
        if isinstance(found, dict) and found.get("error"):
            raise _Again(f"status 200 with an error: {' '.join(json.dumps(found['error']).split())[:200]}")
        choice = found["choices"][0]
        text, reason = choice["message"].get("content"), choice.get("finish_reason")
        tokens = (found.get("usage") or {}).get("completion_tokens")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        start = content[:60].decode(errors="replace")
        raise _Again(f"the answer is no chat completion: {json.dumps(start)}") from None
    truncated = reason == "length"
    if not isinstance(text, str) or not text.strip():
        if not truncated:
            raise _Again(f"an empty answer (finish_reason {json.dumps(reason)})")
        text = ""
    return Completion(text, tokens if type(tokens) is int else None, truncated)


def _retry_after(headers: http.client.HTTPMessage) -> float:
    """Seconds that the server asks to wait, at most `LONGEST_WAIT`; the header holds them, or a date."""
    value = headers.get("Retry-After", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return 0.0
    return min(max(seconds, 0.0), LONGEST_WAIT) if seconds == seconds else 0.0
