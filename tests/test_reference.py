"""Every public name has a place in the reference that is built from its docstring, which ruff asks for."""

import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = [
    "jaxlake",
    "jaxlake.benchmark",
    "jaxlake.render",
    "jaxlake.solve",
    "engineer",
    "engineer.engineers",
    "engineer.evidence",
    "rl.grpo",
    "rl.sampler",
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
