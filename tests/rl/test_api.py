"""The chat client against a server that misbehaves: what is asked again, what ends everything, and in which words."""

import contextlib
import dataclasses
import socket
import struct
import time

import pytest

from rl.judge.server import ApiError, ChatClient, Completion, Request, RequestFailed

QUESTION = Request("Where to?", temperature=0.0, max_tokens=64, thinking=False)
DRAWN = Request("?", temperature=0.7, max_tokens=1, thinking=True, seed=5, top_p=0.9, top_k=20)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)  # the package has no setting for it
    monkeypatch.setattr("rl.judge.server.PAUSE", 0.01)


def client_of(server, **settings) -> ChatClient:
    return ChatClient(server.url, "some/model", **{"timeout": 5.0, **settings})


def complete(client: ChatClient, request: Request = QUESTION) -> Completion:
    """Asks for one answer; raises RequestFailed where there is none."""
    ((_, result),) = client.map([request], concurrency=1)
    if isinstance(result, RequestFailed):
        raise result
    return result


def cut(handler, promised=1000):
    """Sends a beginning and resets the connection."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(promised))
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def hang(handler):
    handler.server.end.wait(30)


def trickle(handler):
    """Sends blanks to keep the connection open, as some servers do, and never an answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    with contextlib.suppress(OSError):  # the client has gone
        while not handler.server.end.wait(0.05):
            handler.wfile.write(b" ")
            handler.wfile.flush()


def test_the_question_is_the_message_alone_and_the_answer_comes_with_its_length(server):
    assert complete(client_of(server)) == Completion("fine", 7, truncated=False, prompt_tokens=100)
    assert server.asked == [
        {
            "path": "/v1/chat/completions",
            "model": "some/model",
            "messages": [{"role": "user", "content": "Where to?"}],
            "temperature": 0.0,
            "max_tokens": 64,
            "repetition_penalty": 1.0,
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]


@pytest.mark.parametrize(("seed", "sent"), [(5, 5), (2**31 - 1, 2**31 - 1), (2**31 + 5, 5)])
def test_all_that_could_change_a_draw_is_sent_also_where_it_is_off(server, seed, sent):
    """Fields that are left out are a server's choice: llama.cpp's is top_k 40, top_p .95 and min_p .05."""
    client = ChatClient(server.url + "/chat/completions/", "m", "sk-secret", timeout=5)
    complete(client, dataclasses.replace(DRAWN, seed=seed, top_p=1.0, top_k=0, schema={"type": "object"}))
    (asked,) = server.asked
    drawn = {"temperature": 0.7, "seed": sent, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1}
    assert drawn.items() <= asked.items() and asked["chat_template_kwargs"] == {"enable_thinking": True}
    assert asked["response_format"]["type"] == "json_schema"
    assert asked["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert asked["path"] == "/v1/chat/completions"
    assert server.headers[0]["Authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize("form", ["Unexpected fields in the request: {{'{}'}}", "property '{}' is unsupported"])
def test_a_field_that_a_server_refuses_is_named_with_the_setting_that_omits_it(server, form):
    server.respond = lambda handler, body, number: (
        handler.send(422, {"detail": form.format("min_p")}) if "min_p" in body else handler.say("fine")
    )
    with pytest.raises(ApiError) as refused:
        client_of(server, omit=["top_k"]).check(DRAWN)
    told = f"status 422: {form.format('min_p')}; to leave out what it names: engineer.api.omit=[top_k,min_p]"
    assert str(refused.value).endswith(told) and len(server.asked) == 1
    client = client_of(server, omit=["top_k", "min_p"])
    client.check(DRAWN)
    assert complete(client, DRAWN).text == "fine" and len(server.asked) == 3
    sent = {"temperature", "top_p", "repetition_penalty", "chat_template_kwargs"}
    assert client.sent(DRAWN).keys() == sent
    assert server.asked[-1].keys() == {"path", "model", "messages", "max_tokens", "seed"} | sent


@pytest.mark.parametrize(
    ("status", "told", "asked"),
    [(400, "Server is pinned to 'org/other'; requested 'some/model'.", 1), (500, "Internal Server Error", 2)],
)
def test_a_first_small_request_ends_a_mistake_in_one_line_at_once(server, status, told, asked):
    server.respond = lambda handler, *_: handler.send(status, told)
    line = f"{server.url}: a first small request for the model 'some/model' failed: status {status}: {told}"
    with pytest.raises(ApiError) as error:
        client_of(server).check(dataclasses.replace(DRAWN, message="long " * 1000, max_tokens=8192))
    assert str(error.value) == line and len(server.asked) == asked
    assert server.asked[0]["max_tokens"] == 16 and len(server.asked[0]["messages"][0]["content"]) < 50


HM = {"type": "text", "text": "Hm."}


@pytest.mark.parametrize(
    ("message", "reason", "text", "thinking"),
    [
        ({"content": "0:(0,0)(0,"}, "length", "0:(0,0)(0,", ""),
        ({"content": None}, "length", "", ""),
        ({"content": "4", "reasoning_content": "\nHm. So.\n"}, "stop", "4", "Hm. So."),
        ({"content": None, "reasoning": "\nHm. So.\n"}, "length", "", "Hm. So."),
        ({"content": "a \ud800 b"}, "stop", "a ? b", ""),  # half a surrogate pair, which no file takes
        ({"content": [{"type": "text", "text": "More "}, {"type": "text", "text": "holes."}]}, None, "More holes.", ""),
        ({"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "4"}]}, None, "4", "Hm."),
        ({"content": [{"type": "thinking", "thinking": [HM]}, {"type": "text", "text": "4"}]}, None, "4", "Hm."),
    ],
)
def test_an_answer_is_read_in_every_form(server, message, reason, text, thinking):
    """Whole, cut off, in parts, with thoughts apart; this server counts no tokens."""
    choice = {"message": message, "finish_reason": reason}
    server.respond = lambda handler, *_: handler.send(200, {"choices": [choice]})
    completion = complete(client_of(server))
    assert completion == Completion(text, None, truncated=reason == "length", thinking=thinking)
    closed = f"\n</think>\n\n{text}" if text else ""
    assert completion.response == (f"<think>\n{thinking}{closed}" if thinking else text)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (lambda h: h.send(429, {"error": {"message": "slow\n down"}}), "status 429: slow down"),
        (lambda h: h.send(503, "<html>busy</html>"), "status 503: <html>busy</html>"),
        (lambda h: h.send(200, "<html>proxy</html>"), "the answer is no chat completion: '<html>proxy</html>'"),
        (lambda h: h.send(200, {"error": {"message": "upstream died"}}), "the answer is no .*upstream died"),
        (lambda h: h.say(""), "an empty answer \\(finish_reason 'stop'\\)"),
        (cut, "ReadError"),
        (hang, "ReadTimeout: no answer within 0.5 s"),
        (trickle, "ReadTimeout: no answer within 0.5 s"),
    ],
)
def test_trouble_is_asked_again_and_told_if_it_stays(server, trouble, reason):
    server.respond = lambda handler, body, number: trouble(handler) if number != 1 else handler.say("at last")
    client = client_of(server, timeout=0.5, attempts=2)
    assert complete(client).text == "at last"
    with pytest.raises(RequestFailed, match=f"^{reason}") as failed:
        complete(client)
    assert len(server.asked) == 4 and "\n" not in str(failed.value) and len(str(failed.value)) < 250


@pytest.mark.parametrize(
    ("status", "content", "key", "message"),
    [
        (401, {"error": {"message": "no key"}}, None, "wants a key, which must be in MY_KEY"),
        (401, {"error": {"message": "bad sk-secret"}}, "sk-secret", "refuses MY_KEY \\(status 401: bad \\*\\*\\*\\)"),
        (403, "not you", "sk-secret", "refuses MY_KEY \\(status 403: not you\\)"),
        (404, {"error": {"message": "nope"}}, None, "knows no model 'some/model', or nothing at this address .*nope"),
        (429, {"error": {"code": "insufficient_quota", "message": "pay"}}, "k", "MY_KEY has no budget left .*pay"),
        (308, "", None, "the server is elsewhere, at http://other/v1"),
    ],
)
def test_what_no_other_request_can_mend_ends_at_once(server, status, content, key, message):
    server.respond = lambda handler, *_: handler.send(status, content, {"Location": "http://other/v1"})
    with pytest.raises(ApiError, match=f"^{server.url}: {message}") as error:
        list(client_of(server, key=key, key_name="MY_KEY", attempts=1).map([QUESTION] * 50, concurrency=1))
    assert len(server.asked) == 1 and "\n" not in str(error.value) and "sk-secret" not in str(error.value)


def test_a_server_that_is_not_there_is_told_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(ApiError, match=f"^{url}: not reached: ConnectError: "):
        complete(ChatClient(url, "m", timeout=5))


def test_a_server_that_goes_away_is_waited_for_while_it_is_asked(server):
    results = client_of(server, attempts=2).map([QUESTION] * 2, concurrency=1)
    assert next(results)[1].text == "fine"
    server.shutdown()
    server.socket.close()
    ((_, result),) = results
    assert isinstance(result, RequestFailed) and str(result).startswith("ConnectError: ")


def test_a_model_that_wants_the_newer_name_of_the_limit_gets_it(server):
    server.respond = lambda handler, body, number: (
        handler.send(400, {"error": {"message": "Use 'max_completion_tokens' instead."}})
        if "max_tokens" in body
        else handler.say("fine")
    )
    client = client_of(server)
    client.check(QUESTION)
    assert complete(client).text == "fine" and server.asked[-1]["max_completion_tokens"] == 64


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://host/v1", "http://", "http://ho st/v1", "http://me:pw@host/v1"]
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ApiError, match="must be the address of a server, like http://localhost:8000/v1"):
        ChatClient(url, "m", timeout=5)


def test_what_openai_variables_hold_is_not_for_every_server(server, monkeypatch):
    """OpenAI's package reads its key, its address, the organisation and more from them."""
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID"):
        monkeypatch.setenv(f"OPENAI_{name}", "secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: secret")
    complete(client_of(server))
    assert "secret" not in str(server.headers).lower()


def test_a_proxy_that_cannot_be_used_is_told(server, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "gopher://secret.example")
    with pytest.raises(ApiError, match=f"^{server.url}: .*proxy"):
        complete(client_of(server))


def test_many_requests_keep_to_the_concurrency_and_lose_none(server):
    """100 answers; a third of the attempts fail in one way or another."""
    troubles = [lambda h: h.send(500, ""), cut, lambda h: h.send(429, "", {"Retry-After": "0.01"}), lambda h: h.say("")]

    def respond(handler, body, number):
        time.sleep(0.005)
        if number % 3:
            handler.say(body["messages"][0]["content"].upper())
        else:
            troubles[number // 3 % 4](handler)

    server.respond = respond
    requests = [Request(f"question {i}", 0.0, 8, False) for i in range(100)]
    results = dict(client_of(server).map(requests, concurrency=6))
    assert sorted(results) == list(range(100))
    assert all(results[i].text == f"QUESTION {i}" for i in range(100))
    assert 2 <= server.most <= 6


def test_a_closed_map_breaks_off_what_is_under_way_and_asks_for_nothing_more(server):
    left = []

    def respond(handler, body, number):
        if number < 2:
            handler.say("fine")
        else:
            handler.connection.settimeout(20)
            left.append(handler.connection.recv(1))  # nothing comes any more when the client has gone

    server.respond = respond
    results = client_of(server, timeout=20).map([QUESTION] * 50, concurrency=2)
    next(results), next(results)
    began = time.monotonic()
    results.close()
    while len(left) < len(server.asked) - 2 and time.monotonic() - began < 5:
        time.sleep(0.02)
    assert time.monotonic() - began < 5
    assert len(server.asked) <= 4 and set(left) <= {b""}
