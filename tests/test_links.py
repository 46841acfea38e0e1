"""Links and names of files in the pages lead somewhere; addresses of other sites are for Sphinx's ``linkcheck``."""

import json
import pathlib
import re
import tomllib
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt

ROOT = pathlib.Path(__file__).parents[1]
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
COPIES = [ROOT / "docs" / name for name in ("CHANGELOG.md", "CONTRIBUTING.md")]  # of docs/conf.py
PAGES = sorted(
    page
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/api/*.md",
        "docs/study-tiny/*.md",
        "integrations/*/*.md",
        "notebooks/*.ipynb",
    )
    for page in ROOT.glob(pattern)
    if page not in COPIES
)
OURS = re.compile(
    rf"{re.escape(REPOSITORY)}/(?:blob|tree|raw)/main/"
    rf"|{re.escape(REPOSITORY.replace('github.com', 'raw.githubusercontent.com'))}/main/"
    rf"|{re.escape(REPOSITORY.replace('github.com', 'colab.research.google.com/github'))}/blob/main/"
)
ROOMS = "jaxlake|engineer|rl|tests|docs|configs|benchmarks|notebooks|integrations|.ci|.github".replace(".", r"\.")
FILE = re.compile(rf"(?<![\w/.-])(?:{ROOMS})/[\w./{{}},*-]*\.(?:py|md|yaml|yml|json|sh|sbatch|ipynb|png|jinja)\b")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def tokens(page):
    """The parts of a page, or of a notebook's text, links and code in lines among them."""
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        yield token
        yield from token.children or ()


def links(page):
    for token in tokens(page):
        yield from (token.attrs[name] for name in ("href", "src") if name in token.attrs)
        if token.type in ("html_inline", "html_block"):
            yield from re.findall(r'(?:href|src)="([^"]*)"', token.content)


def anchors(page):
    """Those that GitHub gives the headings of a page."""
    found = []
    parts = list(tokens(page))
    for heading, content in zip(parts, parts[1:], strict=False):
        if heading.type == "heading_open":
            words = "".join(part.content for part in content.children if part.type in ("text", "code_inline"))
            anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            found.append(anchor + (f"-{found.count(anchor)}" if anchor in found else ""))
    return found


def alternatives(name):
    """``docs/{a,b}.md`` is two."""
    first, brace, rest = name.partition("{")
    choices, _, last = rest.partition("}")
    return [one for choice in choices.split(",") for one in alternatives(first + choice + last)] if brace else [name]


@every_page
def test_links_within_the_repository_lead_somewhere(page):
    broken = []
    for link in links(page):
        place, _, anchor = OURS.sub(f"{ROOT}/", link).partition("#")
        if re.match(r"\w+:", place):
            continue
        target = (page.parent / unquote(place)).resolve() if place else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@every_page
def test_files_of_the_repository_that_a_page_names_are_there(page):
    code = " ".join(token.content for token in tokens(page) if token.type in ("code_inline", "code_block", "fence"))
    named = [file for name in FILE.findall(code) if "NAME" not in name for file in alternatives(name)]
    assert not [file for file in named if not any(ROOT.glob(file))]


def test_the_repository_has_one_address():
    owner, name = REPOSITORY.split("/")[-2:]
    address = re.compile(rf"(?:github|githubusercontent)(?:\.com)?/([\w-]+)/{name}\b")
    patterns = ("*.cff", "*.toml", "*/pyproject.toml", "integrations/*/*.toml", "docs/launch/*", ".github/**/*.yml")
    others = [path for pattern in patterns for path in ROOT.glob(pattern)]
    found = {path: set(address.findall(path.read_text())) for path in [*PAGES, *others]}
    assert not {path: owners for path, owners in found.items() if owners - {owner}}
