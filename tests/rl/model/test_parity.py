"""Logits and greedy tokens are the reference implementation's: against stored ones always, live where torch is."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import CONFIGS, LLAMA3, write_checkpoint
from flax import nnx
from safetensors.numpy import load_file

from rl.model import weights
from rl.model.decoder import DecoderConfig, abstract, token_positions
from rl.model.presets import read_config
from rl.model.sampler import Sampler, SamplingParams
from rl.model.sharding import for_rollout, make_mesh
from rl.model.tokenizer import Tokenizer

DATA = Path(__file__).parent / "data"
BASE = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}


def logits_of(folder, tokens, mask):
    """Our logits ``[B, T, V]`` of a checkpoint's folder."""
    graph, parameters = weights.load(folder, read_config(folder))

    @jax.jit
    def forward(parameters):
        model = nnx.merge(graph, parameters)
        return model.logits(model(tokens, token_positions(mask), mask))

    return np.asarray(forward(parameters))


def assert_close(ours, theirs):
    """To 1e-4 of each number, or of the spread of them all where one is close to zero."""
    spread = theirs.std()
    assert spread > 0.1  # not a comparison of zeros
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * spread)


@pytest.mark.parametrize("name", ["tied", "untied", *CONFIGS])
def test_logits_equal_the_stored_ones_of_the_reference_implementation(tmp_path, name):
    folder = DATA / name
    if name in CONFIGS:
        folder = tmp_path
        write_checkpoint(folder, CONFIGS[name])
    golden = np.load(DATA / "logits.npz")
    where = golden["mask"]
    assert_close(logits_of(folder, golden["tokens"], where)[where], golden[name][where])


def reference(folder, model_type="qwen3", **changes):
    """A random reference model in torch, saved in its format; norms are random too, where the fresh ones are one."""
    torch = pytest.importorskip("torch")
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(model_type, **BASE | changes, max_position_embeddings=1024)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(1 + 0.3 * noise if "norm" in name else noise * (1.5 * parameter.shape[-1] ** -0.5))
    model.save_pretrained(folder)
    return model


def their_logits(model, tokens, mask):
    import torch

    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    with torch.no_grad():
        return (
            model(
                torch.tensor(tokens),
                attention_mask=torch.tensor(mask.astype(int)),
                position_ids=torch.tensor(positions),
            )
            .logits.float()
            .numpy()
        )


def padded(length, left, right, rows=2):
    """Random tokens, the first row whole, the others with padding on both sides as asked."""
    tokens = np.random.default_rng(2).integers(0, BASE["vocab_size"], (rows, length)).astype(np.int32)
    column = np.arange(length)
    mask = np.stack([(column >= left * (i > 0)) & (column < length - right * (i > 0)) for i in range(rows)])
    return tokens, mask


CASES = {
    "one query head a key-value head": ({"num_key_value_heads": 4}, 33, 0, 0),
    "left padding": ({"num_key_value_heads": 2, "rope_theta": 5e6}, 64, 20, 0),
    "one key-value head, right padding": ({"num_key_value_heads": 1}, 64, 0, 31),
    "wide heads, untied": ({"head_dim": 32, "tie_word_embeddings": False}, 100, 7, 30),
    "narrow heads": ({"head_dim": 8, "rope_theta": 5e6}, 512, 100, 0),
    "Qwen2": ({"model_type": "qwen2"}, 512, 100, 0),
    "Llama": ({"model_type": "llama", "rope_theta": 1e4}, 512, 0, 200),
    "Llama 3": ({"model_type": "llama", "rope_theta": 1e4, "rope_scaling": LLAMA3}, 512, 100, 0),
    "Mistral": ({"model_type": "mistral", "sliding_window": None, "head_dim": 32}, 512, 100, 30),
}
"""Changes to `BASE`, the number of tokens, and those of them that are padding on the left and on the right."""


@pytest.mark.torch
@pytest.mark.heavy
@pytest.mark.parametrize("case", CASES)
def test_logits_equal_the_reference_implementations(tmp_path, case):
    changes, length, left, right = CASES[case]
    model = reference(tmp_path, **changes)
    tokens, mask = padded(length, left, right)
    assert_close(logits_of(tmp_path, tokens, mask)[mask], their_logits(model, tokens, mask)[mask])


@pytest.mark.torch
@pytest.mark.heavy
@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_goes_to_transformers_and_back_bit_for_bit(tmp_path, name):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    numbers = write_checkpoint(tmp_path / "first", CONFIGS[name])
    shape = read_config(tmp_path / "first")
    weights.save(tmp_path / "ours", shape, weights.load(tmp_path / "first", shape)[1])
    assert read_config(tmp_path / "ours") == shape
    ours, faults = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(faults.values())
    ours.save_pretrained(tmp_path / "theirs")
    assert read_config(tmp_path / "theirs") == shape
    weights.save(tmp_path / "again", shape, weights.load(tmp_path / "theirs", shape)[1])
    for folder in "ours", "theirs", "again":
        read = load_file(tmp_path / folder / "model.safetensors")
        assert read.keys() == numbers.keys()
        assert all(np.array_equal(read[key], numbers[key]) for key in numbers)

    tokens, mask = padded(40, 3, 9)
    first = AutoModelForCausalLM.from_pretrained(tmp_path / "first", dtype=torch.float32)
    tokens %= shape.vocab_size
    np.testing.assert_array_equal(their_logits(ours, tokens, mask), their_logits(first, tokens, mask))


@pytest.mark.torch
@pytest.mark.heavy
def test_a_saved_model_writes_the_same_greedy_tokens_in_transformers(tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = Tokenizer()
    shape = DecoderConfig(**BASE | {"vocab_size": len(tokenizer), "num_key_value_heads": 4})
    shapes = abstract(shape)[1]
    noise = np.random.default_rng(7)
    parameters = jax.tree.map(lambda x: jnp.array(noise.normal(size=x.shape) * 0.5, x.dtype), shapes)
    weights.save(tmp_path, shape, parameters, tokenizer)

    mesh = make_mesh(1, 1)
    graph, loaded = weights.load(tmp_path, read_config(tmp_path), mesh)
    own = Tokenizer(tmp_path)
    sampler = Sampler(graph, shape, mesh, 2, max_prompt_tokens=64, max_new_tokens=16, stop_ids=own.stop_ids)
    texts = ["hello", "Which way is shorter, (0,0)(0,1) or (0,0)(1,0)?"]
    prompts = [own.chat(text, thinking=False) for text in texts]
    rollout = sampler.generate(
        for_rollout(loaded, shape.dtype, mesh), prompts, jax.random.key(0), sampling=SamplingParams(temperature=0.0)
    )

    model, theirs = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert model.dtype == torch.float32
    assert model.generation_config.eos_token_id == list(own.stop_ids) == list(tokenizer.stop_ids)
    for text, prompt, tokens, mask in zip(texts, prompts, rollout.tokens, rollout.mask, strict=True):
        chat = [{"role": "user", "content": text}]
        assert prompt == theirs.apply_chat_template(
            chat, add_generation_prompt=True, enable_thinking=False, return_dict=False
        )
        whole = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=16)[0]
        expected = whole[len(prompt) :].tolist()
        assert tokens[mask].tolist() == expected
        assert len(set(expected)) > 4  # no fixed point
        assert own.decode(expected) == theirs.decode(expected, skip_special_tokens=True)
