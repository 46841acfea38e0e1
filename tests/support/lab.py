"""Runs of a network that is too small to learn much, on boards of 3x3 and 4x4."""

from rl.config import Config, NetworkSection
from rl.rounds import execute
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display

SMALL = NetworkSection(radius=1, width=8, episode_steps=6, environments=8, rollout_steps=8, updates=2, minibatches=2)
LAB = {
    "student": {"kind": "network", "network": SMALL.model_dump()},
    "lake": {"kinds": (3, 4)},
    "warm_start": {"steps": 0},
    "rounds": {"count": 3, "instances": 16},
    "validation": {"kinds": (4,), "instances": 12, "samples": 2, "holes": (0.0, 0.3)},
    "engineer": {"kind": "learnability"},
}


def whole(folder, config: Config):
    """Runs to the end in a folder, and returns it."""
    directory = RunDirectory(folder, config)
    try:
        with Display(quiet=True) as display:
            execute(config, directory, display, Stop())
    finally:
        directory.close()
    return folder
