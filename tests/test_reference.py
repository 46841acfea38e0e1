"""Every public name has a docstring, and a place in the reference that is built from it."""

import ast
import functools
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


@functools.cache
def statements(module):
    """Those at the top of a module."""
    path = ROOT.joinpath(*module.split("."))
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()).body


def name_of(statement):
    """What a statement defines."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        return getattr(target, "id", None)
    return getattr(statement, "name", None)


def names(module):
    """What a module has for others: as it says itself, or what it defines."""
    for statement in statements(module):
        if name_of(statement) == "__all__":
            return ast.literal_eval(statement.value)
    return [name_of(statement) for statement in statements(module)]


def definition(module, name):
    """The statement that defines a name, and the one after it, in which a constant is described."""
    body = statements(module)
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.ImportFrom) and name in (alias.name for alias in statement.names):
            return definition(statement.module, name)
        if name_of(statement) == name:
            return statement, after
    raise LookupError(f"{module} does not define {name}")


def undocumented(module, name):
    """The name, if it has no docstring, and its methods that have none."""
    defined, after = definition(module, name)
    if isinstance(defined, ast.Assign | ast.AnnAssign):
        described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    else:
        described = ast.get_docstring(defined)
    yield from [] if described else [name]
    for member in defined.body if isinstance(defined, ast.ClassDef) else ():
        if isinstance(member, ast.FunctionDef) and member.name[0] != "_" and not ast.get_docstring(member):
            yield f"{name}.{member.name}"


def shown():
    """The names that the pages of the reference show."""
    for page in ROOT.glob("docs/api/*.md"):
        for kind, name in re.findall(r"^\.\. auto(\w+):: ([\w.]+)", page.read_text(), re.MULTILINE):
            yield from names(name) if kind == "module" else [name.rpartition(".")[2]]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_and_their_methods_say_what_they_are(package):
    assert not [missing for name in names(package) for missing in undocumented(package, name)]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_in_the_reference(package):
    assert not sorted(set(names(package)) - set(shown()))
