"""The chat client against a server that misbehaves: what is asked again, what ends everything, and in which words."""

import socket
import struct
import time

import pytest

from rl.config import ConfigError
from rl.judge import server as client_
from rl.judge.server import ChatClient, Completion, RequestFailed
from rl.model.sampler import SamplingParams

GREEDY, DRAWN = SamplingParams(temperature=0.0), SamplingParams(temperature=0.7)
SCHEMA = {"type": "object"}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)  # the package has no setting for it
    monkeypatch.setattr(client_, "RETRIES", 1)
    monkeypatch.setattr(client_, "TIMEOUT", 0.5)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")


def complete(client: ChatClient | str, seed: int = 0) -> Completion:
    """Ask a client, or one of a URL, for one answer; RequestFailed where there is none."""
    client = ChatClient(client, "some/model", GREEDY, 64, False) if isinstance(client, str) else client
    ((_, result),) = client.map(["Where to?"], [seed], 1)
    if isinstance(result, RequestFailed):
        raise result
    return result


def cut(handler):
    """Send a beginning and reset the connection."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def test_the_question_is_the_message_alone_and_the_answer_comes_with_its_length(server):
    assert complete(server.url) == Completion("fine", 7, 100, truncated=False)
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
    assert server.headers[0]["Authorization"] == "Bearer sk-secret"


def test_all_that_could_change_a_draw_is_sent_also_where_it_is_off(server):
    """Fields that are left out are a server's choice: llama.cpp's is top_k 40, top_p .95 and min_p .05."""
    complete(ChatClient(server.url, "m", DRAWN, 64, True, SCHEMA), seed=2**31 + 5)
    (asked,) = server.asked
    drawn = {"temperature": 0.7, "seed": 5, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1}
    assert drawn.items() <= asked.items() and asked["chat_template_kwargs"] == {"enable_thinking": True}
    assert asked["response_format"]["json_schema"]["schema"] == SCHEMA


EXTRA = {"top_k", "min_p", "repetition_penalty"}


@pytest.mark.parametrize(
    ("refused", "left_out"),
    [
        (set(), set()),
        ({"min_p"}, EXTRA),
        ({"top_k", "chat_template_kwargs", "max_tokens"}, EXTRA | {"chat_template_kwargs"}),
        ({"response_format"}, EXTRA | {"chat_template_kwargs", "response_format"}),
    ],
)
def test_fields_that_a_server_refuses_are_left_out_and_it_is_said(server, refused, left_out):
    """With an OpenAI model, which wants another name of the limit, among them."""
    server.respond = lambda handler, body, number: (
        handler.send(400, f"Unexpected: {refused & body.keys()}") if refused & body.keys() else handler.say("fine")
    )
    client, lines = ChatClient(server.url, "m", DRAWN, 64, True, SCHEMA), []
    client.check(lines.append)
    assert server.asked[0]["max_tokens"] == 16 and len(server.asked[0]["messages"][0]["content"]) < 50
    complete(client)
    limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
    assert server.asked[-1][limit] == 64
    optional = EXTRA | {"temperature", "top_p", "chat_template_kwargs", "response_format"}
    assert client.sent.keys() == optional - left_out
    assert server.asked[-1].keys() == {"path", "model", "messages", "seed", limit} | client.sent.keys()
    assert len(lines) == bool(left_out) and all(name in lines[0] for name in left_out)


@pytest.mark.parametrize(
    ("message", "reason", "text"),
    [
        ({"content": "0:(0,0)(0,"}, "length", "0:(0,0)(0,"),
        ({"content": None}, "length", ""),
        ({"content": "4", "reasoning_content": "\nHm. So.\n"}, "stop", "<think>\nHm. So.\n</think>\n\n4"),
        ({"content": None, "reasoning": "\nHm. So.\n"}, "length", "<think>\nHm. So."),
        ({"content": "a \ud800 b"}, "stop", "a ? b"),  # half a surrogate pair, which no file takes
    ],
)
def test_an_answer_is_read_whole_cut_off_or_with_its_thought_apart(server, message, reason, text):
    choice = {"message": message, "finish_reason": reason}
    server.respond = lambda handler, *_: handler.send(200, {"choices": [choice]})  # it counts no tokens
    assert complete(server.url) == Completion(text, None, None, truncated=reason == "length")


@pytest.mark.parametrize(
    ("trouble", "error", "reason", "asked"),
    [
        (lambda h: h.send(429, {"error": {"message": "slow\n down"}}), RequestFailed, "status 429: .*slow", 2),
        (lambda h: h.send(503, "<html>busy</html>"), RequestFailed, "status 503: <html>busy</html>", 2),
        (lambda h: h.server.end.wait(30), RequestFailed, "Request timed out", 2),
        (lambda h: h.send(200, "<html>proxy</html>"), RequestFailed, "the answer is no chat completion", 1),
        (lambda h: h.send(200, {"error": {"message": "died"}}), RequestFailed, "the answer is no chat completion", 1),
        (lambda h: h.say(""), RequestFailed, "an empty answer \\(finish_reason 'stop'\\)", 1),
        (cut, ConfigError, "URL: not reached: ", 2),
        (
            lambda h: h.send(401, "no"),
            ConfigError,
            "URL, model 'some/model': status 401: no; the variable OPENAI_AP",
            1,
        ),
        (
            lambda h: h.send(404, "no"),
            ConfigError,
            "URL, model 'some/model': status 404: no; no such model or addre",
            1,
        ),
    ],
)
def test_trouble_is_asked_again_where_that_may_help_and_ends_in_one_line(server, trouble, error, reason, asked):
    server.respond = lambda handler, body, number: trouble(handler)
    with pytest.raises(error, match=f"^{reason.replace('URL', server.url)}") as failed:
        complete(server.url)
    assert len(server.asked) == asked and "\n" not in str(failed.value) and len(str(failed.value)) < 400


def test_many_requests_keep_to_the_concurrency_and_lose_none(server, monkeypatch):
    troubles = [lambda h: h.send(500, ""), cut, lambda h: h.send(429, "", {"Retry-After": "0.01"})]

    def respond(handler, body, number):
        time.sleep(0.005)
        if number % 5:
            handler.say(body["messages"][0]["content"].upper())
        else:
            troubles[number // 5 % 3](handler)

    server.respond = respond
    monkeypatch.setattr(client_, "RETRIES", 7)
    client = ChatClient(server.url, "m", GREEDY, 64, False)
    results = dict(client.map([f"question {i}" for i in range(100)], range(100), concurrency=6))
    assert sorted(results) == list(range(100))
    assert all(results[i].text == f"QUESTION {i}" for i in range(100))
    assert 2 <= server.most <= 6


def test_a_closed_map_asks_for_nothing_more(server):
    results = ChatClient(server.url, "m", GREEDY, 64, False).map(["?"] * 50, [0] * 50, concurrency=2)
    next(results)
    results.close()
    time.sleep(0.1)
    assert len(server.asked) <= 8
