"""Teaching an engineer: which states and scores are read, which tokens count, and what it comes to write."""

import contextlib
import json
import signal
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from branches import branch, save
from lab import LAB

from engineer import modules
from engineer.examples import draw_history
from jaxlake.config import LakeConfig
from rl.branch import main
from rl.config import Config, ConfigError
from rl.evaluation.reading import write_state
from rl.experiments import teaching
from rl.policy import SHIPPED_MODEL, Policy
from rl.run.recorder import Recorder
from rl.students.network.student import OTHER_KINDS_WEIGHT

GOOD, BAD = LakeConfig.uniform((3, 4), 0.25, 0.3), LakeConfig((3, 4), (0.0, 1.0), (0.5, 0.5), (1.0, 1.0))
CONFIG = Config(
    lake={"kinds": (3, 4)},
    validation={"kinds": (4,)},
    warm_start={
        "steps": 3,
        "engineer_first": 3,
        "max_context_tokens": 60,
        "max_answer_tokens": 60,
        "contexts": ("F+R",),
    },
    engineer={"context": "F+R", "max_prompt_tokens": 60},
)


@pytest.fixture(scope="module")
def policy():
    return Policy.create(CONFIG, jax.random.key(0))[0]


def line(design: int, config: LakeConfig, target: float, other: float, repeat: int = 0):
    """Return a line of gains.jsonl: so much gained on the target 4, so much on 3."""
    by_kind = {kind: {"before": 0.2, "after": 0.2 + gain} for kind, gain in (("3", other), ("4", target))}
    changes = {"state": "r/000 round 1", "config": config.to_dict(), "by_kind": by_kind}
    return branch(design, repeat, target, **changes)


def branches(folder, *lines, kinds=(3, 4)):
    save(folder, lines)
    of = LakeConfig.uniform(kinds, 0, 0).kinds
    history = draw_history(np.random.default_rng(0), of, 2, modules("F+R"), of[1:])
    (folder / "states.jsonl").write_text(json.dumps(write_state("r/000 round 1", history)) + "\n")
    return folder


def test_a_score_is_the_gain_on_the_target_and_a_tenth_of_that_elsewhere(policy, tmp_path):
    lines = (
        line(0, GOOD, 0.1, 0.3),
        line(0, GOOD, 0.2, 0.1, repeat=1),
        line(1, BAD, 0.0, 0.0),
        line(1, BAD, 0.0, 0.2, 1),
    )
    (state,) = teaching.read_states(branches(tmp_path / "b", *lines), policy)
    assert state.scores == pytest.approx([0.15 + OTHER_KINDS_WEIGHT * 0.2, OTHER_KINDS_WEIGHT * 0.1])
    assert state.designs == (GOOD, BAD)
    assert teaching._context(policy, state.history).startswith("4 ")
    assert teaching._thought(policy, state.history).startswith("Weakest:4 ")


def test_states_of_other_kinds_and_damaged_files_are_named(policy, tmp_path):
    with pytest.raises(ConfigError, match=r"states.jsonl, line 1: has other kinds than lake.kinds"):
        lines = line(0, GOOD, 0.1, 0.3), line(1, BAD, 0.0, 0.2)
        teaching.read_states(branches(tmp_path / "b", *lines, kinds=(5, 6)), policy)
    with pytest.raises(ConfigError, match=r"gains.jsonl: there is no such file"):
        teaching.read_states(tmp_path / "none", policy)
    (tmp_path / "b/states.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"states.jsonl, line 1: damaged"):
        teaching.read_states(tmp_path / "b", policy)


def test_of_drawn_tables_the_thought_alone_counts(policy):
    contexts, taught, counts = teaching.draw_thoughts(policy, np.random.default_rng(0), 3)
    for tokens, count in zip(taught, counts, strict=True):
        said = policy.tokenizer.decode(tokens[:count])
        assert said.startswith("<think>\nWeakest:") and said.rstrip().endswith("</think>")
        assert policy.tokenizer.decode(tokens[count:]).startswith("{")


def test_the_command_refuses_what_cannot_be_taught(tmp_path, capsys):
    for options, message in (
        (["--teach", str(tmp_path)], "gains.jsonl: there is no such file"),
        (["--teach", str(tmp_path), "student.kind=network", "engineer.kind=uniform"], "student.kind = network"),
    ):
        assert main([*options, "--out", str(tmp_path / "run")]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1 and not (tmp_path / "run").exists()


@contextlib.contextmanager
def interrupted_at_step(number: int) -> Iterator[None]:
    """As by a SIGTERM within a step of the run."""
    done = Recorder.step_done

    def stopping(recorder, *arguments):
        if recorder.progress.step == number - 1:
            signal.raise_signal(signal.SIGTERM)
        done(recorder, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "step_done", stopping)
        yield


@pytest.mark.heavy
def test_an_engineer_comes_to_write_what_gained_most_and_a_stopped_command_ends_alike(tmp_path, capsys):
    lab = tmp_path / "lab.yaml"
    lab.write_text(Config(**LAB).to_yaml())
    out = tmp_path / "states"
    command = ["--config", str(lab), "--states", "2", "--rules", "--designs", "2", "--repeats", "1", "--updates", "1"]
    assert main([*command, "--out", str(out), "seed=5"]) == 0
    lines = [json.loads(row) for row in (out / "gains.jsonl").read_text().splitlines()]
    for row in lines:  # as if boards of 3x3 taught all there is: so small a network learns nothing
        row["gain"] = 0.5 * row["config"]["3"]["data"]
        row["before"], row["after"] = 0.0, row["gain"]
    (out / "gains.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    settings = tmp_path / "teach.yaml"
    changes = {"steps": 120, "engineer_first": 120, "engineer_batch": 8, "learning_rate": 4e-3}
    settings.write_text(
        CONFIG.model_copy(
            update={
                "warm_start": CONFIG.warm_start.model_copy(update=changes),
            }
        ).to_yaml()
    )
    options = ["--config", str(settings), "--teach", str(out), "rounds.count=3"]
    options += [f"model.shape={SHIPPED_MODEL}"]  # its shape, and random weights
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main([*options, "--out", str(whole)]) == 0
    losses = [json.loads(row)["engineer_loss"] for row in (whole / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) == 120 and np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
    with interrupted_at_step(60):
        assert main([*options, "--out", str(parts)]) == 0
    assert len((parts / "metrics.jsonl").read_text().splitlines()) == 60
    assert main([*options, "--out", str(parts)]) == 0  # resumes
    assert (parts / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    a, b = (folder / "final/model.safetensors" for folder in (whole, parts))
    assert a.read_bytes() == b.read_bytes()
