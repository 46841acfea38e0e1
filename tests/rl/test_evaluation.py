"""The answers of an evaluation: asked for once, kept, and scored in shares, intervals and lengths."""

import pytest

from jaxlake.benchmark import Benchmark, load, spread, take
from rl.config import ConfigError
from rl.judge.answers import GREEDY
from rl.judge.asking import Question, ServerAsker, collect
from rl.judge.record import Answer, Record
from rl.judge.server import ChatClient
from rl.judge.suite import Evaluation
from rl.run.signals import Stop
from rl.run.tracking import Display

RIGHT = {"2ag_3x3_hr0.1_000": "0:(1,2)(1,1)(1,0)\n1:(2,1)(2,2)(1,2)(0,2)"}


def first(count: int) -> Benchmark:
    """The first boards with two agents: of each of the 8 sizes one before there is a second."""
    return take(load("validation"), spread(load("validation"))[:count])


def judge(part: Benchmark, answers: dict[tuple[str, int], Answer], samples: int) -> Evaluation:
    return Evaluation.of(part, answers, {"samples": samples})


def test_a_folder_takes_one_process_at_a_time(tmp_path):
    with Record(tmp_path / "e", {"seed": 0}), pytest.raises(ConfigError, match="e: another process is writing there"):
        Record(tmp_path / "e", {"seed": 0})
    with Record(tmp_path / "e", {"seed": 0}) as record:
        assert record.answers == {}


class InMemory:
    """A model that answers by capitals, and counts its tokens."""

    identity, failure, asked = {"whose": "ours"}, "", ()

    def ask(self, questions, missing, show):
        for question, lacks in zip(questions, missing, strict=True):
            if lacks:
                self.asked += (question,)
                yield Answer(question.id, question.sample, question.message.upper(), 7, False)


@pytest.mark.parametrize("maker", ["model", "server"])
def test_an_asker_answers_what_is_missing_and_nothing_else(server, tmp_path, maker):
    """The contract of every asker: answers by the names of their questions, once each, in however many goes."""
    server.respond = lambda handler, body, number: handler.say(body["messages"][0]["content"].upper())
    client = ChatClient(server.url, "m", GREEDY, max_tokens=9, thinking=False)
    asker = ServerAsker(client, 2) if maker == "server" else InMemory()
    questions = [Question(f"q{i // 2}", i % 2, f"message {i}") for i in range(7)]
    for count in (3, 7, 7):
        with Display(quiet=True) as display:
            record = collect(asker, questions[:count], tmp_path / "e", {"what": "a test"}, display, Stop())
        expected = {(one.id, one.sample): one.message.upper() for one in questions[:count]}
        assert {name: answer.answer for name, answer in record.answers.items()} == expected
        asked = server.asked if maker == "server" else asker.asked
        assert len(asked) == count == len((tmp_path / "e/answers.jsonl").read_text().splitlines())
    assert {answer.tokens for answer in record.answers.values()} == {7} and not asker.failure
    assert record.about == {"what": "a test"} | asker.identity


def test_answers_to_other_boards_and_beyond_the_samples_do_not_count():
    part, other = first(16), "another board"
    ((name, plan),) = RIGHT.items()
    answers = {(name, sample): Answer(name, sample, plan if sample < 2 else "no", 9, False) for sample in (0, 1, 2, 7)}
    result = judge(part, answers | {(other, 0): Answer(other, 0, "no", 99, True)}, samples=4)
    (row,), (at_4,) = result.scores.rows, result.chances[4].rows
    assert row.by_size[3].valid == pytest.approx(100 * (2 / 3) / 2)  # two of its three answers, none to the other board
    assert at_4.by_size[3].valid == 50 and result.scores.answers.sum() == 3
    assert result.lengths == {"mean": 9, "p90": 9, "truncated": 0}


def test_lengths_are_over_the_answers_that_there_are():
    part = first(8)
    lengths = zip(part.ids, ((10, False), (20, True), (None, True)), strict=False)
    answers = {(name, 0): Answer(name, 0, "no", *length) for name, length in lengths}
    result = judge(part, answers, samples=1)
    assert list(result.lengths.values()) == [15, pytest.approx(19), pytest.approx(200 / 3)]
    assert list(judge(part, {}, samples=1).lengths.values()) == [None, None, None]
