"""Every cell of the notebooks still runs, and what is committed is as agreed."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
NAMES = ("01_quickstart", "02_environment", "03_qwen3_4b", "04_your_own_engineer", "05_kaggle_tpu")
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]


def execute(*arguments: str | Path) -> subprocess.CompletedProcess:
    """The runner with a hasty compiler, and with the tests' eight virtual devices for the notebook that needs eight."""
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    if not any("kaggle" in str(argument) for argument in arguments):
        flags = environment["XLA_FLAGS"].replace("--xla_force_host_platform_device_count=8", "")
        environment["XLA_FLAGS"] = flags.strip()
    del environment["NPROC"]
    command = [sys.executable, ROOT / "notebooks" / "execute.py", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def committed(name: str) -> NotebookNode:
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(output: NotebookNode) -> list[str]:
    """Of an output, what is not an image."""
    if output.output_type == "stream":
        return [output.text]
    return [str(content) for kind, content in output.get("data", {}).items() if not kind.startswith("image/")]


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_runs_at_quick_settings(name):
    path = ROOT / "notebooks" / f"{name}.ipynb"
    before = path.read_bytes()
    done = execute("--quick", path)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_opens_in_a_browser_installs_itself_and_names_its_device(name):
    title, *rest = committed(name).cells
    github = f"{REPOSITORY}/blob/main/notebooks/{name}.ipynb"
    colab = github.replace("https://github.com", "https://colab.research.google.com/github")
    kaggle = f"https://kaggle.com/kernels/welcome?src={github}"
    assert title.cell_type == "markdown"
    assert title.source.startswith("# ")
    assert f"({kaggle if 'kaggle' in name else colab})" in title.source
    first = next(cell for cell in rest if cell.cell_type == "code")
    trains = any(re.search(r"^(from|import) rl\b", cell.source, re.MULTILINE) for cell in code_cells(committed(name)))
    assert f'find_spec("{"rl" if trains else "jaxlake"}") is None' in first.source
    trainer = f' \\\n        "jaxlake-rl @ git+{REPOSITORY}#subdirectory=rl"' if trains else ""
    installs = rf'%pip install -q "jaxlake(\[[\w,]+\])? @ git\+{re.escape(REPOSITORY)}"{re.escape(trainer)}\n'
    assert re.search(installs, first.source)
    said = "".join(text for output in first.outputs for text in texts(output))
    assert re.search(r"JAX \d+\.\d+", said)
    assert re.search(r"cpu|NVIDIA|TPU", said)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_was_executed_in_order_and_has_only_outputs_for_its_readers(name):
    cells = code_cells(committed(name))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    for output in outputs:
        assert output.output_type != "error"
        assert output.get("name") != "stderr"
        for text in texts(output):
            assert not re.search(r"(?<![\w.])/(tmp|work|root|home|usr)/", text)
            assert "Warning" not in text
