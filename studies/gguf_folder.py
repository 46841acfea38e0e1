"""Makes a folder for student.model.path from a GGUF file (llama.cpp's format): a dense
Llama with SmolLM's tokenizer, such as SmolLM2. For development, where no model
hub is in reach. Needs pip install gguf.

The numbers are written in float32, because bfloat16 would round them again.

examples:
  python studies/gguf_folder.py SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

NUMBERS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}
"""Fields of config.json and their keys in GGUF, after ``llama.``."""
TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
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
CONTROL, USER_DEFINED = 3, 4
"""Types of tokens that are split off before merging."""


def convert(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file as a folder that `rl.model.weights.load` and `transformers` read."""
    import gguf

    reader = gguf.GGUFReader(file)
    fields: dict[str, Any] = {key: field.contents() for key, field in reader.fields.items()}
    kind = fields["general.architecture"], fields["tokenizer.ggml.pre"], fields.get("llama.rope.scaling.type")
    assert kind == ("llama", "smollm", None), f"{file}: {kind}: must be a plain Llama with SmolLM's tokenizer"
    config = {name: fields[f"llama.{key}"] for name, key in NUMBERS.items()}
    # The fewest digits that give this float32: 1e-05, not 9.999999747378752e-06.
    config |= {name: float(str(np.float32(config[name]))) for name in ("rms_norm_eps", "rope_theta")}
    values = dict(_named(tensor, config["num_attention_heads"], config["hidden_size"]) for tensor in reader.tensors)
    names = {"eos": "eos", "bos": "bos", "pad": "padding", "unk": "unknown"}
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    ids = {f"{name}_token": i for name, i in ids.items() if i is not None}
    tokens = fields["tokenizer.ggml.tokens"]
    config |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": len(tokens)}
    config |= {"tie_word_embeddings": "lm_head.weight" not in values, "torch_dtype": "float32", "hidden_act": "silu"}
    config |= {f"{name}_id": i for name, i in ids.items()}
    settings = {name: tokens[i] for name, i in ids.items()} | {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings |= {"chat_template": fields["tokenizer.chat_template"], "clean_up_tokenization_spaces": False}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    _tokenizer(fields).save(str(folder / "tokenizer.json"))
    save_file(values, folder / "model.safetensors", {"format": "pt"})


def _named(tensor: Any, heads: int, width: int) -> tuple[str, np.ndarray]:
    """Return a tensor's name in Hugging Face's folders and its numbers in float32."""
    import gguf

    value = gguf.dequantize(tensor.data, tensor.tensor_type)
    *layer, part = tensor.name.removesuffix(".weight").removeprefix("blk.").split(".")
    if part in ("attn_q", "attn_k"):  # llama.cpp rotates rows 2i and 2i + 1 of a head, others i and i + half
        value = value.reshape(-1, width // heads // 2, 2, width).swapaxes(1, 2).reshape(value.shape)
    return ".".join([*(["model.layers", *layer] if layer else []), TENSORS[part], "weight"]), value


def _tokenizer(fields: dict[str, Any]) -> Tokenizer:
    """Return SmolLM's tokenizer: each digit by itself, GPT-2's division of the rest, then merges of bytes."""
    tokens, types, merges = (fields[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type", "merges"))
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    digits, rest = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([digits, rest]), decoders.ByteLevel()
    for token, kind in zip(tokens, types, strict=True):
        if kind in (CONTROL, USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, normalized=False, special=kind == CONTROL)])
    return tokenizer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path, help="must not exist")
    options = parser.parse_args()
    convert(options.file, options.folder)
