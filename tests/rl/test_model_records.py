"""A run knows its model again: the base of adapters, the tokenizer, a revision of the hub; what else changes may."""

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from huggingface_hub.utils import filter_repo_objects
from safetensors.numpy import load_file, save_file
from shapes import SMALL_JSON

from rl.config import Config, ConfigError, LoRASection
from rl.learn.state import TrainState, restore
from rl.model import lora, weights
from rl.model.decoder import create
from rl.model.policy import Policy, pin
from rl.model.presets import read_config
from rl.model.tokenizer import Tokenizer
from rl.run.checkpoint import Checkpoints
from rl.run.progress import Progress
from rl.run.tracking import Display

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
        (change_one_number, 2, r"base was [0-9a-f]{64}, is now [0-9a-f]{64}; student.model must be "),
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


def test_of_a_repository_only_what_is_read_is_downloaded(tmp_path, monkeypatch):
    needed = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
    needed += ["model.safetensors.index.json", "model-00001-of-00002.safetensors"]
    rest = ["README.md", "params.json", "tekken.json", "consolidated.safetensors", "original/consolidated.00.pth"]
    rest += ["original/config.json", "onnx/model.safetensors", "pytorch_model.bin", "adapter_model.safetensors"]

    def download(name, revision, allow_patterns, local_files_only):
        assert (name, revision) == ("org/name", "v1.0")
        assert list(filter_repo_objects([*needed, *rest], allow_patterns=allow_patterns)) == needed
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert weights.resolve("org/name@v1.0") == tmp_path


@pytest.mark.parametrize("path", ["Qwen/Qwen3-not-here", "qwen3-4b", "Qwen/..", "/no/such/folder"])
def test_what_is_neither_a_folder_nor_in_the_cache_is_one_line(hub, path):
    with pytest.raises(ConfigError, match=f"^student.model.path = {path}: no such folder, and not had from the hub.*$"):
        weights.resolve(path)


def test_adapters_are_loaded_as_they_were_trained_and_on_no_other_base_or_tokenizer(base, tmp_path):
    """Both halves are drawn, as after some training; the base is in bfloat16, to which a merged model is rounded."""
    model = {"path": str(base), "shape": None, "dtype": "bfloat16", "lora": {"rank": 2, "alpha": 4.0}}
    config = Config(student={"model": model}, mesh={"fsdp": 1})
    policy, parameters = Policy.create(config.student, config.mesh, KEY)
    adapters, frozen = lora.split(parameters)
    rng = np.random.default_rng(0)
    adapters = jax.tree.map(lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype), adapters)
    policy.save(tmp_path / "final", parameters := nnx.merge_state(adapters, frozen))
    again, loaded = Policy.load(config.student, config.mesh, tmp_path / "final", KEY)
    assert again.graph == policy.graph
    jax.tree.map(np.testing.assert_array_equal, loaded, parameters)

    assert policy.source(parameters).keys() >= {"tokenizer", "rope_theta", "base"}
    grown = dataclasses.replace(policy, tokenizer=policy.tokenizer.with_tokens(["a phrase"]))
    scaled = dataclasses.replace(policy, shape=dataclasses.replace(policy.shape, lora=LoRASection(rank=2, alpha=8.0)))
    for other, complaint in (grown, "tokenizer was "), (scaled, "lora was rank=2 alpha=4.0, is now rank=2 alpha=8.0"):
        with pytest.raises(ConfigError, match=complaint):
            lora.load(tmp_path / "final/adapters", parameters, other.source(parameters))
    file = tmp_path / "final/adapters/adapter_model.safetensors"
    ours = file.read_bytes()
    save_file(load_file(file), file, {"format": "pt"})  # as PEFT writes it
    with pytest.raises(ConfigError, match=r"final/adapters: tokenizer was null, is now \w{64}; student.model must be"):
        Policy.load(config.student, config.mesh, tmp_path / "final", KEY)
    file.write_bytes(ours)
    shutil.rmtree(base)
    write_model(base, 2)
    with pytest.raises(ConfigError, match=r"final/adapters: base was \w{64}, is now \w{64}; "):
        Policy.load(config.student, config.mesh, tmp_path / "final", KEY)
