"""Scores of an evaluation's answers, line by line: shares with intervals, chances at k, lengths."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxlake.benchmark import Benchmark, Scores, score
from jaxlake.types import Objective
from rl.evaluation.record import Answer
from rl.slices import slices
from rl.statistics import Share

Lengths = dict[str, float | None]
"""Tokens as "mean" and "p90", and as "truncated" the percent that their limit ended; None where nobody knows."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A slice of the suite, see `rl.slices.Slice`.

    Attributes:
      agents, wait, size, whole: of the slice.
      boards: how many.
      valid, optimal: of all answers; one that is missing is invalid. A board counts once, however many answers it has,
        so that with several the interval is wider than need be, never narrower.
      optimal_given_valid: of the valid answers; None without any.
      at: by k, the chances in percent that of k answers one is valid, and one optimal; empty for a single answer.
    """

    agents: int | None
    wait: float | None
    size: int | str | None
    whole: bool
    boards: int
    valid: Share
    optimal: Share
    optimal_given_valid: Share | None
    at: Mapping[int, tuple[float, float]]
    lengths: Lengths

    def to_json(self) -> dict[str, Any]:
        """Return plain values, shares in percent."""
        shares = {"valid": self.valid, "optimal": self.optimal, "optimal_given_valid": self.optimal_given_valid}
        ends = ("percent", "low", "high")
        return {
            "agents": self.agents,
            "wait_subset": self.wait,
            "size": self.size,
            "instances": self.boards,
            **{name: share and dict(zip(ends, share.percent, strict=True)) for name, share in shares.items()},
            "at": self.at,
            "lengths": self.lengths,
        }


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The figures of an evaluation.

    Attributes:
      about: what it is of, plain values.
      samples: answers asked for to each board.
      scores: the verdicts.
      lines: a line for every slice.
      lengths: of all answers.
      identical: every board with several answers has the same one each time.
      greedy: of greedy answers by the same model to the same boards, to be set beside these; None without.
    """

    about: Mapping[str, Any]
    samples: int
    scores: Scores
    lines: tuple[Line, ...]
    lengths: Lengths
    identical: bool
    greedy: "Evaluation | None" = None

    @property
    def agents(self) -> list[int]:
        """List the numbers of agents, ascending."""
        return sorted({line.agents for line in self.lines if line.agents is not None})

    @property
    def whole(self) -> list[Line]:
        """List the lines of all wait subsets together."""
        return [line for line in self.lines if line.whole]

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what it is of, every line, and the invalid answers by the first check that fails."""
        scores = self.scores.to_json()
        head = {name: scores[name] for name in ("set", "sha256", "objective", "instances", "answers", "missing")}
        return {
            **self.about,
            **head,
            "lengths": self.lengths,
            "identical": self.identical,
            "lines": [line.to_json() for line in self.lines],
            **{name: scores[name] for name in ("failures", "failures_by_family") if name in scores},
            **({"greedy": self.greedy.to_json()} if self.greedy else {}),
        }


def evaluate(
    asked: Benchmark,
    answers: Mapping[tuple[str, int], Answer],
    samples: int,
    objective: Objective,
    about: Mapping[str, Any],
) -> Evaluation:
    """Judge the answers to some boards of a suite.

    Args:
      asked: the boards.
      answers: by id and sample; those to other boards do not count.
      samples: asked for to each board.
      objective: what an optimal plan minimises.
      about: goes into the result as it is.
    """
    tokens, truncated = (np.full((len(asked), samples), np.nan) for _ in range(2))
    texts: dict[str, list[str]] = {identifier: [] for identifier in asked.ids}
    for place, identifier in enumerate(asked.ids):
        for sample in range(samples):
            if answer := answers.get((identifier, sample)):
                texts[identifier].append(answer.answer)
                truncated[place, sample] = answer.truncated
                tokens[place, sample] = np.nan if answer.tokens is None else answer.tokens
    agents, size = np.asarray(asked.instances.num_agents), np.array([kind.board for kind in asked.kinds], object)
    scores = score_answers(asked, answers, samples, objective)
    valid, optimal = scores.valid[None], scores.optimal[None]
    powers = {2**i for i in range(samples.bit_length())}
    chances = {k: scores.at(k) for k in sorted({*powers, samples})} if samples > 1 else {}
    lines = tuple(
        Line(
            agents=part.agents,
            wait=part.wait,
            size=part.size,
            whole=part.whole,
            boards=int(part.boards.sum()),
            valid=part.share(valid),
            optimal=part.share(optimal),
            optimal_given_valid=part.share_given(optimal, valid),
            at={k: (100 * part.mean(at.valid[None]), 100 * part.mean(at.optimal[None])) for k, at in chances.items()},
            lengths=_lengths(tokens[part.boards], truncated[part.boards]),
        )
        for part in slices(agents, asked.wait_subset, size)
    )
    several = [answers for answers in texts.values() if len(answers) > 1]
    identical = bool(several) and all(len(set(answers)) == 1 for answers in several)
    return Evaluation(about, samples, scores, lines, _lengths(tokens, truncated), identical)


def score_answers(
    asked: Benchmark, answers: Mapping[tuple[str, int], Answer], samples: int, objective: Objective
) -> Scores:
    """Judge the first answers by id and sample to some boards; those that are missing are invalid.

    A server's chat template may begin a thought in the prompt. Then the opening tag is in none of the answers, and one
    that was cut off while it thought has no tag at all: the others tell.
    """
    opened = any(
        "<think>" not in before for before, tag, _ in (a.answer.partition("</think>") for a in answers.values()) if tag
    )
    by_board = {name: [answers.get((name, sample)) for sample in range(samples)] for name in asked.ids}
    texts = {
        name: [f"<think>{answer.answer}" if opened else answer.answer for answer in own if answer]
        for name, own in by_board.items()
    }
    return score(texts, asked, objective=objective)


def _lengths(tokens: np.ndarray, truncated: np.ndarray) -> Lengths:
    tokens, truncated = tokens[~np.isnan(tokens)], truncated[~np.isnan(truncated)]
    return {
        "mean": float(tokens.mean()) if tokens.size else None,
        "p90": float(np.percentile(tokens, 90)) if tokens.size else None,
        "truncated": 100 * float(truncated.mean()) if truncated.size else None,
    }
