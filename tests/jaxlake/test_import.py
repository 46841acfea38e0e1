"""The bare install is jax, chex and numpy: what `import jaxlake` pulls in, and what it costs."""

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import jaxlake


def printed_by(program: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


def loaded_by(modules: str) -> set[str]:
    return set(printed_by(f"import sys, {modules}; print(*{{name.partition('.')[0] for name in sys.modules}})"))


@pytest.mark.heavy
def test_importing_the_environment_imports_no_more_than_jax_chex_and_numpy():
    added = loaded_by("jaxlake") - loaded_by("jax, chex, numpy") - sys.stdlib_module_names
    assert added == {"jaxlake"}


def public_names(module: ModuleType) -> list[str]:
    """The names that a module lists, or, where it lists none, those that it defines."""
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return getattr(module, "__all__", [name for name in defined if not name.startswith("_")])


def test_what_a_function_hides_in_the_module_of_its_name_is_at_the_top():
    names = {module.name for module in pkgutil.iter_modules(jaxlake.__path__)} - {"__main__"}
    modules = {name: importlib.import_module(f"jaxlake.{name}") for name in names}
    hidden = {name: module for name, module in modules.items() if getattr(jaxlake, name) is not module}
    assert hidden.keys() == {"generate", "solve", "verify"}
    for function, module in hidden.items():
        assert function in public_names(module)
        for name in public_names(module):
            assert getattr(jaxlake, name) is getattr(module, name)
