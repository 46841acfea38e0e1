"""Answers to boards, and the verdicts on them: the one trip for students, and for folders that they have saved."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from jaxlake.record import Array
from jaxlake.types import Instance, Plan, Verdict
from jaxlake.verify import verify
from rl.model.sampler import SamplingParams

GREEDY = SamplingParams(temperature=0.0)
"""The likeliest token, or move, each time."""
Show = Callable[[int], None]
"""Is called with the number of finished answers of a call now and then; may raise, as a signal's `Interrupted`."""


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers to boards, those to one board side by side: numpy arrays ``[boards * samples]``.

    Attributes:
      plans: the moves of each.
      lengths: int32, tokens of a text, or steps of a play.
      truncated: bool, cut off by the limit on tokens or steps.
      texts: function from indices of answers to their texts.
    """

    plans: Plan
    lengths: np.ndarray
    truncated: np.ndarray
    texts: Callable[[Array], list[str]]


class Answerer(Protocol):
    """Answers boards, be it with plans in words or by moving turn by turn.

    Whoever has these members, which need no configuration of a run, gets validations (`rl.judge.validation`) and kept
    answers to the fixed suites with their scores (`rl.judge.asking`, `rl.judge.suite`).

    Attributes:
      identity: plain values that affect the answers, beside the boards, the sampling and the key.
      rows: number of answers that are made at once.
      first_lost: function from boards and texts to the place in each text that loses the last valid plan
        (`rl.learn.credit.first_lost`); None for who does not write.
    """

    @property
    def identity(self) -> Mapping[str, Any]: ...

    @property
    def rows(self) -> int: ...

    @property
    def first_lost(self) -> Callable[[Instance, Sequence[str]], Sequence[int | None]] | None: ...

    def answer(
        self, boards: Instance, samples: int, sampling: SamplingParams, key: jax.Array, show: Show, first: int = 0
    ) -> Answers:
        """Answer each of the boards ``[n]`` `samples` times; all processes of a job call it alike and get all answers.

        Args:
          key: key of the draws; greedy answers and sampled ones have draws of their own.
          first: number of the first answer, where a call is a part of a larger question.

        ConfigError if a board has no room or the sampling is not possible, RunError if numbers are not finite.
        """
        ...


def judge(boards: Instance, optima: Array, plans: Plan) -> Verdict:
    """Return the verdicts ``[boards * samples]`` on plans, those of one board side by side; numpy arrays.

    Args:
      boards, optima: ``[boards]``, and their least costs.
    """
    samples = len(plans.num_named) // len(optima)
    boards, optima = jax.tree.map(lambda x: np.repeat(x, samples, axis=0), (boards, optima))
    return jax.tree.map(np.asarray, verify(boards, plans, optima))
