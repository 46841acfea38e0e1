"""Branches of a state: what is written, what a kill leaves, what is refused; and what a model learns from them."""

import json
import signal

import numpy as np
import pytest
from branches import branch, save
from lab import LAB, whole

from engineer import RULES, modules
from engineer.examples import draw_history
from jaxlake.config import LakeConfig
from rl.branch import main
from rl.command import shipped
from rl.config import Config, ConfigError
from rl.judge.reading_test import read_lines, write_state
from rl.lab import teaching
from rl.lab.branches import BranchTrainer, measure
from rl.lab.designs import SEVERAL, draw_designs
from rl.lab.gains import read_gains
from rl.model.policy import SHIPPED_MODEL
from rl.model.tokenizer import Tokenizer
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.students.player import OTHER_KINDS_WEIGHT

pytestmark = pytest.mark.usefixtures("quick_compilation")

KINDS = Config(**LAB).lake.kinds
GOOD, BAD = LakeConfig.uniform((3, 4), 0.25, 0.3), LakeConfig((3, 4), (0.0, 1.0), (0.5, 0.5), (1.0, 1.0))
TAUGHT = Config(
    lake={"kinds": (3, 4)},
    validation={"kinds": (4,)},
    warm_start={"steps": 120, "engineer_first": 120, "engineer_batch": 8, "learning_rate": 4e-3}
    | {"max_context_tokens": 60, "max_answer_tokens": 60, "contexts": ("F+R",)},
    engineer={"context": "F+R", "max_prompt_tokens": 60},
)


def rows(folder):
    return [json.loads(line) for line in (folder / "gains.jsonl").read_text().splitlines()]


def refused(arguments, capsys) -> str:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return whole(tmp_path_factory.mktemp("branch") / "run", Config(**LAB))


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """The folder of two states with the designs of all rules and two random ones, one after the other."""
    folder = tmp_path_factory.mktemp("states")
    (folder / "lab.yaml").write_text(Config(**LAB).to_yaml())
    command = ["--config", str(folder / "lab.yaml"), "--rules", "--designs", "2", "--repeats", "1", "--samples", "1"]
    command += ["--updates", "1", "--out", str(folder / "out"), "seed=5", "--states"]
    assert main([*command, "1"]) == 0
    before = (folder / "out/gains.jsonl").read_text()
    assert main([*command, "2"]) == 0
    assert (folder / "out/gains.jsonl").read_text().startswith(before)  # more states begin with the same
    return folder / "out"


def test_designs_are_the_same_for_a_seed_and_hold_one_of_each_kind():
    designs = draw_designs(KINDS, 5, True, seed=3)
    assert [design.origin for design in designs] == ["random"] * 5 + ["kind:3", "kind:4"]
    assert designs == draw_designs(KINDS, 5, True, seed=3) != draw_designs(KINDS, 5, True, seed=4)
    assert designs[5].config.data == (1.0, 0.0) and designs[6].config.data == (0.0, 1.0)
    assert len({str(design.config.to_dict()) for design in designs}) == 7


@pytest.mark.heavy
def test_a_killed_command_goes_on_to_the_same_file_and_the_run_stays_as_it_is(run, tmp_path, monkeypatch):
    before = {path: path.read_bytes() for path in run.rglob("*.json*")}
    command = ["--run", str(run), "--designs", "2", "--kinds", "--repeats", "2", "--samples", "2", "--updates", "1"]
    monkeypatch.setattr("rl.lab.branches.LANES", 4)
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    assert {path: path.read_bytes() for path in run.rglob("*.json*")} == before
    found = rows(tmp_path / "whole")
    assert [(row["design"], row["repeat"]) for row in found] == [(i, r) for i in range(4) for r in range(2)]
    for row in found:
        assert row["gain"] == pytest.approx(row["after"] - row["before"]) and row["updates"] == 1 and row["round"] == 3
        assert set(row["by_kind"]) == {"3", "4"} and row["before"] == row["by_kind"]["4"]["before"]

    class Killed(Exception):
        pass

    train, calls = BranchTrainer.train, []

    def killed(trainer, designs):
        calls.append(None)
        if len(calls) > 1:
            raise Killed
        return train(trainer, designs)

    monkeypatch.setattr(BranchTrainer, "train", killed)
    with pytest.raises(Killed):
        main([*command, "--out", str(tmp_path / "killed")])
    file = tmp_path / "killed/gains.jsonl"
    assert len(rows(tmp_path / "killed")) == 4
    file.write_text(file.read_text() + '{"version": 1, "sta')  # what a kill left of a line
    monkeypatch.setattr(BranchTrainer, "train", train)
    assert main([*command, "--out", str(tmp_path / "killed")]) == 0
    assert rows(tmp_path / "killed") == found
    assert len(read_gains(tmp_path / "killed").states[0].designs) == 4


@pytest.mark.heavy
def test_states_are_branched_from_and_kept_as_an_engineer_reads_them(states):
    kept = read_lines(states / "states.jsonl", (states / "states.jsonl").read_text().splitlines())
    assert [state.name for state in kept] == list(dict.fromkeys(row["state"] for row in rows(states)))
    for i, state in enumerate(kept):
        history, key = state.history, make_key(5 + i, Purpose.BRANCH, len(state.history))
        designs = {row["origin"]: row["config"] for row in rows(states) if row["state"] == state.name}
        named = {name: config for origin, config in designs.items() for name in origin.split(SEVERAL)}
        assert named["uniform"] == RULES["uniform"](history[-1].evidence, history, key).to_dict()
        assert len({str(config) for config in designs.values()}) == len(designs) > 3  # no design twice
        assert state.history[-1].round in (0, 1)
    assert len(read_gains(states).states) == len(kept) == 2


@pytest.mark.heavy
def test_a_file_that_is_damaged_or_of_other_branches_is_named(run, tmp_path, capsys):
    command = ["--run", str(run), "--designs", "2", "--repeats", "1", "--samples", "1", "--out", str(tmp_path)]
    assert main(command) == 0
    capsys.readouterr()
    assert "gains.jsonl, line 1: of other branches" in refused([*command, "--updates", "1"], capsys)
    file = tmp_path / "gains.jsonl"
    file.write_text(file.read_text().replace('"state"', '"sta', 1))
    assert "gains.jsonl, line 1: Invalid JSON" in refused(command, capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--run", "none", "--designs", "0"], "--designs 0: must be at least 2"),
        (["--run", "none"], "holds no run (it has no config.yaml)"),
        (["--run", "none", "seed=1"], "--run: --config and KEY=VALUE are for --states and --teach"),
        (["--states", "2", "--config", str(shipped("tiny.yaml"))], "student.kind = language: branches are of players"),
        (
            ["--teach", "none", "--config", str(shipped("turns.yaml"))],
            "student.kind = player is taught no designs",
        ),
    ],
)
def test_what_asks_for_nothing_is_refused(tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(options, capsys)
    assert not any(tmp_path.iterdir())


def test_the_gain_of_a_branch_is_that_of_its_target_boards():
    before, after = np.array([0.0, 0.5, 1.0, 0.0]), np.array([0.5, 0.5, 1.0, 1.0])
    kinds = np.array(KINDS * 2, object)
    gain = measure(before, after, kinds, np.array([True, True, False, False]))
    assert (gain.before, gain.after, gain.gain) == (0.25, 0.5, 0.25)
    assert gain.gain_se == pytest.approx(np.std([0.5, 0.0], ddof=1) / 2**0.5)
    assert [(row.before, row.after) for row in gain.by_kind.values()] == [(0.5, 0.75), (0.25, 0.75)]


def branches(folder, kinds=(3, 4)):
    """A folder with one state, in whose branches a good and a bad design gained on the target 4 and on 3."""
    gains = [(0, GOOD, 0, 0.1, 0.3), (0, GOOD, 1, 0.2, 0.1), (1, BAD, 0, 0.0, 0.0), (1, BAD, 1, 0.0, 0.2)]
    lines = []
    for design, config, repeat, target, other in gains:
        by_kind = {kind: {"before": 0.2, "after": 0.2 + gain} for kind, gain in (("3", other), ("4", target))}
        lines.append(branch(design, repeat, target, state="r/000 round 1", config=config.to_dict(), by_kind=by_kind))
    save(folder, lines)
    of = LakeConfig.uniform(kinds, 0, 0).kinds
    history = draw_history(np.random.default_rng(0), of, 2, modules("F+R"), of[1:])
    (folder / "states.jsonl").write_text(json.dumps(write_state("r/000 round 1", history)) + "\n")
    return folder


def test_a_score_is_the_gain_on_the_target_and_a_tenth_of_that_elsewhere(tmp_path):
    (state,) = teaching.read_states(branches(tmp_path / "b"), TAUGHT.lake.kinds)
    assert state.scores == pytest.approx([0.15 + OTHER_KINDS_WEIGHT * 0.2, OTHER_KINDS_WEIGHT * 0.1])
    assert state.designs == (GOOD, BAD)
    context = teaching._context(Tokenizer(), TAUGHT, state.history)
    assert context.splitlines()[1].startswith("4 ")  # 3 was trained on
    assert teaching._thought(TAUGHT, state.history).startswith("Weakest:4 ")


def test_states_of_other_kinds_and_damaged_files_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"states.jsonl, line 1: has other kinds than lake.kinds"):
        teaching.read_states(branches(tmp_path / "b", kinds=(5, 6)), TAUGHT.lake.kinds)
    (tmp_path / "b/states.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"states.jsonl, line 1: damaged"):
        teaching.read_states(tmp_path / "b", TAUGHT.lake.kinds)


def test_of_drawn_tables_the_thought_alone_counts():
    tokenizer = Tokenizer()
    contexts, taught, counts = teaching.draw_thoughts(tokenizer, TAUGHT, np.random.default_rng(0), 3)
    for tokens, count in zip(taught, counts, strict=True):
        said = tokenizer.decode(tokens[:count])
        assert said.startswith("<think>\nWeakest:") and said.rstrip().endswith("</think>")
        assert tokenizer.decode(tokens[count:]).startswith("{")


@pytest.mark.heavy
def test_an_engineer_comes_to_write_what_gained_most_and_a_stopped_command_ends_alike(states, tmp_path, monkeypatch):
    lines = rows(states)
    for row in lines:  # as if boards of 3x3 taught all there is: so small a network learns nothing
        row["gain"] = 0.5 * row["config"]["3"]["data"]
        row["before"], row["after"] = 0.0, row["gain"]
    save(tmp_path / "gains", lines)
    (tmp_path / "gains/states.jsonl").write_bytes((states / "states.jsonl").read_bytes())
    (tmp_path / "teach.yaml").write_text(TAUGHT.to_yaml())
    # The shipped model's shape, and random weights.
    command = ["--config", str(tmp_path / "teach.yaml"), "--teach", str(tmp_path / "gains"), "rounds.count=3"]
    command += [f"model.shape={SHIPPED_MODEL}", "--out"]
    assert main([*command, str(tmp_path / "whole")]) == 0
    log = (tmp_path / "whole/metrics.jsonl").read_text()
    losses = [json.loads(row)["engineer_loss"] for row in log.splitlines()]
    assert len(losses) == 120 and np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])

    def stopping(recorder, *arguments, done=Recorder.step_done):
        if recorder.progress.step == 59:
            signal.raise_signal(signal.SIGTERM)
        done(recorder, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "step_done", stopping)
        assert main([*command, str(tmp_path / "parts")]) == 0
    assert len((tmp_path / "parts/metrics.jsonl").read_text().splitlines()) == 60
    assert main([*command, str(tmp_path / "parts")]) == 0  # resumes
    assert (tmp_path / "parts/metrics.jsonl").read_text() == log
    a, b = (tmp_path / folder / "final/model.safetensors" for folder in ("whole", "parts"))
    assert a.read_bytes() == b.read_bytes()
