"""GGUF files, llama.cpp's format, to Hugging Face folders: ``python -m rl.model.gguf FILE FOLDER``.

The folder holds the numbers that the file stands for, in float32; bfloat16 would round them once more. What quantising
has lost stays lost. Whatever is unknown here is an error: without it the model would run, and be another one.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake.commands import command_parser, local_path, mistakes_in_one_line
from rl.config import ConfigError

NUMBERS = {
    "hidden_size": "llama.embedding_length",
    "intermediate_size": "llama.feed_forward_length",
    "num_hidden_layers": "llama.block_count",
    "num_attention_heads": "llama.attention.head_count",
    "num_key_value_heads": "llama.attention.head_count_kv",
    "max_position_embeddings": "llama.context_length",
    "rms_norm_eps": "llama.attention.layer_norm_rms_epsilon",
    "rope_theta": "llama.rope.freq_base",
}
"""Fields of config.json and their keys in GGUF."""
HEAD_SIZES = ("llama.attention.key_length", "llama.attention.value_length", "llama.rope.dimension_count")
"""Keys that must agree where present: the size of a head, all of which is rotated."""
ALLOWED: dict[str, tuple] = {
    "general.type": ("model", None),
    "general.architecture": ("llama",),
    "tokenizer.ggml.model": ("gpt2",),
    "tokenizer.ggml.pre": ("smollm",),
    "tokenizer.ggml.add_bos_token": (False, None),
}
"""Values of other keys that are converted, None for an absent key."""
SPECIAL = {"eos": "eos", "bos": "bos", "pad": "padding", "unk": "unknown"}
"""Special tokens of tokenizer_config.json and of ``tokenizer.ggml.*_token_id``; all but the first may be absent."""
CONTROL, USER_DEFINED, TYPES = 3, 4, {1, 3, 4, 5}
"""Types of tokens: found before merging, special and not; the others of a byte-level BPE are normal and unused."""
WHOLE = {"token_embd": ("model.embed_tokens", "VD"), "output_norm": ("model.norm", "D"), "output": ("lm_head", "VD")}
LAYER = {
    "attn_norm": ("input_layernorm", "D"),
    "attn_q": ("self_attn.q_proj", "ND"),
    "attn_k": ("self_attn.k_proj", "KD"),
    "attn_v": ("self_attn.v_proj", "KD"),
    "attn_output": ("self_attn.o_proj", "DN"),
    "ffn_norm": ("post_attention_layernorm", "D"),
    "ffn_gate": ("mlp.gate_proj", "FD"),
    "ffn_up": ("mlp.up_proj", "FD"),
    "ffn_down": ("mlp.down_proj", "DF"),
}
"""Tensors in GGUF and in a folder, and their axes: Vocabulary, wiDth, Feed-forward, all queries N, all keys K."""


def convert(file: Path, folder: Path) -> str:
    """Write a GGUF file as a folder that `weights.load` and `transformers` read, and return a line about the model.

    Args:
      file: a dense Llama with SmolLM's tokenizer and a chat template; `gguf` must know its types of numbers.
      folder: must be absent or empty, and has its name only when all of it is written.

    Raises:
      ConfigError: naming the file, what it has and what it must have; or the folder.
      ModuleNotFoundError: if the package `gguf` is not installed.
    """
    from safetensors.numpy import save_file

    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(f"{folder}: must be a new folder or an empty one")
    fields, tensors = _read(file)
    try:
        config = _config(fields, tied="output.weight" not in tensors)
        texts = _tokenizer(fields, config) | {"config.json": json.dumps(config, indent=2)}
        values = dict(_parameters(config, tensors))
    except (ConfigError, NotImplementedError) as error:  # the second from `gguf`, of a type of numbers
        raise ConfigError(f"{file}: {error}") from None
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        draft.mkdir(parents=True)
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8")
        save_file(values, draft / "model.safetensors", {"format": "pt"})
        shutil.copymode(draft / "config.json", draft / "model.safetensors")  # `save_file` lets nobody else read it
        draft.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot write the model there ({error.strerror or error})") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    kinds = ", ".join(sorted({tensor.tensor_type.name for tensor in tensors.values()}))
    return f"{folder}: {sum(map(np.size, values.values())) / 1e6:,.1f} M parameters in float32, from {kinds}"


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of a file by their keys, and its tensors by their names, as they are stored."""
    import gguf

    try:
        reader = gguf.GGUFReader(file)
        fields = {key: field.contents() for key, field in reader.fields.items()}
    except OSError as error:
        raise ConfigError(f"{file}: cannot read it ({error.strerror})") from None
    except (ValueError, LookupError, OverflowError) as error:  # of NumPy, for bytes that are not there
        raise ConfigError(
            f"{file}: must be a whole GGUF file with types of numbers that gguf knows ({error})"
        ) from None
    if (parts := fields.get("split.count", 0)) not in (0, 1):  # llama-gguf-split writes 0 where it has joined them
        raise ConfigError(
            f"{file}: must be a whole model, and is part {fields.get('split.no', 0) + 1} of {parts}; join them: "
            "llama-gguf-split --merge FIRST-PART FILE"
        )
    if reader.byte_order == "S":  # `gguf` swaps the keys and shapes, and no tensor
        raise ConfigError(
            f"{file}: must have this machine's byte order ({sys.byteorder}-endian), and has the other; rewrite it: "
            f"python -m gguf.scripts.gguf_convert_endian FILE {sys.byteorder}"
        )
    return fields, {tensor.name: tensor for tensor in reader.tensors}


def _config(fields: dict[str, Any], tied: bool) -> dict[str, Any]:
    """Return the contents of config.json."""
    known = {*NUMBERS.values(), *HEAD_SIZES, "llama.vocab_size"}
    more = (key for key in fields if key.startswith("llama.") and key not in known and fields[key])
    problems = [f"{key} = {fields.get(key)!r}" for key, allowed in ALLOWED.items() if fields.get(key) not in allowed]
    if problems := [*problems, *(f"{key} = {fields[key]!r}" for key in more)]:
        raise ConfigError(f"{'; '.join(problems)}: must be a plain dense llama with a tokenizer smollm of gpt2")
    config: dict[str, Any] = {name: _get(fields, key, int | float) for name, key in NUMBERS.items()}
    # The fewest digits that give this float32: 1e-05, not 9.999999747378752e-06.
    config |= {name: float(str(np.float32(config[name]))) for name in ("rms_norm_eps", "rope_theta")}
    config["head_dim"] = fields.get(HEAD_SIZES[0], config["hidden_size"] // config["num_attention_heads"])
    if wrong := [key for key in HEAD_SIZES if fields.get(key, config["head_dim"]) != config["head_dim"]]:
        raise ConfigError(f"{wrong[0]} = {fields[wrong[0]]!r} must be {config['head_dim']}, the size of a head")
    config |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rope_scaling": None}
    config |= {"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": tied, "torch_dtype": "float32"}
    size = len(_get(fields, "tokenizer.ggml.tokens", list))
    ids = {f"{name}_token_id": fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in SPECIAL.items()}
    if ids["eos_token_id"] is None or not set(ids.values()) <= {None, *range(size)}:
        raise ConfigError(f"special tokens {ids} must be from 0 to {size - 1}, and eos_token_id must be there")
    return config | {"vocab_size": size} | {name: i for name, i in ids.items() if i is not None}


def _get(fields: dict[str, Any], key: str, kind: Any) -> Any:
    """Return the value of a key, of this type and neither 0 nor empty."""
    if isinstance(value := fields.get(key), kind) and value:
        return value
    raise ConfigError(f"{key} = {value!r} must be a {getattr(kind, '__name__', 'number')}, and neither 0 nor empty")


def _tokenizer(fields: dict[str, Any], config: dict[str, Any]) -> dict[str, str]:
    """Return the tokenizer's files: each digit by itself, GPT-2's division of the rest, then merges of bytes."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, types, merges = (_get(fields, f"tokenizer.ggml.{key}", list) for key in ("tokens", "token_type", "merges"))
    if not len(tokens) == len(types) == len(set(tokens)) or set(types) - TYPES:
        raise ConfigError(f"the {len(tokens)} of tokenizer.ggml.tokens must differ, and each have a type of {TYPES}")
    try:
        model = models.BPE({token: i for i, token in enumerate(tokens)}, [tuple(pair.split(" ")) for pair in merges])
    except Exception as error:  # the class that `tokenizers` raises
        raise ConfigError(f"tokenizer.ggml.merges must each join two tokens to a third ({error})") from None
    tokenizer = Tokenizer(model)
    digits, rest = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([digits, rest]), decoders.ByteLevel()
    added = [(token, kind) for token, kind in zip(tokens, types, strict=True) if kind in (CONTROL, USER_DEFINED)]
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=kind == CONTROL) for token, kind in added])
    ids = {f"{name}_token": config[f"{name}_token_id"] for name in SPECIAL if f"{name}_token_id" in config}
    settings = {"chat_template": _get(fields, "tokenizer.chat_template", str), "clean_up_tokenization_spaces": False}
    settings |= {name: tokens[i] for name, i in ids.items()} | {"tokenizer_class": "PreTrainedTokenizerFast"}
    texts = {"tokenizer_config.json": settings, "generation_config.json": {f"{name}_id": i for name, i in ids.items()}}
    return {name: json.dumps(text, indent=2) for name, text in texts.items()} | {"tokenizer.json": tokenizer.to_str()}


def _parameters(config: dict[str, Any], tensors: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the tensors of the folder, float32."""
    import gguf

    size, width = config["head_dim"], config["hidden_size"]
    sizes = {"V": config["vocab_size"], "D": width, "F": config["intermediate_size"]}
    sizes |= {"N": config["num_attention_heads"] * size, "K": config["num_key_value_heads"] * size}
    places = {name: place for name, place in WHOLE.items() if name != "output" or not config["tie_word_embeddings"]}
    for i in range(config["num_hidden_layers"]):
        places |= {f"blk.{i}.{name}": (f"model.layers.{i}.{theirs}", axes) for name, (theirs, axes) in LAYER.items()}
    shapes = {f"{name}.weight": [sizes[axis] for axis in axes] for name, (_, axes) in places.items()}
    has = {name: tensor.shape.tolist()[::-1] for name, tensor in tensors.items()}
    if wrong := sorted(name for name in shapes.keys() | has.keys() if shapes.get(name) != has.get(name)):
        first = f"{wrong[0]} has shape {has.get(wrong[0])} and must have {shapes.get(wrong[0])}, None being absent"
        raise ConfigError(f"{first}, by its keys and {sizes['V']} tokens; {len(wrong) - 1} other tensors do not fit")
    for name, (theirs, _) in places.items():
        value = gguf.dequantize(tensors[f"{name}.weight"].data, tensors[f"{name}.weight"].tensor_type)
        if name.endswith(("attn_q", "attn_k")):  # llama.cpp rotates rows 2i and 2i + 1 of a head, others i and i + half
            value = value.reshape(-1, size // 2, 2, width).swapaxes(1, 2).reshape(value.shape)
        yield f"{theirs}.weight", value


def main(arguments: Sequence[str] | None = None) -> None:
    """Convert a file, and say in one line what became of it or what is wrong with it."""
    parser = command_parser(
        "rl.model.gguf",
        "Makes a folder for model.path out of a GGUF file: a dense Llama with SmolLM's tokenizer.",
        "examples:\n  python -m rl.model.gguf SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2",
    )
    parser.add_argument("file", type=local_path, metavar="FILE", help="the GGUF file")
    parser.add_argument("folder", type=local_path, metavar="FOLDER", help="the folder to write, new or empty")
    options = parser.parse_args(arguments)
    with mistakes_in_one_line(parser, needs="pip install '.[gguf]'"):
        print(convert(options.file, options.folder))


if __name__ == "__main__":
    main()
