"""Levels as data: stacking, padding and checking instances, their distances, and the bank that episodes draw from.

A level is an ``Instance``. Makes up no instance: that is what ``generate`` is for.
"""

from collections.abc import Iterator, Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.flood import LARGEST_SIDE, steps_to_goals
from jaxlake.record import Array, Record, record
from jaxlake.types import ABSENT, MAX_GOALS, Instance, LifelongInstance, coordinate


def pad(instance: Instance, max_size: int, max_agents: int) -> Instance:
    """Return the same level on a padded board of another side with other agent slots, its cells renumbered, in numpy.

    Args:
      instance: any leading batch axes.
    """
    size, agents = (int(np.max(number, initial=0)) for number in (instance.size, instance.num_agents))
    if max_size < size or max_agents < agents:
        raise ValueError(f"max_size {max_size} and max_agents {max_agents} must be at least {size} and {agents}")
    batch, old_size = np.shape(instance.size), instance.max_size
    side, slots = min(old_size, max_size), min(instance.max_agents, max_agents)
    holes = np.zeros((*batch, max_size, max_size), bool)
    holes[..., :side, :side] = np.reshape(instance.holes, (*batch, old_size, old_size))[..., :side, :side]

    def renumbered(cells: Array) -> np.ndarray:
        row, column = np.divmod(np.asarray(cells, np.int32), old_size)
        return np.where(np.equal(cells, ABSENT), ABSENT, row * max_size + column)

    def of_agents(values: Array, nobody: int = ABSENT) -> np.ndarray:
        padded = np.full((*batch, max_agents), nobody, np.int32)
        padded[..., :slots] = np.asarray(values)[..., :slots]
        return padded

    padded = Instance(
        size=np.asarray(instance.size, np.int32),
        num_agents=np.asarray(instance.num_agents, np.int32),
        holes=holes.reshape(*batch, max_size * max_size),
        starts=of_agents(renumbered(instance.starts)),
        goals=of_agents(renumbered(instance.goals)),
    )
    if not isinstance(instance, LifelongInstance):
        return padded
    return LifelongInstance(
        **vars(padded),
        tasks=renumbered(instance.tasks),
        first=of_agents(instance.first, 0),
        count=of_agents(instance.count, 0),
        place=of_agents(instance.place, 0),
        board=np.asarray(instance.board, np.int32),
        digest=np.asarray(instance.digest, np.int32),
    )


def build(
    size: int, holes: np.ndarray, starts: Sequence[int], goals: Sequence[int], max_agents: int | None = None
) -> Instance:
    """Build an instance from plain numbers; numpy arrays without batch axes.

    Args:
      holes: bool, of as many cells as the padded board has.
      starts, goals: cells of the padded board, one for each agent.
      max_agents: agent slots, the number of agents by default.
    """
    padding = [ABSENT] * (0 if max_agents is None else max_agents - len(starts))
    return Instance(
        size=np.asarray(size, np.int32),
        num_agents=np.asarray(len(starts), np.int32),
        holes=holes.reshape(-1),
        starts=np.array([*starts, *padding], np.int32),
        goals=np.array([*goals, *padding], np.int32),
    )


def stack(instances: Sequence[Instance]) -> Instance:
    """Join instances without batch axes, at least one, to ``[n]``, padded to the largest, in numpy."""
    max_size = max(instance.max_size for instance in instances)
    max_agents = max(instance.max_agents for instance in instances)
    padded = [pad(instance, max_size, max_agents) for instance in instances]
    if any(isinstance(instance, LifelongInstance) for instance in padded):
        padded = _with_as_many_tasks(padded)
    stacked: Instance = jax.tree.map(lambda *parts: np.stack(parts), *padded)
    return stacked


def _with_as_many_tasks(instances: Sequence[Instance]) -> list[Instance]:
    lists = [instance.tasks for instance in instances if isinstance(instance, LifelongInstance)]
    if len(lists) < len(instances):
        raise ValueError("some instances have lists of goals and others have none: lifelong.board makes them")
    pads = [(0, max(map(len, lists)) - len(tasks)) for tasks in lists]
    longer = [np.pad(tasks, room, constant_values=ABSENT) for tasks, room in zip(lists, pads, strict=True)]
    return [instance.replace(tasks=tasks) for instance, tasks in zip(instances, longer, strict=True)]


def validate(instance: Instance, lifelong: bool = False) -> None:
    """Check that the instance, with or without one leading batch axis, can be played.

    Agents stand on different cells of the board that are no holes, and so do their goals; an agent may start on its own
    goal or another's. 20,000 boards of 10x10 take 17 ms.

    Args:
      lifelong: whether it may be a ``LifelongInstance``, of which several agents may have one goal.
    """
    axes = batch_axes(instance, lifelong)
    if len(axes) > 1:
        raise ValueError(f"the instances have batch axes {axes}: they must have one at most")
    batch = jax.tree.map(lambda leaf: np.asarray(leaf)[None] if not axes else np.asarray(leaf), instance)
    for fault, wrong in _faults(batch):
        if wrong.any():
            index, entry = np.argwhere(wrong)[0].tolist()
            where = coordinate(entry, batch.max_size) if "cell" in fault else entry
            raise ValueError(f"{f'instance {index}: ' if axes else ''}{fault.format(where)}")


def batch_axes(instance: Instance, lifelong: bool = False) -> tuple[int, ...]:
    """Return the batch axes of an instance, also under ``jit``; ValueError if it is lifelong and may not be."""
    if not lifelong:
        check_has_end(instance)
    axes = np.shape(instance.size)
    chex.assert_equal_shape_prefix(jax.tree.leaves(instance), len(axes))
    return axes


def check_has_end(instance: Instance) -> None:
    """Raise ValueError for a ``LifelongInstance``, for functions that need one goal an agent."""
    if isinstance(instance, LifelongInstance):
        raise ValueError("the board is lifelong, its agents have goals without end: Lake(goals=...) alone plays it")


def distance_fields(instances: Instance) -> jax.Array:
    """Return the steps from each cell to each agent's goal without other agents; also under ``jit``.

    Args:
      instances: at most one batch axis. The fields take two bytes for each agent and cell: 64 KiB a board of 32 x 32
        with 32 agents, 1 MiB of 64 x 64 with 128.

    Returns:
      int16 ``[..., max_agents, cells]``; ``ABSENT`` for holes, cells off the board or cut off from the goal, and for
      absent agents.
    """
    axes = batch_axes(instances, lifelong=True)
    if instances.max_size > LARGEST_SIDE:
        raise ValueError(f"max_size = {instances.max_size} must be at most {LARGEST_SIDE}: distances are 16 bits")
    batch = instances if axes else jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], instances)
    fields: jax.Array = steps_to_goals(batch)
    return fields if axes else fields[0]


def distance_tables(instances: Instance) -> jax.Array:
    """Return the steps between any two cells of each board without agents, for ``Lake.reset`` of lifelong boards.

    Args:
      instances: at most one batch axis. A table takes two bytes for each pair of cells: 2 MiB a board of 32 x 32, 32
        MiB of 64 x 64, 512 MiB of 128 x 128.

    Returns:
      int16 ``[..., 1, cells, cells]``, so that ``jax.vmap`` gives ``Lake.reset`` each board's own as ``[1, cells,
      cells]``; ``ABSENT`` as in ``distance_fields``.
    """
    axes, cells = batch_axes(instances, lifelong=True), instances.max_size**2
    everywhere = jnp.broadcast_to(jnp.arange(cells, dtype=jnp.int32), (*axes, cells))
    parts = {"size": instances.size, "num_agents": instances.num_agents, "holes": instances.holes}
    return distance_fields(Instance(**parts, starts=everywhere, goals=everywhere))[..., None, :, :]


@record
class LevelBank(Record):
    """Levels that episodes draw from under jit; ``len`` counts them, and ``bank[:100]`` is a bank of the first hundred.

    Attributes:
      instances: ``[levels]``.
      distances: ``[levels, max_agents, cells]`` of ``distance_fields``, of lifelong boards ``[levels, 1, cells,
        cells]`` of ``distance_tables``, or None; int8 if they have at most 128 cells, as up to 11 x 11, else int16.
    """

    instances: Instance
    distances: Array | None

    @staticmethod
    def build(instances: Instance, with_distances: bool = False) -> "LevelBank":
        """Check the instances ``[levels]`` and put them on the default device."""
        validate(instances, lifelong=True)
        instances = jax.tree.map(jnp.asarray, instances)
        fields = distance_tables if isinstance(instances, LifelongInstance) else distance_fields
        short = np.int8 if instances.max_size**2 <= 128 else np.int16
        return LevelBank(instances=instances, distances=fields(instances).astype(short) if with_distances else None)

    def draw(self, key: Array) -> tuple[Instance, Array | None]:
        """Return a level, each with the same probability, and its distances."""
        return self.at(self.draw_index(key))

    def draw_index(self, key: Array) -> jax.Array:
        """Return the number of a level, each with the same probability, uint32 ``[]``."""
        # randint costs 2.5 times as much, for a bias below levels / 2 ** 32.
        return jax.random.bits(key, dtype=np.uint32) % np.uint32(len(self))

    def at(self, index: Array | int) -> tuple[Instance, Array | None]:
        """Return the level of that number, int32 ``[]``, and its distances."""
        level = self[index]
        instance, distances = level.instances, level.distances
        if isinstance(instance, LifelongInstance):
            instance = instance.replace(board=jnp.asarray(index, jnp.int32))
        return instance, distances


def _faults(batch: Instance) -> Iterator[tuple[str, Array]]:
    """Yield all that can be wrong with instances ``[n]``: its words, and where it is, bool ``[n, agents or cells]``."""
    side, agents = batch.max_size, batch.max_agents
    size, count, holes = batch.size, batch.num_agents, batch.holes
    row, column = np.divmod(np.arange(side * side), side)
    ring = np.maximum(row, column).astype(np.int16)  # 16 bits: half the time of 32, and boards have up to 2,048 rows
    off_board = ring >= np.clip(size, 0, side).astype(np.int16)[:, None]
    named = np.arange(agents) < count[:, None]
    yield f"the size must be from 1 to {side}, the side of the padded board", ((size < 1) | (size > side))[:, None]
    yield f"num_agents must be from 1 to {agents}, the agent slots", ((count < 1) | (count > agents))[:, None]
    yield "cell {} is a hole off the board", holes & off_board
    for name, cells in (("start", batch.starts), ("goal", batch.goals)):
        padded = (cells >= 0) & (cells < side * side)
        inside = np.where(padded, cells, 0)
        outside = ~padded | (np.maximum(*np.divmod(inside, side)) >= size[:, None])
        # Of each agent whether one before it has the same cell: [n, agents, agents] would be most of the time.
        taken = np.zeros(cells.shape, bool)
        for agent in range(1, agents):
            taken[:, agent] = (cells[:, :agent] == cells[:, agent, None]).any(axis=1)
        yield f"the {name} of agent {{}} is off the board", named & outside
        yield f"the {name} of agent {{}} is a hole", named & np.take_along_axis(np.asarray(holes), inside, axis=1)
        if name == "start" or not isinstance(batch, LifelongInstance):
            yield f"the {name} of agent {{}} is also that of an agent before it", named & taken
        yield f"agent {{}} has a {name} and is beyond num_agents", ~named & (cells != ABSENT)
    if isinstance(batch, LifelongInstance):
        tasks, first, goals = (np.asarray(part, np.int64) for part in (batch.tasks, batch.first, batch.count))
        ends, room = first + goals, tasks.shape[1]
        inside = np.where((tasks >= 0) & (tasks < side * side), tasks, 0)
        wrong = (tasks != inside) | np.take_along_axis(np.asarray(holes | off_board), inside, axis=1)
        before = np.pad(np.cumsum(wrong, axis=1), ((0, 0), (1, 0)))  # how many wrong ones are before each task
        begin, end = (np.take_along_axis(before, np.clip(edge, 0, room), axis=1) for edge in (first, ends))
        yield f"agent {{}} must have 2 to {MAX_GOALS:,} goals", named & ((goals < 2) | (goals > MAX_GOALS))
        yield f"the goals of agent {{}} are not all among the {room} tasks", named & ((first < 0) | (ends > room))
        yield "the place of agent {} must be below its count", named & ((batch.place < 0) | (batch.place >= goals))
        yield "among the goals of agent {} is a hole, or none of the board's", named & (begin < end)
