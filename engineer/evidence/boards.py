"""The boards that evidence was measured on: their statistics, and a few of those that failed, drawn as text."""

from collections import Counter

import numpy as np

from engineer.evidence.types import CHECKS, KindEnvironment, Trajectory
from jaxlake.board_text import to_text
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset
from jaxlake.kinds import Kind
from jaxlake.record import Array
from jaxlake.types import Instance, Plan

_ROOM = 1000
"""Characters of an answer that a trajectory keeps: a plan of 5 agents on the largest board takes 600."""


def environment(boards: Dataset, requested: LakeConfig | None = None) -> tuple[KindEnvironment, ...]:
    """Describe boards, kind by kind in ascending order.

    Args:
      boards: one set or several put together, whose report then has several entries of a kind.
      requested: the configuration that they were asked for with, if it was one.
    """
    cost = np.asarray(boards.solutions.cost)
    gap = cost - np.asarray(boards.solutions.lower_bound)
    asked = {} if requested is None else requested.to_dict()
    rows = []
    for kind in sorted({entry.kind for entry in boards.report}):
        entries, of_kind = [entry for entry in boards.report if entry.kind == kind], boards.kinds == kind
        count = sum(entry.realised for entry in entries)
        searched = sum(entry.candidates - entry.known for entry in entries)
        solvable = sum(entry.solvable * (entry.candidates - entry.known) for entry in entries)
        # Of a kind without boards the holes that they would have had.
        holes = sum(entry.hole_ratio * (entry.realised if count else 1 / len(entries)) for entry in entries)
        rows.append(
            KindEnvironment(
                kind=kind,
                instances=count,
                requested=asked.get(str(kind)),
                realised={
                    "data": count / len(cost),
                    "hole": holes / max(count, 1),
                    "wait": sum(entry.realised_waits for entry in entries) / max(count, 1),
                },
                optimal_cost=float(cost[of_kind].mean()) if count else None,
                interaction_gap=float(gap[of_kind].mean()) if count else None,
                solvable=solvable / searched if searched else None,
            )
        )
    return tuple(rows)


def typical_failures(kinds: Array, checks: Array, most: int = 6) -> np.ndarray:
    """Return indices of failed answers to show: the first of each of the `most` frequent failures, these first.

    A failure is a kind of boards and the first check that fails; of equally frequent ones the smaller kind, then the
    earlier check comes first.

    Args:
      kinds: object ``[n]``, `Kind` of each answer's board.
      checks: bool ``[n, 8]``, True where a check passes.
    """
    failed = np.flatnonzero(~checks.all(axis=-1))
    failures = list(zip(kinds[failed].tolist(), checks[failed].argmin(axis=-1).tolist(), strict=True))
    counted = Counter(failures)
    ranked = sorted(counted, key=lambda failure: (-counted[failure], failure))[:most]
    return failed[[failures.index(failure) for failure in ranked]]


def trajectory(kind: Kind, instance: Instance, plan: Plan, checks: Array, answer: str) -> Trajectory:
    """Record one failed answer, without batch axes; checks bool ``[8]``, of which one at least is False."""
    answer = answer.rpartition("</think>")[2].strip()
    return Trajectory(
        kind=kind,
        check=CHECKS[int(np.argmin(checks))],
        board=to_text(instance, plan if plan.parsable else None),
        answer=answer if len(answer) <= _ROOM else f"...{answer[3 - _ROOM :]}",
    )
