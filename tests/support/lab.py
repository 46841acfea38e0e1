"""Runs of a network that is too small to learn much, on boards of 3x3 and 4x4."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxlake.config import LakeConfig
from jaxlake.generate import pool
from rl.config import Config, NetworkSection, TurnLearnSection
from rl.loop.rounds import execute
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students.turns.actor import log_probabilities

NETWORK = {"radius": 1, "width": 8}
SMALL = NetworkSection(
    kind="network",
    episode_steps=6,
    environments=8,
    rollout_steps=8,
    updates=2,
    learn=TurnLearnSection(minibatches=2),
    **NETWORK,
)
LAB = {
    "student": SMALL.model_dump(exclude_unset=True),
    "lake": {"kinds": (3, 4)},
    "rounds": {"count": 3, "instances": 16},
    "validation": {"kinds": (4,), "instances": 12, "samples": 2, "holes": (0.0, 0.3)},
    "engineer": {"kind": "learnability"},
}


def boards(count: int = 24):
    """Boards of two and three agents, padded alike, with their least costs."""
    drawn = pool.draw(LakeConfig.uniform(("3", "4x3", "5"), 0.2, 0.2), jax.random.key(0), count)
    return drawn.instances, np.asarray(drawn.solutions.cost)


def batched(tree):
    return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)


@dataclasses.dataclass(frozen=True)
class Linear:
    """An actor whose logits and value are linear in a view of three numbers."""

    chunk: int = 16
    episode_steps: int = SMALL.episode_steps

    def observe(self, state):
        return jnp.stack([state.positions, state.instance.goals, state.time + 0 * state.positions], -1) / 25

    def forward(self, parameters, frozen, view, legal):
        return log_probabilities(view @ parameters["w"], legal), view @ parameters["v"]

    def features(self, view):
        return view

    def adapt(self, optimizer):
        return optax.sgd(0.1)


WEIGHTS = {"w": jax.random.normal(jax.random.key(3), (3, 5)), "v": jnp.array([0.1, -0.2, 0.3])}


def turns(shape) -> dict:
    """Return the values of a run of a language model that plays, of a shape from a file; a rule designs for it."""
    student = SMALL.model_dump(exclude_unset=True, exclude=set(NETWORK))
    model = {"shape": str(shape), "remat": "none"}
    return LAB | {"student": student | {"kind": "player", "chunk": 8, "model": model}}


def whole(folder, config: Config):
    """Runs to the end in a folder, and returns it."""
    directory = RunDirectory(folder, config)
    try:
        with Display(quiet=True) as display:
            execute(config, directory, display, Stop())
    finally:
        directory.close()
    return folder


def content(folder):
    """All that two equal runs have in common, by name."""
    left_out = {"checkpoints", "report", "lock", "timings.jsonl"}
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {str(name): (folder / name).read_bytes() for name in names if not left_out & {*name.parts}}
