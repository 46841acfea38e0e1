"""The engineer is pure: it needs numpy, jax and jaxlake, reads and writes no files of a run and draws nothing."""

import subprocess
import sys

BLOCKED = "rl pydantic yaml matplotlib PIL flax optax orbax transformers tokenizers safetensors llguidance openai torch"


def test_the_engineer_needs_numpy_jax_and_jaxlake_alone():
    script = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED.split()}))  # importing one of these raises
import engineer, engineer.examples
context = engineer.Context(engineer.modules("V6"), engineer.Template.shipped())
"""
    subprocess.run([sys.executable, "-c", script], check=True)
