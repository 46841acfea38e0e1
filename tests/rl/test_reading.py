"""The reading test tells who reads from who does not, keeps what it has asked for, and refuses what is damaged."""

import json

import jax
import pytest

from engineer.engineers.rules import frontier_design
from engineer.examples import think
from engineer.proposal import to_answer
from rl.command import shipped
from rl.config import Config, ConfigError
from rl.config.sections import LakeSection
from rl.evaluate import main
from rl.judge import reading_test as reading
from rl.judge.asking import Asker, collect
from rl.run.signals import Stop
from rl.run.tracking import Display

pytestmark = pytest.mark.usefixtures("quick_compilation")

COUNT = 12
HISTORIES = {}


@pytest.fixture(scope="module")
def config():
    return Config()


def scripted(answer, asked):
    """An asker that answers each form by a function of its history, and notes the messages that it gets."""

    def write(begin, questions, within):
        asked.extend(question.message for question in questions)
        return [(answer(HISTORIES[question.id]), 9, False) for question in questions]

    return Asker.in_process(write, 1, {"parameters": "scripted"})


def perfect(config):
    def answer(history):
        evidence, kinds = history[-1].evidence, history[-1].config.kinds
        return f"<think>\n{think(evidence, kinds)}\n</think>\n\n{to_answer(frontier_design(evidence, kinds))}"

    return answer


def constant(config):
    return lambda history: (
        "<think>\nWeakest size 5 (4% valid), most learnable size 6 (21%).\n</think>\n\n"
        '{"3":{"data":0.1,"hole":0.1,"wait":0.1},"4":{"data":0.2,"hole":0.2,"wait":0.2},'
        '"5":{"data":0.3,"hole":0.3,"wait":0.3},"6":{"data":0.4,"hole":0.4,"wait":0.4}}'
    )


@pytest.fixture(scope="module")
def states(config):
    """Some drawn states; `HISTORIES` has what is shown of them."""
    drawn = reading.drawn_states(config, COUNT)
    HISTORIES.update(item for state in drawn for item in reading.histories(state).items())
    return drawn


def ask(config, states, asker, folder):
    with Display(quiet=True) as display:
        questions = reading.questions(states, asker, config)
        record = collect(asker, questions, folder, {}, display, Stop())
    return {name: answer.answer for (name, _), answer in record.answers.items()}


def test_who_reads_gets_everything_right_and_who_does_not_follows_nothing(config, states, tmp_path):
    reads, blind = (
        reading.score(states, ask(config, states, scripted(answer(config), []), tmp_path / answer.__name__), config)
        for answer in (perfect, constant)
    )
    for name in ("legal design", "all three right", "quotes right"):
        assert reads[f"{name}, %"] == 100
    assert min(reads[f"follows the rule: {field}"] for field in ("data", "hole", "wait")) > 0.999
    assert reads["equivariance: data"] > 0.95
    # With the names exchanged none has the name it should.
    assert reads["shuffled: weakest kind right, %"] < 50 and reads["shuffled: follows the rule: data"] < 0.5
    assert blind["legal design, %"] == 100 and blind["all three right, %"] < 50
    assert abs(blind["follows the rule: data"]) < 0.6 and blind["equivariance: data"] < 0.2


def test_a_state_has_the_same_forms_in_a_longer_list(config):
    long = [reading.histories(state) for state in reading.drawn_states(config, 5)]
    assert [reading.histories(state) for state in reading.drawn_states(config, 3)] == long[:3]


def test_the_shipped_states_are_of_the_first_command_and_read_back(config):
    states = reading.real_states(config, 20)
    assert len(states) == 20 and len({state.name for state in states}) == 20
    assert reading.real_states(Config(lake=LakeSection(kinds=[3, 4, 5]))) == []  # there are none of other kinds
    for state in states:
        (again,) = reading.read_lines(reading.STATES, [json.dumps(reading.write_state(state.name, state.history))])
        assert again.history == state.history
        assert state.history[-1].evidence.by_kind[0].n >= 50


@pytest.mark.parametrize("line", ["{}", '{"name": "x", "history": []}', "nonsense", '{"name": "x", "history": [1]}'])
def test_a_damaged_state_is_refused_in_one_line(line):
    with pytest.raises(ConfigError, match="^states, line 1: damaged") as error:
        reading.read_lines("states", [line])
    assert "\n" not in str(error.value)


def test_models_that_were_taught_nothing_are_asked_for_the_words(config, states, tmp_path):
    engineer = config.engineer.model_copy(update={"template": None})
    bare = config.model_copy(
        update={"warm_start": config.warm_start.model_copy(update={"steps": 0}), "engineer": engineer}
    )
    ask(bare, states, scripted(perfect(config), asked := []), tmp_path)
    assert len(asked) == 2 * COUNT and all(message.endswith(reading.REQUEST) for message in asked)


@pytest.mark.heavy
def test_a_checkpoint_reads_by_command_and_goes_on(config, tmp_path):
    from rl.model.policy import Policy

    policy, parameters = Policy.create(config, jax.random.key(0))
    policy.save(tmp_path / "model", parameters)
    command = ["--model", str(tmp_path / "model"), "--reading", "--out", str(tmp_path / "out"), "--limit"]
    settings = ["--config", str(shipped("tiny.yaml")), "engineer.max_thinking_tokens=8"]
    assert main([*command, "2", *settings]) == 0
    lines = (tmp_path / "out/answers.jsonl").read_text().splitlines()
    assert len(lines) == 8 and main([*command, "3", *settings]) == 0
    assert (tmp_path / "out/answers.jsonl").read_text().splitlines()[:8] == lines
    scores = json.loads((tmp_path / "out/reading.json").read_text())["scores"]
    # The grammar holds a model that knows nothing, too.
    assert (scores["all"]["states"], scores["all"]["legal design, %"]) == (6, 100)


def test_a_server_is_asked_for_words_and_designs_in_a_room_of_its_own(server, tmp_path, capsys):
    """No schema: it would forbid the words. Of the two states' four responses half are cut off."""
    design = '{"3":{"data":1,"hole":0.1,"wait":0}}'
    server.respond = lambda handler, body, number: handler.say(
        f"Weakest: 3. {design}", "stop" if number % 2 else "length"
    )
    command = ["--api", server.url, "m", "--config", str(shipped("tiny.yaml")), "--reading", "--limit", "1"]
    assert main([*command, "--out", str(tmp_path), "warm_start.steps=0", "engineer.template=null"]) == 0
    said = capsys.readouterr().out
    assert "2 of 4 responses were cut off at engineer.api.max_tokens = 8,192" in said
    assert {body["max_tokens"] for body in server.asked[1:]} == {8192} and len(server.asked) == 5
    assert not any("response_format" in body for body in server.asked)
    about = json.loads((tmp_path / "reading.json").read_text())["about"]
    assert (about["max_tokens"], about["sent"]["temperature"]) == (8192, 0.6)
