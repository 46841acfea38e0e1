"""Levels as data: stacking, padding and checking instances, their distances, and the bank that episodes draw from.

A level is an ``Instance``. Makes up no instance: that is what ``generate`` is for.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.arguments import short_repr, whole_number
from jaxlake.flood import LARGEST_SIDE, steps_to_goals
from jaxlake.record import Array, Record, record
from jaxlake.types import ABSENT, MAX_GOALS, Instance, LifelongInstance, coordinate


def pad(instance: Instance, max_size: int, max_agents: int) -> Instance:
    """Return the same level on a padded board of another side with other agent slots, its cells renumbered, in numpy.

    Args:
      instance: any leading batch axes.

    Raises:
      ValueError: if a board or its agents would not fit.
    """
    max_size, max_agents = whole_number("max_size", max_size, 1), whole_number("max_agents", max_agents, 1)
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
    """Join instances without batch axes to ``[n]``, padded to the largest, in numpy; ValueError for others or none."""
    if not isinstance(instances, Iterable) or not all(isinstance(instance, Instance) for instance in instances):
        raise ValueError(f"{short_repr(instances)} must be a sequence of Instances")
    if not len(instances):
        raise ValueError("no instances to stack: at least 1 is needed")
    for index, instance in enumerate(instances):
        if np.ndim(instance.size):
            raise ValueError(f"instance {index} has batch axes {np.shape(instance.size)}: it must have none")
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
    goal or another's. Functions that take concrete instances, not only traced ones, call this: ``solve``,
    ``Lake.reset``, ``LevelBank.build``, the files and the text adapters. 20,000 boards of 10x10 take 17 ms.

    Args:
      lifelong: whether it may be a ``LifelongInstance``, of which several agents may have one goal.

    Raises:
      ValueError: in one line that names the first fault, the agent and, with a batch axis, the instance.
    """
    axes = check_shapes(instance, lifelong)
    if len(axes) > 1:
        raise ValueError(f"the instances have batch axes {axes}: they must have one at most")
    parts = {name: np.asarray(part) if axes else np.asarray(part)[None] for name, part in vars(instance).items()}
    batch = type(instance)(**parts)
    faults = [(mask, message) for mask, message in _faults(batch) if mask.any()]
    if faults:
        index = min(int(np.argmax(mask.any(axis=1))) for mask, _ in faults)
        mask, message = next((mask, message) for mask, message in faults if mask[index].any())
        fault = message.format_map(_words(batch[index], int(np.argmax(mask[index]))))
        raise ValueError(f"{f'instance {index}: ' if axes else ''}{fault}")


def check_shapes(instance: Instance, lifelong: bool = False) -> tuple[int, ...]:
    """Return the batch axes of an instance, also under ``jit``; ValueError for arrays of another shape or dtype.

    Of a ``LifelongInstance``, too, unless the caller takes ``lifelong`` ones.
    """
    if not isinstance(instance, Instance):
        raise ValueError(f"{short_repr(instance)} must be an Instance; levels.stack makes one of several")
    if not lifelong:
        check_has_end(instance)
    axes = np.shape(instance.size)
    for name, part in vars(instance).items():
        of_each = name not in ("size", "num_agents", "board")  # an axis of cells, agents or tasks
        if isinstance(part, (list, tuple)):
            raise ValueError(f"{name} is a {type(part).__name__}: it must be an array, or this is no pytree of arrays")
        shape, dtype = np.shape(part), part.dtype if hasattr(part, "dtype") else np.asarray(part).dtype
        if shape[: len(axes)] != axes or len(shape) != len(axes) + of_each:
            raise ValueError(f"{name} has the shape {shape}: it must be {(*axes, *['n'] * of_each)}")
        if not np.issubdtype(dtype, np.bool_ if name == "holes" else np.integer):
            raise ValueError(f"{name} is {dtype}: it must be {'bool' if name == 'holes' else 'int32'}")
    cells, agents = np.shape(instance.holes)[-1], np.shape(instance.starts)[-1]
    if not cells or math.isqrt(cells) ** 2 != cells:
        raise ValueError(f"holes have {cells} cells: it must be a square number")
    for name, part in vars(instance).items():
        if name in ("goals", "first", "count", "place") and (slots := np.shape(part)[-1]) != agents:
            raise ValueError(f"{name} have {slots} agent slots and starts {agents}: they must have as many")
    return axes


def check_has_end(instance: Instance) -> None:
    """Raise ValueError for a ``LifelongInstance``, for functions that need one goal an agent."""
    if isinstance(instance, LifelongInstance):
        raise ValueError("the board is lifelong, its agents have goals without end: Lake(goals=...) alone plays it")


def check_unbatched(instance: Instance) -> None:
    """Check that the instance has no batch axes, as what draws it or puts it into words needs it; else ValueError."""
    if not isinstance(instance, Instance):
        raise ValueError(f"{short_repr(instance)} must be an Instance")
    if np.ndim(instance.size):
        raise ValueError(f"the instance has batch axes {np.shape(instance.size)}: it must have none, as instances[0]")


def distance_fields(instances: Instance) -> jax.Array:
    """Return the steps from each cell to each agent's goal without other agents; also under ``jit``.

    Args:
      instances: at most one batch axis. The fields take two bytes for each agent and cell: 64 KiB a board of 32 x 32
        with 32 agents, 1 MiB of 64 x 64 with 128.

    Returns:
      int16 ``[..., max_agents, cells]``; ``ABSENT`` for holes, cells off the board or cut off from the goal, and for
      absent agents.

    Raises:
      ValueError: for more batch axes, and for boards larger than 181 x 181, whose distances might not fit.
    """
    axes = check_shapes(instances, lifelong=True)
    if len(axes) > 1 or instances.max_size > LARGEST_SIDE:
        raise ValueError(
            f"instances with batch axes {axes} and max_size {instances.max_size}: distance_fields takes one batch axis "
            f"at most and boards up to {LARGEST_SIDE}"
        )
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

    Raises:
      ValueError: as ``distance_fields``.
    """
    axes, cells = check_shapes(instances, lifelong=True), instances.max_size**2
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
        """Check the instances ``[levels]`` and put them on the default device.

        Raises:
          ValueError: as ``validate``, or if there is no level.
        """
        axes = check_shapes(instances, lifelong=True)
        if len(axes) != 1 or not axes[0]:
            raise ValueError(f"instances have batch axes {axes}: a bank needs one, of at least 1")
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


def _faults(batch: Instance) -> list[tuple[Array, str]]:
    """All that can be wrong with instances ``[n]``: where it is, bool ``[n, entries]``, and the words for an entry."""
    side, agents = batch.max_size, batch.max_agents
    size, count, holes = batch.size, batch.num_agents, batch.holes
    row, column = np.divmod(np.arange(side * side), side)
    ring = np.maximum(row, column).astype(np.int16)  # 16 bits: half the time of 32, and boards have up to 2,048 rows
    off_board = ring >= np.clip(size, 0, side).astype(np.int16)[:, None]
    named = np.arange(agents) < count[:, None]
    faults: list[tuple[Array, str]] = [
        (((size < 1) | (size > side))[:, None], "size = {size} must be from 1 to {side}, the side of the padded board"),
        (((count < 1) | (count > agents))[:, None], "num_agents = {count} must be from 1 to {agents}, the agent slots"),
        (holes & off_board, "there is a hole at {cell}, off the board of side {size}"),
    ]
    for name, cells in (("start", batch.starts), ("goal", batch.goals)):
        padded = (cells >= 0) & (cells < side * side)
        inside = np.where(padded, cells, 0)
        outside = ~padded | (np.maximum(*np.divmod(inside, side)) >= size[:, None])
        on_hole = np.ravel(holes)[inside + np.arange(len(size))[:, None] * holes.shape[1]]
        # Of each agent whether one before it has the same cell: [n, agents, agents] would be most of the time.
        taken = np.zeros(cells.shape, bool)
        for agent in range(1, agents):
            taken[:, agent] = (cells[:, :agent] == cells[:, agent, None]).any(axis=1)
        only_one = name == "start" or not isinstance(batch, LifelongInstance)
        faults += [
            (named & outside, f"{name} {{{name}}} of agent {{entry}} is off the board of side {{size}}"),
            (named & on_hole, f"{name} {{{name}_cell}} of agent {{entry}} is a hole"),
            (named & taken & only_one, f"agents {{{name}_owner}} and {{entry}} have the same {name} {{{name}_cell}}"),
            (
                ~named & (cells != ABSENT),
                f"agent {{entry}} has the {name} {{{name}}}, but there are only {{count}} agents",
            ),
        ]
    if isinstance(batch, LifelongInstance):
        tasks, first, goals = (np.asarray(part, np.int64) for part in (batch.tasks, batch.first, batch.count))
        ends, room = first + goals, tasks.shape[1]
        inside = np.where((tasks >= 0) & (tasks < side * side), tasks, 0)
        wrong = (tasks != inside) | np.take_along_axis(np.asarray(holes | off_board), inside, axis=1)
        before = np.pad(np.cumsum(wrong, axis=1), ((0, 0), (1, 0)))  # how many wrong ones are before each task
        begin, end = (np.take_along_axis(before, np.clip(edge, 0, room), axis=1) for edge in (first, ends))
        few_or_many, placed = (goals < 2) | (goals > MAX_GOALS), (batch.place >= 0) & (batch.place < goals)
        faults += [
            (named & few_or_many, f"agent {{entry}} has {{goals}} goals: it must have 2 to {MAX_GOALS:,}"),
            (named & ((first < 0) | (ends > room)), "agent {entry} has {goals} goals from task {first} on, of {tasks}"),
            (named & ~placed, "place {place} of agent {entry} must be from 0 on and below its count, {goals}"),
            (named & (begin < end), "among the tasks of agent {entry} is a hole or a cell off the board"),
        ]
    return faults


def _words(instance: Instance, entry: int) -> dict[str, Any]:
    """Return the words for a fault of one instance; the entry is an agent or a cell."""
    side, agents = instance.max_size, instance.max_agents
    words: dict[str, Any] = {"size": instance.size, "count": instance.num_agents, "side": side, "agents": agents}
    words |= {"entry": entry, "cell": coordinate(entry, side)}
    for name, cells in (("start", instance.starts), ("goal", instance.goals)):
        cell = cells[min(entry, agents - 1)]
        words |= {name: cell, f"{name}_cell": coordinate(cell, side), f"{name}_owner": cells.tolist().index(cell)}
    if isinstance(instance, LifelongInstance):
        lists = {"first": instance.first, "goals": instance.count, "place": instance.place}
        words |= {name: part[min(entry, agents - 1)] for name, part in lists.items()} | {"tasks": len(instance.tasks)}
    return words
