"""Branches from a run's last state: what is written, what goes on after a kill, and what is refused."""

import json

import numpy as np
import pytest
from lab import LAB, whole

from engineer import RULES
from rl.branch import main
from rl.config import Config
from rl.evaluation.reading import read_lines
from rl.experiments.branches import NetworkTrainer, network_gain
from rl.experiments.designs import SEVERAL, draw_designs
from rl.experiments.gains import read_gains
from rl.run.keys import Purpose, make_key


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return whole(tmp_path_factory.mktemp("branch") / "run", Config(**LAB))


def rows(folder):
    return [json.loads(line) for line in (folder / "gains.jsonl").read_text().splitlines()]


def test_designs_are_the_same_for_a_seed_and_hold_one_of_each_kind():
    kinds = Config(**LAB).lake.kinds
    designs = draw_designs(kinds, 5, True, seed=3)
    assert [design.origin for design in designs] == ["random"] * 5 + ["kind:3", "kind:4"]
    assert designs == draw_designs(kinds, 5, True, seed=3) != draw_designs(kinds, 5, True, seed=4)
    assert designs[5].config.data == (1.0, 0.0) and designs[6].config.data == (0.0, 1.0)
    assert len({str(design.config.to_dict()) for design in designs}) == 7


@pytest.mark.heavy
def test_a_killed_command_goes_on_to_the_same_file_and_the_run_stays_as_it_is(run, tmp_path, monkeypatch):
    before = {path: path.read_bytes() for path in run.rglob("*.json*")}
    command = ["--run", str(run), "--designs", "2", "--kinds", "--repeats", "2", "--samples", "2", "--updates", "1"]
    monkeypatch.setattr("rl.experiments.branches.LANES", 4)
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    assert {path: path.read_bytes() for path in run.rglob("*.json*")} == before
    found = rows(tmp_path / "whole")
    assert [(row["design"], row["repeat"]) for row in found] == [(i, r) for i in range(4) for r in range(2)]
    for row in found:
        assert row["gain"] == pytest.approx(row["after"] - row["before"]) and row["updates"] == 1 and row["round"] == 3
        assert set(row["by_kind"]) == {"3", "4"} and row["before"] == row["by_kind"]["4"]["before"]

    class Killed(Exception):
        pass

    train, calls = NetworkTrainer.train, []

    def killed(trainer, designs):
        calls.append(None)
        if len(calls) > 1:
            raise Killed
        return train(trainer, designs)

    monkeypatch.setattr(NetworkTrainer, "train", killed)
    with pytest.raises(Killed):
        main([*command, "--out", str(tmp_path / "killed")])
    file = tmp_path / "killed/gains.jsonl"
    assert len(rows(tmp_path / "killed")) == 4
    file.write_text(file.read_text() + '{"version": 1, "sta')  # what a kill left of a line
    monkeypatch.setattr(NetworkTrainer, "train", train)
    assert main([*command, "--out", str(tmp_path / "killed")]) == 0
    assert rows(tmp_path / "killed") == found
    assert len(read_gains(tmp_path / "killed").states[0].designs) == 4


@pytest.mark.heavy
def test_states_are_trained_branched_from_and_kept_as_an_engineer_reads_them(tmp_path, capsys):
    file = tmp_path / "lab.yaml"
    file.write_text(Config(**LAB).to_yaml())
    command = ["--config", str(file), "--rules", "--designs", "0", "--repeats", "1", "--samples", "1"]
    out = ["--updates", "1", "--out", str(tmp_path / "out")]
    assert main([*command, "--states", "1", *out, "seed=5"]) == 0
    before = (tmp_path / "out/gains.jsonl").read_text()
    assert main([*command, "--states", "2", *out, "seed=5"]) == 0
    assert (tmp_path / "out/gains.jsonl").read_text().startswith(before)  # more states begin with the same
    path = tmp_path / "out/states.jsonl"
    states = read_lines(path, path.read_text().splitlines())
    found = rows(tmp_path / "out")
    assert [state.name for state in states] == list(dict.fromkeys(row["state"] for row in found)) and len(states) == 2
    for i, state in enumerate(states):
        history, key = state.history, make_key(5 + i, Purpose.BRANCH, len(state.history))
        designs = {row["origin"]: row["config"] for row in found if row["state"] == state.name}
        named = {name: config for origin, config in designs.items() for name in origin.split(SEVERAL)}
        assert named["uniform"] == RULES["uniform"](history[-1].evidence, history, key).to_dict()
        assert len({str(config) for config in designs.values()}) == len(designs) > 3  # no design twice
        assert state.history[-1].round in (0, 1)
    assert len(read_gains(tmp_path / "out").states) == 2


@pytest.mark.heavy
def test_a_file_that_is_damaged_or_of_other_branches_is_named(run, tmp_path, capsys):
    command = ["--run", str(run), "--designs", "2", "--repeats", "1", "--samples", "1", "--out", str(tmp_path)]
    assert main(command) == 0
    capsys.readouterr()
    assert main([*command, "--updates", "1"]) == 2
    error = capsys.readouterr().err
    assert "gains.jsonl, line 1: of other branches" in error and error.count("\n") == 1
    file = tmp_path / "gains.jsonl"
    file.write_text(file.read_text().replace('"gain"', '"gai"', 1))
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "gains.jsonl, line 1: damaged" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--designs", "0"], "--designs 0: must be at least 2"),
        (["--repeats", "0"], "--repeats 0: must be at least 1"),
        (["--updates", "0"], "--updates 0: must be at least 1"),
        ([], "holds no run (it has no config.yaml)"),
        (["--states", "2"], "one of --run, --states and --teach must be given"),
        (["seed=1"], "--run: --config and KEY=VALUE are for --states and --teach"),
    ],
)
def test_what_asks_for_nothing_is_refused(tmp_path, capsys, options, message):
    assert main(["--run", str(tmp_path / "none"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "none").exists()


def test_the_gain_of_a_branch_is_that_of_its_target_boards():
    before, after = np.array([0.0, 0.5, 1.0, 0.0]), np.array([0.5, 0.5, 1.0, 1.0])
    kinds = np.array(Config(**LAB).lake.kinds * 2, object)
    gain = network_gain(before, after, kinds, np.array([True, True, False, False]))
    assert gain.overall == pytest.approx((0.25, 0.5, np.std([0.5, 0.0], ddof=1) / 2**0.5))
    assert gain.by_kind[kinds[0]][:2] == (0.5, 0.75) and gain.by_kind[kinds[1]][:2] == (0.25, 0.75)
