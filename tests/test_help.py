"""Every command's --help shows examples, which its own parser takes, and pages show no other commands."""

import argparse
import importlib
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from pages import commands, every_page

from jaxlake.__main__ import COMMANDS as JAXLAKE
from rl import config as config_
from rl.__main__ import COMMANDS as RL
from rl.lab.comparison import load

ROOT = Path(__file__).parents[1]
SCRIPTS = [
    path.relative_to(ROOT).as_posix()
    for folder in ("benchmarks", "notebooks", "studies")
    for path in sorted((ROOT / folder).glob("*.py"))
    if "__main__" in path.read_text()
]
LISTED = re.findall(r"python -m ([a-z]+\.[\w.]+)", "\n".join((JAXLAKE, RL)))
MODULES = sorted(set(LISTED))
EXAMPLES = [f"examples.{path.stem}" for path in (ROOT / "examples").glob("*.py") if "__main__" in path.read_text()]


class Parsed(Exception):
    """Options that a command's own parser made of its arguments, before the command does anything with them."""


def call(command: str, arguments: list[str], monkeypatch) -> None:
    """Runs a command in this process as it is run from a shell."""
    monkeypatch.setattr(sys, "argv", [command, *arguments])
    if command.endswith(".py"):
        monkeypatch.syspath_prepend(str((ROOT / command).parent))
        runpy.run_path(str(ROOT / command), run_name="__main__")
    else:
        package = importlib.import_module(command)
        entry = importlib.import_module(f"{command}.__main__") if hasattr(package, "__path__") else package
        entry.main()


def help_of(command: str, monkeypatch, capsys) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as exit:
        call(command, ["--help"], monkeypatch)
    assert not exit.value.code
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def settings_of_jax_as_before(monkeypatch):
    """Some benchmarks choose the CPU, or a share of the memory, when they are imported."""
    import jax

    platforms = jax.config.jax_platforms
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", ".75")
    yield
    jax.config.update("jax_platforms", platforms)


@pytest.mark.parametrize("command", [*MODULES, *SCRIPTS, *EXAMPLES])
def test_examples_of_a_help_are_parsed(command, monkeypatch, capsys):
    text = help_of(command, monkeypatch, capsys)
    name = f"python {command}" if command.endswith(".py") else f"python -m {command}"
    _, _, block = text.partition("\nexamples:\n")
    examples = [line for line in block.splitlines() if re.match(rf"  (echo .* \| )?{re.escape(name)}( |$)", line)]
    assert examples
    for example in examples:
        options = parse(command, shlex.split(example.partition(name)[2]), monkeypatch)
        if overrides := getattr(options, "overrides", None):
            read = load if command == "rl.compare" else config_.load
            shipped = "compare/tiny.yaml" if command == "rl.compare" else "tiny.yaml"
            assert read(ROOT / (options.config or f"configs/{shipped}"), overrides)


def parse(command: str, arguments: list[str], monkeypatch) -> argparse.Namespace:
    """Returns what a command's own parser makes of its arguments."""

    def stops(parse):
        def parse_and_stop(self, args=None, namespace=None):
            raise Parsed(parse(self, args, namespace))

        return parse_and_stop

    with monkeypatch.context() as patch:
        for method in ("parse_args", "parse_known_intermixed_args"):
            patch.setattr(argparse.ArgumentParser, method, stops(getattr(argparse.ArgumentParser, method)))
        with pytest.raises(Parsed) as parsed:
            call(command, arguments, patch)
    (found,) = parsed.value.args
    options, unknown = found if isinstance(found, tuple) else (found, [])
    assert not unknown
    return options


@every_page
def test_commands_on_a_page_are_parsed(page, monkeypatch):
    for line in commands(page):
        command, *arguments = shlex.split(line.removeprefix("-m "), comments=True)
        assert command in (*MODULES, *SCRIPTS, *EXAMPLES), line
        if "--help" not in arguments:
            parse(command, arguments, monkeypatch)


def test_the_lists_of_commands_hold_them_all():
    found = set()
    for room in ("jaxlake", "engineer", "rl"):
        for path in (ROOT / room).rglob("*.py"):
            if '__name__ == "__main__"' in path.read_text():
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                found.add(name.removesuffix(".__main__"))
    assert found - {"jaxlake", "engineer", "rl"} == set(MODULES)


def test_every_key_of_a_run_has_a_meaning_in_its_help(monkeypatch, capsys):
    text = help_of("rl.train", monkeypatch, capsys)
    for key, field in config_.keys().items():
        assert f"\n  {key} = " in text
        assert field.description, key
