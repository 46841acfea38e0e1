"""Models of the Hugging Face hub: downloaded as far as they are read, and then found in its cache."""

import pytest
from huggingface_hub.utils import filter_repo_objects

from rl.config import ConfigError
from rl.model import weights

REPOSITORY = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "README.md",
    "params.json",
    "tekken.json",
    "consolidated.safetensors",
    "original/consolidated.00.pth",
    "original/config.json",
    "onnx/model.safetensors",
    "pytorch_model.bin",
    "adapter_model.safetensors",
)
"""Names of files in published repositories beside their weights."""


def test_of_a_repository_only_what_is_read_is_downloaded(tmp_path, monkeypatch):
    shards = ["model.safetensors.index.json", "model-00001-of-00002.safetensors"]

    def download(name, revision, allow_patterns, local_files_only):
        assert (name, revision) == ("org/name", "v1.0")
        needed = filter_repo_objects([*REPOSITORY, *shards], allow_patterns=allow_patterns)
        assert list(needed) == [*REPOSITORY[:5], *shards]
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert weights.resolve("org/name@v1.0") == tmp_path


@pytest.mark.parametrize("path", ["Qwen/Qwen3-not-here", "qwen3-4b", "Qwen/..", "/no/such/folder"])
def test_what_is_neither_a_folder_nor_in_the_cache_is_one_line(tmp_path, monkeypatch, path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=f"^student.model.path = {path}: no such folder, and not had from the hub.*$"):
        weights.resolve(path)
