"""The command as a user gives it, on a run, a checkpoint and a server; interrupted and resumed, misused; its scores."""

import json
import os
import signal
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from pairs import run_pair
from shapes import SMALL_JSON

from jaxlake import text
from jaxlake.benchmark import load, published, spread, take
from jaxlake.score import read_answers
from rl import config as config_
from rl import evaluate
from rl.config import ConfigError
from rl.judge import asking
from rl.judge.record import Answer, Record
from rl.judge.suite import Evaluation
from rl.model.policy import Policy

SETTINGS = """
validation: {temperature: 0.9}
student:
  text: {max_prompt_tokens: 16, max_new_tokens: 12}
  sampler: {rows: 16}
"""


@pytest.fixture(autouse=True)
def small_suites(monkeypatch):
    """The first boards of both suites in their order: of each cell 1, or 3 of the 8 with two agents."""
    sizes = {"test": 63, "validation": 24}
    small = {name: take(load(name), spread(load(name))[:count]) for name, count in sizes.items()}
    monkeypatch.setattr(evaluate.benchmark, "load", small.get)
    monkeypatch.setattr(asking, "CALL", 1)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A finished run of a model with random weights."""
    run = tmp_path_factory.mktemp("evaluate") / "run"
    run.mkdir()
    (run / "shape.json").write_text(json.dumps(SMALL_JSON))
    (run / "version.json").write_text('{"jaxlake": "0.1.0", "format": 3}')
    (run / "config.yaml").write_text(f"{SETTINGS}  model: {{shape: {run}/shape.json}}\n")
    config = config_.load(run / "config.yaml")
    policy, parameters = Policy.create(config.student, config.mesh, jax.random.key(3))
    policy.save(run / "final", parameters)
    return run


@pytest.fixture
def command(capsys):
    """Runs the command; gives its exit status, and what it said and complained of."""

    def run(*arguments) -> tuple[int, str, str]:
        capsys.readouterr()
        return evaluate.main([str(argument) for argument in arguments]), *capsys.readouterr()

    return run


def lines_of(folder: Path) -> list[str]:
    return sorted((folder / "answers.jsonl").read_text().splitlines())


OPTIMAL = {
    "2ag_3x3_hr0.1_000": "0:(1,2)(1,1)(1,0)\n1:(2,1)(2,2)(1,2)(0,2)",
    "2ag_5x5_hr0.3_000": "0:(1,1)(1,2)(1,3)(1,4)(2,4)\n1:(4,1)(4,0)(3,0)",
    "2ag_4x4_hr0.1_000": "0:(3,0)(2,0)(1,0)(0,0)\n1:(3,1)(3,0)(2,0)(1,0)",
    "3ag_3x3_hr0.1_000": "0:(1,2)(1,1)\n1:(2,2)(2,1)(2,0)(1,0)(0,0)\n2:(0,1)(0,2)",
    "4ag_4x4_hr0.5_020": "0:(2,0)(1,0)(0,0)\n1:(2,1)(3,1)\n2:(1,1)(1,1)(1,0)\n3:(0,1)(0,2)",
}
"""Plans of the exact solver for some of the first boards."""
LATE = {"3ag_3x3_hr0.1_020": "0:(2,0)(1,0)(0,0)(0,1)(0,2)\n1:(0,1)(1,1)(1,0)\n2:(2,1)(2,1)(2,2)(1,2)"}
"""And one a step later than it could be."""


def by_prompt(suite: str, answers: dict[str, str]) -> dict[str, str]:
    """The answers that are to boards of this suite, by the prompts that ask for them."""
    benchmark = evaluate.benchmark.load(suite)
    boards = {name: benchmark.instances[i] for i, name in enumerate(benchmark.ids)}
    return {
        text.prompt(boards[name], text.PromptStyle.VERBOSE): answer
        for name, answer in answers.items()
        if name in boards
    }


@pytest.mark.heavy
def test_an_evaluation_that_was_broken_off_ends_as_an_unbroken_one(trained, command, tmp_path):
    """Cut at any byte, between and within lines and calls, it is completed to the same answers, bit for bit."""
    common = ("--run", trained, "--suite", "validation", "--samples", 2)
    assert command(*common, "--out", tmp_path / "a")[0] == 0
    unbroken = (tmp_path / "a/answers.jsonl").read_bytes()
    assert len(set(lines_of(tmp_path / "a"))) == 48
    random = np.random.default_rng(0)
    lines = np.flatnonzero(np.frombuffer(unbroken, np.uint8) == ord("\n")) + 1
    for cut in [0, lines[0], lines[31], lines[33] - 1, len(unbroken) - 1, *random.integers(0, len(unbroken), 3)]:
        (tmp_path / "a/answers.jsonl").write_bytes(unbroken[:cut])
        status, out, _ = command(*common, "--out", tmp_path / "a")
        assert status == 0 and (tmp_path / "a/answers.jsonl").read_bytes() == unbroken
        there = unbroken[:cut].count(b"\n")
        assert (f"Resuming: {there} of 48 answers are there" in out) == (there > 0)
    assert "Resuming" not in command(*common, "--out", tmp_path / "a")[1]  # nothing is missing


@pytest.mark.heavy
def test_an_answer_depends_on_neither_the_limit_nor_how_many_are_asked_for_at_once(
    trained, command, tmp_path, monkeypatch
):
    common = ("--run", trained, "--suite", "validation", "--samples", 2)
    out = command(*common, "--out", tmp_path / "all")[1]
    assert "validation suite, 24 of 800 boards, 2 answers each, sampled at temperature 0.9" in out
    assert len(read_answers(tmp_path / "all/answers.jsonl")) == 24  # what python -m jaxlake.score reads
    answers = [json.loads(line)["answer"] for line in lines_of(tmp_path / "all")]
    assert len(set(answers)) > 40  # random weights, and every answer is drawn anew
    status, out, _ = command(*common, "--limit", 5, "--out", tmp_path / "part")
    assert status == 0 and "5 of 800 boards" in out
    assert len(lines_of(tmp_path / "part")) == 10
    assert set(lines_of(tmp_path / "part")) < set(lines_of(tmp_path / "all"))
    monkeypatch.setattr(asking, "CALL", 2)
    # A higher limit asks for what is new; a lower one counts what it is about.
    status, out, _ = command(*common, "--limit", 24, "--out", tmp_path / "part")
    assert "Resuming: 10 of 48 answers are there" in out
    assert lines_of(tmp_path / "part") == lines_of(tmp_path / "all")
    command(*common, "--limit", 5, "--out", tmp_path / "part")
    assert json.loads((tmp_path / "part/scores.json").read_text())["answers"] == 10


def test_a_folder_with_other_content_or_of_other_settings_is_left_alone(trained, command, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/mine.txt").write_text("mine")
    common = ("--run", trained, "--suite", "validation", "--limit", 2)
    assert command(*common, "--samples", 2, "--out", tmp_path / "e")[0] == 0
    before = lines_of(tmp_path / "e")
    for folder, arguments, told in (
        (
            "e",
            ("--samples", 2, "seed=1"),
            "seed was 0, is now 1; the folder holds another evaluation; choose another with --out",
        ),
        ("notes", (), "not empty and no evaluation; choose another with --out"),
        ("notes/mine.txt", (), "no folder can be made there (File exists)"),
    ):
        status, _, err = command(*common, *arguments, "--out", tmp_path / folder)
        assert status == 2 and err.count("\n") == 1 and err.startswith(f"error: {tmp_path}/{folder}: {told}")
    assert lines_of(tmp_path / "e") == before and os.listdir(tmp_path / "notes") == ["mine.txt"]


PROGRAM = """
import sys
from jaxlake.benchmark import load, spread, take
from rl import evaluate
from rl.config import ConfigError
from rl.judge import asking
from rl.judge.record import Answer, Record
from rl.judge.suite import Evaluation
evaluate.benchmark.load = lambda name: take(load(name), spread(load(name))[:24])
asking.CALL = 1
port, me, *arguments = sys.argv[1:]
job = ["--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process", me]
sys.exit(evaluate.main([*arguments, *job]))
"""


@pytest.mark.slow
def test_a_job_of_two_processes_answers_as_one_does(trained, command, tmp_path):
    """11 boards, which two processes cannot share equally; interrupted in between."""
    common = ["--run", str(trained), "--suite", "validation", "--samples", "2", "--limit", "11"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert command(*common, "--out", one)[0] == 0
    two.mkdir()
    (two / "evaluation.json").write_bytes((one / "evaluation.json").read_bytes())
    (two / "answers.jsonl").write_bytes((one / "answers.jsonl").read_bytes()[:400])
    first, _ = run_pair(PROGRAM, *common, "--out", str(two))
    assert "Resuming: " in first and "Report: " in first
    assert lines_of(two) == lines_of(one)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--run", "RUN", "text.max_new_token=3"), "unknown key text"),
        (("--run", "none"), "none: no run (it has no config.yaml)"),
        (("--run", "UNFINISHED"), "no policy there yet (neither final/ nor best/)"),
        (("--run", "RUN", "--config", "x.yaml"), "--config: a run has its own configuration"),
        (("--model", "TORN"), "torn"),
        (("--api", "http://127.0.0.1:9/v1", "m"), "http://127.0.0.1:9/v1: not reached: "),
    ],
)
def test_a_mistake_is_told_in_one_line_and_nothing_is_written(trained, command, tmp_path, arguments, message):
    for name in ("torn", "unfinished"):
        (tmp_path / name).mkdir()
    (tmp_path / "torn/config.json").write_text((trained / "final/config.json").read_text()[:50])
    for name in ("config.yaml", "version.json"):
        (tmp_path / "unfinished" / name).write_text((trained / name).read_text())
    paths = {"RUN": trained, "TORN": tmp_path / "torn", "UNFINISHED": tmp_path / "unfinished"}
    arguments = [paths.get(argument, argument) for argument in arguments]
    status, _, err = command(*arguments, "--suite", "validation", "--out", tmp_path / "e")
    assert status == 2 and err.startswith("error: ") and message in err and err.count("\n") == 1
    assert not (tmp_path / "e").exists()


def test_a_server_is_asked_the_suites_prompts_and_its_answers_are_judged(server, command, tmp_path):
    """Valid plans for three boards of the 63, two of them optimal; nonsense for the others. No file has the key."""
    right = by_prompt("test", OPTIMAL | LATE)

    def respond(handler, body, number):
        time.sleep(0.05)  # long enough for others to come in
        handler.say(right.get(body["messages"][0]["content"], "No idea."), tokens=20)

    server.respond = respond
    status, out, err = command("--api", server.url, "org/model", "--suite", "benchmark", "--out", tmp_path / "e")
    assert (status, err) == (0, "")
    benchmark = evaluate.benchmark.load("test")
    prompts = {text.prompt(benchmark.instances[i], text.PromptStyle.VERBOSE) for i in range(63)}
    first, *asked = server.asked  # a small question before there is work to lose
    assert {body["messages"][0]["content"] for body in asked} == prompts and first["max_tokens"] == 16
    assert len(asked) == 63 and 2 <= server.most <= 8
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer sk-1"}
    assert "sk-1" not in "".join(file.read_text() for file in (tmp_path / "e").iterdir())
    advised = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_tokens": 8192}  # Qwen's for thinking
    assert all(advised.items() <= body.items() and "seed" in body for body in asked)
    assert all(body["chat_template_kwargs"] == {"enable_thinking": True} for body in asked)
    figures = json.loads((tmp_path / "e/scores.json").read_text())
    (total,) = (x for x in figures["rows"] if (x["agents"], x["wait_subset"], x["size"]) == (None, None, None))
    # The wait subsets of a cell are three boards of its mean, so that each board counts the same.
    assert (total["valid"], total["optimal"]) == (pytest.approx(300 / 63), pytest.approx(200 / 63))
    assert figures["lengths"] == {"mean": 20, "p90": 20, "truncated": 0}
    assert (figures["url"], figures["api_model"]) == (server.url, "org/model")
    assert sum(row["agent_count"] + row["parsable"] for row in figures["failures"]) == 60
    for row in published().rows:
        assert row.model in out and "{:.2f} / {:.2f}".format(*row.mean) in out


def test_samples_of_a_server_give_pass_at_k_and_each_has_a_seed_of_its_own(server, command, tmp_path):
    """Of 8 boards 3 are solved, by one of their four answers: of each pass@1 is 25 %, pass@2 50 %, pass@4 100 %."""
    right = by_prompt("validation", OPTIMAL)
    seen = {}

    def respond(handler, body, number):
        prompt = body["messages"][0]["content"]
        first = seen.setdefault(prompt, number) == number
        handler.say(right.get(prompt, "no") if first else "no")

    server.respond = respond
    arguments = ("--api", server.url, "m", "--suite", "validation", "--samples", 4, "--limit", 8, "--concurrency", 1)
    status, out, _ = command(*arguments, "--out", tmp_path / "e")
    assert status == 0
    assert "9.4 (9.4)  18.8 (18.8)  37.5 (37.5)" in out
    asked = server.asked[1:]
    assert len({body["seed"] for body in asked}) == 32 and {body["temperature"] for body in asked} == {0.6}


@pytest.mark.parametrize(
    ("refused", "status", "told", "resumed"),
    [
        (range(1, 4), 1, "3 answers are missing, the last as status 400: no; the same command asks again", 21),
        (range(1, 99), 2, "URL: 10 requests in a row failed, the last: status 400: no", 0),
    ],
)
def test_failed_requests_are_told_and_asked_again(server, command, tmp_path, refused, status, told, resumed):
    server.respond = lambda handler, _, number: handler.send(400, "no") if number in refused else handler.say("fine")
    arguments = ("--api", server.url, "m", "--suite", "validation", "--out", tmp_path / "e")
    assert (command(*arguments)[::2]) == (status, f"error: {told.replace('URL', server.url)}\n")
    assert len(server.asked) <= 25 and len(lines_of(tmp_path / "e")) == resumed
    server.respond = lambda handler, *_: handler.say("fine")
    code, out, err = command(*arguments)
    assert (code, err) == (0, "") and (f"Resuming: {resumed} of 24 answers are there" in out) == (resumed > 0)
    assert len(set(lines_of(tmp_path / "e"))) == 24


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_stop_keeps_what_came_and_says_how_to_go_on(server, command, tmp_path, number, code):
    def respond(handler, body, asked):
        time.sleep(0.02)
        if asked == 12:
            os.kill(os.getpid(), number)
        if asked >= 12:
            server.end.wait(5)
        handler.say("fine")

    server.respond = respond
    arguments = ("--api", server.url, "m", "--suite", "validation", "--out", str(tmp_path / "e"), "--concurrency", "2")
    began = time.monotonic()
    status, out, err = command(*arguments)
    assert (status, err) == (code, "") and time.monotonic() - began < 4
    assert f"Stopped and saved. To resume: python -m rl.evaluate {' '.join(arguments)}" in out
    there = len(lines_of(tmp_path / "e"))
    assert 0 < there <= 12
    server.respond = lambda handler, *_: handler.say("fine")
    server.asked.clear()
    status, out, _ = command(*arguments)
    assert status == 0 and f"Resuming: {there} of 24 answers are there" in out
    assert len(lines_of(tmp_path / "e")) == len(set(lines_of(tmp_path / "e"))) == 24
    assert 25 - there <= len(server.asked) <= 25 - there + 2  # of the first command two were under way


def test_a_folder_takes_one_process_at_a_time(tmp_path):
    with Record(tmp_path / "e", {"seed": 0}), pytest.raises(ConfigError, match="e: another process is writing there"):
        Record(tmp_path / "e", {"seed": 0})
    with Record(tmp_path / "e", {"seed": 0}) as record:
        assert record.answers == {}


def test_answers_to_other_boards_and_beyond_the_samples_do_not_count():
    part, other = take(load("validation"), spread(load("validation"))[:16]), "another board"
    name = "2ag_3x3_hr0.1_000"
    plans = {0: OPTIMAL[name], 1: OPTIMAL[name], 2: "no", 7: "no"}
    answers = {(name, sample): Answer(name, sample, plan, 9, False) for sample, plan in plans.items()}
    result = Evaluation.of(part, answers | {(other, 0): Answer(other, 0, "no", 99, True)}, {"samples": 4})
    (row,), (at_4,) = result.scores.rows, result.chances[4].rows
    assert row.by_size[3].valid == pytest.approx(100 * (2 / 3) / 2)  # two of its three answers, none to the other board
    assert at_4.by_size[3].valid == 50 and result.scores.answers.sum() == 3
    assert result.lengths == {"mean": 9, "p90": 9, "truncated": 0}


def test_lengths_are_over_the_answers_that_there_are():
    part = evaluate.benchmark.load("validation")
    lengths = zip(part.ids, ((10, False), (20, True), (None, True)), strict=False)
    answers = {(name, 0): Answer(name, 0, "no", *length) for name, length in lengths}
    result = Evaluation.of(part, answers, {"samples": 1})
    assert list(result.lengths.values()) == [15, pytest.approx(19), pytest.approx(200 / 3)]
    assert list(Evaluation.of(part, {}, {"samples": 1}).lengths.values()) == [None, None, None]
