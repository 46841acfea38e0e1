"""States to branch from: short runs of one configuration, each with its own seed, length and engineer."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jaxlake.files import write_whole
from rl import config as config_
from rl.config import Config, ConfigError
from rl.judge.reading_test import write_state
from rl.loop.rounds import execute, past_rounds
from rl.run.directory import RunDirectory
from rl.run.progress import Progress
from rl.run.signals import Stop
from rl.run.tracking import Display

FILE = "states.jsonl"
"""File with a line for each state that was branched from: what an engineer reads there, as values."""
ENGINEERS = ("fixed_random", "uniform", "easy_only", "ladder", "adarft", "learnability", "frontier", "targets_only")
"""Rules that design on the way to a state, in turn, so that states lie on good and on bad ways."""


def need_player(config: Config) -> None:
    """Raise ConfigError unless the student is a player, which trains a branch in seconds."""
    if not config.plays:
        raise ConfigError(
            "student.kind = language: branches are of players; a policy that writes takes minutes for one"
        )


def train_states(config: Config, count: int, out: Path, display: Display, stop: Stop) -> Iterator[Path]:
    """Yield the folders of runs that stand after some round; each is trained when it is asked for and not there yet.

    Run i has the seed i more than the configuration's, an engineer of its own, and stands after one of the first to the
    last but one of its rounds; another count begins with the same runs.

    Raises:
      ConfigError: if there is only one round, after which no engineer designs; see `need_player`.
    """
    need_player(config)
    if config.rounds.count < 2:
        raise ConfigError(f"rounds.count = {config.rounds.count} must be at least 2: designs follow a round")
    for i in range(count):
        rounds = 1 + int(np.random.default_rng([config.seed, i]).integers(config.rounds.count - 1))
        changes = {"seed": config.seed + i, "engineer": {"kind": ENGINEERS[i % len(ENGINEERS)]}}
        values = config_.merge(config.model_dump(mode="json"), changes, "a state")
        path, settings = out / "runs" / f"{i:03d}", config_.validate(Config, values, "a state")
        with contextlib.closing(RunDirectory(path, settings)) as directory:
            saved = directory.checkpoints.progress()
            if saved is None or saved.round < rounds:
                execute(settings, directory, display, stop, stop_after=rounds)
        yield path


def keep_state(out: Path, name: str, progress: Progress) -> None:
    """Add a state to ``states.jsonl`` unless it is there."""
    path = out / FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if name not in (json.loads(line)["name"] for line in lines):
        lines.append(json.dumps(write_state(name, past_rounds(progress))))
        out.mkdir(parents=True, exist_ok=True)
        write_whole(path, ("\n".join(lines) + "\n").encode())
