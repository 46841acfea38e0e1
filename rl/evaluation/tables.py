"""What the answers of an evaluation are worth, line by line: shares with intervals, chances at k, lengths."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from engineer.evidence import wilson
from jaxlake.benchmark import Benchmark, Cell, Row, Scores, score
from jaxlake.types import Objective
from rl.evaluation.record import Answer


@dataclasses.dataclass(frozen=True)
class Share:
    """A share in percent with its 95 % interval by Wilson; an instance counts once, however many answers it has."""

    percent: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Of some answers; None where there are none, or nobody knows.

    Attributes:
      mean, p90: tokens.
      truncated: percent that the limit on tokens ended.
    """

    mean: float | None
    p90: float | None
    truncated: float | None


@dataclasses.dataclass(frozen=True)
class Line:
    """Some instances of the suite.

    Attributes:
      agents: None for all of them together, each number of agents and size counting the same.
      wait_subset: None for all subsets together.
      size: None for the unweighted mean over sizes, the paper's "Sum".
      instances: how many.
      valid, optimal: of all answers; one that is missing is invalid.
      optimal_given_valid: of the valid answers; None without any.
      at: by k, the chances in percent that of k answers one is valid, and one optimal; empty for a single answer.
    """

    agents: int | None
    wait_subset: float | None
    size: int | None
    instances: int
    valid: Share
    optimal: Share
    optimal_given_valid: Share | None
    at: Mapping[int, tuple[float, float]]
    lengths: Lengths


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """An evaluation's figures.

    Attributes:
      about: what it is of, plain values.
      samples: answers asked for to each instance.
      scores: the verdicts.
      lines: every cell and mean, as ``Scores.rows`` has them.
      lengths: of all answers.
    """

    about: Mapping[str, Any]
    samples: int
    scores: Scores
    lines: tuple[Line, ...]
    lengths: Lengths

    @property
    def agents(self) -> list[int]:
        """Numbers of agents, ascending."""
        return sorted({line.agents for line in self.lines if line.agents is not None})

    @property
    def whole(self) -> list[Line]:
        """The lines of all wait subsets together; where a number of agents has one subset, those of that one."""
        several = {line.agents for line in self.lines if line.wait_subset is None}
        return [line for line in self.lines if line.wait_subset is None or line.agents not in several]

    def to_json(self) -> dict[str, Any]:
        """Plain values: what it is of, every line, and the invalid answers by the first check that fails."""
        scores = self.scores.to_json()
        head = {name: scores[name] for name in ("set", "sha256", "objective", "instances", "answers", "missing")}
        return {
            **self.about,
            **head,
            "lengths": dataclasses.asdict(self.lengths),
            "lines": [dataclasses.asdict(line) for line in self.lines],
            "failures": scores["failures"],
        }


def evaluate(
    asked: Benchmark,
    answers: Mapping[tuple[str, int], Answer],
    samples: int,
    objective: Objective,
    about: Mapping[str, Any],
) -> Evaluation:
    """Judges the answers to some instances of a suite.

    Args:
      asked: the instances.
      answers: by id and sample; those to other instances do not count.
      samples: asked for to each instance.
      objective: what an optimal plan minimises.
      about: goes into the result as it is.
    """
    by_id: dict[str, list[str]] = {}
    tokens, truncated = (np.full((len(asked), samples), np.nan) for _ in range(2))
    for place, identifier in enumerate(asked.ids):
        here = [answers[identifier, sample] for sample in range(samples) if (identifier, sample) in answers]
        by_id[identifier] = [answer.answer for answer in here]
        for answer in here:
            truncated[place, answer.sample] = answer.truncated
            if answer.tokens is not None:
                tokens[place, answer.sample] = answer.tokens
    scores = score(by_id, asked, objective=objective)
    chances = {k: scores.at(k).rows for k in _counts(samples)}
    lines = []
    for number, row in enumerate(scores.rows):
        for size in (*row.by_size, None):
            here = _of(asked, row, size)
            cell = _cell(row, size)
            lines.append(
                Line(
                    agents=row.num_agents,
                    wait_subset=row.wait_subset,
                    size=size,
                    instances=cell.instances,
                    **_shares(cell, _weight(asked, here)),
                    at={
                        k: (at.valid, at.optimal)
                        for k, at in ((k, _cell(rows[number], size)) for k, rows in chances.items())
                    },
                    lengths=_lengths(tokens[here], truncated[here]),
                )
            )
    return Evaluation(about, samples, scores, tuple(lines), _lengths(tokens, truncated))


def _counts(samples: int) -> list[int]:
    """The powers of two up to the number of samples, and that; nothing for a single answer."""
    return sorted({samples, *(2**i for i in range(samples.bit_length()))}) if samples > 1 else []


def _cell(row: Row, size: int | None) -> Cell:
    return row.mean if size is None else row.by_size[size]


def _of(asked: Benchmark, row: Row, size: int | None) -> np.ndarray:
    """bool ``[n]``: the instances that a row counts, of one size or of all."""
    here = np.ones(len(asked), bool)
    if row.num_agents is not None:
        here &= asked.instances.num_agents == row.num_agents
    if row.wait_subset is not None:
        here &= asked.wait_subset == row.wait_subset
    return here if size is None else here & (asked.instances.size == size)


def _weight(asked: Benchmark, here: np.ndarray) -> float:
    """Instances that would tell as much if they were drawn from all cells together.

    A mean of C shares of n_i instances each has the variance of C^2 / sum(1 / n_i) instances, their number where the
    cells are of one size, as they are but for what ``--limit`` leaves over.
    """
    cells = np.stack([asked.instances.num_agents, asked.instances.size], axis=1)[here]
    counts = np.unique(cells, axis=0, return_counts=True)[1]
    return len(counts) ** 2 / (1 / counts).sum()


def _shares(cell: Cell, weight: float) -> dict[str, Share | None]:
    """The three shares of a cell.

    With several answers to an instance the mean of its share varies less than one answer does, so that the interval is
    wider than need be, never narrower.
    """
    valid, optimal = cell.valid / 100, cell.optimal / 100
    return {
        "valid": _share(valid, weight),
        "optimal": _share(optimal, weight),
        "optimal_given_valid": _share(optimal / valid, valid * weight) if valid else None,
    }


def _share(share: float, count: float) -> Share:
    low, high = wilson(share * count, count)
    return Share(100 * share, 100 * low, 100 * high)


def _lengths(tokens: np.ndarray, truncated: np.ndarray) -> Lengths:
    tokens, truncated = tokens[~np.isnan(tokens)], truncated[~np.isnan(truncated)]
    return Lengths(
        mean=float(tokens.mean()) if tokens.size else None,
        p90=float(np.percentile(tokens, 90)) if tokens.size else None,
        truncated=100 * float(truncated.mean()) if truncated.size else None,
    )
