"""A comparison of engineers: its file, with engineers, seeds and the run configuration of all, and its folder."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic
from pydantic import Field

from jaxlake.files import write_whole
from rl import config as config_
from rl.config import Config, ConfigError, Count, Section, Seed, Values, decisive, flat, refuse_difference
from rl.config.choices import LanguageKind
from rl.loop import engineer_factory

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w+.-]*$", description="a folder's name")]


class EvaluationSection(Section):
    """The held-out boards that every policy answers in the end, greedily, and how often it is sampled besides."""

    per_slice: Count | None = Field(
        None, description="boards of each number of agents, size and wait subset of the fixed suites; null: all"
    )
    samples: Annotated[int, Field(ge=0)] = Field(0, description="sampled answers to each; 0: none")
    max_new_tokens: Count = Field(80, description="room for an answer")


class _Shared(Section):
    """The part of a comparison that is the same in its file and in its folder."""

    seeds: tuple[Seed, ...] = Field((0, 1, 2, 3, 4), min_length=1)
    shared_rounds: Count = Field(
        1, description="first rounds of each seed, which all engineers share; overrides.engineer designs those after 0"
    )
    baseline: str = Field("fixed_random", description="the engineer that the others are measured against")
    engineers: dict[Name, Values] = Field(min_length=1)
    evaluation: EvaluationSection = EvaluationSection()


class Comparison(_Shared):
    """A comparison as its file describes it, with nothing resolved.

    Attributes:
      base: file of the run configuration that all share, see `rl.config.build`.
      overrides: changes of its values, in the form of a run configuration.
      engineers: values of the section `engineer` by the engineer's name.
    """

    base: str
    overrides: Values = {}

    @pydantic.model_validator(mode="after")
    def _counts_each_run_once(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds must hold each seed at most once")
        if self.baseline not in self.engineers:
            raise ValueError(f"baseline = {self.baseline}: must be one of the engineers: {', '.join(self.engineers)}")
        return self


class Resolved(_Shared):
    """A comparison with every value that decides on its result: the content of `compare.yaml` in its folder.

    Attributes:
      run: the configuration that all engineers share; its seed is the warm start's, and its engineer designs the shared
        rounds after round 0.
      engineers: each engineer's changes of `run.engineer`, as the file has them.
      sources: what they depend on behind their settings, see `rl.loop.engineer_factory.check`.
    """

    run: Config
    sources: dict[str, str] = {}

    def configure(self, engineer: str, seed: int) -> Config:
        """Return the configuration of one engineer's run with one seed."""
        return self._with_engineer(self.engineers[engineer], f"engineers.{engineer}", seed)

    def configure_shared(self, seed: int) -> Config:
        """Return the configuration of the part that all engineers share.

        Its engineer is the run's. If it designs no round there, it is `base` where another needs what this one keeps.
        """
        kind = self.run.engineer.kind
        for engineer in () if self.run.needs_reference else self.engineers:
            if self.configure(engineer, seed).needs_reference:
                if self.shared_rounds > 1:
                    raise ConfigError(
                        f"engineers.{engineer}: kind = base needs shared_rounds = 1, not {self.shared_rounds}, or "
                        f"overrides.engineer.kind = base: {kind} does not keep the policy that base designs with"
                    )
                kind = LanguageKind.BASE
        return self._with_engineer({"kind": kind}, "the part that all share", seed)

    def _with_engineer(self, values: Values, source: str, seed: int) -> Config:
        run = self.run.model_dump(mode="json")
        config = config_.validate(Config, config_.merge(run, {"seed": seed, "engineer": values}), source)
        return config.model_copy(update={"engineer": engineer_factory.pin_model(config.engineer, self.sources)})


def load(path: Path, overrides: Sequence[str] = ()) -> Resolved:
    """Read the file of a comparison and of the run that it builds on; ConfigError, in one line, for a mistake.

    Args:
      overrides: changes of the comparison's values, such as ``seeds=[0,1]`` or ``overrides.rounds.instances=480``.
    """
    values = config_.read(path)
    if "engineers" not in values:
        raise ConfigError(f"{path}: no comparison, as it has no engineers; the file of a run is for python -m rl.train")
    comparison = config_.validate(Comparison, config_.override(values, overrides), str(path))
    try:
        run = config_.build({"base": comparison.base, **comparison.overrides}, path)
        shared = {name: getattr(comparison, name) for name in _Shared.model_fields}
        resolved = Resolved(run=config_.validate(Config, run, "overrides"), **shared)
        rounds, count, seed = resolved.shared_rounds, resolved.run.rounds.count, comparison.seeds[0]
        if rounds > max(1, count - 1):
            raise ConfigError(
                f"shared_rounds = {rounds}: must be less than rounds.count = {count}, so that engineers design a round"
            )
        sources = engineer_factory.check(resolved.configure_shared(seed))
        for engineer in comparison.engineers:
            sources |= engineer_factory.check(resolved.configure(engineer, seed))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return resolved.model_copy(update={"sources": sources})


def open_folder(out: Path, comparison: Resolved) -> Resolved:
    """Make the folder of a comparison, or check that it is this one's; else ConfigError.

    As long as no run has begun, as where a mistake was found first, another may take its place. After that engineers
    may be added, also to a comparison that is finished: nothing of the others is done again.

    Returns:
      The comparison with the engineers that the folder has besides.
    """
    target = out / "compare.yaml"
    if not target.exists() and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: not empty and no comparison (it has no compare.yaml); choose another with --out")
    if any((out / "start").rglob("config.yaml")):
        begun = reopen(out)
        common = begun.engineers.keys() & comparison.engineers.keys()
        pinned = {name: x for name, x in begun.sources.items() if x.startswith("revision ")}
        engineers, sources = begun.engineers | comparison.engineers, begun.sources | comparison.sources | pinned
        begun = begun.model_copy(update={"sources": sources | begun.sources})
        comparison = comparison.model_copy(update={"engineers": engineers, "sources": sources})
        was, now = (_decisive(one, common) for one in (begun, comparison))
        refuse_difference(out, was, now, "choose another folder with --out, or delete this one")
    content = comparison.to_yaml().encode()
    if not target.exists() or target.read_bytes() != content:
        out.mkdir(parents=True, exist_ok=True)
        write_whole(target, content)
    return comparison


def _decisive(comparison: Resolved, engineers: Collection[str]) -> dict[str, Any]:
    """Return by dotted key the values that the results of these engineers depend on, see `rl.config.decisive`."""
    values = comparison.model_dump(mode="json")
    kept = {
        name: {key: value for key, value in comparison.engineers[name].items() if key != "api"}
        for name in sorted(engineers)
    }
    shared = comparison.configure_shared(comparison.seeds[0]).engineer.kind  # which depends on all engineers
    return flat(values | {"run": decisive(values["run"]), "engineers": kept, "the shared part's engineer.kind": shared})


def reopen(out: Path) -> Resolved:
    """Read the comparison that a folder holds; ConfigError if it holds none."""
    target = out / "compare.yaml"
    if not target.exists():
        raise ConfigError(f"{out}: no comparison (it has no compare.yaml); python -m rl.compare begins one")
    return config_.validate(Resolved, config_.read(target), str(target))
