"""A comparison at a size that takes seconds: disturbed, whole, and beside a run that nothing disturbed."""

import contextlib
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from disturb import Killed, at_call, kill, stop
from lab import LAB, whole
from lab import content as files_of
from shapes import SMALL_JSON

from jaxlake import benchmark
from rl.compare import main
from rl.config import ConfigError, RunError
from rl.lab import comparison, held_out, workers
from rl.lab.runs import plan_runs
from rl.loop import rounds
from rl.run.checkpoint import Checkpoints
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students.writer import step as grpo_step

BASE = """
mesh: {fsdp: 1}
lake: {kinds: [3, 4]}
rounds: {count: 2, instances: 16}
validation: {instances: 16, samples: 2, holes: [0.2]}
engineer: {max_thinking_tokens: 4, max_answer_tokens: 128}
student:
  text: {max_prompt_tokens: 56, max_new_tokens: 32}
  sampler: {rows: 16}
  warm_start: {steps: 3, instances: 32, batch: 16, engineer_first: 0, engineer_every: 3, engineer_batch: 2,
               warmup_steps: 1,
               max_answer_tokens: 128, holes: [0.2]}
  learn: {prompts: 8, samples: 4, micro_batch: 8, learning_rate: 0.01}
  reward: {free_tokens: 12, limit_tokens: 32}
"""
COMPARISON = """
base: base.yaml
seeds: [0, 5]
baseline: fixed_random
engineers:
  fixed_random: {kind: fixed_random}
  by_itself: {kind: base, temperature: 1.0}
evaluation: {per_slice: 1, samples: 2, max_new_tokens: 32}
"""


def write(folder: Path, text: str = COMPARISON) -> Path:
    (folder / "shape.json").write_text(json.dumps(SMALL_JSON))
    (folder / "base.yaml").write_text(f"{BASE}  model: {{shape: {folder}/shape.json}}\n")
    (folder / "study.yaml").write_text(text)
    return folder / "study.yaml"


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """A comparison that was killed while a run was forked, and stopped within a round."""
    folder = tmp_path_factory.mktemp("comparison")
    command = ["--config", str(write(folder)), "--out", str(folder / "out")]
    with at_call(Checkpoints, "copy_latest", 2, kill), pytest.raises(Killed):
        main(command)
    assert (folder / "out/arms/fixed_random/seed0.partial").exists()
    assert not (folder / "out/arms/fixed_random/seed0").exists()
    with at_call(grpo_step, "make_updates", 2, stop):
        assert main(command) == 0
    assert not list((folder / "out/arms").glob("*/*/evaluation.json"))
    found = comparison.reopen(folder / "out")
    workers.run_all(plan_runs(found, folder / "out"), found.evaluation, Display(quiet=True), Stop())
    assert not list((folder / "out").rglob("*.partial"))
    return folder / "out"


def steps(run: Path, round: int) -> list[dict]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if (row["phase"], row["round"]) == ("round", round)]


def content(run: Path, name: str) -> dict:
    return json.loads((run / name).read_text())


@pytest.mark.heavy
def test_engineers_share_the_warm_start_and_round_0_and_train_equally_long_on_what_each_designs(out):
    start = (out / "start/metrics.jsonl").read_bytes()
    for seed in (0, 5):
        prefix = out / f"start/seed{seed}"
        shared = (prefix / "metrics.jsonl").read_bytes()
        assert shared.startswith(start) and len(steps(prefix, 0)) == 2
        runs = [out / "arms" / engineer / f"seed{seed}" for engineer in ("fixed_random", "by_itself")]
        for run in runs:
            assert (run / "metrics.jsonl").read_bytes().startswith(shared) and len(steps(run, 1)) == 2
            for name in ("warm_start/evidence.json", "rounds/0/proposal.json"):
                assert (run / name).read_bytes() == (prefix / name).read_bytes()
        assert content(runs[0], "rounds/1/config.json") != content(runs[1], "rounds/1/config.json")
        assert steps(runs[0], 1) != steps(runs[1], 1)
    assert steps(out / "start/seed0", 0) != steps(out / "start/seed5", 0)
    samples = [content(runs[1], f"{name}/samples.json") for name in ("warm_start", "rounds/0", "rounds/1")]
    asked = [[sample["instance"] for sample in validation] for validation in samples]
    assert asked[0] == asked[1] == asked[2]
    rows = [json.loads(line) for line in (runs[0] / "timings.jsonl").read_text().splitlines()]
    assert sum(row["compilations"] for row in rows if row["round"] == 1) == 0  # not again for a later seed


@pytest.mark.heavy
def test_the_same_command_again_does_what_is_left_and_reports(out, capsys):
    """What is left is an evaluation, as after a kill in its midst; its answers are there."""

    def changed() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in out.rglob("*.*") if "report" not in path.parts}

    before, lost = changed(), out / "arms/by_itself/seed5/evaluation.json"
    content = lost.read_bytes()
    lost.unlink()
    assert main(["--config", str(out.parent / "study.yaml"), "--out", str(out)]) == 0
    assert "by_itself" in (told := capsys.readouterr().out) and "Report: " in told
    assert lost.read_bytes() == content
    assert {path for path, when in changed().items() if before[path] != when} == {lost}


@pytest.mark.heavy
def test_what_another_process_is_at_is_left_to_it(out):
    found = comparison.reopen(out)
    plan = plan_runs(found, out)[-1]
    with contextlib.closing(RunDirectory(plan.path, plan.config)):
        assert not workers.attempt(plan, found.evaluation, Display(quiet=True), Stop())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("baseline: fixed_random", "baseline: nobody"),
            "baseline = nobody: must be one of the engineers: fixed_random",
        ),
        (("kind: base,", "kid: base,"), "engineers.by_itself: unknown key engineer.kid; the nearest is engineer.kind"),
        (("seeds:", "shared_rounds: 2\nseeds:"), "shared_rounds = 2: must be less than rounds.count = 2"),
        (
            ("seeds:", "shared_rounds: 2\noverrides: {rounds: {count: 3}}\nseeds:"),
            "engineers.by_itself: kind = base needs shared_rounds = 1, not 2, or overrides.engineer.kind = base",
        ),
    ],
)
def test_a_mistake_in_the_file_costs_one_line_and_writes_nothing(tmp_path, capsys, change, message):
    path = write(tmp_path, COMPARISON.replace(*change))
    assert main(["--config", str(path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def write_lab(folder: Path) -> Path:
    """Four rounds of a network; `ladder` designs the second and the third for all."""
    overrides = {name: LAB[name] for name in ("student", "lake", "validation")}
    overrides |= {"rounds": {"count": 4, "instances": 16}, "engineer": {"kind": "ladder"}}
    engineers = {name: {"kind": name} for name in ("targets_only", "ladder")}
    settings = {"base": "lab.yaml", "overrides": overrides, "seeds": [3], "engineers": engineers, "shared_rounds": 3}
    settings |= {"baseline": "ladder", "evaluation": {"per_slice": 1}}
    (folder / "lab.json").write_text(json.dumps(settings))  # which is YAML too
    return folder / "lab.json"


@pytest.mark.heavy
def test_engineers_go_on_from_shared_rounds_as_if_each_had_made_them_in_an_unbroken_run(tmp_path):
    """The shared rounds are killed in their second; their engineer's own run is the run that it makes alone."""
    path, out = write_lab(tmp_path), tmp_path / "out"
    command = ["--config", str(path), "--out", str(out)]
    with at_call(rounds, "validate", 3, kill), pytest.raises(Killed):
        main(command)
    assert not (out / "start/seed3/rounds/1/evidence.json").exists() and not (out / "arms").exists()
    assert main(command) == 0 and not (out / "start/config.yaml").exists()  # no warm start to share

    alone = files_of(whole(tmp_path / "alone", comparison.reopen(out).configure("ladder", 3)))
    ladder, targets, start = (files_of(out / f"{name}/seed3") for name in ("arms/ladder", "arms/targets_only", "start"))
    for name in alone:
        if not name.startswith("best"):
            assert ladder[name] == alone[name], name
        if name.startswith(("rounds/0", "rounds/1", "rounds/2")):
            assert targets[name] == start[name] == alone[name], name
    assert targets["final/network.npz"] != alone["final/network.npz"]
    designers = [json.loads(targets[f"rounds/{k}/proposal.json"])["engineer"] for k in range(4)]
    assert designers == ["random", "ladder", "ladder", "targets_only"]
    assert [row["data"] for row in json.loads(targets["rounds/3/config.json"]).values()] == [0, 1]
    directory = RunDirectory(out / "arms/targets_only/seed3", comparison.reopen(out).configure("targets_only", 3))
    with contextlib.closing(directory):
        history = directory.checkpoints.latest().progress.history
    for k, past in enumerate(history):
        assert past["round"] == k and past["evidence"] == json.loads(targets[f"rounds/{k}/evidence.json"])
    assert len(history) == 4


API = "{kind: api, template: null, api: {url: 'http://localhost:PORT/v1', model: m}}"
SERVED = COMPARISON.replace("evaluation:", f"  served: {API}\nevaluation:")


def begin(folder: Path, of: comparison.Resolved) -> Path:
    """Open a comparison's folder as if its warm start had begun."""
    comparison.open_folder(folder, of)
    (folder / "start").mkdir()
    (folder / "start/config.yaml").touch()
    return folder


@pytest.mark.parametrize(
    ("change", "overrides"),
    [
        (("evaluation:", "  plain: {}\nevaluation:"), []),
        (("  by_itself: {kind: base, temperature: 1.0}\n", ""), []),  # it stays: its runs may be there
        (("PORT", "8001"), ["overrides.student.sampler.rows=48"]),
    ],
)
def test_in_the_midst_of_a_comparison_engineers_are_added(tmp_path, change, overrides):
    out = begin(tmp_path / "out", comparison.load(write(tmp_path, SERVED.replace("PORT", "8000"))))
    changed = comparison.load(write(tmp_path, SERVED.replace(*change).replace("PORT", "8000")), overrides)
    opened = comparison.open_folder(out, changed)
    assert opened == comparison.reopen(out)
    assert opened.engineers.keys() >= {"fixed_random", "by_itself", "served", *changed.engineers}
    assert opened.engineers["served"] == changed.engineers["served"] and opened.run == changed.run


def write_without_base(folder: Path) -> Path:
    return write(folder, COMPARISON.replace("  by_itself: {kind: base, temperature: 1.0}\n", ""))


@pytest.mark.parametrize(
    ("make", "override", "message"),
    [
        (write, "engineers.fixed_random.kind=uniform", "fixed_random.kind was fixed_random, is now uniform"),
        (write, "overrides.student.learn.clip_low=0.1", "out: run.student.learn.clip_low was 0.2, is now 0.1"),
        (
            write_without_base,
            "engineers.by_itself={kind: base}",
            "the shared part.s engineer.kind was checkpoint, is now base",
        ),
        (write_lab, "shared_rounds=2", "shared_rounds was 3, is now 2"),
        (write_lab, "overrides.engineer.kind=adarft", "run.engineer.kind was ladder, is now adarft"),
    ],
)
def test_another_comparison_is_refused_once_the_first_has_begun(tmp_path, make, override, message):
    path = make(tmp_path)
    changed = comparison.load(path, [override])
    comparison.open_folder(tmp_path / "new", comparison.load(path))
    assert comparison.open_folder(tmp_path / "new", changed) == comparison.reopen(tmp_path / "new")
    begun = begin(tmp_path / "out", comparison.load(path))
    with pytest.raises(ConfigError, match=message):
        comparison.open_folder(begun, changed)
    assert comparison.reopen(begun) == comparison.load(path), "the folder is as it was"


def test_a_folder_without_a_comparison_is_not_taken_for_one(tmp_path):
    changed = comparison.load(write(tmp_path))
    with pytest.raises(ConfigError, match="not empty and no comparison"):
        comparison.open_folder(tmp_path, changed)
    with pytest.raises(ConfigError, match=r"no comparison \(it has no compare.yaml\); python -m rl.compare begins"):
        comparison.reopen(tmp_path)


def test_overrides_reach_the_run_and_the_comparison(tmp_path):
    found = comparison.load(write(tmp_path), ["seeds=[7]", "overrides.student.learn.learning_rate=1e-3"])
    assert found.configure("by_itself", 7).student.learn.learning_rate == 1e-3
    assert found.configure("by_itself", 7).engineer.kind == "base"
    # What all share keeps the first policy if any engineer asks for it.
    assert {plan.config.engineer.kind for plan in plan_runs(found, tmp_path)[:2]} == {"base"}
    found = comparison.load(write_without_base(tmp_path))
    assert {plan.config.engineer.kind for plan in plan_runs(found, tmp_path)[:2]} == {"checkpoint"}


def test_the_held_out_boards_are_those_of_both_suites_with_all_their_wait_subsets():
    every = held_out.held_out((3, 4, 5, 6), None)
    by_agents = {agents: int((every.instances.num_agents == agents).sum()) for agents in (2, 3, 4, 5)}
    assert by_agents == {2: 400, 3: 600, 4: 450, 5: 300}
    test = benchmark.load("test")
    for i in (0, 700, 1349):
        there = test.ids.index(every.ids[i])
        assert every.optimum[i] == test.optimum[there]
        np.testing.assert_array_equal(every.instances.starts[i], test.instances.starts[there])
    some = held_out.held_out((3, 4, 5, 6), 5)
    five_agents = some.instances.num_agents == 5
    assert five_agents.sum() == 2 * 3 * 5 and set(some.hole_ratio[five_agents]) == {0.1, 0.2, 0.3, 0.4, 0.5}


def test_workers_share_the_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert [workers.device(i, 2) for i in range(2)] == [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "3"}]
    assert workers.device(2, 4) == {"CUDA_VISIBLE_DEVICES": "2", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.450"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert workers.device(0, 2) == {}


@dataclasses.dataclass(frozen=True)
class Piece:
    """The part of a `RunPlan` that workers ask for."""

    path: Path
    is_done: bool


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -9 $$", "a worker failed: ended by SIGKILL"),
        ("exit 3", "a worker failed: it said nothing"),
        ("exit 0", "the workers were stopped; rerun the same command to resume"),
    ],
)
def test_workers_that_leave_something_undone_are_told_of_and_others_make_up_for_them(
    tmp_path, monkeypatch, script, message
):
    start = workers.subprocess.Popen
    monkeypatch.setattr(workers.subprocess, "Popen", lambda command, **options: start(["sh", "-c", script], **options))
    with pytest.raises(RunError, match=message):
        workers.run_workers(1, tmp_path, [Piece(tmp_path, False)], Display(quiet=True), Stop())
    workers.run_workers(1, tmp_path, [Piece(tmp_path, True)], Display(quiet=True), Stop())
