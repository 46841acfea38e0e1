"""Runs of a network that is too small to learn much, on boards of 3x3 and 4x4."""

from rl.config import Config, NetworkSection, PPOSection
from rl.loop.rounds import execute
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display

SMALL = PPOSection(episode_steps=6, environments=8, rollout_steps=8, updates=2, minibatches=2)
NETWORK = NetworkSection(radius=1, width=8)
LAB = {
    "student": {"kind": "player", "ppo": SMALL.model_dump(), "network": NETWORK.model_dump()},
    "lake": {"kinds": (3, 4)},
    "warm_start": {"steps": 0},
    "rounds": {"count": 3, "instances": 16},
    "validation": {"kinds": (4,), "instances": 12, "samples": 2, "holes": (0.0, 0.3)},
    "engineer": {"kind": "learnability"},
}


def turns(shape) -> dict:
    """Return the values of a run of a language model that plays, of a shape from a file; a rule designs for it."""
    student = {"kind": "player", "ppo": SMALL.model_dump(), "actor": "language", "turns": {"chunk": 8}}
    return LAB | {"student": student, "model": {"shape": str(shape), "remat": "none"}}


def whole(folder, config: Config):
    """Runs to the end in a folder, and returns it."""
    directory = RunDirectory(folder, config)
    try:
        with Display(quiet=True) as display:
            execute(config, directory, display, Stop())
    finally:
        directory.close()
    return folder
