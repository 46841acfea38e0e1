"""What engineers get of a run: the right parameters, a server's answers."""

import json

import jax
import numpy as np
import pytest
from stage import LEGAL, PREVIOUS, Scene, Scripted, Stage

from rl.config import ConfigError, WarmStartSection
from rl.loop import engineer_factory
from rl.model.sharding import fingerprint
from rl.students.writer.student import check_room


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> Stage:
    return Stage(tmp_path_factory.mktemp("engineer"))


def after_a_first_question(stage: Stage, server, respond=None, *, api=None, **engineer) -> Scene:
    """A run whose server has answered the first small question; `respond` is told of those after it."""
    settings = {"url": server.url, "model": "designer"} | (api or {})
    run = stage.after_round_0(kind="api", template=None, api=settings, **engineer)
    assert run.engineer and len(server.asked) == 1
    server.asked.clear()
    server.respond = respond or server.respond
    return run


@pytest.mark.parametrize(("kind", "moved"), [("checkpoint", 1), ("base", 0)])
def test_the_base_engineer_is_the_policy_at_the_start_of_the_rounds(stage, monkeypatch, kind, moved):
    run, writer = stage.after_round_0(kind=kind), Scripted(monkeypatch, LEGAL)
    first = jax.tree.map(np.asarray, jax.tree.leaves(run.policy.rollout_parameters(run.state.parameters)))
    run.state.parameters = jax.tree.map(lambda x: x + 1, run.state.parameters)  # trained
    proposal = run.design()
    assert (proposal.engineer, proposal.projected.hole) == (kind, (0.1, 0.2))
    assert (run.proposal["parameters"] == fingerprint(run.state.parameters)) == moved
    folder = run.recorder.directory.path / "rounds/1"
    assert (folder / "context.md").read_text() == writer.asked[0] + "\n"
    assert json.loads((folder / "config.json").read_text()) == proposal.projected.to_dict()
    for ours, before in zip(writer.parameters[0], first, strict=True):
        np.testing.assert_allclose(ours, before + moved, rtol=1e-6)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("I do not know.", "no JSON object"), (ConfigError("engineer.max_prompt_tokens = 640 must be"), "= 640 must be")],
    ids=["rubbish", "a context without room"],
)
def test_without_an_answer_the_previous_configuration_stays_and_the_run_goes_on(stage, monkeypatch, answer, reason):
    run, writer = stage.after_round_0(), Scripted(monkeypatch, answer)
    assert run.design().projected == PREVIOUS and len(writer.asked) == 3
    assert (run.proposal["fallback"], run.proposal["attempts"]) == (True, 3) and reason in run.proposal["errors"][-1]
    (line,) = [line for line in run.lines if "stays in force" in line]
    assert line.startswith("round 1: no configuration in 3 attempts (") and line.endswith("round 0's stays in force")
    assert reason in line and "\n" not in line


def test_a_server_that_answers_nonsense_is_told_so_and_asked_again_as_after_a_request_that_fails(stage, server):
    says = ["More of size 4, I think.", None, f"<think>\nholes\n</think>\nHere it is:\n```json\n{LEGAL}\n```"]

    def respond(handler, body, number):
        handler.say(says[number]) if says[number] else handler.send(400, "too long")

    run = after_a_first_question(stage, server, respond)
    proposal = run.design()
    assert proposal.projected.hole == (0.1, 0.2) and not proposal.fallback
    assert (proposal.attempts, proposal.thinking, proposal.errors[1]) == (3, "holes", "status 400: too long")
    first, second, _ = (body["messages"][0]["content"] for body in server.asked)
    assert second.startswith(first) and proposal.errors[0] in second.removeprefix(first)
    assert first + "\n" != (run.recorder.directory.path / "rounds/1/context.md").read_text() == second + "\n"
    assert [body["model"] for body in server.asked] == ["designer"] * 3
    assert len({body["seed"] for body in server.asked}) == 3
    rows = run.log("api.jsonl")
    costs = {"round": 1, "prompt_tokens": 100, "completion_tokens": 7}
    assert len(rows) == 3 and all(row | costs == row for row in (rows[0], rows[2]))
    assert rows[1]["failed"] == "status 400: too long"
    sent = {"temperature": 0.6, "repetition_penalty": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
    assert rows[0]["sent"].items() >= sent.items()
    assert (rows[0]["model"], rows[0]["max_tokens"]) == ("designer", 8192)
    schema = server.asked[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"].keys() == {"3", "4"}


def test_an_answer_that_was_cut_off_is_told_to_the_model(stage, server):
    message = {"content": None, "reasoning_content": "Hm. " * 256}
    cut = {"choices": [{"message": message, "finish_reason": "length"}]}
    run = after_a_first_question(stage, server, lambda handler, *_: handler.send(200, cut), api={"max_tokens": 256})
    proposal, told = run.design(), "the answer was cut off at 256 tokens"
    assert proposal.fallback and proposal.errors == (told,) * 3 and proposal.raw.startswith("<think>\nHm. Hm.")
    assert f"could not be used: {told}." in server.asked[1]["messages"][0]["content"]


def test_an_engineer_that_cannot_be_made_is_refused_before_the_run(stage):
    with pytest.raises(ConfigError, match="engineer.template = no/such/file.md: "):
        engineer_factory.check(stage.config({"template": "no/such/file.md"}))


def test_what_the_engineer_reads_in_the_last_round_must_have_room(stage):
    def checked(template: str | None, room: int) -> None:
        config = stage.config({"template": template, "max_prompt_tokens": room, "max_answer_tokens": 200})
        student = config.student.model_copy(update={"warm_start": WarmStartSection(max_context_tokens=room)})
        config = config.model_copy(update={"student": student})
        check_room(stage.run().policy, config)

    checked("terse", 100)
    with pytest.raises(ConfigError, match=r"engineer.max_prompt_tokens = 100 must be at least \d+, the tokens of the"):
        checked(None, 100)
    checked(None, 1000)
