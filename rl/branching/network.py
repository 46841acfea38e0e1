"""Branches of a network: all repeats of several designs are lanes of one program."""

import functools
from collections.abc import Sequence

import numpy as np

from engineer.evidence.answers import standard_error
from jaxlake.kinds import Kind
from rl.branching.designs import Design
from rl.branching.gains import Change, Gain, Train
from rl.run.boards import join_boards
from rl.run.keys import Purpose, make_key
from rl.students import NetworkStudent


def trainer(student: NetworkStudent, repeats: int, samples: int) -> Train:
    """Return what trains and measures branches of the network from its state.

    Args:
      repeats: of each design.
      samples: plays of each board, before and after.
    """
    key = make_key(student.config.seed, Purpose.BRANCH, student.state.progress.round)
    parts = [student.validation] + ([] if student.other_boards is None else [student.other_boards])
    boards = join_boards(parts)
    is_target = np.arange(len(boards.kinds)) < len(student.validation.kinds)

    @functools.cache  # at the first design: where all are there already, nothing is compiled
    def start() -> np.ndarray:
        return student.valid_shares(student.state.learner, boards, samples)[0]

    def train(designs: Sequence[tuple[int, Design]]) -> list[list[Gain]]:
        before = start()
        learner, _ = student.branch([design.config for _, design in designs], repeats, key)
        after = student.valid_shares(learner, boards, samples).reshape(len(designs), repeats, -1)
        return [[_gain(before, shares, boards.kinds, is_target) for shares in of_design] for of_design in after]

    return train


def _gain(before: np.ndarray, after: np.ndarray, kinds: np.ndarray, is_target: np.ndarray) -> Gain:
    """Return what a branch gained from valid shares ``[boards]`` before and after it."""

    def share(where: np.ndarray) -> Change:
        first, last = before[where], after[where]
        return Change(float(first.mean()), float(last.mean()), standard_error(last - first))

    by_kind: dict[Kind, Change] = {kind: share(kinds == kind) for kind in sorted(set(kinds.tolist()))}
    return Gain(share(is_target), by_kind)
