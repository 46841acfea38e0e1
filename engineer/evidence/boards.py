"""The boards that evidence was measured on: their statistics, and a few of those that failed, drawn as text."""

from collections import Counter

import numpy as np

from engineer.evidence.types import CHECKS, SizeEnvironment, Trajectory
from jaxlake.board_text import to_text
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset
from jaxlake.record import Array
from jaxlake.types import Instance, Plan

_ROOM = 1000
"""Characters of an answer that a trajectory keeps: a plan of 5 agents on the largest board takes 600."""


def environment(boards: Dataset, requested: LakeConfig | None = None) -> tuple[SizeEnvironment, ...]:
    """Describe boards, size by size in ascending order.

    Args:
      boards: one set or several put together, whose report then has several entries of a size.
      requested: the configuration that they were asked for with, if it was one.
    """
    sizes, cost = np.asarray(boards.instances.size), np.asarray(boards.solutions.cost)
    gap = cost - np.asarray(boards.solutions.lower_bound)
    asked = {} if requested is None else requested.to_dict()
    rows = []
    for size in sorted({entry.size for entry in boards.report}):
        entries, of_size = [entry for entry in boards.report if entry.size == size], sizes == size
        count = sum(entry.realised for entry in entries)
        searched = sum(entry.candidates - entry.known for entry in entries)
        solvable = sum(entry.solvable * (entry.candidates - entry.known) for entry in entries)
        # Of a size without boards the holes that they would have had.
        holes = sum(entry.hole_ratio * (entry.realised if count else 1 / len(entries)) for entry in entries)
        rows.append(
            SizeEnvironment(
                size=size,
                instances=count,
                requested=asked.get(str(size)),
                realised={
                    "data": count / len(sizes),
                    "hole": holes / max(count, 1),
                    "wait": sum(entry.realised_waits for entry in entries) / max(count, 1),
                },
                optimal_cost=float(cost[of_size].mean()) if count else None,
                interaction_gap=float(gap[of_size].mean()) if count else None,
                solvable=solvable / searched if searched else None,
            )
        )
    return tuple(rows)


def typical_failures(sizes: Array, checks: Array, most: int = 6) -> np.ndarray:
    """Choose which failed answers to show: the first one of each of the most frequent kinds, the most frequent first.

    A kind is a size and the first check that fails; of equally frequent ones the smaller size, then the earlier check
    comes first.

    Args:
      sizes: int ``[n]`` side of each answer's board.
      checks: bool ``[n, 8]``, True where a check passes.

    Returns:
      int ``[at most most]``, their indices.
    """
    failed = np.flatnonzero(~checks.all(axis=-1))
    kinds = list(zip(sizes[failed].tolist(), checks[failed].argmin(axis=-1).tolist(), strict=True))
    counted = Counter(kinds)
    ranked = sorted(counted, key=lambda kind: (-counted[kind], kind))[:most]
    return failed[[kinds.index(kind) for kind in ranked]]


def trajectory(instance: Instance, plan: Plan, checks: Array, answer: str) -> Trajectory:
    """Record one failed answer, without batch axes; checks bool ``[8]``, of which one at least is False."""
    answer = answer.rpartition("</think>")[2].strip()
    return Trajectory(
        size=int(instance.size),
        check=CHECKS[int(np.argmin(checks))],
        board=to_text(instance, plan if plan.parsable else None),
        answer=answer if len(answer) <= _ROOM else f"...{answer[3 - _ROOM :]}",
    )
