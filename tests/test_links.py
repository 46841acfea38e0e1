"""Links and names in the pages lead somewhere, and public names are in the reference; other sites are for Sphinx."""

import functools
import importlib
import pkgutil
import re
import tomllib
from urllib.parse import unquote

import pytest
from pages import PAGES, ROOT, code, every_page, name_of, tokens

from rl import config

REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
OURS = re.compile(
    rf"{re.escape(REPOSITORY)}/(?:blob|tree|raw)/main/"
    rf"|{re.escape(REPOSITORY.replace('github.com', 'raw.githubusercontent.com'))}/main/"
    rf"|{re.escape(REPOSITORY.replace('github.com', 'colab.research.google.com/github'))}/blob/main/"
)
ROOMS = r"jaxlake|engineer|rl|tests|docs|configs|benchmarks|examples|notebooks|studies|integrations|\.ci|\.github"
NAME = re.compile(r"(?<![\w/.-])(?:jaxlake|engineer|rl)(?:\.[a-zA-Z_]\w*)+(?![\w/]|\.\w)")
KEY = re.compile(r"(?<![\w/.:-])([a-z_]+(?:\.[a-z_]+)+)=")
FOREIGN = {"rl.trian", "reward.custom_reward_function.path", "reward.reward_manager.name"}
"""A mistake that a page explains, and settings of verl."""
FILE = re.compile(rf"(?<![\w/.-])(?:{ROOMS})/[\w./{{}},*-]*\.(?:py|md|yaml|yml|json|sh|sbatch|ipynb|png|jinja)\b")


def links(page):
    for token in tokens(page):
        yield from (token.attrs[name] for name in ("href", "src") if name in token.attrs)
        if token.type in ("html_inline", "html_block"):
            yield from re.findall(r'(?:href|src)="([^"]*)"', token.content)


@functools.cache
def anchors(page):
    """Those that GitHub gives the headings of a page."""
    found = []
    parts = tokens(page)
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
    named = [file for name in FILE.findall(code(page)) if "NAME" not in name for file in alternatives(name)]
    assert not [file for file in named if not any(ROOT.glob(file))]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name_of)
def test_names_of_code_and_settings_on_a_page_are_there(page):
    settings, text = {*config.keys(), *(name for name, _ in config.sections())}, code(page)
    assert not [name for name in {*NAME.findall(text)} - settings - FOREIGN if not resolves(name)]
    tops = {key.partition(".")[0] for key in settings}
    assert not {key for key in KEY.findall(text) if key.partition(".")[0] in tops} - settings - FOREIGN


def resolves(name):
    try:
        return pkgutil.resolve_name(name) is not None
    except (ImportError, AttributeError):
        return False


def test_decisions_have_a_number_each_and_cited_numbers_exist():
    text = (ROOT / "docs/decisions.md").read_text(encoding="utf-8")
    numbers = re.findall(r"^\*\*(\d+)\. ", text, re.MULTILINE)
    assert len(numbers) == len(set(numbers)) == len(re.findall(r"^\*\*", text, re.MULTILINE))
    rooms, endings = ROOMS.replace("\\", "").split("|"), ("py", "yaml", "yml", "toml", "sh")
    patterns = ["*.toml", *(f"{room}/**/*.{ending}" for room in rooms for ending in endings)]
    citation = re.compile(r"\bdecisions?(?:\.md)? (\d+)\b", re.IGNORECASE)
    cited = {
        number: path
        for path in [*PAGES, *(path for pattern in patterns for path in ROOT.glob(pattern))]
        for number in citation.findall(path.read_text(encoding="utf-8"))
    }
    assert cited
    assert not {number: path for number, path in cited.items() if number not in numbers}


def test_contributing_has_every_room_and_every_benchmark():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert not {path.parent.name for path in ROOT.glob("rl/*/__init__.py") if f"`{path.parent.name}/`" not in page}
    scripts = {path.name for path in ROOT.glob("benchmarks/*.py") if "__main__" in path.read_text(encoding="utf-8")}
    assert not {name for name in scripts if f"`{name}`" not in page}


PACKAGES = [
    *("jaxlake", "jaxlake.benchmark", "jaxlake.render", "jaxlake.solve"),
    *("engineer", "engineer.engineers", "engineer.evidence", "rl.model.sampler"),
]


def names(module):
    """Return a module's names for others: its `__all__`, or what it defines."""
    found = importlib.import_module(module)
    own = [name for name, x in vars(found).items() if name.isupper() or getattr(x, "__module__", "") == module]
    return getattr(found, "__all__", own)


def shown():
    """The names that the pages of the reference show."""
    for page in ROOT.glob("docs/api/*.md"):
        for kind, name in re.findall(r"^\.\. auto(\w+):: ([\w.]+)", page.read_text(), re.MULTILINE):
            yield from names(name) if kind == "module" else [name.rpartition(".")[2]]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_in_the_reference(package):
    assert not sorted(set(names(package)) - set(shown()))
