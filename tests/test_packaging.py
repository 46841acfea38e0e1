"""What a package index, Colab and a workflow read: each says the same, and bounds let in what people already have."""

import os
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import jaxlake

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
TRAINER = tomllib.loads((ROOT / "rl" / "pyproject.toml").read_text())["project"]
COLAB = dict(line.split("==") for line in (ROOT / ".ci" / "colab.txt").read_text().splitlines() if "==" in line)


def requirements(*extras: str) -> list[Requirement]:
    optional = PROJECT["optional-dependencies"]
    return [
        Requirement(line) for line in [*PROJECT["dependencies"], *(line for name in extras for line in optional[name])]
    ]


def test_colab_keeps_what_it_comes_with():
    ours = {one.name: one for one in requirements("train", "draw")}
    assert not {name for name, version in COLAB.items() if name in ours and version not in ours[name].specifier}
    assert not ours.keys() - COLAB.keys() - {"llguidance", "jaxlake"}  # what Colab does not have


def test_every_dependency_has_a_lowest_version():
    grouped = [Requirement(line) for group in GROUPS.values() for line in group if isinstance(line, str)]
    free = {one.name for one in [*requirements(*PROJECT["optional-dependencies"]), *grouped] if not one.specifier}
    assert free <= {"jaxlake", "jax", "libtpu"}  # jax[cuda12] and jax[tpu], which are bounded by jax


def test_the_lowest_versions_are_those_of_all_that_the_tests_need():
    """`lowest-direct` reads the extras of the project that is named, and not of the group's own requirement."""
    [extras] = [one.extras for line in GROUPS["test"] if isinstance(line, str) and (one := Requirement(line)).extras]
    assert f"'.[{','.join(sorted(extras))}]'" in (ROOT / ".ci" / "versions").read_text()


def test_version_and_address_are_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert jaxlake.__version__ == metadata.version("jaxlake") == TRAINER["version"] == citation["version"]
    assert jaxlake.__version__ in changes
    assert citation["repository-code"] == PROJECT["urls"]["Repository"] == TRAINER["urls"]["Repository"]
    assert citation["authors"] == PROJECT["authors"] == TRAINER["authors"]
    assert citation["license"] == PROJECT["license"] == TRAINER["license"]


def test_the_trainer_is_for_the_environment_of_the_same_version_and_python():
    assert TRAINER["dependencies"] == [f"jaxlake[train]=={jaxlake.__version__}"]
    assert TRAINER["requires-python"] == PROJECT["requires-python"]


@pytest.mark.parametrize("form", sorted(ROOT.glob("integrations/*/pyproject.toml")), ids=lambda path: path.parent.name)
def test_a_form_for_a_hub_is_for_this_environment_and_has_what_its_tests_need(form):
    project = tomllib.loads(form.read_text())["project"]
    ours = {Requirement(line).name: Requirement(line) for line in project["dependencies"]}
    assert jaxlake.__version__ in ours["jaxlake"].specifier
    assert all(one.specifier for one in ours.values())
    assert "pytest" in {Requirement(line).name for line in project["optional-dependencies"]["test"]}
    assert project["license"] == PROJECT["license"] and project["urls"]["Repository"] == PROJECT["urls"]["Repository"]
    assert form.with_name("README.md").exists() and list(form.parent.glob("tests/test_*.py"))


@pytest.mark.parametrize(
    "name, expected",
    [("ci", {"run", "heavy", "benchmarks", "matrix", "versions"}), ("release", {"matrix"})],
)
def test_the_workflow_calls_scripts_that_are_there(name, expected):
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    scripts = {found for command in commands for found in re.findall(r"\.ci/(\w+)", command)}
    assert scripts == expected
    assert all(os.access(ROOT / ".ci" / script, os.X_OK) for script in scripts)
