"""Rewards of agents, and the value of a whole plan (``accuracy``).

A stepwise reward is a function from a ``Transition`` to float32 ``[max_agents]``, 0 for absent agents, and one of your
own is any such function. The environment zeroes it after the end of an episode.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array
from jaxlake.state import LifelongState, Transition
from jaxlake.types import ABSENT


def sparse(transition: Transition) -> jax.Array:
    """Reward 1 for each agent in the step that solves the episode, else 0; ValueError in a lifelong episode."""
    _check_has_end(transition, "sparse")
    there = transition.after.positions != ABSENT
    return (there & transition.info.solved).astype(jnp.float32)


def cost(transition: Transition) -> jax.Array:
    """Reward -1 for each agent whose step does not begin and end on its goal; they sum to minus the ``sum_of_loss``.

    ValueError in a lifelong episode.
    """
    _check_has_end(transition, "cost")
    return jnp.asarray(transition.before.losses - transition.after.losses, jnp.float32)


def reached(transition: Transition) -> jax.Array:
    """Reward 1 for each agent that reaches a goal in this step of a lifelong episode, in which it gets another one.

    In a classic episode it pays each step that ends on the goal.
    """
    return jnp.asarray(transition.info.arrived, jnp.float32)


def shaped(scale: float = 0.1, discount: float = 1.0) -> Callable[[Transition], jax.Array]:
    """Make a reward of ``sparse`` and ``scale`` times the decrease of the agent's shortest-path distance to its goal.

    The added term is ``discount * potential(after) - potential(before)`` with ``-scale * distance`` as potential, so
    in a classic episode it leaves the optimal policies of an agent with that discount as they are (Ng et al. 1999). A
    step to or from a cell that the goal cannot be reached from, such as a hole, is not shaped. In a lifelong episode
    ``reached`` takes the place of ``sparse``, and each goal has its own potential, which ends with it. There the term
    may change the optimal policies: each goal pays its first distance once more.

    Returns:
      A reward that raises ValueError if the state holds no distances.
    """

    return _Shaped(scale, discount)


def accuracy(valid: Array, cost: Array, optimum: Array) -> np.ndarray:
    """Return R_acc of each answer (paper, reward; as reconstructed).

    0 unless all checks pass; with c = cost - optimum and c_max = 2 * optimum: 1 - 0.7 * c / c_max up to c_max, 0.3
    beyond. An optimum of 0 (every agent starts on its goal) leaves 1 for cost 0 and 0.3 for any other.

    Args:
      valid: bool ``[...]``.
      cost, optimum: int ``[...]``, time steps.

    Returns:
      float32 ``[...]`` in [0, 1].
    """
    excess = cost - optimum
    share = np.where(excess > 0, excess / np.maximum(2 * optimum, 1), 0.0)
    graded = np.where((excess <= 2 * optimum) | (excess <= 0), 1 - 0.7 * share, 0.3)
    return np.where(valid, graded, 0.0).astype(np.float32)


def _check_has_end(transition: Transition, name: str) -> None:
    if isinstance(transition.after, LifelongState):
        raise ValueError(f"rewards.{name} needs an end, which a lifelong episode does not have: use rewards.reached")


@dataclasses.dataclass(frozen=True)
class _Shaped:
    """Not a closure, so that lakes with the same shaping are equal, which saves compiling anew, and can be pickled."""

    scale: float
    discount: float

    def __call__(self, transition: Transition) -> jax.Array:
        old = transition.before  # whose goals count for both states, also in the step that reaches one
        before, after = (
            old._steps_to_goals(jnp.maximum(state.positions, 0)[:, None], mode=None)[:, 0].astype(jnp.float32)
            for state in (transition.before, transition.after)
        )
        known = (transition.after.positions != ABSENT) & (before != ABSENT) & (after != ABSENT)
        paid = reached if isinstance(old, LifelongState) else sparse
        return paid(transition) + jnp.where(known, self.scale * (before - self.discount * after), 0)
