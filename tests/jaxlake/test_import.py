"""The bare install is jax, chex and numpy: what `import jaxlake` pulls in."""

import subprocess
import sys

EXTRAS = (
    "flax",
    "gymnasium",
    "gymnax",
    "jaxmarl",
    "jumanji",
    "matplotlib",
    "optax",
    "orbax",
    "pettingzoo",
    "PIL",
    "pydantic",
    "rich",
    "transformers",
    "yaml",
)


def test_importing_the_environment_imports_no_extra():
    code = "import sys, jaxlake; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "jaxlake" in loaded
    assert not set(EXTRAS) & set(loaded)
