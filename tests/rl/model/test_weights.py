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
from rl.model.tokenizer import Tokenizer

SHAPE = dataclasses.replace(MEDIUM, vocab_size=40, hidden_size=16, intermediate_size=32, rope_theta=5e6)
"""Few shapes of parameters, as each shape is a program that reads it."""
SHARDS = 7_000
"""Bytes of a file at most, so that the little model takes several."""


def random_parameters(shape, mesh=None):
    """Normal numbers, the norms' as well, without the seconds that compiling the real initialisation takes."""
    graph, shapes = abstract(shape, mesh)
    noise = np.random.default_rng(0)
    return graph, jax.tree.map(lambda x: jax.device_put(noise.normal(size=x.shape).astype(x.dtype), x.sharding), shapes)


def saved(folder, mesh=None, *, limit=5_000_000_000, dtype=jnp.float32, **changes):
    shape = dataclasses.replace(SHAPE, **changes)
    graph, parameters = random_parameters(shape, mesh)
    weights.save(folder, shape, parameters, dtype=dtype, max_shard_bytes=limit)
    return shape, graph, parameters


def assert_equal(parameters, others):
    assert jax.tree.structure(parameters) == jax.tree.structure(others)
    jax.tree.map(np.testing.assert_array_equal, parameters, others)


def error_of(folder, shape=SHAPE):
    with pytest.raises(ConfigError) as error:
        weights.load(folder, shape)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("limit", [SHARDS, 5_000_000_000])
@pytest.mark.parametrize("tied", [True, False])
def test_round_trip_is_bit_exact(tmp_path, tied, limit):
    shape, graph, parameters = saved(tmp_path, tie_word_embeddings=tied, limit=limit)
    assert read_config(tmp_path, jnp.float32) == shape
    graph_again, again = weights.load(tmp_path, shape)
    assert graph_again == graph
    assert_equal(parameters, again)


def test_round_trip_of_bfloat16_is_bit_exact(tmp_path):
    shape, *_ = saved(tmp_path / "a", dtype=jnp.bfloat16)
    parameters = weights.load(tmp_path / "a", shape)[1]
    assert {x.dtype.name for x in jax.tree.leaves(parameters)} == {"float32"}
    weights.save(tmp_path / "b", shape, parameters, dtype=jnp.bfloat16)
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert {x.dtype.name for x in ours.values()} == {"bfloat16"}
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    assert ours.keys() == theirs.keys()


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


def test_layers_go_into_files_in_their_order_below_the_limit_with_an_index(tmp_path):
    shape, _, parameters = saved(tmp_path, limit=SHARDS)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert [file.name for file in files] == [
        f"model-{i + 1:05d}-of-{len(files):05d}.safetensors" for i in range(len(files))
    ]
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4 * sum(x.size for x in jax.tree.leaves(parameters))
    holders = {name: file.name for file in files for name in load_file(file)}
    assert index["weight_map"] == holders
    assert all(sum(x.nbytes for x in load_file(file).values()) <= SHARDS for file in files)
    first = {name: holders[name] for name in holders if ".layers.0." in name}
    assert max(first.values()) <= min(name for tensor, name in holders.items() if ".layers.1." in tensor)
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize(  # prefixes of torch.compile, and of PyTorch's parallel modules
    ("prefix", "kind"), [("", np.float32), ("_orig_mod.", "bfloat16"), ("module.", np.float32)]
)
def test_the_head_of_a_tied_checkpoint_in_any_file_and_type_must_be_its_embedding(tmp_path, prefix, kind):
    """Twelve thousand rows; the last one differs by the least that the type can say, then no row."""
    shape, *_ = saved(tmp_path, vocab_size=12_000, dtype=jnp.bfloat16)
    parameters = weights.load(tmp_path, shape)[1]
    tensors = {prefix + name: x for name, x in load_file(tmp_path / "model.safetensors").items()}
    (tmp_path / "model.safetensors").unlink()
    save_file(tensors, tmp_path / "model-00001-of-00002.safetensors")
    embedding, name = tensors[f"{prefix}model.embed_tokens.weight"], f"{prefix}lm_head.weight"
    head = embedding.astype(kind)
    head[-1, -1] = np.nextafter(head[-1, -1], head.dtype.type(9))
    save_file({name: head}, tmp_path / "model-00002-of-00002.safetensors")
    assert error_of(tmp_path, shape).startswith(
        f"model.path = {tmp_path}: {name} must equal {prefix}model.embed_tokens.weight, as config.json has tie_word"
    )
    save_file({name: embedding.astype(kind)}, tmp_path / "model-00002-of-00002.safetensors")
    assert_equal(parameters, weights.load(tmp_path, shape)[1])
    save_file({name: embedding.astype(kind)[1:]}, tmp_path / "model-00002-of-00002.safetensors")
    assert f"{name} has shape (11999, 16), which must be (12000, 16)" in error_of(tmp_path, shape)


def test_buffers_that_are_computed_from_the_config_are_no_part_of_a_checkpoint_and_others_are_named(tmp_path):
    shape, _, parameters = saved(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    buffers = {f"model.layers.0.self_attn.rotary_emb.{name}": np.ones(8) for name in ("inv_freq", "cos_cached")}
    save_file(tensors | buffers, tmp_path / "model.safetensors")
    assert_equal(parameters, weights.load(tmp_path, shape)[1])
    save_file(tensors | {"score.weight": np.ones(8), "lm_head.bias": np.ones(8)}, tmp_path / "model.safetensors")
    assert error_of(tmp_path).endswith(": lm_head.bias is not of this model; score.weight is not of this model")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.mlp.down_proj.weight"])
def test_a_number_that_is_none_is_refused(tmp_path, name, value):
    saved(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors[name] = tensors[name].copy()
    tensors[name].flat[3] = value
    save_file(tensors, tmp_path / "model.safetensors")
    assert f"{name} must hold finite numbers, and has NaN or infinity; " in error_of(tmp_path)


def test_every_misfit_is_named_at_once(tmp_path):
    shape, *_ = saved(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.norm.weight"]
    tensors["model.layers.0.mlp.up_proj.weight"] = np.zeros((3, 5), np.float32)
    tensors["model.layers.1.mlp.up_proj.weight"] = np.zeros((32, 16), np.int8)
    tensors["model.layers.7.mlp.up_proj.weight"] = np.zeros((32, 16), np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    message = error_of(tmp_path)
    assert "model.norm.weight is missing" in message
    assert "model.layers.0.mlp.up_proj.weight has shape (3, 5), which must be (32, 16)" in message
    assert "model.layers.1.mlp.up_proj.weight is stored as I8, which must be one of F32, BF16, F16" in message
    assert "model.layers.7.mlp.up_proj.weight is not of this model" in message


def test_every_missing_superfluous_and_damaged_file_is_named_at_once_and_none_of_its_tensors(tmp_path):
    saved(tmp_path, limit=SHARDS)
    first, second, *_ = sorted(tmp_path.glob("*.safetensors"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-10])
    message = error_of(tmp_path)
    assert f"file {first.name} is missing" in message
    assert f"{second.name} is truncated or damaged" in message
    assert "model.layers." not in message
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    assert "cannot read model.safetensors.index.json" in error_of(tmp_path)


def test_what_the_index_does_not_name_is_not_read(tmp_path):
    """Beside Mistral-7B-v0.3's index lies consolidated.safetensors, the same numbers by other names."""
    shape, _, parameters = saved(tmp_path, limit=SHARDS)
    save_file({"tok_embeddings.weight": np.ones((2, 2))}, tmp_path / "consolidated.safetensors")
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "pytorch_model.bin").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert_equal(parameters, weights.load(weights.resolve(tmp_path), shape)[1])
    (tmp_path / "model-00001-of-00005.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ConfigError, match=": model-00001-of-00005.safetensors must be the files that git-lfs keeps"):
        weights.resolve(tmp_path)


def test_an_index_beside_a_model_in_one_file_must_be_its_own(tmp_path):
    """Without that name in the index, transformers would read the file and not the index."""
    shape, *_ = saved(tmp_path, limit=SHARDS)
    index = json.loads((tmp_path / weights.INDEX).read_text())
    other = saved(tmp_path / "other")[2]
    shutil.copy(tmp_path / "other/model.safetensors", tmp_path)
    assert "file model.safetensors is not in the index; transformers reads it" in error_of(tmp_path)
    index["weight_map"] = dict.fromkeys(index["weight_map"], "model.safetensors")
    (tmp_path / weights.INDEX).write_text(json.dumps(index))
    assert_equal(other, weights.load(tmp_path, shape)[1])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../other/model.safetensors", "'../other/model.safetensors'"),
        ("/etc/passwd", "'/etc/passwd'"),
        ("*.safetensors", "'*.safetensors'"),
        ("pytorch_model.bin", "'pytorch_model.bin'"),
        (1, "1"),
        (None, "nothing"),
    ],
)
def test_an_index_names_files_beside_it(tmp_path, name, said):
    saved(tmp_path / "other")
    shutil.copytree(tmp_path / "other", tmp_path / "model")
    where = {} if name is None else {"model.norm.weight": name}
    (tmp_path / "model" / weights.INDEX).write_text(json.dumps({"weight_map": where}))
    assert error_of(tmp_path / "model").endswith(f"{weights.INDEX} must name *.safetensors beside it, not {said}")


def test_without_an_index_a_missing_shard_and_a_tensor_in_two_files_are_named(tmp_path):
    saved(tmp_path, limit=SHARDS)
    (tmp_path / "model.safetensors.index.json").unlink()
    copied = load_file(tmp_path / "model-00003-of-00005.safetensors")
    save_file(copied, tmp_path / "model-copy.safetensors")
    twice = f"{next(iter(copied))} is in model-00003-of-00005.safetensors and in model-copy.safetensors"
    assert twice in error_of(tmp_path)
    (tmp_path / "model-copy.safetensors").unlink()
    (tmp_path / "model-00002-of-00005.safetensors").unlink()
    assert error_of(tmp_path) == f"model.path = {tmp_path}: file model-00002-of-00005.safetensors is missing"


def test_files_beside_a_whole_checkpoint_are_no_part_of_it(tmp_path):
    shape, _, parameters = saved(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "weights.safetensors")
    assert_equal(parameters, weights.load(tmp_path, shape)[1])  # under any name, if it is alone
    weights.save(tmp_path, shape, tripled := jax.tree.map(lambda x: 3 * x, parameters))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"no part of it")
    assert_equal(tripled, weights.load(tmp_path, shape)[1])


def test_pickled_weights_are_never_read(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    assert "pytorch_model.bin would have to be unpickled" in error_of(tmp_path)
    assert "must hold *.safetensors" in error_of(tmp_path / "nowhere")


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    shape, _, parameters = saved(tmp_path, limit=SHARDS)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    tripled = jax.tree.map(lambda x: 3 * x, parameters)
    synced = 0

    def fill_up(descriptor):
        nonlocal synced
        synced += 1
        if synced == 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fill_up)
    with pytest.raises(ConfigError, match="cannot write the checkpoint there \\(No space left on device\\)"):
        weights.save(tmp_path, shape, tripled, max_shard_bytes=SHARDS)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    monkeypatch.undo()
    weights.save(tmp_path, shape, tripled, Tokenizer())  # one file in place of five and their index
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    assert_equal(tripled, weights.load(tmp_path, shape)[1])


def test_a_crash_while_files_get_their_names_leaves_nothing_that_loads(tmp_path, monkeypatch):
    shape, _, parameters = saved(tmp_path / "model", limit=SHARDS)
    rename, crashes = Path.rename, []

    def crash_before(file, target):
        crashes.append(shutil.copytree(tmp_path / "model", tmp_path / f"crash {len(crashes)}"))
        return rename(file, target)

    monkeypatch.setattr(Path, "rename", crash_before)
    weights.save(tmp_path / "model", shape, parameters)
    assert len(crashes) == 2
    for folder in crashes:
        with pytest.raises(ConfigError, match="cannot read it"):
            read_config(folder)
    assert read_config(tmp_path / "model") == shape


def test_with_adapters_the_base_is_read_as_it_is_computed_with_and_the_adapters_are_new(tmp_path):
    saved(tmp_path, dtype=jnp.bfloat16)
    shape = dataclasses.replace(SHAPE, dtype=jnp.bfloat16, lora=LoRASection(rank=2, alpha=4.0, targets=("q_proj",)))
    graph, parameters = weights.load(tmp_path, shape, key=jax.random.key(5))
    assert graph == abstract(shape)[0]
    adapters, base = lora.split(parameters)
    adapter = adapters["layers"]["self_attn"]["q_proj"]
    assert np.all(adapter["lora_a"][...] != 0) and np.all(adapter["lora_b"][...] == 0)
    stored = load_file(tmp_path / "model.safetensors")["model.layers.1.mlp.up_proj.weight"]
    loaded = np.asarray(base["layers"]["mlp"]["up_proj"]["weight"][...][1])
    assert loaded.dtype == stored.dtype
    np.testing.assert_array_equal(loaded, stored.T)
    with pytest.raises(ValueError, match="adapters must be merged"):
        weights.save(tmp_path / "b", shape, parameters)


@pytest.mark.slow
def test_loading_and_saving_hold_one_tensor_on_the_host(tmp_path):
    """257 MB of bfloat16 in files of 40 MB; on the CPU the parameters themselves are memory of the process as well."""
    program = """
        import dataclasses, resource, sys, threading, tracemalloc
        import jax, jax.numpy as jnp
        from rl.model import weights
        from rl.model.decoder import abstract
        from rl.model.presets import PRESETS, read_config

        def zeros(shape):
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), abstract(shape)[1])

        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

        folder, action = sys.argv[1:]
        shape = dataclasses.replace(PRESETS["small"], vocab_size=30_000, num_hidden_layers=36)
        if action == "make":
            weights.save(folder, shape, zeros(shape), dtype=jnp.bfloat16, max_shard_bytes=40e6)
            sys.exit()
        # A small model first: compiled programs and imported modules are no part of what is measured.
        tiny = dataclasses.replace(shape, num_hidden_layers=2, vocab_size=300)
        weights.save(folder + "-tiny", tiny, zeros(tiny))
        weights.load(folder + "-tiny", tiny)
        before = peak()
        tracemalloc.start()
        parameters = weights.load(folder, read_config(folder))[1]
        size = sum(x.nbytes for x in jax.tree.leaves(parameters))
        print("load", size, peak() - before, tracemalloc.get_traced_memory()[1])
        before = peak()
        tracemalloc.reset_peak()
        weights.save(folder + "-again", shape, parameters, dtype=jnp.bfloat16, max_shard_bytes=40e6)
        print("save", size, peak() - before, tracemalloc.get_traced_memory()[1])
    """
    environment = os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "model")]
    subprocess.run([*command, "make"], check=True, env=environment)
    done = subprocess.run([*command, "measure"], check=True, env=environment, capture_output=True, text=True)
    largest = 30_000 * 512 * 4
    for line in done.stdout.splitlines():
        action, *numbers = line.split()
        size, grown, traced = map(int, numbers)
        assert traced < largest, line
        assert grown < (size if action == "load" else 0) + 40e6 + 2 * largest, line


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
