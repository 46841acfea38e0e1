"""Checkpoints in the real format: what is written is read back bit for bit, what does not fit is named."""

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pairs import run_pair
from safetensors.numpy import load_file, save_file
from shapes import MEDIUM

from rl.config import ConfigError, LoRASection
from rl.model import lora, weights
from rl.model.decoder import abstract
from rl.model.presets import read_config
from rl.model.sharding import make_mesh

SHAPE = dataclasses.replace(MEDIUM, vocab_size=40, hidden_size=16, intermediate_size=32, rope_theta=5e6)


def random_parameters(shape, mesh=None):
    """Normal numbers, the norms' as well, without the seconds that compiling the real initialisation takes."""
    graph, shapes = abstract(shape, mesh)
    noise = np.random.default_rng(0)
    return graph, jax.tree.map(lambda x: jax.device_put(noise.normal(size=x.shape).astype(x.dtype), x.sharding), shapes)


def saved(folder, mesh=None, *, dtype=jnp.float32, **changes):
    shape = dataclasses.replace(SHAPE, **changes)
    graph, parameters = random_parameters(shape, mesh)
    weights.save(folder, shape, parameters, dtype=dtype)
    return shape, graph, parameters


def split_into_files(folder, count=3):
    """Write a checkpoint's tensors into several files with an index, as publishers do; their names."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    index = {tensor: names[i % count] for i, tensor in enumerate(tensors)}
    for name in names:
        save_file({tensor: tensors[tensor] for tensor in tensors if index[tensor] == name}, folder / name)
    (folder / weights.INDEX).write_text(json.dumps({"weight_map": index}))
    return names


def assert_equal(parameters, others):
    assert jax.tree.structure(parameters) == jax.tree.structure(others)
    jax.tree.map(np.testing.assert_array_equal, parameters, others)


@pytest.mark.parametrize("sharded", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_round_trip_is_bit_exact(tmp_path, tied, sharded):
    shape, graph, parameters = saved(tmp_path, tie_word_embeddings=tied)
    if sharded:
        split_into_files(tmp_path)
        save_file({"tok_embeddings.weight": np.ones((2, 2))}, tmp_path / "consolidated.safetensors")  # as of Mistral-7B
    assert read_config(tmp_path) == shape
    graph_again, again = weights.load(tmp_path, shape)
    assert graph_again == graph
    assert_equal(parameters, again)


def test_round_trip_of_bfloat16_is_bit_exact(tmp_path):
    shape, *_ = saved(tmp_path / "a", dtype=jnp.bfloat16)
    parameters = weights.load(tmp_path / "a", shape)[1]
    assert {x.dtype.name for x in jax.tree.leaves(parameters)} == {"float32"}
    weights.save(tmp_path / "b", shape, parameters, dtype=jnp.bfloat16)
    assert {x.dtype.name for x in load_file(tmp_path / "a/model.safetensors").values()} == {"bfloat16"}
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


@pytest.mark.heavy
@pytest.mark.parametrize(("fsdp", "tp"), [(4, 2), (1, 8), (2, 1)])
def test_every_mesh_writes_the_same_bytes_and_reads_them_into_its_own_shards(tmp_path, fsdp, tp):
    mesh = make_mesh(fsdp, tp)
    shape, _, alone = saved(tmp_path / "alone", tie_word_embeddings=False)
    _, together = weights.load(tmp_path / "alone", shape, mesh)
    assert_equal(jax.device_get(alone), jax.device_get(together))
    expected = abstract(shape, mesh)[1]
    assert all(jax.tree.leaves(jax.tree.map(lambda x, y: x.sharding == y.sharding, together, expected)))
    weights.save(tmp_path / "together", shape, together)
    one, other = (tmp_path / name / "model.safetensors" for name in ("alone", "together"))
    assert one.read_bytes() == other.read_bytes()


def test_buffers_and_the_head_of_a_tied_model_are_no_part_of_a_checkpoint(tmp_path):
    """As in folders of transformers 4, and in Qwen3's tied 0.6B and 1.7B."""
    shape, _, parameters = saved(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    more = {f"model.layers.0.self_attn.rotary_emb.{name}": np.ones(8) for name in ("inv_freq", "cos_cached")}
    more["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    save_file(tensors | more, tmp_path / "model.safetensors")
    assert_equal(parameters, weights.load(tmp_path, shape)[1])


NORM, UP = "model.norm.weight", "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda tensors: tensors.pop(NORM), f"{NORM} has shape None, which must be (16,)"),
        (lambda tensors: tensors.update({UP: np.zeros((3, 5))}), f"{UP} has shape (3, 5), which must be (32, 16)"),
        (
            lambda tensors: tensors.update({"score.weight": np.ones(8)}),
            "score.weight has shape (8,), which must be None",
        ),
    ],
)
def test_a_tensor_that_is_not_of_the_model_is_named_before_any_is_loaded(tmp_path, change, complaint):
    shape, *_ = saved(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError) as error:
        weights.load(tmp_path, shape)
    assert str(error.value) == f"student.model.path = {tmp_path}: {complaint}"


def test_a_missing_or_damaged_file_is_named_and_pickles_are_not_read(tmp_path):
    shape, *_ = saved(tmp_path)
    first, second, _ = split_into_files(tmp_path)
    (tmp_path / second).write_bytes((tmp_path / second).read_bytes()[:-10])
    with pytest.raises(ConfigError, match=f"student.model.path = {tmp_path}: cannot read its safetensors"):
        weights.load(tmp_path, shape)
    (tmp_path / first).unlink()
    with pytest.raises(ConfigError, match=first):
        weights.load(tmp_path, shape)
    (pickled := tmp_path / "pickled").mkdir()
    (pickled / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        weights.load(pickled, shape)


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    shape, _, parameters = saved(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    tripled = jax.tree.map(lambda x: 3 * x, parameters)

    def fill_up(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fill_up)
    with pytest.raises(OSError, match="No space left on device"):
        weights.save(tmp_path, shape, tripled)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    monkeypatch.undo()
    weights.save(tmp_path, shape, tripled)
    assert_equal(tripled, weights.load(tmp_path, shape)[1])


def test_a_crash_while_files_get_their_names_leaves_nothing_that_loads(tmp_path, monkeypatch):
    shape, _, parameters = saved(tmp_path / "model")
    rename = Path.rename

    def crash_before(file, target):
        shutil.copytree(tmp_path / "model", tmp_path / "crash")
        return rename(file, target)

    monkeypatch.setattr(Path, "rename", crash_before)
    weights.save(tmp_path / "model", shape, parameters)
    with pytest.raises(ConfigError, match="crash: "):
        read_config(tmp_path / "crash")
    assert read_config(tmp_path / "model") == shape


def test_with_adapters_the_base_is_read_as_it_is_computed_with_and_the_adapters_are_new(tmp_path):
    saved(tmp_path, dtype=jnp.bfloat16)
    shape = dataclasses.replace(SHAPE, dtype=jnp.bfloat16, lora=LoRASection(rank=2, alpha=4.0))
    graph, parameters = weights.load(tmp_path, shape, key=jax.random.key(5))
    assert graph == abstract(shape)[0]
    adapters, base = lora.split(parameters)
    adapter = adapters["layers"]["self_attn"]["q_proj"]
    assert np.all(adapter["lora_a"][...] != 0) and np.all(adapter["lora_b"][...] == 0)
    stored = load_file(tmp_path / "model.safetensors")["model.layers.1.mlp.up_proj.weight"]
    loaded = np.asarray(base["layers"]["mlp"]["up_proj"]["weight"][...][1])
    assert loaded.dtype == stored.dtype
    np.testing.assert_array_equal(loaded, stored.T)


@pytest.mark.slow
def test_loading_holds_two_parameters_and_saving_one_tensor_on_the_host(tmp_path):
    program = """
        import dataclasses, sys, tracemalloc
        import jax, jax.numpy as jnp
        from rl.model import weights
        from rl.model.decoder import abstract
        from rl.model.presets import PRESETS, read_config

        folder = sys.argv[1]
        shape = dataclasses.replace(PRESETS["small"], vocab_size=30_000, num_hidden_layers=36)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), abstract(shape)[1])
        weights.save(folder, shape, zeros, dtype=jnp.bfloat16)
        assert read_config(folder) == shape  # which imports a lot
        tracemalloc.start()
        parameters = weights.load(folder, shape)[1]
        print(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()
        weights.save(folder + "-again", shape, parameters, dtype=jnp.bfloat16)
        print(tracemalloc.get_traced_memory()[1])
    """
    environment = os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "model")]
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    loading, saving = map(int, done.stdout.split())
    assert loading < 2.1 * 36 * 512 * 1536 * 4 and saving < 30_000 * 512 * 4, done.stdout


@pytest.mark.slow
def test_two_processes_read_their_parts_and_write_the_same_files(tmp_path):
    program = """
        import sys, jax, jax.numpy as jnp
        from rl import distributed
        from rl.model import weights
        from rl.model.presets import read_config
        from rl.model.sharding import make_mesh

        port, process, folder = sys.argv[1:]
        distributed.initialize(f"127.0.0.1:{port}", 2, int(process))
        for fsdp, tp in ((8, 1), (4, 2)):
            graph, parameters = weights.load(folder, read_config(folder), make_mesh(fsdp, tp))
            assert not parameters["layers"]["mlp"]["up_proj"]["weight"][...].is_fully_addressable
            weights.save(f"{folder}-{fsdp}-{tp}", read_config(folder), parameters, dtype=jnp.bfloat16)
    """
    saved(tmp_path / "model", tie_word_embeddings=False, dtype=jnp.bfloat16)
    run_pair(textwrap.dedent(program), str(tmp_path / "model"))
    files = {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}
    for mesh in ("8-1", "4-2"):
        assert {file.name: file.read_bytes() for file in (tmp_path / f"model-{mesh}").iterdir()} == files
