"""Conflicts of a node's paths, and the constraints that resolve them: the branching of Conflict-Based Search.

Children exclude each other (Li et al. 2019, disjoint splitting): one agent is fixed on the cell, and the other must
avoid it, or it is kept off the cell. An agent that passes another's goal after the other one's arrival splits on that
arrival (Li et al. 2020, target reasoning). Knows no costs and plans no paths.
"""

import enum
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array, Record, record
from jaxlake.solve.bitboard import NOWHERE, one_hot
from jaxlake.solve.lanes import fold, materialize, pick, put
from jaxlake.solve.paths import NARROW


class Split(enum.IntEnum):
    """The ways to resolve a conflict of agents i and j at a time."""

    CELL_FIXED_FIRST = 0
    CELL_FREED_FIRST = 1
    ARRIVAL = 2
    SWAP_FIXED_FIRST = 3
    SWAP_FREED_FIRST = 4
    SWAP_REST = 5
    """i and j swap, and j is fixed to do so: i avoids it."""
    FORCED = 6


class Branch(enum.IntEnum):
    """The constraint that a child adds; ``cell`` is i's at the conflict and ``cell_before`` one step earlier."""

    NONE = 0
    FIX = 1
    """i is on the cell; j replans."""
    FREE = 2
    """i is not on the cell; i replans."""
    ARRIVED = 3
    """i has arrived for good by then; j replans."""
    NOT_ARRIVED = 4
    """i arrives for the last time only later; i replans."""
    FIX_BOTH = 5
    """i enters the cell from the cell before; j replans."""
    FIX_AFTER = 6
    """i is on the cell, but not on the cell before; i replans."""
    AVOID = 7
    """j replans, the constraints already tell it to."""


_BRANCHES = np.array(
    [
        [Branch.FIX, Branch.FREE, Branch.NONE, Branch.NONE],
        [Branch.FREE, Branch.FIX, Branch.NONE, Branch.NONE],
        [Branch.ARRIVED, Branch.NOT_ARRIVED, Branch.NONE, Branch.NONE],
        [Branch.FIX_BOTH, Branch.FREE, Branch.FIX_AFTER, Branch.NONE],
        [Branch.FREE, Branch.FIX_BOTH, Branch.FIX_AFTER, Branch.NONE],
        [Branch.FREE, Branch.FIX_AFTER, Branch.NONE, Branch.NONE],
        [Branch.AVOID, Branch.NONE, Branch.NONE, Branch.NONE],
    ],
    np.int32,
)
"""The children of each ``Split`` in their order."""


@record
class Level(Record):
    """A branching on the way to the current node, int32 ``[lanes]``, or ``[depth, lanes]`` in the stack.

    Attributes:
      split, child: a ``Split`` and which of its children the search is in.
      first, second: agents i and j.
      time, cell, cell_before: time and cells of i at the conflict.
      sets_cell, sets_before: whether i was not fixed there already.
      park_min, park_max, count: ``park_min`` and ``park_max`` of i, and the number of conflicts, before the branching.
      replanned, arrival: the agent that the child replans, and its arrival before.
      path: uint8 ``[steps + 1, lanes]``, its path before.
    """

    split: Array
    child: Array
    first: Array
    second: Array
    time: Array
    cell: Array
    cell_before: Array
    sets_cell: Array
    sets_before: Array
    park_min: Array
    park_max: Array
    count: Array
    replanned: Array
    arrival: Array
    path: Array


@record
class Change(Record):
    """The change that a child makes in the tables of constraints.

    Attributes:
      forbidden: agent and time int32 ``[lanes]``, -1 for none, and the cell as a set uint32 ``[words, lanes]``.
      fixed: two of agent and time, -1 for none, and cell uint8 ``[lanes]``.
    """

    forbidden: tuple[Array, Array, Array]
    fixed: tuple[tuple[Array, Array, Array], ...]


def find_conflicts(paths: Array, on: Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Conflicts of uint8 paths ``[agents, steps + 1, lanes]``, int32 ``[lanes]`` each.

    Returns:
      their number; the most worthwhile one as ``(class * 128 + time) * 16 + pair``, where the class is 0 if both
      agents are narrow there, 1 for one and 2 for none; a bit per pair with a conflict of class 0, a cardinal one.
    """
    agents, length, lanes = paths.shape
    if agents < 2:
        none = jnp.zeros(lanes, jnp.int32)
        return none, none, none

    def at_all_times(paths: Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        cells, narrow = paths & np.uint8(NARROW - 1), paths >= NARROW
        here, there = cells[:, 1:], cells[:, :-1]
        moves = here != there
        narrow_move = narrow[:, 1:] & narrow[:, :-1]
        time = np.arange(1, length, dtype=np.int16)[:, None] * np.int16(16)
        count, key, edges = jnp.int16(0), jnp.int16(32767), jnp.int16(0)
        for pair, (i, j) in enumerate(itertools.combinations(range(agents), 2)):
            same = (here[i] == here[j]) & (here[i] != NOWHERE)
            swap = (here[i] == there[j]) & (there[i] == here[j]) & moves[i]
            conflict = same | swap
            tight_i = jnp.where(swap, narrow_move[i], narrow[i, 1:])
            tight_j = jnp.where(swap, narrow_move[j], narrow[j, 1:])
            loose = np.int16(2) - tight_i.astype(jnp.int16) - tight_j.astype(jnp.int16)
            count += conflict.astype(jnp.int16)
            key = jnp.minimum(key, jnp.where(conflict, loose * np.int16(2048) + time + np.int16(pair), np.int16(32767)))
            edges |= jnp.where(conflict & tight_i & tight_j, np.int16(1 << pair), np.int16(0))
        return count, key, edges

    count, key, edges = materialize(on, at_all_times, paths)
    edges = fold(jnp.bitwise_or, edges).astype(jnp.int32)
    return (fold(jnp.add, count).astype(jnp.int32), fold(jnp.minimum, key).astype(jnp.int32), edges)


def branch_on(
    key: Array,
    count: Array,
    paths: Array,
    arrivals: Array,
    fixed: Array,
    undone: Change,
    park_min: Array,
    park_max: Array,
) -> Level:
    """Choose how to resolve the conflict that is most worth it; its path and what is replanned are filled in later."""
    agents = paths.shape[0]
    pairs = np.stack(np.triu_indices(agents, 1)).astype(np.int32) if agents > 1 else np.zeros((2, 1), np.int32)
    pair, time = key & 15, jnp.minimum((key >> 4) & 127, paths.shape[1] - 1)
    pair = jnp.minimum(pair, pairs.shape[1] - 1)
    one, other = (jnp.asarray(side)[pair] for side in pairs)
    before = jnp.maximum(time - 1, 0)
    lane = jnp.arange(pair.shape[0], dtype=jnp.int32)

    def seen(agent: Array, time: Array) -> jax.Array:
        return paths[agent, time, lane].astype(jnp.int32)

    def fixed_to(agent: Array, time: Array) -> jax.Array:
        cell = fixed[agent, time, lane]
        for whose, when, _ in undone.fixed:
            cell = jnp.where((whose == agent) & (when == time), jnp.uint8(NOWHERE), cell)
        return cell.astype(jnp.int32)

    def about(agent: Array) -> dict[str, jax.Array]:
        now, then = seen(agent, time), seen(agent, before)
        return {
            "cell": now & (NARROW - 1),
            "cell_before": then & (NARROW - 1),
            "is_narrow": now >= NARROW,
            "was_narrow": then >= NARROW,
            "fixed": fixed_to(agent, time),
            "fixed_before": fixed_to(agent, before),
            "parked": time >= pick(arrivals, agent),
            "bound": pick(park_max, agent) <= time,
            "park_min": pick(park_min, agent),
            "park_max": pick(park_max, agent),
        }

    def rank(x: dict[str, jax.Array]) -> tuple[jax.Array, ...]:
        is_fixed = (x["fixed"] == x["cell"]) & (~swap | (x["fixed_before"] == x["cell_before"]))
        narrow = x["is_narrow"] & (~swap | x["was_narrow"])
        parked = ~swap & x["parked"]
        return is_fixed, narrow, parked, jnp.where(swap, np.int32(-4), np.int32(4)) * is_fixed + 2 * parked + narrow

    both = about(one), about(other)
    swap = both[0]["cell"] != both[1]["cell"]
    ranks = [rank(x) for x in both]
    # The agent that gets constraints: not the one that is fixed in a swap, or else the one that is fixed, has arrived
    # or is narrow.
    flip = ranks[1][-1] > ranks[0][-1]
    mine = {name: jnp.where(flip, both[1][name], both[0][name]) for name in both[0]}
    narrow = jnp.where(flip, ranks[1][1], ranks[0][1])
    fixed, parked = ranks[0][0] | ranks[1][0], ranks[0][2] | ranks[1][2]
    split = jnp.where(
        swap,
        jnp.where(narrow, Split.SWAP_FIXED_FIRST, Split.SWAP_FREED_FIRST),
        jnp.where(narrow, Split.CELL_FIXED_FIRST, Split.CELL_FREED_FIRST),
    ).astype(jnp.int32)
    split = jnp.where(parked, Split.ARRIVAL, split)
    split = jnp.where((fixed & ~swap) | (parked & mine["bound"]), Split.FORCED, split)
    split = jnp.where(fixed & swap, Split.SWAP_REST, split)
    none = jnp.zeros_like(one)
    return Level(
        split=split,
        child=none,
        first=jnp.where(flip, other, one),
        second=jnp.where(flip, one, other),
        time=time,
        cell=mine["cell"],
        cell_before=mine["cell_before"],
        sets_cell=(mine["fixed"] != mine["cell"]).astype(jnp.int32),
        sets_before=(mine["fixed_before"] != mine["cell_before"]).astype(jnp.int32),
        park_min=mine["park_min"],
        park_max=mine["park_max"],
        count=count,
        replanned=none,
        arrival=none,
        path=paths[0],
    )


def change(
    park_min: Array, park_max: Array, level: Level, branch: Array, words: int, undo: bool
) -> tuple[Change, jax.Array, jax.Array]:
    """Return what a child adds to the constraints, or takes back, and the bounds on arrivals after that."""
    nobody = jnp.int32(-1)
    earlier = branch == Branch.FIX_AFTER
    frees = earlier | (branch == Branch.FREE)
    cell = jnp.where(earlier, level.cell_before, level.cell).astype(jnp.uint8)
    fixes = (branch == Branch.FIX) | (branch == Branch.FIX_BOTH) | earlier
    fixes &= level.sets_cell == 1
    fixes_before = (branch == Branch.FIX_BOTH) & (level.sets_before == 1)
    change = Change(
        forbidden=(jnp.where(frees, level.first, nobody), level.time - earlier, one_hot(cell, words)),
        fixed=(
            (jnp.where(fixes, level.first, nobody), level.time, level.cell.astype(jnp.uint8)),
            (jnp.where(fixes_before, level.first, nobody), level.time - 1, level.cell_before.astype(jnp.uint8)),
        ),
    )
    least = level.park_min if undo else jnp.maximum(level.park_min, level.time + 1)
    park_min = put(park_min, level.first, least, branch == Branch.NOT_ARRIVED)
    park_max = put(park_max, level.first, level.park_max if undo else level.time, branch == Branch.ARRIVED)
    return change, park_min, park_max


def forbidding(forbidden: Array, undone: tuple[Array, ...], done: tuple[Array, ...]) -> Array:
    """Take back one ``Change.forbidden`` in the table uint32 ``[agents, steps + 1, words, lanes]`` and make another."""
    agents, length = forbidden.shape[:2]
    agent, time = jnp.arange(agents, dtype=jnp.int32)[:, None, None], jnp.arange(length, dtype=jnp.int32)[:, None]

    def bits(change: tuple[Array, ...]) -> Array:
        whose, when, cell = change
        cells: Array = jnp.where(((agent == whose) & (time == when))[:, :, None], cell, jnp.uint32(0))
        return cells

    return (forbidden & ~bits(undone)) | bits(done)


def fixing(
    fixed: Array, undone: tuple[tuple[Array, Array, Array], ...], done: tuple[tuple[Array, Array, Array], ...]
) -> Array:
    """Take back one ``Change.fixed`` in the table uint8 ``[agents, steps + 1, lanes]`` and make another."""
    agents, length = fixed.shape[:2]
    agent, time = jnp.arange(agents, dtype=jnp.int32)[:, None, None], jnp.arange(length, dtype=jnp.int32)[:, None]
    for whose, when, _ in undone:
        fixed = jnp.where((agent == whose) & (time == when), jnp.uint8(NOWHERE), fixed)
    for whose, when, cell in done:
        fixed = jnp.where((agent == whose) & (time == when), cell, fixed)
    return fixed


def child(split: Array, child: Array) -> jax.Array:
    """Return the ``Branch`` of a child of a ``Split``, ``NONE`` after the last."""
    return jnp.asarray(_BRANCHES.reshape(-1))[split * _BRANCHES.shape[1] + child]
