"""Keys of every draw of a run, from its seed, what is drawn, the round and the step alone."""

import enum

import jax

from jaxlake.arguments import seed_key


class Purpose(enum.IntEnum):
    """Use of a key; part of the key, so that no two draws share one."""

    PARAMETERS = 0
    VALIDATION_SET = 1
    WARM_START_SET = 2
    WARM_START_STEP = 3
    VALIDATE = 4
    DESIGN = 5
    BUILD = 6
    ORDER = 7
    ROLLOUT = 8
    BRANCH = 9
    REHEARSAL = 10


def make_key(seed: int, purpose: Purpose, round: int = 0, step: int = 0) -> jax.Array:
    """Return the key of one draw, from these numbers alone.

    So a run has no state of a random generator to save: resumed, it draws what an unbroken one would.
    """
    return jax.random.fold_in(make_round_key(seed, purpose, round), step)


def make_round_key(seed: int, purpose: Purpose, round: int = 0) -> jax.Array:
    """Return the key from which `make_key` makes those of a round's steps."""
    return jax.random.fold_in(jax.random.fold_in(seed_key(seed), purpose), round)
