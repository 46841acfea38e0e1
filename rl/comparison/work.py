"""The work on a comparison: its stages run in one process, or beside others that do the same in the same folder."""

import contextlib
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import yaml

from jaxlake.files import write_whole
from rl import config as config_
from rl.comparison.config import EvaluationSection, Resolved
from rl.comparison.evaluation import evaluate
from rl.comparison.fork import fork
from rl.comparison.stages import Stage
from rl.config import ConfigError, decisive, flat
from rl.rounds import execute
from rl.run.directory import InUse, RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display

PATIENCE = 1.0
"""Seconds between two looks at what other processes do."""


def open_folder(out: Path, comparison: Resolved) -> Resolved:
    """Make the folder of a comparison, or check that it is this one's.

    As long as no stage has begun, as where a mistake was found first, another may take its place. After that engineers
    may be added, also to a comparison that is finished: nothing of the others is done again.

    Returns:
      The comparison with the engineers that the folder has besides.

    Raises:
      ConfigError: if it holds another comparison, or something else.
    """
    target = out / "compare.yaml"
    if not target.exists() and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: not empty and no comparison (it has no compare.yaml); choose another with --out")
    if any((out / "start").rglob("config.yaml")):
        there = reopen(out)
        common = there.engineers.keys() & comparison.engineers.keys()
        ours, theirs = (_decisive(one, common) for one in (comparison, there))
        for key in [*ours, *(theirs.keys() - ours.keys())]:
            if ours.get(key) != theirs.get(key):
                raise ConfigError(
                    f"{out}: holds another comparison ({key} = {theirs.get(key)} there, {ours.get(key)} here); choose "
                    "another folder with --out, or delete this one"
                )
        comparison = comparison.model_copy(update={"engineers": there.engineers | comparison.engineers})
    content = yaml.safe_dump(comparison.model_dump(mode="json"), sort_keys=False).encode()
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
    return flat(values | {"run": decisive(values["run"]), "engineers": kept})


def reopen(out: Path) -> Resolved:
    """Read the comparison that a folder holds.

    Raises:
      ConfigError: if it holds none.
    """
    target = out / "compare.yaml"
    if not target.exists():
        raise ConfigError(f"{out}: no comparison (it has no compare.yaml); python -m rl.compare begins one")
    return config_.validate(Resolved, config_.read(target), str(target))


def run_all(stages: Sequence[Stage], settings: EvaluationSection, display: Display, stop: Stop) -> None:
    """Run every stage that no other process runs, until all are done.

    Raises:
      ConfigError, RunError: as `rl.rounds.execute`.
      Interrupted: after a signal, with everything saved.
    """
    pace = Pace(stages)
    while left := [stage for stage in stages if not stage.is_done]:
        if not any(attempt(stage, settings, pace, display, stop) for stage in left if stage.can_begin):
            display.touch()
            with stop.interrupt_immediately():
                time.sleep(PATIENCE)


def attempt(stage: Stage, settings: EvaluationSection, pace: "Pace", display: Display, stop: Stop) -> bool:
    """Run a stage from wherever it stands; False if another process is at it."""
    try:
        if stage.origin and not stage.path.exists():
            with stop.interrupt_immediately():
                fork(stage, stage.origin)
        with contextlib.closing(RunDirectory(stage.path, stage.config)) as directory:
            directory.claim()
            if not stage.is_done:
                display.say(f"\n{stage.path}: {pace}")
                execute(stage.config, directory, display, stop, stop_after=stage.stop_after)
                with stop.interrupt_immediately():
                    evaluate(stage, settings, display, stop)
    except InUse:
        return False
    return True


class Pace:
    """Progress of a comparison in words, with a guess at the time left once some of it was seen done."""

    def __init__(self, stages: Sequence[Stage]):
        self._stages, self._left = stages, [stage for stage in stages if not stage.is_done]
        self._began, self._before = time.monotonic(), self.done

    @property
    def done(self) -> int:
        """Count the stages that are done."""
        return sum(stage.is_done for stage in self._stages)

    def news(self) -> list[Stage]:
        """Return the stages that have become done since the last call."""
        done = [stage for stage in self._left if stage.is_done]
        self._left = [stage for stage in self._left if stage not in done]
        return done

    def __str__(self) -> str:
        done, total = self.done, len(self._stages)
        text = f"{done} of {total} stages done"
        if seen := done - self._before:
            minutes = (time.monotonic() - self._began) / seen * (total - done) / 60
            text += f", about {minutes:.0f} min left" if minutes < 90 else f", about {minutes / 60:.1f} h left"
        return text
