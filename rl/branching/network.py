"""Branches of a network: all repeats of several designs are lanes of one program."""

import functools
from collections.abc import Sequence

import jax
import numpy as np

from engineer.evidence.answers import standard_error
from jaxlake.generate import Dataset
from jaxlake.kinds import Kind
from rl.branching.designs import Design
from rl.branching.gains import Change, Gain, Train
from rl.run.boards import join_boards
from rl.run.keys import Purpose, make_key
from rl.students import NetworkStudent
from rl.students.network import ppo


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
    def start() -> tuple[np.ndarray, np.ndarray]:
        before = student.valid_shares(student.state.learner, boards, samples)[0]
        return before, _gradient(student, [student.validation], jax.random.fold_in(key, 2**16))[0]

    def train(designs: Sequence[tuple[int, Design]]) -> list[list[Gain]]:
        before, target = start()
        learner, drawn = student.branch([design.config for _, design in designs], repeats, key)
        after = student.valid_shares(learner, boards, samples).reshape(len(designs), repeats, -1)
        gradients = _gradient(student, drawn[::repeats], jax.random.fold_in(key, 2**16 + 1))
        gains = []
        for i, shares in enumerate(after):
            predictors = _signal(student, drawn[i * repeats], samples)
            predictors["gradient alignment"] = _cosine(gradients[i], target)
            gains.append([_gain(before, share, boards.kinds, is_target, predictors) for share in shares])
        return gains

    return train


def _gain(
    before: np.ndarray, after: np.ndarray, kinds: np.ndarray, is_target: np.ndarray, predictors: dict[str, float | None]
) -> Gain:
    """Return what a branch gained from valid shares ``[boards]`` before and after it."""

    def share(where: np.ndarray) -> Change:
        first, last = before[where], after[where]
        return Change(float(first.mean()), float(last.mean()), standard_error(last - first))

    by_kind: dict[Kind, Change] = {kind: share(kinds == kind) for kind in sorted(set(kinds.tolist()))}
    return Gain(share(is_target), by_kind, predictors)


def _signal(student: NetworkStudent, boards: Dataset, samples: int) -> dict[str, float | None]:
    """Return what plays of a design's boards by the network as it is say of how much there is to learn.

    ``p(1-p)`` of each kind's valid share, weighted by its data, as SFL and `learnability` take it; and the variance of
    the reward among plays of one board, mean over boards.
    """
    samples = max(samples, 2)
    shares = student.valid_shares(student.state.learner, boards, samples)[0]
    by_kind = {kind: shares[boards.kinds == kind].mean() for kind in set(boards.kinds.tolist())}
    p = np.array([by_kind[kind] for kind in boards.kinds])
    within = shares * (1 - shares) * samples / (samples - 1)
    return {"p(1-p)": float((p * (1 - p)).mean()), "reward variance": float(within.mean())}


def _gradient(student: NetworkStudent, boards: Sequence[Dataset], key: jax.Array) -> np.ndarray:
    """Return the gradient of the network's loss on each of several sets of boards, ``[sets, parameters]``."""
    count = len(boards)
    parameters = jax.tree.map(lambda x: np.repeat(x, count, axis=0), student.state.learner.parameters)
    levels = ppo.lanes([part.instances for part in boards])
    optima = np.stack([np.asarray(part.solutions.cost) for part in boards])
    keys = jax.numpy.repeat(key[None], count, axis=0)
    return np.asarray(ppo.policy_gradients(student.settings, parameters, levels, optima, keys))


def _cosine(a: np.ndarray, b: np.ndarray) -> float | None:
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length else None
