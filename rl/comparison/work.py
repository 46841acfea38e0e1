"""Carries out the legs of a comparison, in one process or beside others that do the same in the same folder."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from jaxlake.files import write_whole
from rl import config as config_
from rl.comparison.config import EvaluationSection, Resolved
from rl.comparison.evaluation import evaluate
from rl.comparison.fork import fork
from rl.comparison.legs import Leg
from rl.config import ConfigError, flat
from rl.rounds import execute
from rl.run.directory import InUse, RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display

PATIENCE = 1.0
"""Seconds between two looks at what other processes do."""


def open_folder(out: Path, comparison: Resolved) -> None:
    """Makes the folder of a comparison, or finds out that it is this one's.

    As long as no leg has begun, as where a mistake was found first, another may take its place.

    Raises:
      ConfigError: if it holds another comparison, or something else.
    """
    target = out / "compare.yaml"
    if not target.exists() and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: not empty and no comparison (it has no compare.yaml); choose another with --out")
    if not (out / "start" / "config.yaml").exists():
        out.mkdir(parents=True, exist_ok=True)
        write_whole(target, yaml.safe_dump(comparison.model_dump(mode="json"), sort_keys=False).encode())
    ours, theirs = _decisive(comparison), _decisive(reopen(out))
    for key in [*ours, *(theirs.keys() - ours.keys())]:
        if ours.get(key) != theirs.get(key):
            raise ConfigError(
                f"{out}: holds another comparison ({key} = {theirs.get(key)} there, {ours.get(key)} here); choose "
                "another folder with --out, or delete this one"
            )


def _decisive(comparison: Resolved) -> dict[str, Any]:
    """By dotted key what its result depends on."""
    names = {"engineers": sorted(comparison.engineers)}
    return names | flat(comparison.model_dump(mode="json"))


def reopen(out: Path) -> Resolved:
    """The comparison that a folder holds.

    Raises:
      ConfigError: if it holds none.
    """
    target = out / "compare.yaml"
    if not target.exists():
        raise ConfigError(f"{out}: no comparison (it has no compare.yaml); python -m rl.compare begins one")
    return config_.validate(Resolved, config_.read(target), str(target))


def carry_out(legs: Sequence[Leg], settings: EvaluationSection, display: Display, stop: Stop) -> None:
    """Does whatever no other process does, until all legs are done, whoever did them.

    Raises:
      ConfigError, RunError: as `rl.train.execute`.
      Interrupted: after a signal, with everything saved.
    """
    pace = Pace(legs)
    while left := [leg for leg in legs if not leg.is_done]:
        if not any(attempt(leg, settings, pace, display, stop) for leg in left if leg.can_begin):
            with stop.at_once():
                time.sleep(PATIENCE)


def attempt(leg: Leg, settings: EvaluationSection, pace: "Pace", display: Display, stop: Stop) -> bool:
    """Does a leg from wherever it stands; False if another process is at it."""
    try:
        if leg.origin and not leg.path.exists():
            with stop.at_once():
                fork(leg, display)
        with contextlib.closing(RunDirectory(leg.path, leg.config)) as directory:
            directory.claim()
            if not leg.is_done:
                display.say(f"\n{leg.path}: {pace}")
                execute(leg.config, directory, display, stop, until=leg.until)
                with stop.at_once():
                    evaluate(leg, settings, display)
    except InUse:
        return False
    return True


class Pace:
    """How far a comparison is, in words, with a guess at the time left once some of it was seen done."""

    def __init__(self, legs: Sequence[Leg]):
        self._legs, self._left = legs, [leg for leg in legs if not leg.is_done]
        self._began, self._before = time.monotonic(), self.done

    @property
    def done(self) -> int:
        """Legs that are done."""
        return sum(leg.is_done for leg in self._legs)

    def news(self) -> list[Leg]:
        """Legs that have become done since the last call."""
        done = [leg for leg in self._left if leg.is_done]
        self._left = [leg for leg in self._left if leg not in done]
        return done

    def __str__(self) -> str:
        done, total = self.done, len(self._legs)
        text = f"{done} of {total} legs done"
        if seen := done - self._before:
            minutes = (time.monotonic() - self._began) / seen * (total - done) / 60
            text += f", about {minutes:.0f} min left" if minutes < 90 else f", about {minutes / 60:.1f} h left"
        return text
