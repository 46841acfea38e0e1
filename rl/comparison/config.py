"""The file of a comparison: which engineers, which seeds, on which run configuration, and what is asked in the end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

import pydantic
from pydantic import Field

from rl import config as config_
from rl import engineer_factory
from rl.config import Config, ConfigError, Count, Section, Values
from rl.config.sections import once_each

Seed = Annotated[int, Field(ge=0, lt=2**31)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w+.-]*$", description="a folder's name")]


class EvaluationSection(Section):
    """The held-out boards that every policy answers in the end, greedily, and how often it is sampled besides."""

    per_slice: Count | None = Field(
        None, description="boards of each number of agents, size and wait subset of the fixed suites; null: all"
    )
    samples: Annotated[int, Field(ge=0)] = Field(0, description="sampled answers to each; 0: none")
    max_new_tokens: Count = Field(80, description="room for an answer")


class Comparison(Section):
    """A comparison as its file has it, with nothing resolved.

    Attributes:
      base: file of the run configuration that all share, see `rl.config.build`.
      overrides: of its values, in the form of a run configuration.
      engineers: by name, values of the section `engineer`.
    """

    base: str
    overrides: Values = {}
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1), once_each("seed")] = (0, 1, 2, 3, 4)
    baseline: str = Field("fixed_random", description="the engineer that the others are measured against")
    engineers: dict[Name, Values] = Field(min_length=1)
    evaluation: EvaluationSection = EvaluationSection()

    @pydantic.model_validator(mode="after")
    def _baseline_is_there(self) -> Self:
        if self.baseline not in self.engineers:
            raise ValueError(f"baseline = {self.baseline}: must be one of the engineers: {', '.join(self.engineers)}")
        return self


class Resolved(Section):
    """A comparison with every value that decides on its result; what `compare.yaml` in its folder holds.

    Attributes:
      run: the configuration that all engineers share; its seed is the warm start's.
      engineers: as the file has them, what each changes of `run.engineer`.
    """

    seeds: tuple[Seed, ...]
    baseline: str
    engineers: dict[Name, Values]
    evaluation: EvaluationSection
    run: Config

    def arm(self, engineer: str, seed: int) -> Config:
        """Return the configuration of one engineer's run with one seed."""
        return self._with_engineer(self.engineers[engineer], f"engineers.{engineer}", seed)

    def prefix(self, seed: int, kind: str) -> Config:
        """Return the configuration of what all engineers share; there `kind` decides only on what is kept for later."""
        return self._with_engineer({"kind": kind}, "the part that all share", seed)

    def _with_engineer(self, values: Values, source: str, seed: int) -> Config:
        run = self.run.model_dump(mode="json")
        return config_.validate(Config, config_.merge(run, {"seed": seed, "engineer": values}, source), source)


def load(path: Path, overrides: Sequence[str] = ()) -> Resolved:
    """Read the file of a comparison and of the run that it builds on.

    Args:
      overrides: of the comparison's values, such as ``seeds=[0,1]`` or ``overrides.rounds.instances=480``.

    Raises:
      ConfigError: naming the file, the key, its value and what it must be; one line.
    """
    values = config_.read(path)
    if "engineers" not in values:
        raise ConfigError(f"{path}: no comparison, as it has no engineers; the file of a run is for python -m rl.train")
    asked = config_.validate(Comparison, config_.override(values, overrides), str(path))
    try:
        run = config_.build({"base": asked.base, **asked.overrides}, path, source="overrides")
        resolved = Resolved(
            seeds=asked.seeds,
            baseline=asked.baseline,
            engineers=asked.engineers,
            evaluation=asked.evaluation,
            run=config_.validate(Config, run, "overrides"),
        )
        for engineer in asked.engineers:
            engineer_factory.check(resolved.arm(engineer, asked.seeds[0]))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return resolved
