"""The file of a comparison: which engineers, which seeds, on which run configuration, and what is asked in the end."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import Field

from rl import config as config_
from rl import engineering
from rl.command import shipped
from rl.config import Config, ConfigError, Count, Section
from rl.provenance import CHANGED, comments, flat, provenance

Seed = Annotated[int, Field(ge=0, lt=2**31)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w+.-]*$", description="a folder's name")]
Values = dict[str, Any]


class EvaluationSection(Section):
    """The held-out boards that every policy answers in the end, greedily, and how often it is sampled beside that."""

    per_slice: Count | None = Field(
        None, description="boards of each number of agents, size and wait subset of the fixed suites; null: all"
    )
    samples: Annotated[int, Field(ge=0)] = Field(0, description="sampled answers to each; 0: none")
    max_new_tokens: Count = Field(80, description="room for an answer")


class Comparison(Section):
    """A comparison as its file has it, with nothing resolved.

    Attributes:
      base: file of the run configuration that all share: beside this file, or a shipped one.
      overrides: of its values, in the form of a run configuration.
      engineers: by name, values of the section `engineer`.
    """

    base: str
    overrides: Values = {}
    seeds: tuple[Seed, ...] = Field((0, 1, 2, 3, 4), min_length=1)
    baseline: str = Field("fixed_random", description="the engineer that the others are measured against")
    engineers: dict[Name, Values] = Field(min_length=1)
    evaluation: EvaluationSection = EvaluationSection()

    @pydantic.field_validator("seeds")
    @classmethod
    def _once_each(cls, seeds):
        if len(set(seeds)) < len(seeds):
            raise ValueError("each seed at most once")
        return seeds

    @pydantic.model_validator(mode="after")
    def _baseline_is_there(self):
        if self.baseline not in self.engineers:
            raise ValueError(f"baseline = {self.baseline}: must be one of the engineers: {', '.join(self.engineers)}")
        return self


class Resolved(Section):
    """A comparison with every value that decides on its result; what `compare.yaml` in its folder holds.

    Attributes:
      run: the configuration that all engineers share; its seed is the warm start's.
      engineers: as the file has them, what each changes of `run.engineer`.
      origins: of the values of `run` and of `engineers`, by dotted key, see `rl.provenance`; {} if not noted.
    """

    seeds: tuple[Seed, ...]
    baseline: str
    engineers: dict[Name, Values]
    evaluation: EvaluationSection
    run: Config
    origins: dict[str, str] = {}

    def arm(self, engineer: str, seed: int) -> Config:
        """The configuration of one engineer's run with one seed."""
        return self._with_engineer(self.engineers[engineer], f"engineers.{engineer}", seed)

    def prefix(self, seed: int, kind: str) -> Config:
        """That of what all engineers share: their kind decides on nothing there but what is kept for later."""
        return self._with_engineer({"kind": kind}, "the part that all share", seed)

    def origins_of(self, engineer: str | None = None) -> dict[str, str]:
        """Those of the values of one engineer's runs, or of the part that all share."""
        own = f"engineers.{engineer}."
        shared = {key: origin for key, origin in self.origins.items() if not key.startswith("engineers.")}
        return shared | {
            f"engineer.{key.removeprefix(own)}": origin for key, origin in self.origins.items() if key.startswith(own)
        }

    def _with_engineer(self, values: Values, source: str, seed: int) -> Config:
        run = self.run.model_dump(mode="json")
        return config_.validate(Config, merged(run, {"seed": seed, "engineer": values}, source), source)


def load(path: Path, overrides: Sequence[str] = ()) -> Resolved:
    """Reads the file of a comparison and of the run that it rests on.

    Args:
      overrides: of the comparison's values, such as ``seeds=[0,1]`` or ``overrides.rounds.instances=480``.

    Raises:
      ConfigError: naming the file, the key, its value and what is allowed; one line.
    """
    values = config_.read(path)
    if "base" not in values:
        raise ConfigError(f"{path}: no comparison, as it has no base; the file of a run is for python -m rl.train")
    found = config_.validate(Comparison, config_.override(values, overrides), str(path))
    beside, ours = path.parent / found.base, shipped(found.base)
    base = ours if ours.exists() and not beside.exists() else beside
    try:
        run = config_.validate(Config, merged(config_.read(base), found.overrides, "overrides"), "overrides")
        resolved = Resolved(
            seeds=found.seeds,
            baseline=found.baseline,
            engineers=found.engineers,
            evaluation=found.evaluation,
            run=run,
            origins=provenance(base, run, shipped("tiny.yaml")) | _accounted(path, found),
        )
        for engineer in found.engineers:
            engineering.check(resolved.arm(engineer, found.seeds[0]))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return resolved


def _accounted(path: Path, found: Comparison) -> dict[str, str]:
    """Where the values come from that the comparison gives a run: as its file says, or changed by the command line."""
    said, before = comments(path.read_text()), flat(config_.read(path))
    given = flat({"overrides": found.overrides, "engineers": found.engineers})
    origins = {key: said.get(key, CHANGED) if before.get(key) == value else CHANGED for key, value in given.items()}
    return {key.removeprefix("overrides."): origin for key, origin in origins.items()}


def merged(values: Mapping[str, Any], changes: Mapping[str, Any], source: str) -> Values:
    """Values of a configuration with some of them changed; sections are gone into, anything else is replaced.

    Raises:
      ConfigError: if a section is given one value, or a key is dotted.
    """
    found = copy.deepcopy(dict(values))
    for name, value in changes.items():
        if "." in name:
            raise ConfigError(f"{source}: {name} is no key; sections are nested, such as rounds: {{count: 3}}")
        if isinstance(found.get(name), dict):
            if not isinstance(value, dict):
                raise ConfigError(f"{source}: {name} is a section, and {value!r} no section's values")
            found[name] = merged(found[name], value, f"{source}.{name}")
        else:
            found[name] = value
    return found
