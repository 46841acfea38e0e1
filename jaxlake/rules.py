"""One joint move: what the agents want, who is in conflict, who stays. Knows no episode, observation or reward.

Few agents are unrolled, and sets of them are bits of one integer. Under ``vmap`` every operation then runs along the
batch, which XLA for CPUs vectorises, as it does the last axis only: ``[batch, agents, agents]`` masks, 5 long there,
took more than ten times as long. Many agents fill such an axis, and unrolled they would compile for minutes.
"""

import enum
import functools
import itertools
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array, Record, record
from jaxlake.types import ABSENT, Action, Instance

VERSION = 2
"""Number of the rules, which a change raises after which moves, episodes, verdicts or readings of answers differ."""
_FEW = 8


class HoleRule(enum.StrEnum):
    """The effect of a move into a hole."""

    IMPASSABLE = "impassable"
    """The agent stays where it is, and the move is not legal (the paper)."""
    FALL = "fall"
    """The agent falls in, which ends the episode (the classic frozen lake)."""


class ConflictRule(enum.StrEnum):
    """The effect of a conflict: agents that would share a cell, or swap cells."""

    BLOCK = "block"
    """None of them moves, nor any agent that would enter a cell which is therefore not left."""
    END = "end"
    """No agent moves, and the episode ends."""


class GoalRule(enum.StrEnum):
    """The effect of reaching a goal."""

    ONCE = "once"
    """The agent stays in the way on it, and the episode is solved when all agents are on theirs."""
    DRAWN = "drawn"
    """The agent gets another entry of its goals in the same step, each with the same probability."""
    LISTED = "listed"
    """The agent gets the next of its goals in the same step, and after the last the first."""


@record
class Outcome(Record):
    """The result of a joint move.

    Attributes:
      positions: int32 ``[agents]`` cells, ``ABSENT`` where it was so before.
      blocked: bool ``[agents]``, wanted to move and stayed because of a conflict, its own or one ahead of it.
      rested: bool ``[agents]``, was on its goal and is; True for absent agents.
      solved: bool ``[]``, all are on their goals.
      entered_hole: bool ``[agents]``, moved into a hole.
      in_conflict: bool ``[]``.
      vertex_conflicts, swap_conflicts: int32 ``[]`` pairs that wanted the same cell, and that wanted to swap.
    """

    positions: Array
    blocked: Array
    rested: Array
    solved: Array
    entered_hole: Array
    in_conflict: Array
    vertex_conflicts: Array
    swap_conflicts: Array


def move(instance: Instance, positions: Array, actions: Array, holes: HoleRule, conflicts: ConflictRule) -> Outcome:
    """Move all agents at once; no batch axes.

    A move off the board, or into a hole that is ``IMPASSABLE``, wants the agent's own cell.

    Args:
      positions: int32 ``[agents]`` different cells, ``ABSENT`` for agents that are not there.
      actions: integers ``[agents]``; what is no ``Action`` waits.
    """
    move = _move_few if instance.max_agents <= _FEW else _move_many
    return move(instance, positions, actions, HoleRule(holes), ConflictRule(conflicts))


def _move_few(
    instance: Instance, positions: Array, actions: Array, holes: HoleRule, conflicts: ConflictRule
) -> Outcome:
    side, agents = instance.max_size, range(instance.max_agents)
    before, goals = _compact(positions, side), _compact(instance.goals, side)
    # Holes are looked up beside the agent, whatever the move is worth: no CPU vectorises what is fused into a lookup.
    offset = jnp.zeros_like(positions)
    for direction, cells in _offsets(side).items():
        offset = jnp.where(actions == direction, np.array(cells, offset.dtype), offset)
    into_hole = _is_hole(instance, positions + offset)
    wanted = [_target(before[agent], actions[agent], instance.size, side) for agent in agents]
    if holes is HoleRule.IMPASSABLE:
        wanted = [jnp.where(into_hole[agent], before[agent], wanted[agent]) for agent in agents]

    def compare(agent: Array) -> tuple[Array, Array]:
        cell = jax.lax.select_n(agent, *wanted)  # not a row of a stack, which XLA would transpose twice
        return _bits([cell == other for other in before]), _bits([cell == other for other in wanted])

    standing, rivals = jax.lax.map(compare, np.arange(len(agents), dtype=np.int32))
    ahead = [standing[agent] for agent in agents]  # apart, so that the loop below runs along the batch
    moving = _bits([wanted[agent] != before[agent] for agent in agents])
    everybody = np.array((1 << len(agents)) - 1, moving.dtype)
    conflicting = _bits((rivals & (rivals - 1)) != 0)  # Each is a rival of its own, so: more than one bit.
    swap_conflicts = jnp.zeros_like(conflicting, jnp.int32)  # no constant: see ``record.vary_alike``
    for first, second in itertools.combinations(agents, 2):
        swap = (ahead[first] >> second) & (ahead[second] >> first) & 1
        conflicting |= swap << first | swap << second
        swap_conflicts += swap.astype(jnp.int32)
    in_conflict = conflicting != 0
    stays = ~moving | conflicting
    if conflicts is ConflictRule.END:
        stays = jnp.where(in_conflict, everybody, stays)
    at_home, would_be_home = (_bits([cells[agent] == goals[agent] for agent in agents]) for cells in (before, wanted))

    # An agent that stays stops the one behind it, and the longest queue has all agents in it. A loop rather than an
    # expression, because XLA would fuse the expression into each of its dozen consumers and compute it that often (900
    # ns an environment against 170, and 20 s to compile against 2); a loop of a single pass would be inlined.
    def pass_back(_: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        stays, _ = carry
        for agent in agents:
            stays |= jnp.where((ahead[agent] & stays) != 0, np.array(1 << agent, stays.dtype), np.array(0, stays.dtype))
        return stays, (stays & at_home) | (~stays & would_be_home)

    stays, home = jax.lax.fori_loop(0, max(len(agents) - 1, 2), pass_back, (stays, stays & at_home))
    stayed = _flags(stays, len(agents))
    return Outcome(
        positions=jnp.maximum(
            jnp.stack([jnp.where(stayed[agent], before[agent], wanted[agent]) for agent in agents]).astype(jnp.int32),
            ABSENT,
        ),
        blocked=jnp.stack(_flags(stays & moving, len(agents))),
        rested=jnp.stack(_flags(home & at_home, len(agents))),
        solved=(home & everybody) == everybody,
        entered_hole=into_hole & ~jnp.stack(stayed),
        in_conflict=in_conflict,
        vertex_conflicts=(jnp.sum(jax.lax.population_count(rivals), dtype=jnp.int32) - len(agents)) // 2,
        swap_conflicts=swap_conflicts,
    )


def _move_many(
    instance: Instance, positions: Array, actions: Array, holes: HoleRule, conflicts: ConflictRule
) -> Outcome:
    side, agents = instance.max_size, instance.max_agents
    before, goals = _compact_array(positions, side), _compact_array(instance.goals, side)
    wanted = jax.vmap(lambda cell, action: _target(cell, action, instance.size, side))(before, actions)
    into_hole = _is_hole(instance, wanted)
    if holes is HoleRule.IMPASSABLE:
        wanted = jnp.where(into_hole, before, wanted)
    # Other agents along the first axis: XLA for CPUs vectorises a sum over any axis but the last.
    number = np.arange(agents, dtype=np.int16)
    stands = before[:, None] == wanted[None]
    ahead = jnp.max(jnp.where(stands, number[:, None], np.int16(ABSENT)), axis=0)
    rivals = jnp.sum(wanted[:, None] == wanted[None], axis=0, dtype=np.int16)
    moving = wanted != before
    swapping = moving & jnp.any(stands & (wanted[:, None] == before[None]), axis=0)
    conflicting = (rivals > 1) | swapping
    in_conflict = jnp.any(conflicting)
    stays = ~moving | conflicting
    if conflicts is ConflictRule.END:
        stays |= in_conflict

    # Of the queue in front of an agent each pass looks at twice as many for one that stays.
    def pass_back(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        stays, ahead = carry
        nearer = ahead.astype(jnp.uint32)
        stays |= stays.at[nearer].get(mode="promise_in_bounds")
        return stays, ahead.at[nearer].get(mode="promise_in_bounds")

    ahead = jnp.where(ahead < 0, number, ahead)
    stays, _ = jax.lax.fori_loop(0, (agents - 1).bit_length(), pass_back, (stays, ahead))
    home = jnp.where(stays, before, wanted) == goals
    return Outcome(
        positions=jnp.maximum(jnp.where(stays, before, wanted).astype(jnp.int32), ABSENT),
        blocked=stays & moving,
        rested=home & (before == goals),
        solved=jnp.all(home),
        entered_hole=into_hole & ~stays,
        in_conflict=in_conflict,
        vertex_conflicts=(jnp.sum(rivals, dtype=jnp.int32) - agents) // 2,
        swap_conflicts=jnp.sum(swapping, dtype=jnp.int32) // 2,
    )


def legal_actions(instance: Instance, positions: Array, holes: HoleRule) -> jax.Array:
    """Return bool ``[agents, 5]`` by ``Action``: moves to cells that can be entered, WAIT; WAIT alone if absent."""
    holes, side = HoleRule(holes), instance.max_size
    few = instance.max_agents <= _FEW
    cells = jnp.stack(_compact(positions, side)) if few else _compact_array(positions, side)
    inside = jax.vmap(lambda cell: _inside(cell, instance.size, side))(cells)
    columns = []
    for direction, offset in _offsets(side).items():
        enterable = holes is HoleRule.FALL or ~_is_hole(instance, positions + offset)
        columns.append(inside[direction] & enterable)
    return jnp.stack([*columns, jnp.ones(instance.max_agents, bool)], axis=1)


def _compact(cells: Array, side: int) -> list[jax.Array]:
    """Return the agents' cells in the smallest dtype that holds one; each absent agent gets its own negative cell."""
    # int8 where it can be: 58 ns a move on 10x10 boards against 118 in int32.
    dtype = next(kind for kind in (np.int8, np.int16, np.int32) if side * side <= np.iinfo(kind).max)
    return [
        jnp.where(cell == ABSENT, np.array(ABSENT - agent, dtype), cell)
        for agent, cell in enumerate(cells.astype(dtype))
    ]


def _compact_array(cells: Array, side: int) -> jax.Array:
    """Return the cells of ``_compact`` in one array."""
    dtype = np.min_scalar_type(-max(side * side, len(cells)) - 1)
    nowhere = (ABSENT - np.arange(len(cells))).astype(dtype)
    compact: jax.Array = jnp.where(cells == ABSENT, nowhere, cells.astype(dtype))
    return compact


def _target(cell: Array, action: Array, size: Array, side: int) -> Array:
    """Return the cell that an action leads to on a board without holes."""
    inside, target = _inside(cell, size, side), cell
    for direction, offset in _offsets(side).items():
        target = jnp.where((action == direction) & inside[direction], cell + np.array(offset, cell.dtype), target)
    return target


def _offsets(side: int) -> dict[Action, int]:
    return {Action.UP: -side, Action.DOWN: side, Action.LEFT: -1, Action.RIGHT: 1}


def _inside(cell: Array, size: Array, side: int) -> dict[Action, Array]:
    """bool ``[]`` per direction: there is an agent, and the move does not lead it off the board."""
    there, size, width = cell >= 0, size.astype(cell.dtype), np.array(side, cell.dtype)
    column = jax.lax.rem(cell, width)
    return {
        Action.UP: cell >= width,
        Action.DOWN: there & (cell < (size - 1) * width),
        Action.LEFT: there & (column > 0),
        Action.RIGHT: there & (column < size - 1),
    }


def _is_hole(instance: Instance, cells: Array) -> jax.Array:
    """bool ``[agents]``; of no meaning for cells off the padded board."""
    # Unsigned, because negative indices cost code that counts them from the end.
    return jnp.asarray(instance.holes).at[cells.astype(jnp.int32).astype(jnp.uint32)].get(mode="clip")


def _bits(flags: Sequence[jax.Array] | jax.Array) -> jax.Array:
    """Return the set of the agents whose flag is True, as bits of the smallest integer with enough of them."""
    dtype = next(kind for kind in (np.uint8, np.uint16, np.uint32) if len(flags) <= np.iinfo(kind).bits)
    members = [jnp.where(flags[agent], np.array(1 << agent, dtype), np.array(0, dtype)) for agent in range(len(flags))]
    packed: jax.Array = functools.reduce(operator.or_, members)
    return packed


def _flags(bits: Array, agents: int) -> list[jax.Array]:
    """Invert ``_bits``."""
    # By shifts: with masks, ``bits & 1 << agent``, JAX 0.10.1 to 0.12.0.1 abort at 5 to 7 agents on CPUs with AVX-512.
    one = np.array(1, bits.dtype)
    return [((bits >> np.array(agent, bits.dtype)) & one).astype(bool) for agent in range(agents)]
