"""A run knows its model again: the base of adapters, the tokenizer, a revision of the hub; what else changes may."""

import json
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file
from shapes import SMALL_JSON

from rl.config import Config, ConfigError
from rl.learn.state import TrainState, restore
from rl.model import lora, weights
from rl.model.decoder import create
from rl.model.policy import Policy, pin
from rl.model.presets import read_config
from rl.model.tokenizer import Tokenizer
from rl.run.checkpoint import Checkpoints
from rl.run.progress import Progress
from rl.run.tracking import Display

pytestmark = pytest.mark.usefixtures("quick_compilation")

KEY = jax.random.key(3)


def write_model(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(SMALL_JSON))
    shape = read_config(folder)
    weights.save(folder, shape, create(shape, jax.random.key(seed))[1], Tokenizer())


@pytest.fixture
def base(tmp_path):
    write_model(tmp_path / "base", 1)
    return tmp_path / "base"


def configuration(path, rank: int = 2) -> Config:
    model = {"path": str(path), "shape": None, "lora": {"rank": rank}}
    return Config(student={"model": model}, mesh={"fsdp": 1})


def change_one_number(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name][3, 5] = np.nextafter(tensors[name][3, 5], np.float32(9))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def change_rope(folder: Path) -> None:
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"rope_theta": 500.0}))


def change_template(folder: Path) -> None:
    raw = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(raw | {"added": 1}))


def saved(folder: Path, config: Config) -> Checkpoints:
    """A checkpoint at the beginning of a run's rounds."""
    policy, parameters = Policy.create(config.student, config.mesh, KEY)
    optimizer_state = optax.sgd(1.0).init(lora.split(parameters)[0])
    state = TrainState(parameters, optimizer_state, progress=Progress(stage="rounds"), source=policy.source(parameters))
    checkpoints = Checkpoints(folder / "checkpoints", 2)
    checkpoints.save(state.snapshot())
    return checkpoints


def resumed(checkpoints: Checkpoints, config: Config) -> TrainState:
    policy, parameters = Policy.create(pin(config.student, checkpoints.latest().source), config.mesh, KEY)
    optimizer_state = optax.sgd(1.0).init(lora.split(parameters)[0])
    directory = SimpleNamespace(config=config, checkpoints=checkpoints)
    return restore(policy, parameters, lambda stage, trained: optimizer_state, directory, Display(quiet=True))


@pytest.mark.parametrize(
    ("change", "rank", "complaint"),
    [
        (change_one_number, 2, r"base was [0-9a-f]{64}, is now [0-9a-f]{64}; student.model.path must be "),
        (change_one_number, 0, None),  # the checkpoint holds all parameters
        (change_rope, 2, r"rope_theta was 10000.0, is now 500.0; "),
        (change_rope, 0, r"rope_theta was 10000.0, is now 500.0; "),
        (change_template, 0, "tokenizer was"),
    ],
)
def test_a_run_is_resumed_with_its_own_model_alone(base, change, rank, complaint):
    config = configuration(base, rank)
    checkpoints = saved(base.parent / "run", config)
    change(base)
    if complaint is None:
        resumed(checkpoints, config)
        return
    with pytest.raises(ConfigError, match=complaint) as error:
        resumed(checkpoints, config)
    assert str(error.value).startswith(f"{checkpoints.folder}: ") and "\n" not in str(error.value)


COMMITS = ("0123456789abcdef0123456789abcdef01234567", "76543210fedcba9876543210fedcba9876543210")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache as the hub's client lays it out, with two commits of org/name: v1 and main are the first."""
    repository = tmp_path / "models--org--name"
    for seed, commit in enumerate(COMMITS):
        write_model(repository / "snapshots" / commit, seed)
    (repository / "refs").mkdir()
    for name in ("v1", "main"):
        (repository / "refs" / name).write_text(COMMITS[0])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return repository


def embedding(parameters: nnx.State) -> np.ndarray:
    return np.asarray(parameters["embed_tokens"]["weight"][...])


@pytest.mark.parametrize("rank", [0, 2])
def test_a_resumed_run_takes_the_revision_that_it_began_with(hub, tmp_path, rank):
    config = configuration("org/name", rank)
    checkpoints = saved(tmp_path / "run", config)
    policy, first = Policy.create(config.student, config.mesh, KEY)
    policy.save(tmp_path / "final", first)
    (hub / "refs" / "main").write_text(COMMITS[1])
    assert np.any(embedding(Policy.create(config.student, config.mesh, KEY)[1]) != embedding(first))
    np.testing.assert_array_equal(embedding(resumed(checkpoints, config).parameters), embedding(first))
    np.testing.assert_array_equal(
        embedding(Policy.load(config.student, config.mesh, tmp_path / "final", KEY)[1]), embedding(first)
    )
    if rank:
        adapters = json.loads((tmp_path / "final/adapters/adapter_config.json").read_text())
        assert (adapters["base_model_name_or_path"], adapters["revision"]) == ("org/name", COMMITS[0])


@pytest.mark.parametrize("revision", ["v1", COMMITS[1]])
def test_a_hub_id_may_name_a_tag_or_a_commit(hub, revision):
    config = configuration(f"org/name@{revision}")
    policy = Policy.create(config.student, config.mesh, KEY)[0]
    assert policy.revision == {"revision": COMMITS[revision != "v1"]}
