"""What an actor of turns must do, checked on the first states of some boards."""

import jax
import numpy as np

from jaxlake.env import Lake
from jaxlake.state import DEFAULT_PARAMS
from jaxlake.testing import BOARD, bank


def check_actor(actor, parameters, frozen=None, levels=None, tolerance=1e-4):
    """Check that it is hashable and gives probabilities, none to illegal actions, and a value, to each view alone."""
    assert hash(actor) == hash(actor) and actor == actor, "the actor must be hashable, as programs are kept by it"
    lake = Lake(holes="fall", conflicts="end", observe=actor.observe)
    levels = bank(BOARD) if levels is None else levels
    _, first = jax.jit(jax.vmap(lambda board: lake.reset(board, DEFAULT_PARAMS)))(levels.instances)
    view, legal = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (first.observation, first.legal_actions))
    forward = jax.jit(actor.forward)
    logs, value = forward(parameters, frozen, view, legal)
    assert logs.shape == legal.shape and value.shape == legal.shape[:-1] and np.isfinite(value).all()
    probabilities = np.exp(np.asarray(logs, np.float64))

    def near(ours, expected, what):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance, err_msg=what)

    near(probabilities.sum(axis=-1), np.ones(len(legal)), "sum of the probabilities")
    near(np.where(legal, 0, probabilities), np.zeros(legal.shape), "probability of illegal actions")
    for row in range(len(legal)):
        alone = forward(parameters, frozen, *jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], (view, legal)))
        near(np.exp(np.asarray(alone[0], np.float64))[0], probabilities[row], f"probabilities of view {row} alone")
        near(alone[1][0], value[row], f"value of view {row} alone")
