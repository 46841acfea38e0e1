"""The actor of a player: the function from views to moves that is trained, and its computation in chunks."""

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxlake import rewards
from jaxlake.env import Lake
from jaxlake.record import Array
from jaxlake.rules import ConflictRule, HoleRule
from jaxlake.state import State, Transition
from rl.config import extensions

_NEVER = -1e9


class Actor(Hashable, Protocol):
    """The static half of who plays: hashable, so that equal actors share their programs.

    **What you write**: the members below, and a subclass of `PlayerStudent` that makes, restores and saves parameters.

    **What you get**: `decide`, the trainer (`rl.students.turns.trainer`), evidence, validation and branches
    (`PlayerStudent`).

    Attributes:
      episode_steps: steps after which a play is over.
      observe: function from the ``State`` of an environment to a pytree of arrays ``[agents, ...]``, the view.
      chunk: number of decisions computed at once; those of absent agents and of finished plays are left out.
    """

    @property
    def episode_steps(self) -> int: ...
    @property
    def observe(self) -> Callable[[State], Any]: ...
    @property
    def chunk(self) -> int: ...

    def forward(self, parameters: Any, frozen: Any, view: Any, legal: Array) -> tuple[Array, Array]:
        """Return the log-probabilities ``[n, 5]`` of the actions and the values ``[n]`` of views ``[n]``.

        Args:
          parameters: trained parameters of one lane.
          frozen: parameters that no update changes.
          legal: bool ``[n, 5]``; illegal actions have no probability.
        """
        ...

    def features(self, view: Any) -> Array:
        """Return the input of a linear function of views ``[...]``, float32 ``[..., features]``."""
        ...

    def adapt(self, optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
        """Return the optimizer as it is used on the parameters; most actors return it unchanged."""
        ...


REWARDS: dict[str, Callable[[Transition], jax.Array]] = {
    "sparse": rewards.sparse,
    "cost": rewards.cost,
    "shaped": rewards.shaped(),
}


def lake_of(actor: Actor, reward: str | None) -> Lake:
    """Return the rules that an actor plays by: who enters a hole or a conflict ends the episode, as in a plan.

    Args:
      reward: the setting `student.reward`; None without learning.
    """
    lake = Lake(holes=HoleRule.FALL, conflicts=ConflictRule.END, observe=actor.observe)
    if reward is None:
        return lake
    function = REWARDS.get(reward) or extensions.find("student.reward", reward)
    return dataclasses.replace(lake, reward=function)


def log_probabilities(logits: Array, legal: Array) -> Array:
    """Return the log-probabilities ``[..., 5]`` of the actions, of which the illegal ones have none."""
    return jax.nn.log_softmax(jnp.where(legal, logits, _NEVER))


def of_action(log_probabilities: Array, action: Array) -> Array:
    """Return the log-probabilities ``[...]`` of the actions that were taken."""
    return jnp.take_along_axis(log_probabilities, action[..., None], axis=-1)[..., 0]


def chunks(size: int, wanted: Array, rows: Any, body: Callable[[Any, Any, Array], Any], first: Any) -> Any:
    """Fold a function over the wanted rows, `size` of them at a time; over all rows at once if there are no more.

    Args:
      wanted: bool ``[...]``.
      rows: arrays with the axes of `wanted` first.
      body: function from the result so far, rows ``[size, ...]`` and their numbers ``[size]`` in the flattened arrays
        to the next result. The number of a row that is not wanted is `wanted.size`.
      first: the result without any rows.
    """
    count, size = wanted.size, min(size, wanted.size)
    flat = jax.tree.map(lambda x: x.reshape(count, *x.shape[wanted.ndim :]), rows)
    if size == count:
        return body(first, flat, jnp.where(wanted.reshape(-1), jnp.arange(count), count))
    numbers = jnp.nonzero(wanted.reshape(-1), size=-(-count // size) * size, fill_value=count)[0]

    def step(place: Array, result: Any) -> Any:
        part = jax.lax.dynamic_slice_in_dim(numbers, place * size, size)
        return body(result, jax.tree.map(lambda x: x.at[part].get(mode="clip"), flat), part)

    return jax.lax.fori_loop(0, -(-jnp.sum(wanted) // size), step, first)


def decide(actor: Actor, parameters: Any, frozen: Any, view: Any, legal: Array, wanted: Array) -> tuple[Array, Array]:
    """Return log-probabilities ``[..., 5]`` and values ``[...]`` of views ``[...]``.

    Args:
      wanted: bool ``[...]``; where it is False, nothing is computed: any legal action, and a value of 0.
    """

    def body(results: Any, part: tuple[Any, Array], numbers: Array) -> Any:
        decided = actor.forward(parameters, frozen, *part)
        return jax.tree.map(lambda whole, x: whole.at[numbers].set(x, mode="drop"), results, decided)

    nothing = jnp.where(legal, 0.0, _NEVER).reshape(wanted.size, -1), jnp.zeros(wanted.size)
    logits, value = chunks(actor.chunk, wanted, (view, legal), body, nothing)
    return logits.reshape(legal.shape), value.reshape(wanted.shape)


def lane(tree: Any, number: int) -> Any:
    """Return one lane of arrays with a leading axis of lanes, without that axis."""
    return jax.tree.map(lambda x: x[number], tree)


def lanes(trees: list[Any]) -> Any:
    """Return arrays stacked along a new leading axis of lanes; numpy arrays stay on the host."""
    return jax.tree.map(lambda *x: np.stack(x) if isinstance(x[0], np.ndarray) else jnp.stack(x), *trees)
