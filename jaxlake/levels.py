"""Levels as data: stacking, padding and checking instances, and the bank that episodes draw theirs from.

A level is an ``Instance``. Makes up no instance: that is what ``generate`` is for.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array, Record, record
from jaxlake.types import ABSENT, Instance

_MAX_DISTANCE = np.iinfo(np.int8).max


def pad(instance: Instance, max_size: int, max_agents: int) -> Instance:
    """The same level on a larger padded board with more agent slots, its cells renumbered; numpy arrays.

    Args:
      instance: any leading batch axes.
      max_size: side of the new padded board.
      max_agents: agent slots of the new one.

    Raises:
      ValueError: if the padded board or the slots would shrink.
    """
    old_size, old_agents = instance.max_size, instance.max_agents
    if max_size < old_size or max_agents < old_agents:
        raise ValueError(
            f"max_size {max_size} and max_agents {max_agents}: allowed is at least the instance's own, "
            f"{old_size} and {old_agents}"
        )
    batch = np.shape(instance.size)
    holes = np.zeros((*batch, max_size, max_size), bool)
    holes[..., :old_size, :old_size] = np.reshape(instance.holes, (*batch, old_size, old_size))

    def renumbered(cells: Array) -> np.ndarray:
        row, column = np.divmod(np.asarray(cells), old_size)
        padded = np.full((*batch, max_agents), ABSENT, np.int32)
        padded[..., :old_agents] = np.where(np.asarray(cells) == ABSENT, ABSENT, row * max_size + column)
        return padded

    return Instance(
        size=np.asarray(instance.size, np.int32),
        num_agents=np.asarray(instance.num_agents, np.int32),
        holes=holes.reshape(*batch, max_size * max_size),
        starts=renumbered(instance.starts),
        goals=renumbered(instance.goals),
    )


def stack(instances: Sequence[Instance]) -> Instance:
    """Instances without batch axes as one ``[n]``, padded to the largest of them; numpy arrays.

    Raises:
      ValueError: if there is none, or one has batch axes.
    """
    if not instances:
        raise ValueError("no instances to stack: at least 1 is needed")
    for index, instance in enumerate(instances):
        if np.ndim(instance.size):
            raise ValueError(f"instance {index} has batch axes {np.shape(instance.size)}: allowed are none")
    max_size = max(instance.max_size for instance in instances)
    max_agents = max(instance.max_agents for instance in instances)
    padded = [pad(instance, max_size, max_agents) for instance in instances]
    return jax.tree.map(lambda *parts: np.stack(parts), *padded)


def validate(instance: Instance) -> None:
    """Returns if the instance, with or without one leading batch axis, can be played.

    Raises:
      ValueError: in one line that names the first fault, the agent and, with a batch axis, the instance.
    """
    batch = jax.tree.map(np.asarray, instance)
    axes = batch.size.shape
    if len(axes) > 1:
        raise ValueError(f"the instances have batch axes {axes}: allowed is one at most")
    for name, part in vars(batch).items():
        of_each = name not in ("size", "num_agents")  # an axis of cells or agents
        if part.shape[: len(axes)] != axes or part.ndim != len(axes) + of_each:
            raise ValueError(f"{name} has the shape {part.shape}: allowed is {(*axes, *['n'] * of_each)}")
        if not np.issubdtype(part.dtype, np.bool_ if name == "holes" else np.integer):
            raise ValueError(f"{name} is {part.dtype}: allowed is {'bool' if name == 'holes' else 'int32'}")
    if not axes:
        _validate_one(batch, "")
        return
    for index in range(len(batch.size)):
        _validate_one(jax.tree.map(lambda part, index=index: part[index], batch), f"instance {index}: ")


def distances(instances: Instance) -> np.ndarray:
    """Steps from every cell to each agent's goal with nobody in the way, int8 ``[levels, max_agents, cells]``.

    ``ABSENT`` for holes, cells off the board, cells that the goal cannot be reached from, and absent agents.

    Raises:
      ValueError: if a distance exceeds 127.
    """
    side = instances.max_size
    row, column = np.divmod(np.arange(side * side), side)
    free = ~np.asarray(instances.holes) & (np.maximum(row, column) < np.asarray(instances.size)[:, None])
    free = free.reshape(-1, 1, side, side)
    goals = np.asarray(instances.goals)[..., None]
    reached = (np.arange(side * side) == goals).reshape(*goals.shape[:2], side, side) & free
    steps = np.where(reached, 0, ABSENT)
    for step in range(1, side * side):
        grown = np.pad(reached, ((0, 0), (0, 0), (1, 1), (1, 1)))
        near = grown[..., :-2, 1:-1] | grown[..., 2:, 1:-1] | grown[..., 1:-1, :-2] | grown[..., 1:-1, 2:]
        new = near & free & ~reached
        if not new.any():
            break
        if step > _MAX_DISTANCE:
            raise ValueError(f"a goal is more than {_MAX_DISTANCE} steps away from a cell: distances are int8")
        steps[new] = step
        reached |= new
    return steps.reshape(*goals.shape[:2], side * side).astype(np.int8)


@record
class LevelBank(Record):
    """Levels that episodes draw from under jit; ``len`` counts them, and ``bank[:100]`` is a bank of the first hundred.

    Attributes:
      instances: ``[levels]``.
      distances: int8 ``[levels, max_agents, cells]`` as of ``distances``, or None.
    """

    instances: Instance
    distances: Array | None

    @staticmethod
    def build(instances: Instance, with_distances: bool = False) -> "LevelBank":
        """Checks the instances ``[levels]`` and puts them on the default device.

        Raises:
          ValueError: as ``validate``, or if there is no level.
        """
        if np.ndim(instances.size) != 1 or not len(instances.size):
            raise ValueError(f"instances have batch axes {np.shape(instances.size)}: a bank needs one, of at least 1")
        validate(instances)
        table = jnp.asarray(distances(instances)) if with_distances else None
        return LevelBank(instances=jax.tree.map(jnp.asarray, instances), distances=table)

    def draw(self, key: Array) -> tuple[Instance, Array | None]:
        """A level, each with the same probability, and its distances."""
        # randint costs 2.5 times as much, for a bias below levels / 2 ** 32.
        return self.at(jax.random.bits(key, dtype=np.uint32) % np.uint32(len(self)))

    def at(self, index: Array | int) -> tuple[Instance, Array | None]:
        """The level of that number, int32 ``[]``, and its distances."""
        level = self[index]
        return level.instances, level.distances


def _validate_one(instance: Instance, where: str) -> None:
    side, agents = instance.max_size, instance.max_agents
    size, count = int(instance.size), int(instance.num_agents)
    if side * side != instance.holes.shape[-1]:
        raise ValueError(f"{where}holes have {instance.holes.shape[-1]} cells: allowed is a square number")
    if len(instance.goals) != agents:
        raise ValueError(
            f"{where}goals have {len(instance.goals)} agent slots and starts {agents}: allowed is the same"
        )
    if not 1 <= size <= side:
        raise ValueError(f"{where}size is {size}: allowed is 1 to {side}, the side of the padded board")
    if not 1 <= count <= agents:
        raise ValueError(f"{where}num_agents is {count}: allowed is 1 to {agents}, the agent slots")
    row, column = np.divmod(np.arange(side * side), side)
    off_board = np.maximum(row, column) >= size
    for cell in np.flatnonzero(instance.holes & off_board)[:1]:
        raise ValueError(f"{where}there is a hole at ({row[cell]},{column[cell]}), off the board of side {size}")
    for name, cells in (("start", instance.starts.tolist()), ("goal", instance.goals.tolist())):
        for agent, cell in enumerate(cells[:count]):
            if not 0 <= cell < side * side or off_board[cell]:
                raise ValueError(f"{where}{name} {cell} of agent {agent} is off the board of side {size}")
            at = f"({row[cell]},{column[cell]})"
            if instance.holes[cell]:
                raise ValueError(f"{where}{name} {at} of agent {agent} is a hole")
            if cell in cells[:agent]:
                raise ValueError(f"{where}agents {cells.index(cell)} and {agent} have the same {name} {at}")
        for agent in range(count, agents):
            if cells[agent] != ABSENT:
                raise ValueError(
                    f"{where}agent {agent} has the {name} {cells[agent]}, but there are only {count} agents"
                )
