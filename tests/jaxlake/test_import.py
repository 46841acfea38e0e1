"""The bare install is jax, chex and numpy: what `import jaxlake` pulls in, and what it costs."""

import subprocess
import sys


def printed_by(program: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


def loaded_by(modules: str) -> set[str]:
    return set(printed_by(f"import sys, {modules}; print(*{{name.partition('.')[0] for name in sys.modules}})"))


def test_importing_the_environment_imports_no_more_than_jax_chex_and_numpy():
    added = loaded_by("jaxlake") - loaded_by("jax, chex, numpy") - sys.stdlib_module_names
    assert added == {"jaxlake"}


def test_importing_the_environment_takes_less_than_a_second_and_a_half_beyond_jax():
    program = "import time, jax; begun = time.process_time(); import jaxlake; print(time.process_time() - begun)"
    assert min(float(printed_by(program)[0]) for _ in range(3)) < 1.5
