"""A network that a run has saved answers the fixed boards by the command, as a policy that writes does."""

import json

import jax
import numpy as np
import optax
import pytest
from lab import LAB, NETWORK, SMALL

from jaxlake.benchmark import load as load_suite
from jaxlake.benchmark import spread, take
from rl.command import shipped
from rl.config import Config
from rl.evaluate import main as evaluate
from rl.judge import asking
from rl.judge.answers import GREEDY
from rl.plan import main as plan
from rl.run.directory import FORMAT
from rl.students.turns import network
from rl.students.turns.actor import lane
from rl.students.turns.network import NetworkActor

pytestmark = pytest.mark.usefixtures("quick_compilation")
ACTOR = NetworkActor(**NETWORK, episode_steps=SMALL.episode_steps)


@pytest.mark.heavy
def test_a_saved_network_answers_the_fixed_boards(tmp_path, capsys, monkeypatch):
    run, learner = tmp_path / "run", network.begin(ACTOR, optax.sgd(1e-3), jax.random.key(0)[None])
    network.save(run / "final", ACTOR, parameters := lane(learner.parameters, 0))
    player = network.load_player(Config(**LAB), run / "final")
    assert player.actor == ACTOR
    jax.tree.map(np.testing.assert_array_equal, lane(player.parameters, 0), parameters)
    (run / "config.yaml").write_text(Config(**LAB).to_yaml())
    (run / "version.json").write_text(json.dumps({"jaxlake": "0.1.0", "format": FORMAT}))
    boards = take(suite := load_suite("test"), spread(suite)[:30])
    monkeypatch.setattr("jaxlake.benchmark.load", lambda name: boards)
    monkeypatch.setattr(asking, "CALL", 1)  # 16 boards a call
    assert evaluate(["--run", str(run), "--suite", "benchmark"]) == 0
    assert "this model, turn by turn " in capsys.readouterr().out
    scores = json.loads((run / "evaluations/benchmark/scores.json").read_text())
    answers = player.answer(boards.instances, 1, GREEDY, jax.random.key(0), print)
    lines = [json.loads(line) for line in (run / "evaluations/benchmark/answers.jsonl").read_text().splitlines()]
    texts = dict(zip(boards.ids, answers.texts(range(30)), strict=True))
    assert {line["id"]: line["answer"] for line in lines} == texts and scores["answers"] == 30
    assert evaluate(["--run", str(run), "--suite", "benchmark", "--samples", "2", "validation.top_k=3"]) == 2
    assert plan(["--config", str(shipped("lab.yaml"))]) == 2
    error = capsys.readouterr().err
    assert "top_k and top_p: a player chooses among five moves" in error
    assert "student.kind = network has no program that needs a plan" in error and error.count("\n") == 2
