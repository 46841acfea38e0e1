"""The files and tensors of a checkpoint: which are read, where they are, and what does not fit a model."""

import collections
import contextlib
import dataclasses
import json
import re
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from safetensors import SafetensorError, safe_open

from rl.config import ConfigError
from rl.model.tokenizer import FILES

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
TEXTS = ("config.json", "adapter_config.json", INDEX, *FILES)
"""All that is read of a checkpoint beside its weights."""
EMBEDDING = "model.embed_tokens.weight"
MOST_PROBLEMS = 6
"""Tensors to name; a checkpoint of another model has hundreds that do not fit."""
BUFFERS = re.compile(r"\.rotary_emb\.(inv_freq|cos_cached|sin_cached)$")
"""Names of tensors that are computed from config.json, and of which some checkpoints carry a copy."""
DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
"""Names in safetensors of the dtypes that a model may be stored in."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint, and where it is in our parameters.

    Attributes:
      path: the parameter's path.
      layer: its place along the leading axis; None if the parameter is not stacked.
      shape: shape in the checkpoint.
      transposed: whether it is the transpose of ours; norms, biases, embedding and head are not.
    """

    path: tuple[str, ...]
    layer: int | None
    shape: tuple[int, ...]
    transposed: bool

    @property
    def name(self) -> str:
        name = ".".join(self.path)
        if self.layer is not None:
            name = name.replace("layers.", f"layers.{self.layer}.", 1)
        return name if self.path[0] == "lm_head" else f"model.{name}"

    def sharding(self, whole: NamedSharding | None) -> Sharding:
        """Return the sharding by which each device reads just what it needs of the parameter, laid out as `whole`."""
        if whole is None:
            return SingleDeviceSharding(jax.local_devices()[0])
        if self.layer is None:
            return whole
        axes = [*whole.spec, *[None] * (1 + len(self.shape) - len(whole.spec))][1:]
        return NamedSharding(whole.mesh, P(*(axes[::-1] if self.transposed else axes)))


def weight_files(folder: Path) -> set[str]:
    """Return the names of the files that hold a checkpoint's weights, all that there must be.

    The index names them. Without one, a model.safetensors is the whole checkpoint, for `transformers` as well, or else
    all safetensors are parts of it. Other files beside them, such as adapters, are no part of it.

    Raises:
      ConfigError: if the index cannot be read, or names what is no file of this folder.
    """
    if not (folder / INDEX).exists():
        present = {file.name for file in folder.glob("*.safetensors")}
        present = present & {WHOLE} or present
        parts = [match for name in present if (match := re.fullmatch(r"(.+)-\d{5}-of-(\d{5})\.safetensors", name))]
        return present | {
            f"{part[1]}-{i:05d}-of-{part[2]}.safetensors" for part in parts for i in range(1, int(part[2]) + 1)
        }
    try:
        names = set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"model.path = {folder}: cannot read {INDEX} ({error!r})") from None
    wrong = sorted(repr(name) for name in names if not re.fullmatch(r"[\w.-]+\.safetensors", str(name)))
    if wrong or not names:
        first = wrong[0] if wrong else "nothing"
        raise ConfigError(f"model.path = {folder}: {INDEX} must name *.safetensors beside it, not {first}")
    return names


def survey(folder: Path, wanted: list[Tensor], tied: bool) -> dict[Path, dict[str, Tensor]]:
    """Return which file holds which of the wanted tensors, by their names there.

    All names may begin alike, as with the ``_orig_mod.`` of `torch.compile` or the ``module.`` of parallel modules.

    Args:
      folder: directory of the checkpoint.
      wanted: all tensors of the model, the embedding first.
      tied: whether the embedding is the head, too; a head in the files must then be a copy of it.

    Raises:
      ConfigError: naming every file that is missing or damaged; without such, the tensors that are missing,
        superfluous or of another shape, and a head that is no copy, the first `MOST_PROBLEMS` of them.
    """
    files, problems = _files(folder)
    holders = collections.defaultdict(list)
    for file in files:
        try:
            with safe_open(file, "np") as handle:
                for name in handle.keys():  # noqa: SIM118 - a handle is no mapping
                    part = handle.get_slice(name)
                    holders[name].append((file, tuple(part.get_shape()), part.get_dtype()))
        except (OSError, SafetensorError) as error:
            problems.append(f"{file.name} is truncated or damaged ({error})")
    if problems:  # and not the 400 tensors that such a file lacks
        raise ConfigError(f"model.path = {folder}: {'; '.join(problems)}")
    prefix = min((name.removesuffix(EMBEDDING) for name in holders if name.endswith(EMBEDDING)), key=len, default="")
    places: dict[Path, dict[str, Tensor]] = collections.defaultdict(dict)
    embedding, head = prefix + EMBEDDING, f"{prefix}lm_head.weight"
    if copied := tied and head in holders:  # as in Qwen3's tied 0.6B and 1.7B
        wanted = [*wanted, dataclasses.replace(wanted[0], path=("lm_head", "weight"))]
    for tensor in wanted:
        name = prefix + tensor.name
        match holders.pop(name, []):
            case []:
                problems.append(f"{name} is missing")
            case [(file, shape, dtype)]:
                if shape != tensor.shape:
                    problems.append(f"{name} has shape {shape}, which must be {tensor.shape}")
                if dtype not in DTYPES:
                    problems.append(f"{name} is stored as {dtype}, which must be one of {', '.join(DTYPES)}")
                places[file][name] = tensor
            case several:
                problems.append(f"{name} is in {' and in '.join(file.name for file, *_ in several)}")
    if copied and not problems:
        file_of = {name: file for file, tensors in places.items() for name in tensors}
        if not _are_equal((file_of[embedding], embedding), (file_of[head], head)):
            problems.append(
                f"{head} must equal {embedding}, as config.json has tie_word_embeddings = true (transformers 4 then "
                "drops the head, 5 uses it); set it to false to use the head, or remove the head from its file"
            )
        del places[file_of[head]][head]
    problems += [f"{name} is not of this model" for name in holders if not BUFFERS.search(name)]
    if problems:
        more = f"; and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
        raise ConfigError(f"model.path = {folder}: {'; '.join(problems[:MOST_PROBLEMS])}{more}")
    return places


def _are_equal(*matrices: tuple[Path, str], rows: int = 4096) -> bool:
    """Whether two tensors, each in its file, hold the same numbers; so many rows at a time are on the host."""
    with contextlib.ExitStack() as stack:
        one, other = (stack.enter_context(safe_open(file, "np")).get_slice(name) for file, name in matrices)
        size = one.get_shape()[0]
        parts = (slice(start, min(start + rows, size)) for start in range(0, size, rows))
        return all(
            np.array_equal(one[part].astype(np.float32), other[part].astype(np.float32), equal_nan=True)
            for part in parts
        )


def _files(folder: Path) -> tuple[list[Path], list[str]]:
    """List the files that hold a checkpoint's weights and are there, and what is wrong with the others."""
    if not (names := weight_files(folder)):
        pickled = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
        why = f"; {', '.join(pickled)} would have to be unpickled, which runs what is in it" if pickled else ""
        raise ConfigError(f"model.path = {folder}: must hold *.safetensors{why}")
    problems = [f"file {name} is missing" for name in sorted(names) if not (folder / name).exists()]
    if WHOLE not in names and (folder / WHOLE).exists():
        problems.append(
            f"file {WHOLE} is not in the index; transformers reads it and not the index: delete one of them"
        )
    return [folder / name for name in sorted(names) if (folder / name).exists()], problems
