"""Folders of GGUF files: small files written here, beside arithmetic by hand and `transformers`; what is refused."""

import functools
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from rl.model.gguf import convert, main

gguf = pytest.importorskip("gguf", reason="GGUF needs pip install '.[gguf]'")
T = gguf.GGUFValueType

WIDTH, HIDDEN, LAYERS, HEADS, GROUPS, DIM = 64, 96, 2, 4, 2, 16
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "Ġ the", "Ġ Ġ", "1 2"]
TOKENS = [*SPECIAL, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
KEYS = {
    "llama.block_count": (LAYERS, T.UINT32),
    "llama.context_length": (128, T.UINT32),
    "llama.embedding_length": (WIDTH, T.UINT32),
    "llama.feed_forward_length": (HIDDEN, T.UINT32),
    "llama.attention.head_count": (HEADS, T.UINT32),
    "llama.attention.head_count_kv": (GROUPS, T.UINT32),
    "llama.rope.freq_base": (1e5, T.FLOAT32),
    "llama.rope.dimension_count": (DIM, T.UINT32),
    "llama.attention.layer_norm_rms_epsilon": (1e-5, T.FLOAT32),
    "tokenizer.ggml.model": ("gpt2", T.STRING),
    "tokenizer.ggml.pre": ("smollm", T.STRING),
    "tokenizer.ggml.tokens": (TOKENS, T.ARRAY),
    "tokenizer.ggml.token_type": ([3] * 3 + [1] * (len(TOKENS) - 3), T.ARRAY),
    "tokenizer.ggml.merges": (MERGES, T.ARRAY),
    "tokenizer.ggml.bos_token_id": (1, T.UINT32),
    "tokenizer.ggml.eos_token_id": (2, T.UINT32),
    "tokenizer.ggml.padding_token_id": (0, T.UINT32),
    "tokenizer.chat_template": (TEMPLATE, T.STRING),
}
THEIRS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def random_tensors(tied: bool = True) -> dict[str, np.ndarray]:
    """Tensors of a file, random; of queries and keys as llama.cpp rotates them."""
    rng = np.random.default_rng(0)
    shapes = {"token_embd": (len(TOKENS), WIDTH), "output_norm": (WIDTH,)}
    shapes |= {} if tied else {"output": (len(TOKENS), WIDTH)}
    inner = [(WIDTH,), (HEADS * DIM, WIDTH), (GROUPS * DIM, WIDTH), (GROUPS * DIM, WIDTH), (WIDTH, HEADS * DIM)]
    inner += [(WIDTH,), (HIDDEN, WIDTH), (HIDDEN, WIDTH), (WIDTH, HIDDEN)]
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in zip(THEIRS, inner, strict=True)}
    draw = {name: rng.normal(size=shape) / 8 + (len(shape) == 1) for name, shape in shapes.items()}
    return {f"{name}.weight": values.astype(np.float32) for name, values in draw.items()}


def write(path, keys=None, tensors=None, kind=None, architecture="llama"):
    """Write a file; `keys` replace those above, or remove them with None."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, entry in (KEYS | (keys or {})).items():
        if entry and entry[1] == T.ARRAY:
            writer.add_array(key, entry[0])
        elif entry:
            writer.add_key_value(key, *entry)
    for name, values in (random_tensors() if tensors is None else tensors).items():
        if kind and values.ndim == 2:
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def hugging_face(tensors):
    """The same by the names and in the order of a folder, row by row."""
    found = {}
    for name, values in tensors.items():
        _, _, part = name.removesuffix(".weight").rpartition(".")
        if part in ("attn_q", "attn_k"):
            rows = np.empty_like(values)
            for row in range(len(rows)):
                head, place = divmod(row, DIM)
                rows[row] = values[head * DIM + (2 * place if place < DIM // 2 else 2 * (place - DIM // 2) + 1)]
            values = rows
        whole = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
        theirs = whole.get(part) or f"model.layers.{name.split('.')[1]}.{THEIRS[part]}"
        found[f"{theirs}.weight"] = values
    return found


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_has_the_numbers_of_the_file_in_hugging_faces_order(tmp_path, tied):
    tensors = random_tensors(tied)
    line = convert(write(tmp_path / "a.gguf", tensors=tensors), tmp_path / "folder")
    assert line == f"{tmp_path}/folder: 0.1 M parameters in float32, from F32"
    found, wanted = load_file(tmp_path / "folder/model.safetensors"), hugging_face(tensors)
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, name)
    config = json.loads((tmp_path / "folder/config.json").read_text())
    assert (config["rms_norm_eps"], config["rope_theta"], config["head_dim"]) == (1e-5, 1e5, DIM)
    assert config["tie_word_embeddings"] is tied and config["eos_token_id"] == 2
    assert (tmp_path / "folder/model.safetensors").stat().st_mode == (tmp_path / "folder/config.json").stat().st_mode


def test_quantised_numbers_are_what_their_blocks_say(tmp_path):
    """Of 32 numbers each: scale, lowest, and four bits a number, the first 16 in the lower halves of the bytes."""
    convert(write(tmp_path / "a.gguf", kind=gguf.GGMLQuantizationType.Q4_1), tmp_path / "folder")
    found = load_file(tmp_path / "folder/model.safetensors")["model.layers.1.mlp.down_proj.weight"]
    values = random_tensors()["blk.1.ffn_down.weight"]
    blocks = gguf.quantize(values, gguf.GGMLQuantizationType.Q4_1).reshape(-1, 20)
    for block, numbers in zip(blocks, found.reshape(-1, 32), strict=True):
        scale, lowest = block[:4].view(np.float16).astype(np.float32)
        nibbles = [byte & 15 for byte in block[4:]] + [byte >> 4 for byte in block[4:]]
        np.testing.assert_array_equal(numbers, [np.float32(scale * nibble) + lowest for nibble in nibbles])
    assert 0 < np.abs(found - values).max() < 0.1


@pytest.mark.heavy  # PyTorch and its model classes take seconds to be imported
@pytest.mark.torch
def test_transformers_computes_what_the_file_says(tmp_path):
    """Its model of the folder beside its model of the same numbers: names, order, shape and constants are right."""
    torch = pytest.importorskip("torch", reason="PyTorch needs pip install --group reference")
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    convert(write(tmp_path / "a.gguf", tensors=random_tensors(tied=False)), tmp_path / "folder")
    sizes = dict(vocab_size=len(TOKENS), hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS)
    sizes |= dict(num_attention_heads=HEADS, num_key_value_heads=GROUPS, rms_norm_eps=1e-5)
    reference = LlamaForCausalLM(LlamaConfig(**sizes, rope_theta=1e5)).eval()
    state = {name: torch.tensor(values) for name, values in hugging_face(random_tensors(tied=False)).items()}
    assert reference.load_state_dict(state, strict=True).missing_keys == []
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "folder", dtype=torch.float32)
    ids = torch.arange(100)[None]
    with torch.no_grad():
        assert torch.equal(found(ids).logits, reference(ids).logits)


def test_the_tokenizer_divides_digits_and_joins_the_rest(tmp_path):
    """By hand: 12 stays two digits although a merge joins them; a blank goes with the next word, not with a digit."""
    convert(write(tmp_path / "a.gguf"), tmp_path / "folder")
    tokenizer = Tokenizer.from_file(str(tmp_path / "folder/tokenizer.json"))
    pieces = tokenizer.encode("the  the 12<|im_end|>the", add_special_tokens=False).tokens
    assert pieces == ["the", "Ġ", "Ġthe", "Ġ", "1", "2", "<|im_end|>", "the"]
    assert tokenizer.encode("the", add_special_tokens=False).ids == [TOKENS.index("the")]
    text = "Ελλ 漢字 🎉\t\r\n½"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    settings = json.loads((tmp_path / "folder/tokenizer_config.json").read_text())
    assert (settings["chat_template"], settings["eos_token"], settings["pad_token"]) == (
        TEMPLATE,
        SPECIAL[2],
        SPECIAL[0],
    )


def without(name):
    return {key: values for key, values in random_tensors().items() if key != name}


BAD = {
    "another architecture": (dict(architecture="qwen2"), "general.architecture = 'qwen2': must be a plain dense llama"),
    "another tokenizer": (dict(keys={"tokenizer.ggml.model": ("llama", T.STRING)}), "tokenizer.ggml.model = 'llama'"),
    "another division": (dict(keys={"tokenizer.ggml.pre": ("qwen2", T.STRING)}), "a tokenizer smollm of gpt2"),
    "adapters": (
        dict(keys={"general.type": ("adapter", T.STRING), "adapter.type": ("lora", T.STRING)}),
        "general.type = 'adapter': must be a plain dense llama",
    ),
    "experts": (
        dict(keys={"llama.expert_count": (8, T.UINT32)}),
        "llama.expert_count = 8: must be a plain dense llama",
    ),
    "scaled positions": (
        dict(keys={"llama.rope.scaling.type": ("yarn", T.STRING)}),
        "llama.rope.scaling.type = 'yarn'",
    ),
    "half rotated": (dict(keys={"llama.rope.dimension_count": (8, T.UINT32)}), "dimension_count = 8 must be 16"),
    "no chat template": (dict(keys={"tokenizer.chat_template": None}), "tokenizer.chat_template = None must be a str"),
    "no tokens": (dict(keys={"tokenizer.ggml.tokens": None}), "tokenizer.ggml.tokens = None must be a list"),
    "no layers": (dict(keys={"llama.block_count": (0, T.UINT32)}), "llama.block_count = 0 must be a number"),
    "no end": (dict(keys={"tokenizer.ggml.eos_token_id": None}), "eos_token_id must be there"),
    "an end that is no token": (dict(keys={"tokenizer.ggml.eos_token_id": (999, T.UINT32)}), "'eos_token_id': 999"),
    "a merge without its token": (
        dict(keys={k: (KEYS[k][0][:-1], T.ARRAY) for k in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")}),
        "must each join two tokens to a third",
    ),
    "fewer tokens than rows": (
        dict(tensors=random_tensors() | {"token_embd.weight": np.zeros((300, WIDTH), np.float32)}),
        f"token_embd.weight has shape [300, 64] and must have [{len(TOKENS)}, 64]",
    ),
    "a token twice": (dict(keys={"tokenizer.ggml.tokens": ([*TOKENS[:-1], "a"], T.ARRAY)}), "must differ"),
    "a tensor less": (dict(tensors=without("blk.1.ffn_up.weight")), "blk.1.ffn_up.weight has shape None and must have"),
    "a bias": (
        dict(tensors=random_tensors() | {"blk.0.attn_q.bias": np.zeros(WIDTH, np.float32)}),
        "blk.0.attn_q.bias has shape [64] and must have None",
    ),
}


def refused(capsys, file, folder) -> str:
    """Run the command, and return its one line."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        main([str(file), str(folder)])
    assert stop.value.code == 2 and sorted(folder.parent.rglob("*")) == before
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("name", BAD)
def test_what_is_unknown_is_one_line(tmp_path, capsys, name):
    changes, said = BAD[name]
    line = refused(capsys, write(tmp_path / "a.gguf", **changes), tmp_path / "folder")
    assert line.startswith(f"python -m rl.model.gguf: error: {tmp_path}/a.gguf: ") and said in line


def test_a_truncated_file_is_one_line_wherever_it_ends(tmp_path, capsys):
    whole = write(tmp_path / "whole.gguf").read_bytes()
    for end in [*range(4, 1200, 13), *range(1200, len(whole), 9973), len(whole) - 1]:
        (tmp_path / "a.gguf").write_bytes(whole[:end])
        line = refused(capsys, tmp_path / "a.gguf", tmp_path / "folder")
        assert f"{tmp_path}/a.gguf: must be a whole GGUF file with types of numbers that gguf knows (" in line, end


def test_a_file_of_the_other_byte_order_is_one_line(tmp_path, capsys, monkeypatch):
    """As `gguf` writes it and as its script rewrites one; the script that the line names makes it whole again."""
    other, this = ("big", "little") if sys.byteorder == "little" else ("little", "big")
    said = f"must have this machine's byte order ({this}-endian), and has the other; rewrite it: python -m gguf.scripts"
    script = [sys.executable, "-m", "gguf.scripts.gguf_convert_endian", str(tmp_path / "a.gguf")]
    right = write(tmp_path / "a.gguf", kind=gguf.GGMLQuantizationType.Q8_0).read_bytes()
    subprocess.run([*script, other], input=b"YES\n", check=True, capture_output=True)
    line = refused(capsys, tmp_path / "a.gguf", tmp_path / "folder")
    assert f"{tmp_path}/a.gguf: {said}" in line
    *_, order = line.split()
    subprocess.run([*script, order], input=b"YES\n", check=True, capture_output=True)
    assert (tmp_path / "a.gguf").read_bytes() == right
    swapped = functools.partial(gguf.GGUFWriter, endianess=gguf.GGUFEndian[other.upper()])
    monkeypatch.setattr("gguf.GGUFWriter", swapped)
    assert said in refused(capsys, write(tmp_path / "b.gguf"), tmp_path / "folder")


@pytest.mark.parametrize("part", [0, 1])
def test_a_part_of_a_model_is_one_line(tmp_path, capsys, part):
    """As llama-gguf-split writes them: the first has the keys, and perhaps no tensor."""
    keys = {} if part == 0 else dict.fromkeys(KEYS)
    keys |= {"split.no": (part, T.UINT16), "split.count": (2, T.UINT16), "split.tensors.count": (20, T.INT32)}
    file = write(tmp_path / "a.gguf", keys=keys, tensors=dict([*random_tensors().items()][10:]) if part else {})
    line = refused(capsys, file, tmp_path / "folder")
    assert f"{file}: must be a whole model, and is part {part + 1} of 2; join them: llama-gguf-split --merge" in line


def test_a_model_that_was_joined_from_parts_is_whole(tmp_path):
    keys = {"split.no": (0, T.UINT16), "split.count": (0, T.UINT16), "split.tensors.count": (20, T.INT32)}
    assert "parameters in float32" in convert(write(tmp_path / "a.gguf", keys=keys), tmp_path / "folder")


def test_a_type_of_numbers_that_gguf_does_not_know_is_one_line(tmp_path, capsys):
    file, name = write(tmp_path / "a.gguf"), b"blk.0.attn_norm.weight"
    raw = bytearray(file.read_bytes())
    at = raw.index(name) + len(name) + 4 + 8  # after the number of dimensions and the only one
    raw[at : at + 4] = (139).to_bytes(4, sys.byteorder)  # IQ4_K of a fork of llama.cpp
    file.write_bytes(raw)
    line = refused(capsys, file, tmp_path / "folder")
    assert re.search(r"must be a whole GGUF file with types of numbers that gguf knows \(.*139.* is not a valid", line)


def test_what_is_no_gguf_file_is_one_line(tmp_path, capsys):
    (tmp_path / "a.whl").write_bytes(b"PK\3\4...")
    assert "a.whl: must be a whole GGUF file with types of numbers that gguf knows (GGUF magic invalid)" in refused(
        capsys, tmp_path / "a.whl", tmp_path / "folder"
    )
    (tmp_path / "empty").touch()
    assert "empty: must be a whole GGUF file" in refused(capsys, tmp_path / "empty", tmp_path / "folder")
    assert "cannot read it (No such file" in refused(capsys, tmp_path / "none.gguf", tmp_path / "folder")
    assert "cannot read it (Is a directory" in refused(capsys, tmp_path, tmp_path / "folder")


def test_a_folder_is_whole_or_not_there(tmp_path, capsys, monkeypatch):
    file = write(tmp_path / "a.gguf")
    (tmp_path / "folder").mkdir()
    convert(file, tmp_path / "folder")
    assert "folder: must be a new folder or an empty one" in refused(capsys, file, tmp_path / "folder")
    assert "a.gguf/inner: cannot write the model there (" in refused(capsys, file, file / "inner")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    assert "other: cannot write the model there (No space" in refused(capsys, file, tmp_path / "other")
