"""The bare install is jax, chex and numpy: what `import jaxlake` pulls in, and what it costs."""

import subprocess
import sys

import pytest


def loaded_by(modules: str) -> set[str]:
    program = f"import sys, {modules}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.heavy
def test_importing_the_environment_imports_no_more_than_jax_chex_and_numpy():
    added = loaded_by("jaxlake") - loaded_by("jax, chex, numpy") - sys.stdlib_module_names
    assert added == {"jaxlake"}
