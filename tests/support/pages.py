"""The pages of the repository, and the code on them."""

import functools
import json
import pathlib
import re

import pytest
from markdown_it import MarkdownIt

ROOT = pathlib.Path(__file__).parents[2]
COPIES = [ROOT / "docs" / name for name in ("CHANGELOG.md", "CONTRIBUTING.md")]  # of docs/conf.py
PATTERNS = ("*.md", "docs/*.md", "docs/*/*.md", "integrations/*/*.md", "notebooks/*.ipynb")
PAGES = sorted(page for pattern in PATTERNS for page in ROOT.glob(pattern) if page not in COPIES)


def name_of(page):
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@functools.cache
def tokens(page):
    """The parts of a page, or of a notebook's text, links and code in lines among them."""
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    parts = MarkdownIt("commonmark").enable("table").parse(text)
    return [inner for token in parts for inner in (token, *(token.children or ()))]


def code(page, kinds=("code_inline", "code_block", "fence")):
    """The code of a page as one text, by default that within lines, too; not blocks that check out another commit."""
    parts = (token.content for token in tokens(page) if token.type in kinds)
    return "\n".join(part for part in parts if not part.startswith("git checkout "))


def commands(page):
    """The arguments of Python in our commands in a page's blocks, each in one line."""
    scripts = r"-m (?:jaxlake|engineer|rl|examples)\.[\w.]+|(?:benchmarks|notebooks|studies)/\w+\.py"
    text = code(page, ("code_block", "fence")).replace("\\\n", " ")
    return re.findall(rf"^ *(?:\$ )?python ((?:{scripts})(?: .*)?)$", text, re.MULTILINE)
