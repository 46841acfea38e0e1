"""Hours of larger runs, from a run's own logs."""

import json
from pathlib import Path

import numpy as np
import pytest

from rl import config as config_
from rl import forecast, train
from rl.config import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"
PAPER = {"qwen3-4b.yaml": config_.load(CONFIGS / "qwen3-4b.yaml")}
"""3,000 steps of 64 answers (3 rounds x 2 epochs x 4,000 boards, 8 a step), 4 validations of 400 boards x 5 answers."""


@pytest.fixture
def finished(tmp_path):
    """The logs of a run: three steps of 16 answers, the first of which compiles."""

    def write(*, computed=0.5, compilations=(3, 0, 0)):
        (tmp_path / "config.yaml").write_text("grpo: {prompts: 4, samples: 4}\nrounds: {instances: 8}\n")
        metrics = [{"phase": "warm_start", "loss": 1.0}]
        timings = [{"phase": "warm_start", "update": 9.0, "compilations": 0}]
        for tokens, count in zip((500, 900, 1100), compilations, strict=True):
            metrics.append({"phase": "round", "answer_tokens": tokens, "groups_sampled": 4, "rows_computed": computed})
            parts = {"rollout": 16.0, "host": 1.0, "update": 3.0} if not count else {"rollout": 99.0, "update": 99.0}
            timings.append({"phase": "round", "compilations": count, **parts})
        for name, rows in (("metrics", metrics), ("timings", timings)):
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path

    return write


def test_a_run_tells_the_hours_of_a_larger_one(finished):
    """32,000 tokens in 32 s are 1 ms each; half of them trained on in 8 s, .5 ms each."""
    table = forecast.hours(finished(), PAPER)
    tokens = 3000 * 64 * np.array([1000, 8192])
    for row, expected, length in zip(table.rows, tokens, ("1,000", "8,192"), strict=True):
        write, train, validate = expected / 3.6e6, expected / 7.2e6, expected / (3000 * 64) * 8000 / 3.6e6
        assert row[:3] == ("qwen3-4b.yaml", "3,000", length)
        assert row[4:] == tuple(f"{x:,.1f}" for x in (write, train, validate, write + train + validate))
    assert "From 2 of 3 steps" in table.note and "1 ms to write a token, 0.5 ms to train on it" in table.note


def test_what_no_step_measured_is_not_told(finished):
    (row, _) = forecast.hours(finished(computed=0.0), PAPER).rows
    assert row[5] == "nan"
    table = forecast.hours(finished(compilations=(3, 1, 1)), PAPER)
    assert "From 3 of 3 steps" in table.note
    run = finished()
    for name in ("metrics", "timings"):
        (run / f"{name}.jsonl").write_text("")
    assert forecast.hours(run, PAPER) is None


@pytest.mark.parametrize("name, said", [("none.yaml", "none.yaml: there is no such file"), ("lab.yaml", "is a player")])
def test_a_forecast_of_what_is_no_run_of_a_policy_is_refused_before_the_run(tmp_path, capsys, name, said):
    arguments = ["--run", str(tmp_path / "run"), f"tracking.forecast=[{name}]"]
    assert train.main(arguments) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=said):
        forecast.configurations(config_.load(CONFIGS / "tiny.yaml", [f"tracking.forecast=[{name}]"]))
