"""The code in the documentation runs as it stands there."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize(
    "page", ["README.md", "docs/engineer.md", "docs/environment.md", "docs/policy.md", "docs/training.md"]
)
def test_the_python_blocks_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
