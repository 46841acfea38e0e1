"""A run's bookkeeping: skipped updates, the best policy, the logs, the reference, stopping, and a validation."""

import json
import signal
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P
from shapes import shard_parameters

from engineer.engineers.base import Draw
from engineer.evidence import Evidence, KindEnvironment, TrainingEvidence
from jaxlake import text
from jaxlake.board_text import from_text
from jaxlake.generate import Dataset
from jaxlake.kinds import Kind
from jaxlake.levels import stack
from rl.config import Config, LearnSection, RunError, WriterSection
from rl.judge.answers import Answers
from rl.judge.validation import validate
from rl.learn.optimizer import init_state
from rl.learn.state import TrainState, make_reference, restore
from rl.model.sharding import make_mesh
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose
from rl.run.progress import Progress
from rl.run.recorder import Recorder
from rl.run.signals import Interrupted, Stop
from rl.run.tracking import Display


class OnePolicy:
    """Of a policy what saving and exporting need; its file says which parameters it got."""

    def __init__(self, dtype: str = "float32"):
        self.mesh = make_mesh(-1, 1)
        self.shape = SimpleNamespace(lora=None, dtype=jnp.dtype(dtype))

    def source(self, parameters: nnx.State) -> dict[str, str]:
        return {"tokenizer": "1a2b"}

    def save(self, folder: Path, parameters: nnx.State) -> None:
        folder.mkdir()
        (folder / "first").write_text(str(float(np.asarray(parameters["w"][...])[0, 0])))


def parameters(value: float) -> nnx.State:
    """A matrix and the weights of a norm."""
    made = {"w": jnp.full((16, 8), value), "norm": jnp.full((8,), value)}
    specs = {"w": P("fsdp", "tp"), "norm": P(None)}
    state = nnx.State({name: nnx.Param(x, spec=specs[name]) for name, x in made.items()})
    return shard_parameters(state, make_mesh(-1, 1))


def first_optimizer(policy: OnePolicy) -> optax.OptState:
    return init_state(optax.adam(1e-3), parameters(0.0), policy.mesh)


@pytest.fixture
def run(tmp_path):
    """After step 4 of round 1."""
    config = Config(student=WriterSection(learn=LearnSection(prompts=2, samples=2)))
    directory, policy = RunDirectory(tmp_path / "run", config), OnePolicy()
    directory.create()
    progress, source = Progress(stage="rounds", round=1, step=4), policy.source(parameters(1.0))
    state = TrainState(parameters(1.0), first_optimizer(policy), progress=progress, source=source)
    run = SimpleNamespace(policy=policy, state=state)
    run.save = lambda folder: policy.save(folder, run.state.parameters)
    run.recorder = Recorder(directory, Display(quiet=True), Stop(), run)
    yield run
    directory.close()


def saved(run: SimpleNamespace) -> TrainState:
    """What the last checkpoint of the run holds, as another process finds it."""
    directory, first = run.recorder.directory, first_optimizer(run.policy)
    directory.checkpoints.close()
    return restore(run.policy, parameters(0.0), lambda stage, trained: first, directory, run.recorder.display)


def test_the_best_policy_by_sampled_validation_is_kept_and_of_equals_the_earlier(run):
    best, exported = run.recorder.directory.path / "best", []
    for label, share in (("warm_start", 0.2), ("rounds/0", 0.5), ("rounds/1", 0.5), ("rounds/2", 0.3)):
        run.state.parameters = parameters(len(exported))
        run.recorder.keep_best(label, SimpleNamespace(sampled_valid=share, valid=3, n=10))
        exported.append((json.loads((best / "validation.json").read_text())["round"], (best / "first").read_text()))
    assert exported == [("warm_start", "0.0"), (0, "1.0"), (0, "1.0"), (0, "1.0")]
    assert run.state.progress.best == {"round": 0, "sampled_valid": 0.5}


def test_skipped_updates_in_a_row_stop_the_run(run):
    good, bad = {"update_skipped": 0.0}, {"update_skipped": 1.0}
    for metrics in (bad, good, bad, bad):  # not in a row
        run.recorder.note_update(metrics)
    assert run.state.progress.skipped == 2
    with pytest.raises(RunError, match="round 1, after step 4: 3 updates in a row were not finite"):
        run.recorder.note_update(bad)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_nothing_is_written_of_a_step_after_which_one_parameter_is_not_finite(run, value):
    norm = run.state.parameters["norm"]
    run.state.parameters["norm"] = norm.replace(norm[...].at[3].set(value))
    with pytest.raises(RunError, match="round 1, after step 4: the next step's parameters are not finite"):
        run.recorder.step_done({"phase": "round", "loss": 0.1}, {}, "", save_every=1)
    assert not (run.recorder.directory.path / "metrics.jsonl").exists()
    assert run.recorder.directory.checkpoints.steps == [] and run.state.progress.step == 4


def test_a_step_is_logged_saved_every_so_many_and_dropped_where_no_checkpoint_knows_it(run):
    directory, metrics = run.recorder.directory, {"phase": "round", "rate": 1.23456789e-6}
    for _ in range(3):
        run.recorder.step_done(dict(metrics), {"update": 2 / 3}, "", save_every=3)

    def logged(name: str) -> list[dict]:
        return [json.loads(line) for line in (directory.path / name).read_text().splitlines()]

    expected = metrics | {"round": 1, "rate": 1.23457e-6}
    assert logged("metrics.jsonl") == [expected | {"step": step} for step in (5, 6, 7)]
    assert [row["update"] for row in logged("timings.jsonl")] == [0.667] * 3
    directory.cut_logs(saved(run).progress)
    for name in ("metrics.jsonl", "timings.jsonl"):
        assert [row["step"] for row in logged(name)] == [5, 6]


@pytest.mark.parametrize(("numbers", "least"), [(Purpose, 0), (Draw, 2**16)])
def test_no_two_draws_share_a_number(numbers, least):
    assert len(set(numbers)) == len(numbers.__members__) and min(numbers) == least


def test_a_checkpoint_of_one_mesh_is_restored_on_another_bit_for_bit(run):
    w = jax.random.normal(jax.random.key(0), (16, 8))
    run.state.parameters["w"] = run.state.parameters["w"].replace(jax.device_put(w, run.state.parameters["w"].sharding))
    run.recorder.save()
    run.policy.mesh = make_mesh(2, 4)
    restored = saved(run).parameters["w"]
    assert restored.sharding.mesh.shape == {"fsdp": 2, "tp": 4}
    np.testing.assert_array_equal(np.asarray(restored[...]), np.asarray(w))


def test_the_reference_stays_while_the_policy_moves_and_has_the_compute_dtype(run):
    trained = parameters(1.0)
    reference = make_reference(trained, OnePolicy("bfloat16"))
    assert reference["w"].dtype == jnp.bfloat16 and reference["norm"].dtype == jnp.float32
    assert reference["w"].sharding == trained["w"].sharding
    same = make_reference(trained, run.policy)
    jax.jit(lambda x: jax.tree.map(lambda y: y + 1, x), donate_argnums=0)(trained)
    assert np.asarray(same["w"][...]).max() == 1.0  # no buffer shared with what was donated


def test_a_wish_to_stop_is_fulfilled_with_everything_saved(run):
    """Between two steps, and within long work that changes nothing."""
    run.recorder.check_stop()
    assert run.recorder.directory.checkpoints.steps == []
    with run.recorder.stop.listening(), pytest.raises(Interrupted), run.recorder.save_on_interrupt():
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("went on")
    with pytest.raises(Interrupted) as stop:
        run.recorder.check_stop()
    assert stop.value.number == signal.SIGTERM
    assert run.recorder.directory.checkpoints.steps == [1, 2] and saved(run).progress.step == 4


OPTIMAL, LATE, THROUGH = "0:(0,0)(0,1)(0,2)", "0:(0,0)(0,0)(0,1)(0,2)", "0:(0,0)(1,0)(1,1)(1,2)(0,2)"


class Said:
    """An answerer with its answers given: first the greedy ones, then the sampled ones."""

    first_lost = None

    def __init__(self, greedy: list[str], sampled: list[str]):
        self.says = {True: greedy, False: sampled}

    def prompt(self, board):
        return "Go"

    def answer(self, boards, samples, sampling, key, show, first=0):
        texts = self.says[sampling.temperature == 0]
        assert len(texts) == len(boards.size) * samples
        plans = text.parse_batch(texts, max_size=3, max_agents=1, max_steps=20)
        lengths = np.minimum([len(said) for said in texts], 30)
        return Answers(plans, lengths, lengths == 30, lambda chosen: [texts[i] for i in chosen])


def test_a_validation_writes_all_its_evidence_and_it_loads_alone(run):
    """Three boards of one agent with two steps to go, two of them with a hole below its way."""
    alone = Kind.of("3x1")
    counts = {"realised": 3, "candidates": 3, "known": 0, "solvable": 1.0, "hole_ratio": 0.1, "realised_waits": 0}
    boards = stack([from_text(board) for board in ("a.A\n...\n...", "a.A\n.#.\n...", "a.A\n.#.\n...")])
    kinds, report = np.array([alone] * 3, object), SimpleNamespace(kind=alone, **counts)
    solutions = SimpleNamespace(cost=np.full(3, 2), lower_bound=np.full(3, 2))
    says = Said([OPTIMAL, THROUGH, "no"], [OPTIMAL, LATE, LATE, "no", "no", "no"])
    student = SimpleNamespace(
        config=Config(validation={"instances": 3, "samples": 2, "kinds": (3,)}),
        validation=Dataset(boards, solutions, np.zeros(3, bool), kinds, (report,)),
        answerer=lambda: says,
    )
    environment = KindEnvironment(alone, 3, None, {"data": 1.0, "hole": 0.1, "wait": 0.0}, 2.0, 0.0, 1.0)
    training = TrainingEvidence((), (environment,))
    evidence = validate(student, run.recorder, "rounds/0", 2, training)
    file = run.recorder.directory.path / "rounds/0/evidence.json"
    assert Evidence.from_json(json.loads(file.read_text())) == evidence
    (row,) = evidence.by_kind
    assert (row.n, row.valid, row.optimal, row.truncated) == (3, 1, 1, 0)
    assert (row.sampled_valid, row.groups, row.all_valid, row.learnable, row.all_invalid) == (0.5, 3, 1, 1, 1)
    assert row.sampled_se == pytest.approx(0.5 / 3**0.5)
    assert row.answer_tokens == pytest.approx((17 + 27 + 2) / 3)
    assert [row.kind for row in evidence.environment] == [alone] and evidence.training == training
    assert row.kind == alone and {failure.kind for failure in evidence.trajectories} == {alone}
    shown = [(failure.check, failure.answer, failure.board.split()[:2]) for failure in evidence.trajectories]
    assert shown == [("parsable", "no", ["a.A", ".#."]), ("hole_free", THROUGH, ["a.A", ">>^"])]
